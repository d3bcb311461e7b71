//! The value of a cell with an extent.
//!
//! ```text
//! 0       4       12      20
//! | bytes | block | birth | sum 0 | sum 1 ...
//! ```
//!
//! `bytes` is the length of the contents; for raw objects it is that of all blocks of the extent.

use crate::change::Extent;
use crate::little_endian::{u32_at, u64_at};

const HEADER: usize = 20;

/// The extent in a cell, decoded in place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a>(&'a [u8]);

impl<'a> View<'a> {
    pub(crate) fn new(value: &'a [u8]) -> View<'a> {
        View(value)
    }

    /// Returns the length of the contents, bytes.
    pub(crate) fn bytes(self) -> usize {
        u32_at(self.0, 0) as usize
    }

    pub(crate) fn at(self) -> u64 {
        u64_at(self.0, 4)
    }

    pub(crate) fn birth(self) -> u64 {
        u64_at(self.0, 12)
    }

    pub(crate) fn count(self) -> usize {
        (self.0.len() - HEADER) / 8
    }

    pub(crate) fn sum(self, index: usize) -> u64 {
        u64_at(self.0, HEADER + 8 * index)
    }

    pub(crate) fn to_extent(self) -> Extent {
        let sums = (0..self.count()).map(|index| self.sum(index)).collect();
        Extent { at: self.at(), birth: self.birth(), sums }
    }
}

/// Encodes an extent as a value.
pub(crate) fn encode(extent: &Extent, bytes: usize) -> Vec<u8> {
    let mut value = Vec::with_capacity(HEADER + 8 * extent.sums.len());
    value.extend(u32::try_from(bytes).expect("extents are small").to_le_bytes());
    value.extend(extent.at.to_le_bytes());
    value.extend(extent.birth.to_le_bytes());
    extent.sums.iter().for_each(|sum| value.extend(sum.to_le_bytes()));
    value
}

/// Changes one checksum in place.
pub(crate) fn set_sum(value: &mut [u8], index: usize, sum: u64) {
    value[HEADER + 8 * index..HEADER + 8 * index + 8].copy_from_slice(&sum.to_le_bytes());
}

/// Returns whether these bytes are an extent that [`View`] can decode.
pub(crate) fn is_sound(value: &[u8], block: usize) -> bool {
    if value.len() <= HEADER || !(value.len() - HEADER).is_multiple_of(8) {
        return false;
    }
    let view = View(value);
    let fits = view.bytes().div_ceil(block) == view.count();
    fits && view.at() < 1 << 48
}
