//! Opening of files held by a handle, through its magic link in `/proc/self/fd`.
#![allow(unsafe_code)]

use super::{Mode, Outcome, PathContext, attrs};
use crate::descriptor;
use base::op::{File, PathDone};
use base::{Access, Error, Kind, Stat};
use rustix::fd::{AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::path::DecInt;
use std::ffi::CString;

/// Flags of every open.
pub(super) const ALWAYS: OFlags = OFlags::CLOEXEC.union(OFlags::NOCTTY);

/// Returns the name of a descriptor in `/proc/self/fd`.
pub(super) fn by_number(fd: BorrowedFd<'_>) -> DecInt {
    DecInt::from_fd(fd)
}

/// Returns the whole path of a descriptor's magic link.
pub(super) fn by_path(fd: BorrowedFd<'_>) -> CString {
    CString::new(format!("/proc/self/fd/{}", fd.as_raw_fd())).expect("digits have no NUL")
}

/// Returns the flags of `open(2)` for `access`.
pub(super) fn flags(access: Access) -> OFlags {
    let mut flags = match (access.read, access.write || access.append) {
        (true, true) => OFlags::RDWR,
        (false, true) => OFlags::WRONLY,
        (true | false, false) => OFlags::RDONLY,
    };
    flags.set(OFlags::APPEND, access.append);
    flags.set(OFlags::TRUNC, access.truncate);
    flags.set(OFlags::SYNC, access.sync);
    flags | ALWAYS
}

/// Reopens the file of `fd`. The caller has checked that this is harmless: opening a pipe blocks,
/// opening a device may have any effect.
pub(super) fn reopen(
    context: &PathContext<'_>,
    fd: BorrowedFd<'_>,
    flags: OFlags,
) -> rustix::io::Result<OwnedFd> {
    let number = by_number(fd);
    rustix::fs::openat(context.host.proc(), number.as_c_str(), flags, rustix::fs::Mode::empty())
}

/// Returns whether opening such a file has no side effects.
pub(super) fn is_plain(kind: Kind) -> bool {
    matches!(kind, Kind::File | Kind::Directory)
}

/// Opens a plain file or directory; others are `Unsupported`.
pub(super) fn open(
    context: &PathContext<'_>,
    fd: BorrowedFd<'_>,
    access: Access,
) -> Outcome<PathDone> {
    let mut stat = attrs::stat(fd)?;
    let file = open_plain(context, fd, &stat, access)?;
    if access.truncate {
        stat = attrs::stat(rustix::fd::AsFd::as_fd(&file))?;
    }
    Ok(PathDone::Opened(File(descriptor::release(file)), stat))
}

/// Like [`open`], for a file whose attributes are known.
pub(super) fn open_plain(
    context: &PathContext<'_>,
    fd: BorrowedFd<'_>,
    stat: &Stat,
    access: Access,
) -> Outcome<OwnedFd> {
    match stat.kind {
        Kind::File => {}
        Kind::Directory if access.changes() => return Err(Error::IsDirectory.into()),
        Kind::Directory => {}
        Kind::Symlink => return Err(Error::Loop.into()),
        Kind::Fifo | Kind::Socket | Kind::CharDevice | Kind::BlockDevice => {
            return Err(Error::Unsupported.into());
        }
    }
    // A lease on the file would have to be broken first, which blocks.
    let no_waiting = match context.mode {
        Mode::Cached => OFlags::NONBLOCK,
        Mode::Blocking => OFlags::empty(),
    };
    let file = context.settle(reopen(context, fd, flags(access) | no_waiting))?;
    if context.mode == Mode::Cached {
        clear_nonblock(&file, access)?;
    }
    Ok(file)
}

/// Clears `O_NONBLOCK`: with it the kernel would not wait for the disk where it should.
pub(super) fn clear_nonblock(file: &OwnedFd, access: Access) -> rustix::io::Result<()> {
    rustix::fs::fcntl_setfl(file, flags(access) & OFlags::APPEND)
}

/// Returns the target of a symbolic link.
pub(super) fn read_link(context: &PathContext<'_>, fd: BorrowedFd<'_>) -> Outcome<PathDone> {
    match context.settle(rustix::fs::readlinkat(fd, c"", Vec::new())) {
        Ok(target) => Ok(PathDone::Bytes(target.into_bytes())),
        // The kernel's error for a handle that is no link.
        Err(crate::errno::StepError::Kernel(Errno::NOENT)) => Err(Error::Invalid.into()),
        Err(failure) => Err(failure),
    }
}

/// Sets the size of a file held by a handle, with a check of the write permission.
pub(super) fn truncate(fd: BorrowedFd<'_>, size: u64) -> Outcome<()> {
    let path = by_path(fd);
    let size = libc::off_t::try_from(size).map_err(|_| Error::FileTooLarge)?;
    // SAFETY: the path is a C string that lives across the call.
    if unsafe { libc::truncate(path.as_ptr(), size) } == 0 {
        return Ok(());
    }
    let error = std::io::Error::last_os_error();
    Err(Errno::from_io_error(&error).unwrap_or(Errno::IO).into())
}
