//! Fixes what a checkpoint writes.

use crate::btree::Freed;
use crate::cache::{Cache, State};
use crate::page::{self, Ptr};
use crate::present::Present;
use crate::snapshots::{self, Snapshots};
use crate::space::{Purpose, Run, Space};
use crate::sum::sum;
use crate::{Error, reader};
use base::{Block, op::BLOCKS_MAX};
use std::mem;

/// Blocks that follow each other: where, and what.
pub(crate) type Write = (u64, Vec<Block>);

/// What a checkpoint writes, and what its superblock will say.
#[derive(Debug)]
pub(crate) struct Frozen {
    /// Pages and data: the segment, where, and what.
    pub(crate) segments: Vec<(usize, Vec<Write>)>,
    /// The map.
    pub(crate) map: Vec<Write>,
    pub(crate) index_sum: u64,
    pub(crate) root: Ptr,
}

/// The keys under which freezing will write down what snapshots still have; their pages have to be
/// cached.
///
/// The way to the first of them is that to all. No entry of this epoch is there yet, but those that
/// a rollback has divided; their numbers are greater than any that freezing uses. So no key that is
/// there, or was, lies between two that freezing writes, and neither does a key of an inner page.
/// Nothing else is taken for granted: other leaves of the list may be clean, and not cached.
pub(crate) fn keys(snapshots: &Snapshots, present: &Present) -> Vec<Vec<u8>> {
    let Some(newest) = snapshots.newest() else { return Vec::new() };
    let key = snapshots::dead_key(newest.0, present.epoch, 0);
    vec![reader::full_key(snapshots::DEAD, &key)]
}

/// Gives every changed page its block. What was changed belongs to this epoch; the next begins.
///
/// # Errors
/// `Damaged` if blocks were freed that were not in use, `NoSpace` if there are too few for pages.
pub(crate) fn freeze(
    present: &mut Present,
    snapshots: &Snapshots,
    map: usize,
) -> Result<Frozen, Error> {
    retire(present, snapshots)?;
    let mut writes = present.cache.start_data();
    let root = match present.tree.root.frame() {
        Some(frame) => {
            let Present { cache, space, epoch, .. } = present;
            freeze_page(cache, space, *epoch, frame, &mut writes)?
        }
        None => present.tree.root,
    };
    assert!(root.frame().is_none(), "the root has its block");
    assert_eq!(present.cache.dirty(), 0, "everything changed is on its way");
    present.tree.root = root;
    writes.sort_unstable_by_key(|(at, _)| *at);
    let segments = by_segment(&present.space, writes);
    let (map, index_sum) = present.space.map_writes(map);
    present.epoch += 1;
    Ok(Frozen { segments, map, index_sum, root })
}

/// What changes left behind is free after this checkpoint; or belongs to the newest snapshot, and
/// that is written down in the tree.
fn retire(present: &mut Present, snapshots: &Snapshots) -> Result<(), Error> {
    assert!(present.epoch > 0, "the first epoch is that of the format");
    let newest = snapshots.newest().map_or(0, |id| id.0);
    let mut number = 0;
    let mut dead: Vec<Freed> = Vec::new();
    // Writing down changes pages, which leaves others behind; on the second round few, then none.
    loop {
        for freed in mem::take(&mut present.tree.freed) {
            if freed.birth <= newest {
                dead.push(freed);
            } else {
                present.space.retire(Run { at: freed.at, count: freed.count })?;
            }
        }
        if dead.is_empty() {
            return Ok(());
        }
        for chunk in mem::take(&mut dead).chunks(snapshots::chunk_max(&present.layout)) {
            let key = snapshots::dead_key(newest, present.epoch, number);
            let key = reader::full_key(snapshots::DEAD, &key);
            let value = snapshots::encode_dead(chunk);
            present.tree.put(&mut present.cache, &key, &value, false);
            number += 1;
        }
    }
}

/// Gives a page its block, after all changed pages below it.
fn freeze_page(
    cache: &mut Cache,
    space: &mut Space,
    epoch: u64,
    frame: u32,
    writes: &mut Vec<(u64, Block)>,
) -> Result<Ptr, Error> {
    assert_eq!(cache.state(frame), State::DirtyPage, "only a changed page gets another block");
    if page::level(cache.block(frame)) > 0 {
        for index in 0..page::count(cache.block(frame)) {
            if let Some(child) = page::child(cache.block(frame), index).frame() {
                let ptr = freeze_page(cache, space, epoch, child, writes)?;
                page::set_child(cache.change(frame), index, ptr);
            }
        }
    }
    page::set_birth(cache.change(frame), epoch);
    // Every commit leaves room for its pages; if that was wrong, nothing may be written.
    let run = space.allocate(Purpose::Pages, 1).ok_or(Error::NoSpace)?;
    space.set_live(run)?;
    let block = cache.start_page(frame, run.at);
    let ptr = Ptr { at: run.at, birth: epoch, sum: sum(&block) };
    writes.push((run.at, block));
    Ok(ptr)
}

/// Puts writes together that follow each other, by segment.
fn by_segment(space: &Space, writes: Vec<(u64, Block)>) -> Vec<(usize, Vec<Write>)> {
    let mut segments: Vec<(usize, Vec<Write>)> = Vec::new();
    for (at, block) in writes {
        let segment = space.segment_of(at);
        if segments.last().is_none_or(|(last, _)| *last != segment) {
            segments.push((segment, Vec::new()));
        }
        let runs = &mut segments.last_mut().expect("just added").1;
        match runs.last_mut() {
            Some((first, blocks))
                if *first + blocks.len() as u64 == at && blocks.len() < BLOCKS_MAX =>
            {
                blocks.push(block);
            }
            _ => runs.push((at, vec![block])),
        }
    }
    segments
}
