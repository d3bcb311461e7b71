//! A front that is no node: for simulations, which ask home what they like without sessions, and
//! look at what nodes say to each other.

use super::fairness::Client;
use super::letters::{self, ClientLetter, Letter};
use super::{HOME, NODES_MAX};
use base::Error;
use base::op::{Op, Parcel};
use storelet::Crossing;
use tree::{Reply, RequestId};

/// What home tells a front.
#[derive(Debug)]
pub enum Heard {
    /// The answer to a request.
    Reply(RequestId, Result<Reply, Error>),
    /// To end.
    Drain,
    /// Something that is of no concern.
    Other,
}

/// The front with this number.
#[derive(Clone, Copy, Debug)]
pub struct Shadow(usize);

impl Shadow {
    /// A front that takes a node's place.
    ///
    /// # Panics
    /// If no front can have this number.
    pub fn new(number: usize) -> Shadow {
        assert!(number != HOME && number <= NODES_MAX, "node {number}");
        Shadow(number)
    }

    /// The operation that sends this home, as a message of one connection: what it gives back is
    /// behind its requests, whichever of its parts they are of.
    pub fn tell(self, input: names::Input) -> Op {
        let (client, mut ops) = (Client { node: self.0, slot: 0 }, Vec::new());
        letters::post_client(HOME, ClientLetter::Names(client, input), &mut ops);
        ops.pop().expect("it is one letter")
    }

    /// What tells home that this front has ended, and asks for nothing more.
    pub fn leave(self) -> Op {
        Op::Post { to: HOME, parcel: Parcel(Box::new(Letter::Over(self.0))) }
    }

    /// What home has told.
    ///
    /// # Panics
    /// If it is not for fronts.
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

/// What a parcel is, for a trace.
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

/// Another letter that gives the same node back, for canaries.
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
