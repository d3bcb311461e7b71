//! A session of whichever protocol.

use crate::{Export, Identity, Input, Output, Room, http, ninep};
use base::op::ReceiveBuf;
use base::{Automaton, Instant};

/// Which protocol a listener speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protocol {
    /// 9P2000 and 9P2000.L.
    NineP,
    /// HTTP/1.1.
    Http,
}

/// A session of whichever protocol: an automaton that hands everything on.
#[derive(Debug)]
pub enum Session {
    /// 9P2000 and 9P2000.L.
    NineP(Box<ninep::Session>),
    /// HTTP/1.1.
    Http(Box<http::Session>),
}

/// Calls the same method of either session.
macro_rules! either {
    ($self:expr, $session:ident => $call:expr) => {
        match $self {
            Session::NineP($session) => $call,
            Session::Http($session) => $call,
        }
    };
}

impl Session {
    /// A connection just accepted. `local`: by way of a loopback address or a unix socket.
    pub fn new(protocol: Protocol, export: Export, identity: Identity, local: bool) -> Session {
        match (protocol, identity) {
            (Protocol::NineP, identity) => {
                Session::NineP(Box::new(ninep::Session::new(export, identity)))
            }
            (Protocol::Http, Identity::Fixed(caller)) => {
                Session::Http(Box::new(http::Session::new(export, caller, local)))
            }
            (Protocol::Http, Identity::Claimed(_)) => {
                unreachable!("HTTP has no word for a user that could be believed")
            }
        }
    }

    /// The protocol.
    pub fn protocol(&self) -> Protocol {
        match self {
            Session::NineP(_) => Protocol::NineP,
            Session::Http(_) => Protocol::Http,
        }
    }

    /// The kernel says who the client is: it may ask to command the server. HTTP has no way to
    /// ask, because what hands HTTP on to a unix socket does so for anybody.
    pub fn let_command(&mut self) {
        match self {
            Session::NineP(session) => session.let_command(),
            Session::Http(session) => session.let_command(),
        }
    }

    /// Sets the session's own number among those of the process.
    pub fn set_number(&mut self, number: u64) {
        match self {
            Session::NineP(_) => {}
            Session::Http(session) => session.set_number(number),
        }
    }

    /// Whether the connection should be read.
    pub fn is_hungry(&self) -> bool {
        either!(self, session => session.is_hungry())
    }

    /// Memory to receive into: more than the default if a large message is under way.
    pub fn receive_into(&mut self) -> ReceiveBuf {
        either!(self, session => session.receive_into())
    }

    /// Whether nothing is left to wait for, so that the session can be forgotten.
    pub fn is_over(&self) -> bool {
        either!(self, session => session.is_over())
    }

    /// Sets the memory that the node has left.
    pub fn set_room(&mut self, room: Room) {
        either!(self, session => session.set_room(room));
    }

    /// Whether a request waits for memory alone.
    pub fn lacks_room(&self) -> bool {
        either!(self, session => session.lacks_room())
    }

    /// Whether the client has begun a message, or a body, and owes the rest.
    pub fn owes_bytes(&self) -> bool {
        either!(self, session => session.owes_bytes())
    }

    /// Whether nothing is lost for the client if the connection ends now and is made again: no
    /// request has been begun, and no file is held.
    pub fn is_idle(&self) -> bool {
        either!(self, session => session.is_idle())
    }

    /// Whether no request has been begun, and no file is open: a client that attaches again has
    /// everything back.
    pub fn is_resting(&self) -> bool {
        match self {
            Session::NineP(session) => session.is_resting(),
            Session::Http(session) => session.is_idle(),
        }
    }

    /// Whether something that the client has begun has not ended.
    pub fn has_begun(&self) -> bool {
        match self {
            Session::NineP(session) => session.has_begun(),
            Session::Http(session) => !session.is_idle(),
        }
    }

    /// Bytes held: received, asked for, gathered, and said but not yet sent.
    pub fn bytes(&self) -> usize {
        either!(self, session => session.bytes())
    }

    /// Bytes said and not yet sent.
    pub fn unsent(&self) -> usize {
        either!(self, session => session.unsent())
    }

    /// Nodes and open files held for the client; over HTTP only while a request takes.
    pub fn handles(&self) -> usize {
        match self {
            Session::NineP(session) => session.handles(),
            Session::Http(session) => session.handles(),
        }
    }

    /// Protocol and state in one word each, for `/.upcall/`.
    pub fn state_name(&self) -> (&'static str, &'static str) {
        match self {
            Session::NineP(session) => ("9p", session.state_name()),
            Session::Http(session) => ("http", session.state_name()),
        }
    }

    /// What each call under way waits for, for `/.upcall/`.
    pub fn awaits(&self) -> Vec<&'static str> {
        either!(self, session => session.awaits().collect())
    }
}

impl Automaton for Session {
    type Input = Input;
    type Output = Output;

    fn step(&mut self, now: Instant, input: Input, out: &mut Vec<Output>) {
        either!(self, session => session.step(now, input, out));
    }

    fn deadline(&self) -> Option<Instant> {
        either!(self, session => session.deadline())
    }

    fn check(&self) {
        either!(self, session => session.check());
    }
}
