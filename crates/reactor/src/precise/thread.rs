//! Control over the calling thread: where it runs, how urgent it is, how precisely it sleeps.
#![allow(unsafe_code)]

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity, set_current_timer_slack};
use std::io;
use std::num::NonZeroU64;
use std::time::Duration;

/// The priority of all real-time threads here: above threads that did not ask for one, below the
/// kernel's own.
const REAL_TIME: i32 = 50;

/// How urgent a thread is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// As any other (`SCHED_OTHER`).
    Ordinary,
    /// Before all that are ordinary (`SCHED_FIFO`). It must sleep 7 % of each millisecond, or the
    /// kernel takes 50 ms of each second from it.
    RealTime,
}

/// Sets the calling thread's priority.
///
/// # Errors
/// `PermissionDenied` for real time, unless the process is root or may raise it (`ulimit -r`).
pub fn set_priority(priority: Priority) -> io::Result<()> {
    let (policy, level) = match priority {
        Priority::Ordinary => (libc::SCHED_OTHER, 0),
        // Threads that the kernel makes for its rings would be as urgent, and never run.
        Priority::RealTime => (libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, REAL_TIME),
    };
    let parameters = libc::sched_param { sched_priority: level };
    // SAFETY: the structure lives during the call, which only reads it.
    match unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The processors that this thread may use, ascending.
pub fn processors() -> Vec<usize> {
    processors_of(None)
}

/// Those that another thread may use, ascending.
pub(super) fn processors_of(thread: Option<Pid>) -> Vec<usize> {
    let Ok(set) = sched_getaffinity(thread) else {
        return vec![0];
    };
    (0..CpuSet::MAX_CPU.min(1024)).filter(|cpu| set.is_set(*cpu)).collect()
}

/// Keeps the calling thread on these processors.
///
/// # Errors
/// `InvalidInput` if there is none of them.
pub fn pin(cpus: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    cpus.iter().for_each(|cpu| set.set(*cpu));
    Ok(sched_setaffinity(None, &set)?)
}

/// Lets the calling thread run wherever the process's first thread may; a new thread stays where
/// the one that started it is kept.
///
/// # Errors
/// If the kernel refuses.
pub fn unpin() -> io::Result<()> {
    pin(&processors_of(Some(rustix::process::getpid())))
}

/// Lets the calling thread's sleeps end when they should: by default the kernel adds up to 50 us.
pub fn set_fine_timers() {
    // If the kernel does not know it, sleeps are longer, which is measured.
    let _ = set_current_timer_slack(NonZeroU64::new(1));
}

/// Sleeps so long; as long as the kernel lets it, at least.
pub fn sleep(span: Duration) {
    crate::clock::pause(span);
}

/// The same in `select(2)` without any file, to the microsecond below, as programs did that wanted
/// finer sleeps than `sleep(3)` has. A signal ends it early.
pub fn select(span: Duration) {
    let mut left = libc::timeval {
        tv_sec: libc::time_t::try_from(span.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_usec: libc::suseconds_t::from(span.subsec_micros().cast_signed()),
    };
    let none = std::ptr::null_mut();
    // SAFETY: there are no sets of files, and the time lives during the call.
    unsafe { libc::select(0, none, none, none, &raw mut left) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_stays_where_it_is_put() {
        let before = processors();
        assert!(!before.is_empty());
        pin(&before[..1]).expect("it may run there");
        assert_eq!(processors(), before[..1]);
        pin(&before).expect("it may run there");
        assert_eq!(processors(), before);
    }

    #[test]
    fn ordinary_priority_is_for_everybody() {
        std::thread::scope(|scope| {
            let set = scope.spawn(|| set_priority(Priority::Ordinary));
            assert!(set.join().expect("it does not panic").is_ok());
        });
    }
}
