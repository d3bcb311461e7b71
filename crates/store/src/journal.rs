//! The journal: makes transactions durable, many with one write (group commit).
//!
//! While one batch is on its way to the disk the next one gathers, so a slow disk makes batches
//! larger instead of making the queue longer. The ring was allocated when the volume was created:
//! a commit overwrites blocks and never makes a file grow. Data that transactions refer to is
//! flushed before the batch that has their records.
//!
#![doc = include_str!("journal/states.md")]

pub(crate) mod batch;
pub(crate) mod record;
#[cfg(test)]
mod tests;

use crate::{Layout, Ticket};
use base::{Automaton, Block, Instant};
use batch::Head;
use std::collections::VecDeque;
use std::mem;
use std::time::Duration;

/// How long a transaction that nobody waits for may stay in memory.
pub(crate) const SOON: Duration = Duration::from_millis(500);

/// A batch that has gathered so much goes to the disk although nobody waits, bytes.
const EAGER: usize = 256 << 10;

/// A place in the journal: which block of the ring, and what has to be found there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) block: u64,
    pub(crate) sequence: u64,
    /// The checksum of the batch before.
    pub(crate) chain: u64,
}

/// What can happen to the journal.
#[derive(Debug)]
pub(crate) enum Input {
    /// A transaction was applied: its record, and who wants to know when it is durable.
    Append {
        record: Vec<u8>,
        waiter: Option<Ticket>,
        /// It refers to data that has been written but not flushed.
        flush: bool,
    },
    /// Somebody wants to know when everything appended so far is durable.
    Sync(Ticket),
    /// What has gathered is complete: a checkpoint begins, and after it this epoch.
    Seal(u64),
    /// Time has passed, or a turn ends.
    Tick,
    /// The data before the batch is durable.
    Flushed,
    /// One write of the batch is durable.
    Written,
    /// The disk failed.
    Failed,
}

/// What the journal can ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// Make the data durable that has been written.
    Flush,
    /// Write durably, at this block of the ring.
    Write(u64, Vec<Block>),
    /// Everything that this one waits for is durable.
    Durable(Ticket),
    /// What this one waits for may or may not survive.
    Unknown(Ticket),
}

/// A complete batch.
#[derive(Clone, Debug)]
struct Batch {
    at: u64,
    blocks: Vec<Block>,
    waiters: Vec<Ticket>,
    flush: bool,
}

/// Where the first batch is.
#[derive(Clone, Debug)]
enum State {
    /// Nothing is under way.
    Idle,
    /// Waits until the data before the batch is durable.
    Flushing(Batch),
    /// Waits for so many writes; and who waits for them.
    Writing(u32, Vec<Ticket>),
    /// The disk failed: nothing is written any more until recovery.
    Broken,
}

/// The journal.
#[derive(Debug)]
pub(crate) struct Journal {
    state: State,
    volume: u64,
    block: usize,
    /// Blocks of the ring.
    ring: u64,
    /// Records for the next batch.
    gathering: Gathering,
    /// Complete batches that wait for the one under way.
    sealed: VecDeque<Batch>,
    /// Where the next batch goes, and the last one's checksum.
    head: Place,
    /// The epoch of what gathers.
    epoch: u64,
    /// Blocks in use, counted since the beginning: written, and given back by checkpoints.
    written: u64,
    released: u64,
}

/// Records that have not got a place yet.
#[derive(Clone, Debug, Default)]
struct Gathering {
    payload: Vec<u8>,
    records: u32,
    waiters: Vec<Ticket>,
    flush: bool,
    since: Instant,
}

impl Journal {
    /// A journal that goes on at `head`; from `tail` to there the ring is in use.
    pub(crate) fn new(layout: &Layout, volume: u64, epoch: u64, tail: u64, head: Place) -> Journal {
        let ring = layout.journal;
        assert!(tail < ring && head.block < ring, "the journal begins and ends in its ring");
        let used = (head.block + ring - tail) % ring;
        Journal {
            state: State::Idle,
            volume,
            block: layout.block,
            ring,
            gathering: Gathering::default(),
            sealed: VecDeque::new(),
            head,
            epoch,
            written: used,
            released: 0,
        }
    }

    /// Where the next batch goes. Nothing must be gathering.
    pub(crate) fn head(&self) -> Place {
        assert!(self.gathering.records == 0, "it was sealed");
        self.head
    }

    /// How many blocks were written so far, counted for [`Journal::release`].
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// A checkpoint is durable: what was written before it is not needed any more.
    pub(crate) fn release(&mut self, written: u64) {
        assert!(self.released <= written, "checkpoints follow each other");
        assert!(written <= self.written, "a checkpoint knows what was written");
        self.released = written;
    }

    /// After a replay: the epoch of what comes.
    pub(crate) fn set_epoch(&mut self, epoch: u64) {
        self.epoch = epoch;
    }

    /// Flushes and writes under way, unless the disk has failed.
    pub(crate) fn under_way(&self) -> (usize, usize) {
        match &self.state {
            State::Flushing(_) => (1, 0),
            State::Writing(left, _) => (0, *left as usize),
            State::Idle | State::Broken => (0, 0),
        }
    }

    /// Whether nothing is under way or waiting.
    pub(crate) fn is_quiet(&self) -> bool {
        matches!(self.state, State::Idle) && self.is_empty()
    }

    /// Whether a record of so many bytes fits.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        let blocks = self.blocks(self.gathering.payload.len() + bytes);
        self.written - self.released + self.skip(blocks) + blocks < self.ring
    }

    /// How full the ring is, in blocks: used and all.
    pub(crate) fn fill(&self) -> (u64, u64) {
        let gathering = match self.gathering.records {
            0 => 0,
            _some => self.blocks(self.gathering.payload.len()),
        };
        (self.written - self.released + gathering, self.ring)
    }

    /// The state, for people.
    pub(crate) fn state_name(&self) -> &'static str {
        match self.state {
            State::Idle => "idle",
            State::Flushing(_) => "flushing",
            State::Writing(..) => "writing",
            State::Broken => "broken",
        }
    }

    fn blocks(&self, payload: usize) -> u64 {
        (batch::HEAD + payload).div_ceil(self.block) as u64
    }

    /// Blocks at the end of the ring that stay unused, because a batch stands in one piece.
    fn skip(&self, blocks: u64) -> u64 {
        let left = self.ring - self.head.block;
        if blocks <= left { 0 } else { left }
    }
}

impl Automaton for Journal {
    type Input = Input;
    type Output = Output;

    fn step(&mut self, now: Instant, input: Input, out: &mut Vec<Output>) {
        let state = mem::replace(&mut self.state, State::Broken);
        self.state = match (state, input) {
            (State::Broken, Input::Append { waiter, .. }) => {
                out.extend(waiter.map(Output::Unknown));
                State::Broken
            }
            (state, Input::Append { record, waiter, flush }) => {
                self.gather(now, record, waiter, flush);
                state
            }
            (State::Idle, Input::Sync(ticket)) if self.is_empty() => {
                out.push(Output::Durable(ticket));
                State::Idle
            }
            (State::Writing(left, mut waiters), Input::Sync(ticket)) if self.is_empty() => {
                waiters.push(ticket);
                State::Writing(left, waiters)
            }
            (State::Flushing(mut batch), Input::Sync(ticket)) if self.is_empty() => {
                batch.waiters.push(ticket);
                State::Flushing(batch)
            }
            (State::Broken, Input::Sync(ticket)) => {
                out.push(Output::Unknown(ticket));
                State::Broken
            }
            (state, Input::Sync(ticket)) => {
                self.wait_for_last(ticket);
                state
            }
            (State::Idle, Input::Seal(epoch)) => {
                self.seal();
                self.epoch = epoch;
                self.begin(now, out)
            }
            (state @ (State::Flushing(_) | State::Writing(..)), Input::Seal(epoch)) => {
                self.seal();
                self.epoch = epoch;
                state
            }
            (State::Idle, Input::Tick) => self.begin(now, out),
            (State::Flushing(batch), Input::Flushed) => write(batch, out),
            (State::Writing(1, waiters), Input::Written) => {
                out.extend(waiters.into_iter().map(Output::Durable));
                self.begin(now, out)
            }
            (State::Writing(left, waiters), Input::Written) => State::Writing(left - 1, waiters),
            // A checkpoint has met the failure: nothing may be made durable any more.
            (State::Idle, Input::Failed) => self.fail(Vec::new(), out),
            (State::Flushing(batch), Input::Failed) => self.fail(batch.waiters, out),
            (State::Writing(_, waiters), Input::Failed) => self.fail(waiters, out),
            (state @ (State::Flushing(_) | State::Writing(..) | State::Broken), Input::Tick) => {
                state
            }
            // A batch may have several writes; after the first failure the others do not matter.
            (State::Broken, Input::Seal(_) | Input::Flushed | Input::Written | Input::Failed) => {
                State::Broken
            }
            // The disk answers only what is under way.
            (state @ State::Idle, input @ (Input::Flushed | Input::Written))
            | (state @ State::Flushing(_), input @ Input::Written)
            | (state @ State::Writing(..), input @ Input::Flushed) => {
                unreachable!("{input:?} in {state:?}")
            }
        };
    }

    fn deadline(&self) -> Option<Instant> {
        match self.state {
            State::Idle if !self.sealed.is_empty() => Some(Instant(0)),
            State::Idle if self.gathering.records > 0 => Some(self.gathering.due()),
            State::Idle | State::Flushing(_) | State::Writing(..) | State::Broken => None,
        }
    }

    fn check(&self) {
        assert!(self.released <= self.written, "only what was written is released");
        assert!(self.written - self.released <= self.ring);
        assert!(self.head.block < self.ring);
        if let State::Broken = self.state {
            assert!(self.is_empty() && self.gathering.waiters.is_empty());
        }
        let Gathering { payload, records, waiters, .. } = &self.gathering;
        assert_eq!(*records == 0, payload.is_empty(), "records are counted");
        assert!(*records > 0 || waiters.is_empty(), "who waits waits for a record");
        match &self.state {
            State::Flushing(batch) => assert!(batch.flush, "nobody needs that flush"),
            State::Writing(left, _) => assert_ne!(*left, 0, "a batch has a write"),
            State::Idle | State::Broken => {}
        }
        let mut end = None;
        for batch in &self.sealed {
            let fits = end.is_none_or(|end| batch.at == end || batch.at == 0);
            assert!(fits, "batches follow each other, or begin at the ring's beginning");
            end = Some((batch.at + batch.blocks.len() as u64) % self.ring);
        }
        assert!(end.is_none_or(|end| end == self.head.block), "the head is behind the last batch");
    }
}

impl Gathering {
    /// When it should be written if nothing else happens.
    fn due(&self) -> Instant {
        let urgent = !self.waiters.is_empty() || self.payload.len() >= EAGER;
        if urgent { Instant(0) } else { self.since + SOON }
    }
}

impl Journal {
    /// Whether nothing waits to be written.
    fn is_empty(&self) -> bool {
        self.gathering.records == 0 && self.sealed.is_empty()
    }

    fn gather(&mut self, now: Instant, record: Vec<u8>, waiter: Option<Ticket>, flush: bool) {
        assert!(!record.is_empty(), "a transaction has a record");
        if self.gathering.records == 0 {
            self.gathering.since = now;
            self.gathering.payload = record;
        } else {
            self.gathering.payload.extend_from_slice(&record);
        }
        self.gathering.records += 1;
        self.gathering.waiters.extend(waiter);
        self.gathering.flush |= flush;
    }

    fn wait_for_last(&mut self, ticket: Ticket) {
        assert!(!self.is_empty(), "the last batch is still to be written");
        if self.gathering.records > 0 {
            self.gathering.waiters.push(ticket);
        } else if let Some(last) = self.sealed.back_mut() {
            last.waiters.push(ticket);
        }
    }

    /// Gives what has gathered its place.
    fn seal(&mut self) {
        if self.gathering.records == 0 {
            return;
        }
        let Gathering { payload, records, waiters, flush, .. } = mem::take(&mut self.gathering);
        let count = self.blocks(payload.len());
        let skip = self.skip(count);
        let at = if skip > 0 { 0 } else { self.head.block };
        let head = Head {
            volume: self.volume,
            sequence: self.head.sequence,
            chain: self.head.chain,
            epoch: self.epoch,
            records,
        };
        let (blocks, chain) = batch::encode(&head, &payload, self.block);
        assert_eq!(blocks.len() as u64, count, "a batch takes what was counted for it");
        assert!(at + count <= self.ring, "a batch stands in one piece");
        self.written += skip + count;
        assert!(self.written - self.released <= self.ring, "the head does not overtake the tail");
        self.head =
            Place { block: (at + count) % self.ring, sequence: self.head.sequence + 1, chain };
        self.sealed.push_back(Batch { at, blocks, waiters, flush });
    }

    /// Begins with the next batch, if one is due.
    fn begin(&mut self, now: Instant, out: &mut Vec<Output>) -> State {
        if self.sealed.is_empty() && self.gathering.records > 0 && self.gathering.due() <= now {
            self.seal();
        }
        match self.sealed.pop_front() {
            None => State::Idle,
            Some(batch) if batch.flush => {
                out.push(Output::Flush);
                State::Flushing(batch)
            }
            Some(batch) => write(batch, out),
        }
    }

    fn fail(&mut self, waiters: Vec<Ticket>, out: &mut Vec<Output>) -> State {
        let gathering = mem::take(&mut self.gathering).waiters;
        let sealed = self.sealed.drain(..).flat_map(|batch| batch.waiters);
        out.extend(waiters.into_iter().chain(sealed).chain(gathering).map(Output::Unknown));
        State::Broken
    }
}

/// Asks for the writes of a batch.
fn write(batch: Batch, out: &mut Vec<Output>) -> State {
    assert!(!batch.blocks.is_empty(), "a batch has its header");
    let mut at = batch.at;
    let before = out.len();
    for blocks in batch.blocks.chunks(base::op::BLOCKS_MAX) {
        out.push(Output::Write(at, blocks.to_vec()));
        at += blocks.len() as u64;
    }
    State::Writing(u32::try_from(out.len() - before).expect("batches are small"), batch.waiters)
}
