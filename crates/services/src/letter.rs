//! What is written to the file `peer`, each behind its length, and what is answered.

use crate::{Operator, Snapshot};
use replica::binary;
use replica::service::{Message, Wish};
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
}

impl Letter {
    /// Its bytes, with their length in front.
    ///
    /// # Panics
    /// If they are more than 4 GiB.
    pub fn frame(&self) -> Vec<u8> {
        let bytes = binary::write(self);
        let length = u32::try_from(bytes.len()).expect("it is cut");
        [&length.to_le_bytes()[..], &bytes].concat()
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
    /// Takes it out of what was read so far, behind the verdict: nothing, as long as that is not
    /// the whole of it.
    ///
    /// # Errors
    /// If that is no answer.
    pub fn read(bytes: &[u8]) -> Result<Option<Answer>, binary::Unreadable> {
        whole(bytes).map(binary::read).transpose()
    }
}

/// How many bytes an answer has, as what was read of it so far says.
pub(crate) fn length(read: &[u8]) -> Option<u64> {
    read.first_chunk().map(|length| u64::from_le_bytes(*length))
}

/// The bytes of an answer, in what was read so far, if all of them have come.
pub(crate) fn whole(read: &[u8]) -> Option<&[u8]> {
    let length = usize::try_from(length(read)?).ok()?;
    read[size_of::<u64>()..].get(..length)
}
