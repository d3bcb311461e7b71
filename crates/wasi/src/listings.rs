//! Prefetch cache of directory listings.
//!
//! Programs that search a tree list one directory after the other. The first request brings the
//! following directories along ([`tree::Ask::ListAll`]), so that those need no request. Cached
//! listings are valid for a moment, as in an NFS client, and not after a change by the guest
//! itself. Stale ones still predict the guest's next requests: it visits each directory in listing
//! order, or by name.

mod sequence;
#[cfg(test)]
mod tests;

use base::Kind;
use base::op::{Entry, Listing};
use sequence::Sequence;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Validity of cached data, ns.
pub(crate) const BELIEVED_NS: u64 = 1_000_000_000;

/// Initial and maximum size of a batch, bytes: names, and 24 for each entry.
const FIRST: u32 = 32 << 10;
const MOST: u32 = 128 << 10;

/// Maximum number of directories in a batch.
const REQUESTED_MAX: usize = 256;

/// Maximum size of the cache, bytes of memory; and overhead of a directory without its entries.
const BYTES_MAX: usize = 4 << 20;
const LISTED: usize = 256;

/// Maximum number of entries examined to find the next files, and maximum depth.
const LOOKED_MAX: usize = 512;
const DEPTH_MAX: usize = 64;

/// Entries of a directory.
pub(crate) type Entries = Arc<Vec<Entry>>;

/// Cache stamp: time, and number of changes that the guest had made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) at: u64,
    pub(crate) changes: u64,
}

impl Seen {
    /// Returns whether data with this stamp is valid.
    pub(crate) fn is_fresh(self, now: Seen) -> bool {
        self.changes == now.changes && now.at.saturating_sub(self.at) < BELIEVED_NS
    }
}

/// A cached directory.
#[derive(Debug)]
struct Listed {
    sequence: Sequence,
    seen: Seen,
    /// Whether the guest has listed it.
    is_visited: bool,
    /// Time of its last use, on a logical clock.
    used: u64,
    /// Size in memory, bytes.
    bytes: usize,
}

/// Cached directories by their paths from the guest's root.
#[derive(Debug, Default)]
pub(crate) struct Listings {
    by_path: BTreeMap<Vec<u8>, Listed>,
    bytes: usize,
    /// Whether the guest visits entries by name.
    by_name: bool,
    clock: u64,
    /// Time of the last listing by the guest: what was used since is where it is, or above.
    visited: u64,
    /// Number of directories listed by the guest, and of cached ones it has not listed yet.
    visits: u64,
    unvisited: usize,
    /// Size of the last batch, directories, and path of its last one.
    batch: usize,
    last: Option<Vec<u8>>,
    /// Size limit of the last batch, bytes.
    requested: u32,
    /// Whether the tree does not support batch listings.
    pub(crate) unsupported: bool,
}

impl Listings {
    /// Returns the entries of a directory, if cached and valid.
    pub(crate) fn get(&self, path: &[u8], now: Seen) -> Option<&Entries> {
        let listed = self.by_path.get(path)?;
        listed.seen.is_fresh(now).then(|| listed.sequence.entries())
    }

    /// Returns the same for a guest that lists the directory.
    pub(crate) fn visit(&mut self, path: &[u8], now: Seen) -> Option<Entries> {
        self.visits += 1;
        self.use_above(path);
        self.visited = self.clock;
        let listed = self.by_path.get_mut(path).filter(|listed| listed.seen.is_fresh(now))?;
        listed.used = self.clock;
        self.unvisited -= usize::from(!listed.is_visited);
        listed.is_visited = true;
        Some(Arc::clone(listed.sequence.entries()))
    }

    /// Marks the directories above one that is visited as used: the guest returns to them.
    fn use_above(&mut self, path: &[u8]) {
        self.clock += 1;
        let mut at = path;
        while !at.is_empty() {
            at = parted(at).0;
            if let Some(listed) = self.by_path.get_mut(at) {
                listed.used = self.clock;
            }
        }
    }

    /// Returns the kind of the file at a path, if its directory is cached and valid.
    pub(crate) fn kind(&mut self, path: &[u8], now: Seen) -> Option<Kind> {
        let (sequence, place) = self.place(path)?;
        self.get(parted(path).0, now).and(sequence.behind(place).next()).map(|entry| entry.kind)
    }

    /// Returns whether a path is known not to exist: its directory was listed after the guest's
    /// last input or wait, is still valid, and has no such name, nor one that is equivalent on some
    /// file systems; or its directory is known not to exist. Programs look up many files that do
    /// not exist.
    pub(crate) fn is_absent(&self, path: &[u8], now: Seen, received: Option<u64>) -> bool {
        let mut at = path;
        loop {
            let dir = parted(at).0;
            if self.lacks(at, now, received) {
                return true;
            }
            if dir.is_empty() || self.by_path.contains_key(dir) {
                return false;
            }
            at = dir;
        }
    }

    /// Returns whether the directory of a path is known not to have its last name.
    fn lacks(&self, path: &[u8], now: Seen, received: Option<u64>) -> bool {
        let (dir, name) = parted(path);
        // Listings are incomplete: a tree may hide files of its root, and some file systems have a
        // hidden snapshot directory in every directory.
        let is_hidden = (dir.is_empty() && name.starts_with(b".")) || name.starts_with(b".snap");
        if name.is_empty() || is_hidden || !name.is_ascii() || name.contains(&b'~') {
            return false;
        }
        let is_known = |listed: &&Listed| {
            listed.seen.is_fresh(now) && received.is_none_or(|received| listed.seen.at > received)
        };
        let listed = self.by_path.get(dir).filter(is_known);
        listed.is_some_and(|listed| listed.sequence.lacks(name))
    }

    /// Returns whether the guest probably lists this directory soon: it is known as one, it is not
    /// cached, and most of the directories that were prefetched have been listed.
    pub(crate) fn is_expected(&mut self, dir: &[u8], now: Seen) -> bool {
        let is_traversal = self.visits >= 2 && self.unvisited <= self.batch / 2;
        !self.unsupported
            && is_traversal
            && self.get(dir, now).is_none()
            && self.kind(dir, now) == Some(Kind::Directory)
    }

    /// Returns the sequence of the directory of a path, possibly stale, and the position of the
    /// path in it.
    fn place(&mut self, path: &[u8]) -> Option<(Sequence, usize)> {
        let (dir, name) = parted(path);
        self.clock += 1;
        let listed = self.by_path.get_mut(dir)?;
        listed.used = self.clock;
        let place = listed.sequence.find(name, self.by_name)?;
        Some((listed.sequence.clone(), place))
    }

    /// Returns the directories to request where one is needed: that one, and those that follow it
    /// in a depth-first traversal, as far as they are known.
    pub(crate) fn wanted(&mut self, path: &[u8], now: Seen) -> (Vec<Vec<u8>>, u32) {
        let mut wanted = vec![path.to_vec()];
        self.add_behind(path, now, &mut wanted);
        (wanted, self.how_much())
    }

    /// Returns the directories to prefetch; `None` if enough are cached, or the guest does not seem
    /// to traverse a tree.
    pub(crate) fn foreseen(&mut self, now: Seen) -> Option<(Vec<Vec<u8>>, u32)> {
        if self.unsupported || self.visits < 2 || self.unvisited > self.batch * 3 / 2 {
            return None;
        }
        let last = self.last.take()?;
        let mut paths = Vec::new();
        let listed = self.by_path.get_mut(&last).filter(|listed| listed.seen.is_fresh(now));
        if let Some(listed) = listed {
            let below = listed.sequence.all(self.by_name);
            self.add_unknown(&last, (&below, 0), now, &mut paths);
        }
        self.add_behind(&last, now, &mut paths);
        (!paths.is_empty()).then(|| (paths, self.how_much()))
    }

    fn how_much(&mut self) -> u32 {
        self.requested = (self.requested * 2).clamp(FIRST, MOST);
        self.requested
    }

    /// Raises the size of the next batch to the maximum, because a directory did not fit. Returns
    /// whether that is an increase.
    pub(crate) fn ask_most(&mut self) -> bool {
        std::mem::replace(&mut self.requested, MOST) < MOST
    }

    fn add_behind(&mut self, path: &[u8], now: Seen, paths: &mut Vec<Vec<u8>>) {
        let mut at = path;
        while !at.is_empty() {
            let dir = parted(at).0;
            if let Some((sequence, place)) = self.place(at) {
                self.add_unknown(dir, (&sequence, place + 1), now, paths);
            }
            at = dir;
        }
    }

    /// Adds the directories from a position on that are not cached.
    fn add_unknown(
        &self,
        dir: &[u8],
        (sequence, from): (&Sequence, usize),
        now: Seen,
        paths: &mut Vec<Vec<u8>>,
    ) {
        let dirs = sequence.behind(from).filter(|entry| entry.kind == Kind::Directory);
        let below = dirs.map(|entry| joined(dir, entry.name.as_bytes()));
        assert!(paths.len() <= REQUESTED_MAX, "so many are requested at most");
        let room = REQUESTED_MAX - paths.len();
        paths.extend(below.filter(|path| self.get(path, now).is_none()).take(room));
    }

    /// Returns whether `path` is the next file after `last` in the guest's order, or in the other
    /// order, which is then adopted.
    pub(crate) fn is_next(&mut self, last: &[u8], path: &[u8]) -> bool {
        for _ in 0..2 {
            if self.files_behind(last, 1) == [path] {
                return true;
            }
            self.by_name = !self.by_name;
        }
        false
    }

    /// Returns the plain files that follow a path in a depth-first traversal, as far as directories
    /// are known.
    pub(crate) fn files_behind(&mut self, path: &[u8], most: usize) -> Vec<Vec<u8>> {
        let mut search = Search { found: Vec::new(), most, looked: 0 };
        let mut at = path;
        while !at.is_empty()
            && let Some((sequence, place)) = self.place(at)
        {
            let dir = parted(at).0;
            if self.gather(dir, (&sequence, place + 1), 0, &mut search).is_break() {
                break;
            }
            at = dir;
        }
        search.found
    }

    /// Searches a directory from a position on.
    fn gather(
        &mut self,
        dir: &[u8],
        (sequence, from): (&Sequence, usize),
        depth: usize,
        search: &mut Search,
    ) -> ControlFlow<()> {
        for entry in sequence.behind(from) {
            search.looked += 1;
            if search.looked > LOOKED_MAX || search.found.len() == search.most {
                return ControlFlow::Break(());
            }
            let path = || joined(dir, entry.name.as_bytes());
            match entry.kind {
                Kind::File => search.found.push(path()),
                Kind::Directory => {
                    let path = path();
                    let listed = self.by_path.get_mut(&path).filter(|_| depth < DEPTH_MAX);
                    let Some(listed) = listed else { return ControlFlow::Break(()) };
                    let below = listed.sequence.all(self.by_name);
                    self.gather(&path, (&below, 0), depth + 1, search)?;
                }
                Kind::Symlink
                | Kind::Fifo
                | Kind::Socket
                | Kind::CharDevice
                | Kind::BlockDevice => {}
            }
        }
        ControlFlow::Continue(())
    }

    /// Stores a batch.
    pub(crate) fn add(&mut self, listings: Vec<Listing>, seen: Seen) {
        self.batch = listings.len();
        self.last = listings.last().map(|listing| listing.path.clone());
        for Listing { path, entries } in listings {
            self.clock += 1;
            let bytes = LISTED + path.len() + entries.iter().map(taken).sum::<usize>();
            self.bytes += bytes;
            self.unvisited += 1;
            let (sequence, used) = (Sequence::new(entries), self.clock);
            let listed = Listed { sequence, seen, is_visited: false, used, bytes };
            let old = self.by_path.insert(path, listed);
            self.forget(old);
        }
        self.shrink();
    }

    fn forget(&mut self, old: Option<Listed>) {
        if let Some(old) = old {
            assert!(self.bytes >= old.bytes, "a forgotten entry was counted");
            self.bytes -= old.bytes;
            self.unvisited -= usize::from(!old.is_visited);
        }
    }

    /// Evicts directories if the cache is too large: those that the guest has left first, those
    /// where it is last; least recently used first.
    fn shrink(&mut self) {
        if self.bytes <= BYTES_MAX {
            return;
        }
        let mut by_use: Vec<(u8, u64, Vec<u8>)> = Vec::with_capacity(self.by_path.len());
        let run_spec = |(path, it): (&Vec<u8>, &Listed)| {
            let class = match it.is_visited {
                true if it.used >= self.visited => 2,
                true => 0,
                false => 1,
            };
            (class, it.used, path.clone())
        };
        by_use.extend(self.by_path.iter().map(run_spec));
        by_use.sort();
        for (_, _, path) in by_use {
            if self.bytes <= BYTES_MAX / 4 * 3 {
                break;
            }
            let old = self.by_path.remove(&path);
            self.forget(old);
        }
    }
}

/// A search for files.
struct Search {
    found: Vec<Vec<u8>>,
    most: usize,
    looked: usize,
}

/// Returns the memory of an entry with its index by name, bytes.
fn taken(entry: &Entry) -> usize {
    size_of::<Entry>() + entry.name.as_bytes().len() + 16 + size_of::<u32>()
}

/// Splits a path into directory and last name.
pub(crate) fn parted(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (b"", path),
    }
}

/// Joins a directory and a name or path in it.
pub(crate) fn joined(dir: &[u8], name: &[u8]) -> Vec<u8> {
    match (dir, name) {
        (b"", name) => name.to_vec(),
        (dir, b"") => dir.to_vec(),
        (dir, name) => [dir, name].join(&b'/'),
    }
}

/// Normalizes a path without empty components and `.`. `None`: it has `..` or is absolute.
pub(crate) fn plain(path: &[u8]) -> Option<Vec<u8>> {
    if path.first() == Some(&b'/') {
        return None;
    }
    let parts = path.split(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b"."));
    let parts: Vec<&[u8]> = parts.collect();
    (!parts.contains(&&b".."[..])).then(|| parts.join(&b'/'))
}
