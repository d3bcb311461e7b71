//! The submission and completion queues.
#![allow(unsafe_code)]

use crate::sending::{BATCH_BYTES, BULK_MIN};
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use std::collections::VecDeque;
use std::io;
use std::time::Duration;

/// Maximum number of operations submitted by one call.
const SUBMISSIONS: u32 = 512;

/// Size of the completion queue, beyond which the kernel sets completions aside.
const COMPLETIONS: u32 = 8192;

/// Name of operations whose completion is ignored.
pub(crate) const IGNORED: u64 = u64::MAX;

/// `IORING_ENTER_GETEVENTS`: run the kernel's pending work now.
const GET_EVENTS: u32 = 1;

/// Pause before the next attempt when the kernel has no memory for another operation.
const PAUSE: Duration = Duration::from_millis(1);

/// An io_uring.
pub(crate) struct Ring {
    ring: IoUring,
    /// Entries that did not fit into the submission queue, in order.
    backlog: VecDeque<squeue::Entry>,
    bulk: Bulk<squeue::Entry>,
    /// Number of calls of the kernel.
    calls: u64,
}

impl Ring {
    /// Returns a ring for the current thread.
    pub(crate) fn new() -> io::Result<Ring> {
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .setup_submit_all()
            .setup_cqsize(COMPLETIONS)
            .dontfork()
            .build(SUBMISSIONS)?;
        Ok(Ring { ring, backlog: VecDeque::new(), bulk: Bulk::default(), calls: 0 })
    }

    /// Returns the submitter, for registrations.
    pub(crate) fn submitter(&self) -> io_uring::Submitter<'_> {
        self.ring.submitter()
    }

    /// Returns the parameters with the kernel's features.
    pub(crate) fn parameters(&self) -> &io_uring::Parameters {
        self.ring.params()
    }

    /// Queues an operation. The memory that it points to must live until its completion.
    pub(crate) fn push(&mut self, entry: &squeue::Entry) {
        if !self.backlog.is_empty() || !self.try_push(entry) {
            self.backlog.push_back(entry.clone());
        }
    }

    /// Queues an operation with this name and size in bytes, for the next call or for a later one.
    pub(crate) fn push_bulk(&mut self, name: u64, entry: squeue::Entry, bytes: usize) {
        if let Some(entry) = self.bulk.admit(name, entry, bytes) {
            self.push(&entry);
        }
    }

    /// Removes an operation that waits for a later call; returns whether it did.
    pub(crate) fn take_back(&mut self, name: u64) -> bool {
        self.bulk.take_back(name)
    }

    /// Removes all operations that wait for later calls; returns their names.
    pub(crate) fn take_back_all(&mut self) -> Vec<u64> {
        self.bulk.waiting.drain(..).map(|(name, _, _)| name).collect()
    }

    /// Returns whether any operation waits for a call after the next one.
    pub(crate) fn any_bulk(&self) -> bool {
        !self.bulk.waiting.is_empty()
    }

    /// Submits everything, also operations for later calls; returns whether the kernel accepted all
    /// of it.
    pub(crate) fn flush(&mut self) -> bool {
        loop {
            let before = self.count_queued();
            if before == 0 {
                return true;
            }
            self.enter(0, None);
            if self.count_queued() >= before {
                return false;
            }
        }
    }

    fn count_queued(&mut self) -> usize {
        self.ring.submission().len() + self.backlog.len() + self.bulk.waiting.len()
    }

    /// After a call: queues operations for the next one, if the kernel accepted all of this one.
    fn move_bulk(&mut self) {
        if !self.backlog.is_empty() || !self.ring.submission().is_empty() {
            return;
        }
        for entry in self.bulk.next() {
            self.push(&entry);
        }
    }

    fn try_push(&mut self, entry: &squeue::Entry) -> bool {
        // SAFETY: all memory that the entry points to belongs to a slot (or is static), and slots
        // are kept until the completion.
        unsafe { self.ring.submission().push(entry) }.is_ok()
    }

    fn move_backlog(&mut self) {
        while let Some(entry) = self.backlog.pop_front() {
            if !self.try_push(&entry) {
                self.backlog.push_front(entry);
                return;
            }
        }
    }

    /// Submits all queued operations, and waits for `want` completions, at most for `timeout`.
    pub(crate) fn enter(&mut self, want: usize, timeout: Option<Duration>) {
        self.move_backlog();
        while !self.backlog.is_empty() {
            if !self.call(0, None) {
                return;
            }
            self.move_backlog();
        }
        self.call(want, timeout);
        self.move_bulk();
    }

    /// Enters the kernel; returns whether it accepted everything.
    fn call(&mut self, want: usize, timeout: Option<Duration>) -> bool {
        self.calls += 1;
        let count = u32::try_from(self.ring.submission().len()).expect("at most SUBMISSIONS");
        let submitter = self.ring.submitter();
        let result = match timeout {
            Some(timeout) if want > 0 => {
                let time = types::Timespec::from(timeout);
                submitter.submit_with_args(want, &types::SubmitArgs::new().timespec(&time))
            }
            _ if want > 0 => submitter.submit_and_wait(want),
            // SAFETY: no argument is passed, and `count` entries are in the queue.
            _ => unsafe { submitter.enter::<libc::sigset_t>(count, 0, GET_EVENTS, None) },
        };
        match result {
            Ok(submitted) => submitted >= count as usize,
            Err(error) => {
                self.excuse(&error);
                false
            }
        }
    }

    /// Handles a failed call. The timeout passed, a signal arrived, or completions must be taken
    /// first: the caller's next turn does all of it. Out of memory: pauses before the next attempt.
    fn excuse(&self, error: &io::Error) {
        match error.raw_os_error() {
            Some(libc::ETIME | libc::EINTR | libc::EBUSY) => {}
            #[allow(clippy::disallowed_methods, reason = "the node's thread has nothing to do")]
            _ => std::thread::sleep(PAUSE),
        }
    }

    /// Returns the number of calls of the kernel.
    pub(crate) fn calls(&self) -> u64 {
        self.calls
    }

    /// Returns whether a completion can be taken without entering the kernel.
    pub(crate) fn any_completion(&mut self) -> bool {
        !self.ring.completion().is_empty()
    }

    /// Returns whether a completion can be taken, perhaps after entering the kernel: its flag for
    /// pending work is set after the work was queued, which may be done by then, and is reset by
    /// the next call that finds work.
    pub(crate) fn any_work(&mut self) -> bool {
        if self.any_completion() {
            return true;
        }
        let submission = self.ring.submission();
        // Overflowed completions are returned when the kernel is entered.
        submission.taskrun() || submission.cq_overflow()
    }

    /// Returns whether a completion can be taken, after entering the kernel if it may have some.
    pub(crate) fn look(&mut self) -> bool {
        if !self.any_completion() && self.any_work() {
            self.enter(0, None);
        }
        self.any_completion()
    }

    /// Returns whether any operation waits for submission.
    pub(crate) fn any_queued(&mut self) -> bool {
        let waits = !self.backlog.is_empty() || !self.ring.submission().is_empty();
        assert!(waits || !self.any_bulk(), "one of those that wait has room in the next call");
        waits
    }

    /// Takes up to `max` completions.
    pub(crate) fn take(&mut self, into: &mut Vec<cqueue::Entry>, max: usize) {
        into.extend(self.ring.completion().take(max));
    }
}

/// Divides large writes and receives, and sends that had to wait for room, among calls. The kernel
/// copies within the call as much as it can, and everyone else waits meanwhile. Reads of files and
/// other sends are not divided: with 64 clients the calls cost more than the copies (15 to 30 % of
/// processor time). Nor is data that arrives for a waiting receive: the kernel copies it on
/// arrival.
#[derive(Debug)]
struct Bulk<T> {
    /// Number of bytes that the operations of the next call may transfer.
    batch: usize,
    /// Operations for later calls: name, entry and size in bytes, in order.
    waiting: VecDeque<(u64, T, usize)>,
}

impl<T> Default for Bulk<T> {
    fn default() -> Bulk<T> {
        Bulk { batch: 0, waiting: VecDeque::new() }
    }
}

impl<T> Bulk<T> {
    fn has_room(&self, bytes: usize) -> bool {
        self.batch == 0 || self.batch.saturating_add(bytes) <= BATCH_BYTES
    }

    /// Returns an operation that fits the next call; keeps others.
    fn admit(&mut self, name: u64, entry: T, bytes: usize) -> Option<T> {
        if bytes >= BULK_MIN && (!self.waiting.is_empty() || !self.has_room(bytes)) {
            self.waiting.push_back((name, entry, bytes));
            return None;
        }
        self.batch = self.batch.saturating_add(bytes);
        Some(entry)
    }

    /// Returns the operations that fit a new call.
    fn next(&mut self) -> Vec<T> {
        self.batch = 0;
        let mut entries = Vec::new();
        while let Some((name, entry, bytes)) = self.waiting.pop_front() {
            if !self.has_room(bytes) {
                self.waiting.push_front((name, entry, bytes));
                break;
            }
            self.batch = self.batch.saturating_add(bytes);
            entries.push(entry);
        }
        entries
    }

    fn take_back(&mut self, name: u64) -> bool {
        let place = self.waiting.iter().position(|(waiting, _, _)| *waiting == name);
        place.is_some_and(|at| self.waiting.remove(at).is_some())
    }
}

/// Returns the operation that cancels everything in flight.
pub(crate) fn cancel_all() -> squeue::Entry {
    opcode::AsyncCancel2::new(types::CancelBuilder::any()).build().user_data(IGNORED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_operations_are_divided_among_calls_in_order() {
        let mut bulk = Bulk::default();
        // A single one always fits, however large; small ones never wait.
        assert_eq!(bulk.admit(1, "first", 1 << 20), Some("first"));
        assert_eq!(bulk.admit(2, "second", 200 << 10), None);
        assert_eq!(bulk.admit(3, "small", BULK_MIN - 1), Some("small"));
        assert_eq!(bulk.admit(4, "third", 40 << 10), None);
        assert_eq!(bulk.admit(5, "fourth", 40 << 10), None);
        assert_eq!(bulk.next(), ["second", "third"]);
        // Nothing overtakes those that wait.
        assert_eq!(bulk.admit(6, "fifth", BULK_MIN), None);
        assert_eq!(bulk.next(), ["fourth", "fifth"]);
        assert_eq!(bulk.next(), [""; 0]);
        assert_eq!(bulk.admit(7, "sixth", 1 << 20), Some("sixth"));
    }

    #[test]
    fn an_entry_not_yet_submitted_can_be_withdrawn() {
        let mut bulk = Bulk::default();
        for name in 1..=4 {
            let admitted = bulk.admit(name, name, BATCH_BYTES);
            assert_eq!(admitted.is_some(), name == 1);
        }
        assert!(bulk.take_back(3) && !bulk.take_back(3) && !bulk.take_back(1));
        assert_eq!((bulk.next(), bulk.next(), bulk.next()), (vec![2], vec![4], vec![]));
    }
}
