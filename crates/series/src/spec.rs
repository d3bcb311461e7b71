//! Specification and result of a run, both as lines of JSON.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Algorithm and composition of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// *ESDSOptImpl*: as measured in the paper.
    Optimised,
    /// *ESDSImpl*.
    Plain,
    /// *SimpleESDSImpl*: plain replicas composed by reservations.
    Simple,
    /// Production replica.
    Service,
}

/// Replicated data, and the operation of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Data {
    /// Counter; *Add* returns the sum.
    Add,
    /// Counter; *Add* returns nothing.
    Blind,
    /// Text; *Concatenate* returns the whole.
    Append,
}

/// Simulated processor times, in µs. Zero adds nothing to the real ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct Speed {
    /// Sending or receiving a message other than gossip.
    pub(crate) message: u64,
    /// Sending or receiving a gossip message.
    pub(crate) gossip: u64,
    /// Additional cost of each operation in it, at both ends.
    pub(crate) news: u64,
    /// Processing a request, beside its messages and its application.
    pub(crate) request: u64,
    /// Applying an operation, also repeatedly.
    pub(crate) apply: u64,
    /// Switching between replicas on the same processor.
    pub(crate) switch: u64,
}

/// Converts a cost in µs.
pub(crate) fn cost(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

/// Run of a service.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Spec {
    pub(crate) kind: Kind,
    pub(crate) data: Data,
    pub(crate) replicas: usize,
    /// Number of operations.
    pub(crate) operations: u64,
    /// Operations submitted per second.
    pub(crate) rate: f64,
    /// Strict operations, in percent.
    pub(crate) strict: u64,
    /// Whether replicas gossip.
    pub(crate) gossip: bool,
    /// Whether a replica does everything possible after each message, and receives requests before
    /// gossip. Otherwise gossip is batched, and requests and gossip are received alternately.
    pub(crate) eager: bool,
    pub(crate) speed: Speed,
    /// Processors shared by the replicas; each replica has its own, if there are enough.
    pub(crate) processors: usize,
    /// Gossip delay of non-strict operations in [`Kind::Service`], in µs.
    pub(crate) gather: u64,
    /// Delay before the first submission, in seconds.
    pub(crate) delay: f64,
    /// Seed for the choice of strict operations, and for the rests after refusals.
    pub(crate) seed: u64,
}

/// Result of a run. Times are in ms.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Outcome {
    /// Answered operations.
    pub(crate) answered: u64,
    /// Time from the first submission to the last answer.
    pub(crate) total: f64,
    /// Mean time at the front end from sending an operation to a replica to receiving the answer.
    pub(crate) front_end: f64,
    /// Mean time at a replica from receiving an operation to sending the answer.
    pub(crate) replica: f64,
    /// Mean time from the planned submission of an operation to its answer at the front end.
    pub(crate) client: f64,
    /// The same for strict operations; null without any.
    pub(crate) client_strict: Option<f64>,
    /// The same for the others.
    pub(crate) client_other: Option<f64>,
    /// Answers that differ from the eventual order; null without gossip, as there is no such order.
    pub(crate) inconsistent: Option<u64>,
    /// The same for strict answers.
    pub(crate) inconsistent_strict: Option<u64>,
    /// Whether all replicas ended with all operations in the same order, with the same values.
    pub(crate) equal: Option<bool>,
    /// Mean operator applications for an answer.
    pub(crate) again: f64,
    /// Messages between parts until the last answer, per operation.
    pub(crate) messages: f64,
    /// Operations in gossip until the last answer, per operation.
    pub(crate) news: f64,
    /// Message bytes until the last answer, per operation.
    pub(crate) bytes: f64,
    /// Time from the last answer until all replicas had everything.
    pub(crate) settling: f64,
    /// Mean lateness of a slowed processor.
    pub(crate) late: f64,
    /// Maximum lateness.
    pub(crate) late_max: f64,
}
