//! The algorithms of the eventually-serializable data service (paper 001, chapter 4), corrected, as
//! I/O automata. The servers' own replicas are in the crate `replica`; their checks compare them
//! with these.
//!
//! | replicas | composed by | in the paper |
//! |---|---|---|
//! | [`Plain`] | channels | *ESDSAlg*, *ESDSImpl* (figures 4.1, 4.2) |
//! | [`Plain`] | reservations | *SimpleESDSAlg*, *SimpleESDSImpl* (2.3, 4.2.7) |
//! | [`Optimised`] | channels | *ESDSOptAlg*, *ESDSOptImpl* (figure 4.5) |
//!
//! The figures as printed contain several errors; [`Slip`] preserves them, so that a checker can
//! demonstrate that it finds them.
//!
//! Vocabulary: an operation is *received* at a replica that has its descriptor, *done* at one that
//! has given it a place in its order, and *stable* (the paper: *solid*) at one that knows that it
//! is done everywhere. Its place, and everything before it, is then final.

mod front_end;
pub mod ioa;
mod knowledge;
mod optimised;
mod plain;
pub mod ring;
mod site;
mod station;

#[cfg(test)]
mod tests;

pub use front_end::{FrontEnd, Submission};
pub use optimised::Optimised;
pub use plain::Plain;
pub use site::Site;
pub use station::{Act, ReplicaPart, Station};

use replica::data::DataType;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Maximum replicas of a service: sets of replicas are bit sets.
pub const REPLICAS_MAX: usize = 32;

/// Operation identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Id(pub u64);

/// Place in the order of operations: smaller is earlier. Unique across replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Label {
    /// Counter greater than that of every label known at its creation (Lamport's rule).
    pub counter: u64,
    /// Replica that created it.
    pub replica: usize,
}

/// Operation as described by its client (paper 001, 4.2.2).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Descriptor<O> {
    /// Identifier.
    pub id: Id,
    /// Front end that receives the answer, by its index in the composition.
    pub sender: usize,
    /// Predecessors.
    pub prev: BTreeSet<Id>,
    /// Whether the answer must agree with the eventual order.
    pub strict: bool,
    /// Operator to apply.
    pub operator: O,
}

/// Message between parts of a service.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Message<O, V> {
    /// From a front end to a replica.
    Request(Arc<Descriptor<O>>),
    /// From a replica to a front end.
    Response(Id, V),
    /// From replica to replica.
    Gossip(Vec<News<O>>),
}

/// Gossip about one received operation.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct News<O> {
    /// The operation.
    pub descriptor: Arc<Descriptor<O>>,
    /// Its label at the sender, if done there.
    pub label: Option<Label>,
    /// Whether it is stable at the sender.
    pub stable: bool,
}

/// External input of a service.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Request<O> {
    /// To a front end: a client submits an operation.
    Submit(Descriptor<O>),
    /// Timer for gossip, and for retransmission of unanswered requests.
    Tick,
}

/// Gossip schedule of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pace {
    /// As soon as there is news.
    AtOnce,
    /// At every [`Request::Tick`].
    Ticks,
    /// Never: for the paper's measurements without gossip (5.5.2).
    Never,
}

/// Gossip hops before a strict answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hops {
    /// Until every replica knows that all have done it, as in the paper.
    Three,
    /// Until this replica knows that all have done it, which suffices.
    Two,
}

/// Error in the paper's figures, or a plausible mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Slip {
    /// Figure 4.5: gossip to one replica counts as gossip to all.
    OneDelta,
    /// Labels are overwritten instead of lowered to the minimum: a plausible mistake.
    LabelsAssigned,
    /// 4.2.3: received labels do not raise the counter.
    ClockNotRaised,
    /// Figure 4.5: labels are bare numbers, so two replicas may create equal ones.
    LabelsShared,
    /// Figure 4.5: an operation labelled below a stable one, but not stable itself, is applied to a
    /// state that already includes it.
    AppliedTwice,
    /// Figure 4.5: `stabilise` (the paper: `solidify`) stays enabled forever.
    SolidifiesForEver,
    /// Figure 4.1: a request is sent forever.
    ResentForEver,
    /// A strict answer is given as soon as the operation is done here.
    StrictWhenDone,
}

/// Behaviour of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rules {
    /// Gossip schedule.
    pub pace: Pace,
    /// Hops before a strict answer.
    pub hops: Hops,
    /// Deliberate error.
    pub slip: Option<Slip>,
}

impl Rules {
    /// Corrected algorithm of the paper.
    pub const PAPER: Rules = Rules { pace: Pace::AtOnce, hops: Hops::Three, slip: None };

    fn slips(&self, slip: Slip) -> bool {
        self.slip == Some(slip)
    }
}

/// Action of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// `do_it`: places an operation in its order.
    Do(Id),
    /// `send response`: answers an operation to this front end.
    Respond(Id, usize),
    /// `send gossip`: sends its knowledge to this replica.
    Gossip(usize),
    /// `stabilise` (the paper: `solidify`), as in figure 4.5.
    Solidify(Id),
}

impl Action {
    fn participants(self) -> Vec<usize> {
        match self {
            Action::Do(_) | Action::Solidify(_) => Vec::new(),
            Action::Respond(_, to) | Action::Gossip(to) => vec![to],
        }
    }
}

/// Observable state of a replica, named as in the paper's figures.
pub trait Replica<D: DataType> {
    /// `rcvd`: received operations.
    fn received(&self) -> BTreeSet<Id>;
    /// `done[i]`: operations known to be done at replica `i`.
    fn done(&self, i: usize) -> BTreeSet<Id>;
    /// `stable[i]`: operations known to be stable at replica `i`.
    fn stable(&self, i: usize) -> BTreeSet<Id>;
    /// `minlabel`: smallest label seen for an operation.
    fn label(&self, id: Id) -> Option<Label>;
    /// Greatest counter seen.
    fn clock(&self) -> u64;
    /// Final operations in order, with their permanent values.
    fn finals(&self) -> Vec<(Id, D::Value)>;
    /// Violated invariant, if any.
    fn contradiction(&self) -> Option<&'static str>;
}
