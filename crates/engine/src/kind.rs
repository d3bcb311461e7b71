//! Kinds of tables.

/// Kind of a table, chosen at its creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Ordered keys.
    Tree,
    /// Numbered values.
    Records,
    /// Unordered keys of any length.
    Hash,
    /// Byte ranges.
    Raw,
}

impl Kind {
    pub(crate) const ALL: [Kind; 4] = [Kind::Tree, Kind::Records, Kind::Hash, Kind::Raw];

    /// Returns the kind's code on the disk.
    pub(crate) fn byte(self) -> u8 {
        match self {
            Kind::Tree => 1,
            Kind::Records => 2,
            Kind::Hash => 3,
            Kind::Raw => 4,
        }
    }
}
