//! Remote inodes in use, by path and qid.
//!
//! A place stores its directory, its name there, and its qid, so that it can be found again on
//! another connection or for another user; a different qid means that it is
//! [stale](base::Error::Stale). A place exists while it is in use or has places below it.

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

/// Maximum number of users with fids of a place, besides those with requests in flight.
const TIES_MAX: usize = 64;

/// A fid of a place, for one user, on one connection.
#[derive(Clone, Copy, Debug)]
struct Tie {
    epoch: u32,
    fid: u32,
    /// Time of the last use.
    used: u64,
}

#[derive(Clone, Debug)]
struct Place {
    /// Its directory and its name there; `None` for the root.
    at: Option<(usize, Name)>,
    qid: Qid,
    /// References handed out, and pending requests.
    users: u32,
    /// Number of places below.
    children: u32,
    /// Fids by user.
    ties: BTreeMap<u32, Tie>,
    /// The user that created the file, and the open fid of its creation.
    created: Option<(u32, Tie)>,
    /// Durability of the writes to it.
    writes: Writes,
}

impl Place {
    fn new(at: Option<(usize, Name)>, qid: Qid) -> Place {
        let (ties, writes) = (BTreeMap::new(), Writes::default());
        Place { at, qid, users: 1, children: 0, ties, created: None, writes }
    }
}

/// All places.
#[derive(Debug)]
pub(super) struct Places {
    slab: Slab<Place>,
    /// Places by directory and name, as far as their names are current.
    index: BTreeMap<(usize, Name), usize>,
    /// Number of pending requests and recoveries by user; fids of these users are kept.
    busy: BTreeMap<u32, u32>,
    /// Logical time of the last use of a fid.
    clock: u64,
}

impl Places {
    /// Returns the root alone, with an unknown qid.
    pub(super) fn new() -> Places {
        let qid = Qid { kind: Qid::DIR, ..Qid::default() };
        let mut slab = Slab::new();
        slab.insert(Place::new(None, qid));
        Places { slab, index: BTreeMap::new(), busy: BTreeMap::new(), clock: 0 }
    }

    /// Returns the number of places, not counting the root.
    pub(super) fn len(&self) -> usize {
        self.slab.len() - 1
    }

    pub(super) fn qid(&self, place: usize) -> Qid {
        self.slab[place].qid
    }

    /// Records the current qid of a place.
    pub(super) fn set_qid(&mut self, place: usize, qid: Qid) {
        self.slab[place].qid = qid;
    }

    /// Returns the directory of a place; for the root, the root.
    pub(super) fn parent(&self, place: usize) -> usize {
        self.slab[place].at.as_ref().map_or(ROOT, |(parent, _)| *parent)
    }

    /// Returns the directory of a place and its name there; `None` for the root.
    pub(super) fn at(&self, place: usize) -> Option<(usize, Name)> {
        self.slab[place].at.clone()
    }

    /// Returns the durability of the writes to a place.
    pub(super) fn writes(&mut self, place: usize) -> &mut Writes {
        &mut self.slab[place].writes
    }

    pub(super) fn users(&self, place: usize) -> u32 {
        self.slab[place].users
    }

    /// Adds a use.
    pub(super) fn pin(&mut self, place: usize) {
        self.slab[place].users += 1;
    }

    /// Removes a use; returns the fids that are no longer needed.
    pub(super) fn unpin(&mut self, place: usize, epoch: u32) -> Vec<u32> {
        let it = &mut self.slab[place];
        assert!(it.users > 0, "a use is given back once");
        it.users -= 1;
        if it.users > 0 {
            return Vec::new();
        }
        let ties = std::mem::take(&mut it.ties);
        self.drop_unused(place);
        ties.into_values().filter(|tie| tie.epoch == epoch).map(|tie| tie.fid).collect()
    }

    fn drop_unused(&mut self, mut place: usize) {
        while self.slab[place].users == 0 && self.slab[place].children == 0 {
            let (parent, name) = self.slab.remove(place).at.expect("the root is always used");
            assert!(self.slab[parent].children > 0, "a place is below its directory");
            let key = (parent, name);
            if self.index.get(&key) == Some(&place) {
                self.index.remove(&key);
            }
            self.slab[parent].children -= 1;
            place = parent;
        }
    }

    /// Returns the place of a file found under a name, pinned.
    pub(super) fn enter(&mut self, parent: usize, name: &Name, qid: Qid) -> usize {
        let key = (parent, name.clone());
        if let Some(&known) = self.index.get(&key)
            && words::is_same(self.slab[known].qid, qid)
        {
            self.slab[known].qid = qid;
            self.pin(known);
            return known;
        }
        let place = self.slab.insert(Place::new(Some(key.clone()), qid));
        self.slab[parent].children += 1;
        // The former file of this name was renamed or removed.
        self.index.insert(key, place);
        place
    }

    /// Records the removal of an entry.
    pub(super) fn gone(&mut self, parent: usize, name: &Name) {
        self.index.remove(&(parent, name.clone()));
    }

    /// Records the removal of a place's entry.
    pub(super) fn gone_place(&mut self, place: usize) {
        if let Some(at) = self.at(place)
            && self.index.get(&at) == Some(&place)
        {
            self.index.remove(&at);
        }
    }

    /// Records the rename of an entry, with everything below it.
    pub(super) fn moved(&mut self, from: (usize, Name), to: (usize, Name)) {
        let Some(place) = self.index.remove(&from) else {
            return self.gone(to.0, &to.1);
        };
        // Two names of one file: the rename has no effect (`rename(2)`).
        if let Some(&other) = self.index.get(&to)
            && words::is_same(self.slab[other].qid, self.slab[place].qid)
        {
            self.index.insert(from, place);
            return;
        }
        // Only a faulty server reports this: the name is forgotten, so that paths stay finite.
        if self.is_within(to.0, place) {
            return;
        }
        self.slab[to.0].children += 1;
        self.slab[place].at = Some(to.clone());
        self.index.insert(to, place);
        self.slab[from.0].children -= 1;
        self.drop_unused(from.0);
    }

    /// Records the rename of a place.
    pub(super) fn moved_place(&mut self, place: usize, to: (usize, Name)) {
        let Some(from) = self.at(place) else { return };
        self.index.insert(from.clone(), place);
        self.moved(from, to);
    }

    fn is_within(&self, mut place: usize, above: usize) -> bool {
        while place != above {
            match &self.slab[place].at {
                Some((parent, _)) => place = *parent,
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
        assert!(*busy > 0, "what is under way for a user is counted");
        *busy -= 1;
        if *busy == 0 {
            self.busy.remove(&user);
        }
    }

    /// Returns the fid of a place for a user.
    pub(super) fn tie(&self, place: usize, user: u32, epoch: u32) -> Option<u32> {
        let tie = self.slab[place].ties.get(&user).filter(|tie| tie.epoch == epoch)?;
        Some(tie.fid)
    }

    /// Like [`Places::tie`], and records the use.
    pub(super) fn use_tie(&mut self, place: usize, user: u32, epoch: u32) -> Option<u32> {
        self.clock += 1;
        let tie = self.slab[place].ties.get_mut(&user).filter(|tie| tie.epoch == epoch)?;
        tie.used = self.clock;
        Some(tie.fid)
    }

    /// Returns a fid that shows the attributes of a place to a user: its own, or the open one of
    /// the creation of the file, which needs no walk.
    pub(super) fn stat_fid(&mut self, place: usize, user: u32, epoch: u32) -> Option<u32> {
        let created =
            |(creator, tie): (u32, Tie)| (creator == user && tie.epoch == epoch).then_some(tie.fid);
        self.use_tie(place, user, epoch).or_else(|| self.slab[place].created.and_then(created))
    }

    /// Records the open fid of the creation of a file.
    pub(super) fn note_created(&mut self, place: usize, user: u32, epoch: u32, fid: u32) {
        self.slab[place].created = Some((user, Tie { epoch, fid, used: self.clock }));
    }

    /// Records that a fid of an open file is no longer bound.
    pub(super) fn closed(&mut self, place: usize, fid: u32) {
        self.slab[place].created.take_if(|(_, tie)| tie.fid == fid);
    }

    /// Binds a fid to a place. Returns unneeded fids: this one if the place has one already, and
    /// the least recently used one if there are too many.
    pub(super) fn bind(&mut self, place: usize, user: u32, epoch: u32, fid: u32) -> Vec<u32> {
        if self.tie(place, user, epoch).is_some() {
            return vec![fid];
        }
        self.clock += 1;
        let ties = &mut self.slab[place].ties;
        ties.retain(|_, tie| tie.epoch == epoch);
        ties.insert(user, Tie { epoch, fid, used: self.clock });
        assert!(ties.values().all(|tie| tie.epoch == epoch), "others mean nothing any more");
        let mut unneeded = Vec::new();
        while ties.len() > TIES_MAX {
            let idle = ties.iter().filter(|(user, _)| !self.busy.contains_key(user));
            let Some((&oldest, _)) = idle.min_by_key(|(_, tie)| tie.used) else { break };
            unneeded.extend(ties.remove(&oldest).map(|tie| tie.fid));
        }
        unneeded
    }

    /// Returns the number of pending requests and recoveries of all users.
    pub(super) fn busy(&self) -> usize {
        self.busy.values().map(|busy| *busy as usize).sum()
    }

    /// Returns the nearest place on the path with a fid for the user, that fid, and the names from
    /// there; `None` if the user has none, not even of the root.
    pub(super) fn way(
        &mut self,
        place: usize,
        user: u32,
        epoch: u32,
    ) -> Option<(usize, u32, Vec<Name>)> {
        let (mut at, mut names) = (place, Vec::new());
        loop {
            if let Some(fid) = self.use_tie(at, user, epoch) {
                names.reverse();
                return Some((at, fid, names));
            }
            let (parent, name) = self.slab[at].at.as_ref()?;
            names.push(name.clone());
            at = *parent;
        }
    }

    pub(super) fn check(&self) {
        for (number, place) in &self.slab {
            assert!(place.users > 0 || place.children > 0, "{number} is of no use");
            assert!(place.users > 0 || place.ties.is_empty());
        }
        for ((parent, _), place) in &self.index {
            assert_eq!(self.parent(*place), *parent);
        }
        let children: u32 = self.slab.iter().map(|(_, place)| place.children).sum();
        assert_eq!(children as usize, self.len());
        let mut children = BTreeMap::new();
        for (_, place) in &self.slab {
            if let Some((parent, _)) = &place.at {
                *children.entry(*parent).or_insert(0) += 1;
            }
            assert!(place.ties.values().all(|tie| tie.used <= self.clock), "uses are counted");
        }
        for (number, place) in &self.slab {
            let below = children.get(&number).copied().unwrap_or(0);
            assert_eq!(place.children, below, "what is below {number} is counted");
        }
        for (key, place) in &self.index {
            assert_eq!(self.slab[*place].at.as_ref(), Some(key), "a place is where it is found");
        }
        assert!(self.busy.values().all(|busy| *busy > 0), "who is idle is not listed");
    }
}
