//! A session of any protocol.

use crate::{Export, Identity, Input, Output, Room, http, nfs, ninep};
use base::op::ReceiveBuf;
use base::{Automaton, Instant};

/// Protocol of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protocol {
    /// 9P2000 and 9P2000.L.
    NineP,
    /// NFSv3.
    Nfs,
    /// HTTP/1.1.
    Http,
}

/// A session of any protocol: an automaton that delegates all inputs.
#[derive(Debug)]
pub enum Session {
    /// 9P2000 and 9P2000.L.
    NineP(Box<ninep::Session>),
    /// NFSv3.
    Nfs(Box<nfs::Session>),
    /// HTTP/1.1.
    Http(Box<http::Session>),
}

/// Calls the same method on any session.
macro_rules! any {
    ($self:expr, $session:ident => $call:expr) => {
        match $self {
            Session::NineP($session) => $call,
            Session::Nfs($session) => $call,
            Session::Http($session) => $call,
        }
    };
}

impl Session {
    /// Creates a session for an accepted connection. `local`: through a loopback address or a Unix
    /// socket.
    pub fn new(protocol: Protocol, export: Export, identity: Identity, local: bool) -> Session {
        match (protocol, identity) {
            (Protocol::NineP, identity) => {
                Session::NineP(Box::new(ninep::Session::new(export, identity)))
            }
            (Protocol::Nfs, identity) => {
                Session::Nfs(Box::new(nfs::Session::new(export, identity)))
            }
            (Protocol::Http, Identity::Fixed(caller)) => {
                Session::Http(Box::new(http::Session::new(export, caller, local)))
            }
            (Protocol::Http, Identity::Claimed(_)) => {
                unreachable!("HTTP has no word for a user that could be believed")
            }
        }
    }

    /// Returns the protocol.
    pub fn protocol(&self) -> Protocol {
        match self {
            Session::NineP(_) => Protocol::NineP,
            Session::Nfs(_) => Protocol::Nfs,
            Session::Http(_) => Protocol::Http,
        }
    }

    /// Permits administrative access on request: the kernel has verified the identity of the
    /// client.
    pub fn allow_admin(&mut self) {
        match self {
            Session::NineP(session) => session.allow_admin(),
            // There is no way to ask for it.
            Session::Nfs(_) => {}
            Session::Http(session) => session.allow_admin(),
        }
    }

    /// Refuses what the client asks for, if it is one of NFS: its address is not allowed.
    pub fn refuse(&mut self) {
        if let Session::Nfs(session) = self {
            session.refuse();
        }
    }

    /// Sets the number of the session, unique within the process.
    pub fn set_number(&mut self, number: u64) {
        match self {
            Session::NineP(_) | Session::Nfs(_) => {}
            Session::Http(session) => session.set_number(number),
        }
    }

    /// Returns whether the connection should be read.
    pub fn is_hungry(&self) -> bool {
        any!(self, session => session.is_hungry())
    }

    /// Returns memory to receive into: more than the default for a large message.
    pub fn receive_into(&mut self) -> ReceiveBuf {
        any!(self, session => session.receive_into())
    }

    /// Returns whether nothing is outstanding, so that the session can be dropped.
    pub fn is_over(&self) -> bool {
        any!(self, session => session.is_over())
    }

    /// Sets the memory that the node has left.
    pub fn set_room(&mut self, room: Room) {
        any!(self, session => session.set_room(room));
    }

    /// Returns whether a request waits for memory only.
    pub fn lacks_room(&self) -> bool {
        any!(self, session => session.lacks_room())
    }

    /// Returns whether the client owes the rest of a message or a body.
    pub fn owes_bytes(&self) -> bool {
        any!(self, session => session.owes_bytes())
    }

    /// Returns whether a reconnect loses nothing for the client: no request has begun, and no file
    /// is held.
    pub fn is_idle(&self) -> bool {
        any!(self, session => session.is_idle())
    }

    /// Returns whether no request has begun and no file is open: a client that attaches again
    /// recovers everything.
    pub fn is_resting(&self) -> bool {
        match self {
            Session::NineP(session) => session.is_resting(),
            Session::Nfs(session) => session.is_idle(),
            Session::Http(session) => session.is_idle(),
        }
    }

    /// Returns whether anything is in progress for the client.
    pub fn has_begun(&self) -> bool {
        match self {
            Session::NineP(session) => session.has_begun(),
            Session::Nfs(session) => !session.is_idle(),
            Session::Http(session) => !session.is_idle(),
        }
    }

    /// Returns the bytes held: received, requested, gathered, and queued but not yet sent.
    pub fn bytes(&self) -> usize {
        any!(self, session => session.bytes())
    }

    /// Returns the bytes queued and not yet sent.
    pub fn unsent(&self) -> usize {
        any!(self, session => session.unsent())
    }

    /// Returns the number of nodes and open files held for the client; over HTTP only during a
    /// request.
    pub fn handles(&self) -> usize {
        match self {
            Session::NineP(session) => session.handles(),
            Session::Nfs(session) => session.handles(),
            Session::Http(session) => session.handles(),
        }
    }

    /// Returns protocol and state in one word each, for `/.upcall/`.
    pub fn state_name(&self) -> (&'static str, &'static str) {
        match self {
            Session::NineP(session) => ("9p", session.state_name()),
            Session::Nfs(session) => ("nfs", session.state_name()),
            Session::Http(session) => ("http", session.state_name()),
        }
    }

    /// Returns the state of each call in flight, for `/.upcall/`.
    pub fn awaits(&self) -> Vec<&'static str> {
        any!(self, session => session.awaits().collect())
    }
}

impl Automaton for Session {
    type Input = Input;
    type Output = Output;

    fn step(&mut self, now: Instant, input: Input, out: &mut Vec<Output>) {
        any!(self, session => session.step(now, input, out));
    }

    fn deadline(&self) -> Option<Instant> {
        any!(self, session => session.deadline())
    }

    fn check(&self) {
        any!(self, session => session.check());
    }
}
