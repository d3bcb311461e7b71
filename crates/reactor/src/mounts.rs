//! The mount table: identifies the file system at a mount point without accessing it.
//!
//! A file system whose server does not respond (NFS, FUSE, 9P) blocks every thread that accesses
//! it, even its root. So it is recognized by `/proc/thread-self/mountinfo` (proc(5)) before a path
//! may cross its mount point. The table is read again when the kernel reports a change (`POLLPRI`).

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

/// File systems whose calls depend on no server once their data is in memory.
const LOCAL: &[&[u8]] = &[
    b"bcachefs",
    b"btrfs",
    b"devtmpfs",
    b"erofs",
    b"exfat",
    b"ext2",
    b"ext3",
    b"ext4",
    b"f2fs",
    b"hfsplus",
    b"iso9660",
    b"jfs",
    b"msdos",
    b"nilfs2",
    b"ntfs3",
    b"overlay",
    b"ramfs",
    b"rootfs",
    b"squashfs",
    b"tmpfs",
    b"udf",
    b"vfat",
    b"xfs",
    b"zfs",
    b"zfs",
];

/// A mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    /// The kernel's mount id, as reported by `statx(2)`. Reused after an unmount.
    pub(crate) id: u64,
    /// Id of the mount that this one is mounted on.
    parent: u64,
    /// The file system's device number, the same for all mounts of it.
    pub(crate) device: u64,
    /// Absolute path of the mount point.
    point: Vec<u8>,
    /// Type of the file system.
    kind: Vec<u8>,
}

impl Mount {
    /// Returns the last name of its mount point, which cannot be renamed while this is mounted.
    fn name(&self) -> &[u8] {
        self.point.rsplit(|&b| b == b'/').next().unwrap_or_default()
    }

    /// Returns whether its calls depend on no server.
    pub(crate) fn is_local(&self) -> bool {
        LOCAL.contains(&self.kind.as_slice())
    }
}

impl fmt::Display for Mount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, point) = (self.kind.escape_ascii(), String::from_utf8_lossy(&self.point));
        write!(f, "{point} ({kind})")
    }
}

/// All mounts visible to this process, the newest last.
#[derive(Debug, Default)]
pub(crate) struct Table(Vec<Mount>);

impl Table {
    fn parse(text: &[u8]) -> Table {
        Table(text.split(|&b| b == b'\n').filter_map(parse_line).collect())
    }

    /// Returns the mount with this id.
    pub(crate) fn by_id(&self, id: u64) -> Option<&Mount> {
        self.0.iter().find(|mount| mount.id == id)
    }

    /// Returns the newest mount of a device.
    pub(crate) fn by_device(&self, device: u64) -> Option<&Mount> {
        self.0.iter().rev().find(|mount| mount.device == device)
    }

    /// Returns the mounts that an entry of this name may lead to in directories of the mount `id`;
    /// of stacked ones the topmost.
    pub(crate) fn named<'a>(&'a self, id: u64, name: &'a [u8]) -> impl Iterator<Item = &'a Mount> {
        let here = self.0.iter().filter(move |mount| mount.parent == id && mount.name() == name);
        here.map(|mount| self.topmost(mount))
    }

    /// Returns the topmost mount stacked on this one, or itself.
    fn topmost<'a>(&'a self, mount: &'a Mount) -> &'a Mount {
        let mut top = mount;
        for _ in 0..self.0.len() {
            let above = |other: &&Mount| other.parent == top.id && other.point == top.point;
            match self.0.iter().find(above) {
                Some(covering) => top = covering,
                None => break,
            }
        }
        top
    }

    /// Returns the names of all mount points on the mount `id`.
    pub(crate) fn names_on(&self, id: u64) -> impl Iterator<Item = &[u8]> {
        self.0.iter().filter(move |mount| mount.parent == id).map(Mount::name)
    }

    /// Returns the mount that `..` leads to from the root of the mount `id`.
    pub(crate) fn above(&self, id: u64) -> Option<&Mount> {
        let mut mount = self.by_id(id)?;
        // `..` leaves all mounts stacked on one point at once.
        for _ in 0..self.0.len() {
            let above = self.by_id(mount.parent)?;
            if above.point != mount.point {
                return Some(above);
            }
            mount = above;
        }
        None
    }
}

/// Parses a line such as `36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw`
/// (proc(5)).
fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|&b| b == b' ');
    let number = |field: &[u8]| std::str::from_utf8(field).ok()?.parse().ok();
    let id: u64 = number(fields.next()?)?;
    let parent: u64 = number(fields.next()?)?;
    let mut device = fields.next()?.split(|&b| b == b':');
    let (major, minor) = (number(device.next()?)?, number(device.next()?)?);
    let device = rustix::fs::makedev(u32::try_from(major).ok()?, u32::try_from(minor).ok()?);
    let point = unescape(fields.nth(1)?);
    // A hyphen ends the optional fields.
    let kind = fields.skip_while(|field| *field != b"-").nth(1)?;
    Some(Mount { id, parent, device, point, kind: kind.to_vec() })
}

/// Decodes space, tab, newline and backslash, which are written as a backslash and three octal
/// digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|d| d.iter().all(|b| (b'0'..=b'7').contains(b)));
        if byte == b'\\'
            && let Some(digits) = digits
        {
            let value = digits.iter().fold(0u32, |value, d| value * 8 + u32::from(d - b'0'));
            bytes.push((value & 0xff) as u8);
            rest = &after[3..];
        } else {
            bytes.push(byte);
            rest = after;
        }
    }
    bytes
}

/// The mount table of this process, read again after each change.
#[derive(Debug)]
pub(crate) struct Mounts {
    file: OwnedFd,
    table: Mutex<Option<Arc<Table>>>,
}

impl Mounts {
    /// Opens the table of the current thread's mount namespace.
    ///
    /// # Errors
    /// Those of `open(2)`, if `/proc` is not mounted.
    pub(crate) fn open() -> io::Result<Mounts> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let file = rustix::fs::open("/proc/thread-self/mountinfo", flags, Mode::empty())?;
        Ok(Mounts { file, table: Mutex::new(None) })
    }

    /// Returns the present table. If it cannot be read, returns the previous one, or an empty one:
    /// then no file system counts as local.
    pub(crate) fn table(&self) -> Arc<Table> {
        // Held while the table is read, so that nobody uses an old one after a reported change.
        let mut held = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(table) = &*held
            && !self.has_changed()
        {
            return Arc::clone(table);
        }
        let Ok(text) = self.read() else { return held.clone().unwrap_or_default() };
        let table = Arc::new(Table::parse(&text));
        *held = Some(Arc::clone(&table));
        table
    }

    fn has_changed(&self) -> bool {
        let mut files = [PollFd::new(&self.file, PollFlags::PRI)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        // A failed poll counts as a change.
        !matches!(poll(&mut files, Some(&now)), Ok(0))
    }

    fn read(&self) -> rustix::io::Result<Vec<u8>> {
        let mut text = Vec::new();
        rustix::fs::seek(&self.file, rustix::fs::SeekFrom::Start(0))?;
        let mut chunk = [0; 4096];
        loop {
            match rustix::io::read(self.file.as_fd(), &mut chunk) {
                Ok(0) => return Ok(text),
                Ok(n) => text.extend_from_slice(&chunk[..n]),
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }
}

#[cfg(test)]
mod tests;
