//! The algorithms of the paper (001, chapter 4), corrected, as I/O automata.
//!
//! | replicas | composed by | in the paper |
//! |---|---|---|
//! | [`Plain`] | channels | *ESDSAlg*, *ESDSImpl* (figures 4.1, 4.2) |
//! | [`Plain`] | reservations | *SimpleESDSAlg*, *SimpleESDSImpl* (2.3, 4.2.7) |
//! | [`Optimised`] | channels | *ESDSOptAlg*, *ESDSOptImpl* (figure 4.5) |
//!
//! The figures as printed are wrong in several places; [`Slip`] keeps the errors, so that those who
//! judge the algorithms can show that they would find them.
//!
//! Vocabulary: an operation is *received* at a replica that has its descriptor, *done* at one that
//! has given it a place in its order, *solid* at one that knows that it is done everywhere. Then
//! its place, and everything before it, is final.

mod front_end;
mod knowledge;
mod optimised;
mod plain;
mod site;
mod station;

#[cfg(test)]
mod tests;

pub use front_end::{FrontEnd, Submission};
pub use optimised::Optimised;
pub use plain::Plain;
pub use site::Site;
pub use station::{Act, ReplicaPart, Station};

use crate::data::DataType;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Replicas of a service, at most: they are sets of bits.
pub const REPLICAS_MAX: usize = 32;

/// Names an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Id(pub u64);

/// A place in the order of operations: smaller is earlier. No two replicas make equal ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Label {
    /// Greater than that of every label known when this was made (Lamport's rule).
    pub counter: u64,
    /// Who made it.
    pub replica: usize,
}

/// An operation as its client describes it (paper 001, 4.2.2).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Descriptor<O> {
    /// Its name.
    pub id: Id,
    /// The front end that wants the answer, by its index in the composition.
    pub sender: usize,
    /// What must come before it.
    pub prev: BTreeSet<Id>,
    /// Whether the answer must agree with the eventual order.
    pub strict: bool,
    /// What is to be done.
    pub operator: O,
}

/// What the parts of a service say to each other.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Message<O, V> {
    /// From a front end to a replica.
    Request(Arc<Descriptor<O>>),
    /// From a replica to a front end.
    Response(Id, V),
    /// From replica to replica.
    Gossip(Vec<News<O>>),
}

/// What a replica tells about one operation that it has received.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct News<O> {
    /// The operation.
    pub descriptor: Arc<Descriptor<O>>,
    /// Its label there, if it is done there.
    pub label: Option<Label>,
    /// Whether it is solid there.
    pub solid: bool,
}

/// What a service is told from outside.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Request<O> {
    /// To a front end: a client submits an operation.
    Submit(Descriptor<O>),
    /// It is time to gossip, or to ask again whoever has not answered.
    Tick,
}

/// When a replica gossips.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pace {
    /// As soon as it has something to tell.
    AtOnce,
    /// At every [`Request::Tick`].
    Ticks,
    /// Never: for the paper's measurements without gossip (5.5.2).
    Never,
}

/// How many hops of gossip a strict answer waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hops {
    /// Until everybody knows that everybody has done it, as the paper says.
    Three,
    /// Until this replica knows that everybody has done it, which is enough.
    Two,
}

/// An error of the paper's figures, or one that is easily made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Slip {
    /// Figure 4.5: what is gossiped to one replica counts as gossiped to all.
    OneDelta,
    /// Labels are assigned, not the smaller of both taken: easily made.
    LabelsAssigned,
    /// 4.2.3: the counter is not raised by the labels that are seen.
    ClockNotRaised,
    /// Figure 4.5: labels are numbers only, so two replicas may make the same.
    LabelsShared,
    /// Figure 4.5: what has a label below that of a solid operation, but is not solid, is applied
    /// to the state that already has it.
    AppliedTwice,
    /// Figure 4.5: `solidify` is enabled for ever.
    SolidifiesForEver,
    /// Figure 4.1: a request is sent for ever.
    ResentForEver,
    /// A strict answer is given when the operation is done here.
    StrictWhenDone,
}

/// How a replica behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rules {
    /// When it gossips.
    pub pace: Pace,
    /// When it answers strictly.
    pub hops: Hops,
    /// What is wrong with it.
    pub slip: Option<Slip>,
}

impl Rules {
    /// The algorithm of the paper, corrected.
    pub const PAPER: Rules = Rules { pace: Pace::AtOnce, hops: Hops::Three, slip: None };

    fn slips(&self, slip: Slip) -> bool {
        self.slip == Some(slip)
    }
}

/// What a replica does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// `do_it`: it gives an operation a place in its order.
    Do(Id),
    /// `send response`: it answers an operation, to this front end.
    Respond(Id, usize),
    /// `send gossip`: it tells this replica what it knows.
    Gossip(usize),
    /// `solidify`, as figure 4.5 has it.
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

/// A replica of a service, to be looked at: the state of the paper's figures, by their names.
pub trait Replica<D: DataType> {
    /// `rcvd`: what it has received.
    fn received(&self) -> BTreeSet<Id>;
    /// `done[i]`: what it knows to be done at replica `i`.
    fn done(&self, i: usize) -> BTreeSet<Id>;
    /// `solid[i]`: what it knows to be solid at replica `i`.
    fn solid(&self, i: usize) -> BTreeSet<Id>;
    /// `minlabel`: the smallest label that it has seen.
    fn label(&self, id: Id) -> Option<Label>;
    /// The greatest counter that it has seen.
    fn clock(&self) -> u64;
    /// What is final, in its order, with the values that it has for ever.
    fn finals(&self) -> Vec<(Id, D::Value)>;
    /// What in its state contradicts itself.
    fn contradiction(&self) -> Option<&'static str>;
}
