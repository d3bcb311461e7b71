//! Table of the files that the kernel knows: node numbers, their fids, and the names to reach them.
//!
//! The kernel counts its references to a node (*lookups*) and returns them with `FORGET`. A node is
//! one file of the server, identified by its qid, so hard links are one node. It keeps its fid as
//! long as there are few: beyond a limit the oldest fids are clunked, and walked to again by the
//! node's name when they are needed. A new file may have the number of a removed one: it is
//! recognised by the time of its creation, if the server sends that, and gets a node of its own.
//!
//! Invariants: a node's place is in `by_place` exactly if it is the node's own; a node is in
//! `by_key` unless its last name was removed through this mount, another file has its key, or it
//! is to get another node.

use crate::attr::Attr;
use crate::durability::{Durability, Kind, Proc};
use crate::errno::{self, Errno};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use wire::fuse::{Attributes, ROOT, Timestamp};
use wire::ninep::Qid;

#[cfg(test)]
mod tests;

/// Identity of a file on the server.
pub(crate) type Key = (u64, u8);

/// Returns the identity of a qid's file.
pub(crate) fn key(qid: Qid) -> Key {
    (qid.path, qid.kind)
}

/// Number of fids that are kept in any case.
const FIDS_MIN: usize = 64;

/// Number of outdated entries of the order of fids that is no reason to remove them.
const ORDER_FREE: usize = 64;

/// A name in a directory.
type EntryKey = (u64, Vec<u8>);

/// Start and names of a walk.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Route<F> {
    /// Fid of the directory to start from; `None` for the root.
    pub(crate) from: Option<F>,
    pub(crate) names: Vec<Vec<u8>>,
    /// Identity of the file that the walk must reach; `None` for the root.
    pub(crate) key: Option<Key>,
}

/// File known to the kernel.
#[derive(Debug)]
struct Node<F> {
    key: Key,
    lookups: u64,
    place: Option<EntryKey>,
    /// Number of times that it was found by another name.
    moves: u64,
    /// Fids by the user that attached.
    fids: Vec<(u32, F)>,
    /// Attributes last sent to the kernel.
    shown: Option<Attributes>,
    /// Time of the creation, if it is known.
    created: Option<Timestamp>,
    /// Connection on which it was found last.
    connection: u64,
    durability: Durability,
}

/// Maximum number of files that are remembered when the kernel has forgotten them.
const FORGOTTEN_MAX: usize = 16_384;

/// Changes of files that the kernel has forgotten: it does so when it needs memory, and nobody has
/// the file open.
#[derive(Debug, Default)]
struct Forgotten {
    by_key: BTreeMap<Key, (u64, Option<Timestamp>, Durability)>,
    /// The same in the order of arrival.
    order: BTreeMap<u64, Key>,
    next: u64,
}

impl Forgotten {
    /// Adds the changes of a file, instead of the oldest if there are too many.
    fn add(&mut self, key: Key, created: Option<Timestamp>, durability: Durability) {
        self.take(key, None);
        self.by_key.insert(key, (self.next, created, durability));
        self.order.insert(self.next, key);
        self.next += 1;
        if self.order.len() > FORGOTTEN_MAX {
            let oldest = self.order.pop_first().and_then(|(_, key)| self.by_key.remove(&key));
            assert!(oldest.is_some(), "both have the same files");
        }
    }

    /// Removes and returns the changes of a file. Another one with its number has none.
    fn take(&mut self, key: Key, created: Option<Timestamp>) -> Durability {
        let Some((number, known, durability)) = self.by_key.remove(&key) else {
            return Durability::default();
        };
        self.order.remove(&number);
        let is_other = known.is_some() && created.is_some() && known != created;
        if is_other { Durability::default() } else { durability }
    }
}

/// Table of nodes. `F` is a fid.
#[derive(Debug)]
pub(crate) struct Nodes<F> {
    by_id: BTreeMap<u64, Node<F>>,
    by_key: BTreeMap<Key, u64>,
    by_place: BTreeMap<EntryKey, u64>,
    next: u64,
    /// Nodes and users of fids, in the order of their creation. An entry may be outdated.
    order: VecDeque<(u64, u32)>,
    held: usize,
    held_max: usize,
    /// Names of files that are known by another name since, while the kernel may cache them.
    displaced: Vec<EntryKey>,
    forgotten: Forgotten,
    /// Present connection.
    connection: u64,
}

impl<F: Clone> Nodes<F> {
    /// Creates a table that holds at most this number of fids of nodes with names.
    pub(crate) fn new(root: Qid, held_max: usize) -> Nodes<F> {
        let node = Node {
            key: key(root),
            lookups: 1,
            place: None,
            moves: 0,
            fids: Vec::new(),
            shown: None,
            created: None,
            connection: 1,
            durability: Durability::default(),
        };
        Nodes {
            by_id: BTreeMap::from([(ROOT, node)]),
            by_key: BTreeMap::from([(key(root), ROOT)]),
            by_place: BTreeMap::new(),
            next: ROOT + 1,
            order: VecDeque::new(),
            held: 0,
            held_max,
            displaced: Vec::new(),
            forgotten: Forgotten::default(),
            connection: 1,
        }
    }

    /// Records that the kernel learns of a file and its attributes by this name. Returns its node.
    pub(crate) fn enter_with(
        &mut self,
        attr: &Attr,
        place: (u64, &[u8]),
        fid: Option<(u32, F)>,
    ) -> u64 {
        let known = self.by_key.get(&key(attr.qid)).copied();
        if let Some(id) = known.filter(|id| *id != ROOT && !self.is_same(*id, attr)) {
            self.by_key.remove(&self.by_id[&id].key);
        }
        let is_new = !self.by_key.contains_key(&key(attr.qid));
        let id = self.enter(attr.qid, place, fid);
        let node = self.by_id.get_mut(&id).expect("it was entered");
        node.created = attr.created.or(node.created);
        if is_new {
            node.durability = self.forgotten.take(node.key, attr.created);
        }
        self.show(id, &attr.shown);
        id
    }

    /// Returns whether attributes may be those of a node's file, and not of another one with its
    /// number.
    pub(crate) fn is_same(&self, id: u64, attr: &Attr) -> bool {
        let created = self.by_id.get(&id).and_then(|node| node.created);
        created.is_none() || attr.created.is_none() || created == attr.created
    }

    /// Returns whether the time of the creation of a node's file is known.
    pub(crate) fn has_created(&self, id: u64) -> bool {
        self.by_id.get(&id).is_some_and(|node| node.created.is_some())
    }

    /// Records that the kernel learns of a file by this name. Returns its node.
    fn enter(&mut self, qid: Qid, (parent, name): (u64, &[u8]), fid: Option<(u32, F)>) -> u64 {
        let next = self.next;
        let id = *self.by_key.entry(key(qid)).or_insert(next);
        if id == next {
            self.next += 1;
            let node = Node {
                key: key(qid),
                lookups: 0,
                place: None,
                moves: 0,
                fids: Vec::new(),
                shown: None,
                created: None,
                connection: 0,
                durability: Durability::default(),
            };
            self.by_id.insert(id, node);
        }
        let node = self.by_id.get_mut(&id).expect("known by its key");
        node.lookups += 1;
        node.connection = self.connection;
        if id != ROOT {
            let is_there = |place: &EntryKey| place.0 == parent && place.1 == name;
            node.moves += u64::from(node.place.as_ref().is_some_and(|place| !is_there(place)));
            self.put_at(id, (parent, name.to_vec()));
        }
        if let Some((user, fid)) = fid {
            self.keep(id, user, fid);
        }
        id
    }

    fn put_at(&mut self, id: u64, place: EntryKey) {
        if let Some(before) = self.by_place.insert(place.clone(), id).filter(|it| *it != id) {
            self.by_id.get_mut(&before).expect("its place is removed with it").place = None;
        }
        let node = self.by_id.get_mut(&id).expect("the caller has found it");
        let old = node.place.replace(place);
        if let Some(old) = old.filter(|old| node.place.as_ref() != Some(old)) {
            self.by_place.remove(&old);
            self.displaced.push(old);
        }
    }

    /// Removes references of the kernel to a node.
    pub(crate) fn forget(&mut self, id: u64, lookups: u64) {
        let Some(node) = self.by_id.get_mut(&id) else { return };
        node.lookups = node.lookups.saturating_sub(lookups);
        if node.lookups > 0 || id == ROOT {
            return;
        }
        let node = self.by_id.remove(&id).expect("found above");
        self.held -= node.fids.len();
        if let Some(place) = node.place {
            self.by_place.remove(&place);
        }
        if self.by_key.get(&node.key) == Some(&id) {
            self.by_key.remove(&node.key);
            if node.durability.is_of_use() {
                self.forgotten.add(node.key, node.created, node.durability);
            }
        }
    }

    /// Keeps a user's fid of a node, instead of an earlier one.
    pub(crate) fn keep(&mut self, id: u64, user: u32, fid: F) {
        let Some(node) = self.by_id.get_mut(&id) else { return };
        match node.fids.iter_mut().find(|(whose, _)| *whose == user) {
            Some((_, old)) => *old = fid,
            None => {
                node.fids.push((user, fid));
                self.held += 1;
                self.order.push_back((id, user));
            }
        }
        self.compact();
        self.evict();
    }

    /// Removes outdated entries of the order when they are more than the others.
    fn compact(&mut self) {
        if self.order.len() <= 2 * self.held + ORDER_FREE {
            return;
        }
        let mut seen = BTreeSet::new();
        let by_id = &self.by_id;
        self.order.retain(|(id, user)| {
            let node = by_id.get(id);
            let is_held = node.is_some_and(|it| it.fids.iter().any(|(whose, _)| whose == user));
            is_held && seen.insert((*id, *user))
        });
    }

    /// Removes the oldest half of the fids, of those that a name leads to, and keeps no more from
    /// now on. Returns them.
    pub(crate) fn shed(&mut self) -> Vec<F> {
        self.held_max = (self.held / 2).max(FIDS_MIN);
        self.evict()
    }

    /// Removes the oldest fids beyond the limit, except those that no name leads to.
    fn evict(&mut self) -> Vec<F> {
        let (rounds, mut removed) = (self.order.len(), Vec::new());
        for _ in 0..rounds {
            if self.held <= self.held_max {
                break;
            }
            let Some((id, user)) = self.order.pop_front() else { break };
            let Some(node) = self.by_id.get_mut(&id) else { continue };
            if node.place.is_none() {
                self.order.push_back((id, user));
                continue;
            }
            let of_user = node.fids.extract_if(.., |(whose, _)| *whose == user);
            let before = removed.len();
            removed.extend(of_user.map(|(_, fid)| fid));
            self.held -= removed.len() - before;
        }
        removed
    }

    /// Begins to use another connection; drops all fids of earlier ones.
    pub(crate) fn connect(&mut self, connection: u64) {
        self.connection = connection;
        self.drop_fids();
    }

    /// Gives files with changes that may be lost another node when they are looked up next, so that
    /// the kernel forgets their sizes and pages; not those that are open.
    pub(crate) fn renew(&mut self, is_open: impl Fn(u64) -> bool) {
        let Nodes { by_id, by_key, forgotten, .. } = self;
        by_key.retain(|key, id| {
            let node = by_id.get_mut(id).expect("known by its key");
            let is_kept = key.1 & Qid::DIR != 0 || !node.durability.is_of_use() || is_open(*id);
            if !is_kept {
                let durability = std::mem::take(&mut node.durability);
                forgotten.add(*key, node.created, durability);
            }
            is_kept
        });
    }

    /// Returns whether a node was found on the present connection.
    pub(crate) fn is_found(&self, id: u64) -> bool {
        self.by_id.get(&id).is_some_and(|node| node.connection == self.connection)
    }

    /// Drops all fids, because their connection is lost.
    pub(crate) fn drop_fids(&mut self) {
        self.by_id.values_mut().for_each(|node| node.fids.clear());
        self.order.clear();
        self.held = 0;
    }

    /// Drops a user's fid of a node.
    pub(crate) fn drop_fid(&mut self, id: u64, user: u32) {
        if let Some(node) = self.by_id.get_mut(&id) {
            let before = node.fids.len();
            node.fids.retain(|(whose, _)| *whose != user);
            self.held -= before - node.fids.len();
        }
    }

    /// Returns a user's fid of a node.
    pub(crate) fn fid(&self, id: u64, user: u32) -> Option<F> {
        let node = self.by_id.get(&id)?;
        node.fids.iter().find(|(whose, _)| *whose == user).map(|(_, fid)| fid.clone())
    }

    /// Returns the way to a node, from its nearest ancestor with a fid of this user.
    ///
    /// # Errors
    /// `ESTALE` if no known name leads to it.
    pub(crate) fn route(&self, id: u64, user: u32) -> Result<Route<F>, Errno> {
        let mut names = Vec::new();
        let (mut at, mut from) = (id, None);
        while at != ROOT && from.is_none() {
            let node = self.by_id.get(&at).ok_or(errno::ESTALE)?;
            let (parent, name) = node.place.as_ref().ok_or(errno::ESTALE)?;
            // A name can lead in a circle only if the server moved directories meanwhile.
            if names.len() > self.by_id.len() {
                return Err(errno::ESTALE);
            }
            names.push(name.clone());
            at = *parent;
            from = self.fid(at, user);
        }
        names.reverse();
        let key = self.by_id.get(&id).filter(|_| id != ROOT).map(|node| node.key);
        Ok(Route { from, names, key })
    }

    /// Returns the node of a name, if it is known.
    pub(crate) fn child(&self, parent: u64, name: &[u8]) -> Option<u64> {
        self.by_place.get(&(parent, name.to_vec())).copied()
    }

    /// Takes the names that are no longer known.
    pub(crate) fn take_displaced(&mut self) -> Vec<(u64, Vec<u8>)> {
        std::mem::take(&mut self.displaced)
    }

    /// Returns the number of a node's file.
    pub(crate) fn file(&self, id: u64) -> Option<u64> {
        self.by_id.get(&id).map(|node| node.key.0)
    }

    /// Returns the node of a file by its number.
    pub(crate) fn of_file(&self, file: u64) -> Option<u64> {
        let mut kinds = self.by_key.range((file, 0)..=(file, u8::MAX));
        kinds.next().map(|(_, id)| *id)
    }

    /// Returns the number of times that a node was found by another name.
    pub(crate) fn moves(&self, id: u64) -> u64 {
        self.by_id.get(&id).map_or(0, |node| node.moves)
    }

    /// Returns whether a node was found by another name since. A file with several has them all.
    pub(crate) fn is_moved_since(&self, id: u64, moves: u64) -> bool {
        let node = self.by_id.get(&id);
        node.is_some_and(|node| {
            node.moves != moves && node.shown.is_none_or(|shown| shown.nlink <= 1)
        })
    }

    /// Returns whether a node is a directory.
    pub(crate) fn is_directory(&self, id: u64) -> bool {
        self.by_id.get(&id).is_some_and(|node| node.key.1 & Qid::DIR != 0)
    }

    /// Returns the numbers of the directories from the root to a node, and the names of all but the
    /// first, if they are known.
    pub(crate) fn way(&self, id: u64) -> Option<(Vec<u64>, Vec<Vec<u8>>)> {
        let (mut files, mut names) = (vec![self.file(id)?], Vec::new());
        let mut at = id;
        while at != ROOT {
            let (parent, name) = self.by_id.get(&at)?.place.as_ref()?;
            // A name can lead in a circle only if the server moved directories meanwhile.
            if names.len() > self.by_id.len() {
                return None;
            }
            names.push(name.clone());
            files.push(self.file(*parent)?);
            at = *parent;
        }
        files.reverse();
        names.reverse();
        Some((files, names))
    }

    /// Returns identity and attributes last sent to the kernel.
    pub(crate) fn shown_attr(&self, id: u64) -> Option<Attr> {
        let node = self.by_id.get(&id)?;
        let qid = Qid { kind: node.key.1, version: 0, path: node.key.0 };
        Some(Attr { qid, shown: node.shown?, created: node.created })
    }

    /// Returns the name of a node, if it is known.
    pub(crate) fn place(&self, id: u64) -> Option<(u64, Vec<u8>)> {
        self.by_id.get(&id)?.place.clone()
    }

    /// Returns the names known in a directory.
    pub(crate) fn children(&self, id: u64) -> Vec<(u64, Vec<u8>)> {
        let from = self.by_place.range((id, Vec::new())..);
        from.take_while(|((dir, _), _)| *dir == id).map(|(place, _)| place.clone()).collect()
    }

    /// Returns all nodes of some files, and all names in their directories.
    pub(crate) fn all(&self, is_meant: impl Fn(u64) -> bool) -> (Vec<u64>, Vec<(u64, Vec<u8>)>) {
        let nodes = self.by_id.iter().filter(|(_, node)| is_meant(node.key.0));
        let is_in = |dir: &u64| self.by_id.get(dir).is_none_or(|node| is_meant(node.key.0));
        let places = self.by_place.keys().filter(|(dir, _)| is_in(dir));
        (nodes.map(|(id, _)| *id).collect(), places.cloned().collect())
    }

    /// Reports whether a name is known that leads to a node.
    pub(crate) fn is_named(&self, id: u64) -> bool {
        self.by_id.get(&id).is_some_and(|node| node.place.is_some())
    }

    /// Records that a name was removed through this mount.
    pub(crate) fn removed(&mut self, parent: u64, name: &[u8]) {
        let Some(id) = self.by_place.remove(&(parent, name.to_vec())) else { return };
        let node = self.by_id.get_mut(&id).expect("its place is removed with it");
        node.place = None;
        let is_last = node.shown.is_none_or(|shown| shown.nlink <= 1);
        let is_directory = node.key.1 & Qid::DIR != 0;
        // Its number may be used again for another file while this one is still open.
        if (is_last || is_directory) && self.by_key.get(&node.key) == Some(&id) {
            self.by_key.remove(&node.key);
        }
    }

    /// Records that a name was changed through this mount.
    pub(crate) fn renamed(&mut self, from: (u64, &[u8]), to: (u64, &[u8])) {
        let moved = self.child(from.0, from.1);
        if moved.is_some() && moved == self.child(to.0, to.1) {
            // Both are names of one file, which rename(2) leaves alone.
            return;
        }
        self.removed(to.0, to.1);
        if let Some(id) = moved {
            self.put_at(id, (to.0, to.1.to_vec()));
        }
    }

    /// Records attributes sent to the kernel. Returns whether they differ from the last.
    pub(crate) fn show(&mut self, id: u64, attributes: &Attributes) -> bool {
        let Some(node) = self.by_id.get_mut(&id) else { return false };
        let before = node.shown.replace(*attributes);
        before.is_some_and(|it| (it.size, it.mtime, it.ctime) != changes(attributes))
    }

    /// Returns the attributes last sent to the kernel.
    pub(crate) fn shown(&self, id: u64) -> Option<Attributes> {
        self.by_id.get(&id).and_then(|node| node.shown)
    }

    /// Returns the last known attributes of a file that has lost its last name.
    pub(crate) fn removed_attributes(&self, id: u64) -> Option<Attr> {
        self.by_id.get(&id).filter(|node| node.place.is_none())?;
        self.last_attributes(id)
    }

    /// Returns the last known attributes of a file that another client has removed.
    pub(crate) fn last_attributes(&self, id: u64) -> Option<Attr> {
        let attr = self.shown_attr(id)?;
        Some(Attr { shown: Attributes { nlink: 0, ..attr.shown }, ..attr })
    }

    /// Records an acknowledged write that ended at this offset.
    pub(crate) fn wrote(&mut self, id: u64, end: u64) {
        if let Some(shown) = self.by_id.get_mut(&id).and_then(|node| node.shown.as_mut()) {
            shown.size = shown.size.max(end);
        }
    }

    /// Returns the changes of a node that may not be durable.
    pub(crate) fn durability(&mut self, id: u64) -> Option<&mut Durability> {
        self.by_id.get_mut(&id).map(|node| &mut node.durability)
    }

    /// Records an acknowledged change by a thread.
    pub(crate) fn changed(&mut self, id: u64, kind: Kind, connection: u64, thread: u32) {
        if let Some(durability) = self.durability(id) {
            durability.changed(kind, connection, thread, &Proc);
        }
    }

    /// Returns how many times unsynced changes may have been lost with a connection.
    pub(crate) fn losses(&self, id: u64) -> u64 {
        self.by_id.get(&id).map_or(0, |node| node.durability.losses())
    }

    /// Checks the invariants.
    #[cfg(test)]
    pub(crate) fn check(&self) {
        for (place, id) in &self.by_place {
            assert_eq!(self.by_id[id].place.as_ref(), Some(place), "a place is its node's");
        }
        for (id, node) in &self.by_id {
            if let Some(place) = &node.place {
                assert_eq!(self.by_place.get(place), Some(id), "a node is at its place");
            }
            assert!(node.lookups > 0, "a node without references is removed");
        }
        for (key, id) in &self.by_key {
            assert_eq!(self.by_id[id].key, *key, "a key is its node's");
        }
        let held: usize = self.by_id.values().map(|node| node.fids.len()).sum();
        assert_eq!(held, self.held, "fids are counted");
    }
}

/// Returns the attributes that show a change of a file's contents.
fn changes(it: &Attributes) -> (u64, wire::fuse::Timestamp, wire::fuse::Timestamp) {
    (it.size, it.mtime, it.ctime)
}
