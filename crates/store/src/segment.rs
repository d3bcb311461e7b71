//! One segment: a stretch of the volume whose blocks are written, and closed, together.
//!
//! This is the paper's segment close machine (BUDS §4.3.2, figure 5): to close a segment that is
//! not dirty takes nothing; a dirty one is flushed first. A checkpoint closes every segment, and
//! is durable when all are closed and the disk was flushed once.
//!
#![doc = include_str!("segment/states.md")]

use base::{Automaton, Instant};

#[cfg(test)]
mod tests;

/// What can happen to a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    /// Blocks of it were given out, to be written.
    Open,
    /// Something in memory differs from what is on the disk.
    Change,
    /// A checkpoint wants it closed; so many writes bring it up to date.
    Close(u32),
    /// One of those writes has been done.
    Written,
    /// One of them failed.
    Failed,
}

/// What a segment can ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// Its writes can begin.
    Flush,
    /// Everything it had is on the disk.
    Closed,
    /// It cannot be closed: the disk failed.
    Broken,
}

/// How far a segment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing to do.
    Closed,
    /// Blocks were given out, but nothing was changed since the last checkpoint.
    Open,
    /// Waits for a checkpoint to write its changes.
    Dirty,
    /// Waits for so many writes.
    Flushing(u32),
    /// The same, and there are changes for the checkpoint after this one.
    FlushingDirty(u32),
    /// The disk failed.
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
    /// The state, for people.
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

    /// Writes under way, unless the disk has failed.
    pub(crate) fn writes(&self) -> usize {
        match self.state {
            State::Flushing(writes) | State::FlushingDirty(writes) => writes as usize,
            State::Closed | State::Open | State::Dirty | State::Broken => 0,
        }
    }

    /// Whether no writes are under way.
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.state, State::Closed | State::Open | State::Dirty)
    }

    /// Whether a checkpoint has something to do with it.
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
            // Not dirty: closed at once.
            (State::Closed | State::Open, Input::Close(0)) => {
                out.push(Output::Closed);
                State::Closed
            }
            // Dirty, but the changes were undone by later ones.
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
            // What was under way ends; nothing begins any more.
            (
                State::Broken,
                Input::Open | Input::Change | Input::Close(_) | Input::Written | Input::Failed,
            ) => State::Broken,
            // Only its own writes are reported to it, and one checkpoint comes after the other.
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
