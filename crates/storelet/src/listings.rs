//! Directories that were listed ahead for a guest.
//!
//! Programs that look through a tree list one directory after the other. The first of them brings
//! those behind it along ([`tree::Ask::ListAll`]), so that the others need no request. What was
//! listed ahead is believed for a moment, like what an NFS client has seen, and not after the guest
//! itself has changed something.

use base::Kind;
use base::op::{Entry, Listing};
use std::collections::BTreeMap;
use std::sync::Arc;

/// For so long what was seen is believed, ns.
pub(crate) const BELIEVED_NS: u64 = 1_000_000_000;

/// How much is listed at once, bytes of names and 24 for each.
pub(crate) const AHEAD: u32 = 128 << 10;

/// Most directories asked for at once.
const ASKED_MAX: usize = 256;

/// Most entries that are kept.
const ENTRIES_MAX: usize = 128 << 10;

/// A directory's entries.
pub(crate) type Entries = Arc<Vec<Entry>>;

/// When something was seen: the time, and how much the guest had changed by then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) at: u64,
    pub(crate) changes: u64,
}

impl Seen {
    /// Whether it is still believed.
    pub(crate) fn is_fresh(self, now: Seen) -> bool {
        self.changes == now.changes && now.at.saturating_sub(self.at) < BELIEVED_NS
    }
}

/// What was listed, by paths from the guest's root.
#[derive(Debug, Default)]
pub(crate) struct Listings {
    by_path: BTreeMap<Vec<u8>, (Entries, Seen)>,
    entries: usize,
    /// The tree does not know how.
    pub(crate) unsupported: bool,
}

impl Listings {
    /// The entries of a directory, if they are known.
    pub(crate) fn get(&self, path: &[u8], now: Seen) -> Option<&Entries> {
        let (entries, seen) = self.by_path.get(path)?;
        seen.is_fresh(now).then_some(entries)
    }

    /// What stands at a path, if the directory it is in is known.
    pub(crate) fn kind(&self, path: &[u8], now: Seen) -> Option<Kind> {
        let (dir, name) = parted(path);
        let mut entries = self.get(dir, now)?.iter();
        entries.find(|entry| entry.name.as_bytes() == name).map(|entry| entry.kind)
    }

    /// Which directories to ask for where one is needed: it, and those that whoever goes into each
    /// directory as soon as he meets it comes to behind it, as far as they are known of.
    pub(crate) fn wanted(&self, path: &[u8], now: Seen) -> Vec<Vec<u8>> {
        let (mut wanted, mut at) = (vec![path.to_vec()], path);
        while !at.is_empty() {
            let (dir, name) = parted(at);
            let entries = self.get(dir, now).map(|entries| entries.as_slice()).unwrap_or_default();
            let behind = entries.iter().skip_while(|entry| entry.name.as_bytes() != name).skip(1);
            let dirs = behind.filter(|entry| entry.kind == Kind::Directory);
            let paths = dirs.map(|entry| joined(dir, entry.name.as_bytes()));
            let room = ASKED_MAX - wanted.len();
            wanted.extend(paths.filter(|path| self.get(path, now).is_none()).take(room));
            at = dir;
        }
        wanted
    }

    /// Takes up what was listed.
    pub(crate) fn add(&mut self, listings: Vec<Listing>, seen: Seen) {
        if self.entries > ENTRIES_MAX {
            self.by_path.retain(|_, (_, old)| old.is_fresh(seen));
            self.entries = self.by_path.values().map(|(entries, _)| entries.len()).sum();
        }
        if self.entries > ENTRIES_MAX {
            self.by_path.clear();
            self.entries = 0;
        }
        for Listing { path, entries } in listings {
            self.entries += entries.len();
            let old = self.by_path.insert(path, (Arc::new(entries), seen));
            self.entries -= old.map_or(0, |(entries, _)| entries.len());
        }
    }
}

/// A path's directory, and its last name.
fn parted(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (b"", path),
    }
}

/// A path of a directory and a name or path in it.
pub(crate) fn joined(dir: &[u8], name: &[u8]) -> Vec<u8> {
    match (dir, name) {
        (b"", name) => name.to_vec(),
        (dir, b"") => dir.to_vec(),
        (dir, name) => [dir, name].join(&b'/'),
    }
}

/// A path without empty parts and dots. `None`: it goes up, or begins with a slash.
pub(crate) fn plain(path: &[u8]) -> Option<Vec<u8>> {
    if path.first() == Some(&b'/') {
        return None;
    }
    let parts = path.split(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b"."));
    let parts: Vec<&[u8]> = parts.collect();
    (!parts.contains(&&b".."[..])).then(|| parts.join(&b'/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Name;

    fn listing(path: &str, names: &[(&str, Kind)]) -> Listing {
        let entry = |(name, kind): &(&str, Kind)| Entry {
            cookie: 1,
            inode: 1,
            device: None,
            kind: *kind,
            name: Name::new(name.as_bytes()).expect("a name"),
            stat: None,
        };
        Listing { path: path.as_bytes().to_vec(), entries: names.iter().map(entry).collect() }
    }

    #[test]
    fn directories_behind_the_one_that_is_needed_come_along() {
        let (dir, file) = (Kind::Directory, Kind::File);
        let seen = Seen::default();
        let mut listings = Listings::default();
        assert_eq!(listings.wanted(b"", seen), [b"".to_vec()]);
        listings.add(vec![listing("", &[("a", dir), ("b", dir), ("f", file), ("c", dir)])], seen);
        listings.add(vec![listing("c", &[])], seen);
        assert_eq!(listings.wanted(b"a", seen), [b"a".to_vec(), b"b".to_vec()]);
        listings.add(vec![listing("a", &[("x", dir), ("y", dir)])], seen);
        let wanted = listings.wanted(b"a/x", seen);
        assert_eq!(wanted, [b"a/x".to_vec(), b"a/y".to_vec(), b"b".to_vec()]);
        assert_eq!(listings.kind(b"f", seen), Some(file));
        assert_eq!(listings.kind(b"a/q", seen), None);
        let late = Seen { at: BELIEVED_NS, ..seen };
        assert_eq!(listings.kind(b"f", late), None);
        assert_eq!(listings.kind(b"f", Seen { changes: 1, ..seen }), None);
    }

    #[test]
    fn paths_are_put_together_and_taken_apart() {
        assert_eq!(plain(b"./a//b/"), Some(b"a/b".to_vec()));
        assert_eq!(plain(b"."), Some(Vec::new()));
        assert_eq!((plain(b"/a"), plain(b"a/../b")), (None, None));
        assert_eq!(joined(b"a", b"b/c"), b"a/b/c");
        assert_eq!(joined(b"", b"b"), b"b");
        assert_eq!(parted(b"a/b/c"), (&b"a/b"[..], &b"c"[..]));
    }
}
