//! A flush of an open union directory: each member is opened and flushed, one after the other.

use crate::table::MountPoint;
use base::{Access, Caller, Error};
use std::sync::Arc;
use tree::{Ask, NodeId, OpenId, Reply};

/// Progress of a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// About to open this member.
    Next(usize),
    /// Waiting for the open of this member.
    Opening(usize),
    /// Waiting for the flush of this member.
    Flushing(usize, OpenId),
}

/// A flush in progress.
#[derive(Debug)]
pub(crate) struct Flush {
    point: Arc<MountPoint>,
    pub(crate) caller: Caller,
    data_only: bool,
    state: State,
    /// The first failure.
    failed: Option<Error>,
}

/// Next action of the flush.
#[derive(Debug)]
pub(crate) enum Step {
    /// Send a request to the tree of this node.
    Ask(NodeId, Ask),
    /// End with this result.
    End(Result<(), Error>),
}

impl Flush {
    pub(crate) fn new(point: Arc<MountPoint>, caller: Caller, data_only: bool) -> Flush {
        Flush { point, caller, data_only, state: State::Next(0), failed: None }
    }

    /// Returns the state's name for `/.upcall/`.
    pub(crate) fn name(&self) -> &'static str {
        match self.state {
            State::Next(_) => "next",
            State::Opening(_) => "opening",
            State::Flushing(..) => "flushing",
        }
    }

    /// Handles a reply; returns the member's open file if it must be closed.
    pub(crate) fn arrive(&mut self, reply: Result<Reply, Error>) -> Option<OpenId> {
        match (self.state, reply) {
            (State::Opening(member), Ok(Reply::Opened(open, _))) => {
                self.state = State::Flushing(member, open);
                None
            }
            // As in a listing, unavailable or unreadable members are skipped.
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

    /// Returns the next action.
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
            State::Opening(_) => unreachable!("a request has no reply"),
        }
    }

    /// Returns the member's open file, to be closed after a cancellation.
    pub(crate) fn take_open(&mut self) -> Option<OpenId> {
        match self.state {
            State::Flushing(_, open) => Some(open),
            State::Next(_) | State::Opening(_) => None,
        }
    }
}
