//! Availability of io_uring, described for people.

use crate::uring::ring::Ring;
use io_uring::{Probe, opcode};
use std::fs;
use std::io;

/// Oldest kernel with all features of the uring form.
const KERNEL_MIN: (u32, u32) = (6, 1);

/// Checks that [`Form::Uring`](crate::Form::Uring) will work here.
///
/// # Errors
/// The reason, as one sentence without a full stop.
pub fn probe() -> Result<(), String> {
    check_kernel()?;
    let ring = Ring::new().map_err(|error| explain(&error))?;
    let parameters = ring.parameters();
    if !parameters.is_feature_ext_arg() || !parameters.is_feature_nodrop() {
        return Err("this kernel's io_uring lacks features of kernel 5.11".into());
    }
    let mut operations = Probe::new();
    ring.submitter()
        .register_probe(&mut operations)
        .map_err(|error| format!("cannot probe io_uring: {error}"))?;
    let needed = [
        ("poll", opcode::PollAdd::CODE),
        ("receive", opcode::Recv::CODE),
        ("send", opcode::Send::CODE),
        ("sendmsg", opcode::SendMsg::CODE),
        ("read", opcode::Read::CODE),
        ("write", opcode::Write::CODE),
        ("fsync", opcode::Fsync::CODE),
        ("poll", opcode::PollAdd::CODE),
        ("cancel", opcode::AsyncCancel::CODE),
    ];
    match needed.iter().find(|(_, code)| !operations.is_supported(*code)) {
        Some((name, _)) => Err(format!("this kernel's io_uring cannot {name}")),
        None => Ok(()),
    }
}

fn check_kernel() -> Result<(), String> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let release = release.trim();
    match version(release) {
        Some(found) if found < KERNEL_MIN => {
            Err(format!("kernel {release} is too old: {}.{} is needed", KERNEL_MIN.0, KERNEL_MIN.1))
        }
        // A kernel with an unusual name is checked in other ways.
        Some(_) | None => Ok(()),
    }
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn explain(error: &io::Error) -> String {
    let disabled = fs::read_to_string("/proc/sys/kernel/io_uring_disabled").unwrap_or_default();
    match (error.raw_os_error(), disabled.trim()) {
        (Some(libc::EPERM), setting @ ("1" | "2")) => {
            format!("io_uring_setup: not permitted (kernel.io_uring_disabled = {setting})")
        }
        (Some(libc::EPERM | libc::EACCES), _) => {
            "io_uring_setup: not permitted (a container's seccomp profile forbids it)".into()
        }
        (Some(libc::ENOSYS), _) => "io_uring_setup: this kernel does not have it".into(),
        (Some(libc::EINVAL), _) => "io_uring_setup: this kernel lacks features of 6.1".into(),
        (Some(libc::ENOMEM), _) => {
            "io_uring_setup: no memory (the limit of locked memory may be too low)".into()
        }
        _ => format!("io_uring_setup: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_compared_by_their_first_two_numbers() {
        assert_eq!(version("6.18.44-fc-v657"), Some((6, 18)));
        assert_eq!(version("5.10.0"), Some((5, 10)));
        assert_eq!(version("next"), None);
    }

    #[test]
    fn the_reason_is_reported_in_words() {
        let error = io::Error::from_raw_os_error(libc::EPERM);
        assert!(explain(&error).contains("not permitted"), "{}", explain(&error));
    }
}
