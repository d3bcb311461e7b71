//! Stand-in of a tree on another node of this process: a replica of a service.
//!
//! It has the tree's number, and forwards requests, cancellations and closes of open files in
//! messages ([`super::messages`]). Messages between two nodes arrive in order, so a cancellation
//! never meets another request with the same number, and the other node knows every open file that
//! is closed. Each request is answered exactly once: by the other node, or here after that has
//! closed the tree.
//!
//! **Bound.** A message is an outstanding request, a cancellation of one, or the close of an open
//! file that the other node has handed out. Outstanding requests are bounded, in number and bytes,
//! by the admission of connections (`admission.rs`), and for storelets by the number of running
//! ones. So no further bound is needed here.
//!
#![doc = include_str!("relay/states.md")]

use base::{Automaton, Error, Instant, Stat};
use std::collections::BTreeMap;
use std::mem;
use tree::{Input as TreeInput, NodeId, OpenId, Reply, Request, RequestId};

#[cfg(test)]
mod tests;

/// Inputs of a stand-in.
#[derive(Clone, Debug)]
pub(crate) enum Input {
    /// A request; exactly one [`Output::Reply`] follows.
    Ask(RequestId, Request),
    /// Cancellation of a request.
    Cancel(RequestId),
    /// Close of an open file.
    Close(OpenId),
    /// Close of an open file whose use is incomplete.
    Abandon(OpenId),
    /// Reply of the other node.
    Replied(RequestId, Result<Reply, Error>),
    /// Shutdown of the server.
    Drain,
    /// Close of the tree.
    Finish,
    /// The other node has closed the tree, and sends nothing more.
    Finished,
}

/// Outputs of a stand-in.
#[derive(Debug)]
pub(crate) enum Output {
    /// An input of the tree.
    Forward(TreeInput),
    /// Shutdown of the server, for the tree.
    Drain,
    /// Close of the tree.
    Finish,
    /// The reply to a request.
    Reply(RequestId, Result<Reply, Error>),
}

/// Outstanding requests, and whether each is cancelled.
type Pending = BTreeMap<RequestId, bool>;

/// State of a stand-in.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// Waiting for requests, and for replies to these.
    Open(Pending),
    /// Waiting for the other node to close the tree, and for replies until then.
    Closing(Pending),
    /// Finished: requests are refused.
    Closed,
}

/// The stand-in automaton.
#[derive(Clone, Debug)]
pub(crate) struct Relay {
    state: State,
    /// Number of the other node.
    node: usize,
    root: NodeId,
    root_stat: Stat,
    /// Number of open files that clients hold.
    opens: usize,
}

impl Relay {
    /// Creates a stand-in for a tree of this node, with this root.
    pub(crate) fn new(node: usize, root: NodeId, root_stat: Stat) -> Relay {
        Relay { state: State::Open(Pending::new()), node, root, root_stat, opens: 0 }
    }

    /// Returns the number of the node that has the tree.
    pub(crate) fn node(&self) -> usize {
        self.node
    }

    /// Returns the root.
    pub(crate) fn root(&self) -> NodeId {
        self.root
    }

    /// Returns the attributes of the root.
    pub(crate) fn root_stat(&self) -> &Stat {
        &self.root_stat
    }

    /// Returns the number of open files that clients hold.
    pub(crate) fn opens(&self) -> usize {
        self.opens
    }

    /// Returns the number of outstanding requests.
    pub(crate) fn pending(&self) -> usize {
        match &self.state {
            State::Open(pending) | State::Closing(pending) => pending.len(),
            State::Closed => 0,
        }
    }

    /// Returns whether the other node has closed the tree.
    pub(crate) fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    /// Uncounts an open file that its client has closed.
    fn give_back(&mut self) {
        assert!(self.opens > 0, "an open file is given back once");
        self.opens -= 1;
    }

    fn forward(pending: &mut Pending, id: RequestId, request: Request, out: &mut Vec<Output>) {
        assert!(pending.insert(id, false).is_none(), "{id:?} is outstanding already");
        out.push(Output::Forward(TreeInput::Ask(id, request)));
    }

    /// Cancels an outstanding request.
    fn cancel(pending: &mut Pending, id: RequestId, out: &mut Vec<Output>) {
        if pending.get_mut(&id).is_some_and(|it| !mem::replace(it, true)) {
            out.push(Output::Forward(TreeInput::Cancel(id)));
        }
    }

    fn answer(
        &mut self,
        pending: &mut Pending,
        id: RequestId,
        reply: Result<Reply, Error>,
        out: &mut Vec<Output>,
    ) {
        assert!(pending.remove(&id).is_some(), "{id:?} is answered once, after its request");
        self.opens += usize::from(hands_out(&reply));
        out.push(Output::Reply(id, reply));
    }
}

/// Returns whether a reply contains an open file.
fn hands_out(reply: &Result<Reply, Error>) -> bool {
    let opened = matches!(reply, Ok(Reply::Opened(..) | Reply::Created(..)));
    opened || matches!(reply, Ok(Reply::Fetched(_, _, Some(_))))
}

impl Automaton for Relay {
    type Input = Input;
    type Output = Output;

    fn step(&mut self, _: Instant, input: Input, out: &mut Vec<Output>) {
        let state = mem::replace(&mut self.state, State::Closed);
        self.state = match (state, input) {
            (State::Open(mut pending), Input::Ask(id, request)) => {
                Relay::forward(&mut pending, id, request, out);
                State::Open(pending)
            }
            (State::Closing(mut pending), Input::Ask(id, request)) => {
                Relay::forward(&mut pending, id, request, out);
                State::Closing(pending)
            }
            (State::Closed, Input::Ask(id, _)) => {
                out.push(Output::Reply(id, Err(Error::Disconnected)));
                State::Closed
            }
            (State::Open(mut pending), Input::Cancel(id)) => {
                Relay::cancel(&mut pending, id, out);
                State::Open(pending)
            }
            (State::Closing(mut pending), Input::Cancel(id)) => {
                Relay::cancel(&mut pending, id, out);
                State::Closing(pending)
            }
            (state @ (State::Open(_) | State::Closing(_)), Input::Close(open)) => {
                self.give_back();
                out.push(Output::Forward(TreeInput::Close(open)));
                state
            }
            (state @ (State::Open(_) | State::Closing(_)), Input::Abandon(open)) => {
                self.give_back();
                out.push(Output::Forward(TreeInput::Abandon(open)));
                state
            }
            (State::Closed, Input::Close(_) | Input::Abandon(_)) => {
                self.give_back();
                State::Closed
            }
            (State::Open(mut pending), Input::Replied(id, reply)) => {
                self.answer(&mut pending, id, reply, out);
                State::Open(pending)
            }
            (State::Closing(mut pending), Input::Replied(id, reply)) => {
                self.answer(&mut pending, id, reply, out);
                State::Closing(pending)
            }
            (state @ (State::Open(_) | State::Closing(_)), Input::Drain) => {
                out.push(Output::Drain);
                state
            }
            (State::Open(pending), Input::Finish) => {
                out.push(Output::Finish);
                State::Closing(pending)
            }
            (State::Closing(pending), Input::Finished) => {
                // Requests that arrived too late for the tree.
                let late = pending.into_keys();
                out.extend(late.map(|id| Output::Reply(id, Err(Error::Disconnected))));
                State::Closed
            }
            (State::Closing(pending), Input::Finish) => State::Closing(pending),
            (State::Closed, Input::Cancel(_) | Input::Drain | Input::Finish) => State::Closed,
            // The other node closes a tree once, on request, and sends nothing afterwards.
            (state @ (State::Open(_) | State::Closed), input @ Input::Finished)
            | (state @ State::Closed, input @ Input::Replied(..)) => {
                unreachable!("{input:?} in {state:?}")
            }
        };
    }
}
