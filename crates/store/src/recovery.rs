//! The recovery manager: from the newest superblock to the state before the crash.
//!
//! It reads the map that belongs to the superblock, then the journal ring, and finds the batches
//! that continue the superblock's place one after the other. The first one missing is the end: it
//! was never acknowledged. But if a later one is there, an acknowledged one has been lost by the
//! disk, and that is said rather than passed over.
//!
#![doc = include_str!("recovery/states.md")]

use crate::journal::{Place, batch, record, record::Record};
use crate::space::Space;
use crate::sum::sum;
use crate::{Error, Superblock};
use base::{Automaton, Block, Instant, op::BLOCKS_MAX};
use std::collections::{BTreeSet, VecDeque};
use std::mem;

#[cfg(test)]
mod tests;

/// What can happen to a recovery.
#[derive(Debug)]
pub(crate) enum Input {
    /// It can begin.
    Begin,
    /// The blocks that were asked for.
    Read(Vec<Block>),
    /// A block that was to be erased is.
    Erased,
    /// They could not be read, or not be erased.
    Failed,
    /// All records have been applied again.
    Replayed,
    /// The snapshots are known.
    Loaded,
}

/// What a recovery can ask for.
#[derive(Debug)]
pub(crate) enum Output {
    /// Read so many blocks from this one on.
    Read(u64, u32),
    /// Write zeros over this block, durably: it holds what comes behind a loss that was accepted,
    /// and must not be found the next time.
    Erase(u64),
    /// Apply these again, in this order; the journal goes on behind them.
    Replay(Box<Found>),
    /// Find out which snapshots there are.
    Load,
    /// The volume is as it was.
    Recovered,
    /// It cannot be recovered.
    Broken(Error),
}

/// What the disk had.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) space: Space,
    /// Transactions with their epochs.
    pub(crate) records: VecDeque<(u64, Record)>,
    /// Where the journal goes on.
    pub(crate) head: Place,
}

/// How far it is.
#[derive(Debug)]
enum State {
    /// Nothing was asked for yet.
    New,
    /// Waits for the rest of the map's index.
    Index(Vec<u8>),
    /// Waits for segments' bits, from this segment on; the index says their checksums.
    Bits(Box<Space>, Vec<u8>, u64),
    /// Waits for the rest of the journal ring.
    Ring(Box<Space>, Vec<u8>),
    /// Waits to see once more where the journal ends: a read that came from elsewhere looks like an
    /// end.
    End(Box<Space>, Box<Walked>),
    /// Waits until so many blocks are erased.
    Erasing(Box<Found>, usize),
    /// Waits until the records have been applied.
    Replaying,
    /// Waits for the snapshots.
    Loading,
    /// All is said.
    Over,
}

/// What the journal ring has.
#[derive(Debug)]
struct Walked {
    records: VecDeque<(u64, Record)>,
    /// Where it ends.
    head: Place,
    /// Where in the ring the next batch would begin, and was not found, and what is there.
    ends: Vec<(u64, Vec<u8>)>,
    /// Where batches behind the end begin.
    beyond: Vec<u64>,
}

/// A recovery.
#[derive(Debug)]
pub(crate) struct Recovery {
    state: State,
    superblock: Superblock,
    /// Go on with what is there if acknowledged batches are lost.
    accept_loss: bool,
    /// Nothing may be written.
    read_only: bool,
}

impl Recovery {
    pub(crate) fn new(superblock: Superblock, accept_loss: bool, read_only: bool) -> Recovery {
        Recovery { state: State::New, superblock, accept_loss, read_only }
    }

    /// The state, for people.
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
            // Each answer comes once, to who asked.
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
    /// Asks for more of a stretch of blocks of which so many bytes are there; `false`: it is all
    /// there.
    fn read_more(&self, first: u64, count: u64, bytes: usize, out: &mut Vec<Output>) -> bool {
        let done = (bytes / self.superblock.layout.block) as u64;
        assert!(done <= count, "no more is read than was asked for");
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
        assert!(segment <= layout.segments(), "no more is read than was asked for");
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
            let wanted = crate::page::u64_at(&index, segment * 8);
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

    /// Looks once more at where the journal seems to end.
    fn look_again(&self, space: Box<Space>, walked: Box<Walked>, out: &mut Vec<Output>) -> State {
        let Some((at, _)) = walked.ends.last() else { return self.end(*space, *walked, out) };
        out.push(Output::Read(self.superblock.layout.journal_at + at, 1));
        State::End(space, walked)
    }

    /// An end of the journal has been read again: if something else is there now, nothing of what
    /// was read is believed. Both reads may have come from elsewhere, but hardly from one place.
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

    /// The journal ends there.
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

/// Follows the journal from the superblock's place on; and whether there are batches behind its
/// end. `None`: a batch has records that are none.
fn walk(superblock: &Superblock, ring: &[u8]) -> Option<Walked> {
    let layout = &superblock.layout;
    let (mut records, mut head) = (VecDeque::new(), superblock.tail);
    let mut followed = BTreeSet::new();
    while let Some((at, found, payload, sum)) = batch::follow(superblock, ring, head) {
        let more = record::decode_all(payload)?;
        if !more.iter().all(|record| record.is_fair(layout)) {
            return None;
        }
        records.extend(more.into_iter().map(|record| (found.epoch, record)));
        let blocks = batch::blocks(payload.len(), layout.block);
        followed.extend(at..at + blocks);
        let block = (at + blocks) % layout.journal;
        head = Place { block, sequence: head.sequence + 1, chain: sum };
    }
    // One that does not fit before the end of the ring begins at its beginning. A torn one begins
    // where it should, so there is no need to look again.
    let mut ends = vec![0, head.block];
    ends.dedup();
    let block = |at: u64| &ring[at as usize * layout.block..][..layout.block];
    let mut ends: Vec<(u64, Vec<u8>)> =
        ends.into_iter().map(|at| (at, block(at).to_vec())).collect();
    if ends.iter().any(|(_, block)| batch::begins(block, head)) {
        ends.clear();
    }
    // Twice: an end that is empty looks like most places of a disk.
    ends.extend_from_within(..);
    // What users wrote may look like anything.
    let beyond = batch::beyond(superblock, ring, head.sequence);
    let beyond = beyond.filter(|at| !followed.contains(at)).collect();
    Some(Walked { records, head, ends, beyond })
}
