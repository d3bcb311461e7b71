//! Tells all parts of a service at once that something is over.

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Rings once.
#[derive(Debug)]
pub(crate) struct Bell {
    event: OwnedFd,
    rung: AtomicBool,
}

impl Bell {
    /// One that is silent.
    pub(crate) fn new() -> io::Result<Bell> {
        Ok(Bell { event: eventfd(0, EventfdFlags::CLOEXEC)?, rung: AtomicBool::new(false) })
    }

    /// Wakes all who wait.
    pub(crate) fn ring(&self) -> io::Result<()> {
        self.rung.store(true, Ordering::Release);
        rustix::io::write(&self.event, &1_u64.to_ne_bytes())?;
        Ok(())
    }

    /// Whether it has rung.
    pub(crate) fn has_rung(&self) -> bool {
        self.rung.load(Ordering::Acquire)
    }

    /// Sleeps until then, or until it rings.
    pub(crate) fn sleep(&self, until: Instant) {
        while !self.has_rung() && Instant::now() < until {
            let mut heard = [PollFd::new(&self.event, PollFlags::IN)];
            // Interrupted or not: the loop looks again.
            let _ = poll(&mut heard, Some(&patience(Some(until))));
        }
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

/// How long to wait at most, to be there at this time; at longest a second.
pub(crate) fn patience(until: Option<Instant>) -> Timespec {
    const LONGEST: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
    let left = until.map(|until| until.saturating_duration_since(Instant::now()));
    let left = left.and_then(|left| Timespec::try_from(left).ok());
    left.filter(|left| left.tv_sec < 1).unwrap_or(LONGEST)
}
