//! Journal of a replica, in a volume of its own.
//!
//! | table | key | value |
//! |---|---|---|
//! | settings | `settings` | [`Settings`], JSON |
//! | settings | `head` | [`Head`]: the valid snapshot, and the start of the records after it |
//! | records | part number | a record of operations in execution order, split into parts |
//! | parts | generation and part number | the snapshot, split into parts |
//!
//! The first byte of a record's part states whether more parts follow.
//!
//! All operations of a turn form one record, which is durable before the replica is notified. An
//! incomplete record was never acknowledged and is ignored: the next records overwrite it. A
//! snapshot is written in many successive transactions: the one that updates the head makes it
//! valid, and later ones delete what it replaces. So a crash at any moment leaves one complete
//! snapshot with all records after it. Leftovers of a crash that the head does not need are deleted
//! after the next start, before another snapshot is written under the same keys.
//!
//! A snapshot needs space beside everything that it replaces. It is therefore made earlier when
//! space is short, and no operation should be accepted without a reserve for the next snapshot
//! ([`Journal::is_full`]). A record that finds no space all the same waits for it.
//!
//! A snapshot is written incrementally, as it is encoded, and is never in memory as a whole.
//! Records do not wait for it: its transactions are *chores*, a few of which are in flight while no
//! record waits, and at most one during a checkpoint of the store, if the journal is late or space
//! is short. Records appended meanwhile follow the first record named by the future head, and
//! records before that stay until the head is written.

mod copying;
#[cfg(test)]
pub(crate) mod lab;
mod reading;
#[cfg(test)]
mod tests;

pub use copying::Copying;
pub use reading::{StoredReplica, Unreadable, read_all};

use crate::Operator;
#[cfg(test)]
use crate::Snapshot;
use crate::settings::Settings;
use base::op::{Done, File, Op, OpId};
use base::{Automaton as _, Instant};
use replica::binary;
use replica::service::Record;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::ops::Range;
use store::{Change, Durability, Refusal, Store, Table, Ticket};
use tree::{NodeId, disk};

const SETTINGS: Table = Table(256);
const RECORDS: Table = Table(257);
const PARTS: Table = Table(258);

const SETTINGS_KEY: &[u8] = b"settings";
const HEAD_KEY: &[u8] = b"head";

/// First byte of a record's part.
const LAST: u8 = 0;
const MORE: u8 = 1;

/// With little space, growth at which a snapshot is due: this many bytes plus half the size of the
/// last snapshot.
const GROWTH_SHORT: usize = 64 << 10;

/// A snapshot is late when the journal exceeds this multiple of its growth limit.
const LATE: usize = 4;

/// Inverse of the fraction of the volume reserved for the operations of one turn.
const MARGIN: u64 = 64;

/// Maximum records deleted in one transaction.
const DELETES: u64 = 256;

/// Maximum chores in flight: a new record waits for no more.
const CHORES: usize = 8;

/// Ticket of chores; those of records are smaller.
const CHORE: Ticket = Ticket(u64::MAX);

/// Minimum growth before a snapshot, in bytes; the other bound is twice the snapshot's size.
const GROWTH_MIN: usize = 8 << 20;

/// Maximum number of operations in the journal that are retained for no other replica. After a
/// restart they are, until the others acknowledge them again: half of what a replica may retain.
const SUPERFLUOUS_MAX: usize = 1 << 19;

/// Pointer to the valid snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Head {
    /// Generation; 0 without a snapshot.
    generation: u64,
    /// Number of its parts.
    parts: u64,
    /// First part of the first record after it.
    first: u64,
}

/// Output of a journal.
#[derive(Debug)]
pub(crate) enum Output {
    /// Disk operation.
    Do(Op),
    /// Everything appended up to this number is durable.
    Persisted(u64),
    /// Nothing more can be stored.
    Failed(store::Error),
    /// No space is left for more operations.
    Full,
}

/// Available space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Room {
    /// Enough for twice the next snapshot.
    Ample,
    /// Enough for the next snapshot.
    Short,
    /// Not enough for the snapshot, or even for a record.
    None,
}

/// Transaction to commit.
#[derive(Debug)]
struct Batch {
    changes: Vec<Change>,
    /// Number to report as persisted afterwards.
    persisted: Option<u64>,
}

/// Background task, executed one transaction at a time while no record waits.
#[derive(Clone, Debug, PartialEq, Eq)]
enum BackgroundTask {
    /// Write a snapshot, then the head that makes it valid.
    Write(Written),
    /// Delete records.
    DeleteRecords(Range<u64>),
    /// Delete parts of the snapshot of a generation.
    DeleteParts(u64, Range<u64>),
}

/// Snapshot being written to the volume.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Written {
    /// Future head; its part count is known only at the end.
    head: Head,
    /// Encoded bytes not yet written: full parts, except perhaps the last.
    parts: VecDeque<Vec<u8>>,
    /// Whether the encoding is complete.
    is_whole: bool,
    /// Number of the next part to write.
    part: u64,
    /// Encoded bytes, and below the expected total.
    bytes: usize,
    expected: usize,
    /// Bytes of records that it replaces.
    replaces: usize,
    /// Operations of the journal that it drops.
    drops: usize,
}

/// Journal of one replica.
#[derive(Debug)]
pub(crate) struct Journal {
    /// Tree number in the upper bits of every operation id, for the routing of completions.
    index: u16,
    file: File,
    store: Store,
    head: Head,
    /// Number of the next part of a record.
    next: u64,
    /// Records to commit, in order. Bounded by the replica's unwritten operations.
    records: VecDeque<Batch>,
    /// Background tasks, in order.
    backgrounds: VecDeque<BackgroundTask>,
    /// Background transactions not yet durable.
    chores_in_flight: usize,
    /// Whether the pages missing for a commit are being fetched.
    fetches: bool,
    /// Bytes of records since the last snapshot.
    grown: usize,
    /// Operations in the last snapshot, besides its state, and in the records since.
    operations: usize,
    /// Bytes of the last snapshot.
    size: usize,
    room: Room,
    /// Whether a snapshot failed for lack of space: the next one would fail as well.
    is_crowded: bool,
    /// Whether the durability of the initial snapshot is yet to be reported.
    begins: bool,
    received: Vec<store::Output>,
    failed: Option<store::Error>,
    closed: bool,
}

/// Table and key of the first entry of a replica's volume; no other volume has it.
pub const MARK: (Table, &[u8]) = (SETTINGS, HEAD_KEY);

/// Reports whether an entry identifies a replica's volume.
pub fn is_mark(table: Table, key: &[u8]) -> bool {
    (table, key) == MARK
}

/// Returns the changes that format an empty store for a new replica.
pub fn format(settings: &Settings) -> Vec<Change> {
    let settings = serde_json::to_vec(settings).expect("names and numbers are JSON");
    let head = binary::write(&Head { generation: 0, parts: 0, first: 1 });
    vec![put(SETTINGS, SETTINGS_KEY, settings), put(SETTINGS, HEAD_KEY, head)]
}

impl Journal {
    /// Opens the journal in `store`, whose blocks are in `file`; `index` is its tree's number.
    pub(crate) fn new(index: u16, file: File, store: Store, kept: &StoredReplica) -> Journal {
        let in_snapshot = kept.snapshot.as_ref().map_or(0, |snapshot| snapshot.rest.len());
        let in_records = kept.records.iter().map(|record| record.entries.len()).sum::<usize>();
        Journal {
            index,
            file,
            store,
            head: kept.head,
            next: kept.next,
            records: VecDeque::new(),
            backgrounds: kept.stale.clone().into(),
            chores_in_flight: 0,
            fetches: false,
            grown: kept.grown,
            operations: in_snapshot + in_records,
            size: kept.size,
            room: Room::Ample,
            is_crowded: false,
            begins: false,
            received: Vec::new(),
            failed: None,
            closed: false,
        }
    }

    /// Returns the error that prevents all further writes, if any.
    pub(crate) fn failed(&self) -> Option<store::Error> {
        self.failed
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Returns the bytes of the records, and those of the snapshot.
    pub(crate) fn sizes(&self) -> (usize, usize) {
        (self.grown, self.size)
    }

    /// Reports whether a new snapshot is due; `kept` operations are retained for other replicas.
    pub(crate) fn wants_snapshot(&self, kept: usize) -> bool {
        let superfluous = self.operations.saturating_sub(kept);
        let usual = GROWTH_MIN.max(2 * self.size);
        let growth = match self.room {
            Room::Ample => usual,
            Room::Short | Room::None => usual.min(GROWTH_SHORT + self.size / 2),
        };
        let can_be = self.failed.is_none() && !self.is_crowded && !self.is_writing();
        can_be && (self.grown > growth || superfluous > SUPERFLUOUS_MAX)
    }

    /// Reports whether there may be no space for further operations.
    pub(crate) fn is_full(&self) -> bool {
        self.room == Room::None
    }

    /// Returns the available space, in bytes.
    pub(crate) fn free(&self) -> u64 {
        let space = self.store.space();
        space.blocks_available * space.block as u64
    }

    /// Reports whether a snapshot is being written.
    fn is_writing(&self) -> bool {
        self.backgrounds.iter().any(|background| matches!(background, BackgroundTask::Write(_)))
    }

    /// Maximum length of a part of a snapshot or record in bytes, without its flag byte.
    fn part_max(&self) -> usize {
        let layout = self.store.layout();
        (layout.value_max() - 1).min(layout.transaction_max() / 4)
    }

    /// Maximum parts in a transaction.
    fn parts_max(&self) -> usize {
        (self.store.layout().transaction_max() / 2 / self.part_max()).min(16)
    }

    /// Appends a record. [`Output::Persisted`] reports its durability by `number`, which must
    /// increase.
    pub(crate) fn append(&mut self, number: u64, record: &Record<Operator>) {
        assert!(!record.is_empty(), "a record has something to keep");
        let bytes = binary::write(record);
        self.grown += bytes.len();
        self.operations += record.entries.len();
        let (most, mut rest) = (self.part_max(), &bytes[..]);
        let at_once = self.parts_max() * most;
        while !rest.is_empty() {
            let (some, later) = rest.split_at(rest.len().min(at_once));
            let mut changes = Vec::new();
            for (index, part) in some.chunks(most).enumerate() {
                let is_last = later.is_empty() && (index + 1) * most >= some.len();
                let flag = if is_last { LAST } else { MORE };
                changes.push(put(RECORDS, &self.next.to_be_bytes(), [&[flag], part].concat()));
                self.next += 1;
            }
            let persisted = later.is_empty().then_some(number);
            self.records.push_back(Batch { changes, persisted });
            rest = later;
        }
    }

    /// Starts the journal with a snapshot of a state and `operations`. [`Output::Persisted`]
    /// reports its durability as number 0.
    pub(crate) fn begin(&mut self, snapshot: &[u8], operations: usize) {
        self.begins = true;
        self.operations = operations;
        self.begin_snapshot(snapshot.len(), operations);
        self.feed(snapshot, true);
    }

    /// Starts a snapshot of about `expected` bytes that replaces all records so far, with the
    /// `kept` operations. Its bytes follow in [`Journal::feed`]. No other one may be in progress.
    pub(crate) fn begin_snapshot(&mut self, expected: usize, kept: usize) {
        assert!(!self.is_writing());
        let head = Head { generation: self.head.generation + 1, parts: 0, first: self.next };
        self.backgrounds.push_back(BackgroundTask::Write(Written {
            head,
            parts: VecDeque::new(),
            is_whole: false,
            part: 0,
            bytes: 0,
            expected,
            replaces: self.grown,
            drops: self.operations.saturating_sub(kept),
        }));
    }

    /// Estimates the size of a snapshot made now, in bytes.
    pub(crate) fn expected(&self) -> usize {
        self.size + self.grown
    }

    /// Reports whether a snapshot in progress needs more bytes.
    pub(crate) fn is_fed(&self) -> bool {
        self.backgrounds
            .iter()
            .any(|background| matches!(background, BackgroundTask::Write(it) if !it.is_whole))
    }

    /// Returns the free buffer space for it, in bytes.
    pub(crate) fn room(&self) -> usize {
        let most = CHORES * self.part_max();
        let of = |background: &BackgroundTask| match background {
            BackgroundTask::Write(it) if !it.is_whole => {
                Some(most.saturating_sub(it.parts.len() * self.part_max()))
            }
            BackgroundTask::Write(_)
            | BackgroundTask::DeleteRecords(_)
            | BackgroundTask::DeleteParts(..) => None,
        };
        self.backgrounds.iter().find_map(of).unwrap_or(0)
    }

    /// Adds encoded bytes to the snapshot in progress; `is_last` marks the end of it.
    pub(crate) fn feed(&mut self, mut bytes: &[u8], is_last: bool) {
        let most = self.part_max();
        let fed = self.backgrounds.iter_mut().find_map(|background| match background {
            BackgroundTask::Write(it) if !it.is_whole => Some(it),
            BackgroundTask::Write(_)
            | BackgroundTask::DeleteRecords(_)
            | BackgroundTask::DeleteParts(..) => None,
        });
        let Some(written) = fed else { return };
        written.bytes += bytes.len();
        written.is_whole = is_last;
        while !bytes.is_empty() {
            match written.parts.back_mut() {
                Some(last) if last.len() < most => {
                    let (some, rest) = bytes.split_at(bytes.len().min(most - last.len()));
                    last.extend_from_slice(some);
                    bytes = rest;
                }
                Some(_) | None => written.parts.push_back(Vec::new()),
            }
        }
    }

    /// Replaces all records so far by a snapshot.
    #[cfg(test)]
    pub(crate) fn replace(&mut self, snapshot: &Snapshot) {
        let bytes = binary::write(snapshot);
        self.begin_snapshot(bytes.len(), snapshot.rest.len());
        self.feed(&bytes, true);
    }

    /// Processes the completion of a disk operation.
    pub(crate) fn done(&mut self, now: Instant, local: u64, done: Done, out: &mut Vec<Output>) {
        let (id, done) = disk::done(local, done);
        self.store.done(now, id, done, &mut self.received);
        self.settle(now, out);
    }

    /// Performs due work. Must be called at the end of every turn.
    pub(crate) fn tick(&mut self, now: Instant, out: &mut Vec<Output>) {
        self.settle(now, out);
        self.store.tick(now, &mut self.received);
        self.settle(now, out);
        self.measure(out);
    }

    /// Determines the available space.
    fn measure(&mut self, out: &mut Vec<Output>) {
        let written = |background: &BackgroundTask| match background {
            BackgroundTask::Write(it) => {
                let all = if it.is_whole { it.bytes } else { it.bytes.max(it.expected) };
                Some(all.saturating_sub(it.part as usize * self.part_max()))
            }
            BackgroundTask::DeleteRecords(_) | BackgroundTask::DeleteParts(..) => None,
        };
        let writing = self.backgrounds.iter().find_map(written);
        let next = writing.unwrap_or(self.size + self.grown) as u64;
        let space = self.store.space();
        let margin = space.blocks * space.block as u64 / MARGIN;
        let ample = |room: u64| room >= 2 * (next + margin);
        // The second measure includes space that was freed and is not yet available.
        let now = match ample(space.blocks_available * space.block as u64) {
            // The initial snapshot did not fit.
            _ if self.begins && self.is_crowded => Room::None,
            true => Room::Ample,
            false => match self.store.room() {
                _ if !self.records.is_empty() && !self.fetches => Room::None,
                room if ample(room) => Room::Ample,
                room if room >= next + margin => Room::Short,
                _less => Room::None,
            },
        };
        let before = std::mem::replace(&mut self.room, now);
        if now == Room::None && before != now {
            out.push(Output::Full);
        }
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.store.deadline()
    }

    pub(crate) fn check(&self) {
        self.store.check();
        assert!(self.received.is_empty());
        assert!(self.chores_in_flight <= CHORES, "few chores are in flight");
        let writes = self
            .backgrounds
            .iter()
            .filter(|background| matches!(background, BackgroundTask::Write(_)));
        assert!(writes.count() <= 1, "one snapshot at a time");
        let numbers = self.records.iter().filter_map(|batch| batch.persisted);
        assert!(numbers.is_sorted_by(|one, next| one < next), "records are kept in order");
        assert!(self.records.iter().all(|batch| !batch.changes.is_empty()), "a record is kept");
        assert!(self.head.first <= self.next, "records are numbered in order");
    }

    /// Makes everything durable and stops. An unfinished snapshot is abandoned.
    pub(crate) fn close(&mut self, now: Instant, out: &mut Vec<Output>) {
        self.backgrounds.clear();
        self.commit(now);
        self.store.close(now, Ticket(0), &mut self.received);
        self.settle(now, out);
    }

    /// Commits records, then chores.
    fn commit(&mut self, now: Instant) {
        while let Some(batch) = self.records.pop_front() {
            let (durability, ticket) = match batch.persisted {
                Some(number) => (Durability::Durable, Ticket(number)),
                None => (Durability::Soon, Ticket(0)),
            };
            if !self.try_commit(now, ticket, &batch.changes, durability) {
                self.records.push_front(batch);
                break;
            }
        }
        while self.chores_in_flight < self.chores_max()
            && let Some(changes) =
                self.backgrounds.front().and_then(|background| self.changes_of(background))
        {
            if self.try_commit(now, CHORE, &changes, Durability::Durable) {
                self.chores_in_flight += 1;
                self.go_on();
            } else if !self.gives_up() {
                break;
            }
        }
    }

    /// Maximum chores in flight now: during a checkpoint of the store none, unless records have
    /// grown far beyond the growth limit or space is short.
    fn chores_max(&self) -> usize {
        let is_late = self.grown > LATE * GROWTH_MIN.max(2 * self.size);
        match self.store.is_pressed() {
            false => CHORES,
            true => usize::from(is_late || self.room != Room::Ample),
        }
    }

    /// Abandons the current snapshot for lack of space. Returns whether there was one.
    fn gives_up(&mut self) -> bool {
        if self.fetches || self.failed.is_some() {
            return false;
        }
        let Some(BackgroundTask::Write(it)) = self.backgrounds.front() else { return false };
        let gone = BackgroundTask::DeleteParts(it.head.generation, 0..it.part);
        self.backgrounds[0] = gone;
        self.is_crowded = true;
        true
    }

    /// Tries to commit; returns whether it succeeded. A failure is for lack of space, unless pages
    /// are now being fetched or the journal has failed.
    fn try_commit(
        &mut self,
        now: Instant,
        ticket: Ticket,
        changes: &[Change],
        durability: Durability,
    ) -> bool {
        if self.fetches || self.failed.is_some() {
            return false;
        }
        let result = self.store.commit(now, ticket, changes, durability, &mut self.received);
        match result {
            Ok(()) => return true,
            Err(Refusal::Missing(missing)) => {
                self.fetches = true;
                self.store.fetch(now, Ticket(0), missing, &mut self.received);
            }
            Err(Refusal::Failed(store::Error::NoSpace)) => {}
            Err(Refusal::Failed(error)) => self.failed = Some(error),
        }
        false
    }

    /// Returns the next transaction of a chore, unless that has to wait for more encoded bytes.
    fn changes_of(&self, background: &BackgroundTask) -> Option<Vec<Change>> {
        let delete = |table, key: &[u8]| Change::Delete { table, key: key.to_vec() };
        Some(match background {
            BackgroundTask::Write(it) => match it.parts.front() {
                None if it.is_whole => {
                    let head = Head { parts: it.part, ..it.head };
                    vec![put(SETTINGS, HEAD_KEY, binary::write(&head))]
                }
                Some(part) if it.is_whole || part.len() == self.part_max() => {
                    vec![put(PARTS, &part_key(it.head.generation, it.part), part.clone())]
                }
                Some(_) | None => return None,
            },
            BackgroundTask::DeleteRecords(numbers) => {
                let some = numbers.clone().take(DELETES as usize);
                some.map(|number| delete(RECORDS, &number.to_be_bytes())).collect()
            }
            BackgroundTask::DeleteParts(generation, parts) => {
                let some = parts.clone().take(DELETES as usize);
                some.map(|part| delete(PARTS, &part_key(*generation, part))).collect()
            }
        })
    }

    /// Advances the first chore after a commit.
    fn go_on(&mut self) {
        match self.backgrounds.front_mut().expect("it was committed") {
            BackgroundTask::Write(it) if it.parts.is_empty() => {
                let head = Head { parts: it.part, ..it.head };
                let old = std::mem::replace(&mut self.head, head);
                assert!(old.first <= self.head.first, "a snapshot replaces what is before it");
                assert!(it.replaces <= self.grown, "the replaced entry was counted");
                self.size = it.bytes;
                self.grown -= it.replaces;
                self.operations -= it.drops;
                self.backgrounds.pop_front();
                self.backgrounds
                    .push_back(BackgroundTask::DeleteRecords(old.first..self.head.first));
                self.backgrounds
                    .push_back(BackgroundTask::DeleteParts(old.generation, 0..old.parts));
            }
            BackgroundTask::Write(it) => {
                it.parts.pop_front();
                it.part += 1;
            }
            BackgroundTask::DeleteRecords(numbers) | BackgroundTask::DeleteParts(_, numbers) => {
                numbers.start += DELETES;
            }
        }
        let is_done = |background: &mut BackgroundTask| match background {
            BackgroundTask::Write(_) => false,
            BackgroundTask::DeleteRecords(numbers) | BackgroundTask::DeleteParts(_, numbers) => {
                numbers.is_empty()
            }
        };
        while self.backgrounds.pop_front_if(is_done).is_some() {}
    }

    /// Commits, and processes outputs of the store until there are none.
    fn settle(&mut self, now: Instant, out: &mut Vec<Output>) {
        let was_well = self.failed.is_none();
        loop {
            self.commit(now);
            if self.received.is_empty() {
                break;
            }
            for output in std::mem::take(&mut self.received) {
                self.receive(output, out);
            }
        }
        // A checkpoint may fail while there is no commit to report it; chores must stop then, too.
        self.failed = self.failed.or(self.store.broken());
        if let Some(error) = self.failed.filter(|_| was_well) {
            self.records.clear();
            self.backgrounds.clear();
            out.push(Output::Failed(error));
        }
    }

    fn receive(&mut self, output: store::Output, out: &mut Vec<Output>) {
        match output {
            store::Output::Io(io) => {
                let id = OpId(NodeId::new(self.index, io.id().0 as usize).0);
                let block = self.store.layout().block;
                out.push(Output::Do(disk::op(id, self.file, block, io)));
            }
            store::Output::Fetched(_, result) => {
                assert!(self.fetches, "pages were requested");
                self.fetches = false;
                self.failed = self.failed.or(result.err());
            }
            store::Output::Committed(CHORE, Ok(())) => {
                assert!(self.chores_in_flight > 0, "a chore ends once");
                self.chores_in_flight -= 1;
                // A snapshot that did not fit was abandoned.
                let is_written = self.head.generation > 0 && !self.is_writing();
                if self.begins && self.chores_in_flight == 0 && is_written {
                    self.begins = false;
                    out.push(Output::Persisted(0));
                }
            }
            store::Output::Committed(ticket, Ok(())) => out.push(Output::Persisted(ticket.0)),
            store::Output::Committed(_, Err(error)) => {
                self.failed.get_or_insert(error);
            }
            store::Output::Closed(..) => self.closed = true,
            store::Output::Opened(_) | store::Output::Placed(..) => {
                unreachable!("it was open, and nothing is placed")
            }
        }
    }
}

fn part_key(generation: u64, part: u64) -> [u8; 16] {
    (u128::from(generation) << 64 | u128::from(part)).to_be_bytes()
}

fn put(table: Table, key: &[u8], value: Vec<u8>) -> Change {
    Change::Put { table, key: key.to_vec(), value }
}
