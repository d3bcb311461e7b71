//! Entries of a directory in the order in which a guest visits them.

use super::Entries;
use base::op::Entry;
use std::sync::Arc;

/// Entries in listing order or by name.
#[derive(Clone, Debug)]
pub(super) struct Sequence {
    entries: Entries,
    /// Indices sorted by the bytes of the names, once needed; and whether that order is in use.
    sorted: Option<Arc<[u32]>>,
    by_name: bool,
    /// Index of the last match in listing order: the next one is often behind it.
    last: usize,
    /// Whether all names are ASCII.
    is_ascii: bool,
}

impl Sequence {
    /// Creates the sequence of a directory in listing order.
    pub(super) fn new(entries: Vec<Entry>) -> Sequence {
        let is_ascii = entries.iter().all(|entry| entry.name.as_bytes().is_ascii());
        Sequence { entries: Arc::new(entries), sorted: None, by_name: false, last: 0, is_ascii }
    }

    /// Returns the entries in listing order.
    pub(super) fn entries(&self) -> &Entries {
        &self.entries
    }

    /// Returns whether no file system takes one of the names for this ASCII name.
    pub(super) fn lacks(&self, name: &[u8]) -> bool {
        let is_other = |entry: &Entry| !entry.name.as_bytes().eq_ignore_ascii_case(name);
        self.is_ascii && self.entries.iter().all(is_other)
    }

    /// Switches to this order and returns the position of a name.
    pub(super) fn find(&mut self, name: &[u8], by_name: bool) -> Option<usize> {
        self.go(by_name);
        if let Some(sorted) = self.sorted.as_ref().filter(|_| by_name) {
            let named = |place: &u32| self.entries[*place as usize].name.as_bytes();
            return sorted.binary_search_by(|place| named(place).cmp(name)).ok();
        }
        let mut places = (self.last..self.entries.len()).chain(0..self.last);
        let place = places.find(|place| self.entries[*place].name.as_bytes() == name)?;
        self.last = place;
        Some(place)
    }

    /// Switches to this order and returns a copy of the sequence.
    pub(super) fn all(&mut self, by_name: bool) -> Sequence {
        self.go(by_name);
        self.clone()
    }

    fn go(&mut self, by_name: bool) {
        self.by_name = by_name;
        if by_name && self.sorted.is_none() {
            let count = u32::try_from(self.entries.len()).expect("entries fit into a message");
            let mut places: Vec<u32> = (0..count).collect();
            places.sort_unstable_by_key(|place| self.entries[*place as usize].name.as_bytes());
            self.sorted = Some(places.into());
        }
    }

    /// Returns the entries from a position on.
    pub(super) fn behind(&self, place: usize) -> impl Iterator<Item = &Entry> {
        let sorted = self.sorted.as_ref().filter(|_| self.by_name);
        (place..self.entries.len()).map(move |at| match sorted {
            Some(sorted) => &self.entries[sorted[at] as usize],
            None => &self.entries[at],
        })
    }
}
