//! Writes of a transaction that are not visible to others.

use std::collections::BTreeMap;
use std::mem;
use std::ops::Bound;
use store::{Change, Table};

/// Size of one change beyond its key and value, bytes, in memory and in the journal.
const OVERHEAD: usize = 64;

/// Changes by key; those of raw objects in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Writes {
    /// Values by key with its table in front; `None`: deleted.
    keys: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    raw: Vec<Change>,
    bytes: usize,
}

impl Writes {
    pub(crate) fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.raw.is_empty()
    }

    /// Returns the approximate memory used, bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns whether no key was written; raw objects may be.
    pub(crate) fn has_no_keys(&self) -> bool {
        self.keys.is_empty()
    }

    /// Returns the value written to a key, if any: `Some(None)` if it was deleted.
    pub(crate) fn get(&self, key: &[u8]) -> Option<Option<&[u8]>> {
        self.keys.get(key).map(Option::as_deref)
    }

    /// Returns the keys written, from one on and before another.
    pub(crate) fn range(
        &self,
        from: &[u8],
        to: &[u8],
    ) -> impl DoubleEndedIterator<Item = (&[u8], Option<&[u8]>)> {
        // A search panics if its end is before its beginning.
        let range = (Bound::Included(from), Bound::Excluded(to.max(from)));
        self.keys.range::<[u8], _>(range).map(|(key, value)| (&key[..], value.as_deref()))
    }

    /// Returns the changes of raw objects, in order.
    pub(crate) fn raw(&self) -> &[Change] {
        &self.raw
    }

    /// Sets or deletes a key.
    pub(crate) fn put(&mut self, key: Vec<u8>, value: Option<Vec<u8>>) {
        let (key_bytes, value_bytes) = (key.len() + OVERHEAD, value.as_ref().map_or(0, Vec::len));
        match self.keys.insert(key, value) {
            Some(old) => self.bytes = self.bytes + value_bytes - old.map_or(0, |old| old.len()),
            None => self.bytes += key_bytes + value_bytes,
        }
    }

    /// Adds a change of a raw object.
    pub(crate) fn push_raw(&mut self, change: Change) {
        self.bytes += raw_bytes(&change) + OVERHEAD;
        self.raw.push(change);
    }

    /// Adds later writes.
    pub(crate) fn absorb(&mut self, later: Writes) {
        later.raw.into_iter().for_each(|change| self.push_raw(change));
        later.keys.into_iter().for_each(|(key, value)| self.put(key, value));
    }

    /// Asserts that its bytes are counted.
    pub(crate) fn check(&self) {
        let keys = self.keys.iter().map(|(key, value)| {
            assert!(key.len() >= 4, "a key has its table's number in front");
            key.len() + OVERHEAD + value.as_ref().map_or(0, Vec::len)
        });
        let raw = self.raw.iter().map(|change| raw_bytes(change) + OVERHEAD);
        assert_eq!(self.bytes, keys.chain(raw).sum::<usize>(), "all bytes are counted");
    }

    /// Takes all writes as one list of changes.
    pub(crate) fn take_changes(&mut self) -> Vec<Change> {
        let writes = mem::take(self);
        let changes = writes.keys.into_iter().map(|(mut key, value)| {
            let table = Table(u32::from_be_bytes([key[0], key[1], key[2], key[3]]));
            key.drain(..4);
            match value {
                Some(value) => Change::Put { table, key, value },
                None => Change::Delete { table, key },
            }
        });
        changes.chain(writes.raw).collect()
    }
}

fn raw_bytes(change: &Change) -> usize {
    match change {
        Change::Write { data, .. } => data.len(),
        Change::Put { .. }
        | Change::Delete { .. }
        | Change::Attach { .. }
        | Change::Cut { .. }
        | Change::Free { .. } => 0,
    }
}
