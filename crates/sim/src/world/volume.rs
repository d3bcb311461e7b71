//! Files of volumes: whole blocks in and out, and nothing that goes wrong.
//!
//! A write takes effect at one moment, like everything on the disk; the file grows with it. What
//! is durable is not told apart from what is not: this disk never loses power.

use super::{Scene, World};
use crate::disk::Sparse;
use base::op::{BLOCKS_MAX, Done, File, Op};
use base::{Block, Error};
use std::collections::BTreeMap;

/// The numbers of these files begin here, far behind those of the disk's.
const FIRST: u32 = 1 << 30;

/// The volumes of a world.
#[derive(Debug, Default)]
pub(super) struct Volumes {
    contents: BTreeMap<File, Sparse>,
    closed: Vec<File>,
}

impl World {
    /// Makes the file of a volume with these contents, and opens it. It may stay open at the end.
    pub fn add_volume(&mut self, contents: Sparse) -> File {
        let volumes = &mut self.scene.volumes;
        let file = File(FIRST + u32::try_from(volumes.contents.len()).expect("few volumes"));
        volumes.contents.insert(file, contents);
        file
    }

    /// Performs an operation on a volume at once, for the stage.
    ///
    /// # Panics
    /// If it is not about a volume.
    pub fn perform(&mut self, op: &Op) -> Done {
        self.scene.volume_effect(op).expect("it is about a volume")
    }

    /// What is in the file of a volume, also when it has been closed.
    ///
    /// # Panics
    /// If this is no volume.
    pub fn volume(&self, file: File) -> &Sparse {
        self.scene.volumes.contents.get(&file).expect("it was made by `add_volume`")
    }
}

impl Volumes {
    /// Whether this is the file of a volume, and open.
    pub(super) fn is_open(&self, file: File) -> bool {
        self.contents.contains_key(&file) && !self.closed.contains(&file)
    }

    /// Gives the file back; whether it is one of a volume.
    pub(super) fn close(&mut self, file: File) -> bool {
        let open = self.is_open(file);
        if open {
            self.closed.push(file);
        }
        open
    }
}

impl Scene {
    /// Performs an operation on a volume; `None`: it is not about one.
    pub(super) fn volume_effect(&mut self, op: &Op) -> Option<Done> {
        let (Op::ReadBlocks { file, .. } | Op::WriteBlocks { file, .. } | Op::Sync { file, .. }) =
            op
        else {
            return None;
        };
        let contents = self.volumes.contents.get_mut(file)?;
        Some(match op {
            Op::ReadBlocks { offset, count, size, .. } => {
                Done::Blocks(read(contents, *offset, *count as usize, *size as usize))
            }
            Op::WriteBlocks { offset, blocks, .. } => {
                for (at, block) in (0..).zip(blocks) {
                    contents.write(offset + at * block.len() as u64, block);
                }
                Done::Stored(Ok(()))
            }
            _sync => Done::Synced(Ok(())),
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

/// Panics if blocks are asked for or written in a way that no disk takes.
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
    use base::op::{Event, OpId};
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
    fn what_is_written_is_read_and_the_rest_is_zeros_or_an_end() {
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
        world.submit(Op::CloseFile { file, last: false });
        assert_eq!(world.volume(file).read(8192, 8192), bytes);
    }
}
