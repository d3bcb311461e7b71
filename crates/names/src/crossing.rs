//! A walk that may pass from tree to tree: one part after the other.
//!
//! A part is a run of names that stays in one tree, or a single name that passes over a mount
//! point, up or down. References to the nodes between the parts are given back.

use crate::Mount;
use base::{Caller, Error, Name, Stat};
use tree::{NodeId, Reply};

/// Where a walk is.
#[derive(Clone, Debug)]
enum Place {
    /// At a node, about to take the next part. Behind the start the reference is the walk's own.
    At(NodeId),
    /// Waiting for a tree to walk a part of so many names from a node.
    Asked(NodeId, usize),
    /// A part ended early or failed.
    Stopped(Option<Error>),
}

/// The walk.
#[derive(Clone, Debug)]
pub(crate) struct Crossing {
    caller: Caller,
    place: Place,
    /// Attributes of the files passed so far.
    stats: Vec<Stat>,
    /// Names still to go.
    names: Vec<Name>,
}

/// What a crossing wants next.
#[derive(Debug)]
pub(crate) enum Step {
    /// A walk within one tree.
    Walk(NodeId, Vec<Name>),
    /// Nothing: this is the answer.
    End(Result<Reply, Error>),
}

impl Crossing {
    pub(crate) fn new(caller: Caller, start: NodeId, names: Vec<Name>) -> Crossing {
        Crossing { caller, place: Place::At(start), stats: Vec::new(), names }
    }

    pub(crate) fn caller(&self) -> Caller {
        self.caller.clone()
    }

    pub(crate) fn check(&self) {
        assert!(matches!(self.place, Place::Asked(_, part) if part <= self.names.len()));
    }

    /// Takes the answer to the part asked for; returns the node that the walk is done with.
    pub(crate) fn arrive(&mut self, reply: Result<Reply, Error>) -> Option<NodeId> {
        let Place::Asked(from, part) = self.place else {
            unreachable!("no part was asked for");
        };
        let own = !self.stats.is_empty();
        self.place = match reply {
            Ok(Reply::Walked(stats, Some(node))) => {
                self.stats.extend(stats);
                self.names.drain(..part);
                Place::At(node)
            }
            Ok(Reply::Walked(stats, None)) => {
                self.stats.extend(stats);
                Place::Stopped(None)
            }
            Err(error) => Place::Stopped(Some(error)),
            Ok(other) => unreachable!("{other:?} answers no walk"),
        };
        own.then_some(from)
    }

    /// What to ask for next, or how the walk ended.
    pub(crate) fn next(&mut self, mounts: &[Mount]) -> Step {
        match self.place {
            Place::At(node) if self.names.is_empty() => {
                Step::End(Ok(Reply::Walked(std::mem::take(&mut self.stats), Some(node))))
            }
            Place::At(node) => {
                let (from, names, part) = self.part(node, mounts);
                self.place = Place::Asked(node, part);
                Step::Walk(from, names)
            }
            Place::Stopped(Some(error)) if self.stats.is_empty() => Step::End(Err(error)),
            Place::Stopped(_) => {
                Step::End(Ok(Reply::Walked(std::mem::take(&mut self.stats), None)))
            }
            Place::Asked(..) => unreachable!("the part asked for has not been answered"),
        }
    }

    /// The next part from `node`: where it starts, its names, and how many of ours it covers.
    fn part(&self, node: NodeId, mounts: &[Mount]) -> (NodeId, Vec<Name>, usize) {
        let here = || vec![Name::new(b".").expect("a plain name")];
        let first = &self.names[0];
        let above = mounts.iter().find(|mount| first.is_parent() && mount.root == node);
        if let Some(mount) = above {
            return (mount.at, here(), 1);
        }
        if let Some(mount) = mounts.iter().find(|m| node == m.at && m.name == *first) {
            return (mount.root, here(), 1);
        }
        let passes = |name: &Name| name.is_parent() || mounts.iter().any(|m| m.name == *name);
        let run = self.names[1..].iter().take_while(|name| !passes(name)).count() + 1;
        // A run may end in the root or leave it, so a name that can pass goes alone.
        (node, self.names[..run].to_vec(), run)
    }
}
