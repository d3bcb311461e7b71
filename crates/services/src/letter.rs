//! Letters written to the file `peer`, and their answers, in messages of `seal.rs`.

use crate::seal::{Forged, Seal};
use crate::{Operator, Snapshot};
use replica::binary;
use replica::service::{Message, Vote, Wish};
use serde::{Deserialize, Serialize};

/// One message of the stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Letter {
    /// One replica tells another one what it knows.
    Gossip(Message<Operator>),
    /// Who writes wants to be a member, and can be reached there.
    Join(String),
    /// An administrator wants other members.
    Wish(Wish),
    /// One replica tells another one which members it does not hear.
    Silent(Vote),
}

impl Letter {
    /// Its bytes.
    pub fn bytes(&self) -> Vec<u8> {
        binary::write(self)
    }
}

/// What a letter came to, if its writer wants to know.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Answer {
    /// What is wished will be.
    Yes,
    /// It will not: why, for people.
    No(String),
    /// What a new member begins with.
    Begin(Box<Snapshot>),
}

impl Answer {
    /// Its bytes, of which the first says which answer it is.
    ///
    /// # Errors
    /// If they are no answer.
    pub fn read(bytes: &[u8]) -> Result<Answer, binary::Unreadable> {
        binary::read(bytes)
    }
}

/// Header of the bytes of [`Answer::Begin`], in front of the snapshot.
pub(crate) const BEGIN: u8 = 2;

/// Bytes of an answer in one message, at most.
pub(crate) const CHUNK_MAX: usize = 64 << 10;

/// First byte of a message of an answer: whether more follow.
const LAST: u8 = 0;
const MORE: u8 = 1;

/// A part of an answer, as a message.
pub(crate) fn chunk(part: &[u8], is_last: bool) -> Vec<u8> {
    [&[if is_last { LAST } else { MORE }], part].concat()
}

/// Reads an answer, which comes in parts that are cut anywhere.
#[derive(Clone, Debug)]
pub struct Reader {
    seal: Seal,
    came: Vec<u8>,
    answer: Vec<u8>,
}

impl Reader {
    /// One of what is sent with this seal.
    pub fn new(seal: Seal) -> Reader {
        Reader { seal, came: Vec::new(), answer: Vec::new() }
    }

    /// Bytes of the answer that have come.
    pub(crate) fn length(&self) -> usize {
        self.answer.len() + self.came.len()
    }

    /// Takes what was read; the whole answer, if that was the rest of it.
    ///
    /// # Errors
    /// If it is not what was sent.
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
