//! SIGINT and SIGTERM as events.
#![allow(unsafe_code)]

use rustix::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::io;
use std::mem::MaybeUninit;

/// Blocks SIGINT and SIGTERM, in this thread and those it starts, so that they do not end the
/// process.
///
/// To be called first in `main`, before there is any other thread: a signal goes to any thread that
/// does not block it. SIGPIPE is ignored as well; a broken connection is an error of the
/// operation that finds it.
pub fn hold_signals() {
    let set = stop_set();
    // SAFETY: the set is initialised, and the old mask is not requested. Ignoring a signal has no
    // handler that could run.
    unsafe {
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
        libc::signal(libc::SIGPIPE, libc::SIG_IGN);
    }
}

/// Unblocks SIGINT and SIGTERM, so that they end the process.
pub fn let_signals_through() {
    let set = stop_set();
    // SAFETY: the set is initialised, and the old mask is not requested.
    unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut()) };
}

fn stop_set() -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset initialises the set before any other use.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGINT);
        libc::sigaddset(set.as_mut_ptr(), libc::SIGTERM);
        set.assume_init()
    }
}

/// Receiver of blocked signals; also for straight-line code that polls for its termination.
#[derive(Debug)]
pub struct Signals {
    fd: OwnedFd,
}

impl Signals {
    /// Blocks signals, like [`hold_signals`], and receives them.
    ///
    /// # Errors
    /// Those of `signalfd(2)`.
    pub fn new() -> io::Result<Signals> {
        hold_signals();
        let set = stop_set();
        let flags = libc::SFD_NONBLOCK | libc::SFD_CLOEXEC;
        // SAFETY: the set is initialised; -1 requests a new descriptor.
        let raw = unsafe { libc::signalfd(-1, &raw const set, flags) };
        if raw < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new, so nobody else owns it.
        Ok(Signals { fd: unsafe { OwnedFd::from_raw_fd(raw) } })
    }

    /// Returns a descriptor that is readable when a signal has arrived.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Returns the number of signals since the last call; does not block.
    pub fn take(&self) -> usize {
        let mut bytes = [0; 8 * size_of::<libc::signalfd_siginfo>()];
        match rustix::io::read(&self.fd, &mut bytes) {
            Ok(n) => n / size_of::<libc::signalfd_siginfo>(),
            Err(_) => 0,
        }
    }
}
