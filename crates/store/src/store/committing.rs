//! Commits of transactions.

use super::{Job, Output, Phase, Refusal, Store};
use crate::journal::{self, record};
use crate::missing::{Missing, Want};
use crate::present::Cost;
use crate::space::{Purpose, Run};
use crate::sum::sum;
use crate::{Block, Change, Durability, Error, Extent, Io, Ticket, snapshots};
use base::{Automaton, Instant, op::BLOCKS_MAX};

/// Number of blocks that even deletions leave free, for the pages that a checkpoint changes itself.
const FLOOR: u64 = 8;

/// Number of blocks of the journal reserved for the store's own transactions.
const OWN_BLOCKS: usize = 4;

/// Share of a full disk that a transaction may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Claim {
    /// All but the reserve.
    Usual,
    /// Half of the reserve too, for deletions.
    Shrinking,
    /// All of it, in any state, for the store's own transactions, which make or drop snapshots.
    Own,
}

/// Data being written to fresh blocks.
#[derive(Debug)]
pub(super) struct Placing {
    ticket: Ticket,
    left: usize,
    extents: Vec<Extent>,
    blocks: Vec<Block>,
    failed: Option<Error>,
}

impl Store {
    /// Applies all changes, or none. They are visible to readers at once; [`Output::Committed`]
    /// follows when they are durable, if that was requested.
    ///
    /// # Errors
    /// `Missing`: fetch that and plan again. `Failed`: with `NoSpace`, `TooLarge`, `ReadOnly`,
    /// `DiskFailed`. Nothing was changed in either case.
    pub fn commit(
        &mut self,
        now: Instant,
        ticket: Ticket,
        changes: &[Change],
        durability: Durability,
        out: &mut Vec<Output>,
    ) -> Result<(), Refusal> {
        let shrinks = |change: &Change| {
            matches!(change, Change::Delete { .. } | Change::Cut { .. } | Change::Free { .. })
        };
        let shrinking = changes.iter().any(shrinks);
        let claim = if shrinking { Claim::Shrinking } else { Claim::Usual };
        self.commit_as(now, (ticket, claim), changes, durability, out)
    }

    pub(super) fn commit_as(
        &mut self,
        now: Instant,
        (ticket, claim): (Ticket, Claim),
        changes: &[Change],
        durability: Durability,
        out: &mut Vec<Output>,
    ) -> Result<(), Refusal> {
        self.expect_writable().map_err(Refusal::Failed)?;
        let size = self.expect_fair(changes).map_err(Refusal::Failed)?;
        let cost = self.present.plan(changes).map_err(Refusal::Missing)?;
        self.expect_room(claim, size, cost)?;
        let mut grants = match self.present.grant(changes) {
            Ok(grants) => grants,
            Err(count) => return Err(self.no_run(count)),
        };
        if let Err(error) = self.present.apply(changes, &mut grants) {
            // Planned changes do not fail, unless the tree is inconsistent. Then none of them may
            // reach the disk.
            self.fail(now, out);
            return Err(Refusal::Failed(error));
        }
        self.changed_since.get_or_insert(now);
        let record = record::encode(&grants.used, changes);
        let waiter = (durability == Durability::Durable).then_some(ticket);
        let flush = changes.iter().any(|change| matches!(change, Change::Attach { .. }));
        self.step_journal(now, journal::Input::Append { record, waiter, flush }, out);
        Ok(())
    }

    /// Notifies `ticket` when everything committed so far is durable.
    pub fn sync(&mut self, now: Instant, ticket: Ticket, out: &mut Vec<Output>) {
        self.step_journal(now, journal::Input::Sync(ticket), out);
    }

    /// Writes data to fresh blocks, to be attached by a commit; [`Output::Placed`] follows.
    ///
    /// # Errors
    /// As [`Store::commit`].
    pub fn place(
        &mut self,
        _now: Instant,
        ticket: Ticket,
        blocks: Vec<Block>,
        out: &mut Vec<Output>,
    ) -> Result<(), Refusal> {
        assert!(!blocks.is_empty(), "somebody waits for the last block");
        self.expect_writable().map_err(Refusal::Failed)?;
        let layout = self.present.layout;
        let pages = self.present.cache.dirty_pages() as u64;
        let needed = blocks.len() as u64 + pages + layout.reserve() + FLOOR + self.dead_pages(0);
        self.expect_blocks(needed)?;
        let place = self.placing.vacant_key();
        let (mut extents, mut rest) = (Vec::new(), &blocks[..]);
        while !rest.is_empty() {
            let want = rest.len().min(BLOCKS_MAX) as u32;
            let run = self.present.space.allocate(Purpose::Data, want).expect("there is room");
            let (now, later) = rest.split_at(run.count as usize);
            rest = later;
            let sums = now.iter().map(|block| sum(block)).collect();
            extents.push(Extent { at: run.at, birth: self.present.epoch, sums });
            let (at, blocks) = (run.at, now.to_vec());
            let io = |id| Io::Write { id, at, blocks, durable: false };
            self.submit(Job::Position(place), io, out);
        }
        let left = extents.len();
        self.placing.insert(Placing { ticket, left, extents, blocks, failed: None });
        Ok(())
    }

    /// Handles the completion of one write of a placement.
    pub(super) fn placed(
        &mut self,
        place: usize,
        result: Result<(), base::Error>,
        out: &mut Vec<Output>,
    ) {
        let failed = result.is_err().then(|| self.failures.last());
        let placing = &mut self.placing[place];
        assert!(placing.left > 0, "each of its writes ends once");
        placing.left -= 1;
        placing.failed = placing.failed.or(failed);
        if placing.left > 0 {
            return;
        }
        let Placing { ticket, extents, blocks, failed, .. } = self.placing.remove(place);
        if let Some(error) = failed {
            // No data refers to these blocks, so only this request is lost.
            self.abandon(extents);
            return out.push(Output::Placed(ticket, Err(error)));
        }
        let places =
            extents.iter().flat_map(|extent| extent.at..extent.at + extent.sums.len() as u64);
        for (at, block) in places.zip(blocks) {
            self.present.cache.forget(at);
            self.present.cache.add_clean(at, block, false);
        }
        self.present.cache.evict();
        out.push(Output::Placed(ticket, Ok(extents)));
    }

    /// Asserts that placements wait for their writes.
    pub(super) fn check_placing(&self) {
        let places = self.jobs.iter().filter_map(|(_, job)| match job {
            Job::Position(place) => Some(*place),
            Job::Fetch(_)
            | Job::Recovery
            | Job::JournalFlush
            | Job::JournalWrite
            | Job::Segment(..)
            | Job::Map
            | Job::CheckpointFlush
            | Job::Superblock
            | Job::Probe => None,
        });
        let places: Vec<usize> = places.collect();
        assert!(places.iter().all(|place| self.placing.contains(*place)), "a write is for nothing");
        for (place, placing) in &self.placing {
            let writes = places.iter().filter(|other| **other == place).count();
            assert_eq!(placing.left, writes, "it waits for its writes");
            let blocks: usize = placing.extents.iter().map(|extent| extent.sums.len()).sum();
            assert_eq!(placing.blocks.len(), blocks, "each block has its place");
        }
    }

    /// Frees blocks that were placed and will not be attached.
    pub fn abandon(&mut self, extents: Vec<Extent>) {
        for Extent { at, sums, .. } in extents {
            let count = u32::try_from(sums.len()).expect("extents are small");
            (at..at + u64::from(count)).for_each(|at| self.present.cache.forget(at));
            self.present.space.give_back(Run { at, count });
        }
    }

    pub(super) fn expect_writable(&self) -> Result<(), Error> {
        if let Some(error) = self.broken {
            return Err(error);
        }
        match self.phase {
            Phase::Open if !self.config.read_only && self.rolling.is_none() => Ok(()),
            Phase::Open | Phase::Closing(_) | Phase::Recovering(_) => Err(Error::ReadOnly),
            Phase::Over(error) => Err(error),
        }
    }

    /// Checks that all sizes are within the volume's limits; returns the size of the record, bytes.
    fn expect_fair(&self, changes: &[Change]) -> Result<usize, Error> {
        let layout = &self.present.layout;
        let fair = changes.iter().all(|change| change.is_within_limits(layout));
        // In the worst case every block of a write is a run of its own.
        let runs = |change: &Change| match change {
            Change::Write { data, .. } => 12 * (data.len() / layout.block + 2),
            Change::Put { .. } | Change::Cut { .. } => 24,
            Change::Delete { .. } | Change::Attach { .. } | Change::Free { .. } => 12,
        };
        let size = record::size(changes) + changes.iter().map(runs).sum::<usize>();
        if fair && size <= layout.transaction_max() { Ok(size) } else { Err(Error::TooLarge) }
    }

    /// Checks that there is space in the journal, in memory, and on the disk.
    fn expect_room(&self, claim: Claim, size: usize, cost: Cost) -> Result<(), Refusal> {
        let (cache, layout) = (&self.present.cache, &self.present.layout);
        let more = usize::try_from(cost.pages + cost.data).unwrap_or(usize::MAX);
        let full = cache.unwritten().saturating_add(more) > self.config.dirty;
        let (kept, reserve) = match claim {
            Claim::Usual => (OWN_BLOCKS * layout.block, layout.reserve()),
            Claim::Shrinking => (OWN_BLOCKS * layout.block, layout.reserve() / 2),
            Claim::Own => (0, 0),
        };
        // A request that does not fit beside others fits alone; and none overtakes those that wait.
        let behind = !self.fetching.room.is_empty();
        let waits = (behind || full && cache.unwritten() > 0) && claim != Claim::Own;
        if !self.journal.has_room(size + kept) || waits {
            return Err(Refusal::Missing(Missing::from(Want::Room)));
        }
        let dead = self.dead_pages(cost.pages + cost.freed);
        let pages = cache.dirty_pages() as u64 + cost.pages;
        let needed = pages + cost.data + reserve + FLOOR + dead;
        self.expect_blocks(needed)
    }

    /// Asserts that the next checkpoint has space for every page.
    pub(super) fn check_room(&self) {
        let pages = self.present.cache.dirty_pages() as u64 + self.dead_pages(0);
        let free = self.present.space.free_blocks();
        assert!(pages <= free, "{pages} pages have to be written, and {free} blocks are free");
    }

    /// Returns the number of pages that recording blocks held by snapshots may take.
    fn dead_pages(&self, more: u64) -> u64 {
        if self.snapshots.newest().is_none() {
            return 0;
        }
        let runs = self.present.tree.freed.len() as u64 + more;
        let entry = snapshots::chunk_max(&self.present.layout) as u64;
        8 + runs.div_ceil(entry)
    }

    /// Checks that this number of blocks is free, or will be after a checkpoint.
    fn expect_blocks(&self, needed: u64) -> Result<(), Refusal> {
        let space = &self.present.space;
        if space.free_blocks() >= needed {
            return Ok(());
        }
        let left: u64 = self.left_behind().map(|run| u64::from(run.count)).sum();
        Err(no_space(space.free_blocks() + space.releasing_blocks() + left >= needed))
    }

    /// Returns the number of bytes that pages and data may still take, once all freed blocks are
    /// available: it examines everything freed since the last checkpoint.
    pub fn room(&self) -> u64 {
        let (space, layout) = (&self.present.space, &self.present.layout);
        let left: u64 = self.left_behind().map(|run| u64::from(run.count)).sum();
        let free = space.free_blocks() + space.releasing_blocks() + left;
        let pages = self.present.cache.dirty_pages() as u64 + self.dead_pages(0);
        free.saturating_sub(pages + layout.reserve() + FLOOR) * layout.block as u64
    }

    /// Refuses a run of blocks that is not available, perhaps until after a checkpoint.
    fn no_run(&self, count: u32) -> Refusal {
        no_space(self.present.space.will_have_run(self.left_behind(), count))
    }

    /// Returns the blocks freed by the next checkpoint in addition to the present one: those freed
    /// since and not held by a snapshot.
    fn left_behind(&self) -> impl Iterator<Item = Run> {
        let newest = self.snapshots.newest().map_or(0, |id| id.0);
        let freed = self.present.tree.freed.iter().filter(move |freed| freed.birth > newest);
        freed.map(|freed| Run { at: freed.at, count: freed.count })
    }

    /// Steps the journal, and performs its outputs.
    pub(super) fn step_journal(
        &mut self,
        now: Instant,
        input: journal::Input,
        out: &mut Vec<Output>,
    ) {
        let mut outputs = Vec::new();
        self.journal.step(now, input, &mut outputs);
        for output in outputs {
            match output {
                journal::Output::Flush => {
                    self.submit(Job::JournalFlush, |id| Io::Flush { id }, out);
                }
                journal::Output::Write(at, blocks) => {
                    let at = self.present.layout.journal_at + at;
                    let io = |id| Io::Write { id, at, blocks, durable: true };
                    self.submit(Job::JournalWrite, io, out);
                }
                journal::Output::Durable(ticket) => out.push(Output::Committed(ticket, Ok(()))),
                journal::Output::Unknown(ticket) => {
                    out.push(Output::Committed(ticket, Err(self.failures.last())));
                }
            }
        }
    }

    /// Handles a completion or a failure of an operation of the journal.
    pub(super) fn written(
        &mut self,
        now: Instant,
        well: bool,
        input: journal::Input,
        out: &mut Vec<Output>,
    ) {
        if well {
            self.step_journal(now, input, out);
        } else {
            self.fail(now, out);
        }
    }
}

/// Refuses for lack of space, for now or for good.
fn no_space(hope: bool) -> Refusal {
    if hope { Refusal::Missing(Missing::from(Want::Room)) } else { Refusal::Failed(Error::NoSpace) }
}
