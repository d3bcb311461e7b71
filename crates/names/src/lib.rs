//! The mux: joins trees into one name space; to its clients it is itself a tree.
//!
//! Requests go to the tree whose id they carry. What the mux adds are *points* ([`table`]):
//! directories in whose place others stand, mounted or bound, alone or as a union. A node that was
//! reached through points is known to clients by an id of the mux's own, behind which its
//! [`Place`] is kept; all others keep the ids of their trees, so without points the mux costs a
//! comparison (thesis 004, §3.4: its tag, fid and qid maps are our request ids, node ids and
//! keys).
//!
//! Besides there are *hidden* mounts: a name in a directory that is not listed there, so that
//! copies of a tree do not take the server's own state with them.
//!
//! Each request has at most one request at a tree under way, which bears its id. So a slow or dead
//! tree delays whoever asks for its files, and nobody else.

#![allow(clippy::wildcard_enum_match_arm, reason = "few requests need more than to be handed on")]

mod change;
mod entry;
mod fetch;
mod flush;
mod hidden;
mod list;
mod said;
pub mod script;
mod table;
mod task;
#[cfg(test)]
mod tests;
mod walk;

pub use change::{Order, Source, Wish};

use base::{Automaton, Caller, Error, Instant, Name, Stat};
use change::Top;
use hidden::Hidden;
use list::Union;
use slab::Slab;
use std::collections::{BTreeMap, BTreeSet};
use table::{Gone, Place, Table};
use task::Task;
use tree::{Ask, Id, Input as TreeInput, NodeId, OpenId, Reply, Request, RequestId};
use walk::Map;

/// The number that the mux's own ids bear in the place of a tree's.
pub const NAMES: u16 = 0xffe0;

/// What can happen to the mux.
#[derive(Debug)]
pub enum Input {
    /// A client asks; exactly one [`Output::Reply`] follows.
    Ask(RequestId, Request),
    /// The reply is no longer wanted. A change that is not made yet ends at once.
    Cancel(RequestId),
    /// A reference to a node is given back.
    Release(NodeId),
    /// An open file is given back.
    Close(OpenId),
    /// The same, because whoever had it is gone: what was begun with it is not finished.
    Abandon(OpenId),
    /// A tree answered.
    Answered(RequestId, Result<Reply, Error>),
    /// The name space is to be changed; exactly one [`Output::Changed`] follows. The id must
    /// differ from those of requests and of other changes.
    Change(RequestId, Wish),
}

/// What the mux can ask for.
#[derive(Debug)]
pub enum Output {
    /// The answer to a request.
    Reply(RequestId, Result<Reply, Error>),
    /// An input of the tree with this number.
    Tell(u16, TreeInput),
    /// A change was made, or could not be made.
    Changed(RequestId, Result<(), Error>),
    /// A tree that was mounted is mounted nowhere any more, and nobody is in it but by nodes of
    /// its own that are still to be given back.
    Left(u16),
}

/// A directory that stands behind a name in another one, and is not listed there.
#[derive(Clone, Debug)]
pub struct Mount {
    /// In which directory the name is: one that is never released, as every tree's root.
    pub at: NodeId,
    /// The name.
    pub name: Name,
    /// The root of what is mounted.
    pub root: NodeId,
}

/// A list of a union that waits for another one of the same open directory.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    id: RequestId,
    cookie: u64,
    bytes_max: u32,
    with_stat: bool,
}

/// An open union.
#[derive(Debug)]
struct OpenUnion {
    union: Union,
    /// Pending lists, by order of arrival. Bounded: the node admits so many requests.
    waiting: BTreeMap<u64, Waiting>,
}

/// The mux.
#[derive(Debug)]
pub struct Names {
    root: NodeId,
    root_stat: Stat,
    hidden: Hidden,
    /// The number of the tree that knows who users are.
    identifier: u16,
    table: Table,
    /// Behind ids of the mux's own. Bounded: each holds a reference to a node of a tree, and trees
    /// bound those.
    places: Slab<Place>,
    unions: Slab<OpenUnion>,
    /// Requests that take more than one request to a tree. Bounded: the node admits so many.
    tasks: BTreeMap<RequestId, Task>,
    /// Nodes of trees that tasks need: of how many tasks, and how often they were given back
    /// meanwhile.
    held: BTreeMap<NodeId, (u32, u32)>,
    /// Tasks whose answer is not wanted any more: they ask for nothing further.
    cancelled: BTreeSet<RequestId>,
    /// Entries remembered for all open unions.
    entries: usize,
    /// Pending lists of unions: the union's slot and the order of arrival.
    queued: BTreeMap<RequestId, (usize, u64)>,
    /// Number of the next pending list.
    arrivals: u64,
    /// Which tree has the request of each id, if it is not the root's.
    elsewhere: BTreeMap<RequestId, u16>,
}

impl Names {
    /// The tree with this root, with these mounts hidden in it; who users are is asked of the tree
    /// with the number `identifier`.
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

    /// The root of the whole name space.
    pub fn root(&self) -> NodeId {
        self.root
    }

    /// Hides one more.
    pub fn hide(&mut self, mount: Mount) {
        self.hidden.add(mount);
    }

    /// What the tree with this number has hidden is there no more, nor the tree.
    pub fn unhide(&mut self, tree: u16) {
        self.hidden.forget(tree);
    }

    /// How many requests take more than one request to a tree, by what they are doing.
    pub fn tasks(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        self.tasks.values().map(Task::name)
    }

    /// How many nodes the mux keeps places for, and how many unions are open.
    pub fn counts(&self) -> (usize, usize) {
        (self.places.len(), self.unions.len())
    }

    /// Number of directories that have others in their place, and of unions among them.
    pub fn points(&self) -> (usize, usize) {
        let unions = self.table.points().filter(|point| point.is_union());
        (self.table.points().count(), unions.count())
    }

    /// Lines in the words of [`script`] that make the name space, in the order in which they have
    /// to be said.
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
                            // It may have been the last one in a tree that is mounted no more.
                            self.sweep(out);
                        }
                    }
                    None => out.push(Output::Reply(id, reply)),
                }
            }
            Input::Change(id, wish) => {
                let top = Top { node: self.root, stat: self.root_stat.clone() };
                let task = Task::change(self.root_place(), top, wish);
                self.go_on(id, task, None, out);
            }
        }
    }

    fn check(&self) {
        self.table.check();
        self.tasks.values().for_each(Task::check);
        assert!(self.places.iter().all(|(_, place)| !place.trail.is_empty()));
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

    /// Hands a request on, or makes a task of it.
    fn take(
        &mut self,
        id: RequestId,
        request: Request,
        out: &mut Vec<Output>,
    ) -> Result<(), Error> {
        let Request { caller, ask } = request;
        let task = match ask {
            Ask::Walk { from, names } if self.may_pass(from, &names) => {
                Task::walk(caller, self.place(from), names)
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
            // These do not look at what is joined or hidden on the way.
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
            Ask::List { open, cookie, bytes_max, with_stat } if open.tree() == NAMES => {
                let waiting = Waiting { id, cookie, bytes_max, with_stat };
                self.list(open, waiting, out);
                return Ok(());
            }
            Ask::Sync { open, data_only } if open.tree() == NAMES => {
                let point = self.unions[open.local()].union.point();
                Task::flush(caller, point, data_only)
            }
            Ask::Open { node, access } if self.place(node).union().is_some() => {
                if access.changes() {
                    return Err(Error::IsDirectory);
                }
                Task::open(caller, &self.place(node))
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

    /// A request about entries, with the nodes it needs held for it.
    fn entry_task(&mut self, caller: Caller, mut ask: Ask, subjects: Vec<(Place, Name)>) -> Task {
        ask.each_node(&mut |node| *node = self.place(*node).node);
        let task = Task::entry(Request { caller, ask }, subjects);
        if let Task::Entry(entry) = &task {
            for node in &entry.nodes {
                self.held.entry(*node).or_insert((0, 0)).0 += 1;
            }
        }
        task
    }

    /// A task does not need these any more; what was given back meanwhile is.
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

    /// Gives a reference to a node of a tree back, now or when no task needs it any more.
    fn release_node(&mut self, node: NodeId, out: &mut Vec<Output>) {
        match self.held.get_mut(&node) {
            Some((_, given_back)) => *given_back += 1,
            None => out.push(Output::Tell(node.tree(), TreeInput::Release(node))),
        }
    }

    /// A fetch goes to the tree of the first hidden mount on its path, or to the root's.
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
        self.tell(root.tree(), id, caller, ask, out);
    }

    /// Hands a request on that is for one tree alone.
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
        let trail = match &ask {
            Ask::Create { dir, .. } | Ask::CreateUnnamed { dir, .. } if dir.tree() == NAMES => {
                Some(self.place(*dir))
            }
            Ask::RemoveNode { node } | Ask::RenameNode { node, .. } => {
                // What stands in the place of another directory cannot be taken away from there.
                if self.place(*node).at_point {
                    return Err(Error::Busy);
                }
                None
            }
            _other => None,
        };
        ask.each_node(&mut |node| *node = self.place(*node).node);
        let [one, two] = ask.ids();
        let tree = one.map_or(self.identifier, Id::tree);
        if two.is_some_and(|two| two.tree() != tree) {
            return Err(Error::CrossDevice);
        }
        if let Some(place) = trail {
            self.tasks.insert(id, Task::Create(place));
        }
        self.tell(tree, id, caller, ask, out);
        Ok(())
    }

    /// The entries that have to be looked for first: in unions, or perhaps the places of points.
    fn subjects(&self, ask: &Ask) -> Result<Vec<(Place, Name)>, Error> {
        let entries = ask.entries();
        let entries = || entries.iter().flatten().map(|(dir, name)| (self.place(*dir), *name));
        if entries().any(|(place, name)| self.hides(&place, name)) {
            return Err(Error::Busy);
        }
        let unsure = |(place, name): (Place, &Name)| {
            place.union().is_some() || self.table.may_be_point(place.node.tree(), name)
        };
        if !entries().any(unsure) {
            return Ok(Vec::new());
        }
        Ok(entries().map(|(place, name)| (place, name.clone())).collect())
    }

    /// Whether a walk could pass from tree to tree.
    fn may_pass(&self, from: NodeId, names: &[Name]) -> bool {
        if from.tree() == NAMES || !self.table.is_empty() {
            return true;
        }
        let mounted = || self.hidden.iter().any(|mount| mount.root.tree() == from.tree());
        names.iter().any(|name| self.hidden.is_name(name) || (name.is_parent() && mounted()))
    }

    /// Whether nothing stands in the place of anything in the tree of a node: what it says of
    /// itself is all there is to say.
    fn is_whole(&self, node: NodeId) -> bool {
        let place = self.place(node);
        let tree = place.node.tree();
        place.union().is_none() && !self.table.has_points_in(tree)
    }

    /// The node of a place, or the one that it stands for if that is the root of all.
    fn tree_node(&self, place: &Place) -> NodeId {
        let last = place.trail.last().filter(|_| place.at_point);
        let is_root = last.is_some_and(|last| last.point.from.node == self.root);
        if is_root { self.root } else { place.node }
    }

    /// Whether something is hidden at a place behind this name.
    fn hides(&self, place: &Place, name: &Name) -> bool {
        let members = place.union().into_iter().flat_map(|union| &union.members);
        let mut nodes = members.map(|member| member.root.node).chain([self.tree_node(place)]);
        nodes.any(|at| self.hidden.behind(at, name).is_some())
    }

    /// Where a client is that knows a node by this id.
    fn place(&self, node: NodeId) -> Place {
        match node {
            node if node.tree() == NAMES => self.places[node.local()].clone(),
            node if node == self.root => self.root_place(),
            node => Place::plain(node),
        }
    }

    fn root_place(&self) -> Place {
        let plain = Place::plain(self.root);
        let Some(point) = self.table.point(self.root.tree(), &self.root_stat) else {
            return plain;
        };
        let trail = plain.trail.through(point, 0).expect("it is the first");
        Place { node: point.members[0].root.node, trail, at_point: true }
    }

    /// The id by which clients know a node at a place.
    fn known_as(&mut self, place: Place) -> NodeId {
        match place.trail.is_empty() {
            true => place.node,
            false => NodeId::new(NAMES, self.places.insert(place)),
        }
    }

    fn release(&mut self, node: NodeId, out: &mut Vec<Output>) {
        if node.tree() != NAMES {
            return self.release_node(node, out);
        }
        let place = self.places.remove(node.local());
        self.release_node(place.node, out);
        drop(place);
        self.sweep(out);
    }

    fn sweep(&mut self, out: &mut Vec<Output>) {
        out.extend(self.table.sweep().into_iter().map(|gone| match gone {
            Gone::Node(node) => Output::Tell(node.tree(), TreeInput::Release(node)),
            Gone::Tree(tree) => Output::Left(tree),
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

    fn tell(&mut self, tree: u16, id: RequestId, caller: Caller, ask: Ask, out: &mut Vec<Output>) {
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
