//! Open files of a replica.

use crate::acceptor::PeerAcceptor;
use crate::events::Listener;
use crate::op_session::OpSession;
use crate::reads::Reads;
use base::Instant;
use tree::RequestId;

/// Number of the file `peer`.
pub(crate) const PEER: usize = 6;

/// Shutdown state of pending reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Running: reads wait without limit.
    No,
    /// Draining: only answers are awaited, until then.
    Until(Instant),
    /// Ended: nothing is awaited.
    Now,
}

/// Open file.
#[derive(Debug)]
pub(crate) enum Opened {
    Directory,
    Text(Vec<u8>),
    /// Operation session, and its pending reads.
    Ops(Box<OpSession>, Reads),
    /// Acceptor of a peer.
    PeerAcceptor(Box<PeerAcceptor>),
    /// Listener to final operations, and its pending reads.
    Events(Listener, Reads),
    /// File whose contents were evicted: memory was short, and it was the largest.
    Dropped,
}

impl Opened {
    /// Bytes held.
    pub(crate) fn held(&self) -> usize {
        match self {
            Opened::Ops(op_session, _) => op_session.held(),
            Opened::Text(text) => text.len(),
            Opened::PeerAcceptor(acceptor) => acceptor.held(),
            Opened::Directory | Opened::Events(..) | Opened::Dropped => 0,
        }
    }
}

/// Text to be opened in its turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    /// Request.
    pub(crate) id: RequestId,
    /// File of the text.
    pub(crate) file: usize,
    /// Maximum first bytes in the reply, and the headroom before them, if requested.
    pub(crate) first: Option<(u32, u32)>,
}
