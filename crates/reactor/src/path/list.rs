//! Entries of a directory, from a cookie on.

use super::{Ground, Outcome, attrs};
use crate::descriptor;
use base::op::{Entry, File, PathDone};
use base::{Kind, Name};
use rustix::fd::BorrowedFd;
use rustix::fs::{FileType, RawDir, RawDirEntry, SeekFrom};
use rustix::io::Errno;
use std::mem::MaybeUninit;

/// What an entry costs besides its name, bytes; as the protocols count.
const OVERHEAD: usize = 24;

/// How much the kernel is asked for at once, bytes. The upper end keeps one job short, the lower
/// end has room for the longest name.
const KERNEL_BYTES: (usize, usize) = (2048, 64 << 10);

/// Lists about `bytes_max` bytes of entries, but at least one if there is one. None: the end.
pub(super) fn list(
    ground: &Ground<'_>,
    file: File,
    cookie: u64,
    bytes_max: u32,
    with_stat: bool,
) -> Outcome<PathDone> {
    let dir = descriptor::file(file)?;
    // The open directory has one position, which two lists at once would pull about.
    let _position = ground.host.listing(file.0);
    rustix::fs::seek(dir, SeekFrom::Start(cookie))?;
    let bytes_max = bytes_max as usize;
    let mut memory = vec![MaybeUninit::uninit(); bytes_max.clamp(KERNEL_BYTES.0, KERNEL_BYTES.1)];
    let mut raw = RawDir::new(dir, &mut memory);
    let mut entries = Vec::new();
    let mut bytes = 0;
    while let Some(entry) = raw.next() {
        let Some(entry) = convert(dir, &entry?, with_stat)? else { continue };
        bytes += entry.name.as_bytes().len() + OVERHEAD;
        if bytes > bytes_max && !entries.is_empty() {
            break;
        }
        entries.push(entry);
    }
    Ok(PathDone::Entries(entries))
}

/// `None` for `.` and `..`, and for what vanished or was never a name.
fn convert(
    dir: BorrowedFd<'_>,
    raw: &RawDirEntry<'_>,
    with_stat: bool,
) -> rustix::io::Result<Option<Entry>> {
    let Ok(name) = Name::new(raw.file_name().to_bytes()) else { return Ok(None) };
    if !name.plain() {
        return Ok(None);
    }
    let told = kind(raw.file_type());
    let stat = if with_stat || told.is_none() {
        match attrs::stat_entry(dir, name.as_bytes()) {
            Ok(stat) => Some(stat),
            Err(Errno::NOENT) => return Ok(None),
            Err(_) => None,
        }
    } else {
        None
    };
    let kind = stat.as_ref().map(|stat| stat.kind).or(told).unwrap_or_default();
    let stat = stat.filter(|_| with_stat);
    let (cookie, inode) = (raw.next_entry_cookie(), raw.ino());
    Ok(Some(Entry { cookie, inode, device: None, kind, name, stat }))
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
