//! The recovery manager: from the newest superblock to the state before the crash.
//!
//! It reads the map of the superblock, then the journal ring, and follows the batches from the
//! superblock's position on. The first missing one is the end: it was never acknowledged. But if a
//! later one exists, the disk has lost an acknowledged one, and recovery reports that.
//!
#![doc = include_str!("recovery/states.md")]

use crate::journal::{Position, batch, record, record::Record};
use crate::little_endian::u64_at;
use crate::space::Space;
use crate::sum::sum;
use crate::{Error, Superblock};
use base::{Automaton, Block, Instant, op::BLOCKS_MAX};
use std::collections::{BTreeSet, VecDeque};
use std::mem;

#[cfg(test)]
mod tests;

/// An input of the recovery.
#[derive(Debug)]
pub(crate) enum Input {
    /// Start.
    Begin,
    /// The requested blocks.
    Read(Vec<Block>),
    /// A block was erased.
    Erased,
    /// A read or an erasure failed.
    Failed,
    /// All records were applied again.
    Replayed,
    /// The snapshots were loaded.
    Loaded,
}

/// An output of the recovery.
#[derive(Debug)]
pub(crate) enum Output {
    /// Read this number of blocks from this one on.
    Read(u64, u32),
    /// Write zeros over this block, durably: it holds a batch behind an accepted loss, which must
    /// not be found the next time.
    Erase(u64),
    /// Apply these records again, in this order; the journal continues behind them.
    Replay(Box<Found>),
    /// Load the list of snapshots.
    Load,
    /// The former state is restored.
    Recovered,
    /// The volume cannot be recovered.
    Broken(Error),
}

/// Contents of the disk.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) space: Space,
    /// Transactions with their epochs.
    pub(crate) records: VecDeque<(u64, Record)>,
    /// Position where the journal continues.
    pub(crate) head: Position,
}

/// State of the recovery.
#[derive(Debug)]
enum State {
    /// Waiting for the start.
    New,
    /// Waiting for the rest of the map's index.
    Index(Vec<u8>),
    /// Waiting for segments' bits, from this segment on; the index has their checksums.
    Bits(Box<Space>, Vec<u8>, u64),
    /// Waiting for the rest of the journal ring.
    Ring(Box<Space>, Vec<u8>),
    /// Waiting for a second read of the journal's end: a misdirected read looks like an end.
    End(Box<Space>, Box<Walked>),
    /// Waiting for the erasure of this number of blocks.
    Erasing(Box<Found>, usize),
    /// Waiting for the replay.
    Replaying,
    /// Waiting for the snapshots.
    Loading,
    /// Ended.
    Over,
}

/// Contents of the journal ring.
#[derive(Debug)]
struct Walked {
    records: VecDeque<(u64, Record)>,
    /// End of the journal.
    head: Position,
    /// Positions in the ring where the next batch could begin but was not found, with their
    /// contents.
    ends: Vec<(u64, Vec<u8>)>,
    /// Positions of batches behind the end.
    beyond: Vec<u64>,
}

/// A recovery.
#[derive(Debug)]
pub(crate) struct Recovery {
    state: State,
    superblock: Superblock,
    /// Whether to continue in spite of lost acknowledged batches.
    accept_loss: bool,
    /// Whether nothing may be written.
    read_only: bool,
}

impl Recovery {
    pub(crate) fn new(superblock: Superblock, accept_loss: bool, read_only: bool) -> Recovery {
        Recovery { state: State::New, superblock, accept_loss, read_only }
    }

    /// Returns the state's name, for people.
    pub(crate) fn state_name(&self) -> &'static str {
        match self.state {
            State::New => "new",
            State::Index(_) => "index",
            State::Bits(..) => "bits",
            State::Ring(..) => "ring",
            State::End(..) => "end",
            State::Erasing(..) => "erasing",
            State::Replaying => "replaying",
            State::Loading => "loading",
            State::Over => "over",
        }
    }
}

impl Automaton for Recovery {
    type Input = Input;
    type Output = Output;

    fn step(&mut self, _now: Instant, input: Input, out: &mut Vec<Output>) {
        let state = mem::replace(&mut self.state, State::Over);
        self.state = match (state, input) {
            (State::New, Input::Begin) => self.read_index(Vec::new(), out),
            (State::Index(bytes), Input::Read(blocks)) => {
                self.read_index(joined(bytes, &blocks), out)
            }
            (State::Bits(space, index, segment), Input::Read(blocks)) => {
                self.load_bits(space, index, segment, &blocks, out)
            }
            (State::Ring(space, bytes), Input::Read(blocks)) => {
                self.read_ring(space, joined(bytes, &blocks), out)
            }
            (State::End(space, walked), Input::Read(blocks)) => {
                self.looked_again(space, walked, &blocks, out)
            }
            (State::Erasing(found, 1), Input::Erased) => replay(found, out),
            (State::Erasing(found, left), Input::Erased) => State::Erasing(found, left - 1),
            (State::Replaying, Input::Replayed) => {
                out.push(Output::Load);
                State::Loading
            }
            (State::Loading, Input::Loaded) => {
                out.push(Output::Recovered);
                State::Over
            }
            (
                State::Index(_)
                | State::Bits(..)
                | State::Ring(..)
                | State::End(..)
                | State::Erasing(..)
                | State::Replaying
                | State::Loading,
                Input::Failed,
            ) => give_up(Error::DiskFailed, out),
            // Each completion arrives once.
            (
                state @ (State::New
                | State::Index(_)
                | State::Bits(..)
                | State::Ring(..)
                | State::End(..)
                | State::Erasing(..)
                | State::Replaying
                | State::Loading
                | State::Over),
                input @ (Input::Begin
                | Input::Read(_)
                | Input::Erased
                | Input::Failed
                | Input::Replayed
                | Input::Loaded),
            ) => unreachable!("{input:?} in {}", name(&state)),
        };
    }

    fn check(&self) {
        let layout = &self.superblock.layout;
        let is_part = |bytes: &[u8], blocks: u64| {
            let part = (bytes.len() / layout.block) as u64;
            bytes.len().is_multiple_of(layout.block) && part < blocks
        };
        match &self.state {
            State::Index(bytes) => assert!(is_part(bytes, layout.index), "more is to come"),
            State::Bits(_, index, segment) => {
                assert!(*segment < layout.segments(), "more is to come");
                assert_eq!(index.len(), layout.index as usize * layout.block, "all is there");
            }
            State::Ring(_, bytes) => assert!(is_part(bytes, layout.journal), "more is to come"),
            State::End(_, walked) => {
                let ends = &walked.ends;
                assert!(ends.iter().all(|(at, _)| *at < layout.journal), "an end is in the ring");
            }
            State::Erasing(_, left) => {
                assert_ne!(*left, 0, "something is left to be erased");
                assert!(self.accept_loss && !self.read_only, "only what may be lost is erased");
            }
            State::New | State::Replaying | State::Loading | State::Over => {}
        }
    }
}

fn name(state: &State) -> String {
    base::drawing::variant(state)
}

fn replay(found: Box<Found>, out: &mut Vec<Output>) -> State {
    out.push(Output::Replay(found));
    State::Replaying
}

fn give_up(error: Error, out: &mut Vec<Output>) -> State {
    out.push(Output::Broken(error));
    State::Over
}

fn joined(mut bytes: Vec<u8>, blocks: &[Block]) -> Vec<u8> {
    blocks.iter().for_each(|block| bytes.extend_from_slice(block));
    bytes
}

impl Recovery {
    /// Requests more of a range of blocks of which `bytes` bytes have been read; returns `false` if
    /// it is complete.
    fn read_more(&self, first: u64, count: u64, bytes: usize, out: &mut Vec<Output>) -> bool {
        let done = (bytes / self.superblock.layout.block) as u64;
        assert!(done <= count, "no more is read than was requested");
        if done == count {
            return false;
        }
        out.push(Output::Read(first + done, (count - done).min(BLOCKS_MAX as u64) as u32));
        true
    }

    fn read_index(&self, bytes: Vec<u8>, out: &mut Vec<Output>) -> State {
        let layout = &self.superblock.layout;
        if self.read_more(layout.map(self.superblock.map), layout.index, bytes.len(), out) {
            return State::Index(bytes);
        }
        if sum(&bytes) != self.superblock.index_sum {
            return give_up(Error::Damaged, out);
        }
        self.read_bits(Box::new(Space::empty(layout)), bytes, 0, out)
    }

    fn read_bits(
        &self,
        space: Box<Space>,
        index: Vec<u8>,
        segment: u64,
        out: &mut Vec<Output>,
    ) -> State {
        let layout = &self.superblock.layout;
        assert!(segment <= layout.segments(), "no more is read than was requested");
        let first = layout.map(self.superblock.map) + layout.index;
        let left = layout.segments() - segment;
        if left > 0 {
            out.push(Output::Read(first + segment, left.min(BLOCKS_MAX as u64) as u32));
            return State::Bits(space, index, segment);
        }
        let mut space = space;
        space.loaded(self.superblock.map as usize);
        self.read_ring(space, Vec::new(), out)
    }

    fn load_bits(
        &self,
        mut space: Box<Space>,
        index: Vec<u8>,
        segment: u64,
        blocks: &[Block],
        out: &mut Vec<Output>,
    ) -> State {
        for (segment, block) in (segment as usize..).zip(blocks) {
            let wanted = u64_at(&index, segment * 8);
            let sound = sum(block) == wanted && space.load(segment, block).is_ok();
            if !sound {
                return give_up(Error::Damaged, out);
            }
        }
        self.read_bits(space, index, segment + blocks.len() as u64, out)
    }

    fn read_ring(&self, space: Box<Space>, bytes: Vec<u8>, out: &mut Vec<Output>) -> State {
        let layout = &self.superblock.layout;
        if self.read_more(layout.journal_at, layout.journal, bytes.len(), out) {
            return State::Ring(space, bytes);
        }
        let Some(walked) = walk(&self.superblock, &bytes) else {
            return give_up(Error::Damaged, out);
        };
        self.look_again(space, Box::new(walked), out)
    }

    /// Reads the apparent end of the journal again.
    fn look_again(&self, space: Box<Space>, walked: Box<Walked>, out: &mut Vec<Output>) -> State {
        let Some((at, _)) = walked.ends.last() else { return self.end(*space, *walked, out) };
        out.push(Output::Read(self.superblock.layout.journal_at + at, 1));
        State::End(space, walked)
    }

    /// Handles the second read of an end of the journal: if the contents differ, nothing that was
    /// read is trusted. Both reads may have been misdirected, but hardly to the same place.
    fn looked_again(
        &self,
        space: Box<Space>,
        mut walked: Box<Walked>,
        blocks: &[Block],
        out: &mut Vec<Output>,
    ) -> State {
        let (_, before) = walked.ends.pop().expect("it was read again");
        if blocks.first().is_none_or(|block| **block != *before) {
            return self.read_ring(space, Vec::new(), out);
        }
        self.look_again(space, walked, out)
    }

    /// Handles the confirmed end of the journal.
    fn end(&self, space: Space, walked: Walked, out: &mut Vec<Output>) -> State {
        let Walked { records, head, mut beyond, .. } = walked;
        if !beyond.is_empty() && !self.accept_loss {
            return give_up(Error::Damaged, out);
        }
        if self.read_only {
            beyond.clear();
        }
        let found = Box::new(Found { space, records, head });
        let first = self.superblock.layout.journal_at;
        out.extend(beyond.iter().map(|at| Output::Erase(first + at)));
        if beyond.is_empty() { replay(found, out) } else { State::Erasing(found, beyond.len()) }
    }
}

/// Follows the journal from the superblock's position on, and finds batches behind its end. `None`
/// if a batch has invalid records.
fn walk(superblock: &Superblock, ring: &[u8]) -> Option<Walked> {
    let layout = &superblock.layout;
    let (mut records, mut head) = (VecDeque::new(), superblock.tail);
    let mut followed = BTreeSet::new();
    while let Some((at, found, payload, sum)) = batch::follow(superblock, ring, head) {
        let more = record::decode_all(payload)?;
        if !more.iter().all(|record| record.is_within_limits(layout)) {
            return None;
        }
        records.extend(more.into_iter().map(|record| (found.epoch, record)));
        let blocks = batch::blocks(payload.len(), layout.block);
        followed.extend(at..at + blocks);
        let block = (at + blocks) % layout.journal;
        head = Position { block, sequence: head.sequence + 1, chain: sum };
    }
    // A batch that does not fit before the end of the ring begins at its start. A torn one begins
    // at the expected position, so no second read is needed.
    let mut ends = vec![0, head.block];
    ends.dedup();
    let block = |at: u64| &ring[at as usize * layout.block..][..layout.block];
    let mut ends: Vec<(u64, Vec<u8>)> =
        ends.into_iter().map(|at| (at, block(at).to_vec())).collect();
    if ends.iter().any(|(_, block)| batch::begins(block, head)) {
        ends.clear();
    }
    // Twice: an empty end looks like most places of a disk.
    ends.extend_from_within(..);
    // Data of users may look like anything.
    let beyond = batch::beyond(superblock, ring, head.sequence);
    let beyond = beyond.filter(|at| !followed.contains(at)).collect();
    Some(Walked { records, head, ends, beyond })
}
