//! The places: every file that somebody holds, by where it is and which it is.
//!
//! A place knows its directory, its name there, and the server's qid of it, so that it can be
//! found again on another connection or for another user; whoever finds something else there
//! knows that it is [stale](base::Error::Stale). A place lives while it is used or something lies
//! below it.

use super::words;
use base::Name;
use slab::Slab;
use std::collections::BTreeMap;
use wire::ninep::Qid;

/// The root's number.
pub(super) const ROOT: usize = 0;

/// A fid of the server's that names a place, for one user, on one connection.
#[derive(Clone, Copy, Debug)]
struct Tie {
    user: u32,
    epoch: u32,
    fid: u32,
}

#[derive(Clone, Debug)]
struct Place {
    /// Its directory and its name there; `None`: the root.
    at: Option<(usize, Name)>,
    qid: Qid,
    /// References given out, and errands under way.
    users: u32,
    /// Places below.
    children: u32,
    ties: Vec<Tie>,
}

/// All of them.
#[derive(Debug)]
pub(super) struct Places {
    slab: Slab<Place>,
    /// What is known to be where it was found.
    index: BTreeMap<(usize, Name), usize>,
}

impl Places {
    /// The root alone, of which nothing is known yet.
    pub(super) fn new() -> Places {
        let qid = Qid { kind: Qid::DIR, ..Qid::default() };
        let mut slab = Slab::new();
        slab.insert(Place { at: None, qid, users: 1, children: 0, ties: Vec::new() });
        Places { slab, index: BTreeMap::new() }
    }

    /// How many there are, besides the root.
    pub(super) fn len(&self) -> usize {
        self.slab.len() - 1
    }

    pub(super) fn qid(&self, place: usize) -> Qid {
        self.slab[place].qid
    }

    /// The server says that this is its qid now.
    pub(super) fn set_qid(&mut self, place: usize, qid: Qid) {
        self.slab[place].qid = qid;
    }

    /// The directory; the root's is the root.
    pub(super) fn parent(&self, place: usize) -> usize {
        self.slab[place].at.as_ref().map_or(ROOT, |(parent, _)| *parent)
    }

    /// Its directory and its name there; `None`: the root.
    pub(super) fn at(&self, place: usize) -> Option<(usize, Name)> {
        self.slab[place].at.clone()
    }

    pub(super) fn users(&self, place: usize) -> u32 {
        self.slab[place].users
    }

    /// One more use.
    pub(super) fn pin(&mut self, place: usize) {
        self.slab[place].users += 1;
    }

    /// One use less; gives the fids that nobody needs any more.
    pub(super) fn unpin(&mut self, place: usize, epoch: u32) -> Vec<u32> {
        let it = &mut self.slab[place];
        it.users -= 1;
        if it.users > 0 {
            return Vec::new();
        }
        let ties = std::mem::take(&mut it.ties);
        self.drop_unused(place);
        ties.into_iter().filter(|tie| tie.epoch == epoch).map(|tie| tie.fid).collect()
    }

    fn drop_unused(&mut self, mut place: usize) {
        while self.slab[place].users == 0 && self.slab[place].children == 0 {
            let (parent, name) = self.slab.remove(place).at.expect("the root is always used");
            let key = (parent, name);
            if self.index.get(&key) == Some(&place) {
                self.index.remove(&key);
            }
            self.slab[parent].children -= 1;
            place = parent;
        }
    }

    /// The place of what was found at a name, pinned.
    pub(super) fn enter(&mut self, parent: usize, name: &Name, qid: Qid) -> usize {
        let key = (parent, name.clone());
        if let Some(&known) = self.index.get(&key)
            && words::is_same(self.slab[known].qid, qid)
        {
            self.slab[known].qid = qid;
            self.pin(known);
            return known;
        }
        let at = Some(key.clone());
        let place = self.slab.insert(Place { at, qid, users: 1, children: 0, ties: Vec::new() });
        self.slab[parent].children += 1;
        // What was there before is somewhere else now, or nowhere.
        self.index.insert(key, place);
        place
    }

    /// The entry is gone.
    pub(super) fn gone(&mut self, parent: usize, name: &Name) {
        self.index.remove(&(parent, name.clone()));
    }

    /// The entry of a place that is known is gone.
    pub(super) fn gone_place(&mut self, place: usize) {
        if let Some(at) = self.at(place)
            && self.index.get(&at) == Some(&place)
        {
            self.index.remove(&at);
        }
    }

    /// The entry has been moved, and everything below moves with it.
    pub(super) fn moved(&mut self, from: (usize, Name), to: (usize, Name)) {
        let Some(place) = self.index.remove(&from) else {
            return self.gone(to.0, &to.1);
        };
        // Two names of one file: the move does nothing (`rename(2)`).
        if let Some(&other) = self.index.get(&to)
            && words::is_same(self.slab[other].qid, self.slab[place].qid)
        {
            self.index.insert(from, place);
            return;
        }
        // A server that says so lies: the place is lost, and the paths stay finite.
        if self.is_within(to.0, place) {
            return;
        }
        self.slab[to.0].children += 1;
        self.slab[place].at = Some(to.clone());
        self.index.insert(to, place);
        self.slab[from.0].children -= 1;
        self.drop_unused(from.0);
    }

    /// The same for a place that is known.
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

    /// The fid of a place for a user.
    pub(super) fn tie(&self, place: usize, user: u32, epoch: u32) -> Option<u32> {
        let it = self.slab[place].ties.iter();
        let mut fit = it.filter(|tie| tie.user == user && tie.epoch == epoch);
        fit.next().map(|tie| tie.fid)
    }

    /// The place has this fid from now on; if it has one already, `false`.
    pub(super) fn bind(&mut self, place: usize, user: u32, epoch: u32, fid: u32) -> bool {
        if self.tie(place, user, epoch).is_some() {
            return false;
        }
        let ties = &mut self.slab[place].ties;
        ties.retain(|tie| tie.epoch == epoch);
        ties.push(Tie { user, epoch, fid });
        true
    }

    /// From where a user can find a place, by which fid, and along which names; `None`: the user
    /// has nothing on the way, not even the root.
    pub(super) fn way(&self, place: usize, user: u32, epoch: u32) -> Option<(u32, Vec<Name>)> {
        let (mut at, mut names) = (place, Vec::new());
        loop {
            if let Some(fid) = self.tie(at, user, epoch) {
                names.reverse();
                return Some((fid, names));
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
    }
}
