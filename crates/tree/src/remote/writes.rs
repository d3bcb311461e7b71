//! Durability of the writes to one file of a remote server.
//!
//! A server that fails may lose every write, or change of the length, that no fsync has covered.
//! Writes are remembered while the file is held: a client that closes it and has no other
//! reference hears of no loss. An fsync covers the writes
//! whose replies had come when it was sent: 9P does not order requests that are outstanding
//! together, so the server may take a later or a pending write after the fsync.

use std::collections::BTreeSet;
use std::mem;

/// Writes to one file, on the connection that is in use.
#[derive(Clone, Debug, Default)]
pub(super) struct Writes {
    /// The connection that the writes were made on.
    epoch: u32,
    /// Number of the next write.
    next: u64,
    /// Writes without a reply.
    pending: BTreeSet<u64>,
    /// Number of the first write that may not be durable.
    durable: u64,
    /// How often a connection was lost with writes that may not be durable.
    losses: u64,
    /// The losses that were reported to a client.
    reported: u64,
}

impl Writes {
    /// Counts a loss if this is another connection and writes of the one before may not be durable.
    fn connect(&mut self, epoch: u32) {
        if mem::replace(&mut self.epoch, epoch) != epoch {
            self.losses += u64::from(self.durable < self.next);
            self.durable = self.next;
            self.pending.clear();
        }
    }

    /// Notes a write that is about to be sent; gives its number.
    pub(super) fn begin(&mut self, epoch: u32) -> u64 {
        self.connect(epoch);
        let number = self.next;
        self.next += 1;
        let new = self.pending.insert(number);
        assert!(new, "each write has a number of its own");
        number
    }

    /// Notes the end of a write, whatever its reply was. A write of a lost connection is unknown by
    /// then.
    pub(super) fn end(&mut self, number: u64) {
        self.pending.remove(&number);
    }

    /// The number up to which an fsync covers the writes if it is sent now.
    pub(super) fn covered(&mut self, epoch: u32) -> u64 {
        self.connect(epoch);
        self.pending.first().copied().unwrap_or(self.next)
    }

    /// Notes that an fsync has succeeded which covered the writes up to this number.
    pub(super) fn synced(&mut self, covered: u64) {
        assert!(covered <= self.next, "an fsync covers writes that were made");
        self.durable = self.durable.max(covered);
    }

    /// The losses that an open file made now has no part in: a loss that nobody knows of yet is
    /// reported to it.
    pub(super) fn seen_by_new(&mut self, epoch: u32) -> u64 {
        self.connect(epoch);
        self.reported
    }

    /// Whether there is a loss that an open file has not seen; it has seen all afterwards.
    pub(super) fn report(&mut self, epoch: u32, seen: &mut u64) -> bool {
        self.connect(epoch);
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

    #[test]
    fn an_fsync_covers_only_writes_answered_before_it_was_sent() {
        let mut writes = Writes::default();
        let mut seen = writes.seen_by_new(1);
        let first = writes.begin(1);
        let pending = writes.begin(1);
        writes.end(first);
        let covered = writes.covered(1);
        assert_eq!(covered, pending);
        let later = writes.begin(1);
        writes.end(pending);
        writes.end(later);
        writes.synced(covered);
        assert!(!writes.report(1, &mut seen));
        assert!(writes.report(2, &mut seen), "two writes may be lost");
        assert!(!writes.report(2, &mut seen), "that is reported once");
    }

    #[test]
    fn a_loss_is_reported_to_every_file_that_was_open_and_to_the_first_opened_later() {
        let mut writes = Writes::default();
        let (mut one, mut two) = (writes.seen_by_new(1), writes.seen_by_new(1));
        let number = writes.begin(1);
        writes.end(number);
        let mut later = writes.seen_by_new(2);
        assert!(writes.report(2, &mut later));
        let mut last = writes.seen_by_new(2);
        assert!(!writes.report(2, &mut last));
        assert!(writes.report(2, &mut one));
        assert!(writes.report(2, &mut two));
    }

    #[test]
    fn everything_covered_is_kept() {
        let mut writes = Writes::default();
        let mut seen = writes.seen_by_new(1);
        let number = writes.begin(1);
        writes.end(number);
        let covered = writes.covered(1);
        writes.synced(covered);
        assert!(!writes.report(2, &mut seen));
    }
}
