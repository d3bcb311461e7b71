//! The present state of a volume: its tree, its cache, its space; planning and applying of
//! transactions.
//!
//! [`Present::plan`] checks whether all pages touched by a transaction are cached and returns its
//! cost; it changes nothing. [`Present::apply`] then can neither fail nor wait. The blocks assigned
//! to it are part of the transaction's record, so that a replay after a crash has exactly the same
//! effect.

use crate::btree::extent;
use crate::btree::look::LeafPath;
use crate::btree::{self, Freed, Tree};
use crate::cache::{Cache, State};
use crate::keys::full_key;
use crate::missing::{Missing, Want};
use crate::page;
use crate::reader::{BriefKey, RawCell, Reader, raw_key};
use crate::space::{Purpose, Run, Space};
use crate::sum::sum;
use crate::{Change, Error, Extent, Layout, Table};
use base::Block;
use std::collections::VecDeque;

mod raw;

/// The tree, with its memory and disk space.
#[derive(Debug)]
pub(crate) struct Present {
    pub(crate) layout: Layout,
    pub(crate) cache: Cache,
    pub(crate) tree: Tree,
    pub(crate) space: Space,
    /// Epoch of the checkpoint that will include present changes.
    pub(crate) epoch: u64,
}

/// Maximum cost of a transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cost {
    /// Number of pages copied or split off.
    pub(crate) pages: u64,
    /// Number of blocks for data.
    pub(crate) data: u64,
    /// Number of extents that leave the tree.
    pub(crate) freed: u64,
}

/// Blocks for the changes of one transaction.
#[derive(Debug, Default)]
pub(crate) struct Grants {
    /// Runs allocated in advance: in a replay all of them, otherwise those for values.
    given: VecDeque<Run>,
    replay: bool,
    /// Runs used, in order, for the record.
    pub(crate) used: Vec<Run>,
}

impl Grants {
    /// Returns the blocks of a transaction that happened before a crash.
    pub(crate) fn replayed(runs: Vec<Run>) -> Grants {
        Grants { given: runs.into(), replay: true, used: Vec::new() }
    }
}

impl Present {
    /// Returns a reader of the present state.
    pub(crate) fn reader(&self) -> Reader<'_> {
        Reader { cache: &self.cache, root: self.tree.root, layout: &self.layout }
    }

    /// Returns the maximum cost of applying these changes.
    ///
    /// # Errors
    /// `Missing`: the pages and blocks to fetch first.
    pub(crate) fn plan(&self, changes: &[Change]) -> Result<Cost, Missing> {
        let (mut cost, mut missing) = (Cost::default(), Vec::new());
        let mut path = None;
        for change in changes {
            match self.plan_change(change, &mut path) {
                Ok(more) => {
                    cost.pages += more.pages;
                    cost.data += more.data;
                    cost.freed += more.freed;
                }
                Err(more) => missing.extend(more.0),
            }
        }
        // The root may split, and each level below it once more.
        cost.pages += 4;
        if missing.is_empty() { Ok(cost) } else { Err(Missing(missing)) }
    }

    /// Plans one change. `way` is the path to the previous key, which is often the same.
    fn plan_change<'a>(
        &'a self,
        change: &Change,
        path: &mut Option<LeafPath<'a>>,
    ) -> Result<Cost, Missing> {
        match change {
            Change::Put { table, key, value } => {
                let pages = self.plan_key(*table, key, path)? + 1;
                let data = if self.is_inline(key, value) { 0 } else { self.blocks(value.len()) };
                Ok(Cost { pages, data, freed: 1 })
            }
            Change::Delete { table, key } => {
                let pages = self.plan_key(*table, key, path)?;
                Ok(Cost { pages, data: 0, freed: 1 })
            }
            Change::Write { table, object, offset, data } => {
                let to = offset.saturating_add(data.len() as u64);
                let cost = self.plan_raw(*table, *object, *offset, to, true)?;
                Ok(self.filled(cost, *offset, to))
            }
            Change::Attach { table, object, offset, extent } => {
                let to = offset + extent.sums.len() as u64 * self.layout.block as u64;
                let cost = self.plan_raw(*table, *object, *offset, to, false)?;
                Ok(Cost { data: 1, ..self.filled(cost, *offset, to) })
            }
            Change::Cut { table, object, from, to } => {
                let cost = self.plan_raw(*table, *object, *from, *to, true)?;
                Ok(Cost { data: 2, ..cost })
            }
            Change::Free { .. } => Ok(Cost { pages: 0, data: 0, freed: 1 }),
        }
    }

    /// Returns the number of levels of the tree: on each, a page that overflows or becomes thin
    /// makes a neighbour dirty.
    fn depth(&self) -> u64 {
        self.cache.page(self.tree.root).map_or(0, |root| u64::from(page::level(root)) + 1)
    }

    /// Returns the number of pages copied on the path to a key, plus its number of levels.
    fn plan_key<'a>(
        &'a self,
        table: Table,
        key: &[u8],
        path: &mut Option<LeafPath<'a>>,
    ) -> Result<u64, Missing> {
        let key = BriefKey::new(table, key);
        if let Some(known) = path.filter(|path| path.leads_to(&key)) {
            return Ok(known.levels);
        }
        let found = btree::way_to(&self.cache, self.tree.root, &key)?;
        *path = Some(found);
        Ok(found.clean + found.levels)
    }

    /// Returns whether a value is stored in its page.
    fn is_inline(&self, key: &[u8], value: &[u8]) -> bool {
        4 + key.len() + value.len() <= self.layout.inline_max()
    }

    fn blocks(&self, bytes: usize) -> u64 {
        bytes.div_ceil(self.layout.block) as u64
    }

    /// Allocates the runs for values that do not fit into pages; each needs one run. All or none.
    ///
    /// # Errors
    /// The number of blocks of a run that is not available.
    pub(crate) fn grant(&mut self, changes: &[Change]) -> Result<Grants, u32> {
        let mut grants = Grants::default();
        for change in changes {
            let Change::Put { key, value, .. } = change else { continue };
            if self.is_inline(key, value) {
                continue;
            }
            let count = u32::try_from(self.blocks(value.len())).expect("values are small");
            let Some(run) = self.space.allocate_exactly(count) else {
                grants.given.into_iter().for_each(|run| self.space.give_back(run));
                return Err(count);
            };
            grants.given.push_back(run);
        }
        Ok(grants)
    }

    /// Applies the changes of one transaction.
    ///
    /// # Errors
    /// `Damaged` if a replayed record contradicts the volume. Planned changes do not fail.
    pub(crate) fn apply(&mut self, changes: &[Change], grants: &mut Grants) -> Result<(), Error> {
        let result = changes.iter().try_for_each(|change| self.apply_change(change, grants));
        self.tree.tidy(&mut self.cache);
        let used = grants.replay || grants.given.is_empty();
        assert!(result.is_err() || used, "every run given in advance is used");
        result
    }

    fn apply_change(&mut self, change: &Change, grants: &mut Grants) -> Result<(), Error> {
        match change {
            Change::Put { table, key, value } => self.put(*table, key, value, grants),
            Change::Delete { table, key } => {
                if let Some((value, true)) = self.tree.take(&mut self.cache, &full_key(*table, key))
                {
                    self.free_extent(&value);
                }
                Ok(())
            }
            Change::Write { table, object, offset, data } => {
                self.raw(*table, *object).write(*offset, data, grants)
            }
            Change::Attach { table, object, offset, extent } => {
                self.raw(*table, *object).attach(*offset, extent)
            }
            Change::Cut { table, object, from, to } => {
                self.raw(*table, *object).cut(*from, *to, grants)
            }
            Change::Free { at, count } => {
                let live = (*at..*at + u64::from(*count)).all(|at| self.space.is_block_live(at));
                // No tree contains them any more, whatever their epoch.
                self.tree.freed.push(Freed { at: *at, count: *count, birth: u64::MAX });
                if live { Ok(()) } else { Err(Error::Damaged) }
            }
        }
    }

    fn put(
        &mut self,
        table: Table,
        key: &[u8],
        value: &[u8],
        grants: &mut Grants,
    ) -> Result<(), Error> {
        let full = BriefKey::new(table, key);
        let old = if self.is_inline(key, value) {
            self.tree.put(&mut self.cache, &full, value, false)
        } else {
            let run = self.take_run(grants, None, self.blocks(value.len()) as u32, true)?;
            let blocks = value.chunks(self.layout.block);
            let blocks = blocks.map(|bytes| Block::from_bytes(bytes, self.layout.block)).collect();
            let extent = self.add_data(run, blocks);
            let cell = extent::encode(&extent, value.len());
            self.tree.put(&mut self.cache, &full, &cell, true)
        };
        if let Some(old) = old {
            self.free_extent(&old);
        }
        Ok(())
    }

    /// Returns the next run for data: from a replayed record, from those allocated in advance, or
    /// any.
    fn take_run(
        &mut self,
        grants: &mut Grants,
        hint: Option<u64>,
        want: u32,
        exact: bool,
    ) -> Result<Run, Error> {
        assert!(want > 0, "nobody wants no blocks");
        let run = if exact || grants.replay {
            grants.given.pop_front().ok_or(Error::Damaged)?
        } else if let Some(at) = hint.filter(|at| self.space.allocate_at(*at)) {
            let mut count = 1;
            while count < want && self.space.allocate_at(at + u64::from(count)) {
                count += 1;
            }
            Run { at, count }
        } else {
            self.space.allocate(Purpose::Data, want).ok_or(Error::NoSpace)?
        };
        if run.count == 0 || run.count > want || (exact && run.count != want) {
            return Err(Error::Damaged);
        }
        self.space.set_live(run)?;
        grants.used.push(run);
        Ok(run)
    }

    /// Adds changed data to the cache; the next checkpoint writes it.
    fn add_data(&mut self, run: Run, blocks: Vec<Block>) -> Extent {
        assert_eq!(blocks.len(), run.count as usize, "every block of a run gets its contents");
        let sums = blocks.iter().map(|block| sum(block)).collect();
        for (at, block) in (run.at..).zip(blocks) {
            self.cache.add_data(at, block);
            self.space.note_change(at);
        }
        Extent { at: run.at, birth: self.epoch, sums }
    }

    /// Frees the blocks of an extent that leaves the tree.
    fn free_extent(&mut self, value: &[u8]) {
        let view = extent::View::new(value);
        self.free_blocks(view.at(), view.count(), view.birth());
    }

    fn free_blocks(&mut self, at: u64, count: usize, birth: u64) {
        for at in at..at + count as u64 {
            let dirty = self.cache.frame_of(at);
            // Data not written yet need not be written.
            if dirty.is_some_and(|frame| self.cache.state(frame) == State::DirtyData) {
                self.cache.forget(at);
            }
        }
        let count = u32::try_from(count).expect("extents are small");
        assert!(count > 0, "an extent has blocks");
        self.tree.freed.push(Freed { at, count, birth });
    }

    fn raw(&mut self, table: Table, object: u64) -> raw::Raw<'_> {
        raw::Raw { present: self, table, object }
    }

    /// Returns the cost of a change of a raw object that assigns new blocks to a range (bytes); in
    /// the worst case each is an extent of its own.
    fn filled(&self, cost: Cost, from: u64, to: u64) -> Cost {
        assert!(from <= to, "a range does not end before it begins");
        let size = self.layout.block as u64;
        let blocks = to.div_ceil(size) - from / size;
        Cost { pages: cost.pages + blocks / 2, data: blocks, ..cost }
    }

    /// Plans writing or cutting a range of a raw object: checks that all pages and blocks touched
    /// are cached.
    fn plan_raw(
        &self,
        table: Table,
        object: u64,
        from: u64,
        to: u64,
        edges: bool,
    ) -> Result<Cost, Missing> {
        let reader = self.reader();
        let size = self.layout.block as u64;
        let (mut cells, mut missing) = (0, Vec::new());
        let start = raw_key(table, object, from / size);
        let mut pages = btree::way_to(&self.cache, self.tree.root, &start)?.clean;
        let end = to.min(to.div_ceil(size).saturating_mul(size));
        reader.raw_cells(
            table,
            object,
            (from / size).saturating_sub(1) * size,
            end,
            &mut |cell| {
                cells += 1;
                let RawCell::Extent(first, extent) = cell else { return };
                for edge in [from, to].into_iter().filter(|at| edges && at % size != 0) {
                    let index = (edge / size).wrapping_sub(first) as usize;
                    if index < extent.count() {
                        let (at, sum) = (extent.at() + index as u64, extent.sum(index));
                        missing.extend(reader.data(at, sum).err());
                    }
                }
            },
        )?;
        if to != u64::MAX {
            let after = raw_key(table, object, to.div_ceil(size));
            pages += btree::way_to(&self.cache, self.tree.root, &after)?.clean;
        }
        let per_cell = u64::from(page::LEVEL_MAX / 4);
        pages += per_cell + cells / 2 + 2 * self.depth();
        if missing.is_empty() {
            Ok(Cost { pages, data: 0, freed: cells })
        } else {
            Err(Missing(missing))
        }
    }
}

impl From<Want> for Error {
    fn from(_: Want) -> Error {
        // Only a replayed record that contradicts the volume leads to pages outside the plan.
        Error::Damaged
    }
}
