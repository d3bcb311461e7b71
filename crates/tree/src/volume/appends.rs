//! Appends whose data is being placed, and the requests that wait for them.
//!
//! A large append chooses its offset, the file's end, before its blocks go to the disk, and
//! becomes part of the file when they are there. A block holds the data of that offset only, so
//! the end must not move in between: whatever would move it waits its turn here.

use std::collections::BTreeMap;

/// One append at a time for each file, and the requests that wait for it, in order.
#[derive(Debug, Default)]
pub(super) struct Appends {
    /// By inode: the pending request that is placing blocks for the file's end.
    placing: BTreeMap<u64, usize>,
    /// By inode and number of arrival: pending requests that would move the end.
    waiting: BTreeMap<(u64, u64), usize>,
    /// The next number of arrival.
    next: u64,
    /// Files whose append is over, and for which requests may wait.
    released: Vec<u64>,
}

impl Appends {
    /// Whether the end of a file stands still for a pending request other than `slot`.
    pub(super) fn is_held_from(&self, ino: u64, slot: usize) -> bool {
        self.placing.get(&ino).is_some_and(|holder| *holder != slot)
    }

    /// Holds the end of a file for a pending request.
    pub(super) fn hold(&mut self, ino: u64, slot: usize) {
        let before = self.placing.insert(ino, slot);
        assert!(before.is_none_or(|holder| holder == slot), "one append of {ino} at a time");
    }

    /// Lets the end of a file move again, if this pending request held it.
    pub(super) fn release(&mut self, ino: u64, slot: usize) {
        if self.placing.get(&ino) == Some(&slot) {
            self.placing.remove(&ino);
            self.released.push(ino);
        }
    }

    /// Adds a pending request to those that wait for a file; gives its number.
    pub(super) fn wait(&mut self, ino: u64, slot: usize) -> u64 {
        let number = self.next;
        self.next += 1;
        self.waiting.insert((ino, number), slot);
        number
    }

    /// Removes a pending request from those that wait.
    pub(super) fn leave(&mut self, ino: u64, number: u64) {
        assert!(number < self.next, "numbers of arrival are given in order");
        let slot = self.waiting.remove(&(ino, number));
        assert!(slot.is_some(), "request {number} waits for {ino}");
    }

    /// A file whose append has ended, once.
    pub(super) fn pop_released(&mut self) -> Option<u64> {
        self.released.pop()
    }

    /// The next pending request that may go on with a file. Asked again after each one, because
    /// that one may hold the end of the file in its turn.
    pub(super) fn pop(&mut self, ino: u64) -> Option<usize> {
        if self.placing.contains_key(&ino) {
            return None;
        }
        let (key, _) = self.waiting.range((ino, 0)..=(ino, u64::MAX)).next()?;
        let key = *key;
        self.waiting.remove(&key)
    }

    /// Panics unless every request that waits has an append to wait for.
    pub(super) fn check(&self) {
        assert!(self.released.is_empty(), "files are released at once");
        for (ino, _) in self.waiting.keys() {
            assert!(self.placing.contains_key(ino), "nothing is appended to {ino}");
        }
        assert!(self.waiting.keys().all(|(_, number)| *number < self.next), "all have arrived");
    }

    /// Files whose end is held, with the slot of the pending append.
    pub(super) fn holders(&self) -> impl Iterator<Item = (u64, usize)> + '_ {
        self.placing.iter().map(|(ino, slot)| (*ino, *slot))
    }
}
