//! The journal of a replica, in a volume of its own.
//!
//! | table | key | value |
//! |---|---|---|
//! | settings | `settings` | [`Settings`], JSON |
//! | settings | `head` | [`Head`]: which snapshot counts, and where the records behind it begin |
//! | records | number of the part | a record, operations as they were done: cut into parts |
//! | parts | generation and number of the part | the snapshot, cut into parts |
//!
//! A part of a record begins with a byte that says whether more follow.
//!
//! All that a replica did in a turn is one record, durable when the replica hears of it. One that
//! is not whole was never heard of, and is none: the next ones take its place. A snapshot is
//! written in many transactions behind each other, of which the one with the head makes it count,
//! and those that follow take away what it replaces; so a crash at any moment leaves one whole
//! snapshot with all records behind it. What a crash leaves that the head does not need is taken
//! away after the next start, before another snapshot is written under the same keys.
//!
//! A snapshot needs its room beside all that it replaces. So it is made earlier where room is
//! short, and no operation should be asked for where what the next one takes would not be left
//! ([`Journal::is_full`]). A record that finds no room all the same waits for some.
//!
//! A snapshot comes a few parts at a time, as it is made, and never is in memory as a whole.
//! Records do not wait for it: its transactions are *chores*, a few of which are under way
//! while no record waits, and none while the store makes a checkpoint. What is appended meanwhile
//! comes behind the record that the head will name as the first, and records before that one stay
//! until the head is there.

mod copying;
#[cfg(test)]
pub(crate) mod lab;
mod reading;
#[cfg(test)]
mod tests;

pub use copying::Copying;
pub use reading::{Kept, Unreadable, read_all};

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

/// What a part of a record begins with.
const LAST: u8 = 0;
const MORE: u8 = 1;

/// Where room is short: by so much, and by half of what that takes, bytes.
const GROWTH_SHORT: usize = 64 << 10;

/// A snapshot is late when the journal has grown by so many times what it is made for.
const LATE: usize = 4;

/// The part of a volume that stays free for what comes in one turn.
const MARGIN: u64 = 64;

/// How many records are taken away at once.
const DELETES: u64 = 256;

/// How many chores are under way at once: a record that comes waits for no more.
const CHORES: usize = 8;

/// The ticket of chores; those of records are smaller.
const CHORE: Ticket = Ticket(u64::MAX);

/// The journal is written anew when it has grown by so much, or by twice what that takes, bytes.
const GROWTH_MIN: usize = 8 << 20;

/// Which snapshot counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Head {
    /// Its generation; zero: there is none.
    generation: u64,
    /// Of how many parts it is.
    parts: u64,
    /// The first part of the first record behind it.
    first: u64,
}

/// What a journal says.
#[derive(Debug)]
pub(crate) enum Output {
    /// To the disk.
    Do(Op),
    /// All that was appended up to this number is durable.
    Persisted(u64),
    /// Nothing more can be kept, and why.
    Failed(store::Error),
    /// What is kept leaves no room for more.
    Full,
}

/// How much room there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Room {
    /// For the next snapshot twice.
    Ample,
    /// For the next snapshot.
    Short,
    /// Not for it, or not even for a record.
    None,
}

/// A transaction that is to be.
#[derive(Debug)]
struct Batch {
    changes: Vec<Change>,
    /// The number by which is heard that everything so far is durable.
    persisted: Option<u64>,
}

/// Something that is done, a transaction at a time, when no record waits.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Chore {
    /// Write a snapshot, then the head that makes it count.
    Write(Written),
    /// Take records away.
    DeleteRecords(Range<u64>),
    /// Take parts of the snapshot of a generation away.
    DeleteParts(u64, Range<u64>),
}

/// A snapshot on its way into the volume.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Written {
    /// The snapshot that will count; its number of parts shows in the end.
    head: Head,
    /// Bytes made of it and not yet written: parts, of which the last one may be short.
    parts: VecDeque<Vec<u8>>,
    /// Whether all of it was made.
    is_whole: bool,
    /// The number of the next part to be written.
    part: u64,
    /// Bytes that were made, and that will be, about.
    bytes: usize,
    expected: usize,
    /// How many bytes of records it replaces.
    replaces: usize,
}

/// The journal of one replica.
#[derive(Debug)]
pub(crate) struct Journal {
    /// Set in the upper bits of every operation's id, so that it finds this tree.
    index: u16,
    file: File,
    store: Store,
    head: Head,
    /// The number of the next part of a record.
    next: u64,
    /// Records that are to be committed, in this order. Bounded by what the replica has unwritten.
    records: VecDeque<Batch>,
    /// What is done when there are none, in this order.
    chores: VecDeque<Chore>,
    /// How many transactions of chores are not durable yet.
    chores_under_way: usize,
    /// Pages for the first of them are being fetched, or room is being made.
    fetches: bool,
    /// Bytes of records since the last snapshot.
    grown: usize,
    /// Bytes of the last snapshot.
    size: usize,
    room: Room,
    /// A snapshot has found no room: the next one would not either.
    is_crowded: bool,
    /// Nobody has heard yet that what it begins with is durable.
    begins: bool,
    heard: Vec<store::Output>,
    failed: Option<store::Error>,
    closed: bool,
}

/// Table and key of the first entry of a replica's volume; no other volume has it.
pub const MARK: (Table, &[u8]) = (SETTINGS, HEAD_KEY);

/// Whether an entry is the one that a replica's volume has and no other.
pub fn is_mark(table: Table, key: &[u8]) -> bool {
    (table, key) == MARK
}

/// The changes that make an empty store a new replica's.
pub fn format(settings: &Settings) -> Vec<Change> {
    let settings = serde_json::to_vec(settings).expect("names and numbers are JSON");
    let head = binary::write(&Head { generation: 0, parts: 0, first: 1 });
    vec![put(SETTINGS, SETTINGS_KEY, settings), put(SETTINGS, HEAD_KEY, head)]
}

impl Journal {
    /// The journal in this store, whose blocks are in this file; `index` is the number of its tree.
    pub(crate) fn new(index: u16, file: File, store: Store, kept: &Kept) -> Journal {
        Journal {
            index,
            file,
            store,
            head: kept.head,
            next: kept.next,
            records: VecDeque::new(),
            chores: kept.stale.clone().into(),
            chores_under_way: 0,
            fetches: false,
            grown: kept.grown,
            size: kept.size,
            room: Room::Ample,
            is_crowded: false,
            begins: false,
            heard: Vec::new(),
            failed: None,
            closed: false,
        }
    }

    /// Why nothing can be kept any more, if so.
    pub(crate) fn failed(&self) -> Option<store::Error> {
        self.failed
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// How many bytes of records there are, and how many the snapshot takes.
    pub(crate) fn sizes(&self) -> (usize, usize) {
        (self.grown, self.size)
    }

    /// Whether it is time for a new snapshot.
    pub(crate) fn wants_snapshot(&self) -> bool {
        let usual = GROWTH_MIN.max(2 * self.size);
        let growth = match self.room {
            Room::Ample => usual,
            Room::Short | Room::None => usual.min(GROWTH_SHORT + self.size / 2),
        };
        let can_be = self.failed.is_none() && !self.is_crowded && !self.is_writing();
        can_be && self.grown > growth
    }

    /// Whether there may be no room for what is asked for next.
    pub(crate) fn is_full(&self) -> bool {
        self.room == Room::None
    }

    /// How many bytes there is room for, at most.
    pub(crate) fn free(&self) -> u64 {
        let space = self.store.space();
        space.blocks_available * space.block as u64
    }

    /// Whether a snapshot is being written.
    fn is_writing(&self) -> bool {
        self.chores.iter().any(|chore| matches!(chore, Chore::Write(_)))
    }

    /// How long a part of a snapshot or record is at most, bytes; one is left for its flag.
    fn part_max(&self) -> usize {
        let layout = self.store.layout();
        (layout.value_max() - 1).min(layout.transaction_max() / 4)
    }

    /// How many parts a transaction has at most.
    fn parts_max(&self) -> usize {
        (self.store.layout().transaction_max() / 2 / self.part_max()).min(16)
    }

    /// Keeps a record; [`Output::Persisted`] tells by this number, which is greater than that of
    /// those before, when it is durable.
    pub(crate) fn append(&mut self, number: u64, record: &Record<Operator>) {
        assert!(!record.is_empty(), "a record has something to keep");
        let bytes = binary::write(record);
        self.grown += bytes.len();
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

    /// Begins with this snapshot; [`Output::Persisted`] tells by number zero when it is durable.
    pub(crate) fn begin(&mut self, snapshot: &[u8]) {
        self.begins = true;
        self.begin_snapshot(snapshot.len());
        self.feed(snapshot, true);
    }

    /// Begins to replace all records so far by a snapshot, which has what they have, and of which
    /// the bytes follow: about so many. No other one is being written.
    pub(crate) fn begin_snapshot(&mut self, expected: usize) {
        assert!(!self.is_writing());
        let head = Head { generation: self.head.generation + 1, parts: 0, first: self.next };
        self.chores.push_back(Chore::Write(Written {
            head,
            parts: VecDeque::new(),
            is_whole: false,
            part: 0,
            bytes: 0,
            expected,
            replaces: self.grown,
        }));
    }

    /// How many bytes a snapshot takes, about, that is made now.
    pub(crate) fn expected(&self) -> usize {
        self.size + self.grown
    }

    /// Whether a snapshot is being written of which more bytes are to follow.
    pub(crate) fn is_fed(&self) -> bool {
        self.chores.iter().any(|chore| matches!(chore, Chore::Write(it) if !it.is_whole))
    }

    /// How many more bytes of it there is room for in memory.
    pub(crate) fn room(&self) -> usize {
        let most = CHORES * self.part_max();
        let of = |chore: &Chore| match chore {
            Chore::Write(it) if !it.is_whole => {
                Some(most.saturating_sub(it.parts.len() * self.part_max()))
            }
            Chore::Write(_) | Chore::DeleteRecords(_) | Chore::DeleteParts(..) => None,
        };
        self.chores.iter().find_map(of).unwrap_or(0)
    }

    /// More of the snapshot that is being written; whether that is the end of it.
    pub(crate) fn feed(&mut self, mut bytes: &[u8], is_last: bool) {
        let most = self.part_max();
        let fed = self.chores.iter_mut().find_map(|chore| match chore {
            Chore::Write(it) if !it.is_whole => Some(it),
            Chore::Write(_) | Chore::DeleteRecords(_) | Chore::DeleteParts(..) => None,
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

    /// Replaces all records so far by this.
    #[cfg(test)]
    pub(crate) fn replace(&mut self, snapshot: &Snapshot) {
        let bytes = binary::write(snapshot);
        self.begin_snapshot(bytes.len());
        self.feed(&bytes, true);
    }

    /// An operation on the disk ended.
    pub(crate) fn done(&mut self, now: Instant, local: u64, done: Done, out: &mut Vec<Output>) {
        let (id, done) = disk::done(local, done);
        self.store.done(now, id, done, &mut self.heard);
        self.settle(now, out);
    }

    /// Does what is due: to be called at the end of every turn.
    pub(crate) fn tick(&mut self, now: Instant, out: &mut Vec<Output>) {
        self.settle(now, out);
        self.store.tick(now, &mut self.heard);
        self.settle(now, out);
        self.measure(out);
    }

    /// Finds out how much room there is.
    fn measure(&mut self, out: &mut Vec<Output>) {
        let written = |chore: &Chore| match chore {
            Chore::Write(it) => {
                let all = if it.is_whole { it.bytes } else { it.bytes.max(it.expected) };
                Some(all.saturating_sub(it.part as usize * self.part_max()))
            }
            Chore::DeleteRecords(_) | Chore::DeleteParts(..) => None,
        };
        let writing = self.chores.iter().find_map(written);
        let next = writing.unwrap_or(self.size + self.grown) as u64;
        let space = self.store.space();
        let margin = space.blocks * space.block as u64 / MARGIN;
        let ample = |room: u64| room >= 2 * (next + margin);
        // What was freed, and is not free yet, is counted where it matters.
        let now = match ample(space.blocks_available * space.block as u64) {
            // What it should begin with was given up.
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
        assert!(self.heard.is_empty());
        assert!(self.chores_under_way <= CHORES, "few chores are under way");
        let writes = self.chores.iter().filter(|chore| matches!(chore, Chore::Write(_)));
        assert!(writes.count() <= 1, "one snapshot at a time");
        let numbers = self.records.iter().filter_map(|batch| batch.persisted);
        assert!(numbers.is_sorted_by(|one, next| one < next), "records are kept in order");
        assert!(self.records.iter().all(|batch| !batch.changes.is_empty()), "a record is kept");
        assert!(self.head.first <= self.next, "records are numbered in order");
    }

    /// Makes everything durable and takes no more. What is left of a snapshot is of no use.
    pub(crate) fn close(&mut self, now: Instant, out: &mut Vec<Output>) {
        self.chores.clear();
        self.commit(now);
        self.store.close(now, Ticket(0), &mut self.heard);
        self.settle(now, out);
    }

    /// Commits what can be committed.
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
        while self.chores_under_way < self.chores_max()
            && let Some(changes) = self.chores.front().and_then(|chore| self.changes_of(chore))
        {
            if self.try_commit(now, CHORE, &changes, Durability::Durable) {
                self.chores_under_way += 1;
                self.go_on();
            } else if !self.gives_up() {
                break;
            }
        }
    }

    /// How many chores may be under way: while the store makes a checkpoint none, unless records
    /// have grown far beyond what a snapshot is made for.
    fn chores_max(&self) -> usize {
        let is_late = self.grown > LATE * GROWTH_MIN.max(2 * self.size);
        match self.store.is_pressed() {
            false => CHORES,
            true => usize::from(is_late || self.room != Room::Ample),
        }
    }

    /// Gives up a snapshot that finds no room; whether there was one.
    fn gives_up(&mut self) -> bool {
        if self.fetches || self.failed.is_some() {
            return false;
        }
        let Some(Chore::Write(it)) = self.chores.front() else { return false };
        let gone = Chore::DeleteParts(it.head.generation, 0..it.part);
        self.chores[0] = gone;
        self.is_crowded = true;
        true
    }

    /// Whether something could be committed; if not, there is no room unless pages are fetched, or
    /// all is over.
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
        let result = self.store.commit(now, ticket, changes, durability, &mut self.heard);
        match result {
            Ok(()) => return true,
            Err(Refusal::Missing(missing)) => {
                self.fetches = true;
                self.store.fetch(now, Ticket(0), missing, &mut self.heard);
            }
            Err(Refusal::Failed(store::Error::NoSpace)) => {}
            Err(Refusal::Failed(error)) => self.failed = Some(error),
        }
        false
    }

    /// The next transaction of a chore, unless the bytes of that are to follow.
    fn changes_of(&self, chore: &Chore) -> Option<Vec<Change>> {
        let delete = |table, key: &[u8]| Change::Delete { table, key: key.to_vec() };
        Some(match chore {
            Chore::Write(it) => match it.parts.front() {
                None if it.is_whole => {
                    let head = Head { parts: it.part, ..it.head };
                    vec![put(SETTINGS, HEAD_KEY, binary::write(&head))]
                }
                Some(part) if it.is_whole || part.len() == self.part_max() => {
                    vec![put(PARTS, &part_key(it.head.generation, it.part), part.clone())]
                }
                Some(_) | None => return None,
            },
            Chore::DeleteRecords(numbers) => {
                let some = numbers.clone().take(DELETES as usize);
                some.map(|number| delete(RECORDS, &number.to_be_bytes())).collect()
            }
            Chore::DeleteParts(generation, parts) => {
                let some = parts.clone().take(DELETES as usize);
                some.map(|part| delete(PARTS, &part_key(*generation, part))).collect()
            }
        })
    }

    /// A transaction of the first chore is committed.
    fn go_on(&mut self) {
        match self.chores.front_mut().expect("it was committed") {
            Chore::Write(it) if it.parts.is_empty() => {
                let head = Head { parts: it.part, ..it.head };
                let old = std::mem::replace(&mut self.head, head);
                assert!(old.first <= self.head.first, "a snapshot replaces what is before it");
                assert!(it.replaces <= self.grown, "what it replaces was counted");
                self.size = it.bytes;
                self.grown -= it.replaces;
                self.chores.pop_front();
                self.chores.push_back(Chore::DeleteRecords(old.first..self.head.first));
                self.chores.push_back(Chore::DeleteParts(old.generation, 0..old.parts));
            }
            Chore::Write(it) => {
                it.parts.pop_front();
                it.part += 1;
            }
            Chore::DeleteRecords(numbers) | Chore::DeleteParts(_, numbers) => {
                numbers.start += DELETES;
            }
        }
        let is_done = |chore: &mut Chore| match chore {
            Chore::Write(_) => false,
            Chore::DeleteRecords(numbers) | Chore::DeleteParts(_, numbers) => numbers.is_empty(),
        };
        while self.chores.pop_front_if(is_done).is_some() {}
    }

    /// Does what there is to do, and hears what the store says, until it says nothing more.
    fn settle(&mut self, now: Instant, out: &mut Vec<Output>) {
        let was_well = self.failed.is_none();
        loop {
            self.commit(now);
            if self.heard.is_empty() {
                break;
            }
            for output in std::mem::take(&mut self.heard) {
                self.hear(output, out);
            }
        }
        // A checkpoint may fail while nothing is committed, which would say so: then no chore is
        // begun any more.
        self.failed = self.failed.or(self.store.broken());
        if let Some(error) = self.failed.filter(|_| was_well) {
            self.records.clear();
            self.chores.clear();
            out.push(Output::Failed(error));
        }
    }

    fn hear(&mut self, output: store::Output, out: &mut Vec<Output>) {
        match output {
            store::Output::Io(io) => {
                let id = OpId(NodeId::new(self.index, io.id().0 as usize).0);
                let block = self.store.layout().block;
                out.push(Output::Do(disk::op(id, self.file, block, io)));
            }
            store::Output::Fetched(_, result) => {
                assert!(self.fetches, "pages were asked for");
                self.fetches = false;
                self.failed = self.failed.or(result.err());
            }
            store::Output::Committed(CHORE, Ok(())) => {
                assert!(self.chores_under_way > 0, "a chore ends once");
                self.chores_under_way -= 1;
                // One that found no room was given up.
                let is_written = self.head.generation > 0 && !self.is_writing();
                if self.begins && self.chores_under_way == 0 && is_written {
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
