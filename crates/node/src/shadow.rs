//! A simulated front, which sends arbitrary requests to home without sessions, and inspects the
//! messages between nodes.

use super::fairness::Client;
use super::letters::{self, ClientLetter, Letter};
use super::{HOME, NODES_MAX};
use base::Error;
use base::op::{Op, Parcel};
use storelet::Crossing;
use tree::{Reply, RequestId};

/// A message from home to a front.
#[derive(Debug)]
pub enum Heard {
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
    pub fn tell(self, input: names::Input) -> Op {
        let (client, mut ops) = (Client { node: self.0, slot: 0 }, Vec::new());
        letters::post_client(HOME, ClientLetter::Names(client, input), &mut ops);
        ops.pop().expect("it is one letter")
    }

    /// Returns the operation that notifies home of the end of this front, after its last request.
    pub fn leave(self) -> Op {
        Op::Post { to: HOME, parcel: Parcel(Box::new(Letter::Over(self.0))) }
    }

    /// Decodes a message from home.
    ///
    /// # Panics
    /// If the message is not for fronts.
    pub fn hear(self, parcel: Parcel) -> Heard {
        match parcel.0.downcast::<ClientLetter>() {
            Ok(letter) => match *letter {
                ClientLetter::Reply(id, reply) => Heard::Reply(id, reply),
                ClientLetter::Names(..) | ClientLetter::Closed(_) => Heard::Other,
            },
            Err(other) => match *other.downcast::<Letter>().expect("fronts get letters") {
                Letter::Drain => Heard::Drain,
                Letter::Names(..)
                | Letter::Reply(..)
                | Letter::Report(_)
                | Letter::Reported(..)
                | Letter::Over(_)
                | Letter::Forward(..)
                | Letter::DrainTree(_)
                | Letter::CloseTree(_)
                | Letter::Replied(..)
                | Letter::Closed(_)
                | Letter::News(_)
                | Letter::Unresponsive(..) => Heard::Other,
            },
        }
    }
}

/// Returns a label of a message, for traces.
pub fn label(parcel: &Parcel) -> String {
    if let Some(crossing) = parcel.0.downcast_ref::<Crossing>() {
        return format!("{crossing:?}");
    }
    if let Some(letter) = parcel.0.downcast_ref::<ClientLetter>() {
        return format!("{letter:?}");
    }
    match parcel.0.downcast_ref::<Letter>() {
        Some(letter) => format!("{letter:?}"),
        None => "something".to_string(),
    }
}

/// Returns a duplicate of a message that releases a node, for canaries.
pub fn duplicate(parcel: &Parcel) -> Option<Parcel> {
    if let Some(ClientLetter::Names(client, names::Input::Release(node))) = parcel.0.downcast_ref()
    {
        return Some(Parcel(Box::new(ClientLetter::Names(*client, names::Input::Release(*node)))));
    }
    let Letter::Names(worker, names::Input::Release(node)) = parcel.0.downcast_ref()? else {
        return None;
    };
    Some(Parcel(Box::new(Letter::Names(*worker, names::Input::Release(*node)))))
}
