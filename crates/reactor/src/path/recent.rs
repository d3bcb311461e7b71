//! Files fetched a moment ago, still open: a page that many ask for is opened once in a while
//! and not for each of them.
//!
//! What a path leads to is believed for [`LIFE`], and not across a change made through this
//! reactor: who was told that a file is replaced never reads the old one. Changes made by others
//! on the host are seen after [`LIFE`]; that a file was removed or replaced is seen at once,
//! because it has no name left. Contents and attributes are always read afresh, and only the user
//! for whom a file was opened gets it.

use base::op::File;
use base::{Caller, Instant};
use rustix::fd::OwnedFd;
use std::collections::BTreeMap;
use std::time::Duration;

/// How long a path is believed.
pub(crate) const LIFE: Duration = Duration::from_millis(10);

/// Most files held.
const FILES_MAX: usize = 256;

/// An open file, and how it was found.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) root: File,
    pub(crate) path: Vec<u8>,
    pub(crate) caller: Caller,
    pub(crate) fd: OwnedFd,
}

/// The files.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    /// By hash of root and path. All go together, [`LIFE`] after the first came.
    entries: BTreeMap<u64, Entry>,
    until: Instant,
}

impl Recent {
    /// Takes the file out that was found by this path for this caller.
    pub(crate) fn take(
        &mut self,
        hash: u64,
        (root, path, caller): (File, &[u8], &Caller),
    ) -> Option<Entry> {
        let entry = self.entries.get(&hash)?;
        let same = entry.root == root && entry.path == path && entry.caller == *caller;
        if same { self.entries.remove(&hash) } else { None }
    }

    /// Holds a file for a moment.
    pub(crate) fn keep(&mut self, now: Instant, hash: u64, entry: Entry) {
        if self.entries.is_empty() {
            self.until = now + LIFE;
        }
        if self.entries.len() < FILES_MAX {
            self.entries.insert(hash, entry);
        }
        assert!(self.entries.len() <= FILES_MAX, "few files are held");
    }

    /// Puts a file back that was taken out.
    pub(crate) fn put_back(&mut self, hash: u64, entry: Entry) {
        let before = self.entries.insert(hash, entry);
        assert!(before.is_none(), "its place was kept");
    }

    /// Something is changed: nothing is believed any more.
    pub(crate) fn forget(&mut self) {
        self.entries.clear();
    }

    /// Lets go of what was believed long enough.
    pub(crate) fn expire(&mut self, now: Instant) {
        if self.until <= now {
            self.forget();
        }
    }

    /// When to call [`Recent::expire`].
    pub(crate) fn deadline(&self) -> Option<Instant> {
        (!self.entries.is_empty()).then_some(self.until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    fn entry(root: u32) -> Entry {
        let fd = rustix::pipe::pipe().unwrap().0;
        Entry { root: File(root), path: b"p".to_vec(), caller: Caller::Server, fd }
    }

    #[test]
    fn a_file_is_found_by_the_same_path_for_a_moment() {
        let (mut recent, now) = (Recent::default(), Instant(5));
        assert_eq!(recent.deadline(), None);
        recent.keep(now, 1, entry(3));
        let key = |root| (File(root), &b"p"[..], &Caller::Server);
        assert!(recent.take(1, key(4)).is_none());
        assert!(recent.take(2, key(3)).is_none());
        let found = recent.take(1, key(3)).unwrap();
        assert!(found.fd.as_raw_fd() > 0);
        recent.put_back(1, found);
        recent.expire(Instant((now + LIFE).0 - 1));
        assert!(recent.take(1, key(3)).is_some());
        recent.keep(now, 1, entry(3));
        recent.expire(recent.deadline().unwrap());
        assert!(recent.take(1, key(3)).is_none());
        recent.keep(now, 1, entry(3));
        recent.forget();
        assert!(recent.take(1, key(3)).is_none());
    }
}
