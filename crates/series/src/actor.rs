//! What a thread of a service runs, whichever way the service is made.

use crate::wire::Spoken;
use replica::data::Value;
use std::time::Instant;

/// What is done now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Nothing: what was heard is only taken up.
    #[default]
    Hear,
    /// Whatever is not gossip: after a request nothing comes before its answer (paper 001, 5.5.2).
    Answer,
    /// One message of gossip.
    Gossip,
}

/// What came of a turn.
#[derive(Clone, Debug)]
pub(crate) enum Deed<M> {
    /// There was nothing to do.
    Nothing,
    /// Something was done that nobody hears of.
    Silent,
    /// These are told this.
    Said(Vec<usize>, M),
    /// An operation of a client has this value.
    Answered(u64, Value),
}

/// A part of a service, known there by its index: replicas first, then the front end.
pub(crate) trait Actor {
    /// What parts say to each other.
    type Message: Spoken;

    /// Takes up what another part has said.
    fn hear(&mut self, from: usize, message: Self::Message);

    /// Does one thing, if there is any to do.
    fn act(&mut self, turn: Turn) -> Deed<Self::Message>;

    /// How often it has applied an operation.
    fn applied(&self) -> u64 {
        0
    }

    /// When it is to have another turn, even if it hears nothing.
    fn deadline(&self) -> Option<Instant> {
        None
    }
}

/// An operation that a client submits.
#[derive(Clone, Debug)]
pub(crate) struct Order<O> {
    pub(crate) number: u64,
    pub(crate) strict: bool,
    pub(crate) operator: O,
}

/// The part that clients ask.
pub(crate) trait Asked<O>: Actor {
    /// Submits an operation.
    fn submit(&mut self, order: Order<O>);
}

/// A part that keeps a replica.
pub(crate) trait Keeper: Actor {
    /// How many operations are final here.
    fn final_count(&self) -> usize;

    /// What is final here, in its order, with its values.
    fn finals(&self) -> Vec<(u64, Value)>;
}
