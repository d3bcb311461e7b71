//! Attributes of files, as the kernel wants them.

use wire::fuse::{Attributes, Timestamp};
use wire::ninep::{Qid, Stat};

/// Type of a mode: mask, and the kinds that 9P2000 has.
const S_IFMT: u32 = 0o170_000;
const S_IFDIR: u32 = 0o040_000;
const S_IFREG: u32 = 0o100_000;
const S_IFLNK: u32 = 0o120_000;

/// Identity and attributes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attr {
    pub(crate) qid: Qid,
    pub(crate) shown: Attributes,
    /// Time of the creation, if the server tells it: another file may get the same number.
    pub(crate) created: Option<Timestamp>,
}

impl Attr {
    /// Translates the attributes of 9P2000, whose users are names: a number stands for itself, any
    /// other name for the user that mounted.
    pub(crate) fn plan9(stat: &Stat<'_>, (uid, gid): (u32, u32)) -> Attr {
        let kind = if stat.mode & Stat::DIR != 0 { S_IFDIR } else { S_IFREG };
        let number = |name: &[u8], default| {
            std::str::from_utf8(name).ok().and_then(|it| it.parse().ok()).unwrap_or(default)
        };
        let time = |secs: u32| Timestamp { secs: secs.into(), nanos: 0 };
        let shown = Attributes {
            ino: stat.qid.path,
            size: stat.length,
            blocks: stat.length.div_ceil(512),
            atime: time(stat.atime),
            mtime: time(stat.mtime),
            ctime: time(stat.mtime),
            mode: kind | stat.mode & 0o777,
            nlink: 1,
            uid: number(stat.uid, uid),
            gid: number(stat.gid, gid),
            rdev: 0,
            blksize: 4096,
        };
        Attr { qid: stat.qid, shown, created: None }
    }

    pub(crate) fn is_dir(&self) -> bool {
        self.shown.mode & S_IFMT == S_IFDIR
    }

    /// Returns whether these are attributes of the same file with the same contents.
    pub(crate) fn has_same_contents(&self, other: &Attr) -> bool {
        let state = |it: &Attr| {
            let Attributes { size, mtime, ctime, .. } = it.shown;
            (it.qid.path, size, mtime, ctime)
        };
        state(self) == state(other)
    }

    pub(crate) fn is_file(&self) -> bool {
        self.shown.mode & S_IFMT == S_IFREG
    }
}

/// Returns a timestamp; nanoseconds that are none count as zero.
pub(crate) fn timestamp(secs: u64, nanos: u64) -> Timestamp {
    let nanos = u32::try_from(nanos).ok().filter(|nanos| *nanos < 1_000_000_000);
    Timestamp { secs, nanos: nanos.unwrap_or(0) }
}

/// Converts a device number of stat(2) to the kernel's 32-bit encoding.
pub(crate) fn kernel_device(device: u64) -> u32 {
    let major = (device >> 8 & 0xfff) as u32;
    let minor = (device & 0xff | device >> 12 & 0xfff00) as u32;
    minor & 0xff | major << 8 | (minor & 0xfff00) << 12
}

/// Returns major and minor number of the kernel's encoding.
pub(crate) fn device_parts(device: u32) -> (u32, u32) {
    (device >> 8 & 0xfff, device & 0xff | device >> 12 & 0xfff00)
}

/// Returns the `d_type` of a directory entry by its qid.
pub(crate) fn dirent_type(qid: Qid) -> u8 {
    let mode = match qid.kind {
        kind if kind & Qid::DIR != 0 => S_IFDIR,
        kind if kind & Qid::SYMLINK != 0 => S_IFLNK,
        _plain => S_IFREG,
    };
    (mode >> 12) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_survive_the_kernels_encoding() {
        for (major, minor) in [(0, 0), (1, 3), (10, 229), (259, 70_000), (4095, 0xfffff)] {
            let stat =
                u64::from(minor & 0xff) | u64::from(major) << 8 | u64::from(minor & 0xfff00) << 12;
            assert_eq!(device_parts(kernel_device(stat)), (major, minor));
        }
    }

    #[test]
    fn users_of_9p2000_are_numbers_or_the_one_that_mounted() {
        let stat =
            Stat { uid: b"1000", gid: b"staff", mode: Stat::DIR | 0o750, ..Stat::unchanged() };
        let attr = Attr::plan9(&stat, (7, 8));
        assert_eq!((attr.shown.uid, attr.shown.gid), (1000, 8));
        assert_eq!(attr.shown.mode, 0o040_750);
        assert!(attr.is_dir());
    }
}
