//! The journal: makes transactions durable, many with one write (group commit).
//!
//! While one batch is being written the next one gathers, so a slow disk makes batches larger
//! instead of the queue longer. The ring was allocated when the volume was created: a commit
//! overwrites blocks and never makes a file grow. Data referred to by transactions is flushed
//! before the batch with their records.
//!
#![doc = include_str!("journal/states.md")]

pub(crate) mod batch;
pub(crate) mod record;
#[cfg(test)]
mod tests;

use crate::{Layout, Ticket};
use base::{Automaton, Block, Instant};
use batch::{Encoder, Head};
use std::collections::VecDeque;
use std::mem;
use std::time::Duration;

/// Maximum time that a transaction without a waiter stays in memory.
pub(crate) const SOON: Duration = Duration::from_millis(500);

/// Size from which on a gathering batch is written without a waiter, bytes.
const EAGER: usize = 256 << 10;

/// A position in the journal: a block of the ring, and the identity of the batch expected there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) block: u64,
    pub(crate) sequence: u64,
    /// Checksum of the previous batch.
    pub(crate) chain: u64,
}

/// An input of the journal.
#[derive(Debug)]
pub(crate) enum Input {
    /// A transaction was applied: its record, and the ticket to notify when it is durable.
    Append {
        record: Vec<u8>,
        waiter: Option<Ticket>,
        /// Whether it refers to data that is written but not flushed.
        flush: bool,
    },
    /// A request for a notification when everything appended so far is durable.
    Sync(Ticket),
    /// Complete the gathering batch: a checkpoint begins, and after it this epoch.
    Seal(u64),
    /// Time has passed, or a turn ends.
    Tick,
    /// The data before the batch is durable.
    Flushed,
    /// One write of the batch is durable.
    Written,
    /// The disk has failed.
    Failed,
}

/// An output of the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// Flush completed writes of data.
    Flush,
    /// Write durably, at this block of the ring.
    Write(u64, Vec<Block>),
    /// Everything that this ticket waits for is durable.
    Durable(Ticket),
    /// The durability of what this ticket waits for is unknown.
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

/// State of the oldest batch.
#[derive(Clone, Debug)]
enum State {
    /// Nothing in flight.
    Idle,
    /// Waiting for the flush of the data before the batch.
    Flushing(Batch),
    /// Waiting for this number of writes, with the tickets to notify.
    Writing(u32, Vec<Ticket>),
    /// Ended after a failure of the disk, until recovery.
    Broken,
}

/// The journal.
#[derive(Debug)]
pub(crate) struct Journal {
    state: State,
    volume: u64,
    block: usize,
    /// Size of the ring, blocks.
    ring: u64,
    /// Records for the next batch.
    gathering: OpenBatch,
    /// Complete batches that wait for the one in flight.
    sealed: VecDeque<Batch>,
    /// Position of the next batch, with the last one's checksum.
    head: Position,
    /// Epoch of the gathering batch.
    epoch: u64,
    /// Total numbers of blocks written, and of blocks released by checkpoints.
    written: u64,
    released: u64,
}

/// Records without a position yet.
#[derive(Clone, Debug)]
struct OpenBatch {
    encoder: Encoder,
    records: u32,
    waiters: Vec<Ticket>,
    flush: bool,
    since: Instant,
}

impl Journal {
    /// Returns a journal that continues at `head`; the ring is in use from `tail` to there.
    pub(crate) fn new(
        layout: &Layout,
        volume: u64,
        epoch: u64,
        tail: u64,
        head: Position,
    ) -> Journal {
        let ring = layout.journal;
        assert!(tail < ring && head.block < ring, "the journal begins and ends in its ring");
        let used = (head.block + ring - tail) % ring;
        Journal {
            state: State::Idle,
            volume,
            block: layout.block,
            ring,
            gathering: OpenBatch::new(layout.block),
            sealed: VecDeque::new(),
            head,
            epoch,
            written: used,
            released: 0,
        }
    }

    /// Returns the position of the next batch. Nothing must be gathering.
    pub(crate) fn head(&self) -> Position {
        assert!(self.gathering.records == 0, "it was sealed");
        self.head
    }

    /// Returns the total number of blocks written, for [`Journal::release`].
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// Releases the blocks written before a durable checkpoint.
    pub(crate) fn release(&mut self, written: u64) {
        assert!(self.released <= written, "checkpoints follow each other");
        assert!(written <= self.written, "a checkpoint knows what was written");
        self.released = written;
    }

    /// Sets the epoch of further records, after a replay.
    pub(crate) fn set_epoch(&mut self, epoch: u64) {
        self.epoch = epoch;
    }

    /// Returns the numbers of flushes and writes in flight, unless the disk has failed.
    pub(crate) fn under_way(&self) -> (usize, usize) {
        match &self.state {
            State::Flushing(_) => (1, 0),
            State::Writing(left, _) => (0, *left as usize),
            State::Idle | State::Broken => (0, 0),
        }
    }

    /// Returns whether nothing is in flight or waiting.
    pub(crate) fn is_quiet(&self) -> bool {
        matches!(self.state, State::Idle) && self.is_empty()
    }

    /// Returns whether a record of this size, bytes, fits.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        let blocks = self.blocks(self.gathering.encoder.len() + bytes);
        self.written - self.released + self.skip(blocks) + blocks < self.ring
    }

    /// Returns the numbers of blocks of the ring in use and in all.
    pub(crate) fn fill(&self) -> (u64, u64) {
        let gathering = match self.gathering.records {
            0 => 0,
            _some => self.blocks(self.gathering.encoder.len()),
        };
        (self.written - self.released + gathering, self.ring)
    }

    /// Returns the state's name, for people.
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

    /// Returns the number of blocks at the end of the ring that stay unused, because a batch is
    /// contiguous.
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
                self.gather(now, &record, waiter, flush);
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
            // A checkpoint has found the failure: nothing may become durable any more.
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
            // Completions arrive for operations in flight only.
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
        let OpenBatch { encoder, records, waiters, .. } = &self.gathering;
        assert_eq!(*records == 0, encoder.len() == 0, "records are counted");
        assert!(*records > 0 || waiters.is_empty(), "a waiter waits for a record");
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

impl OpenBatch {
    /// Returns an empty one for blocks of this size, bytes.
    fn new(block: usize) -> OpenBatch {
        let (encoder, since) = (Encoder::new(block), Instant::default());
        OpenBatch { encoder, records: 0, waiters: Vec::new(), flush: false, since }
    }

    /// Returns the time of the write if nothing else happens.
    fn due(&self) -> Instant {
        let urgent = !self.waiters.is_empty() || self.encoder.len() >= EAGER;
        if urgent { Instant(0) } else { self.since + SOON }
    }
}

impl Journal {
    /// Returns whether nothing waits to be written.
    fn is_empty(&self) -> bool {
        self.gathering.records == 0 && self.sealed.is_empty()
    }

    fn gather(&mut self, now: Instant, record: &[u8], waiter: Option<Ticket>, flush: bool) {
        assert!(!record.is_empty(), "a transaction has a record");
        if self.gathering.records == 0 {
            self.gathering.since = now;
        }
        self.gathering.encoder.push(record);
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

    /// Assigns a position to the gathered records.
    fn seal(&mut self) {
        if self.gathering.records == 0 {
            return;
        }
        let gathered = mem::replace(&mut self.gathering, OpenBatch::new(self.block));
        let OpenBatch { encoder, records, waiters, flush, .. } = gathered;
        let count = self.blocks(encoder.len());
        let skip = self.skip(count);
        let at = if skip > 0 { 0 } else { self.head.block };
        let head = Head {
            volume: self.volume,
            sequence: self.head.sequence,
            chain: self.head.chain,
            epoch: self.epoch,
            records,
        };
        let (blocks, chain) = encoder.end(&head);
        assert_eq!(blocks.len() as u64, count, "a batch takes what was counted for it");
        assert!(at + count <= self.ring, "a batch stands in one piece");
        self.written += skip + count;
        assert!(self.written - self.released <= self.ring, "the head does not overtake the tail");
        self.head =
            Position { block: (at + count) % self.ring, sequence: self.head.sequence + 1, chain };
        self.sealed.push_back(Batch { at, blocks, waiters, flush });
    }

    /// Starts the next batch, if one is due.
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
        let gathering = mem::replace(&mut self.gathering, OpenBatch::new(self.block)).waiters;
        let sealed = self.sealed.drain(..).flat_map(|batch| batch.waiters);
        out.extend(waiters.into_iter().chain(sealed).chain(gathering).map(Output::Unknown));
        State::Broken
    }
}

/// Requests the writes of a batch.
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
