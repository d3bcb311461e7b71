//! Control over the calling thread: processors, priority, precision of sleeps.
#![allow(unsafe_code)]

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity, set_current_timer_slack};
use std::io;
use std::num::NonZeroU64;
use std::time::Duration;

/// Priority of all real-time threads of this program: above ordinary threads, below the kernel's
/// own.
const REAL_TIME: i32 = 50;

/// Scheduling class of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// Ordinary (`SCHED_OTHER`).
    Ordinary,
    /// Ahead of all ordinary threads (`SCHED_FIFO`). It must sleep 7 % of each millisecond, or the
    /// kernel suspends it for 50 ms of each second.
    RealTime,
}

/// Sets the calling thread's priority.
///
/// # Errors
/// `PermissionDenied` for real time, unless the process is root or may raise it (`ulimit -r`).
pub fn set_priority(priority: Priority) -> io::Result<()> {
    let (policy, level) = match priority {
        Priority::Ordinary => (libc::SCHED_OTHER, 0),
        // The kernel's threads for its rings would have the same priority, and never run.
        Priority::RealTime => (libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, REAL_TIME),
    };
    // The kernel's `sched_param`, which has one field. The function of musl always fails.
    let parameters: [libc::c_int; 1] = [level];
    let (call, own) = (libc::SYS_sched_setscheduler, 0);
    // SAFETY: the parameters live during the call, which only reads them.
    match unsafe { libc::syscall(call, own, policy, parameters.as_ptr()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns the processors that this thread may use, ascending.
pub fn processors() -> Vec<usize> {
    processors_of(None)
}

/// Returns the processors that another thread may use, ascending.
pub(super) fn processors_of(thread: Option<Pid>) -> Vec<usize> {
    let Ok(set) = sched_getaffinity(thread) else {
        return vec![0];
    };
    (0..CpuSet::MAX_CPU.min(1024)).filter(|cpu| set.is_set(*cpu)).collect()
}

/// Pins the calling thread to these processors.
///
/// # Errors
/// `InvalidInput` if none of them exists.
pub fn pin(cpus: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    cpus.iter().for_each(|cpu| set.set(*cpu));
    Ok(sched_setaffinity(None, &set)?)
}

/// Lets the calling thread run on all processors of the process's first thread; a new thread
/// inherits the pinning of its creator.
///
/// # Errors
/// If the kernel refuses.
pub fn unpin() -> io::Result<()> {
    pin(&processors_of(Some(rustix::process::getpid())))
}

/// Sets precise timers for sleeps of the calling thread: by default the kernel adds up to 50 us.
pub fn set_fine_timers() {
    // If the kernel does not support it, sleeps are longer, which is measured.
    let _ = set_current_timer_slack(NonZeroU64::new(1));
}

/// Sleeps for at least this time.
pub fn sleep(span: Duration) {
    crate::clock::pause(span);
}

/// Sleeps in `select(2)` without any file, rounded down to microseconds, like programs that needed
/// finer sleeps than `sleep(3)`. A signal ends it early.
pub fn select(span: Duration) {
    let mut left = libc::timeval {
        tv_sec: i64::try_from(span.as_secs()).unwrap_or(i64::MAX),
        tv_usec: i64::from(span.subsec_micros()),
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
