//! The store: all managers of one volume, composed.
//!
//! A user in the same thread calls its methods and routes its outputs; states that wait for the
//! disk are those of its machines.

use crate::cache::Map;
use crate::checkpoint::{self, Checkpoint};
use crate::failures::Failures;
use crate::journal::{self, Journal};
use crate::missing::{Missing, Want};
use crate::present::Present;
use crate::reader::Reader;
use crate::recovery::Recovery;
use crate::rollback::Rollback;
use crate::snapshots::Snapshots;
use crate::space::Space as Segments;
use crate::{
    Error, Extent, Failure, Io, IoDone, IoId, Layout, SnapshotId, Superblock, Ticket, View,
};
use base::{Automaton, Instant, Time};
use slab::Slab;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

mod checkpointing;
mod committing;
mod fetching;
mod growing;
mod recovering;
mod rolling;
mod snapshotting;
#[cfg(test)]
mod tests;

/// Parameters of an open volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Maximum number of cached blocks, unless more are changed or needed at once.
    pub cache: usize,
    /// Maximum number of cached blocks that the disk does not have yet.
    pub dirty: usize,
    /// Maximum time that a change waits for a checkpoint.
    pub interval: Duration,
    /// Whether to write nothing; the journal is then applied in memory only.
    pub read_only: bool,
    /// Whether to open the volume in spite of lost acknowledged transactions.
    pub accept_loss: bool,
}

impl Config {
    /// Returns the parameters for this amount of memory, bytes.
    pub fn for_memory(bytes: usize, layout: &Layout) -> Config {
        let cache = (bytes / layout.block).max(64);
        let interval = Duration::from_secs(30);
        Config { cache, dirty: cache / 2, interval, read_only: false, accept_loss: false }
    }
}

/// An input of the store.
#[derive(Debug)]
pub enum Input {
    /// The completion of an operation on the disk.
    Done(IoId, IoDone),
    /// Fetch what a plan needs; [`Output::Fetched`] follows.
    Fetch(Ticket, Missing),
    /// Wait until everything committed so far is durable; [`Output::Committed`] follows.
    Sync(Ticket),
    /// Create a snapshot of the present state with this name; [`Output::Committed`] follows.
    Snapshot(Ticket, Vec<u8>, Time),
    /// Drop a snapshot; [`Output::Committed`] follows.
    DropSnapshot(Ticket, Vec<u8>),
    /// Grow to this number of blocks in all; [`Output::Committed`] follows.
    Grow(Ticket, u64),
    /// Make the present state that of a snapshot; [`Output::Committed`] follows.
    RollBack(Ticket, Rollback),
    /// Make everything durable and close the store; [`Output::Closed`] follows.
    Close(Ticket),
    /// A turn ends, or time has passed.
    Tick,
}

/// An output of the store.
#[derive(Clone, Debug)]
pub enum Output {
    /// An operation on the disk.
    Io(Io),
    /// The volume is open, or cannot be opened.
    Opened(Result<(), Error>),
    /// The needs of a plan are fetched, or unavailable: plan again.
    Fetched(Ticket, Result<(), Error>),
    /// A commit is durable; after an error that is unknown until the volume is opened again.
    Committed(Ticket, Result<(), Error>),
    /// The blocks are on the disk, to be attached.
    Placed(Ticket, Result<Vec<Extent>, Error>),
    /// The store is closed.
    Closed(Ticket, Result<(), Error>),
}

/// Reason why a commit changed nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// This must be fetched; then plan again.
    Missing(Missing),
    /// The commit is impossible.
    Failed(Error),
}

/// Usage of a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Size of a block, bytes.
    pub block: usize,
    /// Number of blocks for pages and data.
    pub blocks: u64,
    /// Number of free blocks, including those free after the next checkpoint.
    pub blocks_free: u64,
    /// Number of free blocks available for any purpose: the others are reserved for deletions,
    /// so that a full volume can be emptied.
    pub blocks_available: u64,
}

/// Statistics, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Number of cached blocks, and their limit.
    pub cache: (usize, usize),
    /// Number of blocks that the disk does not have yet, and their limit.
    pub dirty: (usize, usize),
    /// Numbers of blocks of the journal ring in use, and in all.
    pub journal: (u64, u64),
    /// Number of operations on the disk in flight.
    pub operations: usize,
    /// Number of requests that wait for pages, or for space.
    pub waiting: usize,
    /// Number of checkpoints since the volume was created.
    pub checkpoints: u64,
    /// Number of failures of the disk since the volume was opened.
    pub failures: u64,
    /// Kind and state of each machine.
    pub machines: Vec<(&'static str, &'static str)>,
}

/// State of the store as a whole.
#[derive(Debug)]
enum Phase {
    /// Reading the volume.
    Recovering(Box<Recovery>),
    /// Open.
    Open,
    /// Writing the last checkpoint, with the ticket to notify.
    Closing(Ticket),
    /// Closed, or failed to open.
    Over(Error),
}

/// An operation on the disk in flight, with its purpose.
#[derive(Debug)]
enum Job {
    Fetch(fetching::Reading),
    Recovery,
    JournalFlush,
    JournalWrite,
    /// Blocks of a segment: the segment, the first block, their number.
    Segment(usize, u64, usize),
    Map,
    CheckpointFlush,
    Superblock,
    /// A part of blocks being placed.
    Position(usize),
    /// The last block of a volume that is to grow.
    Probe,
}

/// The store of one volume.
#[derive(Debug)]
pub struct Store {
    config: Config,
    superblock: Superblock,
    phase: Phase,
    present: Present,
    journal: Journal,
    checkpoint: Checkpoint,
    /// State of the checkpoint in progress.
    sealing: Option<checkpointing::Sealing>,
    /// The growth in progress.
    growing: Option<growing::Growing>,
    /// The rollback in progress.
    rolling: Option<rolling::RollbackState>,
    snapshots: Snapshots,
    snapshotting: snapshotting::Snapshotting,
    jobs: Slab<Job>,
    /// Result of closing, with its ticket, to be reported when no operation is in flight.
    farewell: Option<(Ticket, Result<(), Error>)>,
    fetching: fetching::Fetching,
    placing: Slab<committing::Placing>,
    /// Records to be applied again.
    replay: VecDeque<(u64, journal::record::Record)>,
    /// Total number of records applied again.
    recovered: usize,
    /// Time of the first change that no checkpoint includes.
    changed_since: Option<Instant>,
    /// Error of a failed write or flush, after which nothing is written.
    broken: Option<Error>,
    failures: Failures,
}

impl Store {
    /// Opens the volume that begins with `head`, its first [`crate::HEAD_BYTES`]. It is usable
    /// after [`Output::Opened`].
    ///
    /// # Errors
    /// `NotAVolume`, or `Damaged` if no superblock is valid.
    pub fn open(
        head: &[u8],
        config: Config,
        now: Instant,
        out: &mut Vec<Output>,
    ) -> Result<Store, Error> {
        let superblock = Superblock::newest(head)?;
        let layout = superblock.layout;
        let mut cache = crate::cache::Cache::new(config.cache, layout.block);
        let tree = if superblock.root.at == 0 {
            crate::btree::Tree::empty(&mut cache)
        } else {
            crate::btree::Tree::at(superblock.root)
        };
        let epoch = superblock.epoch + 1;
        let space = Segments::empty(&layout);
        let tail = superblock.tail;
        let recovery = Recovery::new(superblock.clone(), config.accept_loss, config.read_only);
        let mut store = Store {
            config,
            phase: Phase::Recovering(Box::new(recovery)),
            present: Present { layout, cache, tree, space, epoch },
            journal: Journal::new(&layout, superblock.volume, epoch, tail.block, tail),
            superblock,
            checkpoint: Checkpoint::default(),
            sealing: None,
            growing: None,
            rolling: None,
            snapshots: Snapshots::default(),
            snapshotting: snapshotting::Snapshotting::default(),
            jobs: Slab::new(),
            farewell: None,
            fetching: fetching::Fetching::default(),
            placing: Slab::new(),
            replay: VecDeque::new(),
            recovered: 0,
            changed_since: None,
            broken: None,
            failures: Failures::default(),
        };
        store.begin_recovery(now, out);
        Ok(store)
    }

    /// Returns the layout of the volume.
    pub fn layout(&self) -> &Layout {
        &self.present.layout
    }

    /// Returns the superblock of the newest checkpoint.
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// Returns a reader of a state of the volume.
    ///
    /// # Errors
    /// `NotFound` if there is no such snapshot (any more).
    #[inline]
    pub fn reader(&self, view: View) -> Result<Reader<'_>, Error> {
        let root = match view {
            View::Present => self.present.tree.root,
            View::Snapshot(id) => self.snapshots.get(id).ok_or(Error::NotFound)?.root,
        };
        Ok(Reader { cache: &self.present.cache, root, layout: &self.present.layout })
    }

    /// Returns the usage of the volume. Freed blocks count from the next checkpoint on.
    pub fn space(&self) -> Space {
        let layout = &self.present.layout;
        let space = &self.present.space;
        let waiting = self.present.cache.dirty_pages() as u64;
        let free = space.free_blocks() + space.releasing_blocks();
        let blocks_free = free.saturating_sub(waiting);
        Space {
            block: layout.block,
            blocks: layout.data_blocks(),
            blocks_free,
            blocks_available: blocks_free.saturating_sub(layout.reserve()),
        }
    }

    /// Returns the statistics.
    pub fn counts(&self) -> Counts {
        let cache = &self.present.cache;
        let mut machines = vec![
            ("journal", self.journal.state_name()),
            ("checkpoint", self.checkpoint.state_name()),
        ];
        if let Phase::Recovering(recovery) = &self.phase {
            machines.push(("recovery", recovery.state_name()));
        }
        machines.extend(self.present.space.states().map(|state| ("segment", state)));
        Counts {
            cache: (cache.len(), cache.capacity()),
            dirty: (cache.unwritten(), self.config.dirty),
            journal: self.journal.fill(),
            operations: self.jobs.len(),
            waiting: self.fetching.waiting(),
            checkpoints: self.superblock().epoch,
            failures: self.failures.count(),
            machines,
        }
    }

    /// Returns the number of transactions in the journal that no checkpoint included, and that
    /// recovery applied again.
    pub fn recovered(&self) -> usize {
        self.recovered
    }

    /// Returns whether it was opened read-only.
    pub fn is_read_only(&self) -> bool {
        self.config.read_only
    }

    /// Returns whether a checkpoint is due or in progress, so that space in memory and in the
    /// journal should be left to urgent work.
    pub fn is_pressed(&self) -> bool {
        !self.checkpoint.is_idle() || self.wants_checkpoint(Instant(0))
    }

    /// Returns whether a write or a flush failed, so that nothing is written any more.
    pub fn is_broken(&self) -> bool {
        self.broken.is_some()
    }

    /// Returns the error after which nothing is written, if there was one.
    pub fn broken(&self) -> Option<Error> {
        self.broken
    }

    /// Returns the next failure of the disk to report, with its number of occurrences.
    pub fn next_failure(&mut self) -> Option<(Failure, u64)> {
        self.failures.next()
    }

    /// Handles the completion of an operation on the disk.
    ///
    /// # Panics
    /// If no such operation is in flight.
    pub fn done(&mut self, now: Instant, io: IoId, done: IoDone, out: &mut Vec<Output>) {
        self.unpin();
        let job = self.jobs.remove(io.0 as usize);
        // A missing block is no failure of the disk.
        if !matches!(job, Job::Probe) {
            self.failures.note(&done, !matches!(job, Job::Fetch(_) | Job::Position(_)));
        }
        match (job, done) {
            (Job::Fetch(reading), IoDone::Read(result)) => {
                self.fetched(now, reading, result.ok(), out);
            }
            (Job::Recovery, IoDone::Read(result)) => self.recovery_read(now, result.ok(), out),
            (Job::Recovery, IoDone::Written(result)) => {
                self.recovery_wrote(now, result.is_ok(), out);
            }
            (Job::Recovery, IoDone::Flushed(result)) => {
                self.recovery_flushed(result.is_ok(), out);
            }
            (Job::JournalFlush, IoDone::Flushed(result)) => {
                self.written(now, result.is_ok(), journal::Input::Flushed, out);
            }
            (Job::JournalWrite, IoDone::Written(result)) => {
                self.written(now, result.is_ok(), journal::Input::Written, out);
            }
            (Job::Segment(segment, at, count), IoDone::Written(result)) => {
                self.segment_written(now, (segment, at, count), result.is_ok(), out);
            }
            (Job::Map, IoDone::Written(result)) => {
                self.step_checkpoint(now, result.is_ok(), checkpoint::Input::Written, out);
            }
            (Job::CheckpointFlush, IoDone::Flushed(result)) => {
                self.step_checkpoint(now, result.is_ok(), checkpoint::Input::Flushed, out);
            }
            (Job::Superblock, IoDone::Written(result)) => {
                self.step_checkpoint(now, result.is_ok(), checkpoint::Input::Sealed, out);
            }
            (Job::Position(place), IoDone::Written(result)) => self.placed(place, result, out),
            (Job::Probe, IoDone::Read(result)) => self.probed(now, result.is_ok(), out),
            // Every operation completes with its own variant.
            (job, done) => unreachable!("{done:?} for {job:?}"),
        }
        self.end_closing(out);
    }

    /// Starts work due: call it at the end of every turn, and when [`Store::deadline`] has passed.
    pub fn tick(&mut self, now: Instant, out: &mut Vec<Output>) {
        self.unpin();
        if !matches!(self.phase, Phase::Open | Phase::Closing(_)) {
            return;
        }
        self.step_snapshots(now, out);
        self.step_journal(now, journal::Input::Tick, out);
        self.begin_checkpoint(now, out);
        self.end_closing(out);
        self.present.cache.evict();
    }

    /// Returns the time for [`Store::tick`] if nothing else happens.
    pub fn deadline(&self) -> Option<Instant> {
        if self.is_broken() || !matches!(self.phase, Phase::Open | Phase::Closing(_)) {
            return None;
        }
        if self.checkpoint.is_idle() && self.wants_checkpoint(Instant(0)) {
            return Some(Instant(0));
        }
        let idle = self.checkpoint.is_idle() && !self.config.read_only;
        let timed = self.changed_since.filter(|_| idle).map(|at| at + self.config.interval);
        self.journal.deadline().into_iter().chain(timed).chain(self.next_step()).min()
    }

    /// Makes everything durable and refuses further changes.
    pub fn close(&mut self, now: Instant, ticket: Ticket, out: &mut Vec<Output>) {
        match self.phase {
            Phase::Open => {
                self.phase = Phase::Closing(ticket);
                self.tick(now, out);
            }
            Phase::Recovering(_) => {
                self.phase = Phase::Over(Error::ReadOnly);
                self.farewell = Some((ticket, Ok(())));
                self.end_closing(out);
            }
            Phase::Over(_) if self.farewell.is_none() => {
                self.farewell = Some((ticket, Err(Error::ReadOnly)));
                self.end_closing(out);
            }
            Phase::Closing(_) | Phase::Over(_) => {
                out.push(Output::Closed(ticket, Err(Error::ReadOnly)));
            }
        }
    }

    /// Reports the end of closing, when everything is written and no operation on the disk is in
    /// flight: its file may be closed then.
    fn end_closing(&mut self, out: &mut Vec<Output>) {
        let quiet = self.checkpoint.is_idle() && self.journal.is_quiet();
        let requested = self.growing.is_some() || self.rolling.is_some();
        let written = self.changed_since.is_none() && !requested;
        let written = self.config.read_only || written;
        if let Phase::Closing(ticket) = self.phase
            && (self.is_broken() || (quiet && written))
        {
            let result = self.broken.map_or(Ok(()), Err);
            self.phase = Phase::Over(Error::ReadOnly);
            self.farewell = Some((ticket, result));
        }
        if self.jobs.is_empty()
            && let Some((ticket, result)) = self.farewell.take()
        {
            out.push(Output::Closed(ticket, result));
        }
    }

    /// Stops all writing: the state of the disk is unknown.
    fn fail(&mut self, now: Instant, out: &mut Vec<Output>) {
        if self.is_broken() {
            return;
        }
        let error = self.failures.last();
        self.broken = Some(error);
        self.step_journal(now, journal::Input::Failed, out);
        self.step_checkpoint(now, true, checkpoint::Input::Failed, out);
        self.refuse_room(out);
        self.refuse_snapshots(error, out);
        self.refuse_growth(error, out);
        self.refuse_rollback(error, out);
        self.run_own(now, out);
        self.end_closing(out);
    }

    /// Asserts that the fields agree with the phase.
    fn check_phase(&self) {
        match &self.phase {
            Phase::Recovering(recovery) => {
                recovery.check();
                assert!(self.checkpoint.is_idle(), "nothing is written before all is read");
            }
            Phase::Open | Phase::Closing(_) => {
                assert!(self.replay.is_empty(), "all was applied again");
                assert!(self.farewell.is_none(), "the store has not ended");
            }
            Phase::Over(_) => {
                let reported = self.farewell.is_none() || !self.jobs.is_empty();
                assert!(reported, "the end is reported when nothing is in flight");
            }
        }
        assert!(!self.config.read_only || self.checkpoint.is_idle(), "nothing may be written");
        assert!(self.present.epoch > self.superblock.epoch, "changed pages are not durable");
    }

    /// Asserts that each machine waits for the operations in flight for it.
    fn check_operations(&self) {
        let count = |is: fn(&Job) -> bool| self.jobs.iter().filter(|(_, job)| is(job)).count();
        let flushes = count(|job| matches!(job, Job::JournalFlush));
        let writes = count(|job| matches!(job, Job::JournalWrite));
        assert_eq!(self.journal.under_way(), (flushes, writes), "of the journal");
        let flush = count(|job| matches!(job, Job::CheckpointFlush));
        let seal = count(|job| matches!(job, Job::Superblock));
        let (flushing, sealing) = self.checkpoint.waits();
        assert_eq!((usize::from(flushing), usize::from(sealing)), (flush, seal), "of checkpoints");
        let mut segments = BTreeMap::new();
        for (_, job) in &self.jobs {
            if let Job::Segment(segment, ..) = job {
                *segments.entry(*segment).or_insert(0) += 1;
            }
        }
        assert_eq!(self.present.space.writing(), segments, "of segments");
        let others = count(|job| matches!(job, Job::Map));
        assert_eq!(self.checkpoint.writes(), segments.len() + others, "before the flush");
        let fixed = flushing || sealing || self.checkpoint.writes() > 0;
        assert_eq!(self.sealing.is_some(), fixed, "a superblock waits for what it leads to");
    }

    fn submit(&mut self, job: Job, io: impl FnOnce(IoId) -> Io, out: &mut Vec<Output>) {
        let id = u32::try_from(self.jobs.insert(job)).expect("few operations are in flight");
        out.push(Output::Io(io(IoId(id))));
    }
}

impl Automaton for Store {
    type Input = Input;
    type Output = Output;

    fn step(&mut self, now: Instant, input: Input, out: &mut Vec<Output>) {
        match input {
            Input::Done(io, done) => self.done(now, io, done, out),
            Input::Fetch(ticket, missing) => self.fetch(now, ticket, missing, out),
            Input::Sync(ticket) => self.sync(now, ticket, out),
            Input::Snapshot(ticket, name, date) => self.snapshot(now, ticket, &name, date, out),
            Input::DropSnapshot(ticket, name) => self.drop_snapshot(now, ticket, &name, out),
            Input::Grow(ticket, blocks) => self.grow(ticket, blocks, out),
            Input::RollBack(ticket, plan) => self.roll_back(now, ticket, plan, out),
            Input::Close(ticket) => self.close(now, ticket, out),
            Input::Tick => self.tick(now, out),
        }
    }

    fn deadline(&self) -> Option<Instant> {
        Store::deadline(self)
    }

    fn check(&self) {
        self.present.cache.check();
        self.present.space.check();
        self.journal.check();
        self.checkpoint.check();
        self.failures.check();
        self.check_phase();
        self.check_fetching();
        self.check_placing();
        if !self.is_broken() {
            self.check_operations();
            self.check_snapshotting();
        }
        if !self.is_broken() && matches!(self.phase, Phase::Open) {
            self.check_room();
        }
    }
}

/// First ticket of the store itself.
pub(crate) const OWN: u64 = 1 << 63;

/// A snapshot for users: name, id, date.
pub type SnapshotEntry<'a> = (&'a [u8], SnapshotId, Time);
