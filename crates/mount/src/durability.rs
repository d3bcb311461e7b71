//! Acknowledged changes of a file or directory that may not be durable, and reports of their loss.
//!
//! A change is lost if its connection ends before an fsync, because the server may have failed. An
//! fsync that follows fails with `EIO` if its caller may rely on such a change:
//!
//! - through every open file of before, as failed write-back does on Linux;
//! - of every thread that made one of the changes. A directory is seldom open when its entries
//!   change, so the report to another one that opened it earlier would be the only one;
//! - of every other thread once, for [`TOLD_FOR`]: one thread of a program may make a change, and
//!   another one make it durable.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Time for which a loss is reported to threads that are not known to have made changes.
const TOLD_FOR: Duration = Duration::from_secs(60);

/// Maximum number of threads that are remembered.
const THREADS_MAX: usize = 1024;

/// Changes of a file's contents and attributes, or of a directory's entries, and their fsyncs.
#[derive(Debug, Default)]
pub(crate) struct Durability {
    /// Number of acknowledged changes.
    changes: u64,
    /// Connection of the oldest acknowledged change that may not be durable.
    unsynced: Option<u64>,
    /// Threads that made changes since then.
    changers: BTreeSet<u32>,
    /// Number of times that such changes may have been lost with a connection.
    losses: u64,
    last: Option<Loss>,
}

/// The last loss.
#[derive(Debug)]
struct Loss {
    /// Threads whose changes were lost, and that have not been told.
    changers: BTreeSet<u32>,
    told: BTreeSet<u32>,
    until: Instant,
}

impl Durability {
    /// Records an acknowledged change by a thread.
    pub(crate) fn changed(&mut self, connection: u64, thread: u32) {
        self.changes += 1;
        self.unsynced.get_or_insert(connection);
        if self.changers.len() < THREADS_MAX {
            self.changers.insert(thread);
        }
    }

    /// Returns the number of acknowledged changes, at the beginning of an fsync.
    pub(crate) fn change_count(&self) -> u64 {
        self.changes
    }

    /// Records an fsync by this connection, which began after this number of changes.
    pub(crate) fn synced(&mut self, connection: u64, changes: u64, now: Instant) {
        if self.unsynced.is_some_and(|it| it != connection) {
            self.losses += 1;
            let mut changers = std::mem::take(&mut self.changers);
            changers.extend(self.last.take().into_iter().flat_map(|loss| loss.changers));
            self.last = Some(Loss { changers, told: BTreeSet::new(), until: now + TOLD_FOR });
            self.unsynced = None;
        } else if self.changes == changes {
            self.unsynced = None;
            self.changers.clear();
        }
    }

    /// Returns the number of losses.
    pub(crate) fn losses(&self) -> u64 {
        self.losses
    }

    /// Returns whether an fsync of a thread is to report a loss, and records that it is told. Its
    /// open file has reported this number of losses, or was opened after them.
    pub(crate) fn tell(&mut self, seen: u64, thread: u32, now: Instant) -> bool {
        let is_older = seen < self.losses;
        let Some(loss) = &mut self.last else { return is_older };
        let is_changer = loss.changers.remove(&thread);
        let is_recent = now < loss.until;
        if !is_recent && loss.changers.is_empty() {
            self.last = None;
            return is_older || is_changer;
        }
        let is_new = is_recent && !loss.told.contains(&thread);
        if loss.told.len() < THREADS_MAX {
            loss.told.insert(thread);
        }
        is_older || is_changer || is_new
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "a start for the arithmetic")]
mod tests {
    use super::*;

    #[test]
    fn a_loss_is_told_to_each_thread_once() {
        let (mut it, now) = (Durability::default(), Instant::now());
        it.changed(1, 10);
        it.changed(1, 11);
        it.synced(1, it.change_count(), now);
        assert!(!it.tell(0, 10, now));
        it.changed(1, 10);
        it.changed(1, 11);
        it.synced(2, it.change_count(), now);
        assert_eq!(it.losses(), 1);
        // The first has it open since before the loss.
        assert!(it.tell(0, 10, now) && !it.tell(1, 10, now));
        assert!(it.tell(1, 11, now) && !it.tell(1, 11, now));
        assert!(it.tell(1, 12, now) && !it.tell(1, 12, now));
        assert!(!it.tell(1, 13, now + TOLD_FOR));
        it.synced(2, it.change_count(), now);
        assert_eq!(it.losses(), 1);
        assert!(it.tell(0, 12, now), "an older open file");
    }

    #[test]
    fn those_that_lost_changes_are_told_whenever_they_ask() {
        let (mut it, now) = (Durability::default(), Instant::now());
        it.changed(1, 10);
        it.synced(2, 1, now);
        it.changed(2, 11);
        it.synced(3, 2, now);
        let late = now + 2 * TOLD_FOR;
        assert!(!it.tell(2, 12, late));
        assert!(it.tell(2, 10, late) && it.tell(2, 11, late));
        assert!(!it.tell(2, 10, late) && !it.tell(2, 11, late));
    }

    #[test]
    fn a_change_during_an_fsync_is_not_covered_by_it() {
        let (mut it, now) = (Durability::default(), Instant::now());
        it.changed(1, 10);
        let count = it.change_count();
        it.changed(1, 10);
        it.synced(1, count, now);
        it.synced(2, it.change_count(), now);
        assert_eq!(it.losses(), 1);
    }

    #[test]
    fn threads_beyond_the_limit_are_told_for_some_time() {
        let (mut it, now) = (Durability::default(), Instant::now());
        let threads = 0..2 * THREADS_MAX as u32;
        threads.clone().for_each(|thread| it.changed(1, thread));
        it.synced(2, it.change_count(), now);
        assert!(threads.clone().all(|thread| it.tell(1, thread, now)));
        assert!(!threads.into_iter().any(|thread| it.tell(1, thread, now + TOLD_FOR)));
    }
}
