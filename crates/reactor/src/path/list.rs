//! Listings of a directory, from a cookie on; and of many directories at once.

use super::{Outcome, PathContext, attrs, enter, file_handle, spent_since, walk};
use crate::descriptor;
use crate::errno::StepError;
use crate::thread_time;
use base::op::{Detail, Entry, File, Listing, PathDone};
use base::{Kind, Name};
use rustix::fd::{AsFd as _, BorrowedFd};
use rustix::fs::{FileType, Mode, OFlags, RawDir, RawDirEntry, ResolveFlags, SeekFrom};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::mem::MaybeUninit;

/// Size of an entry besides its name, in bytes as protocols count.
const OVERHEAD: usize = 24;

/// Minimum and maximum size of one request to the kernel, bytes. The maximum keeps one job short,
/// the minimum fits the longest name.
const KERNEL_BYTES: (usize, usize) = (2048, 16 << 10);

/// An open directory, as it is listed.
struct Dir<'a> {
    fd: BorrowedFd<'a>,
    /// Names of mount points.
    points: BTreeSet<Vec<u8>>,
    /// Details of its entries.
    detail: Detail,
    /// Device of files that have an identity.
    device: Option<u64>,
}

/// Lists about `bytes_max` bytes of entries, but at least one if there is one; none at the end.
/// Only files on the file system of `root` have an identity.
pub(super) fn list(
    context: &PathContext<'_>,
    file: File,
    (cookie, bytes_max): (u64, u32),
    (detail, root): (Detail, Option<BorrowedFd<'_>>),
) -> Outcome<PathDone> {
    let fd = descriptor::file(file)?;
    let points = enter::mount_points(context, fd)?;
    let device = root.map(|root| attrs::stat(root).map(|stat| stat.device)).transpose()?;
    let dir = Dir { fd, points, detail, device };
    // The open directory has one position, which two concurrent lists would disturb.
    context.host.listing(file.0, || read(context, &dir, cookie, bytes_max as usize))
}

fn read(
    context: &PathContext<'_>,
    dir: &Dir<'_>,
    cookie: u64,
    bytes_max: usize,
) -> Outcome<PathDone> {
    rustix::fs::seek(dir.fd, SeekFrom::Start(cookie))?;
    let mut memory = vec![MaybeUninit::uninit(); bytes_max.clamp(KERNEL_BYTES.0, KERNEL_BYTES.1)];
    let mut raw = RawDir::new(dir.fd, &mut memory);
    let mut entries = Vec::new();
    let mut bytes = 0;
    while let Some(entry) = raw.next() {
        let Some(entry) = convert(context, dir, &entry?)? else { continue };
        bytes += entry.name.as_bytes().len() + OVERHEAD;
        if bytes > bytes_max && !entries.is_empty() {
            break;
        }
        entries.push(entry);
    }
    Ok(PathDone::Entries(entries))
}

/// Converts an entry; `None` for `.` and `..`, and for removed files or invalid names. The
/// attributes at a mount point are left out if the job may not enter it.
fn convert(
    context: &PathContext<'_>,
    dir: &Dir<'_>,
    raw: &RawDirEntry<'_>,
) -> Outcome<Option<Entry>> {
    let Ok(name) = Name::new(raw.file_name().to_bytes()) else { return Ok(None) };
    if !name.plain() {
        return Ok(None);
    }
    let reported = kind(raw.file_type());
    let is_point = dir.points.contains(name.as_bytes());
    let stat = if dir.detail.has_stat() || reported.is_none() {
        let found = match is_point {
            true => walk::stat(context, dir.fd, name.as_bytes()),
            false => attrs::stat_entry(dir.fd, name.as_bytes()).map_err(StepError::from),
        };
        match found {
            Ok(stat) => Some(stat),
            Err(StepError::Kernel(Errno::NOENT)) => return Ok(None),
            Err(_) => None,
        }
    } else {
        None
    };
    let kind = stat.as_ref().map(|stat| stat.kind).or(reported).unwrap_or_default();
    let stat = stat.filter(|_| dir.detail.has_stat());
    let identified = stat.as_ref().filter(|stat| Some(stat.device) == dir.device && !is_point);
    let handle = identified.map(|stat| file_handle::of_entry(dir.fd, raw.file_name(), stat));
    let (cookie, inode) = (raw.next_entry_cookie(), raw.ino());
    Ok(Some(Entry { cookie, inode, device: None, kind, name, stat, handle }))
}

fn kind(file_type: FileType) -> Option<Kind> {
    match file_type {
        FileType::RegularFile => Some(Kind::File),
        FileType::Directory => Some(Kind::Directory),
        FileType::Symlink => Some(Kind::Symlink),
        FileType::Fifo => Some(Kind::Fifo),
        FileType::Socket => Some(Kind::Socket),
        FileType::CharacterDevice => Some(Kind::CharDevice),
        FileType::BlockDevice => Some(Kind::BlockDevice),
        FileType::Unknown => None,
    }
}

/// Maximum number of directories of one [`list_all`].
const LISTINGS_MAX: usize = 4096;

/// Maximum depth beneath each of the requested directories: each level holds a descriptor.
const DEPTH_MAX: usize = 24;

/// Lists whole directories and those beneath them, as many as fit.
pub(super) fn list_all(
    context: &PathContext<'_>,
    from: File,
    paths: &[Vec<u8>],
    bytes_max: u32,
) -> Outcome<PathDone> {
    let from = descriptor::file(from)?;
    let (begun, memory) = (thread_time(), vec![MaybeUninit::uninit(); KERNEL_BYTES.1]);
    let mut all = All { context, left: bytes_max as usize, memory, listings: Vec::new() };
    for path in paths {
        let name = if path.is_empty() { &b"."[..] } else { path };
        if !all.enter(from, name, path, DEPTH_MAX) {
            break;
        }
    }
    Ok(PathDone::Listings(all.listings, spent_since(begun)))
}

/// A listing of many directories.
struct All<'a> {
    context: &'a PathContext<'a>,
    /// Bytes left.
    left: usize,
    memory: Vec<MaybeUninit<u8>>,
    listings: Vec<Listing>,
}

impl All<'_> {
    /// Lists the directory `name` of `dir`, and those beneath it; returns whether more fit.
    fn enter(&mut self, dir: BorrowedFd<'_>, name: &[u8], path: &[u8], depth: usize) -> bool {
        if self.left < OVERHEAD || self.listings.len() == LISTINGS_MAX {
            return false;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let resolve = ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH;
        let Ok(dir) = rustix::fs::openat2(dir, name, flags, Mode::empty(), resolve) else {
            return true;
        };
        match self.read(dir.as_fd()) {
            Ok(Some(entries)) => {
                let place = self.listings.len();
                self.listings.push(Listing { path: path.to_vec(), entries });
                self.descend(dir.as_fd(), place, depth)
            }
            Ok(None) => false,
            Err(_) => true,
        }
    }

    fn descend(&mut self, dir: BorrowedFd<'_>, place: usize, depth: usize) -> bool {
        let Listing { path, entries } = &self.listings[place];
        let path = path.clone();
        let dirs = entries.iter().filter(|entry| entry.kind == Kind::Directory);
        let names: Vec<Name> = dirs.map(|entry| entry.name.clone()).collect();
        names.iter().filter(|_| depth > 0).all(|name| {
            let name = name.as_bytes();
            let below = if path.is_empty() { name.to_vec() } else { [&path, name].join(&b'/') };
            self.enter(dir, name, &below, depth - 1)
        })
    }

    /// Reads all entries of a directory; `None` if they do not fit.
    fn read(&mut self, dir: BorrowedFd<'_>) -> Outcome<Option<Vec<Entry>>> {
        let points = enter::mount_points(self.context, dir)?;
        let dir = Dir { fd: dir, points, detail: Detail::Name, device: None };
        let (mut entries, mut bytes) = (Vec::new(), OVERHEAD);
        let mut raw = RawDir::new(dir.fd, &mut self.memory);
        while let Some(entry) = raw.next() {
            let Some(entry) = convert(self.context, &dir, &entry?)? else { continue };
            bytes += entry.name.as_bytes().len() + OVERHEAD;
            if bytes > self.left {
                return Ok(None);
            }
            entries.push(entry);
        }
        self.left -= bytes;
        Ok(Some(entries))
    }
}
