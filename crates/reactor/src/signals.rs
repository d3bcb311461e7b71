//! SIGINT and SIGTERM as events.
#![allow(unsafe_code)]

use rustix::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::io;
use std::mem::MaybeUninit;

/// Keeps SIGINT and SIGTERM from ending the process, in this thread and those it starts.
///
/// To be called first in `main`, before there is any other thread: a signal goes to whichever
/// thread does not hold it. SIGPIPE is ignored as well; a broken connection is an error of the
/// operation that notices.
pub fn hold_signals() {
    let set = stop_set();
    // SAFETY: the set is initialised, and the old mask is not asked for. Ignoring a signal has
    // no handler that could run.
    unsafe {
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
        libc::signal(libc::SIGPIPE, libc::SIG_IGN);
    }
}

/// Lets SIGINT and SIGTERM end the process (again).
pub fn let_signals_through() {
    let set = stop_set();
    // SAFETY: the set is initialised, and the old mask is not asked for.
    unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut()) };
}

fn stop_set() -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset initialises the set before anything else looks at it.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGINT);
        libc::sigaddset(set.as_mut_ptr(), libc::SIGTERM);
        set.assume_init()
    }
}

/// Where held signals arrive; for straight-line code that looks now and then whether it should
/// end.
#[derive(Debug)]
pub struct Signals {
    fd: OwnedFd,
}

impl Signals {
    /// Holds signals, as [`hold_signals`], and listens for them.
    ///
    /// # Errors
    /// Those of `signalfd(2)`.
    pub fn new() -> io::Result<Signals> {
        hold_signals();
        let set = stop_set();
        let flags = libc::SFD_NONBLOCK | libc::SFD_CLOEXEC;
        // SAFETY: the set is initialised; -1 asks for a new descriptor.
        let raw = unsafe { libc::signalfd(-1, &raw const set, flags) };
        if raw < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new, so nobody else owns it.
        Ok(Signals { fd: unsafe { OwnedFd::from_raw_fd(raw) } })
    }

    /// Readable when a signal came.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// How many signals came since the last look; does not wait.
    pub fn take(&self) -> usize {
        let mut bytes = [0; 8 * size_of::<libc::signalfd_siginfo>()];
        match rustix::io::read(&self.fd, &mut bytes) {
            Ok(n) => n / size_of::<libc::signalfd_siginfo>(),
            Err(_) => 0,
        }
    }
}
