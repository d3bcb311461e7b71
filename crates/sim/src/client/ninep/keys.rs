//! Objects touched by requests, so that concurrent requests do not depend on their order.

use super::request::Request;
use super::{FidState, Ninep};
use base::Name;
use std::collections::BTreeMap;

/// An object touched by a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    /// A fid.
    Fid(u32),
    /// A file.
    Inode(u64),
    /// Shape of the tree: the parents of directories.
    Shape,
    /// The locks of a file.
    Locks(u64),
}

/// Objects in use: number of users, and whether one of them changes it.
#[derive(Debug, Default)]
pub(super) struct Keys(BTreeMap<Key, (u32, bool)>);

impl Keys {
    /// Returns whether there is no conflict.
    pub(super) fn could_take(&self, keys: &[(Key, bool)]) -> bool {
        keys.iter().all(|(key, changes)| match self.0.get(key) {
            None => true,
            Some((_, exclusive)) => !changes && !exclusive,
        })
    }

    /// Takes all of them, unless there is a conflict.
    pub(super) fn take(&mut self, keys: &[(Key, bool)]) -> bool {
        if !self.could_take(keys) {
            return false;
        }
        for (key, changes) in keys {
            let entry = self.0.entry(*key).or_insert((0, false));
            entry.0 += 1;
            entry.1 |= changes;
        }
        true
    }

    pub(super) fn give(&mut self, keys: &[(Key, bool)]) {
        for (key, _) in keys {
            let entry = self.0.get_mut(key).expect("given back once");
            entry.0 -= 1;
            if entry.0 == 0 {
                self.0.remove(key);
            }
        }
    }

    /// Returns whether it is not in use.
    pub(super) fn is_free(&self, key: Key) -> bool {
        !self.0.contains_key(&key)
    }
}

impl Ninep {
    pub(super) fn fid_inode(&self, fid: u32) -> Option<u64> {
        self.fids.get(&fid).map(|fid| self.shadow.inode_of(fid.handle))
    }

    fn entry_inode(&self, dir: Option<u64>, name: &[u8]) -> Option<u64> {
        self.shadow.lookup(dir?, name)
    }

    /// Returns the files passed by a walk.
    fn passed(&self, fid: u32, names: &[Vec<u8>]) -> Vec<u64> {
        let mut passed: Vec<u64> = self.fid_inode(fid).into_iter().collect();
        for name in names {
            let Some(at) = passed.last() else { break };
            let Ok(name) = Name::new(name) else { break };
            let Some(next) = self.shadow.next(*at, &name) else { break };
            passed.push(next);
        }
        passed
    }

    /// Returns the objects touched by a request, and whether it changes them.
    pub(super) fn keys_of(&self, request: &Request) -> Vec<(Key, bool)> {
        if let Request::Lock { wait: true, .. } = request {
            // It may wait for other requests, so it must not block them.
            return Vec::new();
        }
        let mut keys: Vec<(Key, bool)> = Vec::new();
        let (changes_fid, fids) = request.fids();
        keys.extend(fids.iter().map(|fid| (Key::Fid(*fid), changes_fid)));
        keys.extend(request.new_fid().map(|fid| (Key::Fid(fid), true)));
        let first = fids.first().and_then(|fid| self.fid_inode(*fid));
        let second = fids.get(1).and_then(|fid| self.fid_inode(*fid));
        let mut inodes: Vec<(Option<u64>, bool)> = Vec::new();
        match request {
            Request::Walk { fid, names, .. } => {
                let passed = self.passed(*fid, names);
                inodes.extend(passed.into_iter().map(|inode| (Some(inode), false)));
            }
            Request::Open { access, .. } => inodes.push((first, access.truncate)),
            Request::Create { name, .. }
            | Request::MakeDir { name, .. }
            | Request::Symlink { name, .. }
            | Request::MakeNode { name, .. }
            | Request::Unlink { name, .. } => {
                inodes.extend([(first, true), (self.entry_inode(first, name), true)]);
            }
            Request::Write { .. } | Request::SetStat { .. } => inodes.push((first, true)),
            Request::Link { name, .. } => {
                inodes.extend([(first, true), (second, true)]);
                inodes.push((self.entry_inode(first, name), true));
            }
            Request::RenameAt { name, new, .. } => {
                inodes.extend([(first, true), (second, true)]);
                inodes.push((self.entry_inode(first, name), true));
                inodes.push((self.entry_inode(second, new), true));
                keys.push((Key::Shape, true));
            }
            Request::Rename { name, .. } => {
                inodes.extend([(first, true), (second, true)]);
                inodes.push((self.entry_inode(second, name), true));
                inodes.push((self.dir_of(fids[0]), true));
                keys.push((Key::Shape, true));
            }
            Request::Remove { .. } | Request::Clunk { .. } => {
                let changes = matches!(request, Request::Remove { .. }) || self.ends(fids[0]);
                inodes.push((first, changes));
                inodes.extend(changes.then(|| (self.dir_of(fids[0]), true)));
                keys.extend(first.map(|inode| (Key::Locks(inode), true)));
            }
            Request::Lock { .. } | Request::GetLock { .. } => {
                keys.extend(first.map(|inode| (Key::Locks(inode), true)));
            }
            Request::Read { .. }
            | Request::List { .. }
            | Request::Stat { .. }
            | Request::ReadLink { .. }
            | Request::Sync { .. }
            | Request::StatFs { .. }
            | Request::AttrWalk { .. }
            | Request::AttrCreate { .. } => inodes.push((first, false)),
        }
        if let Request::SetStat { rename: Some(name), .. } = request {
            let dir = self.dir_of(fids[0]);
            inodes.extend([(dir, true), (self.entry_inode(dir, name), true)]);
            keys.push((Key::Shape, true));
        }
        merge(keys, inodes)
    }

    fn dir_of(&self, fid: u32) -> Option<u64> {
        let fid = self.fids.get(&fid)?;
        self.shadow.place_of(fid.handle).map(|(dir, _)| dir)
    }

    /// Returns whether clunking this fid changes something.
    fn ends(&self, fid: u32) -> bool {
        match self.fids.get(&fid).map(|fid| &fid.state) {
            Some(FidState::Open { remove, .. }) => *remove,
            Some(FidState::AttrWrite { .. }) => true,
            Some(FidState::Closed | FidState::AttrRead { .. }) | None => false,
        }
    }
}

/// Merges duplicates: a key is changed if any of them is.
fn merge(keys: Vec<(Key, bool)>, inodes: Vec<(Option<u64>, bool)>) -> Vec<(Key, bool)> {
    let mut all: BTreeMap<Key, bool> = BTreeMap::new();
    let inodes = inodes.into_iter().filter_map(|(inode, c)| inode.map(|i| (Key::Inode(i), c)));
    for (key, changes) in keys.into_iter().chain(inodes) {
        *all.entry(key).or_insert(false) |= changes;
    }
    all.into_iter().collect()
}
