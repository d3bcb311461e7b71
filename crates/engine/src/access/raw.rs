//! Byte ranges: objects of any size, which take space only where they were written.

use crate::Call;
use store::Table;

/// A table of raw objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Raw(pub Table);

impl Raw {
    /// Reads `count` bytes from an offset on, zeros where nothing was written:
    /// [`crate::Reply::Bytes`].
    pub fn read(self, object: u64, offset: u64, count: usize) -> Call {
        Call::RawRead { table: self.0, object, offset, count }
    }

    /// Writes bytes at an offset.
    pub fn write(self, object: u64, offset: u64, data: &[u8]) -> Call {
        Call::RawWrite { table: self.0, object, offset, data: data.to_vec() }
    }

    /// Punches a hole: the range reads as zeros and takes no space. `u64::MAX`: to the end.
    pub fn cut(self, object: u64, from: u64, to: u64) -> Call {
        Call::RawCut { table: self.0, object, from, to }
    }
}
