//! The sweeper: removes the entries of dropped tables, a bounded piece at a time.
//!
//! Dropping a table only removes its name and records its number; the rest is done here, between
//! requests, and continues after the next opening of the volume. The machine only schedules the
//! pieces; their contents are planned like a call.
//!
#![doc = include_str!("sweeper/states.md")]

use base::{Automaton, Instant};
use std::time::Duration;

#[cfg(test)]
mod tests;

/// Pause after each piece, for other users of the store.
const PAUSE: Duration = Duration::from_millis(1);

/// Pause after a failure.
const REST: Duration = Duration::from_secs(10);

/// An input of the sweeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    /// A table was dropped, or the volume was opened, perhaps with tables dropped before.
    Dropped,
    /// A turn ends.
    Tick,
    /// A piece was removed; there may be more.
    Swept,
    /// Nothing is left.
    Clean,
    /// The piece needs pages that are not in memory, or space.
    Missing,
    /// The pages are fetched.
    Fetched,
    /// A transient failure.
    Failed,
}

/// An output of the sweeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// Remove a piece.
    Sweep,
}

/// State of the sweeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing is left of any dropped table.
    Clean,
    /// Waiting for this time.
    Due(Instant),
    /// Removing a piece, without waiting.
    Sweeping,
    /// Waiting for pages, or for space.
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
            // A piece is removed before anything else happens, and each completion matches a
            // waiting state.
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
