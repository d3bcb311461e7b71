//! One segment: a range of blocks of the volume that are written, and closed, together.
//!
//! This is the paper's segment close machine (BUDS §4.3.2, figure 5): closing a clean segment needs
//! nothing; a dirty one is flushed first. A checkpoint closes every segment, and is durable when
//! all are closed and the disk was flushed once.
//!
#![doc = include_str!("segment/states.md")]

use base::{Automaton, Instant};

#[cfg(test)]
mod tests;

/// An input of the segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    /// Blocks of it were allocated, to be written.
    Open,
    /// Its contents in memory differ from the disk.
    Change,
    /// A checkpoint closes it; this number of writes brings it up to date.
    Close(u32),
    /// One of those writes is done.
    Written,
    /// One of those writes failed.
    Failed,
}

/// An output of the segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// Start its writes.
    Flush,
    /// All its changes are on the disk.
    Closed,
    /// It cannot be closed: the disk failed.
    Broken,
}

/// State of the segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing to write.
    Closed,
    /// Blocks were allocated, but nothing was changed since the last checkpoint.
    Open,
    /// Waiting for a checkpoint to write its changes.
    Dirty,
    /// Waiting for this number of writes.
    Flushing(u32),
    /// Like [`State::Flushing`], with changes for the next checkpoint.
    FlushingDirty(u32),
    /// Ended after a failure of the disk.
    Broken,
}

/// A segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    state: State,
}

impl Default for Segment {
    fn default() -> Segment {
        Segment { state: State::Closed }
    }
}

impl Segment {
    /// Returns the state's name, for people.
    pub(crate) fn state_name(&self) -> &'static str {
        match self.state {
            State::Closed => "closed",
            State::Open => "open",
            State::Dirty => "dirty",
            State::Flushing(_) => "flushing",
            State::FlushingDirty(_) => "flushing-dirty",
            State::Broken => "broken",
        }
    }

    /// Returns the number of writes in flight, unless the disk has failed.
    pub(crate) fn writes(&self) -> usize {
        match self.state {
            State::Flushing(writes) | State::FlushingDirty(writes) => writes as usize,
            State::Closed | State::Open | State::Dirty | State::Broken => 0,
        }
    }

    /// Returns whether no writes are in flight.
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.state, State::Closed | State::Open | State::Dirty)
    }

    /// Returns whether a checkpoint has to close it.
    pub(crate) fn is_open(&self) -> bool {
        self.state != State::Closed
    }
}

impl Automaton for Segment {
    type Input = Input;
    type Output = Output;

    fn step(&mut self, _now: Instant, input: Input, out: &mut Vec<Output>) {
        self.state = match (self.state, input) {
            (State::Closed | State::Open, Input::Open) => State::Open,
            (State::Closed | State::Open | State::Dirty, Input::Change)
            | (State::Dirty, Input::Open) => State::Dirty,
            // Clean: closed at once.
            (State::Closed | State::Open, Input::Close(0)) => {
                out.push(Output::Closed);
                State::Closed
            }
            // Dirty, but later changes have undone the earlier ones.
            (State::Dirty, Input::Close(0)) => {
                out.push(Output::Closed);
                State::Closed
            }
            (State::Closed | State::Open | State::Dirty, Input::Close(writes)) => {
                out.push(Output::Flush);
                State::Flushing(writes)
            }
            (State::Flushing(1), Input::Written) => {
                out.push(Output::Closed);
                State::Closed
            }
            (State::FlushingDirty(1), Input::Written) => {
                out.push(Output::Closed);
                State::Dirty
            }
            (State::Flushing(writes), Input::Written) => State::Flushing(writes - 1),
            (State::FlushingDirty(writes), Input::Written) => State::FlushingDirty(writes - 1),
            (State::Flushing(writes), Input::Open) => State::Flushing(writes),
            (State::Flushing(writes) | State::FlushingDirty(writes), Input::Change)
            | (State::FlushingDirty(writes), Input::Open) => State::FlushingDirty(writes),
            (State::Flushing(_) | State::FlushingDirty(_), Input::Failed) => {
                out.push(Output::Broken);
                State::Broken
            }
            // Operations in flight end; none begins any more.
            (
                State::Broken,
                Input::Open | Input::Change | Input::Close(_) | Input::Written | Input::Failed,
            ) => State::Broken,
            // It gets completions of its own writes only, and checkpoints are sequential.
            (
                state @ (State::Closed | State::Open | State::Dirty),
                input @ (Input::Written | Input::Failed),
            )
            | (state @ (State::Flushing(_) | State::FlushingDirty(_)), input @ Input::Close(_)) => {
                unreachable!("{input:?} in {state:?}")
            }
        };
    }

    fn check(&self) {
        assert!(!matches!(self.state, State::Flushing(0) | State::FlushingDirty(0)));
    }
}
