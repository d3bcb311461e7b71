//! Roles of the nodes of a process, and the connections that they have.

use std::collections::BTreeSet;

/// Number of the node that has the namespace.
pub const HOME: usize = 0;

/// Role of a node in its process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Has the namespace; with the fronts and workers that have not ended.
    Home(BTreeSet<usize>),
    /// Has connections only.
    Front(usize),
    /// Has the replicas of services; with those that are not closed.
    Replicas(usize, BTreeSet<u16>),
}

/// A connection of this node, or one of a front.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Client {
    /// [`HOME`] for this node, whatever its own number is.
    pub(crate) node: usize,
    pub(crate) slot: usize,
}

impl Client {
    /// Returns the connection of this node with that slot.
    pub(crate) fn of_slot(slot: usize) -> Client {
        Client { node: HOME, slot }
    }
}
