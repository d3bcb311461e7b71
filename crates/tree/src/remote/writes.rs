//! Durability of the changes to one file or directory of a remote server.
//!
//! A server that fails may lose every write, change of attributes and change of an entry that no
//! fsync of the file or directory covers. They are recorded while the file is held: a client that
//! closes it and has no other reference gets no report of a loss. An fsync covers those whose
//! replies arrived before it was sent: 9P does not order outstanding requests, so the server may
//! perform a later or a pending one after the fsync.

use std::collections::BTreeSet;
use std::mem;

/// Writes to one file, on the current connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Writes {
    /// Number of the connection of the writes.
    epoch: u32,
    /// Number of the next write.
    next: u64,
    /// Writes without a reply.
    pending: BTreeSet<u64>,
    /// Number of the first write that may not be durable.
    durable: u64,
    /// Number of lost connections with writes that may not be durable.
    losses: u64,
    /// Number of losses that were reported to a client.
    reported: u64,
}

impl Writes {
    /// Counts a loss if this is another connection and writes on the one before may not be durable.
    pub(super) fn connect(&mut self, epoch: u32) {
        if mem::replace(&mut self.epoch, epoch) != epoch {
            self.losses += u64::from(self.durable < self.next);
            self.durable = self.next;
            self.pending.clear();
        }
    }

    /// Records a write that is about to be sent; returns its number.
    pub(super) fn begin(&mut self) -> u64 {
        let number = self.next;
        self.next += 1;
        let new = self.pending.insert(number);
        assert!(new, "each write has a number of its own");
        number
    }

    /// Records the end of a write, whatever its reply was. A write of a lost connection is already
    /// unknown.
    pub(super) fn end(&mut self, number: u64) {
        self.pending.remove(&number);
    }

    /// Records that the server has refused a write, so that there is nothing to make durable; only
    /// if all writes before it are durable.
    pub(super) fn refuse(&mut self, number: u64) {
        if self.durable == number {
            self.durable += 1;
        }
    }

    /// Returns the number up to which an fsync sent now covers the writes.
    pub(super) fn covered(&self) -> u64 {
        self.pending.first().copied().unwrap_or(self.next)
    }

    /// Records the success of an fsync that covered the writes up to this number.
    pub(super) fn synced(&mut self, covered: u64) {
        assert!(covered <= self.next, "an fsync covers writes that were made");
        self.durable = self.durable.max(covered);
    }

    /// Returns the losses that do not concern a file opened now: it gets a report of those that
    /// nobody has been told of.
    pub(super) fn seen_by_new(&self) -> u64 {
        self.reported
    }

    /// Returns whether there is a loss not reported to an open file, and marks all as reported.
    pub(super) fn report(&mut self, seen: &mut u64) -> bool {
        if mem::replace(seen, self.losses) == self.losses {
            return false;
        }
        self.reported = self.losses;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on_connection(epoch: u32) -> Writes {
        let mut writes = Writes::default();
        writes.connect(epoch);
        writes
    }

    #[test]
    fn an_fsync_covers_only_writes_answered_before_it_was_sent() {
        let mut writes = on_connection(1);
        let mut seen = writes.seen_by_new();
        let first = writes.begin();
        let pending = writes.begin();
        writes.end(first);
        let covered = writes.covered();
        assert_eq!(covered, pending);
        let later = writes.begin();
        writes.end(pending);
        writes.end(later);
        writes.synced(covered);
        assert!(!writes.report(&mut seen));
        writes.connect(2);
        assert!(writes.report(&mut seen), "two writes may be lost");
        assert!(!writes.report(&mut seen), "that is reported once");
    }

    #[test]
    fn a_loss_is_reported_to_every_file_that_was_open_and_to_the_first_opened_later() {
        let mut writes = on_connection(1);
        let (mut one, mut two) = (writes.seen_by_new(), writes.seen_by_new());
        let number = writes.begin();
        writes.end(number);
        writes.connect(2);
        let mut later = writes.seen_by_new();
        assert!(writes.report(&mut later));
        let mut last = writes.seen_by_new();
        assert!(!writes.report(&mut last));
        assert!(writes.report(&mut one));
        assert!(writes.report(&mut two));
    }

    #[test]
    fn what_is_refused_cannot_be_lost() {
        let mut writes = on_connection(1);
        let mut seen = writes.seen_by_new();
        let number = writes.begin();
        writes.refuse(number);
        writes.end(number);
        writes.connect(2);
        assert!(!writes.report(&mut seen));
        let (first, second) = (writes.begin(), writes.begin());
        writes.refuse(second);
        writes.end(first);
        writes.end(second);
        writes.connect(3);
        assert!(writes.report(&mut seen));
    }

    #[test]
    fn everything_covered_is_kept() {
        let mut writes = on_connection(1);
        let mut seen = writes.seen_by_new();
        let number = writes.begin();
        writes.end(number);
        let covered = writes.covered();
        writes.synced(covered);
        writes.connect(2);
        assert!(!writes.report(&mut seen));
    }
}
