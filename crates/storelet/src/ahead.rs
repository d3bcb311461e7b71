//! What is asked ahead for a guest: one request at a time, for which it does not wait.
//!
#![doc = include_str!("ahead/states.md")]

use base::{Automaton, Error, Instant};
use std::mem;
use tree::{Ask, Reply};

#[cfg(test)]
mod tests;

/// What can happen to it.
#[derive(Debug)]
pub(crate) enum Input {
    /// The guest will need the answer to this.
    Foreseen(Ask),
    /// It is its turn to ask.
    Admitted,
    /// The answer.
    Answered(Result<Reply, Error>),
    /// The guest has ended.
    Leave,
}

/// What it can ask for.
#[derive(Debug)]
pub(crate) enum Output {
    /// Ask the name space; [`Input::Answered`] follows.
    Ask(Ask),
    /// The answer is not wanted any more; it comes all the same.
    Cancel,
    /// Give the guest this answer.
    Arrived(Result<Reply, Error>),
}

#[derive(Debug, Default)]
enum State {
    /// Nothing is asked.
    #[default]
    Free,
    /// For its turn to ask.
    Queued(Box<Ask>),
    /// For the answer.
    Asking,
    /// For an answer that nobody wants any more.
    Leaving,
}

/// The request that is asked ahead.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    state: State,
}

impl Ahead {
    /// What waits for its turn.
    pub(crate) fn queued(&self) -> Option<&Ask> {
        match &self.state {
            State::Queued(ask) => Some(ask),
            State::Free | State::Asking | State::Leaving => None,
        }
    }

    /// Whether it waits for nothing.
    pub(crate) fn is_free(&self) -> bool {
        matches!(self.state, State::Free)
    }
}

impl Automaton for Ahead {
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
            // A guest asks ahead for one thing at a time.
            (state, input @ (Input::Foreseen(_) | Input::Admitted | Input::Answered(_))) => {
                unreachable!("{input:?} in {state:?}")
            }
        };
    }

    fn deadline(&self) -> Option<Instant> {
        None
    }
}
