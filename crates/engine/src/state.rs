//! State of one transaction, from its beginning until its end.
//!
//! Its owner makes one request at a time. It holds its locks until its changes are applied, or
//! until it is rolled back (strict two-phase locking).
//!
#![doc = include_str!("state/states.md")]

use super::request::{Call, Failure, Reply};
use base::{Automaton, Instant};
use std::mem;
use store::{Durability, Error, Ticket};

#[cfg(test)]
mod tests;

/// An input of a transaction.
#[derive(Clone, Debug)]
pub(crate) enum Input {
    /// A request of its owner.
    Requested(Ticket, TxnRequest),
    /// It was idle for too long, or the volume is being closed.
    Expire,
    /// Result of the call.
    Answered(Result<Reply, Failure>),
    /// The call needs a lock that another owner holds.
    Blocked,
    /// The call needs pages that are not in memory.
    Missing,
    /// The lock is granted.
    Granted,
    /// The pages are fetched, or the disk failed.
    Fetched(Result<(), Error>),
    /// Its changes are visible; they become durable later.
    Applied,
    /// Its changes are impossible, or the lock is refused.
    Refused(Error),
    /// Its changes are durable, or that is unknown.
    Committed(Result<(), Error>),
}

/// A request to a transaction.
#[derive(Clone, Debug)]
pub(crate) enum TxnRequest {
    /// Perform a call.
    Call(Call),
    /// Make its writes visible.
    Commit(Durability),
    /// Discard its writes.
    Rollback,
}

/// An output of a transaction.
#[derive(Clone, Debug)]
pub(crate) enum Output {
    /// Perform the present call.
    Perform,
    /// Apply its changes.
    Apply(Durability),
    /// Release its locks and drop its changes.
    End,
    /// The reply to a request of its owner.
    Reply(Ticket, Result<Reply, Failure>),
}

/// State of a transaction.
#[derive(Debug)]
enum State {
    /// Waiting for its owner, since then.
    Active(Instant),
    /// Performing a call, without waiting.
    Calling(Ticket, Call),
    /// Waiting for a lock.
    Waiting(Ticket, Call),
    /// Waiting for pages.
    Fetching(Ticket, Call),
    /// Waiting until its changes are applied, perhaps for pages; with the reply after that.
    Applying(Ticket, Durability, Reply),
    /// Waiting until its changes are durable, without locks.
    Committing(Ticket, Reply),
    /// Ended.
    Over,
}

/// A transaction.
#[derive(Debug)]
pub(crate) struct TxnState {
    state: State,
    /// Whether it consists of one call, and is committed with it, with this durability.
    once: Option<Durability>,
}

impl TxnState {
    /// Returns a new transaction. `once`: it consists of one call, and is committed with it.
    pub(crate) fn new(now: Instant, once: Option<Durability>) -> TxnState {
        TxnState { state: State::Active(now), once }
    }

    /// Returns the state's name, for people.
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

    /// Returns the call to perform.
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

    /// Returns the time since which it waits for its owner.
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

    /// Handles the result of the call: the next one may follow, unless it was the only one.
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

/// Handles a request of its owner.
fn requested(state: State, ticket: Ticket, request: TxnRequest, out: &mut Vec<Output>) -> State {
    match (state, request) {
        (State::Active(_), TxnRequest::Call(call)) => {
            out.push(Output::Perform);
            State::Calling(ticket, call)
        }
        (State::Active(_), TxnRequest::Commit(durability)) => {
            out.push(Output::Apply(durability));
            State::Applying(ticket, durability, Reply::Done)
        }
        (State::Active(_), TxnRequest::Rollback) => end(ticket, Ok(Reply::Done), out),
        // The waiting request is answered, so that none stays without a reply.
        (State::Waiting(waits, _) | State::Fetching(waits, _), TxnRequest::Rollback) => {
            out.push(Output::Reply(waits, Err(Failure::Over)));
            end(ticket, Ok(Reply::Done), out)
        }
        // One request at a time; and a commit in progress cannot be undone.
        (
            state @ (State::Waiting(..) | State::Fetching(..)),
            TxnRequest::Call(_) | TxnRequest::Commit(_),
        )
        | (
            state @ (State::Applying(..) | State::Committing(..)),
            TxnRequest::Call(_) | TxnRequest::Commit(_) | TxnRequest::Rollback,
        ) => {
            out.push(Output::Reply(ticket, Err(Failure::Busy)));
            state
        }
        // A call is performed before anything else happens, and an ended transaction gets no
        // requests.
        (state @ (State::Calling(..) | State::Over), request) => {
            unreachable!("{request:?} in {state:?}")
        }
    }
}

fn end(ticket: Ticket, answer: Result<Reply, Failure>, out: &mut Vec<Output>) -> State {
    out.extend([Output::End, Output::Reply(ticket, answer)]);
    State::Over
}

impl Automaton for TxnState {
    type Input = Input;
    type Output = Output;

    fn step(&mut self, now: Instant, input: Input, out: &mut Vec<Output>) {
        let state = mem::replace(&mut self.state, State::Over);
        self.state = match (state, input) {
            (state, Input::Requested(ticket, request)) => requested(state, ticket, request, out),
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
            // A commit in progress cannot be undone.
            (state @ (State::Applying(..) | State::Committing(..)), Input::Expire) => state,
            // Each completion matches a state that waits for it; a call is performed before
            // anything else happens.
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
