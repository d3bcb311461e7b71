//! The checkpoint: from time to time all changes are written to fresh blocks, followed by a
//! superblock.
//!
//! The state to write is fixed at one moment, synchronously ([`freeze`]): every dirty page gets its
//! block and its parent its checksum. Work continues meanwhile; a page changed while it is being
//! written is copied first. The superblock is written when everything else is durable, so after a
//! crash either the previous checkpoint or this one is found.
//!
#![doc = include_str!("checkpoint/states.md")]

pub(crate) mod freeze;
#[cfg(test)]
mod tests;

use base::{Automaton, Instant};

/// An input of the checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    /// Start a checkpoint.
    Begin,
    /// Every page that recording the freed blocks will change is cached.
    Prepared,
    /// The state to write is fixed: this number of segments must be closed, and of other writes
    /// done.
    Frozen(u32),
    /// A segment is closed, or another write is done.
    Written,
    /// Everything written is durable.
    Flushed,
    /// The superblock is durable.
    Sealed,
    /// The disk has failed.
    Failed,
}

/// An output of the checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// Fetch the pages that freezing will change.
    Prepare,
    /// Fix the state to write, and write it.
    Freeze,
    /// Flush the disk.
    Flush,
    /// Write the superblock, durably.
    Seal,
    /// Free the blocks of the previous checkpoint only, and the journal before this one.
    Release,
}

/// State of the checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// No checkpoint in progress.
    Idle,
    /// Waiting for pages.
    Preparing,
    /// Waiting for the freeze, in the same turn.
    Freezing,
    /// Waiting for this number of writes.
    Writing(u32),
    /// Waiting for the flush.
    Flushing,
    /// Waiting for the superblock.
    Sealing,
    /// Ended after a failure of the disk.
    Broken,
}

/// The checkpoint machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Checkpoint {
    state: State,
}

impl Default for Checkpoint {
    fn default() -> Checkpoint {
        Checkpoint { state: State::Idle }
    }
}

impl Checkpoint {
    /// Returns whether a checkpoint could begin.
    pub(crate) fn is_idle(&self) -> bool {
        self.state == State::Idle
    }

    /// Returns the number of segments and other writes that it waits for.
    pub(crate) fn writes(&self) -> usize {
        match self.state {
            State::Writing(writes) => writes as usize,
            State::Idle
            | State::Preparing
            | State::Freezing
            | State::Flushing
            | State::Sealing
            | State::Broken => 0,
        }
    }

    /// Returns whether it waits for the flush, and for the superblock.
    pub(crate) fn waits(&self) -> (bool, bool) {
        (self.state == State::Flushing, self.state == State::Sealing)
    }

    /// Returns the state's name, for people.
    pub(crate) fn state_name(&self) -> &'static str {
        match self.state {
            State::Idle => "idle",
            State::Preparing => "preparing",
            State::Freezing => "freezing",
            State::Writing(_) => "writing",
            State::Flushing => "flushing",
            State::Sealing => "sealing",
            State::Broken => "broken",
        }
    }
}

impl Automaton for Checkpoint {
    type Input = Input;
    type Output = Output;

    fn step(&mut self, _now: Instant, input: Input, out: &mut Vec<Output>) {
        self.state = match (self.state, input) {
            (State::Idle, Input::Begin) => {
                out.push(Output::Prepare);
                State::Preparing
            }
            (State::Preparing, Input::Prepared) => {
                out.push(Output::Freeze);
                State::Freezing
            }
            (State::Freezing, Input::Frozen(0)) | (State::Writing(1), Input::Written) => {
                out.push(Output::Flush);
                State::Flushing
            }
            (State::Freezing, Input::Frozen(writes)) => State::Writing(writes),
            (State::Writing(writes), Input::Written) => State::Writing(writes - 1),
            (State::Flushing, Input::Flushed) => {
                out.push(Output::Seal);
                State::Sealing
            }
            (State::Sealing, Input::Sealed) => {
                out.push(Output::Release);
                State::Idle
            }
            // The failure may have been found by the journal; then nothing may become durable here
            // either.
            (
                State::Idle
                | State::Preparing
                | State::Freezing
                | State::Writing(_)
                | State::Flushing
                | State::Sealing
                | State::Broken,
                Input::Failed,
            ) => State::Broken,
            // Operations in flight end.
            (
                State::Broken,
                Input::Begin
                | Input::Prepared
                | Input::Frozen(_)
                | Input::Written
                | Input::Flushed
                | Input::Sealed,
            ) => State::Broken,
            // Each completion arrives once; a checkpoint begins only when none is in progress.
            (
                state @ (State::Idle
                | State::Preparing
                | State::Freezing
                | State::Writing(_)
                | State::Flushing
                | State::Sealing),
                input @ (Input::Begin
                | Input::Prepared
                | Input::Frozen(_)
                | Input::Written
                | Input::Flushed
                | Input::Sealed),
            ) => unreachable!("{input:?} in {state:?}"),
        };
    }

    fn check(&self) {
        assert_ne!(self.state, State::Writing(0));
    }
}
