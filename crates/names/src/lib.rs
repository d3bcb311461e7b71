//! The mux: joins trees into one name space; to its clients it is itself a tree.
//!
//! Today it knows one kind of junction, a *mount*: a name in a directory of one tree that leads to
//! a directory of another (or of the same), in front of whatever the first has there. Requests go
//! to the tree whose id they carry. Only a walk can pass from tree to tree: such a walk becomes a
//! [`crossing`] (thesis 004, §3.3: walks go whole to where they start, the rest goes on from the
//! mount point). A mounted name is not listed in its directory, so that copies of a tree do not
//! take the server's own state with them.

#![allow(clippy::wildcard_enum_match_arm, reason = "only walks and fetches can pass a mount")]

mod crossing;
#[cfg(test)]
mod tests;

use base::{Automaton, Caller, Error, Instant, Name};
use crossing::{Crossing, Step};
use std::collections::BTreeMap;
use tree::{Ask, Id, Input as TreeInput, NodeId, OpenId, Reply, Request, RequestId};

/// What can happen to the mux.
#[derive(Debug)]
pub enum Input {
    /// A client asks; exactly one [`Output::Reply`] follows.
    Ask(RequestId, Request),
    /// The reply is no longer wanted.
    Cancel(RequestId),
    /// A reference to a node is given back.
    Release(NodeId),
    /// An open file is given back.
    Close(OpenId),
    /// A tree answered.
    Answered(RequestId, Result<Reply, Error>),
}

/// What the mux can ask for.
#[derive(Debug)]
pub enum Output {
    /// The answer to a request.
    Reply(RequestId, Result<Reply, Error>),
    /// An input of the tree with this number.
    Tell(u16, TreeInput),
}

/// A directory that stands behind a name in another one.
#[derive(Clone, Debug)]
pub struct Mount {
    /// In which directory the name is: one that is never released, as every tree's root.
    pub at: NodeId,
    /// The name.
    pub name: Name,
    /// The root of what is mounted.
    pub root: NodeId,
}

/// The mux.
#[derive(Debug)]
pub struct Names {
    root: NodeId,
    mounts: Vec<Mount>,
    /// Walks that pass from tree to tree. Bounded: the node admits so many requests.
    crossings: BTreeMap<RequestId, Crossing>,
}

impl Names {
    /// The tree with this root, with these mounts in it.
    pub fn new(root: NodeId, mounts: Vec<Mount>) -> Names {
        Names { root, mounts, crossings: BTreeMap::new() }
    }

    /// The root of the whole name space.
    pub fn root(&self) -> NodeId {
        self.root
    }

    /// How many walks are passing from tree to tree.
    pub fn crossings(&self) -> usize {
        self.crossings.len()
    }
}

impl Automaton for Names {
    type Input = Input;
    type Output = Output;

    fn step(&mut self, _now: Instant, input: Input, out: &mut Vec<Output>) {
        match input {
            Input::Ask(id, request) => self.ask(id, request, out),
            Input::Cancel(id) => self.cancel(id, out),
            Input::Release(node) => out.push(Output::Tell(node.tree(), TreeInput::Release(node))),
            Input::Close(open) => out.push(Output::Tell(open.tree(), TreeInput::Close(open))),
            Input::Answered(id, reply) => match self.crossings.remove(&id) {
                Some(crossing) => self.cross(id, crossing, reply, out),
                None => out.push(Output::Reply(id, reply)),
            },
        }
    }

    fn check(&self) {
        self.crossings.values().for_each(Crossing::check);
    }
}

impl Names {
    fn ask(&mut self, id: RequestId, request: Request, out: &mut Vec<Output>) {
        let Request { caller, ask } = request;
        match ask {
            Ask::Walk { from, names } if self.may_cross(from, &names) => {
                let crossing = Crossing::new(caller, from, names);
                self.go_on(id, crossing, out);
            }
            Ask::Fetch { mut path, read_max, headroom, .. } => {
                let mut root = self.root;
                while let Some(mount) = path.first().and_then(|first| self.mount(root, first)) {
                    root = mount.root;
                    path.remove(0);
                }
                let within = (root != self.root).then_some(root);
                let ask = Ask::Fetch { root: within, path, read_max, headroom };
                tell(root.tree(), id, caller, ask, out);
            }
            ask => match self.route(&ask) {
                Ok(tree) => tell(tree, id, caller, ask, out),
                Err(error) => out.push(Output::Reply(id, Err(error))),
            },
        }
    }

    fn cancel(&mut self, id: RequestId, out: &mut Vec<Output>) {
        let trees = std::iter::once(self.root).chain(self.mounts.iter().map(|mount| mount.root));
        out.extend(trees.map(|root| Output::Tell(root.tree(), TreeInput::Cancel(id))));
    }

    /// Whether a walk could pass from tree to tree.
    fn may_cross(&self, from: NodeId, names: &[Name]) -> bool {
        let below = |mount: &Mount| mount.root.tree() == from.tree();
        let mounted = self.mounts.iter().any(below);
        let named = |name: &Name| self.mounts.iter().any(|mount| mount.name == *name);
        names.iter().any(|name| (mounted && name.is_parent()) || named(name))
    }

    fn mount(&self, at: NodeId, name: &Name) -> Option<&Mount> {
        self.mounts.iter().find(|mount| mount.at == at && mount.name == *name)
    }

    /// Which tree answers; two files of different trees have nothing to do with each other.
    fn route(&self, ask: &Ask) -> Result<u16, Error> {
        let [one, two] = ask.ids();
        let tree = one.map_or(self.root.tree(), Id::tree);
        if two.is_some_and(|two| two.tree() != tree) {
            return Err(Error::CrossDevice);
        }
        let taken = |(dir, name): (NodeId, &Name)| self.mount(dir, name).is_some();
        if ask.entries().into_iter().flatten().any(taken) {
            return Err(Error::Busy);
        }
        Ok(tree)
    }

    /// Takes a tree's answer to a part of a walk, and walks on or answers.
    fn cross(
        &mut self,
        id: RequestId,
        mut crossing: Crossing,
        reply: Result<Reply, Error>,
        out: &mut Vec<Output>,
    ) {
        if let Some(passed) = crossing.arrive(reply) {
            out.push(Output::Tell(passed.tree(), TreeInput::Release(passed)));
        }
        self.go_on(id, crossing, out);
    }

    fn go_on(&mut self, id: RequestId, mut crossing: Crossing, out: &mut Vec<Output>) {
        match crossing.next(&self.mounts) {
            Step::Walk(from, names) => {
                let caller = crossing.caller();
                self.crossings.insert(id, crossing);
                tell(from.tree(), id, caller, Ask::Walk { from, names }, out);
            }
            Step::End(reply) => out.push(Output::Reply(id, reply)),
        }
    }
}

fn tell(tree: u16, id: RequestId, caller: Caller, ask: Ask, out: &mut Vec<Output>) {
    out.push(Output::Tell(tree, TreeInput::Ask(id, Request { caller, ask })));
}
