//! Ranges of bytes: an object is as large as one likes, and takes space where it was written.

use crate::Table;
use crate::transaction::Call;

/// A table of raw objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Raw(pub Table);

impl Raw {
    /// So many bytes from an offset on, zeros where nothing was written:
    /// [`crate::transaction::Reply::Bytes`].
    pub fn read(self, object: u64, offset: u64, count: usize) -> Call {
        Call::RawRead { table: self.0, object, offset, count }
    }

    /// Changes bytes from an offset on.
    pub fn write(self, object: u64, offset: u64, data: &[u8]) -> Call {
        Call::RawWrite { table: self.0, object, offset, data: data.to_vec() }
    }

    /// Makes a range a hole: it reads as zeros and takes no space. `u64::MAX`: to the end.
    pub fn cut(self, object: u64, from: u64, to: u64) -> Call {
        Call::RawCut { table: self.0, object, from, to }
    }
}
