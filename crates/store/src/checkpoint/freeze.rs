//! Fixes the state that a checkpoint writes.

use crate::btree::Freed;
use crate::cache::{Cache, State};
use crate::page::{self, Ptr};
use crate::present::Present;
use crate::snapshots::{self, Snapshots};
use crate::space::{Purpose, Run, Space};
use crate::sum::sum;
use crate::{Error, keys};
use base::{Block, op::BLOCKS_MAX};
use std::mem;

/// Consecutive blocks: number of the first, and contents.
pub(crate) type Write = (u64, Vec<Block>);

/// The writes of a checkpoint, and the contents of its superblock.
#[derive(Debug)]
pub(crate) struct Frozen {
    /// Pages and data, by segment.
    pub(crate) segments: Vec<(usize, Vec<Write>)>,
    /// The allocation map.
    pub(crate) map: Vec<Write>,
    pub(crate) index_sum: u64,
    pub(crate) root: Ptr,
}

/// Returns the keys under which freezing will record blocks still held by snapshots; their pages
/// must be cached.
///
/// The path to the first of them is the path to all. There are no entries of this epoch yet, except
/// those divided by a rollback, whose numbers are greater than any used by freezing. So no present
/// or former key is between two that freezing writes, and neither is a key of an inner page.
/// Nothing else is assumed: other leaves of the list may be clean, and not cached.
pub(crate) fn keys(snapshots: &Snapshots, present: &Present) -> Vec<Vec<u8>> {
    let Some(newest) = snapshots.newest() else { return Vec::new() };
    let key = snapshots::dead_key(newest.0, present.epoch, 0);
    vec![keys::full_key(snapshots::DEAD, &key)]
}

/// Assigns a block to every changed page. The changes belong to this epoch; the next begins.
///
/// # Errors
/// `Damaged` if freed blocks were not in use, `NoSpace` if there are too few for pages.
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

/// Frees the blocks left behind by changes after this checkpoint, or records them in the tree as
/// held by the newest snapshot.
fn retire(present: &mut Present, snapshots: &Snapshots) -> Result<(), Error> {
    assert!(present.epoch > 0, "the first epoch is that of the format");
    let newest = snapshots.newest().map_or(0, |id| id.0);
    let mut number = 0;
    let mut dead: Vec<Freed> = Vec::new();
    // Recording changes pages, which frees others; in the second round few, then none.
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
            let key = keys::full_key(snapshots::DEAD, &key);
            let value = snapshots::encode_dead(chunk);
            present.tree.put(&mut present.cache, &key, &value, false);
            number += 1;
        }
    }
}

/// Assigns a block to a page, after all changed pages below it.
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
    // Every commit reserves blocks for its pages; if that was wrong, nothing may be written.
    let run = space.allocate(Purpose::Pages, 1).ok_or(Error::NoSpace)?;
    space.set_live(run)?;
    let block = cache.start_page(frame, run.at);
    let ptr = Ptr { at: run.at, birth: epoch, sum: sum(&block) };
    writes.push((run.at, block));
    Ok(ptr)
}

/// Merges adjacent writes, by segment.
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
