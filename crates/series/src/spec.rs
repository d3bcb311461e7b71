//! What is to be run, and what came of it: both as lines of JSON.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How the parts of the service are made and composed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// *ESDSOptImpl*: what the paper measured.
    Optimised,
    /// *ESDSImpl*.
    Plain,
    /// *SimpleESDSImpl*: the plain replicas, composed by reservations.
    Simple,
    /// The replica that people will use.
    Service,
}

/// What is replicated, and what clients ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Data {
    /// A counter; *Add*, which answers the sum.
    Add,
    /// A counter; an *Add* that answers nothing.
    Blind,
    /// A text; *Concatenate*, which answers the whole.
    Append,
}

/// What a processor is made to need for whatever it does, microseconds. Nothing: what it needs
/// today.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct Speed {
    /// To send or to receive a message that is not gossip.
    pub(crate) message: u64,
    /// To send or to receive a message of gossip.
    pub(crate) gossip: u64,
    /// And for each operation in it, also at both ends.
    pub(crate) news: u64,
    /// To take up a request and do it, beside its messages and its application.
    pub(crate) request: u64,
    /// To apply an operation, also again.
    pub(crate) apply: u64,
    /// To go over from one replica to another on the same processor.
    pub(crate) switch: u64,
}

/// A cost, as time.
pub(crate) fn cost(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

/// One run of one service.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Spec {
    pub(crate) kind: Kind,
    pub(crate) data: Data,
    pub(crate) replicas: usize,
    /// Operations that are submitted.
    pub(crate) operations: u64,
    /// How many of them are submitted in a second.
    pub(crate) rate: f64,
    /// How many of a hundred are strict.
    pub(crate) strict: u64,
    /// Whether replicas gossip.
    pub(crate) gossip: bool,
    /// Whether a replica does everything that it can after each message, and hears requests before
    /// gossip. Else news gather: a message of each comes in turn.
    pub(crate) eager: bool,
    pub(crate) speed: Speed,
    /// Processors that replicas have among them; each has its own, if there are enough.
    pub(crate) processors: usize,
    /// How long operations that are not strict gather in [`Kind::Service`] before others are told
    /// of them, microseconds.
    pub(crate) gather: u64,
    /// Before the first submission, seconds.
    pub(crate) delay: f64,
    /// Says which operations are strict, and how long who is refused rests.
    pub(crate) seed: u64,
}

/// What came of it. Times are milliseconds.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Outcome {
    /// Operations that were answered.
    pub(crate) answered: u64,
    /// From the first submission to the last answer.
    pub(crate) total: f64,
    /// The mean from the front end's sending to a replica to its receiving the answer.
    pub(crate) front_end: f64,
    /// The mean from a replica's receiving an operation to its sending the answer.
    pub(crate) replica: f64,
    /// The mean from when an operation was to be submitted to the answer of the front end.
    pub(crate) client: f64,
    /// The same of what is strict; none is null.
    pub(crate) client_strict: Option<f64>,
    /// The same of what is not.
    pub(crate) client_other: Option<f64>,
    /// Answers that are not those of the eventual order; null if there is no such order, because
    /// nobody gossips.
    pub(crate) inconsistent: Option<u64>,
    /// The same, of strict ones.
    pub(crate) inconsistent_strict: Option<u64>,
    /// Whether all replicas ended with all operations in the same order, with the same values.
    pub(crate) equal: Option<bool>,
    /// Operations that were applied again for an answer, the mean.
    pub(crate) again: f64,
    /// Messages between parts until the last answer, for each operation.
    pub(crate) messages: f64,
    /// Operations in messages of gossip until the last answer, for each operation.
    pub(crate) news: f64,
    /// Bytes in messages until the last answer, for each operation.
    pub(crate) bytes: f64,
    /// From the last answer until everybody had everything.
    pub(crate) settling: f64,
    /// How late a processor that was made slow was, the mean.
    pub(crate) late: f64,
    /// The same, at worst.
    pub(crate) late_max: f64,
}
