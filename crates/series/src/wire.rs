//! Messages between parts, in the binary encoding of replica messages.

use esds::Message;
use esds::ioa::ReservedMessage;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Subject of a message, for the measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum About {
    /// Operation on its way to a replica.
    Request(u64),
    /// Value of an operation on its way back.
    Response(u64),
    /// Gossip about this many operations.
    Gossip(u64),
    /// Negotiation of a reservation.
    Agreement,
}

/// Message with a measurable subject.
pub(crate) trait Spoken: Serialize + DeserializeOwned {
    /// Returns the subject.
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

impl<M: Spoken> Spoken for ReservedMessage<M> {
    fn about(&self) -> About {
        match self {
            ReservedMessage::Join { message, .. } => message.about(),
            ReservedMessage::Ask
            | ReservedMessage::Grant
            | ReservedMessage::Refuse
            | ReservedMessage::Release
            | ReservedMessage::Done
            | ReservedMessage::Over => About::Agreement,
        }
    }
}
