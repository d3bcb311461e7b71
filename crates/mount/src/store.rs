//! Directories and contents of small files that were sent ahead, by the numbers of files.
//!
//! All of it is true as long as changes are reported: a change removes what it may have made
//! outdated, and everything is removed when reports end. The oldest is removed beyond a limit.
//! Contents that open files use are known until these are closed, to mark them when they change.

use crate::attr::Attr;
use crate::listing::Item;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Maximum memory, in bytes.
const BYTES_MAX: usize = 64 << 20;

/// Memory of an entry beside its name, about, in bytes.
const ITEM_BYTES: usize = 512;

/// Number of files with contents in use from which on closed ones are forgotten.
const IN_USE_MIN: usize = 1024;

/// Maximum number of changed names of a directory.
const CHANGED_MAX: usize = 4096;

/// Contents of a file.
#[derive(Debug)]
pub(crate) struct Content {
    pub(crate) data: Vec<u8>,
    /// Whether the file has changed since, or may have.
    is_stale: AtomicBool,
}

impl Content {
    /// Returns whether the contents are those of the file.
    pub(crate) fn is_current(&self) -> bool {
        !self.is_stale.load(Ordering::SeqCst)
    }

    /// Returns the part of the data that a read gets.
    pub(crate) fn part(&self, offset: u64, size: u32) -> &[u8] {
        let length = self.data.len();
        let start = usize::try_from(offset).unwrap_or(length).min(length);
        &self.data[start..length.min(start + size as usize)]
    }
}

/// Contents in the store.
#[derive(Debug)]
struct Held {
    content: Arc<Content>,
    attr: Attr,
    serial: u64,
    stream: u64,
    is_used: bool,
}

/// Directory with all its entries.
#[derive(Debug)]
struct Directory {
    /// In the order of the server. Without attributes since those have changed.
    items: Vec<Item>,
    by_name: BTreeMap<Vec<u8>, usize>,
    /// Names that have changed since. With one the entries are not all of the directory's.
    changed: BTreeSet<Vec<u8>>,
    bytes: usize,
    arrived: Instant,
    serial: u64,
    stream: u64,
    is_used: bool,
}

/// Knowledge of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// It is not known whether there is such a file.
    Unknown,
    /// There is no such file.
    Absent,
    /// There is one, with these attributes.
    File(Attr),
}

/// Amount that was used for the first time, and the number of the stream that had brought it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Used {
    pub(crate) stream: u64,
    pub(crate) entries: usize,
    pub(crate) bytes: usize,
}

/// Part of the store, in the order of arrival.
#[derive(Debug)]
enum Part {
    Directory(u64),
    Content(u64),
}

/// Directories and contents that were sent ahead.
#[derive(Debug, Default)]
pub(crate) struct Store {
    directories: BTreeMap<u64, Directory>,
    /// Directory and index of the entry of each file.
    places: BTreeMap<u64, (u64, usize)>,
    contents: BTreeMap<u64, Held>,
    /// Contents that open files use, or have used, and the number of files at the last look.
    in_use: BTreeMap<u64, Vec<Weak<Content>>>,
    looked_at: usize,
    /// Parts with their serial numbers; some may have been removed.
    order: VecDeque<(Part, u64)>,
    serial: u64,
    bytes: usize,
    /// Time for which attributes of files with several names are valid.
    linked_valid: Duration,
}

impl Store {
    /// Creates an empty store. Attributes of files with several names are valid for this time.
    pub(crate) fn new(linked_valid: Duration) -> Store {
        Store { linked_valid, ..Store::default() }
    }

    /// Returns whether nothing is here.
    pub(crate) fn is_empty(&self) -> bool {
        self.directories.is_empty() && self.contents.is_empty() && self.in_use.is_empty()
    }

    /// Adds a directory with all its entries.
    pub(crate) fn add_directory(&mut self, number: u64, items: Vec<Item>, now: Instant, from: u64) {
        self.remove_directory(number);
        let mut by_name = BTreeMap::new();
        let mut bytes = ITEM_BYTES;
        for (index, item) in items.iter().enumerate() {
            bytes += ITEM_BYTES + 2 * item.name.len();
            if !item.name.is_empty() {
                by_name.insert(item.name.clone(), index);
            }
            self.places.insert(item.qid.path, (number, index));
        }
        self.bytes += bytes;
        self.serial += 1;
        let (arrived, serial, stream) = (now, self.serial, from);
        let (changed, is_used) = (BTreeSet::new(), false);
        let directory =
            Directory { items, by_name, changed, bytes, arrived, serial, stream, is_used };
        self.directories.insert(number, directory);
        self.order.push_back((Part::Directory(number), serial));
        self.evict();
    }

    /// Adds the contents of a file with these attributes.
    pub(crate) fn add_content(&mut self, attr: Attr, data: Vec<u8>, from: u64) {
        let number = attr.qid.path;
        self.remove_content(number);
        self.bytes += ITEM_BYTES + data.len();
        self.serial += 1;
        let content = Arc::new(Content { data, is_stale: AtomicBool::new(false) });
        let held = Held { content, attr, serial: self.serial, stream: from, is_used: false };
        self.contents.insert(number, held);
        self.order.push_back((Part::Content(number), self.serial));
        self.evict();
    }

    fn evict(&mut self) {
        while self.bytes > BYTES_MAX {
            let Some((part, serial)) = self.order.pop_front() else { return };
            match part {
                Part::Directory(number) => {
                    if self.directories.get(&number).is_some_and(|it| it.serial == serial) {
                        self.remove_directory(number);
                    }
                }
                Part::Content(number) => {
                    if self.contents.get(&number).is_some_and(|it| it.serial == serial) {
                        self.remove_content(number);
                    }
                }
            }
        }
        if self.order.len() > 2 * (self.directories.len() + self.contents.len()) + 64 {
            let Store { directories, contents, order, .. } = self;
            order.retain(|(part, serial)| match part {
                Part::Directory(it) => directories.get(it).is_some_and(|it| it.serial == *serial),
                Part::Content(it) => contents.get(it).is_some_and(|it| it.serial == *serial),
            });
        }
    }

    fn remove_directory(&mut self, number: u64) {
        let Some(directory) = self.directories.remove(&number) else { return };
        self.bytes -= directory.bytes;
        for item in &directory.items {
            let file = item.qid.path;
            if self.places.get(&file).is_some_and(|(dir, _)| *dir == number) {
                self.places.remove(&file);
            }
        }
    }

    fn remove_content(&mut self, number: u64) {
        if let Some(held) = self.contents.remove(&number) {
            self.bytes -= ITEM_BYTES + held.content.data.len();
        }
    }

    /// Returns the entries of a directory, and what is used by that.
    pub(crate) fn list(&mut self, number: u64) -> Option<(Vec<Item>, Used)> {
        let directory = self.directories.get_mut(&number).filter(|it| it.changed.is_empty())?;
        Some((directory.items.clone(), directory.touch()))
    }

    /// Returns whether all entries of a directory are here.
    pub(crate) fn has_entries(&self, number: u64) -> bool {
        self.directories.get(&number).is_some_and(|it| it.changed.is_empty())
    }

    /// Returns the number of entries of a directory that is here.
    pub(crate) fn entries(&self, number: u64) -> Option<usize> {
        self.directories.get(&number).map(|it| it.items.len())
    }

    /// Returns whether most names of a directory are known.
    pub(crate) fn has_names(&self, number: u64) -> bool {
        self.directories.contains_key(&number)
    }

    /// Returns what is known of a name in a directory, and what is used by the question.
    pub(crate) fn find(&mut self, dir: u64, name: &[u8], now: Instant) -> (Known, Option<Used>) {
        let Some(directory) = self.directories.get_mut(&dir) else { return (Known::Unknown, None) };
        if directory.changed.contains(name) {
            return (Known::Unknown, None);
        }
        let used = Some(directory.touch());
        let Some(index) = directory.by_name.get(name) else { return (Known::Absent, used) };
        let (attr, arrived) = (directory.items[*index].attr, directory.arrived);
        let attr = attr.filter(|attr| self.is_valid(attr, arrived, now));
        (attr.map_or(Known::Unknown, Known::File), used)
    }

    /// Returns the attributes of a file.
    pub(crate) fn attr(&self, file: u64, now: Instant) -> Option<Attr> {
        let (dir, index) = self.places.get(&file)?;
        let directory = self.directories.get(dir)?;
        let attr = directory.items[*index].attr?;
        self.is_valid(&attr, directory.arrived, now).then_some(attr)
    }

    /// Returns whether attributes may be used: of a file with several names a change is reported
    /// for one of these only.
    fn is_valid(&self, attr: &Attr, arrived: Instant, now: Instant) -> bool {
        let is_linked = attr.shown.nlink > 1 && !attr.is_dir();
        !is_linked || now.saturating_duration_since(arrived) < self.linked_valid
    }

    /// Returns the contents of a file with these attributes, and what is used by that.
    pub(crate) fn content(&mut self, attr: &Attr) -> Option<(Arc<Content>, Used)> {
        let held = self.contents.get_mut(&attr.qid.path)?;
        if !held.attr.has_same_contents(attr) {
            return None;
        }
        let is_first = !std::mem::replace(&mut held.is_used, true);
        let bytes = if is_first { held.content.data.len() } else { 0 };
        let used = Used { stream: held.stream, entries: 0, bytes };
        let content = held.content.clone();
        self.use_content(attr.qid.path, &content);
        Some((content, used))
    }

    fn use_content(&mut self, file: u64, content: &Arc<Content>) {
        if self.in_use.len() >= 2 * self.looked_at.max(IN_USE_MIN) {
            self.in_use.retain(|_, all| all.iter().any(|it| it.strong_count() > 0));
            self.looked_at = self.in_use.len();
        }
        let all = self.in_use.entry(file).or_default();
        all.retain(|it| it.strong_count() > 0 && it.as_ptr() != Arc::as_ptr(content));
        all.push(Arc::downgrade(content));
    }

    /// Removes the contents of a file that have changed, and its attributes.
    pub(crate) fn contents_changed(&mut self, file: u64) {
        for content in self.in_use.remove(&file).into_iter().flatten() {
            mark(&content);
        }
        self.attributes_changed(file);
    }

    /// Removes the attributes of a file that have changed.
    pub(crate) fn attributes_changed(&mut self, file: u64) {
        // Contents are found by attributes.
        self.remove_content(file);
        if let Some((dir, index)) = self.places.get(&file)
            && let Some(directory) = self.directories.get_mut(dir)
        {
            directory.items[*index].attr = None;
        }
    }

    /// Removes what a change of an entry makes outdated: the name and its file, or the whole
    /// directory if the name is not told.
    pub(crate) fn entry_changed(&mut self, dir: u64, name: Option<&[u8]>) {
        self.attributes_changed(dir);
        let Some(directory) = self.directories.get_mut(&dir) else { return };
        let Some(name) = name.filter(|_| directory.changed.len() < CHANGED_MAX) else {
            return self.remove_directory(dir);
        };
        directory.changed.insert(name.to_vec());
        let index = directory.by_name.remove(name);
        if let Some(index) = index {
            let file = directory.items[index].qid.path;
            self.contents_changed(file);
            self.remove_directory(file);
        }
    }

    /// Removes what a new name of a file makes outdated.
    pub(crate) fn file_moved(&mut self, file: u64) {
        if let Some((dir, _)) = self.places.get(&file).copied() {
            self.remove_directory(dir);
        }
        self.contents_changed(file);
    }

    /// Removes everything.
    pub(crate) fn clear(&mut self) {
        self.in_use.values().flatten().for_each(mark);
        *self = Store { serial: self.serial, ..Store::new(self.linked_valid) };
    }

    /// Checks the invariants.
    #[cfg(test)]
    pub(crate) fn check(&self) {
        let directories = self.directories.values().map(|it| it.bytes);
        let contents = self.contents.values().map(|it| ITEM_BYTES + it.content.data.len());
        assert_eq!(directories.chain(contents).sum::<usize>(), self.bytes, "memory is counted");
        assert!(self.bytes <= BYTES_MAX);
        for (file, (dir, index)) in &self.places {
            assert_eq!(self.directories[dir].items[*index].qid.path, *file, "an entry's place");
        }
    }
}

/// Marks contents as those of another time.
fn mark(content: &Weak<Content>) {
    if let Some(content) = content.upgrade() {
        content.is_stale.store(true, Ordering::SeqCst);
    }
}

impl Directory {
    fn touch(&mut self) -> Used {
        let is_first = !std::mem::replace(&mut self.is_used, true);
        let entries = if is_first { self.items.len() + 1 } else { 0 };
        Used { stream: self.stream, entries, bytes: 0 }
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "a start for the arithmetic")]
mod tests {
    use super::*;
    use wire::fuse::Attributes;
    use wire::ninep::Qid;

    fn attr(number: u64, size: u64, nlink: u32) -> Attr {
        let qid = Qid { kind: 0, version: 0, path: number };
        let shown = Attributes { ino: number, size, nlink, mode: 0o100_644, ..Default::default() };
        Attr { qid, shown, created: None }
    }

    fn item(name: &str, attr: Attr) -> Item {
        let (qid, name) = (attr.qid, name.as_bytes().to_vec());
        Item { qid, cookie: qid.path, kind: 8, name, attr: Some(attr) }
    }

    fn store() -> (Store, Instant) {
        let (mut store, now) = (Store::new(Duration::from_secs(1)), Instant::now());
        let items = vec![item("a", attr(11, 3, 1)), item("b", attr(12, 0, 2))];
        store.add_directory(1, items, now, 7);
        store.check();
        (store, now)
    }

    #[test]
    fn names_of_a_directory_are_known_until_they_change() {
        let (mut store, now) = store();
        let (found, used) = store.find(1, b"a", now);
        assert_eq!(found, Known::File(attr(11, 3, 1)));
        assert_eq!(used, Some(Used { stream: 7, entries: 3, bytes: 0 }));
        assert_eq!(store.find(1, b"c", now).0, Known::Absent);
        assert_eq!(store.find(2, b"a", now).0, Known::Unknown);
        assert_eq!(store.list(1).map(|(items, used)| (items.len(), used.entries)), Some((2, 0)));
        store.entry_changed(1, Some(b"a"));
        store.entry_changed(1, Some(b"c"));
        store.check();
        for name in [b"a", b"c"] {
            assert_eq!(store.find(1, name, now).0, Known::Unknown);
        }
        assert_eq!(store.find(1, b"d", now).0, Known::Absent, "it has not changed");
        assert!(store.list(1).is_none() && !store.has_entries(1) && store.has_names(1));
        assert_eq!(store.attr(11, now), None);
        store.entry_changed(1, None);
        assert!(!store.has_names(1) && store.is_empty());
        store.check();
    }

    #[test]
    fn attributes_of_files_with_several_names_are_valid_for_a_second() {
        let (mut store, now) = store();
        assert_eq!(store.attr(12, now), Some(attr(12, 0, 2)));
        let later = now + Duration::from_secs(1);
        assert_eq!(store.attr(12, later), None);
        assert_eq!(store.find(1, b"b", later).0, Known::Unknown);
        assert_eq!(store.attr(11, later), Some(attr(11, 3, 1)));
        store.contents_changed(11);
        assert_eq!(store.attr(11, now), None);
        assert_eq!(store.find(1, b"a", now).0, Known::Unknown);
        assert!(store.has_entries(1), "its name is still there");
        store.file_moved(12);
        assert!(!store.has_names(1), "it is not known by which name");
        store.check();
    }

    #[test]
    fn contents_are_those_of_the_attributes_and_stale_after_a_change() {
        let (mut store, _) = store();
        store.add_content(attr(11, 3, 1), b"abc".to_vec(), 7);
        assert!(store.content(&attr(11, 4, 1)).is_none(), "the file is another one now");
        let (content, used) = store.content(&attr(11, 3, 1)).unwrap();
        assert_eq!((used.bytes, content.part(1, 9)), (3, &b"bc"[..]));
        assert_eq!((content.part(3, 9), content.part(u64::MAX, 1)), (&b""[..], &b""[..]));
        store.contents_changed(11);
        assert!(!content.is_current() && store.content(&attr(11, 3, 1)).is_none());
        store.add_content(attr(11, 3, 1), b"xyz".to_vec(), 7);
        let (content, _) = store.content(&attr(11, 3, 1)).unwrap();
        store.clear();
        assert!(!content.is_current() && store.is_empty());
        store.check();
    }

    #[test]
    fn the_oldest_parts_are_removed_beyond_the_limit() {
        let (mut store, now) = store();
        for number in 0..80 {
            store.add_content(attr(100 + number, 1 << 20, 1), vec![0; 1 << 20], 7);
            store.add_content(attr(100 + number, 1 << 20, 1), vec![0; 1 << 20], 7);
            store.check();
        }
        assert!(!store.has_names(1), "it was the oldest");
        assert!(store.content(&attr(100, 1 << 20, 1)).is_none());
        assert!(store.content(&attr(179, 1 << 20, 1)).is_some());
        assert!(store.order.len() < 300, "removed parts are forgotten");
        assert_eq!(store.attr(11, now), None);
    }
}
