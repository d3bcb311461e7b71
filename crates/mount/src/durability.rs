//! Acknowledged changes of a file or directory that may not be durable, and reports of their loss.
//!
//! A change is lost if its connection ends before an fsync, because the server may have failed. An
//! fsync that follows fails with `EIO` if its caller may rely on such a change:
//!
//! - through every open file of before, as failed write-back does on Linux;
//! - of every thread that made one of the changes, or for each of those of another one of its
//!   process. A directory is seldom open when its entries change, so the report to a program that
//!   opened it earlier would be the only one;
//! - of every other process once, for [`REPORTED_FOR`]: one program may make a change, and another
//!   one make it durable. Without a limit of time, if it is not known which threads made changes.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

/// Time for which a loss is reported to processes that are not known to have made changes.
const REPORTED_FOR: Duration = Duration::from_secs(10);

/// Maximum number of threads that are remembered.
const THREADS_MAX: usize = 1024;

/// Thread of requests that the kernel makes on its own, and of callers that it does not show.
const UNKNOWN: u32 = 0;

/// Kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Contents of a file, which fdatasync makes durable.
    Data,
    /// Attributes of a file, or entries of a directory.
    Other,
}

/// Threads of this host.
pub(crate) trait Threads {
    fn is_alive(&self, thread: u32) -> bool;
    /// Returns whether both are of one process.
    fn are_together(&self, one: u32, other: u32) -> bool;
    /// Returns the process of a thread.
    fn process(&self, thread: u32) -> u32;
}

/// The threads that `/proc` shows.
#[derive(Debug)]
pub(crate) struct Proc;

impl Threads for Proc {
    fn is_alive(&self, thread: u32) -> bool {
        Path::new(&format!("/proc/{thread}/task")).exists()
    }

    fn are_together(&self, one: u32, other: u32) -> bool {
        Path::new(&format!("/proc/{one}/task/{other}")).exists()
    }

    fn process(&self, thread: u32) -> u32 {
        let status = std::fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default();
        let number = status.lines().find_map(|line| line.strip_prefix("Tgid:"));
        number.and_then(|number| number.trim().parse().ok()).unwrap_or(thread)
    }
}

/// Numbers of changes of each kind.
pub(crate) type Counts = [u64; 2];

/// Changes of one kind.
#[derive(Debug, Default)]
struct Changes {
    /// Number of acknowledged changes.
    count: u64,
    /// Connection of the oldest one that may not be durable.
    unsynced: Option<u64>,
}

impl Changes {
    fn add(&mut self, connection: u64) {
        self.count += 1;
        // Replies of two connections may be recorded in any order.
        self.unsynced = Some(self.unsynced.map_or(connection, |it| it.min(connection)));
    }

    /// Records an fsync by this connection, which began after this number of changes and, if
    /// `covers`, made them durable. Returns whether some may have been lost before.
    fn synced(&mut self, connection: u64, count: u64, covers: bool) -> bool {
        let is_lost = self.unsynced.is_some_and(|it| it < connection);
        if is_lost || covers {
            self.unsynced = (!covers || self.count != count).then_some(connection);
        }
        is_lost
    }
}

/// Threads that made changes.
#[derive(Debug, Default)]
struct Changers {
    known: BTreeSet<u32>,
    /// Whether there are others.
    has_unknown: bool,
}

impl Changers {
    fn add(&mut self, thread: u32, threads: &dyn Threads) {
        if self.known.len() >= THREADS_MAX && !self.known.contains(&thread) {
            self.known.retain(|known| threads.is_alive(*known));
            if self.known.len() > THREADS_MAX / 2 {
                self.known.clear();
                self.has_unknown = true;
            }
        }
        match thread {
            UNKNOWN => self.has_unknown = true,
            thread => drop(self.known.insert(thread)),
        }
    }

    /// Removes a thread, or else another one of its process. Returns whether there was one.
    fn take(&mut self, thread: u32, is_recent: bool, threads: &dyn Threads) -> bool {
        let is_known = self.known.remove(&thread);
        if is_known || !is_recent {
            return is_known;
        }
        let other = self.known.iter().find(|other| threads.are_together(thread, **other)).copied();
        other.is_some_and(|other| self.known.remove(&other))
    }
}

/// Changes of a file's contents and attributes, or of a directory's entries, and their fsyncs.
#[derive(Debug, Default)]
pub(crate) struct Durability {
    data: Changes,
    other: Changes,
    /// Threads that made changes since all were durable.
    changers: Changers,
    /// Number of times that changes may have been lost with a connection.
    losses: u64,
    last: Option<Loss>,
}

/// The last loss.
#[derive(Debug)]
struct Loss {
    /// Threads whose changes were lost, and that were not notified.
    changers: Changers,
    /// Processes that were notified.
    reported: BTreeSet<u32>,
    until: Instant,
}

impl Durability {
    /// Returns whether there are changes that may not be durable, or a loss to be reported.
    pub(crate) fn is_of_use(&self) -> bool {
        self.data.unsynced.is_some() || self.other.unsynced.is_some() || self.last.is_some()
    }

    /// Records an acknowledged change by a thread.
    pub(crate) fn changed(
        &mut self,
        kind: Kind,
        connection: u64,
        thread: u32,
        threads: &dyn Threads,
    ) {
        match kind {
            Kind::Data => self.data.add(connection),
            Kind::Other => self.other.add(connection),
        }
        self.changers.add(thread, threads);
    }

    /// Returns the numbers of acknowledged changes, at the beginning of an fsync.
    pub(crate) fn counts(&self) -> Counts {
        [self.data.count, self.other.count]
    }

    /// Records an fsync by this connection, which began after these numbers of changes, or with
    /// `data_only` an fdatasync.
    pub(crate) fn synced(
        &mut self,
        connection: u64,
        [data, other]: Counts,
        data_only: bool,
        now: Instant,
    ) {
        let is_data_lost = self.data.synced(connection, data, true);
        let is_other_lost = self.other.synced(connection, other, !data_only);
        if is_data_lost || is_other_lost {
            self.lost(now);
        } else if self.data.unsynced.is_none() && self.other.unsynced.is_none() {
            self.changers = Changers::default();
        }
    }

    /// Records a loss.
    pub(crate) fn lost(&mut self, now: Instant) {
        self.losses += 1;
        let mut changers = std::mem::take(&mut self.changers);
        if let Some(before) = self.last.take() {
            changers.has_unknown |= before.changers.has_unknown;
            let room = THREADS_MAX.saturating_sub(changers.known.len());
            changers.has_unknown |= before.changers.known.len() > room;
            changers.known.extend(before.changers.known.into_iter().take(room));
        }
        self.last = Some(Loss { changers, reported: BTreeSet::new(), until: now + REPORTED_FOR });
    }

    /// Returns the number of losses.
    pub(crate) fn losses(&self) -> u64 {
        self.losses
    }

    /// Records that the report did not reach a thread after all.
    pub(crate) fn unreported(&mut self, thread: u32) {
        if let Some(loss) = &mut self.last {
            loss.changers.known.insert(thread);
        }
    }

    /// Returns whether an fsync of a thread is to report a loss, and records that it is notified.
    /// Its open file has reported this number of losses, or was opened after them.
    pub(crate) fn tell(
        &mut self,
        seen: u64,
        thread: u32,
        now: Instant,
        threads: &dyn Threads,
    ) -> bool {
        let is_older = seen < self.losses;
        let Some(loss) = &mut self.last else { return is_older };
        let is_recent = now < loss.until;
        let is_changer = loss.changers.take(thread, is_recent, threads);
        let may_rely = is_recent || loss.changers.has_unknown;
        let is_new = may_rely && loss.reported.insert(threads.process(thread));
        if loss.reported.len() > THREADS_MAX {
            // From now on it is reported to those only that are known to have made changes.
            loss.until = now;
            loss.changers.has_unknown = false;
        }
        let may_be_reported = now < loss.until || loss.changers.has_unknown;
        if !may_be_reported && loss.changers.known.is_empty() {
            self.last = None;
        }
        is_older || is_changer || is_new
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "a start for the arithmetic")]
mod tests {
    use super::*;

    /// Ten threads in each process; those with odd numbers have ended.
    #[derive(Debug)]
    struct Ten;

    impl Threads for Ten {
        fn is_alive(&self, thread: u32) -> bool {
            thread.is_multiple_of(2)
        }

        fn are_together(&self, one: u32, other: u32) -> bool {
            one / 10 == other / 10
        }

        fn process(&self, thread: u32) -> u32 {
            thread / 10
        }
    }

    fn sync(it: &mut Durability, connection: u64, now: Instant) {
        it.synced(connection, it.counts(), false, now);
    }

    fn change(it: &mut Durability, connection: u64, thread: u32) {
        it.changed(Kind::Data, connection, thread, &Ten);
    }

    #[test]
    fn a_loss_is_reported_to_each_process_once() {
        let (mut it, now) = (Durability::default(), Instant::now());
        change(&mut it, 1, 10);
        change(&mut it, 1, 20);
        sync(&mut it, 1, now);
        assert!(!it.is_of_use() && !it.tell(0, 10, now, &Ten));
        change(&mut it, 1, 10);
        change(&mut it, 1, 20);
        sync(&mut it, 2, now);
        assert_eq!(it.losses(), 1);
        // The first has it open since before the loss.
        assert!(it.tell(0, 10, now, &Ten) && !it.tell(1, 10, now, &Ten));
        it.unreported(10);
        assert!(it.tell(1, 10, now, &Ten) && !it.tell(1, 10, now, &Ten));
        assert!(it.tell(1, 20, now, &Ten) && !it.tell(1, 20, now, &Ten));
        assert!(it.tell(1, 30, now, &Ten) && !it.tell(1, 30, now, &Ten));
        assert!(!it.tell(1, 40, now + REPORTED_FOR, &Ten));
        sync(&mut it, 2, now);
        assert_eq!(it.losses(), 1);
        assert!(it.tell(0, 30, now, &Ten), "an older open file");
    }

    #[test]
    fn a_thread_is_notified_of_each_change_of_others_of_its_process() {
        let (mut it, now) = (Durability::default(), Instant::now());
        change(&mut it, 1, 10);
        change(&mut it, 1, 11);
        sync(&mut it, 2, now);
        assert!(it.tell(1, 12, now, &Ten) && it.tell(1, 12, now, &Ten));
        assert!(!it.tell(1, 12, now, &Ten));
    }

    #[test]
    fn a_loss_is_reported_at_each_request_of_its_users() {
        let (mut it, now) = (Durability::default(), Instant::now());
        change(&mut it, 1, 10);
        sync(&mut it, 2, now);
        change(&mut it, 2, 11);
        sync(&mut it, 3, now);
        let late = now + 2 * REPORTED_FOR;
        assert!(!it.tell(2, 12, late, &Ten));
        assert!(it.tell(2, 10, late, &Ten) && it.tell(2, 11, late, &Ten));
        assert!(!it.tell(2, 10, late, &Ten) && !it.tell(2, 11, late, &Ten));
        assert!(!it.is_of_use());
    }

    #[test]
    fn after_changes_by_unknown_threads_all_are_reported() {
        let (mut it, now) = (Durability::default(), Instant::now());
        change(&mut it, 1, UNKNOWN);
        sync(&mut it, 2, now);
        let late = now + 2 * REPORTED_FOR;
        assert!(it.tell(1, 10, late, &Ten) && !it.tell(1, 10, late, &Ten));
        assert!(it.tell(1, 20, late, &Ten));
    }

    #[test]
    fn threads_are_found_in_proc() {
        let own = std::process::id();
        let other = std::thread::spawn(|| rustix::thread::gettid().as_raw_nonzero().get());
        let ended = other.join().expect("it does not panic").cast_unsigned();
        assert!(Proc.is_alive(own) && Proc.are_together(own, own));
        assert!(!Proc.is_alive(u32::MAX) && !Proc.are_together(own, u32::MAX));
        assert_eq!((Proc.process(own), Proc.process(u32::MAX)), (own, u32::MAX));
        assert_ne!(ended, own);
    }

    #[test]
    fn a_change_during_an_fsync_is_not_covered_by_it() {
        let (mut it, now) = (Durability::default(), Instant::now());
        change(&mut it, 1, 10);
        let counts = it.counts();
        change(&mut it, 1, 10);
        it.synced(1, counts, false, now);
        let counts = it.counts();
        change(&mut it, 2, 10);
        it.synced(2, counts, false, now);
        assert_eq!(it.losses(), 1);
        sync(&mut it, 3, now);
        assert_eq!(it.losses(), 2);
    }

    #[test]
    fn a_change_that_is_recorded_late_is_of_its_own_connection() {
        let (mut it, now) = (Durability::default(), Instant::now());
        change(&mut it, 2, 10);
        change(&mut it, 1, 20);
        sync(&mut it, 2, now);
        assert_eq!(it.losses(), 1);
    }

    #[test]
    fn a_loss_of_the_server_is_reported_to_those_that_made_changes() {
        let (mut it, now) = (Durability::default(), Instant::now());
        change(&mut it, 1, 10);
        change(&mut it, 1, 20);
        it.lost(now);
        assert!(it.tell(0, 10, now, &Ten), "the one whose fsync has failed");
        sync(&mut it, 1, now);
        assert!(!it.tell(1, 10, now, &Ten));
        assert!(it.tell(1, 20, now + REPORTED_FOR, &Ten));
    }

    #[test]
    fn attributes_are_not_made_durable_with_data() {
        let (mut it, now) = (Durability::default(), Instant::now());
        it.changed(Kind::Other, 1, 10, &Ten);
        it.synced(1, it.counts(), true, now);
        sync(&mut it, 2, now);
        assert_eq!(it.losses(), 1);
        it.changed(Kind::Data, 2, 10, &Ten);
        it.synced(2, it.counts(), true, now);
        sync(&mut it, 3, now);
        assert_eq!(it.losses(), 1);
    }

    #[test]
    fn threads_that_have_ended_need_no_place() {
        let (mut it, now) = (Durability::default(), Instant::now());
        let odd = || (0..2 * THREADS_MAX as u32).map(|number| 2 * number + 1);
        odd().for_each(|thread| change(&mut it, 1, thread));
        change(&mut it, 1, 10);
        sync(&mut it, 2, now);
        let late = now + REPORTED_FOR;
        assert!(!it.tell(1, 20, late, &Ten) && it.tell(1, 10, late, &Ten));
        // Others are unknown.
        let even = (0..2 * THREADS_MAX as u32).map(|number| 2 * number);
        even.clone().for_each(|thread| change(&mut it, 2, thread));
        sync(&mut it, 3, now);
        let mut one_of_each = even.filter(|thread| thread.is_multiple_of(10));
        assert!(one_of_each.all(|thread| it.tell(2, thread, late, &Ten)));
    }
}
