//! What the node that has the name space and a worker say to each other about storelets.

use crate::budget::Reason;
use crate::compile::Fresh;
use crate::door::Stream;
use crate::order::Order;
use crate::report::Report;
use base::op::Parcel;
use base::{Caller, Error};
use std::fmt;
#[cfg(doc)]
use tree::RequestId;
use tree::{OpenId, Reply, Request};

/// Names a storelet that was started: no two of a server have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DomainId(pub u64);

/// Where in the name of a storelet of a chain its place stands.
const STAGE_BITS: u32 = 48;

impl DomainId {
    /// The storelet at this place of the chain that this one begins.
    pub fn stage(self, place: usize) -> DomainId {
        DomainId(self.0 | (place as u64) << STAGE_BITS)
    }

    /// The first of its chain, and its place there.
    pub fn first(self) -> (DomainId, usize) {
        (DomainId(self.0 & ((1 << STAGE_BITS) - 1)), (self.0 >> STAGE_BITS) as usize)
    }
}

impl fmt::Display for DomainId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The account that a storelet is charged to: a user, and one of the user's clients.
///
/// Ordered by user, so the clients of a user stand together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Account {
    /// The user's number.
    pub user: u32,
    /// The connection, as [`RequestId::asker`] names it; of what runs by itself [`Account::OWN`].
    pub client: u32,
}

impl Account {
    /// The client of all that the server begins by itself: no connection has this number.
    pub const OWN: u32 = u32::MAX;
}

/// Names a request of a storelet, which has at most two under way: one it waits for, and one that
/// it asks ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AskId {
    /// Whose.
    pub domain: DomainId,
    /// Whether it is asked ahead.
    pub ahead: bool,
}

impl AskId {
    /// It as a number that no other request of a worker has.
    pub fn number(self) -> u64 {
        self.domain.0 << 1 | u64::from(self.ahead)
    }

    /// The request with this number.
    pub fn of(number: u64) -> AskId {
        AskId { domain: DomainId(number >> 1), ahead: number & 1 == 1 }
    }
}

/// What a worker is told.
#[derive(Debug)]
pub enum ToWorker {
    /// To run a storelet; exactly one [`ToHome::Ended`] follows.
    Begin(DomainId, Box<Begin>),
    /// Some of a storelet's input; nothing: its end.
    Input(DomainId, Vec<u8>),
    /// Whoever reads what a storelet says has taken so many bytes of it.
    Taken(DomainId, usize),
    /// To end a storelet where it stands.
    Kill(DomainId, Reason),
    /// Of each second storelets may have so much of the processor, ns.
    Ceiling(u64),
}

/// How a storelet is begun.
#[derive(Debug)]
pub struct Begin {
    /// What to run.
    pub program: Fresh,
    /// How.
    pub order: Order,
    /// On whose behalf.
    pub caller: Caller,
    /// The account that it is charged to.
    pub account: Account,
    /// Where its random numbers begin.
    pub seed: [u8; 32],
}

/// What a worker tells.
#[derive(Debug)]
pub enum ToHome {
    /// A storelet says this.
    Said(DomainId, Stream, Vec<u8>),
    /// It has taken so many bytes of its input.
    Eaten(DomainId, usize),
    /// It has ended.
    Ended(DomainId, Box<Report>),
}

/// What crosses from one thread to another: what a node's mailbox takes.
#[derive(Debug)]
pub enum Crossing {
    /// To a worker.
    Worker(ToWorker),
    /// From a worker.
    Home(ToHome),
    /// From whoever compiles.
    Compiled(crate::compile::Compiled),
    /// From whoever keeps what is installed.
    Kept(crate::standing::Kept),
    /// The server asks on its own behalf or that of who installed something; one
    /// [`Crossing::Answered`] with the number follows.
    Ask(u64, Request),
    /// It does not want that any more.
    Cancel(u64),
    /// It gives an open file back.
    Close(OpenId),
    /// It is answered.
    Answered(u64, Result<Reply, Error>),
}

impl Crossing {
    /// It, to be posted.
    pub fn parcel(self) -> Parcel {
        Parcel(Box::new(self))
    }
}
