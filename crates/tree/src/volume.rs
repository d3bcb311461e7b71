//! The volume: a file tree in a crash-safe store.
//!
//! Every request is planned as a pure function of the pages in memory ([`plan`]), then applied as
//! one transaction of the store; if pages are missing, they are fetched and the plan is made again
//! from the start. So no request is ever half done, and after a crash the effect of each is there
//! as a whole or not at all. Ordinary changes are answered at once and become durable soon, never
//! before earlier changes; `Sync`, and writes to files opened for synchronous writes, wait for
//! durability.
//!
//! ```text
//!   request ──▶ plan ──▶ commit ──▶ reply
//!                │ ▲
//!        missing ▼ │ fetched
//!               store ──▶ blocks of the volume's file
//! ```
//!
//! - Records: the format in the store, byte by byte ([`record`], [`names`]); the quotas in memory
//!   ([`usage`]).
//! - Plans: [`walk`], [`make`], [`remove`], [`data`], [`attrs`], [`quota`], [`list`], [`batch`],
//!   [`snapshots`].
//! - Machines: the [`pending`] of each request, the [`reaper`], which frees large storage, and
//!   [`counting`], which counts files for a new quota.
//! - [`verify`]: checks the consistency of all records.
//!
//! Permissions are checked here, as in POSIX and Linux ([`permission`]). A node remembers the name
//! by which it was last reached; an unlinked file exists until it is released. Where POSIX leaves a
//! choice:
//!
//! - Every change of a file has a timestamp of its own, at least a nanosecond after the last one.
//!   Access times are updated as by Linux's `relatime`.
//! - A file has at most 2³¹ names, a directory at most as many subdirectories.
//! - Limits and quotas on files and bytes count inodes and blocks of contents; names and attributes
//!   are limited by the volume's size, and to 256 attributes for each file.
//! - Files created by the server itself belong to the owner of their directory.

mod appends;
mod attrs;
mod batch;
mod counting;
mod data;
mod file_handle;
mod format;
mod handles;
mod list;
mod make;
mod names;
mod pending;
mod permission;
mod plan;
mod quota;
mod read_view;
mod reaper;
mod record;
mod remove;
mod snapshots;
#[cfg(test)]
mod tests;
mod usage;
pub mod verify;
mod walk;
mod write_set;

pub use format::{Format, format};
pub use quota::{Limited, Limits};

use crate::disk;
use crate::locks::{Outcome, Table};
use crate::request::{Ask, Id, Input, Lock, NodeId, OpenId, Output, Reply, Request, RequestId};
use appends::Appends;
use base::op::{ClientKey, Done, File, OpId};
use base::{Automaton, Error, Instant, Kind, Stat, Time};
use counting::Counting;
use handles::{EntryKey, Node, NodeRef, Open, Opening};
use pending::{Awaits, CLOSE, COUNTING, GROW, LOOSE, Pending, REAPER, translate};
use read_view::{ReadView, Stop};
use reaper::{Reaper, Task};
use record::{Holder, Settings};
use slab::Slab;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::mem;
use std::time::Duration;
use store::{Change, Durability, Refusal, Store, Ticket, View};
use usage::Quotas;
use write_set::WriteSet;

/// Maximum number of nodes, open files and pending requests together.
pub const HANDLES_MAX: usize = 1 << 20;

/// First number of the reactor operations that are not the store's.
const USERS: usize = 1 << 40;

/// The volume tree.
#[derive(Debug)]
pub struct Volume {
    /// Tree number in the upper bits of all ids, of nodes as of operations, for routing to this
    /// tree.
    index: u16,
    /// File or device of the store.
    file: File,
    store: Store,
    /// Wall-clock time at instant zero.
    wall: Time,
    /// No new inode gets a number below: see [`write_set::first_number`]. Found with the quotas.
    first_number: u64,
    read_only: bool,
    /// Whether each change is durable before its reply.
    write_through: bool,
    /// Loaded on first use.
    settings: Option<Settings>,
    /// Loaded before the first change.
    quotas: Option<Quotas>,
    /// Maximum number of nodes and open files together.
    handles_max: usize,
    nodes: Slab<Node>,
    opens: Slab<Open>,
    /// Nodes by inode of the present, and by the name that each was reached by.
    nodes_of: BTreeSet<(u64, Option<EntryKey>, usize)>,
    /// Number of open files by inode of the present.
    opens_of: BTreeMap<u64, usize>,
    /// Number of nodes and open files by snapshot.
    visits: BTreeMap<u64, usize>,
    /// Inodes that have lost their last name since the volume was opened.
    orphans: BTreeSet<u64>,
    name: String,
    pending: Slab<Pending>,
    /// Slots of the pending requests.
    slots: BTreeMap<RequestId, usize>,
    appends: Appends,
    /// Inodes whose old contents must be freed first, with the pending requests that wait for it.
    trimming: BTreeSet<(u64, usize)>,
    locks: Table<OpenId, RequestId>,
    /// The client of the present request.
    client: ClientKey,
    reaper: Reaper,
    counting: Counting,
    /// Reports other than disk failures.
    reports: VecDeque<String>,
    /// Inodes to pass to the reaper.
    due: Vec<u64>,
    /// Outputs of the store not handled yet. Empty between steps.
    inbox: Vec<store::Output>,
    /// Result of opening the store; until then requests wait.
    opened: Option<Result<(), Error>>,
    /// Result of closing the store.
    closed: Option<Result<(), Error>>,
    /// Result of the last growth, until it is taken.
    grown: Option<Result<(), store::Error>>,
}

/// Statistics for `/.upcall/`.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Nodes held by clients.
    pub nodes: usize,
    /// Open files.
    pub opens: usize,
    /// Ranges locked, and requests waiting for a lock.
    pub locks: (usize, usize),
    /// Pending requests by awaited event.
    pub pending: Vec<(&'static str, usize)>,
    /// State of the reaper, and the number of inodes that wait for it.
    pub reaper: (&'static str, usize),
    /// Files without a name that are held, or that wait for the reaper.
    pub orphans: usize,
    /// State of the machine that counts files for quotas.
    pub counting: &'static str,
}

impl Volume {
    /// Returns the tree in `store`, whose blocks are in `file`, with tree number `index`. `wall` is
    /// the wall-clock time at instant zero.
    pub fn new(index: u16, file: File, store: Store, wall: Time, read_only: bool) -> Volume {
        let mut nodes = Slab::new();
        for node_ref in [NodeRef::File(View::Present, record::ROOT), NodeRef::Snapshots] {
            nodes.insert(Node { node_ref, place: None, users: 1 });
        }
        Volume {
            index,
            file,
            store,
            wall,
            first_number: 0,
            read_only,
            write_through: false,
            settings: None,
            quotas: None,
            handles_max: HANDLES_MAX,
            nodes,
            opens: Slab::new(),
            nodes_of: BTreeSet::new(),
            opens_of: BTreeMap::new(),
            visits: BTreeMap::new(),
            orphans: BTreeSet::new(),
            name: String::new(),
            pending: Slab::new(),
            slots: BTreeMap::new(),
            appends: Appends::default(),
            trimming: BTreeSet::new(),
            locks: Table::default(),
            client: ClientKey::NOBODY,
            reaper: Reaper::new(read_only),
            counting: Counting::new(read_only),
            reports: VecDeque::new(),
            due: Vec::new(),
            inbox: Vec::new(),
            opened: None,
            closed: None,
            grown: None,
        }
    }

    /// Handles the store's outputs from opening it. Requests wait until the store reports that it
    /// is open.
    pub fn begin(&mut self, now: Instant, outputs: Vec<store::Output>, out: &mut Vec<Output>) {
        self.inbox.extend(outputs);
        self.settle(now, out);
    }

    /// Sets whether each change is durable before its reply, and not only synced ones.
    pub fn set_write_through(&mut self, write_through: bool) {
        self.write_through = write_through;
    }

    /// Sets the client that the locks of the next request are accounted to.
    pub fn set_client(&mut self, client: ClientKey) {
        self.client = client;
    }

    /// Sets the maximum number of nodes and open files, at most [`HANDLES_MAX`]. Those beyond it
    /// stay.
    pub fn set_handles_max(&mut self, most: usize) {
        self.handles_max = most.min(HANDLES_MAX);
    }

    /// Returns the root, which is never released. Every walk that ends there returns this node.
    pub fn root(&self) -> NodeId {
        NodeId::new(self.index, handles::ROOT_SLOT)
    }

    /// Returns the root's identifying attributes.
    pub fn root_stat(&self) -> Stat {
        let (device, inode) = (self.device(), record::ROOT);
        Stat { kind: Kind::Directory, mode: 0o755, links: 2, device, inode, ..Stat::default() }
    }

    /// Returns a virtual directory with a directory for each snapshot; never released. Creating a
    /// directory in it creates a snapshot, removing one drops it.
    pub fn snapshots_root(&self) -> NodeId {
        NodeId::new(self.index, handles::SNAPSHOTS_SLOT)
    }

    /// Returns the device number of the present tree; each snapshot has another one.
    pub fn device(&self) -> u64 {
        read_view::device(&self.store, View::Present)
    }

    /// Returns the file or device of the store.
    pub fn file(&self) -> File {
        self.file
    }

    /// Returns the store.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Returns the store for another volume. Nothing must be pending.
    pub fn into_store(self) -> Store {
        assert!(self.pending.is_empty() && self.inbox.is_empty());
        self.store
    }

    /// Returns the statistics.
    pub fn counts(&self) -> Counts {
        let mut pending: Vec<(&'static str, usize)> = Vec::new();
        for (_, it) in &self.pending {
            let name = it.awaits.name();
            match pending.iter_mut().find(|(known, _)| *known == name) {
                Some((_, count)) => *count += 1,
                None => pending.push((name, 1)),
            }
        }
        Counts {
            nodes: self.nodes.len() - 2,
            opens: self.opens.len(),
            locks: self.locks.counts(),
            pending,
            reaper: (self.reaper.name(), self.reaper.waiting()),
            orphans: self.orphans.len(),
            counting: self.counting.name(),
        }
    }

    /// Returns the quotas loaded so far.
    pub fn quotas(&self) -> Vec<Limited> {
        let block = self.store.layout().block as u64;
        let quotas = self.quotas.iter().flatten();
        quotas.map(|(holder, quota)| Limited::new(*holder, quota, block)).collect()
    }

    /// Performs due work: call it at the end of every turn, and when [`Automaton::deadline`] has
    /// passed.
    pub fn tick(&mut self, now: Instant, out: &mut Vec<Output>) {
        self.grant(out);
        self.reap(now, out);
        self.count(now);
        self.settle(now, out);
        self.store.tick(now, &mut self.inbox);
        self.settle(now, out);
    }

    /// Returns whether the volume is open, or why it cannot be opened.
    pub fn is_open(&self) -> Option<Result<(), Error>> {
        self.opened
    }

    /// Sets the volume's name in reports: the path of its file.
    pub fn set_name(&mut self, name: String) {
        self.name = name;
    }

    /// Returns the path of its file, if it was set.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Extends the volume to this number of bytes of its file, which is that long already;
    /// [`Volume::take_grown`] returns the result.
    pub fn grow(&mut self, now: Instant, bytes: u64, out: &mut Vec<Output>) {
        let blocks = bytes / self.store.layout().block as u64;
        self.store.grow(GROW, blocks, &mut self.inbox);
        self.settle(now, out);
    }

    /// Returns the result of the last growth, once, when it is known.
    pub fn take_grown(&mut self) -> Option<Result<(), store::Error>> {
        self.grown.take()
    }

    /// Returns the next report for the operator.
    pub fn next_report(&mut self) -> Option<String> {
        if let Some(report) = self.reports.pop_front() {
            return Some(format!("volume {}: {report}", self.name));
        }
        let (failure, times) = self.store.next_failure()?;
        let again = if times > 1 { format!(" ({times} times so far)") } else { String::new() };
        Some(format!("volume {}: {failure}{again}", self.name))
    }

    /// Returns the failure after which nothing can be written, if there was one.
    pub fn failure(&self) -> Option<String> {
        let error = self.store.broken()?;
        Some(format!("volume {}: {error}", self.name))
    }

    /// Makes everything durable, for the end of the node; [`Volume::is_closed`] returns whether
    /// this is done.
    pub fn close(&mut self, now: Instant, out: &mut Vec<Output>) {
        self.store.close(now, CLOSE, &mut self.inbox);
        self.settle(now, out);
    }

    /// Returns the result of closing the volume, once it is closed.
    pub fn is_closed(&self) -> Option<Result<(), Error>> {
        self.closed
    }
}

impl Automaton for Volume {
    type Input = Input;
    type Output = Output;

    fn step(&mut self, now: Instant, input: Input, out: &mut Vec<Output>) {
        match input {
            Input::Ask(id, request) => self.ask(now, id, request, out),
            Input::Cancel(id) => self.cancel(id, out),
            Input::Release(node) => self.unpin(Id::Node(node)),
            Input::Close(open) | Input::Abandon(open) => self.close_file(open, out),
            Input::Done(op, done) => self.done(now, op, done, out),
            Input::Rendered(ticket, _)
            | Input::Commanded(ticket, _)
            | Input::Answered(ticket, _) => {
                unreachable!("{ticket}: no file here is rendered")
            }
        }
        self.settle(now, out);
    }

    fn deadline(&self) -> Option<Instant> {
        let spare = [self.reaper.deadline(), self.counting.deadline()].into_iter().flatten().min();
        let spare = spare.filter(|_| self.opened == Some(Ok(())));
        let locks = self.locks.is_due().then_some(Instant(0));
        self.store.deadline().into_iter().chain(spare).chain(locks).min()
    }

    fn check(&self) {
        self.check_handles();
        self.locks.check();
        assert!(self.inbox.is_empty() && self.due.is_empty());
        assert_eq!(self.slots.len(), self.pending.len(), "every request has one slot");
        for (slot, pending) in &self.pending {
            pending.pins().for_each(|pin| assert!(self.users(pin) > 0));
            assert_eq!(self.slots.get(&pending.request), Some(&slot));
        }
        let trimming = self.pending.iter().filter_map(|(slot, pending)| match pending.awaits {
            Awaits::Trim(ino) => Some((ino, slot)),
            Awaits::Plan
            | Awaits::Blocks
            | Awaits::Placement(_)
            | Awaits::Append(..)
            | Awaits::Durable(_)
            | Awaits::Snapshot
            | Awaits::User => None,
        });
        assert_eq!(self.trimming, trimming.collect(), "a request that waits for a trim is indexed");
        self.reaper.check();
        self.counting.check();
        self.appends.check();
        for (ino, slot) in self.appends.holders() {
            assert_eq!(self.appended(slot), Some(ino), "the end is held by a write");
        }
    }
}

impl Volume {
    fn ask(&mut self, now: Instant, id: RequestId, request: Request, out: &mut Vec<Output>) {
        if self.read_only && request.ask.changes() {
            return out.push(Output::Reply(id, Err(Error::ReadOnly)));
        }
        let held = self.nodes.len() + self.opens.len() + self.pending.len();
        if request.ask.hands_out() && held >= self.handles_max {
            return out.push(Output::Reply(id, Err(Error::TooManyOpen)));
        }
        if let Ask::Lock { open, lock, wait } = request.ask {
            return self.lock(id, open, lock, wait, out);
        }
        if let Ask::GetLock { open, lock } = request.ask {
            let conflict = self.locks.conflict(self.file_key(open), &lock);
            return out.push(Output::Reply(id, Ok(Reply::Conflict(conflict))));
        }
        let who = if let Ask::Identify { who } = &request.ask { Some(who.clone()) } else { None };
        let pending = Pending::new(id, request);
        pending.pins().for_each(|pin| self.pin(pin));
        let slot = self.pending.insert(pending);
        let known = self.slots.insert(id, slot);
        assert!(known.is_none(), "{id:?} is in flight already");
        match (who, self.opened) {
            (Some(who), _) => self.identify(slot, who, out),
            (None, Some(Ok(()))) => self.go(now, slot, out),
            (None, Some(Err(error))) => self.finish(slot, Err(error), out),
            (None, None) => {}
        }
    }

    fn lock(&mut self, id: RequestId, open: OpenId, lock: Lock, wait: bool, out: &mut Vec<Output>) {
        let key = self.file_key(open);
        let wait = wait.then_some(id);
        let reply = match self.locks.request(key, open, lock, wait, self.client) {
            Ok(Outcome::Granted) => Some(Ok(Reply::Locked)),
            Ok(Outcome::Blocked) => Some(Ok(Reply::Blocked)),
            Ok(Outcome::Waits) => None,
            Err(error) => Some(Err(error)),
        };
        out.extend(reply.map(|reply| Output::Reply(id, reply)));
        self.grant(out);
    }

    /// Grants released locks to waiting requests, before others can take them.
    fn grant(&mut self, out: &mut Vec<Output>) {
        let granted = self.locks.advance().into_iter();
        out.extend(granted.map(|id| Output::Reply(id, Ok(Reply::Locked))));
    }

    fn close_file(&mut self, open: OpenId, out: &mut Vec<Output>) {
        let file = self.file_key(open);
        let dropped = self.locks.close(file, open).into_iter();
        out.extend(dropped.map(|id| Output::Reply(id, Err(Error::Cancelled))));
        self.opens[open.local()].closed = true;
        self.unpin(Id::Open(open));
        self.grant(out);
    }

    fn done(&mut self, now: Instant, op: OpId, done: Done, out: &mut Vec<Output>) {
        let local = NodeId(op.0).local();
        if let Done::Path(result) = done {
            return self.identified(local - USERS, result, out);
        }
        let (id, done) = disk::done(local as u64, done);
        self.store.done(now, id, done, &mut self.inbox);
    }

    /// Returns the id of the operation that looks up a user for this pending request.
    fn user_op(&self, slot: usize) -> OpId {
        OpId(NodeId::new(self.index, USERS + slot).0)
    }

    /// Handles the store's outputs until there are no more.
    fn settle(&mut self, now: Instant, out: &mut Vec<Output>) {
        loop {
            for ino in mem::take(&mut self.due) {
                self.notify_reaper(now, reaper::Input::Due(ino), out);
            }
            self.resume_waiting(now, out);
            if self.inbox.is_empty() && self.due.is_empty() {
                return;
            }
            for output in mem::take(&mut self.inbox) {
                self.handle(now, output, out);
            }
        }
    }

    fn handle(&mut self, now: Instant, output: store::Output, out: &mut Vec<Output>) {
        match output {
            store::Output::Io(io) => {
                assert!((io.id().0 as usize) < USERS, "the store's operations have lesser numbers");
                let id = OpId(NodeId::new(self.index, io.id().0 as usize).0);
                out.push(Output::Do(disk::op(id, self.file, self.store.layout().block, io)));
            }
            store::Output::Opened(result) => self.opened(now, result.map_err(plain), out),
            store::Output::Fetched(REAPER, result) => {
                let failed = |error| self.reaping_failed(plain(error));
                let input = result.map_or_else(failed, |()| reaper::Input::Fetched);
                self.notify_reaper(now, input, out);
            }
            store::Output::Fetched(COUNTING, result) => {
                let failed = |error| self.counting_failed(plain(error));
                let input = result.map_or_else(failed, |()| counting::Input::Fetched);
                self.notify_counting(now, input);
                // At once: others may take the space that it waited for.
                self.count(now);
            }
            store::Output::Fetched(ticket, result) => {
                self.fetched(now, ticket.0 as usize, result, out);
            }
            store::Output::Committed(LOOSE, _) => {}
            store::Output::Committed(GROW, result) => self.grown = Some(result),
            store::Output::Committed(ticket, result) => {
                self.committed(now, ticket.0 as usize, result, out);
            }
            store::Output::Placed(ticket, result) => {
                self.placed(now, ticket.0 as usize, result, out);
            }
            store::Output::Closed(_, result) => self.closed = Some(result.map_err(plain)),
        }
    }

    /// Continues the waiting requests once the store is open, or cannot be opened.
    fn opened(&mut self, now: Instant, result: Result<(), Error>, out: &mut Vec<Output>) {
        self.opened = Some(result);
        let waits = |pending: &Pending| matches!(pending.awaits, Awaits::Plan);
        let waiting: Vec<usize> = self
            .pending
            .iter()
            .filter(|(_, pending)| waits(pending))
            .map(|(slot, _)| slot)
            .collect();
        for slot in waiting {
            match result {
                Ok(()) => self.go(now, slot, out),
                Err(error) => self.finish(slot, Err(error), out),
            }
        }
    }

    /// Runs the reaper.
    fn reap(&mut self, now: Instant, out: &mut Vec<Output>) {
        if self.opened != Some(Ok(())) {
            return;
        }
        self.learn(now);
        self.notify_reaper(now, reaper::Input::Tick, out);
        let result = match self.reaper.task() {
            None => return,
            Some(Task::Look(from)) => self.look_for_orphans(from),
            Some(Task::Cut(ino, at)) => self.cut(now, ino, at),
        };
        let input = result.unwrap_or_else(|stop| match stop {
            Stop::Missing(missing) => {
                self.store.fetch(now, REAPER, missing, &mut self.inbox);
                reaper::Input::Missing
            }
            Stop::Failed(error) => self.reaping_failed(error),
            Stop::Trimming(_) | Stop::Appending(_) => {
                unreachable!("the reaper moves no file's end")
            }
        });
        self.notify_reaper(now, input, out);
    }

    /// Returns whether a failure is final: when the volume is about to close, and when the state of
    /// the disk is unknown.
    fn is_over(&self, error: Error) -> bool {
        error == Error::ReadOnly || self.store.is_broken()
    }

    fn reaping_failed(&self, error: Error) -> reaper::Input {
        match self.is_over(error) {
            true => reaper::Input::Ended(error),
            false => reaper::Input::Failed(error),
        }
    }

    fn look_for_orphans(&self, from: u64) -> Result<reaper::Input, Stop> {
        let (found, next) = reaper::look(&self.read_view(View::Present)?, from)?;
        Ok(reaper::Input::Found(found, next))
    }

    fn cut(&mut self, now: Instant, ino: u64, at: u64) -> Result<reaper::Input, Stop> {
        let write_set = self.write_set(self.date(now))?;
        let cut = reaper::cut(write_set, ino, at, self.is_held(ino))?;
        self.commit_loose(now, &cut.changes)?;
        if cut.gone {
            self.orphans.remove(&ino);
        }
        Ok(cut.freed.map_or(reaper::Input::Done, reaper::Input::Freed))
    }

    fn notify_reaper(&mut self, now: Instant, input: reaper::Input, out: &mut Vec<Output>) {
        let mut outputs = Vec::new();
        self.reaper.step(now, input, &mut outputs);
        for output in outputs {
            match output {
                reaper::Output::Over(ino) => self.trimmed(now, ino, Ok(()), out),
                reaper::Output::Failed(ino, error) => self.trimmed(now, ino, Err(error), out),
            }
        }
    }

    /// Returns a read view of the volume.
    fn read_view(&self, view: View) -> Result<ReadView<'_>, Stop> {
        let settings = match self.settings {
            Some(settings) => settings,
            None => {
                let present = self.store.reader(View::Present).map_err(plain)?;
                read_view::settings(&present)?
            }
        };
        ReadView::new(&self.store, settings, view)
    }

    /// Caches the settings and the quotas, once they are in memory.
    fn learn(&mut self, now: Instant) {
        if self.settings.is_none() {
            self.settings = self.read_view(View::Present).ok().map(|read_view| read_view.settings);
        }
        if self.quotas.is_none() && self.settings.is_some() {
            let loaded = self
                .read_view(View::Present)
                .and_then(|read_view| Ok((usage::load(&read_view)?, read_view.counters()?.next)));
            if let Ok((quotas, next)) = loaded {
                let created = self.store.superblock().created;
                self.first_number = write_set::first_number(next, created, self.date(now));
                self.quotas = Some(quotas);
            }
            let quotas = self.quotas.iter().flatten();
            let due = quotas.filter(|(_, quota)| !quota.is_counted());
            let due = due.map(|(holder, quota)| (*holder, quota.directory));
            for (holder, directory) in due.collect::<Vec<_>>() {
                self.notify_counting(now, counting::Input::Due(holder, directory));
            }
        }
    }

    /// Returns an empty write set on the present.
    ///
    /// # Errors
    /// `Missing` until the quotas are in memory.
    fn write_set(&self, date: Time) -> Result<WriteSet<'_>, Stop> {
        let read_view = self.read_view(View::Present)?;
        match &self.quotas {
            Some(quotas) => Ok(WriteSet::new(read_view, (quotas, self.first_number), date)),
            None => {
                let missing = usage::load(&read_view).err();
                let missing = missing.or_else(|| read_view.counters().err());
                Err(missing.unwrap_or(Stop::Failed(Error::Io)))
            }
        }
    }

    /// Commits changes, and applies those of quotas to the cached quotas.
    fn commit_changes(
        &mut self,
        now: Instant,
        ticket: Ticket,
        changes: &[Change],
        durability: Durability,
    ) -> Result<(), Refusal> {
        self.store.commit(now, ticket, changes, durability, &mut self.inbox)?;
        if let Some(quotas) = &mut self.quotas
            && usage::note(quotas, changes)
        {
            self.settings = None;
        }
        Ok(())
    }

    /// Commits changes without a waiting request.
    fn commit_loose(&mut self, now: Instant, changes: &[Change]) -> Result<(), Stop> {
        if changes.is_empty() {
            return Ok(());
        }
        self.commit_changes(now, LOOSE, changes, Durability::Soon).map_err(
            |refusal| match refusal {
                Refusal::Missing(missing) => Stop::Missing(missing),
                Refusal::Failed(error) => Stop::Failed(plain(error)),
            },
        )
    }

    /// Runs the counting machine.
    fn count(&mut self, now: Instant) {
        if self.opened != Some(Ok(())) {
            return;
        }
        self.notify_counting(now, counting::Input::Tick);
        let Some(task) = self.counting.task() else { return };
        let (holder, path) = (task.holder, task.path.clone());
        let counted =
            self.write_set(self.date(now)).and_then(|it| counting::count(it, holder, path));
        let committed = counted.and_then(|counted| {
            self.commit_loose(now, &counted.changes)?;
            Ok(counting::Input::Counted(counted.path))
        });
        let input = committed.unwrap_or_else(|stop| match stop {
            Stop::Missing(missing) => {
                self.store.fetch(now, COUNTING, missing, &mut self.inbox);
                counting::Input::Missing
            }
            Stop::Failed(error) => self.counting_failed(error),
            Stop::Trimming(_) | Stop::Appending(_) => unreachable!("no file's end is moved"),
        });
        self.notify_counting(now, input);
    }

    fn counting_failed(&self, error: Error) -> counting::Input {
        match self.is_over(error) {
            true => counting::Input::Ended,
            false => counting::Input::Failed(error),
        }
    }

    fn notify_counting(&mut self, now: Instant, input: counting::Input) {
        let mut outputs = Vec::new();
        self.counting.step(now, input, &mut outputs);
        for counting::Output::Failed(holder, error) in outputs {
            let of = match holder {
                Holder::User(uid) => format!("user {uid}"),
                Holder::Project(project) => {
                    let quota =
                        self.quotas.as_ref().and_then(|all| all.get(&Holder::Project(project)));
                    format!("the directory with inode {}", quota.map_or(0, |it| it.directory))
                }
            };
            self.reports.push_back(format!(
                "cannot count the files for the quota of {of}: {error}; it is tried again, and the \
                 quota is no limit until then; check the volume"
            ));
        }
    }

    /// Returns the wall-clock time of an instant.
    fn date(&self, now: Instant) -> Time {
        let since = Duration::from_nanos(now.0) + Duration::from_nanos(self.wall.nanos.into());
        let secs = self.wall.secs.saturating_add(since.as_secs().cast_signed());
        Time { secs, nanos: since.subsec_nanos() }
    }
}

/// Translates an error of the store outside of a request.
fn plain(error: store::Error) -> Error {
    translate(error, None)
}
