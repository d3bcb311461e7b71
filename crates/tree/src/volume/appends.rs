//! Appends with blocks being placed, and the requests that wait for them.
//!
//! A large append determines its offset, the end of the file, before its blocks are written to the
//! disk, and becomes part of the file afterwards. The blocks are valid for that offset only, so the
//! end must not move in between: requests that would move it wait here.

use std::collections::BTreeMap;

/// One append at a time for each file, and the requests that wait for it, in order.
#[derive(Debug, Default)]
pub(super) struct Appends {
    /// Pending request that is placing blocks at the end, by inode.
    placing: BTreeMap<u64, usize>,
    /// Pending requests that would move the end, by inode and number of arrival.
    waiting: BTreeMap<(u64, u64), usize>,
    /// Next number of arrival.
    next: u64,
    /// Files whose append has ended, possibly with waiting requests.
    released: Vec<u64>,
}

impl Appends {
    /// Returns whether a pending request other than `slot` holds the end of a file.
    pub(super) fn is_held_from(&self, ino: u64, slot: usize) -> bool {
        self.placing.get(&ino).is_some_and(|holder| *holder != slot)
    }

    /// Holds the end of a file for a pending request.
    pub(super) fn hold(&mut self, ino: u64, slot: usize) {
        let before = self.placing.insert(ino, slot);
        assert!(before.is_none_or(|holder| holder == slot), "one append of {ino} at a time");
    }

    /// Releases the end of a file, if this pending request holds it.
    pub(super) fn release(&mut self, ino: u64, slot: usize) {
        if self.placing.get(&ino) == Some(&slot) {
            self.placing.remove(&ino);
            self.released.push(ino);
        }
    }

    /// Queues a pending request for a file; returns its number.
    pub(super) fn wait(&mut self, ino: u64, slot: usize) -> u64 {
        let number = self.next;
        self.next += 1;
        self.waiting.insert((ino, number), slot);
        number
    }

    /// Removes a pending request from the queue.
    pub(super) fn leave(&mut self, ino: u64, number: u64) {
        assert!(number < self.next, "numbers of arrival are given in order");
        let slot = self.waiting.remove(&(ino, number));
        assert!(slot.is_some(), "request {number} waits for {ino}");
    }

    /// Returns a file whose append has ended, once.
    pub(super) fn pop_released(&mut self) -> Option<u64> {
        self.released.pop()
    }

    /// Returns the next pending request of a file that can continue. To be called again after each
    /// one, because that one may hold the end of the file itself.
    pub(super) fn pop(&mut self, ino: u64) -> Option<usize> {
        if self.placing.contains_key(&ino) {
            return None;
        }
        let (key, _) = self.waiting.range((ino, 0)..=(ino, u64::MAX)).next()?;
        let key = *key;
        self.waiting.remove(&key)
    }

    /// Panics unless there is an append for every waiting request.
    pub(super) fn check(&self) {
        assert!(self.released.is_empty(), "files are released at once");
        for (ino, _) in self.waiting.keys() {
            assert!(self.placing.contains_key(ino), "nothing is appended to {ino}");
        }
        assert!(self.waiting.keys().all(|(_, number)| *number < self.next), "all have arrived");
    }

    /// Iterates over files whose end is held, with the slot of the pending append.
    pub(super) fn holders(&self) -> impl Iterator<Item = (u64, usize)> + '_ {
        self.placing.iter().map(|(ino, slot)| (*ino, *slot))
    }
}
