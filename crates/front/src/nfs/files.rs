//! Files that a client uses, by their handles.
//!
//! NFS has no opens: a client sends a handle with each call. Nodes and open files are kept for a
//! while after a call, because the next one is likely to be for the same file. A node holds the
//! storage of a removed file, so this while is short; of a file without a node its *place* is kept,
//! the directory and name where it was found last, from which most files are found again. Places
//! are kept as long as there is memory for them, the ones used last.

use super::translate;
use crate::Output;
use base::{Access, Caller, Instant, Kind, Name, Stat, Time};
use slab::Slab;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tree::{NodeId, OpenId};
use wire::nfs::Handle;

/// Time for which the node of an unused file is kept.
const IDLE_TIME: Duration = Duration::from_secs(4);

/// The same for a file that is open for writing, which perhaps could not be opened so again.
const WRITE_TIME: Duration = Duration::from_secs(60);

/// Maximum number of files without a node.
const PLACES_MAX: usize = 1 << 16;

/// Memory of a file without a node, with its place, bytes.
pub(super) const PLACE_SIZE: usize = 512;

/// Maximum number of names walked to find a file by its place.
const PLACE_DEPTH_MAX: usize = 16;

/// Maximum number of files released at once when the client is gone.
const RELEASE_MAX: usize = 128;

/// A directory, by its handle, and the name of a file in it.
pub(super) type DirEntry = (Handle, Name);

/// A file.
#[derive(Debug)]
struct File {
    handle: Handle,
    kind: Kind,
    node: Option<NodeId>,
    opens: Vec<Open>,
    /// Open files to be closed after the last call that may use them.
    outdated: Vec<OpenId>,
    /// The attributes seen last, while it is open.
    seen: Option<Seen>,
    place: Option<DirEntry>,
    /// Number of calls that use the node.
    users: u32,
    /// Time when the node of an unused file is released, or was; zero before its first use.
    expires: Instant,
    /// Whether it was found to be gone: it is dropped after its last use.
    gone: bool,
}

impl File {
    fn new(handle: Handle, kind: Kind) -> File {
        File {
            handle,
            kind,
            node: None,
            opens: Vec::new(),
            outdated: Vec::new(),
            seen: None,
            place: None,
            users: 0,
            expires: Instant(0),
            gone: false,
        }
    }

    /// Returns the number of its node and open files.
    fn handles(&self) -> usize {
        self.opens.len() + self.outdated.len() + usize::from(self.node.is_some())
    }
}

/// An open file.
#[derive(Debug)]
struct Open {
    id: OpenId,
    caller: Caller,
    access: Access,
}

/// Attributes that tell whether permissions may have changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    mode: u32,
    uid: u32,
    gid: u32,
    modified: Time,
    changed: Time,
}

impl Seen {
    fn of(stat: &Stat) -> Seen {
        let Stat { mode, uid, gid, modified, changed, .. } = *stat;
        Seen { mode, uid, gid, modified, changed }
    }

    /// Returns whether permissions may have changed since: by owner and mode, or, as access control
    /// lists do, by a change that was not of the contents.
    fn may_differ(self, since: Seen) -> bool {
        let of = |seen: Seen| (seen.mode, seen.uid, seen.gid);
        of(self) != of(since) || self.changed != since.changed && self.modified == since.modified
    }
}

/// A file in use by a call, to be [released](Files::unpin).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pin(usize);

/// The files.
#[derive(Debug)]
pub(super) struct Files {
    files: Slab<File>,
    by_handle: BTreeMap<Handle, usize>,
    by_place: BTreeMap<DirEntry, usize>,
    /// Unused files with a node, by the time when they are released.
    warm: BTreeSet<(Instant, usize)>,
    /// Files without a node, by the time when it was released.
    cold: BTreeSet<(Instant, usize)>,
    /// Number of nodes and of open files.
    handles: usize,
    /// Whether the client is gone: unused files are released.
    is_leaving: bool,
}

impl Files {
    pub(super) fn new() -> Files {
        Files {
            files: Slab::new(),
            by_handle: BTreeMap::new(),
            by_place: BTreeMap::new(),
            warm: BTreeSet::new(),
            cold: BTreeSet::new(),
            handles: 0,
            is_leaving: false,
        }
    }

    /// Returns the number of nodes and of open files.
    pub(super) fn handles(&self) -> usize {
        self.handles
    }

    /// Returns the memory of files without a node, bytes.
    pub(super) fn places_bytes(&self) -> usize {
        self.cold.len() * PLACE_SIZE
    }

    /// Returns whether files are left to be released.
    pub(super) fn is_leaving(&self) -> bool {
        self.is_leaving && !self.files.is_empty()
    }

    /// Returns the time when the next node is released.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let first = self.warm.first().map(|(expires, _)| *expires);
        if self.is_leaving { first.map(|_| Instant(0)) } else { first }
    }

    /// Returns the file of a handle for a call, if its node is known.
    pub(super) fn pin(&mut self, handle: &Handle) -> Option<Pin> {
        let slot = *self.by_handle.get(handle)?;
        self.files[slot].node?;
        Some(self.pin_slot(slot))
    }

    fn pin_slot(&mut self, slot: usize) -> Pin {
        let file = &mut self.files[slot];
        self.warm.remove(&(file.expires, slot));
        file.users += 1;
        Pin(slot)
    }

    /// Releases a file after a call.
    pub(super) fn unpin(&mut self, pin: Pin, now: Instant, out: &mut Vec<Output>) {
        let Pin(slot) = pin;
        let file = &mut self.files[slot];
        assert!(file.users > 0, "a file is released once");
        file.users -= 1;
        let writes = file.opens.iter().any(|open| open.access.write);
        file.expires = now + if writes { WRITE_TIME } else { IDLE_TIME };
        if file.users > 0 {
            return;
        }
        self.handles -= file.outdated.len();
        out.extend(file.outdated.drain(..).map(Output::Close));
        if file.gone {
            return self.drop_file(slot, out);
        }
        self.warm.insert((file.expires, slot));
    }

    pub(super) fn node(&self, pin: Pin) -> NodeId {
        self.files[pin.0].node.expect("a file in use has a node")
    }

    pub(super) fn kind(&self, pin: Pin) -> Kind {
        self.files[pin.0].kind
    }

    /// Returns a place from which to walk to the file of a handle: a node and names; `None` if the
    /// file must be found by its handle.
    pub(super) fn way(&self, handle: &Handle) -> Option<(NodeId, Vec<Name>)> {
        let mut names = Vec::new();
        let mut slot = *self.by_handle.get(handle)?;
        while names.len() < PLACE_DEPTH_MAX {
            let (dir, name) = self.files[slot].place.as_ref()?;
            names.push(name.clone());
            slot = *self.by_handle.get(dir)?;
            if let Some(node) = self.files[slot].node {
                names.reverse();
                return Some((node, names));
            }
        }
        None
    }

    /// Adds a node of a file, or releases it if the file has one already.
    pub(super) fn add(
        &mut self,
        handle: Handle,
        kind: Kind,
        node: NodeId,
        out: &mut Vec<Output>,
    ) -> Pin {
        let slot = self.by_handle.get(&handle).copied().unwrap_or_else(|| {
            let slot = self.files.insert(File::new(handle, kind));
            self.by_handle.insert(handle, slot);
            slot
        });
        let file = &mut self.files[slot];
        if file.node.is_some() {
            out.push(Output::Release(node));
        } else {
            self.cold.remove(&(file.expires, slot));
            (file.node, file.kind) = (Some(node), kind);
            self.handles += 1;
        }
        self.pin_slot(slot)
    }

    /// Records where a file was found.
    pub(super) fn set_place(&mut self, Pin(slot): Pin, place: DirEntry) {
        let before = self.by_place.insert(place.clone(), slot);
        if let Some(before) = before.filter(|before| *before != slot) {
            self.files[before].place = None;
        }
        if let Some(old) = self.files[slot].place.replace(place.clone()).filter(|it| *it != place) {
            self.by_place.remove(&old);
        }
    }

    /// Records where a file is that was listed.
    pub(super) fn add_place(&mut self, handle: Handle, kind: Kind, place: DirEntry, now: Instant) {
        let slot = self.by_handle.get(&handle).copied().unwrap_or_else(|| {
            let slot = self.files.insert(File { expires: now, ..File::new(handle, kind) });
            self.by_handle.insert(handle, slot);
            self.cold.insert((now, slot));
            slot
        });
        self.set_place(Pin(slot), place);
    }

    /// Records that a file was renamed.
    pub(super) fn rename(&mut self, from: &DirEntry, to: DirEntry, out: &mut Vec<Output>) {
        if from == &to {
            return;
        }
        self.remove(&to, out);
        if let Some(slot) = self.by_place.remove(from) {
            self.by_place.insert(to.clone(), slot);
            self.files[slot].place = Some(to);
        }
    }

    /// Records that a name was removed: what was found there is released after its last use.
    pub(super) fn remove(&mut self, place: &DirEntry, out: &mut Vec<Output>) {
        if let Some(slot) = self.by_place.remove(place) {
            self.files[slot].place = None;
            self.forget(Pin(slot), out);
        }
    }

    /// Forgets a file: its next use finds it by its handle again, or not.
    pub(super) fn forget(&mut self, Pin(slot): Pin, out: &mut Vec<Output>) {
        if !std::mem::replace(&mut self.files[slot].gone, true) {
            let known = self.by_handle.remove(&self.files[slot].handle);
            assert_eq!(known, Some(slot), "a file is known by its handle");
        }
        if self.files[slot].users == 0 {
            self.drop_file(slot, out);
        }
    }

    /// Returns an open file with this access, if there is one.
    pub(super) fn open(&self, pin: Pin, caller: &Caller, access: Access) -> Option<OpenId> {
        let suits = |open: &&Open| {
            let enough = (open.access.read || !access.read) && (open.access.write || !access.write);
            enough && open.caller == *caller
        };
        self.files[pin.0].opens.iter().find(suits).map(|open| open.id)
    }

    /// Returns any open file, for operations that need no permission.
    pub(super) fn any_open(&self, pin: Pin) -> Option<OpenId> {
        self.files[pin.0].opens.first().map(|open| open.id)
    }

    /// Records attributes of a file in use. If permissions may have changed, open files of callers
    /// to whom they may be denied by now are not used for other calls; returns whether there are.
    pub(super) fn see(&mut self, Pin(slot): Pin, stat: &Stat) -> bool {
        let file = &mut self.files[slot];
        assert!(file.users > 0, "its open files are closed after the call");
        let seen = Seen::of(stat);
        if !file.seen.replace(seen).is_some_and(|before| seen.may_differ(before)) {
            return false;
        }
        let is_outdated = |open: &mut Open| {
            let is_allowed = translate::may_open(&open.caller, stat, open.access.write);
            open.caller != Caller::Server && !is_allowed
        };
        let before = file.outdated.len();
        file.outdated.extend(file.opens.extract_if(.., is_outdated).map(|open| open.id));
        file.outdated.len() > before
    }

    /// Adds an open file, to be kept as long as the node; returns it, or closes it and returns
    /// another one that allows as much.
    pub(super) fn add_open(
        &mut self,
        pin: Pin,
        caller: Caller,
        access: Access,
        id: OpenId,
        out: &mut Vec<Output>,
    ) -> OpenId {
        if let Some(known) = self.open(pin, &caller, access) {
            out.push(Output::Close(id));
            return known;
        }
        self.files[pin.0].opens.push(Open { id, caller, access });
        self.handles += 1;
        id
    }

    /// Forgets the files without a node beyond a number of them.
    pub(super) fn forget_places(&mut self, most: usize, out: &mut Vec<Output>) {
        while self.cold.len() > most.min(PLACES_MAX)
            && let Some((_, slot)) = self.cold.first().copied()
        {
            self.drop_file(slot, out);
        }
    }

    /// Releases nodes that have not been used for a while, and others beyond a number of handles.
    pub(super) fn expire(&mut self, now: Instant, most: usize, out: &mut Vec<Output>) {
        let mut left = RELEASE_MAX;
        while left > 0
            && let Some((expires, slot)) = self.warm.first().copied()
        {
            if expires > now && self.handles() <= most && !self.is_leaving {
                break;
            }
            left -= 1;
            if self.is_leaving {
                self.drop_file(slot, out);
            } else {
                self.cool(slot, now, out);
            }
        }
    }

    /// Releases all files after their last use, a few at each [`Files::expire`].
    pub(super) fn leave(&mut self, out: &mut Vec<Output>) {
        self.is_leaving = true;
        for (_, slot) in std::mem::take(&mut self.cold) {
            self.drop_file(slot, out);
        }
    }

    /// Releases node and open files of an unused file, and keeps its place.
    fn cool(&mut self, slot: usize, now: Instant, out: &mut Vec<Output>) {
        self.release(slot, out);
        if self.files[slot].place.is_none() {
            return self.drop_file(slot, out);
        }
        self.files[slot].expires = now;
        self.cold.insert((now, slot));
    }

    fn release(&mut self, slot: usize, out: &mut Vec<Output>) {
        let file = &mut self.files[slot];
        assert_eq!(file.users, 0, "a file in use is kept");
        self.warm.remove(&(file.expires, slot));
        self.handles -= file.handles();
        file.seen = None;
        let outdated = file.outdated.drain(..);
        out.extend(file.opens.drain(..).map(|open| open.id).chain(outdated).map(Output::Close));
        out.extend(file.node.take().map(Output::Release));
    }

    fn drop_file(&mut self, slot: usize, out: &mut Vec<Output>) {
        self.release(slot, out);
        let file = self.files.remove(slot);
        self.cold.remove(&(file.expires, slot));
        if !file.gone {
            self.by_handle.remove(&file.handle);
        }
        if let Some(place) = file.place {
            self.by_place.remove(&place);
        }
    }

    pub(super) fn check(&self, pins: usize) {
        let users: u32 = self.files.iter().map(|(_, file)| file.users).sum();
        assert_eq!(users as usize, pins, "each use is a call's");
        let mut handles = 0;
        for (slot, file) in &self.files {
            let is_warm = self.warm.contains(&(file.expires, slot));
            let is_cold = self.cold.contains(&(file.expires, slot));
            assert_eq!(is_warm, file.users == 0 && file.node.is_some(), "unused ones expire");
            assert_eq!(is_cold, file.node.is_none(), "those without node are limited");
            assert!(file.node.is_some() || file.opens.is_empty(), "opens are kept with the node");
            assert_eq!(self.by_handle.get(&file.handle) == Some(&slot), !file.gone);
            let place = file.place.as_ref().map(|place| self.by_place.get(place));
            assert!(place.is_none_or(|known| known == Some(&slot)), "a place has one file");
            assert!(file.users > 0 || file.outdated.is_empty(), "they are closed after the call");
            handles += file.handles();
        }
        assert_eq!(self.handles, handles);
        let places = self.files.iter().filter(|(_, file)| file.place.is_some()).count();
        assert_eq!(self.by_place.len(), places, "each place is of a file");
    }
}
