//! Scheduling of a thread, beside others on the same processor.
#![allow(unsafe_code)]

use std::io;

/// Raises the niceness of this thread, so that others run first (sched(7); at most 19).
///
/// # Errors
/// If the kernel refuses, which it does not: everyone may raise it.
pub fn stand_back(niceness: i32) -> io::Result<()> {
    // No process means this thread.
    Ok(rustix::process::setpriority_process(None, niceness)?)
}

/// Time slice of a thread that answers clients, ns; the minimum in Linux.
const SLICE: u64 = 100_000;

/// `struct sched_attr` (sched_setattr(2)), its first version.
#[repr(C)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// Requests short time slices: this thread runs soon after a wake-up, even where others compute,
/// and no longer than its share. It is effective since Linux 6.12. Threads started by this one have
/// default slices.
///
/// # Errors
/// If the kernel refuses, as a system call filter may: clients wait a little longer then.
pub fn take_short_slices() -> io::Result<()> {
    // SAFETY: takes a number and returns one.
    if unsafe { libc::sched_getscheduler(0) } != libc::SCHED_OTHER {
        // The policy was chosen by whoever started the server.
        return Ok(());
    }
    let size = size_of::<Attributes>();
    let attributes = Attributes {
        size: size as u32,
        policy: libc::SCHED_OTHER as u32,
        flags: libc::SCHED_FLAG_RESET_ON_FORK as u64,
        nice: rustix::process::getpriority_process(None)?,
        priority: 0,
        runtime: SLICE,
        deadline: 0,
        period: 0,
    };
    // SAFETY: the kernel reads `size` bytes, which live across the call.
    match unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "threads of tests")]
mod tests {
    use super::*;

    #[test]
    fn short_slices_are_not_inherited() {
        // On a thread of its own, because the setting persists.
        let slices = std::thread::spawn(|| {
            take_short_slices().expect("an ordinary thread may");
            let child = std::thread::spawn(flags).join().expect("no panic");
            (flags(), child)
        });
        let reset = libc::SCHED_FLAG_RESET_ON_FORK as u64;
        assert_eq!(slices.join().expect("no panic"), (reset, 0));
    }

    fn flags() -> u64 {
        let mut attributes = [0u64; 6];
        // SAFETY: the kernel writes `size` bytes.
        let requested =
            unsafe { libc::syscall(libc::SYS_sched_getattr, 0, attributes.as_mut_ptr(), 48, 0) };
        assert_eq!(requested, 0);
        attributes[1]
    }
}
