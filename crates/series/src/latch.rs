//! One-shot latch that wakes all parts of a service.

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// One-shot latch.
#[derive(Debug)]
pub(crate) struct Latch {
    event: OwnedFd,
    rung: AtomicBool,
}

impl Latch {
    /// Creates an unset latch.
    pub(crate) fn new() -> io::Result<Latch> {
        Ok(Latch { event: eventfd(0, EventfdFlags::CLOEXEC)?, rung: AtomicBool::new(false) })
    }

    /// Sets the latch and wakes all waiting threads.
    pub(crate) fn ring(&self) -> io::Result<()> {
        self.rung.store(true, Ordering::Release);
        rustix::io::write(&self.event, &1_u64.to_ne_bytes())?;
        Ok(())
    }

    /// Reports whether the latch is set.
    pub(crate) fn has_rung(&self) -> bool {
        self.rung.load(Ordering::Acquire)
    }

    /// Sleeps until a time, or until the latch is set.
    pub(crate) fn sleep(&self, until: Instant) {
        while !self.has_rung() && Instant::now() < until {
            let mut arrived = [PollFd::new(&self.event, PollFlags::IN)];
            // The loop checks the condition again, interrupted or not.
            let _ = poll(&mut arrived, Some(&timeout(Some(until))));
        }
    }
}

impl AsFd for Latch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

/// Returns the poll timeout for a deadline, at most one second.
pub(crate) fn timeout(until: Option<Instant>) -> Timespec {
    const LONGEST: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
    let left = until.map(|until| until.saturating_duration_since(Instant::now()));
    let left = left.and_then(|left| Timespec::try_from(left).ok());
    left.filter(|left| left.tv_sec < 1).unwrap_or(LONGEST)
}
