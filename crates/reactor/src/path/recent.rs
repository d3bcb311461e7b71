//! Recently fetched files, kept open: a popular page is opened once in a while and not for each
//! request.
//!
//! The result of a lookup is reused for [`LIFE`], and not across a change made through this
//! reactor: a client that was told of a replacement never reads the old file. Changes by others on
//! the host are seen after [`LIFE`]; the removal or replacement of a file is seen at once, because
//! its link count is zero. Contents and attributes are always read afresh, and only the user
//! for whom a file was opened gets it.

use base::op::File;
use base::{Caller, Instant};
use rustix::fd::OwnedFd;
use std::collections::BTreeMap;
use std::time::Duration;

/// Time during which the result of a lookup is reused.
pub(crate) const LIFE: Duration = Duration::from_millis(10);

/// Maximum number of files held.
const FILES_MAX: usize = 256;

/// An open file, with its lookup.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) root: File,
    pub(crate) path: Vec<u8>,
    pub(crate) caller: Caller,
    pub(crate) fd: OwnedFd,
}

/// The recently fetched files.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    /// Files by hash of root and path. All are closed together, [`LIFE`] after the first was added.
    entries: BTreeMap<u64, Entry>,
    until: Instant,
}

impl Recent {
    /// Removes and returns the file found by this path for this caller.
    pub(crate) fn take(
        &mut self,
        hash: u64,
        (root, path, caller): (File, &[u8], &Caller),
    ) -> Option<Entry> {
        let entry = self.entries.get(&hash)?;
        let same = entry.root == root && entry.path == path && entry.caller == *caller;
        if same { self.entries.remove(&hash) } else { None }
    }

    /// Holds a file for [`LIFE`].
    pub(crate) fn keep(&mut self, now: Instant, hash: u64, entry: Entry) {
        if self.entries.is_empty() {
            self.until = now + LIFE;
        }
        if self.entries.len() < FILES_MAX {
            self.entries.insert(hash, entry);
        }
        assert!(self.entries.len() <= FILES_MAX, "few files are held");
    }

    /// Puts back a file that was taken.
    pub(crate) fn put_back(&mut self, hash: u64, entry: Entry) {
        let before = self.entries.insert(hash, entry);
        assert!(before.is_none(), "its place was kept");
    }

    /// Closes all files, because of a change.
    pub(crate) fn forget(&mut self) {
        self.entries.clear();
    }

    /// Closes the files whose time is over.
    pub(crate) fn expire(&mut self, now: Instant) {
        if self.until <= now {
            self.forget();
        }
    }

    /// Returns the time for [`Recent::expire`].
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
