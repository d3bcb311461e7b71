//! The superblocks: entry points of a volume's newest state.
//!
//! There are eight, 4 KiB apart; the one of epoch *e* is number *e* mod 8. The valid one with the
//! highest epoch wins. Each is 512 bytes, which disks write as a whole, and has a checksum for
//! those that do not.
//!
//! Programs that know version 1 only would open a volume with moved maps at its last checkpoint
//! before the move. So its first checkpoint of version 2 is written to all eight positions, last
//! to that of the previous checkpoint, and counts when no superblock of version 1 is left.

use crate::layout::{Geometry, HEAD_BYTES, Layout, SUPERBLOCK_STRIDE, SUPERBLOCKS};
use crate::little_endian::{u32_at, u64_at};
use crate::page::Ptr;
use crate::sum::sum;
use crate::{Error, journal::Position};
use base::{Block, Time};
use std::cmp::Reverse;

#[cfg(test)]
mod tests;

/// Size of a superblock, bytes.
const BYTES: usize = 512;
/// Magic number.
const MAGIC: &[u8; 8] = b"upcall\x00V";
/// Version of the format of a new volume.
const VERSION: u32 = 1;
/// Version of a volume that has grown so that its maps had to move. Volumes of other versions are
/// not opened.
const VERSION_MOVED: u32 = 2;

/// Contents of a superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Number that identifies the volume.
    pub volume: u64,
    /// Number of checkpoints made.
    pub epoch: u64,
    /// Layout of the volume.
    pub layout: Layout,
    /// Time of the volume's creation.
    pub created: Time,
    /// The map that belongs to it: 0 or 1.
    pub(crate) map: u64,
    /// Checksum of the map's index.
    pub(crate) index_sum: u64,
    /// Root of the tree; at block zero if it is empty.
    pub(crate) root: Ptr,
    /// Position where the journal continues behind it.
    pub(crate) tail: Position,
}

impl Superblock {
    /// Returns its block in the volume.
    pub(crate) fn at(&self) -> u64 {
        self.epoch % SUPERBLOCKS * (SUPERBLOCK_STRIDE / self.layout.block as u64)
    }

    /// Returns the version that a program must know to open it.
    pub fn version(&self) -> u32 {
        if self.layout.is_moved() { VERSION_MOVED } else { VERSION }
    }

    /// Returns the positions of all superblocks but that of the previous checkpoint: the first
    /// superblock of its version is written to them, and then to the position of that one.
    pub(crate) fn copies(&self, before: &Superblock) -> Vec<u64> {
        let stride = SUPERBLOCK_STRIDE / self.layout.block as u64;
        let places = (0..SUPERBLOCKS).map(|index| index * stride);
        places.filter(|at| *at != before.at()).collect()
    }

    /// Encodes it as a block.
    pub(crate) fn encode(&self) -> Block {
        assert!(self.map < 2, "there are two maps");
        assert!(self.tail.block < self.layout.journal, "the journal begins in its ring");
        assert!(self.root.frame().is_none(), "a superblock leads to pages on the disk");
        let mut block = Block::zeroed(self.layout.block);
        let bytes = &mut block.bytes_mut()[..BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&self.version().to_le_bytes());
        bytes[12..16].copy_from_slice(&(self.layout.block as u32).to_le_bytes());
        let words = [
            self.volume,
            self.epoch,
            self.layout.blocks,
            self.layout.journal,
            self.layout.segment,
            self.created.secs as u64,
            u64::from(self.created.nanos),
            self.map,
            self.index_sum,
            self.root.at,
            self.root.birth,
            self.root.sum,
            self.tail.block,
            self.tail.sequence,
            self.tail.chain,
        ];
        let places = [self.layout.map_at, self.layout.data_at];
        let places = places.into_iter().filter(|_| self.layout.is_moved());
        for (index, word) in words.into_iter().chain(places).enumerate() {
            bytes[16 + 8 * index..24 + 8 * index].copy_from_slice(&word.to_le_bytes());
        }
        let sum = sum(&bytes[..BYTES - 8]);
        bytes[BYTES - 8..].copy_from_slice(&sum.to_le_bytes());
        block
    }

    /// Decodes a superblock.
    ///
    /// # Errors
    /// `NotAVolume` if the magic number or the version is unknown, `Damaged` if its checksum is
    /// wrong or its contents are invalid.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Superblock, Error> {
        if bytes.len() < BYTES || &bytes[..8] != MAGIC {
            return Err(Error::NotAVolume);
        }
        let is_moved = match u32_at(bytes, 8) {
            VERSION => false,
            VERSION_MOVED => true,
            _unknown => return Err(Error::NotAVolume),
        };
        if u64_at(bytes, BYTES - 8) != sum(&bytes[..BYTES - 8]) {
            return Err(Error::Damaged);
        }
        let word = |index: usize| u64_at(bytes, 16 + 8 * index);
        let block = u32_at(bytes, 12) as usize;
        let (blocks, journal, segment) = (word(2), word(3), word(4));
        let geometry = Geometry { block, blocks, journal, segment };
        let layout = match is_moved {
            true => geometry.layout_with(word(15), word(16)),
            false => geometry.layout(),
        };
        let superblock = Superblock {
            volume: word(0),
            epoch: word(1),
            layout: layout.map_err(|_| Error::Damaged)?,
            created: Time { secs: word(5) as i64, nanos: (word(6) % 1_000_000_000) as u32 },
            map: word(7),
            index_sum: word(8),
            root: Ptr { at: word(9), birth: word(10), sum: word(11) },
            tail: Position { block: word(12), sequence: word(13), chain: word(14) },
        };
        let sound = superblock.map < 2
            && superblock.tail.block < superblock.layout.journal
            && superblock.root.at < superblock.layout.blocks;
        if sound { Ok(superblock) } else { Err(Error::Damaged) }
    }

    /// Returns whether a file or device of this size, bytes, is long enough.
    pub fn fits(&self, bytes: u64) -> bool {
        self.layout.blocks <= bytes / self.layout.block as u64
    }

    /// Returns the newest valid one among the first [`HEAD_BYTES`] of a volume.
    ///
    /// # Errors
    /// `NotAVolume` if nothing there looks like one, `Damaged` if some do but none is valid.
    pub fn newest(head: &[u8]) -> Result<Superblock, Error> {
        if head.len() < HEAD_BYTES {
            return Err(Error::NotAVolume);
        }
        let slots = head.chunks(SUPERBLOCK_STRIDE as usize).take(SUPERBLOCKS as usize);
        let found: Vec<_> = slots.map(Superblock::decode).collect();
        let damaged = found.contains(&Err(Error::Damaged));
        // The lower version counts: if there are both, the volume's growth was interrupted.
        let valid = found.into_iter().flatten();
        let newest = valid.max_by_key(|found| (Reverse(found.version()), found.epoch));
        newest.ok_or(if damaged { Error::Damaged } else { Error::NotAVolume })
    }
}
