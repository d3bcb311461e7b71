//! Creation of files, directories, links and special files.

use super::{Ground, Outcome, attrs, enter, open, walk};
use crate::descriptor;
use crate::errno::Trouble;
use base::op::{File, PathDone};
use base::{Access, Error, Kind, Name};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

/// Maximum number of attempts on a file that is created and removed repeatedly.
const RETRIES: usize = 8;

/// Returns a name under which a file can be created.
pub(super) fn plain(name: &Name) -> Result<&[u8], Error> {
    if name.plain() { Ok(name.as_bytes()) } else { Err(Error::Exists) }
}

pub(super) fn permissions(mode: u32) -> Mode {
    Mode::from_raw_mode(mode & 0o7777)
}

/// Creates a file and opens it, or opens an existing one.
///
/// An existing file is checked before it is opened, so that other kinds than plain files (a pipe, a
/// device, a link) are refused without any effect on them.
pub(super) fn create(
    ground: &Ground<'_>,
    dir: BorrowedFd<'_>,
    name: &Name,
    access: Access,
    exclusive: bool,
    mode: u32,
) -> Outcome<PathDone> {
    let bytes = plain(name)?;
    ground.host.own.admit_mode(Kind::File, mode)?;
    for _ in 0..RETRIES {
        let flags = open::flags(access) | OFlags::CREATE | OFlags::EXCL;
        match enter::entry(ground, dir, bytes, flags, permissions(mode)) {
            Ok(file) => {
                let handle = open::reopen(ground, file.as_fd(), OFlags::PATH | OFlags::CLOEXEC)?;
                return created(file, handle);
            }
            Err(Trouble::Kernel(Errno::EXIST)) if !exclusive => {}
            Err(trouble) => return Err(trouble),
        }
        let handle = match walk::handle(ground, dir, bytes) {
            Err(Trouble::Kernel(Errno::NOENT)) => continue,
            other => other?,
        };
        let stat = attrs::stat(handle.as_fd())?;
        if stat.kind == Kind::Directory {
            return Err(Error::IsDirectory.into());
        }
        let file = open::open_plain(ground, handle.as_fd(), &stat, access)?;
        return created(file, handle);
    }
    Err(Error::Busy.into())
}

pub(super) fn created(file: OwnedFd, handle: OwnedFd) -> Outcome<PathDone> {
    let stat = attrs::stat(file.as_fd())?;
    let (file, handle) = (descriptor::release(file), descriptor::release(handle));
    Ok(PathDone::Created(File(file), File(handle), stat))
}

/// Creates a directory.
pub(super) fn make_dir(
    ground: &Ground<'_>,
    dir: BorrowedFd<'_>,
    name: &Name,
    mode: u32,
) -> Outcome<PathDone> {
    rustix::fs::mkdirat(dir, plain(name)?, permissions(mode))?;
    made(ground, dir, name)
}

/// Creates a symbolic link.
pub(super) fn symlink(
    ground: &Ground<'_>,
    dir: BorrowedFd<'_>,
    name: &Name,
    target: &[u8],
) -> Outcome<PathDone> {
    rustix::fs::symlinkat(target, dir, plain(name)?)?;
    made(ground, dir, name)
}

/// Creates a special or plain file.
pub(super) fn make_node(
    ground: &Ground<'_>,
    dir: BorrowedFd<'_>,
    name: &Name,
    kind: Kind,
    mode: u32,
    device: u64,
) -> Outcome<PathDone> {
    let (file_type, device) = match kind {
        Kind::File => (FileType::RegularFile, 0),
        Kind::Fifo => (FileType::Fifo, 0),
        Kind::Socket => (FileType::Socket, 0),
        Kind::CharDevice => (FileType::CharacterDevice, device),
        Kind::BlockDevice => (FileType::BlockDevice, device),
        Kind::Directory | Kind::Symlink => return Err(Error::Invalid.into()),
    };
    ground.host.own.admit_mode(kind, mode)?;
    rustix::fs::mknodat(dir, plain(name)?, file_type, permissions(mode), device)?;
    made(ground, dir, name)
}

fn made(ground: &Ground<'_>, dir: BorrowedFd<'_>, name: &Name) -> Outcome<PathDone> {
    let handle = walk::handle(ground, dir, name.as_bytes())?;
    Ok(PathDone::Stat(attrs::stat(handle.as_fd())?))
}

/// Adds a hard link to the file of `fd`.
pub(super) fn link(
    ground: &Ground<'_>,
    fd: BorrowedFd<'_>,
    dir: BorrowedFd<'_>,
    name: &Name,
) -> Outcome<PathDone> {
    let name = plain(name)?;
    if attrs::stat(fd)?.kind == Kind::Directory {
        return Err(Error::NotPermitted.into());
    }
    let number = open::by_number(fd);
    let flags = AtFlags::SYMLINK_FOLLOW;
    rustix::fs::linkat(ground.host.proc(), number.as_c_str(), dir, name, flags)?;
    Ok(PathDone::Ok)
}
