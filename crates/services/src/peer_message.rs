//! Peer messages written to the file `peer`, and their answers, framed as in `seal.rs`.

use crate::seal::{Forged, Seal};
use crate::{Operator, Snapshot};
use replica::binary;
use replica::service::{ChangeRequest, Message, Vote};
use serde::{Deserialize, Serialize};

/// Message of the stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PeerMessage {
    /// Gossip between replicas.
    Gossip(Message<Operator>),
    /// Join request of the sender, with its address.
    Join(String),
    /// Membership change requested by an administrator.
    ChangeRequest(ChangeRequest),
    /// Vote on unresponsive members.
    Silent(Vote),
}

impl PeerMessage {
    /// Returns its encoding.
    pub fn bytes(&self) -> Vec<u8> {
        binary::write(self)
    }
}

/// Answer to a peer message, for senders that read it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Answer {
    /// Accepted.
    Yes,
    /// Rejected, with an explanation for people.
    No(String),
    /// Join snapshot of a new member.
    Begin(Box<Snapshot>),
}

impl Answer {
    /// Decodes an answer; its first byte identifies the variant.
    ///
    /// # Errors
    /// If the bytes are not an answer.
    pub fn read(bytes: &[u8]) -> Result<Answer, binary::Unreadable> {
        binary::read(bytes)
    }
}

/// First byte of an encoded [`Answer::Begin`], before the snapshot.
pub(crate) const BEGIN: u8 = 2;

/// Maximum bytes of an answer in one message.
pub(crate) const CHUNK_MAX: usize = 64 << 10;

/// First byte of a message: whether more messages of the answer follow.
const LAST: u8 = 0;
const MORE: u8 = 1;

/// Returns a part of an answer as a message.
pub(crate) fn chunk(part: &[u8], is_last: bool) -> Vec<u8> {
    [&[if is_last { LAST } else { MORE }], part].concat()
}

/// Reader of an answer from a stream with arbitrary boundaries.
#[derive(Clone, Debug)]
pub struct Reader {
    seal: Seal,
    came: Vec<u8>,
    answer: Vec<u8>,
}

impl Reader {
    /// Creates a reader of messages authenticated with this seal.
    pub fn new(seal: Seal) -> Reader {
        Reader { seal, came: Vec::new(), answer: Vec::new() }
    }

    /// Bytes of the answer received.
    pub(crate) fn length(&self) -> usize {
        self.answer.len() + self.came.len()
    }

    /// Processes received bytes. Returns the answer once it is complete.
    ///
    /// # Errors
    /// If the bytes are not authentic.
    pub fn take(&mut self, part: &[u8]) -> Result<Option<Vec<u8>>, Forged> {
        self.came.extend_from_slice(part);
        let mut at = 0;
        while let Some((message, taken)) = self.seal.open(&self.came[at..], 1 + CHUNK_MAX)? {
            let (flag, part) = message.split_first().ok_or(Forged)?;
            self.answer.extend_from_slice(part);
            at += taken;
            if *flag == LAST {
                return Ok(Some(std::mem::take(&mut self.answer)));
            }
        }
        self.came.drain(..at);
        Ok(None)
    }
}
