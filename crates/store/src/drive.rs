//! Disks for straight-line code: every operation is performed at once.
//!
//! A [`Disk`] is anything that holds blocks: a file, a device, [`Memory`].

use crate::{Error, Geometry, HEAD_BYTES, Io, IoDone, IoId, format};
use base::{Block, Time};
use std::collections::BTreeMap;

/// A container of blocks.
pub trait Disk {
    /// Returns the first [`HEAD_BYTES`] bytes.
    ///
    /// # Errors
    /// If they cannot be read, or there are fewer.
    fn head(&mut self) -> Result<Vec<u8>, base::Error>;

    /// Reads `count` blocks from block `at` on.
    ///
    /// # Errors
    /// If one cannot be read.
    fn read(&mut self, at: u64, count: u32) -> Result<Vec<Block>, base::Error>;

    /// Writes blocks from block `at` on. `durable`: they are durable when this returns.
    ///
    /// # Errors
    /// If one cannot be written; the contents are unknown then.
    fn write(&mut self, at: u64, blocks: &[Block], durable: bool) -> Result<(), base::Error>;

    /// Makes completed writes durable.
    ///
    /// # Errors
    /// If that failed; the contents of the disk are unknown then.
    fn flush(&mut self) -> Result<(), base::Error>;
}

/// Performs one operation.
pub fn perform(disk: &mut impl Disk, io: &Io) -> (IoId, IoDone) {
    let done = match io {
        Io::Read { at, count, .. } => IoDone::Read(disk.read(*at, *count)),
        Io::Write { at, blocks, durable, .. } => IoDone::Written(disk.write(*at, blocks, *durable)),
        Io::Flush { .. } => IoDone::Flushed(disk.flush()),
    };
    (io.id(), done)
}

/// Creates an empty volume on a disk.
///
/// # Errors
/// `TooLarge` if the geometry is invalid, `DiskFailed`, `DiskFull`.
pub fn create(
    disk: &mut impl Disk,
    geometry: &Geometry,
    volume: u64,
    created: Time,
) -> Result<(), Error> {
    for (at, blocks) in format(geometry, volume, created)? {
        disk.write(at, &blocks, false).map_err(Error::of_disk)?;
    }
    disk.flush().map_err(Error::of_disk)
}

/// A disk in memory, with a volatile cache.
#[derive(Clone, Debug)]
pub struct Memory {
    block: usize,
    blocks: u64,
    durable: BTreeMap<u64, Block>,
    cached: BTreeMap<u64, Block>,
}

impl Memory {
    /// Returns a disk of this number of blocks of zeros, of this size in bytes.
    pub fn new(block: usize, blocks: u64) -> Memory {
        Memory { block, blocks, durable: BTreeMap::new(), cached: BTreeMap::new() }
    }

    /// Returns a disk with an empty volume.
    ///
    /// # Errors
    /// As [`create`].
    pub fn formatted(geometry: &Geometry) -> Result<Memory, Error> {
        let mut memory = Memory::new(geometry.block, geometry.blocks);
        create(&mut memory, geometry, 1, Time::default())?;
        Ok(memory)
    }

    /// Simulates a power failure: writes that were not made durable are lost.
    pub fn lose_power(&mut self) {
        self.cached.clear();
    }

    fn block_at(&self, at: u64) -> Block {
        let found = self.cached.get(&at).or_else(|| self.durable.get(&at));
        found.cloned().unwrap_or_else(|| Block::zeroed(self.block))
    }
}

impl Disk for Memory {
    fn head(&mut self) -> Result<Vec<u8>, base::Error> {
        let blocks = self.read(0, (HEAD_BYTES / self.block) as u32)?;
        Ok(blocks.iter().flat_map(|block| block.iter().copied()).collect())
    }

    fn read(&mut self, at: u64, count: u32) -> Result<Vec<Block>, base::Error> {
        if at + u64::from(count) > self.blocks {
            return Err(base::Error::Io);
        }
        Ok((at..at + u64::from(count)).map(|at| self.block_at(at)).collect())
    }

    fn write(&mut self, at: u64, blocks: &[Block], durable: bool) -> Result<(), base::Error> {
        if at + blocks.len() as u64 > self.blocks {
            return Err(base::Error::Io);
        }
        for (at, block) in (at..).zip(blocks) {
            if durable {
                self.cached.remove(&at);
                self.durable.insert(at, block.clone());
            } else {
                self.cached.insert(at, block.clone());
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), base::Error> {
        self.durable.append(&mut self.cached);
        Ok(())
    }
}
