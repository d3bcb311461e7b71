//! Durability of the changes to one file or directory of a remote server.
//!
//! A server that fails may lose every write, change of attributes and change of an entry that no
//! fsync of the file or directory covers. They are recorded while the file is held: a client that
//! closes it and has no other reference gets no report of a loss. An fsync covers those whose
//! replies arrived before it was sent: 9P does not order outstanding requests, so the server may
//! perform a later or a pending one after the fsync.
//!
//! A loss is reported once through each file that was open, and to each client that made one of the
//! changes: directories are seldom open when their entries change.

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
    /// First and last of the writes that may not be durable and that an fdatasync does not cover:
    /// changes of attributes or entries.
    others: Option<(u64, u64)>,
    /// Clients with writes that may not be durable.
    makers: BTreeSet<u32>,
    /// Clients whose writes were lost, and that were not told.
    unreported: BTreeSet<u32>,
}

/// Maximum number of clients that are remembered.
const CLIENTS_MAX: usize = 1024;

impl Writes {
    /// Counts a loss if this is another connection and writes on the one before may not be durable.
    pub(super) fn connect(&mut self, epoch: u32) {
        if mem::replace(&mut self.epoch, epoch) != epoch {
            let makers = mem::take(&mut self.makers);
            if self.durable < self.next {
                self.losses += 1;
                let room = CLIENTS_MAX.saturating_sub(self.unreported.len());
                self.unreported.extend(makers.into_iter().take(room));
            }
            self.durable = self.next;
            self.others = None;
            self.pending.clear();
        }
    }

    /// Records a write of a client that is about to be sent, or with `is_other` a change that an
    /// fdatasync does not cover; returns its number.
    pub(super) fn begin(&mut self, client: u32, is_other: bool) -> u64 {
        let number = self.next;
        self.next += 1;
        if self.makers.len() < CLIENTS_MAX {
            self.makers.insert(client);
        }
        if is_other {
            self.others = Some((self.others.map_or(number, |(first, _)| first), number));
        }
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

    /// Returns the number up to which an fsync sent now covers the writes, or with `data_only` an
    /// fdatasync.
    pub(super) fn covered(&self, data_only: bool) -> u64 {
        let pending = self.pending.first().copied().unwrap_or(self.next);
        let other = self.others.filter(|_| data_only).map_or(self.next, |(first, _)| first);
        pending.min(other)
    }

    /// Records the success of an fsync that covered the writes up to this number.
    pub(super) fn synced(&mut self, covered: u64) {
        assert!(covered <= self.next, "an fsync covers writes that were made");
        self.durable = self.durable.max(covered);
        self.others = self.others.filter(|(_, last)| *last >= self.durable);
        self.others = self.others.map(|(first, last)| (first.max(self.durable), last));
        if self.durable == self.next {
            self.makers.clear();
        }
    }

    /// Returns the losses that do not concern a file opened now: it gets a report of those that
    /// were not reported to anyone.
    pub(super) fn seen_by_new(&self) -> u64 {
        self.reported
    }

    /// Returns whether there is a loss not reported to an open file of a client, or to the client,
    /// and marks all as reported.
    pub(super) fn report(&mut self, seen: &mut u64, client: u32) -> bool {
        let is_unreported = self.unreported.remove(&client);
        let is_unseen = mem::replace(seen, self.losses) != self.losses;
        if is_unseen {
            self.reported = self.losses;
        }
        is_unseen || is_unreported
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
        let first = writes.begin(1, false);
        let pending = writes.begin(1, false);
        writes.end(first);
        let covered = writes.covered(false);
        assert_eq!(covered, pending);
        let later = writes.begin(1, false);
        writes.end(pending);
        writes.end(later);
        writes.synced(covered);
        assert!(!writes.report(&mut seen, 9));
        writes.connect(2);
        assert!(writes.report(&mut seen, 9), "two writes may be lost");
        assert!(!writes.report(&mut seen, 9), "that is reported once");
    }

    #[test]
    fn a_loss_is_reported_to_every_file_that_was_open_and_to_the_first_opened_later() {
        let mut writes = on_connection(1);
        let (mut one, mut two) = (writes.seen_by_new(), writes.seen_by_new());
        let number = writes.begin(1, false);
        writes.end(number);
        writes.connect(2);
        let mut later = writes.seen_by_new();
        assert!(writes.report(&mut later, 9));
        let mut last = writes.seen_by_new();
        assert!(!writes.report(&mut last, 9));
        assert!(writes.report(&mut one, 9));
        assert!(writes.report(&mut two, 9));
    }

    #[test]
    fn what_is_refused_cannot_be_lost() {
        let mut writes = on_connection(1);
        let mut seen = writes.seen_by_new();
        let number = writes.begin(1, false);
        writes.refuse(number);
        writes.end(number);
        writes.connect(2);
        assert!(!writes.report(&mut seen, 9));
        let (first, second) = (writes.begin(1, false), writes.begin(1, false));
        writes.refuse(second);
        writes.end(first);
        writes.end(second);
        writes.connect(3);
        assert!(writes.report(&mut seen, 9));
    }

    #[test]
    fn a_loss_is_reported_to_each_client_that_made_changes() {
        let mut writes = on_connection(1);
        for client in [1, 2] {
            let number = writes.begin(client, true);
            writes.end(number);
        }
        writes.connect(2);
        for client in [1, 2] {
            let mut seen = writes.seen_by_new();
            assert!(writes.report(&mut seen, client), "client {client}");
            assert!(!writes.report(&mut seen, client));
        }
        let mut other = writes.seen_by_new();
        assert!(!writes.report(&mut other, 3));
    }

    #[test]
    fn an_fdatasync_does_not_cover_attributes() {
        let mut writes = on_connection(1);
        let mut seen = writes.seen_by_new();
        for is_other in [false, true, false] {
            let number = writes.begin(1, is_other);
            writes.end(number);
        }
        let covered = writes.covered(true);
        assert_eq!(covered, 1);
        writes.synced(covered);
        writes.connect(2);
        assert!(writes.report(&mut seen, 1));
        let number = writes.begin(1, false);
        writes.end(number);
        writes.synced(writes.covered(true));
        writes.connect(3);
        assert!(!writes.report(&mut seen, 1));
    }

    #[test]
    fn everything_covered_is_kept() {
        let mut writes = on_connection(1);
        let mut seen = writes.seen_by_new();
        let number = writes.begin(1, false);
        writes.end(number);
        let covered = writes.covered(false);
        writes.synced(covered);
        writes.connect(2);
        assert!(!writes.report(&mut seen, 9));
    }
}
