//! A listener: accepts connections, some at a time, while there is room for them.
//!
//! When the host has no file descriptor left, it waits a moment and tries again: connections
//! that end make room.
//!
#![doc = include_str!("listener/states.md")]

use base::op::Listener as Port;
use base::{Automaton, Error, Instant};
use std::time::Duration;

#[cfg(test)]
mod tests;

/// How long to wait when accepting failed.
pub const PAUSE: Duration = Duration::from_millis(50);

/// Maximum number of connections accepted at once. Others wait meanwhile: with eight, beside
/// clients that connect again and again, connections that are kept waited longer.
pub(crate) const ACCEPTED_MAX: usize = 2;

/// What can happen to a listener.
#[derive(Clone, Copy, Debug)]
pub enum Input {
    /// Number of connections that there is room for, at least one; said every turn to those that
    /// wait for it.
    Room(usize),
    /// There is no room.
    Full,
    /// Connections came.
    Accepted,
    /// Accepting failed.
    Failed(Error),
    /// No more connections are wanted.
    Close,
}

/// What a listener can ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Accept connections, with the maximum number.
    Accept(Port, usize),
    /// Stop accepting.
    Cancel,
    /// Refuse who tries to connect.
    Close(Port),
}

/// What a listener waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// For room.
    Idle,
    /// For a connection.
    Accepting,
    /// For a better time.
    Pausing(Instant),
    /// For the end of the last accept.
    Closing,
    /// For nothing.
    Closed,
}

/// The listener automaton.
#[derive(Clone, Debug)]
pub struct Listener {
    port: Port,
    state: State,
}

impl Listener {
    /// A listener that has not begun to accept.
    pub fn new(port: Port) -> Listener {
        Listener { port, state: State::Idle }
    }

    /// Whether it has ended.
    pub fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    /// Whether it waits for room, or for a better time.
    pub fn is_waiting(&self) -> bool {
        matches!(self.state, State::Idle | State::Pausing(_))
    }

    /// The state in one word.
    pub fn state_name(&self) -> &'static str {
        match self.state {
            State::Idle => "full",
            State::Accepting => "accepting",
            State::Pausing(_) => "pausing",
            State::Closing => "closing",
            State::Closed => "closed",
        }
    }
}

impl Automaton for Listener {
    type Input = Input;
    type Output = Output;

    fn step(&mut self, now: Instant, input: Input, out: &mut Vec<Output>) {
        self.state = match (self.state, input) {
            (State::Idle, Input::Room(room)) => {
                out.push(Output::Accept(self.port, room.min(ACCEPTED_MAX)));
                State::Accepting
            }
            (State::Accepting, Input::Accepted) => State::Idle,
            // Who has gone before being taken in says nothing about who comes next.
            (State::Accepting, Input::Failed(Error::Cancelled | Error::Disconnected)) => {
                State::Idle
            }
            (State::Accepting, Input::Failed(_)) => State::Pausing(now + PAUSE),
            (State::Pausing(until), Input::Room(room)) if until <= now => {
                out.push(Output::Accept(self.port, room.min(ACCEPTED_MAX)));
                State::Accepting
            }
            // There is nothing to wake up for: that there is room again will be said.
            (State::Pausing(until), Input::Full) if until <= now => State::Idle,
            (State::Accepting, Input::Close) => {
                out.push(Output::Cancel);
                State::Closing
            }
            (State::Closing, Input::Accepted | Input::Failed(_)) => {
                out.push(Output::Close(self.port));
                State::Closed
            }
            (State::Idle | State::Pausing(_), Input::Close) => {
                out.push(Output::Close(self.port));
                State::Closed
            }
            (
                state @ (State::Accepting | State::Pausing(_) | State::Closing | State::Closed),
                Input::Room(_),
            )
            | (state, Input::Full)
            | (state @ (State::Closing | State::Closed), Input::Close) => state,
            // Only the one accept that is under way completes.
            (
                state @ (State::Idle | State::Pausing(_) | State::Closed),
                input @ (Input::Accepted | Input::Failed(_)),
            ) => unreachable!("{input:?} in {state:?}"),
        };
    }

    fn deadline(&self) -> Option<Instant> {
        match self.state {
            State::Pausing(until) => Some(until),
            State::Idle | State::Accepting | State::Closing | State::Closed => None,
        }
    }
}
