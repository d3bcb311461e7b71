//! Remote inodes in use, by path and qid.
//!
//! An inode stores its directory, its name there, and its qid, so that it can be found again on
//! another connection or for another user; a different qid means that it is
//! [stale](base::Error::Stale). An inode exists while it is in use or has inodes below it.

#[cfg(test)]
mod tests;

use super::words;
use super::writes::Writes;
use base::Name;
use slab::Slab;
use std::collections::BTreeMap;
use wire::ninep::Qid;

/// Number of the root.
pub(super) const ROOT: usize = 0;

/// Maximum number of users with fids of an inode, besides those with requests in flight.
const FIDS_MAX: usize = 64;

/// A fid of an inode, for one user, on one connection.
#[derive(Clone, Copy, Debug)]
struct BoundFid {
    epoch: u32,
    fid: u32,
    /// Time of the last use.
    used: u64,
}

#[derive(Clone, Debug)]
struct Inode {
    /// Its directory and its name there; `None` for the root.
    at: Option<(usize, Name)>,
    qid: Qid,
    /// References handed out, and pending requests.
    users: u32,
    /// Number of inodes below.
    children: u32,
    /// Fids by user.
    fids: BTreeMap<u32, BoundFid>,
    /// The user that created the file, and the number of the open file of its creation.
    created: Option<(u32, usize)>,
    /// Durability of the writes to it.
    writes: Writes,
}

impl Inode {
    fn new(at: Option<(usize, Name)>, qid: Qid) -> Inode {
        let (fids, writes) = (BTreeMap::new(), Writes::default());
        Inode { at, qid, users: 1, children: 0, fids, created: None, writes }
    }
}

/// All inodes.
#[derive(Debug)]
pub(super) struct Inodes {
    slab: Slab<Inode>,
    /// Inodes by directory and name, as far as their names are current.
    index: BTreeMap<(usize, Name), usize>,
    /// Number of pending requests and recoveries by user; fids of these users are kept.
    busy: BTreeMap<u32, u32>,
    /// Logical time of the last use of a fid.
    clock: u64,
    /// Number of the connection; fids of other connections are unknown to the server.
    epoch: u32,
}

impl Inodes {
    /// Returns the root alone, with an unknown qid.
    pub(super) fn new() -> Inodes {
        let qid = Qid { kind: Qid::DIR, ..Qid::default() };
        let mut slab = Slab::new();
        slab.insert(Inode::new(None, qid));
        Inodes { slab, index: BTreeMap::new(), busy: BTreeMap::new(), clock: 0, epoch: 0 }
    }

    /// Returns the number of inodes, not counting the root.
    pub(super) fn len(&self) -> usize {
        self.slab.len() - 1
    }

    /// Returns the number of the connection.
    pub(super) fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Forgets all fids after the loss of the connection.
    pub(super) fn lose_fids(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
    }

    pub(super) fn qid(&self, inode: usize) -> Qid {
        self.slab[inode].qid
    }

    /// Records the current qid of an inode.
    pub(super) fn set_qid(&mut self, inode: usize, qid: Qid) {
        self.slab[inode].qid = qid;
    }

    /// Returns the directory of an inode; for the root, the root.
    pub(super) fn parent(&self, inode: usize) -> usize {
        self.slab[inode].at.as_ref().map_or(ROOT, |(parent, _)| *parent)
    }

    /// Returns the directory of an inode and its name there; `None` for the root.
    pub(super) fn at(&self, inode: usize) -> Option<(usize, Name)> {
        self.slab[inode].at.clone()
    }

    /// Returns the durability of the writes to an inode.
    pub(super) fn writes(&mut self, inode: usize) -> &mut Writes {
        let writes = &mut self.slab[inode].writes;
        writes.connect(self.epoch);
        writes
    }

    pub(super) fn users(&self, inode: usize) -> u32 {
        self.slab[inode].users
    }

    /// Adds a use.
    pub(super) fn pin(&mut self, inode: usize) {
        self.slab[inode].users += 1;
    }

    /// Removes a use; returns the fids that are no longer needed.
    pub(super) fn unpin(&mut self, inode: usize) -> Vec<u32> {
        let it = &mut self.slab[inode];
        assert!(it.users > 0, "a use is given back once");
        it.users -= 1;
        if it.users > 0 {
            return Vec::new();
        }
        let (fids, epoch) = (std::mem::take(&mut it.fids), self.epoch);
        self.drop_unused(inode);
        fids.into_values().filter(|bound| bound.epoch == epoch).map(|bound| bound.fid).collect()
    }

    fn drop_unused(&mut self, mut inode: usize) {
        while self.slab[inode].users == 0 && self.slab[inode].children == 0 {
            let (parent, name) = self.slab.remove(inode).at.expect("the root is always used");
            assert!(self.slab[parent].children > 0, "a place is below its directory");
            let key = (parent, name);
            if self.index.get(&key) == Some(&inode) {
                self.index.remove(&key);
            }
            self.slab[parent].children -= 1;
            inode = parent;
        }
    }

    /// Returns the inode of a file found under a name, pinned.
    pub(super) fn enter(&mut self, parent: usize, name: &Name, qid: Qid) -> usize {
        let key = (parent, name.clone());
        if let Some(&known) = self.index.get(&key)
            && words::is_same(self.slab[known].qid, qid)
        {
            self.slab[known].qid = qid;
            self.pin(known);
            return known;
        }
        let inode = self.slab.insert(Inode::new(Some(key.clone()), qid));
        self.slab[parent].children += 1;
        // The former file of this name was renamed or removed.
        self.index.insert(key, inode);
        inode
    }

    /// Records the removal of an entry.
    pub(super) fn gone(&mut self, parent: usize, name: &Name) {
        self.index.remove(&(parent, name.clone()));
    }

    /// Records the removal of an inode's entry.
    pub(super) fn gone_inode(&mut self, inode: usize) {
        if let Some(at) = self.at(inode)
            && self.index.get(&at) == Some(&inode)
        {
            self.index.remove(&at);
        }
    }

    /// Records the rename of an entry, with everything below it.
    pub(super) fn moved(&mut self, from: (usize, Name), to: (usize, Name)) {
        let Some(inode) = self.index.remove(&from) else {
            return self.gone(to.0, &to.1);
        };
        // Two names of one file: the rename has no effect (`rename(2)`).
        if let Some(&other) = self.index.get(&to)
            && words::is_same(self.slab[other].qid, self.slab[inode].qid)
        {
            self.index.insert(from, inode);
            return;
        }
        // Only a faulty server reports this: the name is forgotten, so that paths stay finite.
        if self.is_within(to.0, inode) {
            return;
        }
        self.slab[to.0].children += 1;
        self.slab[inode].at = Some(to.clone());
        self.index.insert(to, inode);
        self.slab[from.0].children -= 1;
        self.drop_unused(from.0);
    }

    /// Records the rename of an inode.
    pub(super) fn moved_inode(&mut self, inode: usize, to: (usize, Name)) {
        let Some(from) = self.at(inode) else { return };
        self.index.insert(from.clone(), inode);
        self.moved(from, to);
    }

    fn is_within(&self, mut inode: usize, above: usize) -> bool {
        while inode != above {
            match &self.slab[inode].at {
                Some((parent, _)) => inode = *parent,
                None => return false,
            }
        }
        true
    }

    /// Counts a request or recovery of a user, whose fids are kept until its end.
    pub(super) fn begin(&mut self, user: u32) {
        *self.busy.entry(user).or_default() += 1;
    }

    /// Counts the end of a request or recovery of a user.
    pub(super) fn done(&mut self, user: u32) {
        let busy = self.busy.get_mut(&user).expect("it was begun");
        assert!(*busy > 0, "requests of a user in flight are counted");
        *busy -= 1;
        if *busy == 0 {
            self.busy.remove(&user);
        }
    }

    /// Returns the fid of an inode for a user.
    pub(super) fn fid_of(&self, inode: usize, user: u32) -> Option<u32> {
        let bound = self.slab[inode].fids.get(&user).filter(|bound| bound.epoch == self.epoch)?;
        Some(bound.fid)
    }

    /// Like [`Inodes::fid_of`], and records the use.
    pub(super) fn use_fid(&mut self, inode: usize, user: u32) -> Option<u32> {
        self.clock += 1;
        let bound = self.slab[inode].fids.get_mut(&user).filter(|it| it.epoch == self.epoch)?;
        bound.used = self.clock;
        Some(bound.fid)
    }

    /// Returns the user that created the file, and the number of the open file of its creation.
    pub(super) fn created(&self, inode: usize) -> Option<(u32, usize)> {
        self.slab[inode].created
    }

    /// Records the open file of the creation of a file, unless there is one already.
    pub(super) fn note_created(&mut self, inode: usize, user: u32, open: usize) {
        self.slab[inode].created.get_or_insert((user, open));
    }

    /// Records that an open file is closed.
    pub(super) fn closed(&mut self, inode: usize, open: usize) {
        self.slab[inode].created.take_if(|(_, known)| *known == open);
    }

    /// Binds a fid to an inode. Returns unneeded fids: this one if the inode has one already, and
    /// the least recently used one if there are too many.
    pub(super) fn bind(&mut self, inode: usize, user: u32, fid: u32) -> Vec<u32> {
        if self.fid_of(inode, user).is_some() {
            return vec![fid];
        }
        self.clock += 1;
        let epoch = self.epoch;
        let fids = &mut self.slab[inode].fids;
        fids.retain(|_, bound| bound.epoch == epoch);
        fids.insert(user, BoundFid { epoch, fid, used: self.clock });
        assert!(fids.values().all(|bound| bound.epoch == epoch), "others mean nothing any more");
        let mut unneeded = Vec::new();
        while fids.len() > FIDS_MAX {
            let idle = fids.iter().filter(|(user, _)| !self.busy.contains_key(user));
            let Some((&oldest, _)) = idle.min_by_key(|(_, bound)| bound.used) else { break };
            unneeded.extend(fids.remove(&oldest).map(|bound| bound.fid));
        }
        unneeded
    }

    /// Returns the number of pending requests and recoveries of all users.
    pub(super) fn busy(&self) -> usize {
        self.busy.values().map(|busy| *busy as usize).sum()
    }

    /// Returns the nearest place on the path with a fid for the user, that fid, and the names from
    /// there; `None` if the user has none, not even of the root.
    pub(super) fn way(&mut self, inode: usize, user: u32) -> Option<(usize, u32, Vec<Name>)> {
        let (mut at, mut names) = (inode, Vec::new());
        loop {
            if let Some(fid) = self.use_fid(at, user) {
                names.reverse();
                return Some((at, fid, names));
            }
            let (parent, name) = self.slab[at].at.as_ref()?;
            names.push(name.clone());
            at = *parent;
        }
    }

    pub(super) fn check(&self) {
        for (number, inode) in &self.slab {
            assert!(inode.users > 0 || inode.children > 0, "{number} is of no use");
            assert!(inode.users > 0 || inode.fids.is_empty());
        }
        for ((parent, _), inode) in &self.index {
            assert_eq!(self.parent(*inode), *parent);
        }
        let children: u32 = self.slab.iter().map(|(_, inode)| inode.children).sum();
        assert_eq!(children as usize, self.len());
        let mut children = BTreeMap::new();
        for (_, inode) in &self.slab {
            if let Some((parent, _)) = &inode.at {
                *children.entry(*parent).or_insert(0) += 1;
            }
            assert!(inode.fids.values().all(|bound| bound.used <= self.clock), "uses are counted");
        }
        for (number, inode) in &self.slab {
            let below = children.get(&number).copied().unwrap_or(0);
            assert_eq!(inode.children, below, "entries below {number} are counted");
        }
        for (key, inode) in &self.index {
            assert_eq!(self.slab[*inode].at.as_ref(), Some(key), "a place is where it is found");
        }
        assert!(self.busy.values().all(|busy| *busy > 0), "idle users are not listed");
    }
}
