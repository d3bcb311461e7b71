//! Transfers of blocks between memory and a volume, with as many calls as necessary.
//!
//! A call may transfer less than requested; the next one continues from there. Where a durable
//! write (`RWF_DSYNC`) is refused, a plain one follows, and `fdatasync` after it. Both forms and
//! [`crate::VolumeFile`] transfer blocks this way; they differ in the caller only.

use base::op::{BLOCKS_MAX, Done};
use base::{Block, Error};
use rustix::fd::BorrowedFd;
use rustix::io::{Errno, ReadWriteFlags};
use std::io::{IoSlice, IoSliceMut};

/// Alignment that direct I/O may require, bytes; smaller blocks are their own alignment.
const UNIT: usize = 4096;

/// The next call of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// `preadv2`.
    Read,
    /// `pwritev2`.
    Write,
    /// `pwritev2` with `RWF_DSYNC`.
    WriteDurable,
    /// `pwritev2`, because the file takes no flags; then [`Phase::Sync`].
    WriteThenSync,
    /// `fdatasync`.
    Sync,
}

/// A transfer of blocks.
#[derive(Debug)]
pub(crate) struct BlockTransfer {
    phase: Phase,
    /// Offset of the first block, bytes.
    offset: u64,
    blocks: Vec<Block>,
    /// Size of each, bytes.
    size: usize,
    /// Number of bytes transferred.
    done: usize,
}

impl BlockTransfer {
    /// Returns a transfer from the volume: `count` blocks of `size` bytes each.
    pub(crate) fn read(offset: u64, count: usize, size: usize) -> BlockTransfer {
        let blocks = (0..count).map(|_| Block::stale(size)).collect();
        BlockTransfer::new(Phase::Read, offset, blocks, size)
    }

    /// Returns a transfer to the volume.
    pub(crate) fn write(offset: u64, blocks: Vec<Block>, durable: bool) -> BlockTransfer {
        let phase = if durable { Phase::WriteDurable } else { Phase::Write };
        let size = blocks.first().map_or(512, |block| block.len());
        BlockTransfer::new(phase, offset, blocks, size)
    }

    fn new(phase: Phase, offset: u64, blocks: Vec<Block>, size: usize) -> BlockTransfer {
        assert!(size.is_power_of_two() && size >= 512, "blocks of {size} bytes");
        assert!(offset.is_multiple_of(size as u64), "blocks of {size} bytes at {offset}");
        assert!(blocks.iter().all(|block| block.len() == size), "blocks of several sizes");
        BlockTransfer { phase, offset, blocks, size, done: 0 }
    }

    /// Returns the next call; `None` if there are no blocks, so that there is nothing to do.
    pub(crate) fn phase(&self) -> Option<Phase> {
        (!self.blocks.is_empty()).then_some(self.phase)
    }

    /// Returns whether this is a read.
    pub(crate) fn is_read(&self) -> bool {
        self.phase == Phase::Read
    }

    /// Returns the offset of the next call, bytes.
    pub(crate) fn position(&self) -> u64 {
        self.offset.saturating_add(self.done as u64)
    }

    /// Returns the parts of blocks to be written by the next call.
    pub(crate) fn sources(&self) -> impl Iterator<Item = &[u8]> {
        assert!(!self.is_read(), "pages read are clean");
        let mut skip = self.done % self.size;
        let rest = self.blocks[self.done / self.size..].iter().take(BLOCKS_MAX);
        rest.map(move |block| &block[std::mem::take(&mut skip)..])
    }

    /// Returns the parts of blocks to be filled by the next call.
    pub(crate) fn targets(&mut self) -> impl Iterator<Item = &mut [u8]> {
        assert!(self.is_read(), "a page being written is not filled");
        let mut skip = self.done % self.size;
        let rest = self.blocks[self.done / self.size..].iter_mut().take(BLOCKS_MAX);
        rest.map(move |block| &mut block.bytes_mut()[std::mem::take(&mut skip)..])
    }

    /// Handles the end of a call; returns `None` if another one follows, otherwise the result of
    /// the transfer.
    pub(crate) fn step(&mut self, result: Result<usize, Errno>) -> Option<Result<(), Errno>> {
        self.phase = match (self.phase, result) {
            (phase, Err(Errno::INTR)) => phase,
            (Phase::WriteDurable, Err(Errno::OPNOTSUPP)) => Phase::WriteThenSync,
            (_, Err(errno)) => return Some(Err(errno)),
            (Phase::Sync, Ok(_)) => return Some(Ok(())),
            (phase, Ok(n)) => match (self.advance(n), phase) {
                (Progress::None, Phase::Read) => return Some(Err(Errno::IO)),
                // A write of nothing: the space is exhausted.
                (Progress::None, _) => return Some(Err(Errno::NOSPC)),
                (Progress::Some, phase) => phase,
                (Progress::All, Phase::WriteThenSync) => Phase::Sync,
                (Progress::All, _) => return Some(Ok(())),
            },
        };
        None
    }

    /// Counts `n` more bytes. The next call starts at an aligned offset for direct I/O, so a part
    /// of a unit is transferred again; if there was only such a part, the file ends here.
    fn advance(&mut self, n: usize) -> Progress {
        let unit = self.size.min(UNIT);
        let before = self.done;
        self.done = (before + n) / unit * unit;
        assert!(self.done.is_multiple_of(unit), "a call begins where direct I/O may begin");
        match self.done {
            done if done >= self.blocks.len() * self.size => Progress::All,
            done if done > before => Progress::Some,
            _ => Progress::None,
        }
    }

    /// Performs all calls.
    pub(crate) fn run(&mut self, fd: BorrowedFd<'_>) -> Result<(), Errno> {
        while let Some(phase) = self.phase() {
            let result = self.call(phase, fd);
            if let Some(over) = self.step(result) {
                return over;
            }
        }
        Ok(())
    }

    fn call(&mut self, phase: Phase, fd: BorrowedFd<'_>) -> Result<usize, Errno> {
        let at = self.position();
        let write = |flags| {
            let slices: Vec<IoSlice<'_>> = self.sources().map(IoSlice::new).collect();
            rustix::io::pwritev2(fd, &slices, at, flags)
        };
        match phase {
            Phase::Read => {
                let mut slices: Vec<IoSliceMut<'_>> = self.targets().map(IoSliceMut::new).collect();
                rustix::io::preadv2(fd, &mut slices, at, ReadWriteFlags::empty())
            }
            Phase::Write | Phase::WriteThenSync => write(ReadWriteFlags::empty()),
            Phase::WriteDurable => write(ReadWriteFlags::DSYNC),
            Phase::Sync => rustix::fs::fdatasync(fd).map(|()| 0),
        }
    }

    /// Returns the blocks.
    pub(crate) fn into_blocks(self) -> Vec<Block> {
        self.blocks
    }

    /// Returns the completion of the transfer.
    pub(crate) fn end(self, result: Result<(), Error>) -> Done {
        assert!(result.is_err() || self.done >= self.blocks.len() * self.size, "all was moved");
        match self.phase {
            Phase::Read => Done::Blocks(result.map(|()| self.blocks)),
            Phase::Write | Phase::WriteDurable | Phase::WriteThenSync | Phase::Sync => {
                Done::Stored(result)
            }
        }
    }
}

/// Progress of a transfer after a call.
enum Progress {
    None,
    Some,
    All,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three_blocks(durable: bool) -> BlockTransfer {
        let blocks = [1, 2, 3].map(|byte| Block::from_bytes(&[byte; 8192], 8192));
        BlockTransfer::write(1 << 20, blocks.to_vec(), durable)
    }

    #[test]
    fn a_short_call_is_continued_at_a_place_that_direct_io_takes() {
        let mut block_transfer = three_blocks(false);
        assert_eq!(block_transfer.step(Ok(8192 + 5000)), None);
        assert_eq!(block_transfer.position(), (1 << 20) + 8192 + 4096);
        let rest: Vec<(u8, usize)> = block_transfer.sources().map(|s| (s[0], s.len())).collect();
        assert_eq!(rest, [(2, 4096), (3, 8192)]);
        assert_eq!(block_transfer.step(Err(Errno::INTR)), None);
        assert_eq!(block_transfer.step(Ok(4096 + 8192)), Some(Ok(())));
    }

    #[test]
    fn where_nothing_moves_the_file_ends() {
        assert_eq!(BlockTransfer::read(0, 1, 512).step(Ok(0)), Some(Err(Errno::IO)));
        let mut block_transfer = BlockTransfer::read(4096, 2, 4096);
        assert_eq!(block_transfer.step(Ok(4096 + 100)), None);
        assert_eq!(block_transfer.step(Ok(100)), Some(Err(Errno::IO)));
        assert_eq!(three_blocks(false).step(Ok(100)), Some(Err(Errno::NOSPC)));
    }

    #[test]
    fn where_no_flag_is_taken_a_sync_follows_the_whole_write() {
        let mut block_transfer = three_blocks(true);
        assert_eq!(block_transfer.phase(), Some(Phase::WriteDurable));
        assert_eq!(block_transfer.step(Err(Errno::OPNOTSUPP)), None);
        assert_eq!(block_transfer.step(Ok(4096)), None);
        assert_eq!(block_transfer.phase(), Some(Phase::WriteThenSync));
        assert_eq!(block_transfer.step(Ok(5 * 4096)), None);
        assert_eq!(block_transfer.phase(), Some(Phase::Sync));
        assert_eq!(block_transfer.step(Ok(0)), Some(Ok(())));
        assert_eq!(three_blocks(true).step(Ok(6 * 4096)), Some(Ok(())));
        assert_eq!(three_blocks(false).step(Err(Errno::NOSPC)), Some(Err(Errno::NOSPC)));
    }

    #[test]
    fn no_blocks_are_no_work() {
        assert_eq!(BlockTransfer::write(0, Vec::new(), true).phase(), None);
        assert!(matches!(
            BlockTransfer::read(0, 0, 512).end(Ok(())),
            Done::Blocks(Ok(b)) if b.is_empty()
        ));
    }
}
