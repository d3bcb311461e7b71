//! What is written to the file `peer`, each behind its length.

use crate::Operator;
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
