//! The mux: joins trees into one namespace; to its clients it is itself a tree.
//!
//! Requests go to the tree whose id they carry. The mux adds *mount points* ([`table`]):
//! directories replaced by others, mounted or bound, alone or as a union. A node reached through
//! mount points has an id of the mux's own, which maps to its [`Position`]; all others keep the ids
//! of their trees, so without mount points the mux costs a comparison (thesis 004, §3.4: its tag,
//! fid and qid maps are our request ids, node ids and keys).
//!
//! In addition there are *hidden* mounts: behind a name in a directory that does not list it,
//! so that copies of a tree do not include the server's own state.
//!
//! Each request has at most one request to a tree in flight, which carries its id. So a slow or
//! dead tree delays only requests for its own files.

#![allow(clippy::wildcard_enum_match_arm, reason = "few requests need more than to be handed on")]

mod change;
mod entry;
mod fetch;
mod file_handle;
mod flush;
mod hidden;
mod history;
mod key;
mod list;
pub mod script;
mod table;
mod task;
#[cfg(test)]
mod tests;
mod walk;

pub use change::{NamespaceChange, Order, Source};

use base::op::Detail;
use base::{Automaton, Caller, Error, Instant, Name, Stat};
use change::Top;
use hidden::Hidden;
use list::Union;
use slab::Slab;
use std::collections::{BTreeMap, BTreeSet};
use table::{Position, Released, Table};
use task::Task;
use tree::{Ask, Id, Input as TreeInput, NodeId, OpenId, Reply, Request, RequestId};
use walk::Map;

/// Tree number in the mux's own ids.
pub const NAMES: u16 = 0xffe0;

/// An input of the mux.
#[derive(Debug)]
pub enum Input {
    /// A request of a client; exactly one [`Output::Reply`] follows.
    Ask(RequestId, Request),
    /// The reply is no longer wanted. A change not made yet ends at once.
    Cancel(RequestId),
    /// A client has released a reference to a node.
    Release(NodeId),
    /// A client has closed an open file.
    Close(OpenId),
    /// Like [`Input::Close`], after the loss of the client: unfinished work on the file is dropped.
    Abandon(OpenId),
    /// A tree's reply.
    Answered(RequestId, Result<Reply, Error>),
    /// A change of the namespace; exactly one [`Output::Changed`] follows. The id must differ from
    /// those of requests and of other changes.
    Change(RequestId, NamespaceChange),
}

/// An output of the mux.
#[derive(Debug)]
pub enum Output {
    /// The reply to a request.
    Reply(RequestId, Result<Reply, Error>),
    /// An input for the tree with this number.
    Tell(u16, TreeInput),
    /// Result of a change.
    Changed(RequestId, Result<(), Error>),
    /// A tree is unmounted everywhere, and no client is left in it, except by nodes of the tree
    /// itself that are still to be released.
    Left(u16),
}

/// A directory behind an unlisted name in another one.
#[derive(Clone, Debug)]
pub struct Mount {
    /// Directory of the name, one that is never released, like every tree's root.
    pub at: NodeId,
    /// The name.
    pub name: Name,
    /// Root of the mounted tree.
    pub root: NodeId,
}

/// A list of a union that waits for another one on the same open directory.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    id: RequestId,
    cookie: u64,
    bytes_max: u32,
    detail: Detail,
}

/// An open union directory.
#[derive(Debug)]
struct OpenUnion {
    union: Union,
    /// Pending lists, by order of arrival. Bounded by the node's admission of requests.
    waiting: BTreeMap<u64, Waiting>,
}

/// The mux.
#[derive(Debug)]
pub struct Names {
    root: NodeId,
    root_stat: Stat,
    hidden: Hidden,
    /// Number of the tree that looks up users.
    identifier: u16,
    table: Table,
    /// Places behind ids of the mux's own. Bounded: each holds a reference to a node of a tree, and
    /// trees limit those.
    places: Slab<Position>,
    unions: Slab<OpenUnion>,
    /// Requests that take more than one request to a tree. Bounded by the node's admission of
    /// requests.
    tasks: BTreeMap<RequestId, Task>,
    /// Nodes of trees that tasks need: the number of those tasks, and of releases deferred
    /// meanwhile.
    held: BTreeMap<NodeId, (u32, u32)>,
    /// Cancelled tasks: they send no further requests.
    cancelled: BTreeSet<RequestId>,
    /// Number of entries remembered for all open unions.
    entries: usize,
    /// Pending lists of unions: the union's slot and the order of arrival.
    queued: BTreeMap<RequestId, (usize, u64)>,
    /// Number of the next pending list.
    arrivals: u64,
    /// Tree that has the request of each id, unless it is the root's.
    elsewhere: BTreeMap<RequestId, u16>,
}

impl Names {
    /// Returns a mux over the tree with this root, with these hidden mounts; users are looked up in
    /// the tree with the number `identifier`.
    pub fn new(root: NodeId, root_stat: Stat, hidden: Vec<Mount>, identifier: u16) -> Names {
        Names {
            root,
            root_stat,
            hidden: Hidden::new(hidden),
            identifier,
            table: Table::default(),
            places: Slab::new(),
            unions: Slab::new(),
            tasks: BTreeMap::new(),
            held: BTreeMap::new(),
            cancelled: BTreeSet::new(),
            entries: 0,
            queued: BTreeMap::new(),
            arrivals: 0,
            elsewhere: BTreeMap::new(),
        }
    }

    /// Returns the root of the whole namespace.
    pub fn root(&self) -> NodeId {
        self.root
    }

    /// Adds a hidden mount.
    pub fn hide(&mut self, mount: Mount) {
        self.hidden.add(mount);
    }

    /// Removes the hidden mounts of the tree with this number.
    pub fn unhide(&mut self, tree: u16) {
        self.hidden.forget(tree);
    }

    /// Returns request and state names of all requests that take more than one request to a tree.
    pub fn tasks(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        self.tasks.values().map(Task::name)
    }

    /// Returns the number of nodes with places in the mux, and of open unions.
    pub fn counts(&self) -> (usize, usize) {
        (self.places.len(), self.unions.len())
    }

    /// Returns the number of mount points, and of unions among them.
    pub fn points(&self) -> (usize, usize) {
        let unions = self.table.points().filter(|point| point.is_union());
        (self.table.points().count(), unions.count())
    }

    /// Returns the names of entries of this tree that may be mount points: a walk may lead to other
    /// files than a list shows.
    pub fn point_names(&self, tree: u16) -> BTreeSet<Name> {
        let points = self.table.points().filter(|point| point.from.node.tree() == tree);
        let names = points.filter_map(|point| point.path.last());
        let hidden = self.hidden.iter().filter(|mount| mount.at.tree() == tree);
        names.chain(hidden.map(|mount| &mount.name)).cloned().collect()
    }

    /// Returns the [`script`] lines that build the namespace, in the order of execution.
    pub fn text(&self) -> Vec<String> {
        self.table.text()
    }
}

impl Automaton for Names {
    type Input = Input;
    type Output = Output;

    fn step(&mut self, _now: Instant, input: Input, out: &mut Vec<Output>) {
        match input {
            Input::Ask(id, request) => self.ask(id, request, out),
            Input::Cancel(id) => self.cancel(id, out),
            Input::Release(node) => self.release(node, out),
            Input::Close(open) => self.close(open, out),
            Input::Abandon(open) if open.tree() == NAMES => self.close(open, out),
            Input::Abandon(open) => out.push(Output::Tell(open.tree(), TreeInput::Abandon(open))),
            Input::Answered(id, reply) => {
                self.elsewhere.remove(&id);
                match self.tasks.remove(&id) {
                    Some(task) => {
                        self.go_on(id, task, Some(reply), out);
                        if !self.tasks.contains_key(&id) {
                            self.cancelled.remove(&id);
                            // It may have been the last user of an unmounted tree.
                            self.sweep(out);
                        }
                    }
                    None => out.push(Output::Reply(id, reply)),
                }
            }
            Input::Change(id, requested) => {
                let top = Top { node: self.root, stat: self.root_stat.clone() };
                let task = Task::change(self.root_place(), top, requested);
                self.go_on(id, task, None, out);
            }
        }
    }

    fn check(&self) {
        self.table.check();
        self.tasks.values().for_each(Task::check);
        assert!(self.places.iter().all(|(_, position)| !position.stack.is_empty()));
        assert!(self.cancelled.iter().all(|id| self.tasks.contains_key(id)));
        let waiting = self.unions.iter().map(|(_, open)| open.waiting.len()).sum::<usize>();
        assert_eq!(self.queued.len(), waiting, "every pending list has its place in a queue");
        for (id, (slot, number)) in &self.queued {
            assert_eq!(self.unions[*slot].waiting[number].id, *id);
        }
        let entries = self.unions.iter().map(|(_, open)| open.union.entries()).sum::<usize>();
        assert_eq!(self.entries, entries, "entries remembered");
        assert!(
            self.queued.values().all(|(_, number)| *number < self.arrivals),
            "they are counted"
        );
        let mut held: BTreeMap<NodeId, u32> = BTreeMap::new();
        for task in self.tasks.values() {
            match task {
                Task::Entry(entry) => {
                    entry.nodes.iter().for_each(|node| *held.entry(*node).or_default() += 1);
                }
                Task::List(slot) => {
                    assert!(!self.unions[*slot].union.is_idle(), "a union is listed")
                }
                Task::Walk(_)
                | Task::Create(_)
                | Task::Fetch(_)
                | Task::Open(..)
                | Task::Flush(_)
                | Task::Change(_)
                | Task::FileHandle(_)
                | Task::Handles(..)
                | Task::GivenUp => {}
            }
        }
        let needed = self.held.iter().map(|(node, (tasks, _))| (*node, *tasks));
        assert!(needed.eq(held), "nodes are held for those that need them");
    }
}

impl Names {
    fn ask(&mut self, id: RequestId, request: Request, out: &mut Vec<Output>) {
        if let Err(error) = self.take(id, request, out) {
            out.push(Output::Reply(id, Err(error)));
        }
    }

    /// Forwards a request, or makes a task of it.
    fn take(
        &mut self,
        id: RequestId,
        request: Request,
        out: &mut Vec<Output>,
    ) -> Result<(), Error> {
        let Request { caller, ask } = request;
        let task = match ask {
            Ask::Walk { from, names } if self.may_pass(from, &names) => {
                Task::walk(caller, self.position(from), names)
            }
            Ask::Fetch { path, read_max, headroom, root: None } => {
                if !self.table.is_empty() {
                    let root = self.root_place();
                    Task::fetch(caller, root, path, read_max, headroom)
                } else {
                    self.fetch_from(id, caller, path, (read_max, headroom), out);
                    return Ok(());
                }
            }
            // These ignore mount points and hidden mounts on the way.
            Ask::Fetch { root: Some(root), ref path, .. }
                if !self.is_whole(root) || path.iter().any(|n| self.hidden.is_name(n)) =>
            {
                return Err(Error::Unsupported);
            }
            Ask::ListAll { from, ref paths, .. } | Ask::ReadAll { from, ref paths, .. }
                if !self.is_whole(from) || paths.iter().any(|path| self.hidden.is_on(path)) =>
            {
                return Err(Error::Unsupported);
            }
            Ask::List { open, detail: Detail::Handle, .. } if open.tree() != NAMES => {
                self.list_handles(id, Request { caller, ask }, open, out);
                return Ok(());
            }
            Ask::FileHandle { node } => return self.file_handle(id, caller, node, out),
            Ask::Resolve { handle } => return self.resolve(id, caller, handle, out),
            Ask::List { open, cookie, bytes_max, detail } if open.tree() == NAMES => {
                let waiting = Waiting { id, cookie, bytes_max, detail };
                self.list(open, waiting, out);
                return Ok(());
            }
            Ask::Sync { open, data_only } if open.tree() == NAMES => {
                let point = self.unions[open.local()].union.point();
                Task::flush(caller, point, data_only)
            }
            Ask::Open { node, access } if self.position(node).union().is_some() => {
                if access.changes() {
                    return Err(Error::IsDirectory);
                }
                Task::open(caller, &self.position(node))
            }
            ask => {
                let subjects = self.subjects(&ask)?;
                match subjects.is_empty() {
                    false => self.entry_task(caller, ask, subjects),
                    true => return self.hand_on(id, caller, ask, out),
                }
            }
        };
        self.go_on(id, task, None, out);
        Ok(())
    }

    /// Returns a task for a request about entries and holds the nodes that it needs.
    fn entry_task(
        &mut self,
        caller: Caller,
        mut ask: Ask,
        subjects: Vec<(Position, Name)>,
    ) -> Task {
        ask.each_node(&mut |node| *node = self.position(*node).node);
        let task = Task::entry(Request { caller, ask }, subjects);
        if let Task::Entry(entry) = &task {
            for node in &entry.nodes {
                self.held.entry(*node).or_insert((0, 0)).0 += 1;
            }
        }
        task
    }

    /// Drops a task's need of these nodes, and performs the releases deferred meanwhile.
    fn let_go_of(&mut self, nodes: &[NodeId], out: &mut Vec<Output>) {
        for node in nodes {
            let held = self.held.get_mut(node).expect("it was held");
            assert!(held.0 > 0, "it is held for each that needs it");
            held.0 -= 1;
            if held.0 == 0 {
                let (_, given_back) = self.held.remove(node).expect("it is there");
                let release = || Output::Tell(node.tree(), TreeInput::Release(*node));
                out.extend((0..given_back).map(|_| release()));
            }
        }
    }

    /// Releases a reference to a node of a tree, deferred until no task needs it any more.
    fn release_node(&mut self, node: NodeId, out: &mut Vec<Output>) {
        match self.held.get_mut(&node) {
            Some((_, given_back)) => *given_back += 1,
            None => out.push(Output::Tell(node.tree(), TreeInput::Release(node))),
        }
    }

    /// Sends a fetch to the tree of the last hidden mount at the start of its path, or to the
    /// root's.
    fn fetch_from(
        &mut self,
        id: RequestId,
        caller: Caller,
        mut path: Vec<Name>,
        (read_max, headroom): (u32, u32),
        out: &mut Vec<Output>,
    ) {
        let mut root = self.root;
        while let Some(behind) = path.first().and_then(|first| self.hidden.behind(root, first)) {
            root = behind;
            path.remove(0);
        }
        let within = (root != self.root).then_some(root);
        let ask = Ask::Fetch { root: within, path, read_max, headroom };
        self.send_request(root.tree(), id, caller, ask, out);
    }

    /// Forwards a request for one tree alone.
    fn hand_on(
        &mut self,
        id: RequestId,
        caller: Caller,
        mut ask: Ask,
        out: &mut Vec<Output>,
    ) -> Result<(), Error> {
        if ask
            .ids()
            .into_iter()
            .flatten()
            .any(|one| matches!(one, Id::Open(o) if o.tree() == NAMES))
        {
            return Err(Error::IsDirectory);
        }
        let position = match &ask {
            Ask::Create { dir, .. } | Ask::CreateUnnamed { dir, .. } if dir.tree() == NAMES => {
                Some(self.position(*dir))
            }
            Ask::RemoveNode { node } | Ask::RenameNode { node, .. } => {
                // A directory mounted elsewhere cannot be removed from there.
                if self.position(*node).at_point {
                    return Err(Error::Busy);
                }
                None
            }
            _other => None,
        };
        ask.each_node(&mut |node| *node = self.position(*node).node);
        let [one, two] = ask.ids();
        let tree = one.map_or(self.identifier, Id::tree);
        if two.is_some_and(|two| two.tree() != tree) {
            return Err(Error::CrossDevice);
        }
        if let Some(position) = position {
            self.tasks.insert(id, Task::Create(position));
        }
        self.send_request(tree, id, caller, ask, out);
        Ok(())
    }

    /// Returns the entries that need a lookup first: those in unions, and possible mount points.
    fn subjects(&self, ask: &Ask) -> Result<Vec<(Position, Name)>, Error> {
        let entries = ask.entries();
        let entries = || entries.iter().flatten().map(|(dir, name)| (self.position(*dir), *name));
        if entries().any(|(position, name)| self.hides(&position, name)) {
            return Err(Error::Busy);
        }
        let unsure = |(position, name): (Position, &Name)| {
            position.union().is_some() || self.table.may_be_point(position.node.tree(), name)
        };
        if !entries().any(unsure) {
            return Ok(Vec::new());
        }
        Ok(entries().map(|(position, name)| (position, name.clone())).collect())
    }

    /// Returns whether a walk may pass from tree to tree.
    fn may_pass(&self, from: NodeId, names: &[Name]) -> bool {
        if from.tree() == NAMES || !self.table.is_empty() {
            return true;
        }
        let mounted = || self.hidden.iter().any(|mount| mount.root.tree() == from.tree());
        names.iter().any(|name| self.hidden.is_name(name) || (name.is_parent() && mounted()))
    }

    /// Returns whether there is no mount point in the tree of a node, so that the tree's own
    /// replies are complete.
    fn is_whole(&self, node: NodeId) -> bool {
        let position = self.position(node);
        let tree = position.node.tree();
        position.union().is_none() && !self.table.has_points_in(tree)
    }

    /// Returns the node of a place, or the root if the place is what is mounted there.
    fn tree_node(&self, position: &Position) -> NodeId {
        let last = position.stack.last().filter(|_| position.at_point);
        let is_root = last.is_some_and(|last| last.point.from.node == self.root);
        if is_root { self.root } else { position.node }
    }

    /// Returns whether a mount is hidden behind this name at a place.
    fn hides(&self, position: &Position, name: &Name) -> bool {
        let members = position.union().into_iter().flat_map(|union| &union.members);
        let mut nodes = members.map(|member| member.root.node).chain([self.tree_node(position)]);
        nodes.any(|at| self.hidden.behind(at, name).is_some())
    }

    /// Returns the place of a node id known to clients.
    fn position(&self, node: NodeId) -> Position {
        match node {
            node if node.tree() == NAMES => self.places[node.local()].clone(),
            node if node == self.root => self.root_place(),
            node => Position::plain(node),
        }
    }

    fn root_place(&self) -> Position {
        let plain = Position::plain(self.root);
        let Some(point) = self.table.point(self.root.tree(), &self.root_stat) else {
            return plain;
        };
        let stack = plain.stack.through(point, 0).expect("it is the first");
        Position { node: point.members[0].root.node, stack, at_point: true }
    }

    /// Returns the id by which clients know a node at a place.
    fn known_as(&mut self, position: Position) -> NodeId {
        match position.stack.is_empty() {
            true => position.node,
            false => NodeId::new(NAMES, self.places.insert(position)),
        }
    }

    fn release(&mut self, node: NodeId, out: &mut Vec<Output>) {
        if node.tree() != NAMES {
            return self.release_node(node, out);
        }
        let position = self.places.remove(node.local());
        self.release_node(position.node, out);
        drop(position);
        self.sweep(out);
    }

    fn sweep(&mut self, out: &mut Vec<Output>) {
        out.extend(self.table.sweep().into_iter().map(|gone| match gone {
            Released::Node(node) => Output::Tell(node.tree(), TreeInput::Release(node)),
            Released::Tree(tree) => Output::Left(tree),
        }));
    }

    fn cancel(&mut self, id: RequestId, out: &mut Vec<Output>) {
        if let Some((slot, number)) = self.queued.remove(&id) {
            self.unions[slot].waiting.remove(&number);
            return out.push(Output::Reply(id, Err(Error::Cancelled)));
        }
        match self.tasks.remove(&id) {
            Some(Task::Change(change)) => self.give_up(id, *change, out),
            Some(task) => {
                self.tasks.insert(id, task);
                self.cancelled.insert(id);
            }
            None => {}
        }
        let tree = self.elsewhere.get(&id).copied().unwrap_or(self.root.tree());
        out.push(Output::Tell(tree, TreeInput::Cancel(id)));
    }

    fn send_request(
        &mut self,
        tree: u16,
        id: RequestId,
        caller: Caller,
        ask: Ask,
        out: &mut Vec<Output>,
    ) {
        if tree != self.root.tree() {
            let before = self.elsewhere.insert(id, tree);
            assert!(before.is_none(), "a request is with one tree at a time");
        }
        out.push(Output::Tell(tree, TreeInput::Ask(id, Request { caller, ask })));
    }

    fn map(&self) -> Map<'_> {
        let root = self.table.point(self.root.tree(), &self.root_stat);
        Map { table: &self.table, hidden: &self.hidden, top: self.root, root }
    }
}
