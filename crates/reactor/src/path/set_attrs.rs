//! Changes of attributes.

use super::{Outcome, PathContext, attrs, open};
use base::op::PathDone;
use base::{Error, Kind, SetStat, SetTime};
use rustix::fd::BorrowedFd;
use rustix::fs::{AtFlags, Gid, Timespec, Timestamps, Uid};

/// Changes attributes: size and owner first, because both clear set-id bits; then mode, timestamps.
/// Linux's own NFS server uses the same order.
pub(super) fn set(
    context: &PathContext<'_>,
    fd: BorrowedFd<'_>,
    is_open: bool,
    set: &SetStat,
) -> Outcome<PathDone> {
    if let Some(size) = set.size {
        set_size(fd, is_open, size)?;
    }
    if set.uid.is_some() || set.gid.is_some() {
        set_owner(fd, set.uid, set.gid)?;
    }
    if let Some(mode) = set.mode {
        set_mode(context, fd, mode)?;
    }
    if set.accessed.is_some() || set.modified.is_some() {
        set_times(fd, set.accessed, set.modified)?;
    }
    Ok(PathDone::Ok)
}

fn set_owner(fd: BorrowedFd<'_>, uid: Option<u32>, gid: Option<u32>) -> Outcome<()> {
    // The kernel takes -1 for "leave unchanged", so this id cannot be assigned.
    if uid == Some(u32::MAX) || gid == Some(u32::MAX) {
        return Err(Error::Invalid.into());
    }
    let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
    let flags = AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW;
    Ok(rustix::fs::chownat(fd, c"", uid, gid, flags)?)
}

fn set_mode(context: &PathContext<'_>, fd: BorrowedFd<'_>, mode: u32) -> Outcome<()> {
    // Older kernels change the meaningless mode of a link; newer ones refuse.
    let kind = attrs::stat(fd)?.kind;
    if kind == Kind::Symlink {
        return Err(Error::Unsupported.into());
    }
    context.host.own.admit_mode(kind, mode)?;
    let number = open::by_number(fd);
    let mode = rustix::fs::Mode::from_raw_mode(mode & 0o7777);
    Ok(rustix::fs::chmodat(context.host.proc(), number.as_c_str(), mode, AtFlags::empty())?)
}

fn set_size(fd: BorrowedFd<'_>, is_open: bool, size: u64) -> Outcome<()> {
    if i64::try_from(size).is_err() {
        return Err(Error::FileTooLarge.into());
    }
    if is_open {
        return Ok(rustix::fs::ftruncate(fd, size)?);
    }
    open::truncate(fd, size)
}

fn set_times(
    fd: BorrowedFd<'_>,
    accessed: Option<SetTime>,
    modified: Option<SetTime>,
) -> Outcome<()> {
    let times =
        Timestamps { last_access: timespec(accessed), last_modification: timespec(modified) };
    Ok(rustix::fs::utimensat(fd, c"", &times, AtFlags::EMPTY_PATH)?)
}

fn timespec(time: Option<SetTime>) -> Timespec {
    match time {
        None => Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT },
        Some(SetTime::Now) => Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW },
        Some(SetTime::At(time)) => {
            Timespec { tv_sec: time.secs, tv_nsec: time.nanos.min(999_999_999).into() }
        }
    }
}
