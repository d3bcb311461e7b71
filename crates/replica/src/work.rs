//! Work: the measure by which a server bounds each of its turns.
//!
//! A unit is about as much as looking at one cell of a sheet, or copying [`BYTES`] bytes: some
//! hundred nanoseconds. Work is counted, never timed, so the same inputs give the same turns.

/// Bytes that are copied or encoded for one unit.
pub const BYTES: usize = 64;

/// Most units that one indivisible piece of work takes: a formula, a line, a message, a text.
pub const PIECE_MAX: u64 = 300_000;

/// Units for so many bytes.
pub fn of_bytes(bytes: usize) -> u64 {
    (bytes / BYTES) as u64
}

/// Counts units against an allowance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meter {
    spent: u64,
    allowance: u64,
}

impl Meter {
    /// A meter with an allowance of so many units.
    pub const fn new(allowance: u64) -> Meter {
        Meter { spent: 0, allowance }
    }

    /// A meter that only counts.
    pub const fn unlimited() -> Meter {
        Meter::new(u64::MAX)
    }

    /// Counts units. The last piece may exceed the allowance: it was begun while some was left.
    pub fn spend(&mut self, units: u64) {
        self.spent = self.spent.saturating_add(units);
    }

    /// Whether another piece may begin.
    pub fn has_left(&self) -> bool {
        self.spent < self.allowance
    }

    /// Units that may be counted, but for the last piece.
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
