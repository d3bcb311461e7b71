//! The sweeper: takes away the entries of tables that were dropped, a bounded piece at a time.
//!
//! Who drops a table only takes its name away and notes its number; the rest is done here, between
//! the requests of others, and goes on when the volume is opened the next time. The machine only
//! knows when a piece is due; what that is, is planned like any call.
//!
#![doc = include_str!("sweeper/states.md")]

use base::{Automaton, Instant};
use std::time::Duration;

#[cfg(test)]
mod tests;

/// How long others have the store for themselves after each piece.
const PAUSE: Duration = Duration::from_millis(1);

/// How long it rests after a failure.
const REST: Duration = Duration::from_secs(10);

/// What can happen to the sweeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    /// A table was dropped, or the volume was opened, and nobody knows whether one was before.
    Dropped,
    /// A turn ends.
    Tick,
    /// A piece is gone; there may be more.
    Swept,
    /// Nothing is left.
    Clean,
    /// It takes pages that are not in memory, or room.
    Missing,
    /// They are there.
    Fetched,
    /// It cannot be done now.
    Failed,
}

/// What it can ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// Take a piece away.
    Sweep,
}

/// What it is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing is left of any table that was dropped.
    Clean,
    /// Waits until then.
    Due(Instant),
    /// A piece is being taken away; it waits for nothing.
    Sweeping,
    /// Waits for pages, or for room.
    Waiting,
}

/// The sweeper.
#[derive(Debug)]
pub(crate) struct Sweeper {
    state: State,
}

impl Default for Sweeper {
    fn default() -> Sweeper {
        Sweeper { state: State::Clean }
    }
}

impl Automaton for Sweeper {
    type Input = Input;
    type Output = Output;

    fn step(&mut self, now: Instant, input: Input, out: &mut Vec<Output>) {
        self.state = match (self.state, input) {
            (State::Clean, Input::Dropped) => State::Due(now),
            (state @ (State::Due(_) | State::Waiting), Input::Dropped) => state,
            (State::Due(at), Input::Tick) if at <= now => {
                out.push(Output::Sweep);
                State::Sweeping
            }
            (state @ (State::Clean | State::Due(_) | State::Waiting), Input::Tick) => state,
            (State::Sweeping, Input::Swept) => State::Due(now + PAUSE),
            (State::Sweeping, Input::Clean) => State::Clean,
            (State::Sweeping, Input::Missing) => State::Waiting,
            (State::Waiting, Input::Fetched) => State::Due(now),
            (State::Sweeping | State::Waiting, Input::Failed) => State::Due(now + REST),
            // A piece is done before anything else happens, and each answer comes to who waits.
            (state @ State::Sweeping, input @ (Input::Dropped | Input::Tick | Input::Fetched))
            | (
                state @ (State::Clean | State::Due(_)),
                input @ (Input::Swept
                | Input::Clean
                | Input::Missing
                | Input::Fetched
                | Input::Failed),
            )
            | (state @ State::Waiting, input @ (Input::Swept | Input::Clean | Input::Missing)) => {
                unreachable!("{input:?} in {state:?}")
            }
        };
    }

    fn deadline(&self) -> Option<Instant> {
        match self.state {
            State::Due(at) => Some(at),
            State::Clean | State::Sweeping | State::Waiting => None,
        }
    }
}
