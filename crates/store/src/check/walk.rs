//! A walk of all trees of a volume, every page once.

use super::{Checked, Content, Finding, Read, Verified, Watcher};
use crate::btree::{Freed, extent};
use crate::page::{self, Ptr};
use crate::snapshots::{DEAD, DROPPING, SNAPSHOTS, Snapshot, decode_dead};
use crate::sum::sum;
use crate::{Layout, Table};
use base::{Block, op::BLOCKS_MAX};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::ops::Range;

/// A walk in progress.
pub(super) struct Walk<'a, 'b> {
    layout: Layout,
    read: &'a mut Read<'b>,
    watcher: &'a mut dyn Watcher,
    pub(super) checked: Checked,
    /// Reachable blocks.
    used: Vec<u64>,
    /// Data found correct by earlier checks: the epoch of the last one, and the blocks.
    before: (u64, Vec<u64>),
    /// Data found correct, if it is to be remembered.
    right: Vec<u64>,
    /// Expected number of blocks.
    all: u64,
    snapshots: Vec<(Vec<u8>, Option<Snapshot>)>,
    /// Epochs of dropped snapshots whose dead lists are not completely processed.
    dropping: BTreeSet<u64>,
    /// Dead lists by the epoch of their snapshot.
    dead: BTreeMap<u64, Vec<Freed>>,
    /// Blocks of dead lists.
    listed: Vec<u64>,
    /// Whether the present state is being walked; snapshots share most of their pages with it.
    present: bool,
}

/// Range of the keys below a page.
struct Bounds<'k> {
    from: &'k [u8],
    to: Option<&'k [u8]>,
}

impl<'a, 'b> Walk<'a, 'b> {
    pub(super) fn new(
        layout: &Layout,
        read: &'a mut Read<'b>,
        watcher: &'a mut dyn Watcher,
        checked: Checked,
        all: u64,
    ) -> Walk<'a, 'b> {
        let words = (layout.segments() * layout.segment / 64) as usize;
        let (layout, used) = (*layout, vec![0; words]);
        let (snapshots, dead, listed) = (Vec::new(), BTreeMap::new(), vec![0; words]);
        let (before, right) = ((0, Vec::new()), Vec::new());
        Walk {
            layout,
            read,
            watcher,
            checked,
            used,
            before,
            right,
            all,
            snapshots,
            dropping: BTreeSet::new(),
            dead,
            listed,
            present: true,
        }
    }

    /// Skips data that an earlier check has found correct, and records correct data.
    pub(super) fn remember<'v>(&mut self, verified: &'v mut Verified) -> &'v mut Verified {
        self.before = (verified.epoch, std::mem::take(&mut verified.blocks));
        self.right = vec![0; self.used.len()];
        verified
    }

    /// Walks the trees of all snapshots, from the newest to the oldest, and compares each dead list
    /// with the trees that must not contain its blocks: the present one, and those of snapshots
    /// newer than that of the list. These are the trees walked before it.
    pub(super) fn snapshots(&mut self) {
        let (known, damaged): (Vec<_>, Vec<_>) =
            mem::take(&mut self.snapshots).into_iter().partition(|(_, known)| known.is_some());
        let damaged = damaged.into_iter().map(|(name, _)| Finding::Snapshot(name));
        self.checked.findings.extend(damaged);
        let mut known: Vec<Snapshot> = known.into_iter().filter_map(|(_, known)| known).collect();
        known.sort_unstable_by_key(|snapshot| Reverse(snapshot.id));
        let mut owners = mem::take(&mut self.dropping);
        owners.extend(known.iter().map(|snapshot| snapshot.id.0));
        for snapshot in known {
            self.lists_from(snapshot.id.0, &owners);
            self.tree(snapshot.root, false);
        }
        self.lists_from(0, &owners);
        // Listed blocks are in use until their snapshot is dropped and its list processed: they are
        // in no tree if other snapshots that contained them were dropped before.
        self.used.iter_mut().zip(&self.listed).for_each(|(used, listed)| *used |= listed);
    }

    /// Checks the dead lists of snapshots of this epoch and of later ones. Lists of others than
    /// `owners` will never be processed, so nothing is in use because of them.
    fn lists_from(&mut self, epoch: u64, owners: &BTreeSet<u64>) {
        for (owner, runs) in self.dead.split_off(&epoch) {
            if owners.contains(&owner) {
                self.list(owner, &runs);
            }
        }
    }

    /// Checks whether blocks of a dead list are in a tree walked so far, or in another list: they
    /// would be freed while they are in use, or twice.
    fn list(&mut self, owner: u64, runs: &[Freed]) {
        let (mut wrong, mut first) = (0, 0);
        let end = |run: &Freed| run.at.saturating_add(run.count.into()).min(self.layout.blocks);
        let blocks: Vec<Range<u64>> = runs.iter().map(|run| run.at..end(run)).collect();
        for at in blocks.into_iter().flatten() {
            let bit = at.wrapping_sub(self.layout.data_at);
            let Some(word) = self.listed.get_mut((bit / 64) as usize) else { continue };
            let is_listed = *word & 1 << (bit % 64) != 0;
            *word |= 1 << (bit % 64);
            if is_listed || self.is_marked(at) {
                first = if wrong == 0 { at } else { first };
                wrong += 1;
            }
        }
        if wrong > 0 {
            self.checked.findings.push(Finding::DeadInUse(owner, wrong, first));
        }
    }

    /// Returns the used blocks, the correct data, and the result.
    pub(super) fn end(self) -> (Vec<u64>, Vec<u64>, Checked) {
        (self.used, self.right, self.checked)
    }

    /// Walks one tree.
    pub(super) fn tree(&mut self, root: Ptr, present: bool) {
        self.present = present;
        self.checked.snapshots += u64::from(!present);
        if root.at != 0 {
            let block = (self.read)(root.at, 1).and_then(|blocks| blocks.into_iter().next());
            self.page(root, None, block, &Bounds { from: b"", to: None });
        }
    }

    fn page(&mut self, ptr: Ptr, level: Option<u8>, block: Option<Block>, bounds: &Bounds<'_>) {
        if !self.mark(ptr.at) {
            return;
        }
        self.checked.pages += 1;
        let right = |block: &Block| {
            sum(block) == ptr.sum
                && page::is_sound_on_disk(block)
                && page::birth(block) == ptr.birth
                && level.is_none_or(|level| page::level(block) == level)
                && in_bounds(block, bounds)
        };
        match block.filter(right) {
            None => {
                let to = bounds.to.map(<[u8]>::to_vec);
                let finding = Finding::Page(ptr.at, bounds.from.to_vec(), to);
                self.checked.note(finding, self.watcher);
            }
            Some(block) if page::level(&block) == 0 => self.leaf(&block),
            Some(block) => self.inner(&block, bounds),
        }
    }

    fn inner(&mut self, block: &[u8], bounds: &Bounds<'_>) {
        let count = page::count(block);
        let children: Vec<Ptr> = (0..count).map(|index| page::child(block, index)).collect();
        let wanted: Vec<u64> =
            children.iter().map(|ptr| ptr.at).filter(|at| !self.is_marked(*at)).collect();
        let mut read = self.read_many(wanted);
        for (index, ptr) in children.into_iter().enumerate() {
            let key = page::key(block, index);
            let below = Bounds {
                from: if index == 0 { bounds.from } else { key },
                to: if index + 1 < count { Some(page::key(block, index + 1)) } else { bounds.to },
            };
            let found = read.iter_mut().find(|(at, _)| *at == ptr.at);
            let found = found.and_then(|(_, block)| block.take());
            self.page(ptr, Some(page::level(block) - 1), found, &below);
        }
    }

    /// Reads many blocks, adjacent ones together.
    fn read_many(&mut self, mut wanted: Vec<u64>) -> Vec<(u64, Option<Block>)> {
        wanted.sort_unstable();
        wanted.retain(|at| *at < self.layout.blocks);
        let mut found = Vec::with_capacity(wanted.len());
        let mut rest = &wanted[..];
        while let Some(&first) = rest.first() {
            let run = rest.iter().zip(first..).take_while(|(at, next)| **at == *next);
            let run = run.take(BLOCKS_MAX).count();
            let (now, later) = rest.split_at(run);
            rest = later;
            match (self.read)(first, run as u32) {
                Some(blocks) => found.extend(now.iter().copied().zip(blocks.into_iter().map(Some))),
                // One bad block must not hide the others.
                None => {
                    for at in now {
                        let block = (self.read)(*at, 1).and_then(|all| all.into_iter().next());
                        found.push((*at, block));
                    }
                }
            }
        }
        found
    }

    fn leaf(&mut self, block: &[u8]) {
        for index in 0..page::count(block) {
            let (key, (value, is_extent)) = (page::key(block, index), page::value(block, index));
            let Some((table, rest)) = key.split_at_checked(4) else { continue };
            let table = Table(u32::from_be_bytes(table.try_into().expect("four bytes")));
            self.checked.entries += u64::from(self.present);
            if is_extent {
                self.extent(table, rest, value);
            } else if self.present {
                self.own_entry(table, rest, value);
                self.watcher.entry(table, rest, Content::Bytes(value));
            }
        }
    }

    /// Records snapshots, those being dropped, and their dead lists.
    fn own_entry(&mut self, table: Table, key: &[u8], value: &[u8]) {
        let owner = key.first_chunk().map(|epoch| u64::from_be_bytes(*epoch));
        match (table, owner) {
            (SNAPSHOTS, _) => self.snapshots.push((key.to_vec(), Snapshot::decode(key, value))),
            (DROPPING, Some(owner)) if key.len() == 8 => drop(self.dropping.insert(owner)),
            (DEAD, Some(owner)) if key.len() == 20 => {
                self.dead.entry(owner).or_default().extend(decode_dead(value).unwrap_or_default());
            }
            (Table(_), _) => {}
        }
    }

    fn extent(&mut self, table: Table, key: &[u8], value: &[u8]) {
        let view = super::extent_of(value);
        let fresh: Vec<bool> =
            (view.at()..view.at() + view.count() as u64).map(|at| self.mark_data(at)).collect();
        let mut bytes = Vec::new();
        let (mut damaged, wants) = (false, self.watcher.wants(table) && self.present);
        let unread = self.watcher.reads_data() && fresh.contains(&true);
        let doubtful = unread && !self.is_right(&view);
        if doubtful || wants {
            let read = self.read_many((view.at()..view.at() + view.count() as u64).collect());
            for (index, (at, block)) in read.into_iter().enumerate() {
                match block.filter(|block| sum(block) == view.sum(index)) {
                    Some(block) => {
                        self.note_right(at);
                        if wants {
                            bytes.extend_from_slice(&block);
                        }
                    }
                    None => {
                        damaged = true;
                        let finding = Finding::Data(at, table, key.to_vec(), index as u64);
                        self.checked.note(finding, self.watcher);
                    }
                }
            }
        }
        if self.present {
            bytes.truncate(view.bytes());
            let content = match (damaged, wants) {
                (true, _) => Content::Damaged(view.count() as u64),
                (false, true) => Content::Bytes(&bytes),
                (false, false) => Content::Blocks(view.count() as u64),
            };
            self.watcher.entry(table, key, content);
        }
    }

    /// Returns whether an earlier check has found all of an extent correct: an extent older
    /// than that check and still in a tree was in use all the time.
    fn is_right(&mut self, view: &extent::View<'_>) -> bool {
        let (epoch, blocks) = &self.before;
        let mut all = view.at()..view.at() + view.count() as u64;
        let known =
            view.birth() <= *epoch && all.clone().all(|at| is_set(&self.layout, blocks, at));
        if known {
            all.by_ref().for_each(|at| self.note_right(at));
        }
        known
    }

    /// Records that a data block is as written.
    fn note_right(&mut self, at: u64) {
        let bit = at.wrapping_sub(self.layout.data_at);
        if let Some(word) = self.right.get_mut((bit / 64) as usize) {
            *word |= 1 << (bit % 64);
        }
    }

    /// Records that a data block is used; returns `false` if that was known.
    fn mark_data(&mut self, at: u64) -> bool {
        let known = self.is_marked(at);
        if known && self.present {
            self.checked.findings.push(Finding::Twice(at));
        }
        self.checked.data += u64::from(!known);
        !known && self.mark(at)
    }

    fn is_marked(&self, at: u64) -> bool {
        is_set(&self.layout, &self.used, at)
    }

    /// Records that a block is used; returns `false` if it need not be read, or does not exist.
    fn mark(&mut self, at: u64) -> bool {
        let bit = at.wrapping_sub(self.layout.data_at);
        let known = self.is_marked(at);
        let Some(word) = self.used.get_mut((bit / 64) as usize) else { return true };
        *word |= 1 << (bit % 64);
        if known && self.present {
            self.checked.findings.push(Finding::Twice(at));
        }
        let done = self.checked.pages + self.checked.data;
        if done.is_multiple_of(256) {
            self.watcher.progress(done, self.all.max(done));
        }
        !known
    }
}

/// Returns whether the bit of a block is set.
fn is_set(layout: &Layout, bits: &[u64], at: u64) -> bool {
    let bit = at.wrapping_sub(layout.data_at);
    bits.get((bit / 64) as usize).is_some_and(|word| word & 1 << (bit % 64) != 0)
}

/// Returns whether all keys of a page are within the range of its parent.
fn in_bounds(page: &[u8], bounds: &Bounds<'_>) -> bool {
    let first = usize::from(page::level(page) > 0);
    (first..page::count(page)).all(|index| {
        let key = page::key(page, index);
        key >= bounds.from && bounds.to.is_none_or(|to| key < to)
    })
}
