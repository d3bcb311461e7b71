//! Numbers and layouts of WASI preview 1 (`wasi_snapshot_preview1.witx`). All integers are
//! little-endian.

use base::{Error, Kind, Stat, Time};

/// Error code of a WASI call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum Errno {
    Acces = 2,
    Again = 6,
    Badf = 8,
    Busy = 10,
    Deadlk = 16,
    Dquot = 19,
    Exist = 20,
    Fault = 21,
    Fbig = 22,
    Intr = 27,
    Inval = 28,
    Io = 29,
    Isdir = 31,
    Loop = 32,
    Mfile = 33,
    Mlink = 34,
    Nametoolong = 37,
    Noent = 44,
    Nomem = 48,
    Nospc = 51,
    Nosys = 52,
    Notdir = 54,
    Notempty = 55,
    Notsup = 58,
    Nxio = 60,
    Perm = 63,
    Rofs = 69,
    Spipe = 70,
    Stale = 72,
    Timedout = 73,
    Txtbsy = 74,
    Xdev = 75,
    Notcapable = 76,
}

impl Errno {
    /// Returns a description for users outside of a guest.
    pub(crate) fn plain(self) -> String {
        let known = [
            (Errno::Noent, "there is no such file"),
            (Errno::Notdir, "there is no such file"),
            (Errno::Acces, "its permissions refuse that"),
            (Errno::Perm, "its permissions refuse that"),
            (Errno::Isdir, "it is a directory"),
            (Errno::Notcapable, "it is not for programs"),
            (Errno::Notsup, "it is no plain file"),
        ];
        let found = known.iter().find(|(errno, _)| *errno == self);
        found.map_or_else(|| format!("error {}", self as u16), |(_, words)| words.to_string())
    }
}

impl From<Error> for Errno {
    fn from(error: Error) -> Errno {
        match error {
            Error::NotFound => Errno::Noent,
            Error::Denied => Errno::Acces,
            Error::NotPermitted => Errno::Perm,
            Error::Exists => Errno::Exist,
            Error::NotDirectory => Errno::Notdir,
            Error::IsDirectory => Errno::Isdir,
            Error::NotEmpty => Errno::Notempty,
            Error::NameTooLong => Errno::Nametoolong,
            Error::Loop => Errno::Loop,
            Error::CrossDevice => Errno::Xdev,
            Error::NoSpace => Errno::Nospc,
            Error::QuotaExceeded => Errno::Dquot,
            Error::FileTooLarge => Errno::Fbig,
            Error::ReadOnly => Errno::Rofs,
            Error::Busy => Errno::Busy,
            Error::TextBusy => Errno::Txtbsy,
            Error::TooManyLinks => Errno::Mlink,
            Error::TooManyOpen => Errno::Mfile,
            Error::Invalid => Errno::Inval,
            Error::NoAttribute | Error::AttributeTooLarge | Error::Unsupported => Errno::Notsup,
            Error::Stale => Errno::Stale,
            Error::Cancelled => Errno::Intr,
            Error::WouldDeadlock => Errno::Deadlk,
            Error::WouldBlock => Errno::Again,
            Error::NoDevice => Errno::Nxio,
            Error::TimedOut => Errno::Timedout,
            Error::NoMemory => Errno::Nomem,
            Error::Disconnected | Error::Io => Errno::Io,
        }
    }
}

/// `filetype`.
pub(crate) fn file_type(kind: Kind) -> u8 {
    match kind {
        Kind::BlockDevice => 1,
        Kind::CharDevice => 2,
        Kind::Directory => 3,
        Kind::File => 4,
        Kind::Socket => 6,
        Kind::Symlink => 7,
        // Preview 1 has no value for it.
        Kind::Fifo => 0,
    }
}

/// `filetype` of a stream: not a terminal.
pub(crate) const UNKNOWN: u8 = 0;

// `fdflags`.
pub(crate) const APPEND: u16 = 1;
pub(crate) const DSYNC: u16 = 2;
pub(crate) const SYNC: u16 = 16;

// `oflags`.
pub(crate) const CREAT: u16 = 1;
pub(crate) const DIRECTORY: u16 = 2;
pub(crate) const EXCL: u16 = 4;
pub(crate) const TRUNC: u16 = 8;

/// `lookupflags`: the last name may be a link.
pub(crate) const SYMLINK_FOLLOW: u32 = 1;

// `rights` that determine the access mode of an open file.
pub(crate) const RIGHT_READ: u64 = 1 << 1;
pub(crate) const RIGHT_WRITE: u64 = 1 << 6;
/// All rights of preview 1 except those of sockets.
pub(crate) const RIGHTS: u64 = (1 << 29) - 1;

// `fstflags`.
pub(crate) const ATIM: u16 = 1;
pub(crate) const ATIM_NOW: u16 = 2;
pub(crate) const MTIM: u16 = 4;
pub(crate) const MTIM_NOW: u16 = 8;

// `whence`.
pub(crate) const WHENCE_SET: u32 = 0;
pub(crate) const WHENCE_CUR: u32 = 1;
pub(crate) const WHENCE_END: u32 = 2;

// `clockid`.
pub(crate) const REALTIME: u32 = 0;
pub(crate) const CPU_TIME: u32 = 3;

/// Converts a time to a WASI `timestamp`: nanoseconds since 1970, zero for earlier times.
pub(crate) fn time(time: Time) -> u64 {
    let secs = u64::try_from(time.secs).unwrap_or(0);
    secs.saturating_mul(1_000_000_000).saturating_add(time.nanos.into())
}

/// Converts a WASI `timestamp` to a time.
pub(crate) fn time_of(ns: u64) -> Time {
    Time { secs: (ns / 1_000_000_000).cast_signed(), nanos: (ns % 1_000_000_000) as u32 }
}

/// `filestat`, 64 bytes.
pub(crate) fn filestat(stat: &Stat) -> [u8; 64] {
    let mut bytes = [0; 64];
    let mut put = |at: usize, value: u64| bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
    put(0, stat.device);
    put(8, stat.inode);
    put(24, stat.links.into());
    put(32, stat.size);
    put(40, time(stat.accessed));
    put(48, time(stat.modified));
    put(56, time(stat.changed));
    bytes[16] = file_type(stat.kind);
    bytes
}

/// `fdstat`, 24 bytes.
pub(crate) fn fdstat(file_type: u8, flags: u16, rights: u64) -> [u8; 24] {
    let mut bytes = [0; 24];
    bytes[0] = file_type;
    bytes[2..4].copy_from_slice(&flags.to_le_bytes());
    bytes[8..16].copy_from_slice(&rights.to_le_bytes());
    bytes[16..24].copy_from_slice(&rights.to_le_bytes());
    bytes
}

/// Header of a `dirent`, 24 bytes; the name follows.
pub(crate) fn dirent(next: u64, inode: u64, name_len: u32, file_type: u8) -> [u8; 24] {
    let mut bytes = [0; 24];
    bytes[0..8].copy_from_slice(&next.to_le_bytes());
    bytes[8..16].copy_from_slice(&inode.to_le_bytes());
    bytes[16..20].copy_from_slice(&name_len.to_le_bytes());
    bytes[20] = file_type;
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_are_those_of_the_witx() {
        let stat = Stat {
            kind: Kind::Directory,
            device: 1,
            inode: 2,
            links: 3,
            size: 4,
            modified: Time { secs: 5, nanos: 6 },
            ..Stat::default()
        };
        let bytes = filestat(&stat);
        let long = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight"));
        assert_eq!([long(0), long(8), long(24), long(32)], [1, 2, 3, 4]);
        assert_eq!((bytes[16], long(48)), (3, 5_000_000_006));
        assert_eq!(fdstat(4, 1, RIGHTS)[..4], [4, 0, 1, 0]);
        let entry = dirent(9, 8, 7, 4);
        assert_eq!((entry[0], entry[8], entry[16], entry[20]), (9, 8, 7, 4));
    }

    #[test]
    fn times_go_both_ways() {
        let there = Time { secs: 1_700_000_000, nanos: 999_999_999 };
        assert_eq!(time_of(time(there)), there);
        assert_eq!(time(Time { secs: -1, nanos: 0 }), 0);
    }
}
