//! Units of work, by which a server bounds each of its turns.
//!
//! A unit is roughly the lookup of one sheet cell, or a copy of [`BYTES`] bytes: some hundred
//! nanoseconds. Work is counted, never timed, so equal inputs give equal turns.

/// Bytes copied or encoded per unit.
pub const BYTES: usize = 64;

/// Maximum units of an indivisible piece of work: a formula, a line, a message, a text.
pub const PIECE_MAX: u64 = 300_000;

/// Returns the units for this many bytes.
pub fn of_bytes(bytes: usize) -> u64 {
    (bytes / BYTES) as u64
}

/// Counter of work units against an allowance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meter {
    spent: u64,
    allowance: u64,
}

impl Meter {
    /// Creates a meter with an allowance, in units.
    pub const fn new(allowance: u64) -> Meter {
        Meter { spent: 0, allowance }
    }

    /// Creates a meter that only counts.
    pub const fn unlimited() -> Meter {
        Meter::new(u64::MAX)
    }

    /// Counts units. The last piece may exceed the allowance: it was started within it.
    pub fn spend(&mut self, units: u64) {
        self.spent = self.spent.saturating_add(units);
    }

    /// Reports whether another piece may start.
    pub fn has_left(&self) -> bool {
        self.spent < self.allowance
    }

    /// Units allowed, apart from the excess of the last piece.
    pub fn allowance(&self) -> u64 {
        self.allowance
    }

    /// Units left.
    pub fn left(&self) -> u64 {
        self.allowance.saturating_sub(self.spent)
    }

    /// Units counted so far.
    pub fn spent(&self) -> u64 {
        self.spent
    }
}
