//! Prefetching for a guest: one request in flight at a time, which does not block the guest.
//!
#![doc = include_str!("prefetch/states.md")]

use base::{Automaton, Error, Instant};
use std::mem;
use tree::{Ask, Reply};

#[cfg(test)]
mod tests;

/// Inputs of the machine.
#[derive(Debug)]
pub(crate) enum Input {
    /// The guest is expected to need the reply to this request.
    Foreseen(Ask),
    /// The request is admitted.
    Admitted,
    /// The reply.
    Answered(Result<Reply, Error>),
    /// The guest has ended.
    Leave,
}

/// Outputs of the machine.
#[derive(Debug)]
pub(crate) enum Output {
    /// Send a request to the namespace; [`Input::Answered`] follows.
    Ask(Ask),
    /// Cancel the request; its reply comes nevertheless.
    Cancel,
    /// Deliver this reply to the guest.
    Arrived(Result<Reply, Error>),
}

#[derive(Debug, Default)]
enum State {
    /// No request outstanding.
    #[default]
    Free,
    /// Waiting for admission of the request.
    Queued(Box<Ask>),
    /// Waiting for the reply.
    Asking,
    /// Waiting for a reply to discard, after the end of the guest.
    Leaving,
}

/// The prefetch request of a guest.
#[derive(Debug, Default)]
pub(crate) struct Prefetch {
    state: State,
}

impl Prefetch {
    /// Returns the request that waits for admission.
    pub(crate) fn queued(&self) -> Option<&Ask> {
        match &self.state {
            State::Queued(ask) => Some(ask),
            State::Free | State::Asking | State::Leaving => None,
        }
    }

    /// Returns whether no request is outstanding.
    pub(crate) fn is_free(&self) -> bool {
        matches!(self.state, State::Free)
    }
}

impl Automaton for Prefetch {
    type Input = Input;
    type Output = Output;

    fn step(&mut self, _: Instant, input: Input, out: &mut Vec<Output>) {
        let state = mem::take(&mut self.state);
        self.state = match (state, input) {
            (State::Free, Input::Foreseen(ask)) => State::Queued(Box::new(ask)),
            (State::Queued(ask), Input::Admitted) => {
                out.push(Output::Ask(*ask));
                State::Asking
            }
            (State::Asking, Input::Answered(reply)) => {
                out.push(Output::Arrived(reply));
                State::Free
            }
            (State::Asking, Input::Leave) => {
                out.push(Output::Cancel);
                State::Leaving
            }
            (State::Leaving, Input::Answered(_))
            | (State::Free | State::Queued(_), Input::Leave) => State::Free,
            (State::Leaving, Input::Leave) => State::Leaving,
            // A guest has at most one prefetch request outstanding.
            (state, input @ (Input::Foreseen(_) | Input::Admitted | Input::Answered(_))) => {
                unreachable!("{input:?} in {state:?}")
            }
        };
    }

    fn deadline(&self) -> Option<Instant> {
        None
    }
}
