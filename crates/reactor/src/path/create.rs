//! Creation of files, directories, links and special files.

use super::{Outcome, PathContext, attrs, enter, open, walk};
use crate::descriptor;
use crate::errno::StepError;
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
    context: &PathContext<'_>,
    dir: BorrowedFd<'_>,
    name: &Name,
    access: Access,
    exclusive: bool,
    mode: u32,
) -> Outcome<PathDone> {
    let bytes = plain(name)?;
    context.host.own.admit_mode(Kind::File, mode)?;
    for _ in 0..RETRIES {
        let flags = open::flags(access) | OFlags::CREATE | OFlags::EXCL;
        match enter::entry(context, dir, bytes, flags, permissions(mode)) {
            Ok(file) => {
                let handle = open::reopen(context, file.as_fd(), OFlags::PATH | OFlags::CLOEXEC)?;
                return created(file, handle);
            }
            Err(StepError::Kernel(Errno::EXIST)) if !exclusive => {}
            Err(failure) => return Err(failure),
        }
        let handle = match walk::handle(context, dir, bytes) {
            Err(StepError::Kernel(Errno::NOENT)) => continue,
            other => other?,
        };
        let stat = attrs::stat(handle.as_fd())?;
        if stat.kind == Kind::Directory {
            return Err(Error::IsDirectory.into());
        }
        let file = open::open_plain(context, handle.as_fd(), &stat, access)?;
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
    context: &PathContext<'_>,
    dir: BorrowedFd<'_>,
    name: &Name,
    mode: u32,
) -> Outcome<PathDone> {
    rustix::fs::mkdirat(dir, plain(name)?, permissions(mode))?;
    made(context, dir, name)
}

/// Creates a symbolic link.
pub(super) fn symlink(
    context: &PathContext<'_>,
    dir: BorrowedFd<'_>,
    name: &Name,
    target: &[u8],
) -> Outcome<PathDone> {
    rustix::fs::symlinkat(target, dir, plain(name)?)?;
    made(context, dir, name)
}

/// Creates a special or plain file.
pub(super) fn make_node(
    context: &PathContext<'_>,
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
    context.host.own.admit_mode(kind, mode)?;
    rustix::fs::mknodat(dir, plain(name)?, file_type, permissions(mode), device)?;
    made(context, dir, name)
}

fn made(context: &PathContext<'_>, dir: BorrowedFd<'_>, name: &Name) -> Outcome<PathDone> {
    let handle = walk::handle(context, dir, name.as_bytes())?;
    Ok(PathDone::Stat(attrs::stat(handle.as_fd())?))
}

/// Adds a hard link to the file of `fd`.
pub(super) fn link(
    context: &PathContext<'_>,
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
    rustix::fs::linkat(context.host.proc(), number.as_c_str(), dir, name, flags)?;
    Ok(PathDone::Ok)
}
