//! A flush of an open union directory: each member is opened and flushed, one after the other.

use crate::table::Point;
use base::{Access, Caller, Error};
use std::sync::Arc;
use tree::{Ask, NodeId, OpenId, Reply};

/// State of a flush: the answer that it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// None: this member is next.
    Next(usize),
    /// Of the opening of this member.
    Opening(usize),
    /// Of the flush of this member.
    Flushing(usize, OpenId),
}

/// The flush.
#[derive(Debug)]
pub(crate) struct Flush {
    point: Arc<Point>,
    pub(crate) caller: Caller,
    data_only: bool,
    state: State,
    /// The first failure.
    failed: Option<Error>,
}

/// What it wants next.
#[derive(Debug)]
pub(crate) enum Step {
    /// Ask the tree of this node.
    Ask(NodeId, Ask),
    /// Nothing: this answers the flush.
    End(Result<(), Error>),
}

impl Flush {
    pub(crate) fn new(point: Arc<Point>, caller: Caller, data_only: bool) -> Flush {
        Flush { point, caller, data_only, state: State::Next(0), failed: None }
    }

    /// The state in one word.
    pub(crate) fn name(&self) -> &'static str {
        match self.state {
            State::Next(_) => "next",
            State::Opening(_) => "opening",
            State::Flushing(..) => "flushing",
        }
    }

    /// Takes the answer to what was asked for; gives the member's open file, to be closed.
    pub(crate) fn arrive(&mut self, reply: Result<Reply, Error>) -> Option<OpenId> {
        match (self.state, reply) {
            (State::Opening(member), Ok(Reply::Opened(open, _))) => {
                self.state = State::Flushing(member, open);
                None
            }
            // As in a listing, a union goes on without members that are away or may not be read.
            (State::Opening(member), Err(_)) => {
                self.state = State::Next(member + 1);
                None
            }
            (State::Flushing(member, open), reply) => {
                self.state = State::Next(member + 1);
                self.failed = self.failed.or(reply.err());
                Some(open)
            }
            (state, reply) => unreachable!("{reply:?} in {state:?}"),
        }
    }

    /// What to ask for next.
    pub(crate) fn next(&mut self) -> Step {
        match self.state {
            State::Next(member) => match self.point.members.get(member) {
                Some(next) => {
                    self.state = State::Opening(member);
                    let node = next.root.node;
                    Step::Ask(node, Ask::Open { node, access: Access::READ })
                }
                None => Step::End(self.failed.map_or(Ok(()), Err)),
            },
            State::Flushing(member, open) => {
                let node = self.point.members[member].root.node;
                Step::Ask(node, Ask::Sync { open, data_only: self.data_only })
            }
            State::Opening(_) => unreachable!("what was asked for has not been answered"),
        }
    }

    /// The member's open file, to be closed: nobody wants the flush any more.
    pub(crate) fn take_open(&mut self) -> Option<OpenId> {
        match self.state {
            State::Flushing(_, open) => Some(open),
            State::Next(_) | State::Opening(_) => None,
        }
    }
}
