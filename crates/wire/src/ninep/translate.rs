//! Translation of errors, attributes and directory entries to 9P.

use super::{Qid, Rmessage};
use base::op::Entry;
use base::{Error, Kind, Stat};

/// Fields of `Rgetattr` that are always valid (`P9_STATS_BASIC`).
const STATS_BASIC: u64 = 0x7ff;

/// Bit of the time of creation (`P9_STATS_BTIME`).
pub const STATS_BTIME: u64 = 0x800;

/// Returns the Linux `errno` of an error, as sent in 9P2000.L.
pub fn errno(error: Error) -> u32 {
    match error {
        Error::NotPermitted => 1,
        Error::NotFound => 2,
        Error::Cancelled => 4,
        Error::Io => 5,
        Error::NoDevice => 6,
        Error::WouldBlock => 11,
        Error::NoMemory => 12,
        Error::Denied => 13,
        Error::Busy => 16,
        Error::Exists => 17,
        Error::CrossDevice => 18,
        Error::NotDirectory => 20,
        Error::IsDirectory => 21,
        Error::Invalid => 22,
        Error::TooManyOpen => 24,
        Error::TextBusy => 26,
        Error::FileTooLarge => 27,
        Error::NoSpace => 28,
        Error::ReadOnly => 30,
        Error::TooManyLinks => 31,
        Error::AttributeTooLarge => 34,
        Error::WouldDeadlock => 35,
        Error::NameTooLong => 36,
        Error::NotEmpty => 39,
        Error::Loop => 40,
        Error::NoAttribute => 61,
        Error::Unsupported => 95,
        // EHOSTDOWN, for a mounted server: ECONNRESET would suggest the client's own connection.
        Error::Disconnected => 112,
        Error::TimedOut => 110,
        Error::Stale => 116,
        Error::QuotaExceeded => 122,
    }
}

/// Returns the identity of a file for clients of the server with this device.
pub fn qid(stat: &Stat, device: u64) -> Qid {
    let kind = match stat.kind {
        Kind::Directory => Qid::DIR,
        Kind::Symlink => Qid::SYMLINK,
        Kind::File | Kind::Fifo | Kind::Socket | Kind::CharDevice | Kind::BlockDevice => Qid::FILE,
    };
    let version = stat.version();
    let path = base::file_number((stat.device, stat.inode), device);
    Qid { kind, version: (version ^ version >> 32) as u32, path }
}

/// Returns the identity of an entry of a directory on the device `dir`, as in `Rreaddir`: without a
/// version.
pub fn entry_qid(entry: &Entry, dir: u64, device: u64) -> Qid {
    let (kind, inode, of) = (entry.kind, entry.inode, entry.device.unwrap_or(dir));
    let stat = Stat { kind, inode, device: of, ..Stat::default() };
    Qid { version: 0, ..qid(&stat, device) }
}

/// Returns the attributes of a file, an `Rgetattr`, for clients of the server with this device.
pub fn attributes(stat: &Stat, device: u64) -> Rmessage<'static> {
    let created = stat.created.unwrap_or_default();
    Rmessage::Getattr {
        valid: STATS_BASIC | stat.created.map_or(0, |_| STATS_BTIME),
        qid: qid(stat, device),
        mode: stat.full_mode(),
        uid: stat.uid,
        gid: stat.gid,
        nlink: stat.links.into(),
        rdev: stat.special_device,
        size: stat.size,
        blksize: stat.block_size.into(),
        blocks: stat.blocks,
        atime_sec: stat.accessed.secs.cast_unsigned(),
        atime_nsec: stat.accessed.nanos.into(),
        mtime_sec: stat.modified.secs.cast_unsigned(),
        mtime_nsec: stat.modified.nanos.into(),
        ctime_sec: stat.changed.secs.cast_unsigned(),
        ctime_nsec: stat.changed.nanos.into(),
        btime_sec: created.secs.cast_unsigned(),
        btime_nsec: created.nanos.into(),
        generation: 0,
        data_version: 0,
    }
}
