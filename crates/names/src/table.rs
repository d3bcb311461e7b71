//! The mount table.
//!
//! A *mount point* is a directory replaced by one or several others, its *members*: mounted
//! directories, or a union. Its key is its identity and not its path, like the qid of the *from*
//! side in thesis 004, §3.4.4. A [`MountStack`] is the stack of mount points that a walk has
//! crossed, so that `..` returns the same way (the thesis's `MheadHistory`).

use crate::NamespaceChange;
use crate::hidden::Hidden;
use crate::history::{History, Number};
use crate::key::Key;
use base::{Name, Stat};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tree::NodeId;

/// Maximum depth of a mount stack: a directory bound into itself can be walked without end.
pub(crate) const DEPTH_MAX: usize = 256;

/// Maximum number of members of a union: each bind of a union behind itself doubles them.
pub(crate) const MEMBERS_MAX: usize = 4096;

/// A node that the mux itself needs.
#[derive(Debug)]
pub(crate) struct HeldNode {
    pub(crate) node: NodeId,
    /// Whether the mux has a reference to it, to be released. Roots of trees need none.
    pub(crate) owned: bool,
}

impl HeldNode {
    /// Returns the node if it must be released.
    fn due(&self) -> Option<NodeId> {
        self.owned.then_some(self.node)
    }

    /// Returns the node if it must be released and has no other holder.
    pub(crate) fn let_go(held: Arc<HeldNode>) -> Option<NodeId> {
        Arc::into_inner(held)?.due()
    }
}

/// A node or tree that the mux no longer needs.
#[derive(Debug)]
pub(crate) enum Released {
    /// A reference to a node, to be released.
    Node(NodeId),
    /// A tree with no mount left.
    Tree(u16),
}

/// A directory at a mount point, perhaps one of several.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) root: Arc<HeldNode>,
    pub(crate) key: Key,
    /// Its attributes when it was mounted.
    pub(crate) stat: Stat,
    /// Whether new files may be created in it.
    pub(crate) create: bool,
    /// Its source, as written in the command. `None`: the directory itself.
    pub(crate) what: Option<Arc<str>>,
    /// The line that mounted it. `None`: the directory itself.
    pub(crate) line: Option<Number>,
}

/// A mount point.
#[derive(Debug)]
pub(crate) struct MountPoint {
    pub(crate) from: Arc<HeldNode>,
    pub(crate) key: Key,
    /// Its path, as written in the command.
    pub(crate) path: Vec<Name>,
    /// At least one, in the order of lookup.
    pub(crate) members: Vec<Member>,
}

impl MountPoint {
    pub(crate) fn is_union(&self) -> bool {
        self.members.len() > 1
    }

    /// Returns the same mount point with other members.
    pub(crate) fn with(&self, members: Vec<Member>) -> MountPoint {
        let (from, path) = (Arc::clone(&self.from), self.path.clone());
        MountPoint { from, key: self.key, path, members }
    }

    /// Returns the lines that mounted its members, perhaps with repetitions.
    pub(crate) fn lines(&self) -> impl Iterator<Item = Number> {
        self.members.iter().filter_map(|member| member.line)
    }

    fn held(&self) -> impl Iterator<Item = &Arc<HeldNode>> {
        std::iter::once(&self.from).chain(self.members.iter().map(|member| &member.root))
    }
}

/// The mount stack of a walk: the mount points crossed, the last one first.
#[derive(Clone, Debug, Default)]
pub(crate) struct MountStack(Option<Arc<Crossed>>);

/// A crossed mount point.
#[derive(Debug)]
pub(crate) struct Crossed {
    pub(crate) point: Arc<MountPoint>,
    /// Key of the member by which it was crossed.
    root: Key,
    pub(crate) before: MountStack,
    depth: usize,
}

impl MountStack {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Returns the last mount point.
    pub(crate) fn last(&self) -> Option<&Crossed> {
        self.0.as_deref()
    }

    /// Returns the lines that mounted the members that it leads through.
    pub(crate) fn lines(&self) -> Vec<Number> {
        let (mut lines, mut stack) = (Vec::new(), self);
        while let Some(crossed) = stack.last() {
            let members = &crossed.point.members;
            let by = members.iter().find(|member| member.key == crossed.root);
            lines.extend(by.and_then(|member| member.line));
            stack = &crossed.before;
        }
        lines
    }

    /// Returns the last mount point, if this is the root of the member by which it was crossed.
    pub(crate) fn at_root(&self, key: Key) -> Option<&Crossed> {
        self.last().filter(|crossed| crossed.root == key)
    }

    /// Returns the stack with one mount point more; `None` if it is too deep.
    pub(crate) fn through(&self, point: &Arc<MountPoint>, member: usize) -> Option<MountStack> {
        let depth = self.last().map_or(1, |last| last.depth + 1);
        let (point, root) = (Arc::clone(point), point.members[member].key);
        let crossed = Crossed { point, root, before: self.clone(), depth };
        (depth <= DEPTH_MAX).then(|| MountStack(Some(Arc::new(crossed))))
    }

    /// Returns the stack with another member of the last mount point.
    pub(crate) fn by_member(&self, member: usize) -> MountStack {
        let last = self.last().expect("members belong to a point");
        last.before.through(&last.point, member).expect("it is as deep as it was")
    }
}

/// The position of a walk or of a client.
#[derive(Clone, Debug)]
pub(crate) struct Position {
    pub(crate) node: NodeId,
    pub(crate) stack: MountStack,
    /// Whether this is the mount stack's last mount point itself, whichever member the node is the
    /// root of.
    pub(crate) at_point: bool,
}

impl Position {
    /// Returns a place reached through no mount point.
    pub(crate) fn plain(node: NodeId) -> Position {
        Position { node, stack: MountStack::default(), at_point: false }
    }

    /// Returns the union at this place, if it is one.
    pub(crate) fn union(&self) -> Option<&Arc<MountPoint>> {
        let last = self.stack.last().filter(|_| self.at_point)?;
        last.point.is_union().then_some(&last.point)
    }
}

/// The mount table.
#[derive(Debug, Default)]
pub(crate) struct Table {
    points: BTreeMap<Key, Arc<MountPoint>>,
    /// References to release when the last place that needs them is gone.
    retired: Vec<Arc<HeldNode>>,
    source_text: History,
}

impl Table {
    pub(crate) fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    pub(crate) fn points(&self) -> impl Iterator<Item = &Arc<MountPoint>> {
        self.points.values()
    }

    pub(crate) fn point(&self, tree: u16, stat: &Stat) -> Option<&Arc<MountPoint>> {
        self.at(Key::new(tree, stat))
    }

    pub(crate) fn at(&self, key: Key) -> Option<&Arc<MountPoint>> {
        self.points.get(&key)
    }

    /// Returns whether this tree contains a mount point.
    pub(crate) fn has_points_in(&self, tree: u16) -> bool {
        let first = Key::first(tree);
        self.points.range(first..).next().is_some_and(|(key, _)| key.tree() == tree)
    }

    /// Returns whether an entry of this name in this tree may be a mount point.
    pub(crate) fn may_be_point(&self, tree: u16, name: &Name) -> bool {
        let is = |point: &&Arc<MountPoint>| point.from.node.tree() == tree;
        self.points().filter(is).any(|point| point.path.last() == Some(name))
    }

    /// Returns whether one more line can be kept.
    pub(crate) fn has_room(&mut self) -> bool {
        let lines = self.points.values().flat_map(|point| point.lines());
        self.source_text.has_room(lines)
    }

    /// Returns the commands that rebuild the table.
    pub(crate) fn text(&self) -> Vec<String> {
        self.source_text.text(self.lines())
    }

    fn lines(&self) -> impl Iterator<Item = Number> {
        self.points().flat_map(|point| point.lines())
    }

    /// Records a command about a mount point before the change; returns the number of the line.
    pub(crate) fn record(
        &mut self,
        requested: &NamespaceChange,
        key: Key,
        alone: bool,
        needs: Vec<Number>,
    ) -> Number {
        self.source_text.record(requested, key, alone, needs)
    }

    /// Sets or replaces a mount point, on behalf of a line.
    pub(crate) fn set(&mut self, point: MountPoint, by: Number) {
        let point = Arc::new(point);
        let old = self.points.insert(point.key, Arc::clone(&point));
        self.take_away(old.as_deref(), Some(&point), by);
        self.retire(old, Some(&point));
    }

    /// Removes a mount point, on behalf of a line.
    pub(crate) fn remove(&mut self, key: Key, by: Number) {
        let old = self.points.remove(&key);
        self.take_away(old.as_deref(), None, by);
        self.retire(old, None);
    }

    /// Returns whether a mount point would be unreachable if another one had only these members, or
    /// were removed. Trees are reachable from those in `open`, through mount points and hidden
    /// mounts.
    pub(crate) fn strands(
        &self,
        key: Key,
        members: &[Member],
        mut open: BTreeSet<u16>,
        hidden: &Hidden,
    ) -> bool {
        let rest = || self.points().filter(|point| point.key != key);
        let own = self.points.get(&key).map(|point| point.from.node.tree());
        loop {
            let before = open.len();
            let through = rest().filter(|point| open.contains(&point.from.node.tree()));
            let mut more: Vec<u16> = through
                .flat_map(|point| point.members.iter().map(|member| member.root.node.tree()))
                .collect();
            if own.is_some_and(|own| open.contains(&own)) {
                more.extend(members.iter().map(|member| member.root.node.tree()));
            }
            let behind = hidden.iter().filter(|mount| open.contains(&mount.at.tree()));
            more.extend(behind.map(|mount| mount.root.tree()));
            open.extend(more);
            if open.len() == before {
                return rest().any(|point| !open.contains(&point.from.node.tree()));
            }
        }
    }

    fn take_away(&mut self, old: Option<&MountPoint>, new: Option<&MountPoint>, by: Number) {
        let kept: BTreeSet<Number> = new.into_iter().flat_map(MountPoint::lines).collect();
        let gone = old.into_iter().flat_map(MountPoint::lines).filter(|line| !kept.contains(line));
        self.source_text.take_away(gone, by);
    }

    fn retire(&mut self, old: Option<Arc<MountPoint>>, new: Option<&Arc<MountPoint>>) {
        let Some(old) = old else { return };
        let kept = |held: &Arc<HeldNode>| {
            new.is_some_and(|new| new.held().any(|other| Arc::ptr_eq(held, other)))
        };
        let members = self.points.values().flat_map(|point| point.held());
        let shared: Vec<*const HeldNode> = members.map(Arc::as_ptr).collect();
        let gone = old.held().filter(|held| !kept(held) && !shared.contains(&Arc::as_ptr(held)));
        let gone: Vec<Arc<HeldNode>> = gone.cloned().collect();
        for held in gone {
            if !self.retired.iter().any(|other| Arc::ptr_eq(&held, other)) {
                self.retired.push(held);
            }
        }
    }

    /// Removes and returns retired references without users.
    pub(crate) fn sweep(&mut self) -> Vec<Released> {
        let free = |held: &Arc<HeldNode>| Arc::strong_count(held) == 1;
        if !self.retired.iter().any(free) {
            return Vec::new();
        }
        let (free, kept) = std::mem::take(&mut self.retired).into_iter().partition(free);
        self.retired = kept;
        let free: Vec<Arc<HeldNode>> = free;
        let gone = |held: Arc<HeldNode>| {
            held.due().map_or(Released::Tree(held.node.tree()), Released::Node)
        };
        free.into_iter().map(gone).collect()
    }

    /// Returns the number of lines kept.
    #[cfg(test)]
    pub(crate) fn lines_kept(&self) -> usize {
        self.source_text.len()
    }

    /// Returns the tree of every mount.
    #[cfg(test)]
    pub(crate) fn mounted(&self) -> Vec<u16> {
        let held = self.points().flat_map(|point| point.held()).chain(&self.retired);
        let held = held.filter(|held| !held.owned);
        let all: BTreeMap<_, _> = held.map(|held| (Arc::as_ptr(held), held.node)).collect();
        all.into_values().map(NodeId::tree).collect()
    }

    /// Returns every reference held for the table.
    #[cfg(test)]
    pub(crate) fn held(&self) -> Vec<NodeId> {
        let held = self.points().flat_map(|point| point.held()).chain(&self.retired);
        let held = held.filter(|held| held.owned);
        let all: BTreeMap<_, _> = held.map(|held| (Arc::as_ptr(held), held.node)).collect();
        all.into_values().collect()
    }

    pub(crate) fn check(&self) {
        for (key, point) in &self.points {
            assert!(*key == point.key && !point.members.is_empty());
        }
        self.source_text.check(self.lines());
    }
}
