//! What parts say to each other, in the binary form of what replicas say.

use replica::esds::Message;
use replica::ioa::Talk;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// What a message is about, as far as it is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum About {
    /// An operation goes to a replica.
    Request(u64),
    /// And its value goes back.
    Response(u64),
    /// News of so many operations.
    Gossip(u64),
    /// Who may act with whom.
    Agreement,
}

/// What parts say.
pub(crate) trait Spoken: Serialize + DeserializeOwned {
    /// What it is about.
    fn about(&self) -> About;
}

impl<O, V> Spoken for Message<O, V>
where
    O: Serialize + DeserializeOwned,
    V: Serialize + DeserializeOwned,
{
    fn about(&self) -> About {
        match self {
            Message::Request(descriptor) => About::Request(descriptor.id.0),
            Message::Response(id, _) => About::Response(id.0),
            Message::Gossip(news) => About::Gossip(news.len() as u64),
        }
    }
}

impl<M: Spoken> Spoken for Talk<M> {
    fn about(&self) -> About {
        match self {
            Talk::Join { message, .. } => message.about(),
            Talk::Ask | Talk::Grant | Talk::Refuse | Talk::Release | Talk::Done | Talk::Over => {
                About::Agreement
            }
        }
    }
}
