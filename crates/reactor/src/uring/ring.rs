//! The submission and completion queues.
#![allow(unsafe_code)]

use io_uring::{IoUring, cqueue, opcode, squeue, types};
use std::collections::VecDeque;
use std::io;
use std::time::Duration;

/// Operations handed over with one call.
const SUBMISSIONS: u32 = 512;

/// Completions that wait to be taken, before the kernel has to keep them aside.
const COMPLETIONS: u32 = 8192;

/// Bytes that operations handed over with one call may move at most, those of the first one apart.
/// The kernel moves what it can at once, within the call, and everybody else waits meanwhile.
const BATCH_BYTES: usize = 256 << 10;

/// Operations of fewer bytes do not wait.
const BULK_MIN: usize = 32 << 10;

/// The name of operations whose completion says nothing.
pub(crate) const IGNORED: u64 = u64::MAX;

/// `IORING_ENTER_GETEVENTS`: do the kernel's part of the work now.
const GET_EVENTS: u32 = 1;

/// How long to leave the kernel alone when it has no memory for another operation.
const PAUSE: Duration = Duration::from_millis(1);

/// One io_uring.
pub(crate) struct Ring {
    ring: IoUring,
    /// What did not fit into the submission queue, in order.
    backlog: VecDeque<squeue::Entry>,
    /// Bytes that what is queued for the next call may move.
    batch: usize,
    /// What moves too much for the next call, with its bytes, in order.
    bulk: VecDeque<(squeue::Entry, usize)>,
}

impl Ring {
    /// A ring for the current thread.
    pub(crate) fn new() -> io::Result<Ring> {
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .setup_submit_all()
            .setup_cqsize(COMPLETIONS)
            .dontfork()
            .build(SUBMISSIONS)?;
        Ok(Ring { ring, backlog: VecDeque::new(), batch: 0, bulk: VecDeque::new() })
    }

    /// The ring itself, for registering things.
    pub(crate) fn submitter(&self) -> io_uring::Submitter<'_> {
        self.ring.submitter()
    }

    /// Features, as the kernel says.
    pub(crate) fn parameters(&self) -> &io_uring::Parameters {
        self.ring.params()
    }

    /// Queues an operation. Whatever it points to must live until its completion.
    pub(crate) fn push(&mut self, entry: &squeue::Entry) {
        if !self.backlog.is_empty() || !self.try_push(entry) {
            self.backlog.push_back(entry.clone());
        }
    }

    /// Queues an operation that moves so many bytes: for the next call or for a later one.
    pub(crate) fn push_bulk(&mut self, entry: squeue::Entry, bytes: usize) {
        if bytes >= BULK_MIN && (!self.bulk.is_empty() || !self.has_room(bytes)) {
            return self.bulk.push_back((entry, bytes));
        }
        self.batch = self.batch.saturating_add(bytes);
        self.push(&entry);
    }

    /// Queues an operation that refers to another one: behind it.
    pub(crate) fn push_behind(&mut self, entry: squeue::Entry) {
        match self.bulk.is_empty() {
            true => self.push(&entry),
            false => self.bulk.push_back((entry, 0)),
        }
    }

    fn has_room(&self, bytes: usize) -> bool {
        self.batch == 0 || self.batch.saturating_add(bytes) <= BATCH_BYTES
    }

    /// The last call is over: what has room in the next one.
    fn move_bulk(&mut self) {
        self.batch = 0;
        while let Some((entry, bytes)) = self.bulk.pop_front() {
            if !self.has_room(bytes) {
                return self.bulk.push_front((entry, bytes));
            }
            self.batch = self.batch.saturating_add(bytes);
            self.push(&entry);
        }
    }

    /// Whether anything waits for a call after the next one.
    pub(crate) fn any_bulk(&self) -> bool {
        !self.bulk.is_empty()
    }

    fn try_push(&mut self, entry: &squeue::Entry) -> bool {
        // SAFETY: all memory that the entry points to belongs to a slot (or is static), and
        // slots are kept until the completion has come.
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

    /// Hands over all that is queued, and waits for `want` completions, at most for `timeout`.
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

    /// Whether the kernel took everything.
    fn call(&mut self, want: usize, timeout: Option<Duration>) -> bool {
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

    /// The time passed, a signal came, or completions must be taken first: the caller's next
    /// turn does it all. No memory for now: not at once again.
    fn excuse(&self, error: &io::Error) {
        match error.raw_os_error() {
            Some(libc::ETIME | libc::EINTR | libc::EBUSY) => {}
            #[allow(clippy::disallowed_methods, reason = "the node's thread has nothing to do")]
            _ => std::thread::sleep(PAUSE),
        }
    }

    /// Whether a completion can be taken without asking the kernel.
    pub(crate) fn any_completion(&mut self) -> bool {
        !self.ring.completion().is_empty()
    }

    /// Whether a completion can be taken, or could be if the kernel were asked.
    pub(crate) fn any_work(&mut self) -> bool {
        if self.any_completion() {
            return true;
        }
        let submission = self.ring.submission();
        // What overflowed the queue of completions comes when the kernel is entered.
        submission.taskrun() || submission.cq_overflow()
    }

    /// Whether anything waits to be handed over.
    pub(crate) fn any_queued(&mut self) -> bool {
        let waits = !self.backlog.is_empty() || !self.ring.submission().is_empty();
        assert!(waits || self.bulk.is_empty(), "one of those that wait has room in the next call");
        waits
    }

    /// Takes up to `max` completions.
    pub(crate) fn take(&mut self, into: &mut Vec<cqueue::Entry>, max: usize) {
        into.extend(self.ring.completion().take(max));
    }
}

/// Ends everything that is under way.
pub(crate) fn cancel_all() -> squeue::Entry {
    opcode::AsyncCancel2::new(types::CancelBuilder::any()).build().user_data(IGNORED)
}
