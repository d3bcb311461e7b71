//! A directory's entries in the order in which a guest goes through them.

use super::Entries;
use base::op::Entry;
use std::sync::Arc;

/// The entries; as they were listed, or by name.
#[derive(Clone, Debug)]
pub(super) struct Sequence {
    entries: Entries,
    /// Their places by their names' bytes, once that was needed; and whether it is that order.
    sorted: Option<Arc<[u32]>>,
    by_name: bool,
    /// Where a name was found last as it was listed: the next one is often behind it.
    last: usize,
}

impl Sequence {
    /// A directory that was listed.
    pub(super) fn new(entries: Vec<Entry>) -> Sequence {
        Sequence { entries: Arc::new(entries), sorted: None, by_name: false, last: 0 }
    }

    /// The entries as they were listed.
    pub(super) fn entries(&self) -> &Entries {
        &self.entries
    }

    /// The place of a name, from now on in this order.
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

    /// All of it, from now on in this order.
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

    /// The entries from a place on.
    pub(super) fn behind(&self, place: usize) -> impl Iterator<Item = &Entry> {
        let sorted = self.sorted.as_ref().filter(|_| self.by_name);
        (place..self.entries.len()).map(move |at| match sorted {
            Some(sorted) => &self.entries[sorted[at] as usize],
            None => &self.entries[at],
        })
    }
}
