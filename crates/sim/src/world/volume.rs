//! Files of volumes: I/O in whole blocks.
//!
//! A write takes effect at one moment, like every disk operation; the file grows with it. Writes
//! neither durable nor flushed may be lost, sector by sector, at a power failure.

use super::{Environment, Host, World, host_of};
use crate::disk::Sparse;
use base::op::{BLOCKS_MAX, Done, File, Listener, Op};
use base::{Block, Error};
use std::collections::BTreeMap;
use std::mem;

/// First number of these files, far beyond those of the disk.
const FIRST: u32 = 1 << 30;

/// Unit of torn writes at a power failure, bytes.
const SECTOR: usize = 512;

/// One volume.
#[derive(Debug)]
struct Volume {
    /// Visible contents.
    contents: Sparse,
    /// Old contents of each block that is not durable, by offset: a power failure may restore them.
    before: BTreeMap<u64, Vec<u8>>,
}

/// The volumes of a world.
#[derive(Debug, Default)]
pub(super) struct Volumes {
    all: BTreeMap<File, Volume>,
    closed: Vec<File>,
    /// Whether they acknowledge durability too early, a planted error.
    lie: bool,
    /// Number of power failures so far.
    failures: u32,
    /// Number of turns of the node until the next one.
    turns_left: Option<u32>,
}

impl World {
    /// Creates and opens the file of a volume with these contents. It may stay open at the end.
    pub fn add_volume(&mut self, contents: Sparse) -> File {
        let volumes = &mut self.env.volumes;
        let file = File(FIRST + u32::try_from(volumes.all.len()).expect("few volumes"));
        volumes.all.insert(file, Volume { contents, before: BTreeMap::new() });
        file
    }

    /// Performs an operation on a volume immediately and without faults, for setup.
    ///
    /// # Panics
    /// If it is not an operation on a volume.
    pub fn perform(&mut self, op: &Op) -> Done {
        self.env.volume_effect(op).expect("it is about a volume")
    }

    /// Returns the contents of a volume's file, even if it is closed.
    ///
    /// # Panics
    /// If this is not a volume.
    pub fn volume(&self, file: File) -> &Sparse {
        &self.env.volumes.all.get(&file).expect("it was made by `add_volume`").contents
    }

    /// Replaces the contents of a volume's file; all of it is durable.
    pub fn replace_volume(&mut self, file: File, contents: Sparse) {
        let volume = Volume { contents, before: BTreeMap::new() };
        self.env.volumes.all.insert(file, volume);
    }
}

impl Volumes {
    /// Returns whether this is the open file of a volume.
    pub(super) fn is_open(&self, file: File) -> bool {
        self.all.contains_key(&file) && !self.closed.contains(&file)
    }

    /// Closes the file; returns whether it belongs to a volume.
    pub(super) fn close(&mut self, file: File) -> bool {
        let open = self.is_open(file);
        if open {
            self.closed.push(file);
        }
        open
    }
}

impl Volume {
    fn write(&mut self, offset: u64, block: &[u8], durable: bool) {
        if durable {
            self.before.remove(&offset);
        } else {
            let contents = &self.contents;
            self.before.entry(offset).or_insert_with(|| old(contents, offset, block.len()));
        }
        self.contents.write(offset, block);
    }
}

/// Returns the present contents, with zeros beyond the end.
fn old(contents: &Sparse, offset: u64, count: usize) -> Vec<u8> {
    let mut bytes = contents.read(offset, count);
    bytes.resize(count, 0);
    bytes
}

impl Environment {
    /// Makes volumes acknowledge durability too early from now on.
    pub fn let_volumes_lie(&mut self) {
        self.volumes.lie = true;
    }

    /// Extends the files of all volumes to this number of bytes; none becomes shorter.
    pub fn extend_volumes(&mut self, bytes: u64) {
        for volume in self.volumes.all.values_mut() {
            let longer = volume.contents.len().max(bytes);
            volume.contents.resize(longer);
        }
    }

    /// Requests a power failure after this number of turns of the node, unless one is due earlier.
    pub fn fail_power_in(&mut self, turns: u32) {
        self.volumes.turns_left.get_or_insert(turns);
    }

    /// Cancels a requested power failure.
    pub fn keep_power(&mut self) {
        self.volumes.turns_left = None;
    }

    /// Counts a turn of the node; returns whether the power fails now.
    pub fn is_power_failing(&mut self) -> bool {
        let is_now = self.volumes.turns_left == Some(0);
        self.volumes.turns_left = self.volumes.turns_left.and_then(|left| left.checked_sub(1));
        self.volumes.failures += u32::from(is_now);
        self.totals.failures += u64::from(is_now);
        is_now
    }

    /// Returns the number of requested power failures so far.
    pub fn power_failures(&self) -> u32 {
        self.volumes.failures
    }

    /// Simulates a power failure of a process's machine: the process ends, and any part of the
    /// writes on its volume that are not durable, or in flight, survives.
    pub fn fail_power(&mut self, host: Host, listeners: &[Listener], volume: File) {
        for (id, pending) in &mut self.pending {
            if let Op::WriteBlocks { durable, .. } = &mut pending.op
                && host_of(*id) == host
            {
                *durable = false;
            }
        }
        self.kill(host, &[], listeners);
        let volume = self.volumes.all.get_mut(&volume).expect("a volume of this world");
        // Some failures lose everything, some nothing.
        let survives = self.rng.u8(0..=4);
        for (offset, old) in mem::take(&mut volume.before) {
            for (at, sector) in (offset..).step_by(SECTOR).zip(old.chunks(SECTOR)) {
                if self.rng.u8(0..4) >= survives {
                    volume.contents.write(at, sector);
                }
            }
        }
    }

    /// Draws a fault of an operation on a volume; `None`: no fault, or another operation.
    pub(super) fn volume_fault(&mut self, op: &Op) -> Option<Done> {
        let (file, chance) = match op {
            Op::ReadBlocks { file, .. } => (file, self.params.faults.read_error),
            Op::WriteBlocks { file, .. } => (file, self.params.faults.write_error),
            Op::Sync { file, .. } => (file, self.params.faults.sync_error),
            _ => return None,
        };
        if !self.volumes.all.contains_key(file) || !self.chance(chance) {
            return None;
        }
        let error = self.inject(Error::Io);
        let volume = self.volumes.all.get_mut(file).expect("seen above");
        Some(match op {
            Op::ReadBlocks { .. } => Done::Blocks(Err(error)),
            Op::WriteBlocks { offset, blocks, .. } => {
                // It is unknown which of the blocks were written.
                let some = self.rng.usize(..=blocks.len());
                for (at, block) in (0..).zip(&blocks[..some]) {
                    volume.write(offset + at * block.len() as u64, block, false);
                }
                Done::Stored(Err(error))
            }
            _sync => {
                // Unflushed writes may be lost, and a second flush would report success.
                for (offset, old) in mem::take(&mut volume.before) {
                    if self.rng.bool() {
                        volume.contents.write(offset, &old);
                    }
                }
                Done::Synced(Err(error))
            }
        })
    }

    /// Performs an operation on a volume; `None` for other operations.
    pub(super) fn volume_effect(&mut self, op: &Op) -> Option<Done> {
        let (Op::ReadBlocks { file, .. } | Op::WriteBlocks { file, .. } | Op::Sync { file, .. }) =
            op
        else {
            return None;
        };
        let lies = self.volumes.lie;
        let volume = self.volumes.all.get_mut(file)?;
        Some(match op {
            Op::ReadBlocks { offset, count, size, .. } => {
                Done::Blocks(read(&volume.contents, *offset, *count as usize, *size as usize))
            }
            Op::WriteBlocks { offset, blocks, durable, .. } => {
                for (at, block) in (0..).zip(blocks) {
                    volume.write(offset + at * block.len() as u64, block, *durable && !lies);
                }
                Done::Stored(Ok(()))
            }
            _sync => {
                if !lies {
                    volume.before.clear();
                }
                Done::Synced(Ok(()))
            }
        })
    }
}

fn read(from: &Sparse, offset: u64, count: usize, size: usize) -> Result<Vec<Block>, Error> {
    let bytes = from.read(offset, count * size);
    if bytes.len() < count * size {
        return Err(Error::Io);
    }
    Ok(bytes.chunks(size).map(|bytes| Block::from_bytes(bytes, size)).collect())
}

/// Panics if blocks are read or written in a way that no disk accepts.
pub(super) fn expect_well_formed(op: &Op) {
    let (offset, count, size) = match op {
        Op::ReadBlocks { offset, count, size, .. } => (*offset, *count as usize, *size as usize),
        Op::WriteBlocks { offset, blocks, .. } => {
            let size = blocks.first().map_or(512, |block| block.len());
            assert!(blocks.iter().all(|block| block.len() == size), "several sizes: {op:?}");
            (*offset, blocks.len(), size)
        }
        _ => return,
    };
    assert!(size.is_power_of_two() && size >= 512, "no size for a block: {op:?}");
    assert!(offset.is_multiple_of(size as u64) && count <= BLOCKS_MAX, "misplaced: {op:?}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::Params;
    use crate::trace::Show;
    use base::op::{ClientKey, Event, OpId};
    use base::{Reactor, rng};
    use std::time::Duration;

    fn finish(world: &mut World, op: Op) -> Done {
        world.submit(op);
        let deadline = world.now() + Duration::from_secs(60);
        let mut events: Vec<Event> = Vec::new();
        world.wait(Some(deadline), &mut events);
        assert_eq!(events.len(), 1);
        events.remove(0).done
    }

    #[test]
    fn unwritten_blocks_read_as_zeros() {
        let mut world = World::new(Params::calm(1), Show::Hash);
        let mut contents = Sparse::default();
        contents.resize(1 << 20);
        let file = world.add_volume(contents);
        let (id, mut rng) = (OpId(1), rng::seeded(1));
        let bytes: Vec<u8> = (0..8192).map(|_| rng.u8(..)).collect();
        let blocks: Vec<Block> =
            bytes.chunks(4096).map(|bytes| Block::from_bytes(bytes, 4096)).collect();
        let write =
            Op::WriteBlocks { id, file, offset: 8192, blocks: blocks.clone(), durable: true };
        assert!(matches!(finish(&mut world, write), Done::Stored(Ok(()))));
        assert!(matches!(
            finish(&mut world, Op::Sync { id, file, data_only: true }),
            Done::Synced(Ok(()))
        ));
        let read = |offset, count| Op::ReadBlocks { id, file, offset, count, size: 4096 };
        let Done::Blocks(Ok(got)) = finish(&mut world, read(4096, 4)) else { panic!("an error") };
        let hole = Block::zeroed(4096);
        assert!(got[0] == hole && got[1..3] == blocks && got[3] == hole);
        let past = finish(&mut world, read((1 << 20) - 4096, 2));
        assert!(matches!(past, Done::Blocks(Err(Error::Io))));
        world.submit(Op::CloseFile { file, client: ClientKey::NOBODY });
        assert_eq!(world.volume(file).read(8192, 8192), bytes);
    }
}
