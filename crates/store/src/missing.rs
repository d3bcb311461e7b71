//! Blocks and space that a plan waits for.

use crate::page::Ptr;

/// Something that must be available before a plan can be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Want {
    /// A page.
    Page {
        ptr: Ptr,
        /// Level that it must have, if known.
        level: Option<u8>,
    },
    /// A data block.
    Data { at: u64, sum: u64 },
    /// Space made by a checkpoint: in the journal, in memory, or on the disk.
    Room,
}

/// Pages and blocks that a plan needs and the cache lacks, for [`crate::Store::fetch`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing(pub(crate) Vec<Want>);

impl Missing {
    /// Merges two of them, to be fetched together.
    #[must_use]
    pub fn merge(mut self, other: Missing) -> Missing {
        self.0.extend(other.0);
        self
    }
}

impl From<Want> for Missing {
    fn from(want: Want) -> Missing {
        Missing(vec![want])
    }
}
