//! Recently fetched files, kept open: a popular page is opened and read once in a while and not for
//! each request.
//!
//! The result of a lookup is reused for [`LIFE`], and not across a change made through this
//! reactor: a client that knows of a replacement never reads the old file. Changes by others on
//! the host are seen after [`LIFE`]; the removal or replacement of a file is seen at once, because
//! its link count is zero. Attributes are always read afresh, and contents if the attributes tell
//! of a change; one through a memory map may not change them, and is seen after [`LIFE`]. Only the
//! user for whom a file was opened gets it.

use base::op::File;
use base::{Caller, Instant, Stat, Time};
use rustix::fd::OwnedFd;
use std::collections::BTreeMap;
use std::time::Duration;

/// Time during which the result of a lookup is reused.
pub(crate) const LIFE: Duration = Duration::from_millis(10);

/// Maximum number of files held.
const FILES_MAX: usize = 256;

/// Maximum size of contents held, bytes. For larger ones a copy costs as much as a read.
const CONTENTS_MAX: usize = 16 << 10;

/// Seconds without a change after which contents are held: more than the resolution of timestamps
/// of any file system (FAT: 2 s), so that the next change has another timestamp.
const SETTLED: i64 = 3;

/// An open file, with its lookup.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) root: File,
    pub(crate) path: Vec<u8>,
    pub(crate) caller: Caller,
    pub(crate) fd: OwnedFd,
    pub(crate) contents: Option<Contents>,
}

/// Contents of a file, with the attributes from before they were read.
#[derive(Debug)]
pub(crate) struct Contents {
    stat: Stat,
    bytes: Box<[u8]>,
}

impl Contents {
    /// Returns contents to hold, if they are all of a small file whose next change will have
    /// another timestamp.
    pub(crate) fn of(stat: &Stat, bytes: &[u8], wall: Time) -> Option<Contents> {
        let is_whole = stat.size == bytes.len() as u64;
        let is_small = (1..=CONTENTS_MAX).contains(&bytes.len());
        let last = stat.changed.max(stat.modified);
        let is_settled = last.secs.checked_add(SETTLED).is_some_and(|at| at < wall.secs);
        (is_whole && is_small && is_settled)
            .then(|| Contents { stat: stat.clone(), bytes: bytes.into() })
    }

    /// Returns the bytes, if the file with these attributes has not changed.
    pub(crate) fn bytes_for(&self, stat: &Stat) -> Option<&[u8]> {
        let Contents { stat: held, bytes } = self;
        let is_same = (held.size, held.modified, held.changed)
            == (stat.size, stat.modified, stat.changed)
            && held.is_same(stat);
        is_same.then_some(bytes)
    }
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
        let (path, caller, contents) = (b"p".to_vec(), Caller::Server, None);
        Entry { root: File(root), path, caller, fd, contents }
    }

    #[test]
    fn contents_are_held_for_files_whose_next_change_shows() {
        let mut stat = Stat { size: 3, ..Stat::default() };
        (stat.modified, stat.changed) = (Time::from_secs(90), Time::from_secs(100));
        let at = |secs| Contents::of(&stat, b"abc", Time::from_secs(secs));
        assert!(at(103).is_none() && at(99).is_none());
        let held = at(104).unwrap();
        assert_eq!(
            held.bytes_for(&Stat { accessed: Time::from_secs(104), ..stat.clone() }),
            Some(&b"abc"[..])
        );
        for changed in [
            Stat { size: 4, ..stat.clone() },
            Stat { changed: Time::from_secs(101), ..stat.clone() },
            Stat { modified: Time::from_secs(91), ..stat.clone() },
            Stat { inode: 7, ..stat.clone() },
        ] {
            assert_eq!(held.bytes_for(&changed), None);
        }
        let wall = Time::from_secs(1000);
        assert!(Contents::of(&stat, b"ab", wall).is_none(), "a part");
        let of_size = |size: usize| {
            let stat = Stat { size: size as u64, ..stat.clone() };
            Contents::of(&stat, &vec![1; size], wall).is_some()
        };
        assert!(of_size(CONTENTS_MAX) && !of_size(CONTENTS_MAX + 1) && !of_size(0));
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
