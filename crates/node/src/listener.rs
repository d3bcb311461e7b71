//! A listener: accepts connections, a few at a time, while there is room for them.
//!
//! When the host has no file descriptor left, it pauses and retries: connections that end make
//! room.
//!
#![doc = include_str!("listener/states.md")]

use base::op::Listener as Port;
use base::{Automaton, Error, Instant};
use std::time::Duration;

#[cfg(test)]
mod tests;

/// Pause after a failed accept.
pub const PAUSE: Duration = Duration::from_millis(50);

/// Maximum number of connections accepted at once. Others wait meanwhile: with eight, clients that
/// reconnect continuously delayed established connections more.
pub(crate) const ACCEPTED_MAX: usize = 2;

/// Inputs of a listener.
#[derive(Clone, Copy, Debug)]
pub enum Input {
    /// Number of connections that there is room for, at least one; sent every turn to listeners
    /// that wait for it.
    Room(usize),
    /// There is no room.
    Full,
    /// Connections were accepted.
    Accepted,
    /// The accept failed.
    Failed(Error),
    /// Stop accepting.
    Close,
}

/// Outputs of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Accept connections, at most this number.
    Accept(Port, usize),
    /// Cancel the accept.
    Cancel,
    /// Refuse further connections.
    Close(Port),
}

/// State of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Waiting for room.
    Idle,
    /// Waiting for a connection.
    Accepting,
    /// Waiting for the end of a pause.
    Pausing(Instant),
    /// Waiting for the end of the last accept.
    Closing,
    /// Finished.
    Closed,
}

/// The listener automaton.
#[derive(Clone, Debug)]
pub struct Listener {
    port: Port,
    state: State,
}

impl Listener {
    /// Creates a listener that has not begun to accept.
    pub fn new(port: Port) -> Listener {
        Listener { port, state: State::Idle }
    }

    /// Returns whether it has ended.
    pub fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    /// Returns whether it waits for room, or for the end of a pause.
    pub fn is_waiting(&self) -> bool {
        matches!(self.state, State::Idle | State::Pausing(_))
    }

    /// Returns the state as one word.
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
            // A client that has disconnected before the accept is no sign of a shortage.
            (State::Accepting, Input::Failed(Error::Cancelled | Error::Disconnected)) => {
                State::Idle
            }
            (State::Accepting, Input::Failed(_)) => State::Pausing(now + PAUSE),
            (State::Pausing(until), Input::Room(room)) if until <= now => {
                out.push(Output::Accept(self.port, room.min(ACCEPTED_MAX)));
                State::Accepting
            }
            // No alarm is needed: the next room is announced.
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
            // Only the accept in flight completes.
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
