//! The checkpoint: from time to time everything changed is written to fresh blocks, and a
//! superblock says so.
//!
//! What is written was fixed at one moment, synchronously ([`freeze`]): every dirty page got its
//! block and its parent its checksum. Work goes on meanwhile; a page that is changed while it is
//! being written is copied first. The superblock is written when all else is durable, so a crash
//! finds either the checkpoint before or this one.
//!
#![doc = include_str!("checkpoint/states.md")]

pub(crate) mod freeze;
#[cfg(test)]
mod tests;

use base::{Automaton, Instant};

/// What can happen to a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    /// It is time for one.
    Begin,
    /// Every page is cached that writing down what was freed will change.
    Prepared,
    /// Everything to be written is fixed: so many segments have to be closed, and so many other
    /// writes done.
    Frozen(u32),
    /// A segment is closed, or another write is done.
    Written,
    /// Everything written is durable.
    Flushed,
    /// The superblock is durable.
    Sealed,
    /// The disk failed.
    Failed,
}

/// What a checkpoint can ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// Bring the pages into the cache that freezing will change.
    Prepare,
    /// Fix what is to be written, and write it.
    Freeze,
    /// Make it durable.
    Flush,
    /// Write the superblock, durably.
    Seal,
    /// What the checkpoint before had is free, and so is the journal before this one.
    Release,
}

/// How far the checkpoint is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// None is under way.
    Idle,
    /// Waits for pages.
    Preparing,
    /// Waits to be frozen, in the same turn.
    Freezing,
    /// Waits for so many writes.
    Writing(u32),
    /// Waits for the flush.
    Flushing,
    /// Waits for the superblock.
    Sealing,
    /// The disk failed: there will be no other.
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
    /// Whether one could begin.
    pub(crate) fn is_idle(&self) -> bool {
        self.state == State::Idle
    }

    /// Closed segments and other writes that it waits for.
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

    /// Whether it waits for the flush, and for the superblock.
    pub(crate) fn waits(&self) -> (bool, bool) {
        (self.state == State::Flushing, self.state == State::Sealing)
    }

    /// The state, for people.
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
            // The journal may have met the failure; then nothing may be made durable either.
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
            // What was under way ends.
            (
                State::Broken,
                Input::Begin
                | Input::Prepared
                | Input::Frozen(_)
                | Input::Written
                | Input::Flushed
                | Input::Sealed,
            ) => State::Broken,
            // Each answer comes once, to who asked; one begins only when none is under way.
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
