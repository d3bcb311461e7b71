//! Replicas of services: each is a tree, at `/services/NAME`.
//!
//! Requests to them can take long (formulas of a sheet, a snapshot), so they belong to a node
//! without connections, on a thread and a reactor of its own; home has a [stand-in](super::relay)
//! for each. Their journals and their connections to other replicas are in that node as well. It
//! ends when home has closed all stand-ins, which is home's last step.

#[cfg(test)]
mod tests;

use super::message::Message;
use super::messages::{self, NodeMessage};
use super::mounted_tree::{StandIn, Tree};
use super::relay::{self, Relay};
use super::role::{HOME, Role};
use super::{Config, Node, Phase, Served, limits, plain};
use base::op::{File, Op};
use base::{Error, Instant, Name};
use names::Mount;
use services::{Hosted, Options, StoredReplica};
use std::collections::BTreeSet;
use store::Store;
use tree::skeleton::Skeleton;
use tree::{Input as TreeInput, Reply, RequestId};

/// Number of the node that has the replicas of services, if there are any: it exists before the
/// namespace is constructed, and so before fronts.
pub const REPLICAS: usize = HOME + 1;

/// A replica in an open store.
#[derive(Debug)]
pub struct Replicated {
    /// File of the store.
    pub file: File,
    /// Store, which has recovered.
    pub store: Box<Store>,
    /// Stored state of the replica.
    pub kept: StoredReplica,
    /// Options of the replica from the server's configuration.
    pub options: Options,
}

impl Node {
    /// Mounts replicas of these services before any client connects. Node [`REPLICAS`] has them;
    /// returns the numbers of their trees.
    ///
    /// # Panics
    /// If two services have the same name, or a name is invalid for a file.
    pub fn host(&mut self, services: &[String]) -> Vec<u16> {
        if services.is_empty() {
            return Vec::new();
        }
        let names: Vec<Name> = services.iter().map(|service| plain(service)).collect();
        let paths: Vec<Vec<Name>> = names.iter().map(|name| vec![name.clone()]).collect();
        self.export.services = names.iter().cloned().collect();
        let Config { wall, owner, .. } = self.config;
        let make = |index| -> Box<dyn Tree> { Box::new(Skeleton::new(index, wall, &paths)) };
        let places = self.trees.plant(make).expect("a node begins with few trees");
        let top = self.trees[places].root();
        let at = self.trees[super::MAIN].root();
        self.names.hide(Mount { at, name: plain(services::PLACE), root: top });
        let mut trees = Vec::new();
        for name in names {
            let make = |index| -> Box<dyn Tree> {
                let (root, stat) = services::root(index, owner, wall);
                Box::new(StandIn(Relay::new(REPLICAS, root, stat)))
            };
            let tree = self.trees.plant(make).expect("a node begins with few trees");
            self.names.hide(Mount { at: top, name, root: self.trees[tree].root() });
            trees.push(tree);
        }
        self.note_points();
        self.replicas = Some(REPLICAS);
        self.export.limits = limits(&self.config, &self.trees);
        trees
    }

    /// Creates the node that has the replicas, each with the tree number from [`Node::host`].
    pub fn replicas(config: Config, replicas: Vec<(u16, Replicated)>) -> Node {
        let config = Config { ports: Vec::new(), storelets: None, service: false, ..config };
        let mut node = Node::new(config, Served::Skeleton { paths: Vec::new() }, Vec::new());
        node.role = Role::Replicas(REPLICAS, replicas.iter().map(|(tree, _)| *tree).collect());
        for (tree, replica) in replicas {
            let Replicated { file, store, kept, options } = replica;
            let hosted = Hosted::new(tree, file, *store, kept, options);
            node.trees.plant_as(tree, Box::new(hosted));
        }
        node
    }

    /// Returns the counters of the replicas of this node.
    pub fn replica_counts(&self) -> Vec<services::Counts> {
        self.trees.of_kind().map(Hosted::counts).collect()
    }

    /// Returns the units of work that replicas of this node have done so far.
    pub fn worked(&self) -> u64 {
        self.trees.of_kind().map(Hosted::worked_ever).sum()
    }

    /// Returns whether this node has an open replica with this tree number.
    fn has_replica(&self, tree: u16) -> bool {
        matches!(&self.role, Role::Replicas(_, open) if open.contains(&tree))
    }

    /// Handles an input of a replica.
    pub(crate) fn forwarded(&mut self, tree: u16, input: TreeInput) {
        // Home answers late requests to a closed tree.
        if self.has_replica(tree) {
            self.messages.push_back(Message::Tree(tree, input));
        }
    }

    /// Sends the reply of a replica to home.
    pub(crate) fn reply_home(
        &self,
        tree: u16,
        id: RequestId,
        reply: Result<Reply, Error>,
        ops: &mut Vec<Op>,
    ) {
        if self.has_replica(tree) {
            messages::post(HOME, NodeMessage::Replied(tree, id, reply), ops);
        }
    }

    /// Handles a message from the node that has the replicas.
    pub(crate) fn step_relay(
        &mut self,
        now: Instant,
        tree: u16,
        input: relay::Input,
        ops: &mut Vec<Op>,
    ) {
        let stand_in = self.trees[tree].downcast_mut::<StandIn>();
        let mut out = Vec::new();
        stand_in.expect("a tree of the other node").pass(now, input, &mut out);
        self.deliver_trees(now, tree, &mut out, ops);
    }

    /// Notifies home of closed replicas. When all are closed, this node ends.
    pub(crate) fn end_replicas(&mut self, ops: &mut Vec<Op>) {
        let Role::Replicas(_, open) = &mut self.role else { return };
        let trees = &self.trees;
        let is_open = |tree: &u16| !trees.is_closing(*tree) || !trees[*tree].is_closed();
        let (left, closed): (BTreeSet<u16>, _) = open.iter().copied().partition(is_open);
        *open = left;
        closed.into_iter().for_each(|tree| messages::post(HOME, NodeMessage::Closed(tree), ops));
        if open.is_empty() {
            self.phase = Phase::Over;
        }
    }
}
