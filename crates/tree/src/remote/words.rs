//! Conversion between 9P and file requests, on the client's side.

use crate::request::LockKind;
use base::{Access, Error, Kind, SetStat, SetTime, Stat, StatFs, Time};
use session::Dialect;
use wire::ninep::{Qid, Rmessage, Stat as WireStat, Tmessage};

/// Owner of files without a numeric owner (Linux's `nobody`).
const NOBODY: u32 = 65_534;

/// Returns the error of a Linux `errno` (9P2000.L sends it as is). An unknown one is `Io`.
pub(super) fn error_of_errno(errno: u32) -> Error {
    match errno {
        1 => Error::NotPermitted,
        2 => Error::NotFound,
        4 | 125 => Error::Cancelled,
        6 | 19 => Error::NoDevice,
        7 | 34 => Error::AttributeTooLarge,
        9 | 14 | 22 | 29 | 84 => Error::Invalid,
        11 => Error::WouldBlock,
        12 | 105 => Error::NoMemory,
        13 => Error::Denied,
        16 => Error::Busy,
        17 => Error::Exists,
        18 => Error::CrossDevice,
        20 => Error::NotDirectory,
        21 => Error::IsDirectory,
        23 | 24 => Error::TooManyOpen,
        25 | 38 | 95 | 97 | 524 => Error::Unsupported,
        26 => Error::TextBusy,
        27 | 75 => Error::FileTooLarge,
        28 => Error::NoSpace,
        30 => Error::ReadOnly,
        31 => Error::TooManyLinks,
        32 | 100..=104 | 107 | 108 | 111..=113 => Error::Disconnected,
        35 => Error::WouldDeadlock,
        36 => Error::NameTooLong,
        39 => Error::NotEmpty,
        40 => Error::Loop,
        61 => Error::NoAttribute,
        110 => Error::TimedOut,
        116 => Error::Stale,
        122 => Error::QuotaExceeded,
        _ => Error::Io,
    }
}

/// Error strings of 9P2000 servers (Plan 9, plan9port, go9p, diod, Linux's `strerror`), in lower
/// case, by a characteristic part; the first match counts.
const SENTENCES: [(&str, Error); 70] = [
    ("does not exist", Error::NotFound),
    ("no such file", Error::NotFound),
    ("no such path", Error::NotFound),
    ("not found", Error::NotFound),
    ("no such extended attribute", Error::NoAttribute),
    ("no data available", Error::NoAttribute),
    ("no such device", Error::NoDevice),
    ("permission denied", Error::Denied),
    ("access denied", Error::Denied),
    ("not permitted", Error::NotPermitted),
    ("not owner", Error::NotPermitted),
    ("not file owner", Error::NotPermitted),
    ("prohibited", Error::NotPermitted),
    ("permission", Error::Denied),
    ("already exists", Error::Exists),
    ("file exists", Error::Exists),
    ("not a directory", Error::NotDirectory),
    ("not directory", Error::NotDirectory),
    ("non-directory", Error::NotDirectory),
    ("is a directory", Error::IsDirectory),
    ("is directory", Error::IsDirectory),
    ("not empty", Error::NotEmpty),
    ("name too long", Error::NameTooLong),
    ("levels of symbolic links", Error::Loop),
    ("cross-device", Error::CrossDevice),
    ("another file system", Error::CrossDevice),
    ("quota", Error::QuotaExceeded),
    ("no space", Error::NoSpace),
    ("file system full", Error::NoSpace),
    ("disk full", Error::NoSpace),
    ("device is full", Error::NoSpace),
    ("too large", Error::FileTooLarge),
    ("too big", Error::FileTooLarge),
    ("read-only", Error::ReadOnly),
    ("read only", Error::ReadOnly),
    ("text file busy", Error::TextBusy),
    ("being executed", Error::TextBusy),
    ("exclusive lock", Error::Busy),
    ("is locked", Error::Busy),
    ("in use", Error::Busy),
    ("busy", Error::Busy),
    ("too many links", Error::TooManyLinks),
    ("too many open", Error::TooManyOpen),
    ("no free", Error::TooManyOpen),
    ("invalid", Error::Invalid),
    ("illegal", Error::Invalid),
    ("bad arg", Error::Invalid),
    ("bad offset", Error::Invalid),
    ("bad use of fid", Error::Invalid),
    ("negative", Error::Invalid),
    ("fid in use", Error::Invalid),
    ("unknown fid", Error::Stale),
    ("fid unknown", Error::Stale),
    ("bad fid", Error::Stale),
    ("stale", Error::Stale),
    ("has been removed", Error::Stale),
    ("attribute does not fit", Error::AttributeTooLarge),
    ("out of range", Error::AttributeTooLarge),
    ("not supported", Error::Unsupported),
    ("not implemented", Error::Unsupported),
    ("unsupported", Error::Unsupported),
    ("interrupted", Error::Cancelled),
    ("deadlock", Error::WouldDeadlock),
    ("temporarily unavailable", Error::WouldBlock),
    ("hungup", Error::Disconnected),
    ("hung up", Error::Disconnected),
    ("connection", Error::Disconnected),
    ("broken pipe", Error::Disconnected),
    ("memory", Error::NoMemory),
    ("unknown user", Error::Denied),
];

/// Returns the error of a 9P2000 error string: by this server's own strings, else by the table,
/// else `Io`.
pub(super) fn error_of_sentence(sentence: &[u8]) -> Error {
    let text = String::from_utf8_lossy(sentence).to_lowercase();
    let own = Error::ALL.into_iter().find(|error| error.text() == text);
    let reported =
        || SENTENCES.iter().find(|(part, _)| text.contains(part)).map(|(_, error)| *error);
    own.or_else(reported).unwrap_or(Error::Io)
}

/// Returns the kind of file of a qid.
pub(super) fn kind(qid: Qid) -> Kind {
    match qid.kind {
        bits if bits & Qid::DIR != 0 => Kind::Directory,
        bits if bits & Qid::SYMLINK != 0 => Kind::Symlink,
        _ => Kind::File,
    }
}

/// Returns whether two qids are of the same file, whatever its version.
pub(super) fn is_same(one: Qid, other: Qid) -> bool {
    (one.path, kind(one)) == (other.path, kind(other))
}

/// Returns the attributes known from a qid alone. The version is in a field that [`Stat::version`]
/// uses.
pub(super) fn stat_of_qid(qid: Qid, device: u64) -> Stat {
    let changed = Time::from_secs(qid.version.into());
    Stat { kind: kind(qid), inode: qid.path, device, links: 1, changed, ..Stat::default() }
}

fn time(secs: u64, nanos: u64) -> Time {
    let nanos = u32::try_from(nanos).unwrap_or(0).min(999_999_999);
    Time { secs: secs.cast_signed(), nanos }
}

/// Maximum size of a file in Linux, bytes. Larger sizes reported by a server are not trusted.
const SIZE_MAX: u64 = i64::MAX as u64;

fn small(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

/// Returns the qid and the attributes of a reply; `None` for another message.
pub(super) fn stat_of_getattr(message: &Rmessage<'_>, device: u64) -> Option<(Qid, Stat)> {
    let Rmessage::Getattr { qid, mode, uid, gid, nlink, rdev, size, blksize, blocks, .. } =
        *message
    else {
        return None;
    };
    let Rmessage::Getattr { atime_sec, atime_nsec, mtime_sec, mtime_nsec, .. } = *message else {
        return None;
    };
    let Rmessage::Getattr { ctime_sec, ctime_nsec, .. } = *message else { return None };
    let Rmessage::Getattr { valid, btime_sec, btime_nsec, .. } = *message else { return None };
    let stat = Stat {
        kind: Kind::from_mode(mode).filter(|_| mode & 0o170_000 != 0).unwrap_or(kind(qid)),
        mode: mode & 0o7777,
        links: small(nlink),
        uid,
        gid,
        size: size.min(SIZE_MAX),
        blocks,
        block_size: small(blksize),
        device,
        inode: qid.path,
        special_device: rdev,
        accessed: time(atime_sec, atime_nsec),
        modified: time(mtime_sec, mtime_nsec),
        changed: time(ctime_sec, ctime_nsec),
        created: (valid & wire::ninep::STATS_BTIME != 0).then(|| time(btime_sec, btime_nsec)),
    };
    Some((qid, stat))
}

/// Converts attributes of 9P2000. Owners that are no numbers become `nobody`. A different version
/// counts as a change, however coarse the timestamps are.
pub(super) fn stat_of_wire(wire: &WireStat<'_>, device: u64) -> Stat {
    let number = |text: &[u8]| std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    let modified = Time::from_secs(wire.mtime.into());
    Stat {
        kind: if wire.mode & WireStat::DIR != 0 { Kind::Directory } else { kind(wire.qid) },
        mode: wire.mode & 0o777,
        links: 1,
        uid: number(wire.uid).unwrap_or(NOBODY),
        gid: number(wire.gid).unwrap_or(NOBODY),
        size: wire.length.min(SIZE_MAX),
        blocks: wire.length.div_ceil(512),
        block_size: 4096,
        device,
        inode: wire.qid.path,
        special_device: 0,
        accessed: Time::from_secs(wire.atime.into()),
        modified,
        changed: Time { nanos: wire.qid.version % 1_000_000_000, ..modified },
        created: None,
    }
}

/// Returns the usage of the server's file system; `None` for another message.
pub(super) fn statfs(message: &Rmessage<'_>) -> Option<StatFs> {
    let Rmessage::Statfs { kind, bsize, blocks, bfree, bavail, files, ffree, fsid, namelen } =
        *message
    else {
        return None;
    };
    Some(StatFs {
        kind,
        block_size: bsize,
        blocks,
        blocks_free: bfree,
        blocks_available: bavail,
        files,
        files_free: ffree,
        id: fsid,
        name_max: namelen,
    })
}

/// Returns the flags of `Tlopen` and `Tlcreate` (those of Linux's `open(2)` on most architectures).
pub(super) fn linux_flags(access: Access) -> u32 {
    let how = match (access.read, access.write) {
        (true, true) => 2,
        (false, true) => 1,
        (_, false) => 0,
    };
    let flag = |on: bool, bits: u32| if on { bits } else { 0 };
    how | flag(access.truncate, 0o1000)
        | flag(access.append, 0o2000)
        | flag(access.sync, 0o4_010_000)
}

/// Returns the mode of `Topen` and `Tcreate` (open(5)).
pub(super) fn plan9_mode(access: Access) -> u8 {
    let how = match (access.read, access.write) {
        (true, true) => 2,
        (false, true) => 1,
        (_, false) => 0,
    };
    how | if access.truncate { 0x10 } else { 0 }
}

/// Mask of the requested attributes (`P9_STATS_BASIC`).
const STATS_BASIC: u64 = 0x7ff;

/// Returns the message that requests the attributes of a file.
pub(super) fn stat(dialect: Dialect, fid: u32) -> Tmessage<'static> {
    match dialect {
        Dialect::Linux => Tmessage::Getattr { fid, mask: STATS_BASIC },
        Dialect::Plan9 => Tmessage::Stat { fid },
    }
}

/// Returns the message that opens a file.
pub(super) fn open(dialect: Dialect, fid: u32, access: Access) -> Tmessage<'static> {
    match dialect {
        Dialect::Linux => Tmessage::Lopen { fid, flags: linux_flags(access) },
        Dialect::Plan9 => Tmessage::Open { fid, mode: plan9_mode(access) },
    }
}

/// Returns the 9P2000.L message that changes attributes.
pub(super) fn setattr(fid: u32, set: &SetStat) -> Tmessage<'static> {
    let bit = |on: bool, bits: u32| if on { bits } else { 0 };
    let date = |set: Option<SetTime>, now: u32, at: u32| match set {
        None => (0, Time::default()),
        Some(SetTime::Now) => (now, Time::default()),
        Some(SetTime::At(time)) => (now | at, time),
    };
    let (accessed_bits, accessed) = date(set.accessed, 0x10, 0x80);
    let (modified_bits, modified) = date(set.modified, 0x20, 0x100);
    let valid = bit(set.mode.is_some(), 1)
        | bit(set.uid.is_some(), 2)
        | bit(set.gid.is_some(), 4)
        | bit(set.size.is_some(), 8)
        | accessed_bits
        | modified_bits;
    Tmessage::Setattr {
        fid,
        valid,
        mode: set.mode.unwrap_or(0),
        uid: set.uid.unwrap_or(u32::MAX),
        gid: set.gid.unwrap_or(u32::MAX),
        size: set.size.unwrap_or(0),
        atime_sec: accessed.secs.cast_unsigned(),
        atime_nsec: accessed.nanos.into(),
        mtime_sec: modified.secs.cast_unsigned(),
        mtime_nsec: modified.nanos.into(),
    }
}

/// Returns the type byte of `Tlock` and `Tgetlock`.
pub(super) fn lock_type(kind: LockKind) -> u8 {
    match kind {
        LockKind::Shared => 0,
        LockKind::Exclusive => 1,
        LockKind::None => 2,
    }
}

/// Returns major and minor of a device number in Linux's encoding (`major(3)`, `minor(3)`).
pub(super) fn device_halves(device: u64) -> (u32, u32) {
    let major = device >> 32 & 0xffff_f000 | device >> 8 & 0xfff;
    let minor = device >> 12 & 0xffff_ff00 | device & 0xff;
    (major as u32, minor as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_sentences_come_back_as_what_they_were() {
        for error in Error::ALL {
            assert_eq!(error_of_sentence(error.text().as_bytes()), error);
        }
        for (part, error) in SENTENCES {
            let found = error_of_sentence(format!("x: {part}").as_bytes());
            assert!(found == error || part.contains("fid in use"), "{part}: {found:?}");
        }
        assert_eq!(error_of_sentence(b"File not found"), Error::NotFound);
        assert_eq!(error_of_sentence(b"'x' No such file or directory"), Error::NotFound);
        assert_eq!(error_of_sentence(b"phase error"), Error::Io);
    }

    #[test]
    fn devices_are_taken_apart_as_linux_does() {
        assert_eq!(device_halves(0x0803), (8, 3));
        assert_eq!(device_halves(0x1234_5000_0011_22ff), (0x1234_5122, 0x1ff));
    }
}
