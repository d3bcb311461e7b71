//! Handles: nodes and open files of clients, and the inodes and snapshots that they keep alive.

use super::record::{DATA, ROOT};
use super::snapshots::SNAPSHOTS_INODE;
use super::{Volume, read_view};
use crate::locks::FileKey;
use crate::request::{Ask, Id, NodeId, OpenId};
use base::{Access, Kind, Name};
use std::collections::{BTreeMap, btree_map};
use std::mem;
use std::ops::Range;
use store::{SnapshotId, View};

/// Slot of the root's node.
pub(super) const ROOT_SLOT: usize = 0;
/// Slot of the directory of snapshots.
pub(super) const SNAPSHOTS_SLOT: usize = 1;

/// Initial and maximum read-ahead of sequential reads, bytes.
const AHEAD: (u64, u64) = (128 << 10, 2 << 20);

/// Object of a node or an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeRef {
    /// An inode of a view.
    File(View, u64),
    /// The directory of snapshots.
    Snapshots,
}

/// A name in a directory.
pub(super) type EntryKey = (u64, Name);

/// A reference to a file.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) node_ref: NodeRef,
    /// Name by which it was reached; it may be removed, or be another file's by now.
    pub(super) place: Option<EntryKey>,
    /// References handed out and pending requests.
    pub(super) users: u32,
}

/// An object with its access mode.
#[derive(Clone, Copy, Debug)]
pub(super) struct Opening {
    pub(super) node_ref: NodeRef,
    pub(super) kind: Kind,
    pub(super) access: Access,
}

/// An open file.
#[derive(Clone, Debug)]
pub(super) struct Open {
    pub(super) what: Opening,
    /// One for the client and one for each pending request.
    pub(super) users: u32,
    /// Whether the client has closed it.
    pub(super) closed: bool,
    ahead: ReadAhead,
}

/// State of the read-ahead.
#[derive(Clone, Copy, Debug, Default)]
struct ReadAhead {
    /// Offset of the next read if reads are sequential.
    next: u64,
    /// Size of the read-ahead, bytes; zero if reads are not sequential.
    window: u64,
    /// Offset up to which data was read ahead.
    until: u64,
}

impl ReadAhead {
    /// Records a read; returns the range to read ahead.
    fn note(&mut self, part: Range<u64>, size: u64) -> Option<Range<u64>> {
        assert!(part.start <= part.end, "a read does not end before it begins");
        let goes_on = part.start == self.next;
        self.next = part.end;
        if !goes_on {
            (self.window, self.until) = (0, 0);
            return None;
        }
        if self.window > 0 && self.until >= self.next + self.window / 2 {
            return None;
        }
        self.window = (self.window * 2).clamp(AHEAD.0, AHEAD.1);
        let (from, to) = (self.until.max(self.next), size.min(self.next + self.window));
        (from < to).then_some(from..to)
    }

    /// Records that data up to this offset is being fetched.
    fn reaches(&mut self, until: u64) {
        self.until = self.until.max(until);
    }
}

impl Volume {
    pub(super) fn node_ref(&self, node: NodeId) -> NodeRef {
        self.nodes[node.local()].node_ref
    }

    /// Returns the identity of the file of a node or an open file.
    pub fn key(&self, id: Id) -> FileKey {
        let node_ref = match id {
            Id::Node(node) => self.node_ref(node),
            Id::Open(open) => self.open(open).what.node_ref,
        };
        match node_ref {
            NodeRef::File(view, ino) => (read_view::device(&self.store, view), ino),
            NodeRef::Snapshots => (self.device(), SNAPSHOTS_INODE),
        }
    }

    /// Returns the name by which a node was reached.
    pub(super) fn place(&self, node: NodeId) -> Option<&EntryKey> {
        self.nodes[node.local()].place.as_ref()
    }

    pub(super) fn open(&self, open: OpenId) -> &Open {
        &self.opens[open.local()]
    }

    /// Returns whether nodes or open files keep an inode of the present alive.
    pub(super) fn is_held(&self, ino: u64) -> bool {
        let nodes = self.nodes_of.range((ino, None, 0)..).next();
        nodes.is_some_and(|(of, ..)| *of == ino) || self.opens_of.contains_key(&ino)
    }

    /// Returns the first node of an inode of the present that was reached by this name.
    fn first_node(&self, ino: u64, place: Option<&EntryKey>) -> Option<usize> {
        let (of, by, slot) = self.nodes_of.range((ino, place.cloned(), 0)..).next()?;
        (*of == ino && by.as_ref() == place).then_some(*slot)
    }

    /// Returns whether a node or open file is in a snapshot.
    pub(super) fn is_visited(&self, id: SnapshotId) -> bool {
        self.visits.contains_key(&id.0)
    }

    /// Returns the node at the end of a pending walk.
    pub(super) fn arrive(
        &mut self,
        slot: usize,
        node_ref: NodeRef,
        place: Option<EntryKey>,
    ) -> NodeId {
        let known = match node_ref {
            NodeRef::Snapshots => Some(SNAPSHOTS_SLOT),
            NodeRef::File(View::Present, ROOT) => Some(ROOT_SLOT),
            NodeRef::File(..) => self.same_node(slot),
        };
        match known {
            Some(known) => self.share_node(known),
            None => self.add_node(node_ref, place),
        }
    }

    /// Returns the slot of a walk without names, which adds a reference to the same node.
    fn same_node(&self, slot: usize) -> Option<usize> {
        let Ask::Walk { from, names } = &self.pending[slot].ask else { return None };
        names.is_empty().then(|| from.local())
    }

    fn share_node(&mut self, slot: usize) -> NodeId {
        self.nodes[slot].users += 1;
        NodeId::new(self.index, slot)
    }

    /// Returns a node: an existing one if it was reached by the same name, so that a rename changes
    /// one of them however many clients hold.
    pub(super) fn add_node(&mut self, node_ref: NodeRef, place: Option<EntryKey>) -> NodeId {
        if let NodeRef::File(View::Present, ino) = node_ref
            && let Some(slot) = self.first_node(ino, place.as_ref())
        {
            return self.share_node(slot);
        }
        let slot = self.nodes.insert(Node { node_ref, place: place.clone(), users: 1 });
        match node_ref {
            NodeRef::File(View::Present, ino) => _ = self.nodes_of.insert((ino, place, slot)),
            NodeRef::File(View::Snapshot(id), _) => *self.visits.entry(id.0).or_default() += 1,
            NodeRef::Snapshots => {}
        }
        NodeId::new(self.index, slot)
    }

    pub(super) fn add_open(&mut self, what: Opening) -> OpenId {
        match what.node_ref {
            NodeRef::File(View::Present, ino) => *self.opens_of.entry(ino).or_default() += 1,
            NodeRef::File(View::Snapshot(id), _) => *self.visits.entry(id.0).or_default() += 1,
            NodeRef::Snapshots => {}
        }
        let (users, closed, ahead) = (1, false, ReadAhead::default());
        OpenId::new(self.index, self.opens.insert(Open { what, users, closed, ahead }))
    }

    pub(super) fn users(&self, id: Id) -> u32 {
        match id {
            Id::Node(node) => self.nodes[node.local()].users,
            Id::Open(open) => self.opens[open.local()].users,
        }
    }

    pub(super) fn pin(&mut self, id: Id) {
        match id {
            Id::Node(node) => self.nodes[node.local()].users += 1,
            Id::Open(open) => {
                let open = &mut self.opens[open.local()];
                assert!(!open.closed, "a closed file is not used again");
                open.users += 1;
            }
        }
    }

    /// Removes a use, and releases the object after the last one.
    pub(super) fn unpin(&mut self, id: Id) {
        let users = match id {
            Id::Node(node) => &mut self.nodes[node.local()].users,
            Id::Open(open) => &mut self.opens[open.local()].users,
        };
        assert!(*users > 0, "a use is given back once");
        *users -= 1;
        if *users > 0 {
            return;
        }
        let node_ref = match id {
            Id::Node(node) => {
                let Node { node_ref, place, .. } = self.nodes.remove(node.local());
                if let NodeRef::File(View::Present, ino) = node_ref {
                    let known = self.nodes_of.remove(&(ino, place, node.local()));
                    assert!(known, "a node is found by its inode");
                }
                node_ref
            }
            Id::Open(open) => {
                assert!(
                    self.opens[open.local()].closed,
                    "only pending requests may use it after its client"
                );
                let node_ref = self.opens.remove(open.local()).what.node_ref;
                if let NodeRef::File(View::Present, ino) = node_ref {
                    give_back(&mut self.opens_of, ino);
                }
                node_ref
            }
        };
        match node_ref {
            NodeRef::File(View::Present, ino) => {
                if self.orphans.contains(&ino) && !self.is_held(ino) {
                    self.due.push(ino);
                }
            }
            NodeRef::File(View::Snapshot(id), _) => give_back(&mut self.visits, id.0),
            NodeRef::Snapshots => {}
        }
    }

    /// Records that an entry was renamed or removed, in the nodes that were reached by it.
    pub(super) fn move_places(&mut self, ino: u64, from: &EntryKey, to: Option<&EntryKey>) {
        while let Some(slot) = self.first_node(ino, Some(from)) {
            assert!(to != Some(from), "a rename to the same name changes nothing");
            self.move_node(ino, slot, to);
        }
    }

    /// Records the name of a formerly unnamed file in its nodes.
    pub(super) fn set_place(&mut self, ino: u64, place: &EntryKey) {
        assert!(!self.orphans.contains(&ino), "the file has a name");
        while let Some(slot) = self.first_node(ino, None) {
            self.move_node(ino, slot, Some(place));
        }
    }

    fn move_node(&mut self, ino: u64, slot: usize, to: Option<&EntryKey>) {
        let before = mem::replace(&mut self.nodes[slot].place, to.cloned());
        let known = self.nodes_of.remove(&(ino, before, slot));
        assert!(known, "a node is found by its inode and name");
        self.nodes_of.insert((ino, to.cloned(), slot));
    }

    /// Returns the identity of an open file, for locks.
    pub(super) fn file_key(&self, open: OpenId) -> FileKey {
        match self.open(open).what.node_ref {
            NodeRef::File(view, ino) => (read_view::device(&self.store, view), ino),
            NodeRef::Snapshots => (self.device(), u64::MAX),
        }
    }

    /// Records a read, and reads ahead if reads are sequential.
    pub(super) fn read_ahead(&mut self, open: OpenId, part: Range<u64>, size: u64) {
        let open = &mut self.opens[open.local()];
        let Some(next) = open.ahead.note(part, size) else { return };
        let NodeRef::File(view, ino) = open.what.node_ref else { return };
        let Ok(reader) = self.store.reader(view) else { return };
        let behind = size.min(next.end + AHEAD.1);
        let (missing, reached) = reader.foresee(DATA, ino, next, behind);
        open.ahead.reaches(reached);
        assert!(reached <= behind, "nobody reads ahead of the end");
        self.store.prefetch(missing, &mut self.inbox);
    }

    pub(super) fn check_handles(&self) {
        assert!(self.nodes[ROOT_SLOT].users > 0 && self.nodes[SNAPSHOTS_SLOT].users > 0);
        assert!(self.nodes.iter().all(|(_, node)| node.users > 0));
        assert!(self.opens.iter().all(|(_, open)| open.users > 0));
        assert!(self.nodes_of.iter().all(|(.., slot)| self.nodes.contains(*slot)));
        let visiting = self.visits.values().sum::<usize>();
        let opens = self.opens_of.values().sum::<usize>();
        assert!(self.nodes_of.len() + opens + visiting <= self.nodes.len() + self.opens.len());
        let mut opens_of: BTreeMap<u64, usize> = BTreeMap::new();
        let mut visits: BTreeMap<u64, usize> = BTreeMap::new();
        let opens = self.opens.iter().map(|(_, open)| open.what.node_ref);
        let nodes = self.nodes.iter().map(|(_, node)| node.node_ref);
        for (node_ref, is_open) in
            opens.map(|node_ref| (node_ref, true)).chain(nodes.map(|node_ref| (node_ref, false)))
        {
            match node_ref {
                NodeRef::File(View::Present, ino) if is_open => {
                    *opens_of.entry(ino).or_default() += 1
                }
                NodeRef::File(View::Snapshot(id), _) => *visits.entry(id.0).or_default() += 1,
                NodeRef::File(View::Present, _) | NodeRef::Snapshots => {}
            }
        }
        assert_eq!(self.opens_of, opens_of, "open files of each inode are counted");
        assert_eq!(self.visits, visits, "visits of each snapshot are counted");
        let present = self.nodes.iter().filter_map(|(slot, node)| match node.node_ref {
            NodeRef::File(View::Present, ino) if slot != ROOT_SLOT => {
                Some((ino, node.place.clone(), slot))
            }
            NodeRef::File(..) | NodeRef::Snapshots => None,
        });
        assert_eq!(self.nodes_of, present.collect(), "nodes are found by their inodes");
        for (slot, open) in &self.opens {
            let id = Id::Open(OpenId::new(self.index, slot));
            let pins = self.pending.iter().flat_map(|(_, pending)| pending.pins());
            let pins = pins.filter(|pin| *pin == id).count();
            let client = usize::from(!open.closed);
            assert_eq!(open.users as usize, pins + client, "each use is somebody's");
        }
    }
}

fn give_back(counts: &mut BTreeMap<u64, usize>, of: u64) {
    match counts.entry(of) {
        btree_map::Entry::Occupied(entry) if *entry.get() == 1 => _ = entry.remove(),
        btree_map::Entry::Occupied(mut entry) => *entry.get_mut() -= 1,
        btree_map::Entry::Vacant(_) => unreachable!("only taken numbers are returned"),
    }
}

#[cfg(test)]
mod tests {
    use super::{AHEAD, ReadAhead};

    #[test]
    fn sequential_reads_are_prefetched_in_growing_steps() {
        let (size, mut ahead) = (64 << 20, ReadAhead::default());
        let first = ahead.note(0..4096, size);
        assert_eq!(first, Some(4096..4096 + AHEAD.0));
        ahead.reaches(4096 + AHEAD.0);
        assert_eq!(ahead.note(4096..8192, size), None, "more than half is there");
        let at = AHEAD.0;
        let more = ahead.note(8192..at, size);
        assert_eq!(more, Some(4096 + AHEAD.0..at + 2 * AHEAD.0));
        assert_eq!(ahead.note(9 << 20..10 << 20, size), None, "somewhere else");
        assert_eq!(ahead.note(0..4096, size), None);
    }
}
