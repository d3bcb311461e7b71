//! Parts of a service that run on threads, independent of the composition.

use crate::wire::Spoken;
use replica::data::Value;
use std::time::Instant;

/// Kind of turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Turn {
    /// No action: received messages are only processed.
    #[default]
    Hear,
    /// Any action but gossip: after a request, nothing precedes its answer (paper 001, 5.5.2).
    Answer,
    /// One gossip message.
    Gossip,
}

/// Outcome of a turn.
#[derive(Clone, Debug)]
pub(crate) enum TurnOutcome<M> {
    /// No action was enabled.
    Nothing,
    /// An internal action.
    Silent,
    /// A message to these parts.
    Sent(Vec<usize>, M),
    /// The value of a client's operation.
    Answered(u64, Value),
}

/// Part of a service, identified by index: replicas first, then the front end.
pub(crate) trait Actor {
    /// Message between parts.
    type Message: Spoken;

    /// Processes a message of another part.
    fn receive(&mut self, from: usize, message: Self::Message);

    /// Performs one action, if any is enabled.
    fn act(&mut self, turn: Turn) -> TurnOutcome<Self::Message>;

    /// Number of operator applications so far.
    fn applied(&self) -> u64 {
        0
    }

    /// Time of the next turn if no message arrives.
    fn deadline(&self) -> Option<Instant> {
        None
    }
}

/// Operation submitted by a client.
#[derive(Clone, Debug)]
pub(crate) struct Order<O> {
    pub(crate) number: u64,
    pub(crate) strict: bool,
    pub(crate) operator: O,
}

/// Front end of the clients.
pub(crate) trait Requested<O>: Actor {
    /// Submits an operation.
    fn submit(&mut self, order: Order<O>);
}

/// Part that holds a replica.
pub(crate) trait ReplicaHolder: Actor {
    /// Number of final operations here.
    fn final_count(&self) -> usize;

    /// Returns the final operations here, in order, with their values.
    fn finals(&self) -> Vec<(u64, Value)>;
}
