//! Creation of an empty volume.

use crate::journal::Position;
use crate::layout::{Geometry, HEAD_BYTES};
use crate::page::Ptr;
use crate::space::Space;
use crate::{Error, Superblock};
use base::{Block, Time, op::BLOCKS_MAX};

/// Returns the writes, to be followed by a flush, that create an empty volume: block number and
/// contents. The last one makes it a volume.
///
/// The journal ring is written with zeros, so that later writes to it need no new space.
///
/// # Errors
/// `TooLarge` if the geometry is invalid.
pub fn format(
    geometry: &Geometry,
    volume: u64,
    created: Time,
) -> Result<Vec<(u64, Vec<Block>)>, Error> {
    let layout = geometry.layout()?;
    let zero = Block::zeroed(layout.block);
    let zeros = |from: u64, to: u64| {
        let starts = (from..to).step_by(BLOCKS_MAX);
        let zero = zero.clone();
        starts.map(move |at| (at, vec![zero.clone(); (to - at).min(BLOCKS_MAX as u64) as usize]))
    };
    let mut writes: Vec<_> = zeros(0, (HEAD_BYTES / layout.block) as u64).collect();
    writes.extend(zeros(layout.journal_at, layout.journal_at + layout.journal));
    let (map, index_sum) = Space::empty(&layout).map_writes(1);
    writes.extend(map);
    let superblock = Superblock {
        volume,
        epoch: 1,
        layout,
        created,
        map: 1,
        index_sum,
        root: Ptr::default(),
        tail: Position { block: 0, sequence: 1, chain: volume },
    };
    writes.push((superblock.at(), vec![superblock.encode()]));
    Ok(writes)
}
