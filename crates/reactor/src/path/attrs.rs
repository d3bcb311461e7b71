//! Attributes of files and of whole file systems.

use super::Outcome;
use base::op::PathDone;
use base::{Kind, Stat, StatFs, Time};
use rustix::fd::BorrowedFd;
use rustix::fs::{AtFlags, Statx, StatxFlags, StatxTimestamp};

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
