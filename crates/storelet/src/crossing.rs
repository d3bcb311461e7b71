//! Messages between the home node, which has the namespace, and the workers.

use crate::account::Account;
use crate::compile::Fresh;
use crate::report::Report;
use crate::run_spec::RunSpec;
use base::op::Envelope;
use base::{Caller, Error};
use std::fmt;
use tree::{OpenId, Reply, Request};
use wasi::{Reason, Stream};

/// Identifier of a storelet: unique within a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DomainId(pub u64);

/// Bit offset of the chain position in a [`DomainId`].
const STAGE_BITS: u32 = 48;

impl DomainId {
    /// Returns the identifier of the storelet at this position of the chain that this one begins.
    pub fn stage(self, place: usize) -> DomainId {
        DomainId(self.0 | (place as u64) << STAGE_BITS)
    }

    /// Returns the first storelet of the chain, and the position in it.
    pub fn first(self) -> (DomainId, usize) {
        (DomainId(self.0 & ((1 << STAGE_BITS) - 1)), (self.0 >> STAGE_BITS) as usize)
    }
}

impl fmt::Display for DomainId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Identifier of a request of a storelet, which has at most two in flight: a blocking one and a
/// prefetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AskId {
    /// The storelet.
    pub domain: DomainId,
    /// Whether it is a prefetch.
    pub prefetch: bool,
}

impl AskId {
    /// Encodes it as a number, unique among the requests of a worker.
    pub fn number(self) -> u64 {
        self.domain.0 << 1 | u64::from(self.prefetch)
    }

    /// Decodes the number of a request.
    pub fn of(number: u64) -> AskId {
        AskId { domain: DomainId(number >> 1), prefetch: number & 1 == 1 }
    }
}

/// Messages to a worker.
#[derive(Debug)]
pub enum ToWorker {
    /// Run a storelet; exactly one [`ToHome::Ended`] follows.
    Begin(DomainId, Box<Begin>),
    /// Input of a storelet; empty at the end of the stream.
    Input(DomainId, Vec<u8>),
    /// Number of bytes of a storelet's output that its reader has consumed.
    Taken(DomainId, usize),
    /// Kill a storelet.
    Kill(DomainId, Reason),
    /// Processor ceiling for all storelets of the worker, ns of each second.
    Ceiling(u64),
}

/// Parameters for starting a storelet.
#[derive(Debug)]
pub struct Begin {
    /// The program.
    pub program: Fresh,
    /// Its order.
    pub run_spec: RunSpec,
    /// Identity for file requests.
    pub caller: Caller,
    /// Account that is charged.
    pub account: Account,
    /// Seed of its random numbers.
    pub seed: [u8; 32],
}

/// Messages from a worker.
#[derive(Debug)]
pub enum ToHome {
    /// Output of a storelet.
    Emitted(DomainId, Stream, Vec<u8>),
    /// Number of bytes of its input that it has consumed.
    Eaten(DomainId, usize),
    /// The storelet has ended.
    Ended(DomainId, Box<Report>),
}

/// Messages between threads, as received by a node's mailbox.
#[derive(Debug)]
pub enum Crossing {
    /// To a worker.
    Worker(ToWorker),
    /// From a worker.
    Home(ToHome),
    /// From the compiler.
    Compiled(crate::compile::Compiled),
    /// From the state store.
    Kept(crate::standing::Kept),
    /// Request of the server on its own behalf or that of the user who installed a storelet; one
    /// [`Crossing::Answered`] with the number follows.
    Ask(u64, Request),
    /// Cancel the request.
    Cancel(u64),
    /// Close an open file.
    Close(OpenId),
    /// Reply to a request.
    Answered(u64, Result<Reply, Error>),
}

impl Crossing {
    /// Wraps the message for posting.
    pub fn envelope(self) -> Envelope {
        Envelope(Box::new(self))
    }
}
