//! The course of one transaction, from its beginning until it is over.
//!
//! Its owner asks for one thing at a time. What it has locked it keeps until its changes are
//! applied, or until it is rolled back (strict two-phase locking).
//!
#![doc = include_str!("states.md")]

use super::request::{Call, Failure, Reply};
use crate::{Durability, Error, Ticket};
use base::{Automaton, Instant};
use std::mem;

#[cfg(test)]
mod tests;

/// What can happen to a transaction.
#[derive(Clone, Debug)]
pub(crate) enum Input {
    /// Its owner wants something.
    Asked(Ticket, Wish),
    /// It was idle for too long, or the volume is being closed.
    Expire,
    /// The call was done, or refused.
    Answered(Result<Reply, Failure>),
    /// The call needs a lock that somebody else holds.
    Blocked,
    /// The call needs pages that are not in memory.
    Missing,
    /// It holds the lock now.
    Granted,
    /// The pages are there, or the disk failed.
    Fetched(Result<(), Error>),
    /// Its changes are visible, and durable later.
    Applied,
    /// Its changes cannot be made, or it will not get the lock.
    Refused(Error),
    /// Its changes are durable, or nobody knows.
    Committed(Result<(), Error>),
}

/// What its owner can want of a transaction.
#[derive(Clone, Debug)]
pub(crate) enum Wish {
    /// To do something.
    Call(Call),
    /// To make visible what it wrote.
    Commit(Durability),
    /// To forget it.
    Rollback,
}

/// What a transaction can ask for.
#[derive(Clone, Debug)]
pub(crate) enum Output {
    /// Do the call that it is at.
    Perform,
    /// Apply its changes.
    Apply(Durability),
    /// It needs its locks and its changes no more.
    End,
    /// The answer to a request of its owner.
    Reply(Ticket, Result<Reply, Failure>),
}

/// How far a transaction is.
#[derive(Debug)]
enum State {
    /// Waits for its owner, since then.
    Active(Instant),
    /// Its call is being done; it waits for nothing.
    Calling(Ticket, Call),
    /// Waits for a lock.
    Waiting(Ticket, Call),
    /// Waits for pages.
    Fetching(Ticket, Call),
    /// Waits until its changes are applied, perhaps for pages; then this will be the answer.
    Applying(Ticket, Durability, Reply),
    /// Waits until its changes are durable. It holds no locks any more.
    Committing(Ticket, Reply),
    /// Nothing can happen to it any more.
    Over,
}

/// A transaction.
#[derive(Debug)]
pub(crate) struct Course {
    state: State,
    /// It consists of one call, and is committed with it.
    once: Option<Durability>,
}

impl Course {
    /// One that begins now. `once`: it consists of one call, and is committed with it.
    pub(crate) fn new(now: Instant, once: Option<Durability>) -> Course {
        Course { state: State::Active(now), once }
    }

    /// The state, for people.
    pub(crate) fn state_name(&self) -> &'static str {
        match self.state {
            State::Active(_) => "active",
            State::Calling(..) => "calling",
            State::Waiting(..) => "waiting for a lock",
            State::Fetching(..) => "waiting for pages",
            State::Applying(..) => "applying",
            State::Committing(..) => "committing",
            State::Over => "over",
        }
    }

    /// The call to be done.
    pub(crate) fn call(&self) -> Option<&Call> {
        match &self.state {
            State::Calling(_, call) => Some(call),
            State::Active(_)
            | State::Waiting(..)
            | State::Fetching(..)
            | State::Applying(..)
            | State::Committing(..)
            | State::Over => None,
        }
    }

    /// Since when it waits for its owner.
    pub(crate) fn idle_since(&self) -> Option<Instant> {
        match self.state {
            State::Active(since) => Some(since),
            State::Calling(..)
            | State::Waiting(..)
            | State::Fetching(..)
            | State::Applying(..)
            | State::Committing(..)
            | State::Over => None,
        }
    }

    pub(crate) fn is_waiting(&self) -> bool {
        matches!(self.state, State::Waiting(..))
    }

    pub(crate) fn is_over(&self) -> bool {
        matches!(self.state, State::Over)
    }

    /// The call was done: the next one may come, unless it was the only one.
    fn answer(
        &self,
        now: Instant,
        ticket: Ticket,
        answer: Result<Reply, Failure>,
        out: &mut Vec<Output>,
    ) -> State {
        match (self.once, answer) {
            (Some(durability), Ok(reply)) => {
                out.push(Output::Apply(durability));
                State::Applying(ticket, durability, reply)
            }
            (Some(_), Err(failure)) => end(ticket, Err(failure), out),
            (None, answer) => {
                out.push(Output::Reply(ticket, answer));
                State::Active(now)
            }
        }
    }
}

/// Its owner wants something.
fn asked(state: State, ticket: Ticket, wish: Wish, out: &mut Vec<Output>) -> State {
    match (state, wish) {
        (State::Active(_), Wish::Call(call)) => {
            out.push(Output::Perform);
            State::Calling(ticket, call)
        }
        (State::Active(_), Wish::Commit(durability)) => {
            out.push(Output::Apply(durability));
            State::Applying(ticket, durability, Reply::Done)
        }
        (State::Active(_), Wish::Rollback) => end(ticket, Ok(Reply::Done), out),
        // Who waits is told, so that no request stays without its answer.
        (State::Waiting(waits, _) | State::Fetching(waits, _), Wish::Rollback) => {
            out.push(Output::Reply(waits, Err(Failure::Over)));
            end(ticket, Ok(Reply::Done), out)
        }
        // One thing at a time; and what is being committed cannot be taken back.
        (state @ (State::Waiting(..) | State::Fetching(..)), Wish::Call(_) | Wish::Commit(_))
        | (
            state @ (State::Applying(..) | State::Committing(..)),
            Wish::Call(_) | Wish::Commit(_) | Wish::Rollback,
        ) => {
            out.push(Output::Reply(ticket, Err(Failure::Busy)));
            state
        }
        // A call is done before anything else happens, and who is over is not asked.
        (state @ (State::Calling(..) | State::Over), wish) => {
            unreachable!("{wish:?} in {state:?}")
        }
    }
}

fn end(ticket: Ticket, answer: Result<Reply, Failure>, out: &mut Vec<Output>) -> State {
    out.extend([Output::End, Output::Reply(ticket, answer)]);
    State::Over
}

impl Automaton for Course {
    type Input = Input;
    type Output = Output;

    fn step(&mut self, now: Instant, input: Input, out: &mut Vec<Output>) {
        let state = mem::replace(&mut self.state, State::Over);
        self.state = match (state, input) {
            (state, Input::Asked(ticket, wish)) => asked(state, ticket, wish, out),
            (State::Active(_), Input::Expire) => {
                out.push(Output::End);
                State::Over
            }
            (State::Calling(ticket, _), Input::Answered(answer)) => {
                self.answer(now, ticket, answer, out)
            }
            (State::Calling(ticket, call), Input::Blocked) => State::Waiting(ticket, call),
            (State::Calling(ticket, call), Input::Missing) => State::Fetching(ticket, call),
            (State::Waiting(ticket, call), Input::Granted)
            | (State::Fetching(ticket, call), Input::Fetched(Ok(()))) => {
                out.push(Output::Perform);
                State::Calling(ticket, call)
            }
            (State::Fetching(ticket, _), Input::Fetched(Err(error))) => {
                self.answer(now, ticket, Err(error.into()), out)
            }
            (State::Waiting(ticket, _), Input::Refused(error)) => {
                self.answer(now, ticket, Err(error.into()), out)
            }
            (State::Waiting(waits, _) | State::Fetching(waits, _), Input::Expire) => {
                end(waits, Err(Failure::Over), out)
            }
            (State::Applying(ticket, durability, reply), Input::Fetched(Ok(()))) => {
                out.push(Output::Apply(durability));
                State::Applying(ticket, durability, reply)
            }
            (State::Applying(ticket, ..), Input::Fetched(Err(error)) | Input::Refused(error)) => {
                end(ticket, Err(error.into()), out)
            }
            (State::Applying(ticket, Durability::Soon, reply), Input::Applied) => {
                end(ticket, Ok(reply), out)
            }
            (State::Applying(ticket, Durability::Durable, reply), Input::Applied) => {
                out.push(Output::End);
                State::Committing(ticket, reply)
            }
            (State::Committing(ticket, reply), Input::Committed(result)) => {
                out.push(Output::Reply(ticket, result.map(|()| reply).map_err(Failure::from)));
                State::Over
            }
            // What is being committed cannot be taken back.
            (state @ (State::Applying(..) | State::Committing(..)), Input::Expire) => state,
            // Each answer comes to who waits for it; a call is done before anything else happens.
            (state @ State::Calling(..), input @ Input::Expire)
            | (state @ State::Over, input)
            | (
                state,
                input @ (Input::Answered(_)
                | Input::Blocked
                | Input::Missing
                | Input::Granted
                | Input::Fetched(_)
                | Input::Applied
                | Input::Refused(_)
                | Input::Committed(_)),
            ) => unreachable!("{input:?} in {state:?}"),
        };
    }
}
