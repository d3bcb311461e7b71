//! Attributes of files and of whole file systems.

use super::open::by_number;
use super::{Outcome, PathContext};
use base::op::PathDone;
use base::{Error, Kind, SetStat, SetTime, Stat, StatFs, Time};
use rustix::fd::BorrowedFd;
use rustix::fs::{AtFlags, Gid, Statx, StatxFlags, StatxTimestamp, Timespec, Timestamps, Uid};

/// Attributes that are requested.
const STATS: StatxFlags = StatxFlags::BASIC_STATS.union(StatxFlags::BTIME);

/// Returns the attributes of an open file or handle.
pub(super) fn stat(fd: BorrowedFd<'_>) -> Outcome<Stat> {
    let raw = rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, STATS)?;
    Ok(convert(&raw))
}

/// Returns the attributes of an entry, including what is mounted there; follows no links and
/// triggers no automount.
pub(super) fn stat_entry(dir: BorrowedFd<'_>, name: &[u8]) -> rustix::io::Result<Stat> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    rustix::fs::statx(dir, name, flags, STATS).map(|raw| convert(&raw))
}

fn convert(raw: &Statx) -> Stat {
    let mode = u32::from(raw.stx_mode);
    let has_created = raw.stx_mask & StatxFlags::BTIME.bits() != 0;
    Stat {
        kind: Kind::from_mode(mode).unwrap_or_default(),
        mode: mode & 0o7777,
        links: raw.stx_nlink,
        uid: raw.stx_uid,
        gid: raw.stx_gid,
        size: raw.stx_size,
        blocks: raw.stx_blocks,
        block_size: raw.stx_blksize,
        device: rustix::fs::makedev(raw.stx_dev_major, raw.stx_dev_minor),
        inode: raw.stx_ino,
        special_device: rustix::fs::makedev(raw.stx_rdev_major, raw.stx_rdev_minor),
        accessed: convert_time(raw.stx_atime),
        modified: convert_time(raw.stx_mtime),
        changed: convert_time(raw.stx_ctime),
        created: has_created.then(|| convert_time(raw.stx_btime)),
    }
}

fn convert_time(time: StatxTimestamp) -> Time {
    Time { secs: time.tv_sec, nanos: time.tv_nsec }
}

/// Changes attributes: size and owner first, because both clear set-id bits; then mode, timestamps.
/// Linux's own NFS server uses the same order.
pub(super) fn set(
    context: &PathContext<'_>,
    fd: BorrowedFd<'_>,
    open: bool,
    set: &SetStat,
) -> Outcome<PathDone> {
    if let Some(size) = set.size {
        set_size(fd, open, size)?;
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
    let kind = stat(fd)?.kind;
    if kind == Kind::Symlink {
        return Err(Error::Unsupported.into());
    }
    context.host.own.admit_mode(kind, mode)?;
    let number = by_number(fd);
    let mode = rustix::fs::Mode::from_raw_mode(mode & 0o7777);
    Ok(rustix::fs::chmodat(context.host.proc(), number.as_c_str(), mode, AtFlags::empty())?)
}

fn set_size(fd: BorrowedFd<'_>, open: bool, size: u64) -> Outcome<()> {
    if i64::try_from(size).is_err() {
        return Err(Error::FileTooLarge.into());
    }
    if open {
        return Ok(rustix::fs::ftruncate(fd, size)?);
    }
    super::open::truncate(fd, size)
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

/// Returns the usage of the file system.
pub(super) fn stat_fs(fd: BorrowedFd<'_>) -> Outcome<PathDone> {
    let raw = rustix::fs::fstatfs(fd)?;
    let vfs = rustix::fs::fstatvfs(fd)?;
    Ok(PathDone::StatFs(StatFs {
        kind: (raw.f_type & 0xffff_ffff) as u32,
        block_size: u32::try_from(vfs.f_bsize).unwrap_or(4096),
        blocks: raw.f_blocks,
        blocks_free: raw.f_bfree,
        blocks_available: raw.f_bavail,
        files: raw.f_files,
        files_free: raw.f_ffree,
        id: vfs.f_fsid,
        name_max: u32::try_from(vfs.f_namemax).unwrap_or(255),
    }))
}
