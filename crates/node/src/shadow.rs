//! A simulated front, which sends arbitrary requests to home without sessions, and inspects the
//! messages between nodes.

use super::messages::{self, ClientMessage, NodeMessage};
use super::role::Client;
use super::{HOME, NODES_MAX};
use base::Error;
use base::op::{Envelope, Op};
use storelet::Crossing;
use tree::{Reply, RequestId};

/// A message from home to a front.
#[derive(Debug)]
pub enum FromHome {
    /// Reply to a request.
    Reply(RequestId, Result<Reply, Error>),
    /// Shutdown.
    Drain,
    /// Irrelevant message.
    Other,
}

/// The front with this number.
#[derive(Clone, Copy, Debug)]
pub struct Shadow(usize);

impl Shadow {
    /// Creates a front in the place of a node.
    ///
    /// # Panics
    /// If the number is invalid for a front.
    pub fn new(number: usize) -> Shadow {
        assert!(number != HOME && number <= NODES_MAX, "node {number}");
        Shadow(number)
    }

    /// Returns the operation that sends a message of one connection to home: its releases follow
    /// its requests, whatever their simulated clients.
    pub fn send_home(self, input: names::Input) -> Op {
        let (client, mut ops) = (Client { node: self.0, slot: 0 }, Vec::new());
        messages::post_client(HOME, ClientMessage::Names(client, input), &mut ops);
        ops.pop().expect("it is one message")
    }

    /// Returns the operation that notifies home of the end of this front, after its last request.
    pub fn leave(self) -> Op {
        Op::Post { to: HOME, envelope: Envelope(Box::new(NodeMessage::Over(self.0))) }
    }

    /// Decodes a message from home.
    ///
    /// # Panics
    /// If the message is not for fronts.
    pub fn handle(self, envelope: Envelope) -> FromHome {
        match envelope.0.downcast::<ClientMessage>() {
            Ok(node_message) => match *node_message {
                ClientMessage::Reply(id, reply) => FromHome::Reply(id, reply),
                ClientMessage::Names(..)
                | ClientMessage::Locks(..)
                | ClientMessage::LocksReply(..)
                | ClientMessage::Opened(..)
                | ClientMessage::Closed(_) => FromHome::Other,
            },
            Err(other) => {
                match *other.downcast::<NodeMessage>().expect("fronts receive node messages") {
                    NodeMessage::Drain => FromHome::Drain,
                    NodeMessage::Names(..)
                    | NodeMessage::Reply(..)
                    | NodeMessage::Report(_)
                    | NodeMessage::Reported(..)
                    | NodeMessage::Over(_)
                    | NodeMessage::Forward(..)
                    | NodeMessage::DrainTree(_)
                    | NodeMessage::CloseTree(_)
                    | NodeMessage::Replied(..)
                    | NodeMessage::Closed(_)
                    | NodeMessage::LogMessage(_)
                    | NodeMessage::Unresponsive(..) => FromHome::Other,
                }
            }
        }
    }
}

/// Returns a label of a message, for traces.
pub fn label(envelope: &Envelope) -> String {
    if let Some(crossing) = envelope.0.downcast_ref::<Crossing>() {
        return format!("{crossing:?}");
    }
    if let Some(node_message) = envelope.0.downcast_ref::<ClientMessage>() {
        return format!("{node_message:?}");
    }
    match envelope.0.downcast_ref::<NodeMessage>() {
        Some(node_message) => format!("{node_message:?}"),
        None => "something".to_string(),
    }
}

/// Returns a duplicate of a message that releases a node, for canaries.
pub fn duplicate(envelope: &Envelope) -> Option<Envelope> {
    if let Some(ClientMessage::Names(client, names::Input::Release(node))) =
        envelope.0.downcast_ref()
    {
        return Some(Envelope(Box::new(ClientMessage::Names(
            *client,
            names::Input::Release(*node),
        ))));
    }
    let NodeMessage::Names(worker, names::Input::Release(node)) = envelope.0.downcast_ref()? else {
        return None;
    };
    Some(Envelope(Box::new(NodeMessage::Names(*worker, names::Input::Release(*node)))))
}
