//! Extended attributes, through the magic link of the handle: it leads to the handle's own inode,
//! even if that is a symbolic link.

use super::open::by_path;
use super::{Outcome, PathContext, attrs};
use base::Error;
use base::op::PathDone;
use rustix::fd::BorrowedFd;
use rustix::fs::XattrFlags;
use rustix::io::Errno;

/// Maximum size of a value and of a list in Linux (`XATTR_SIZE_MAX`, `XATTR_LIST_MAX`), bytes.
const SIZE_MAX: usize = 64 << 10;

/// Size of the first attempt, bytes; most values and lists are small.
const SIZE_USUAL: usize = 512;

/// Reads data of unknown size with a call that fails with `ERANGE` if the buffer is too small.
fn read(call: impl Fn(&mut [u8]) -> rustix::io::Result<usize>) -> Outcome<PathDone> {
    let mut bytes = vec![0; SIZE_USUAL];
    let size = match call(&mut bytes) {
        Err(Errno::RANGE) => {
            bytes.resize(SIZE_MAX, 0);
            call(&mut bytes)?
        }
        other => other?,
    };
    bytes.truncate(size);
    Ok(PathDone::Bytes(bytes))
}

/// Returns the value of an attribute.
pub(super) fn get(fd: BorrowedFd<'_>, name: &[u8]) -> Outcome<PathDone> {
    let path = by_path(fd);
    read(|bytes| rustix::fs::getxattr(&path, name, bytes))
}

/// The access control list, which determines who may execute a file (acl(5)).
const ACCESS: &[u8] = b"system.posix_acl_access";

/// Checks that an attribute may be changed: a change of the access control list keeps set-id bits.
fn admit(context: &PathContext<'_>, fd: BorrowedFd<'_>, name: &[u8]) -> Outcome<()> {
    if name == ACCESS {
        let there = attrs::stat(fd)?;
        context.host.own.admit_mode(there.kind, there.mode)?;
    }
    Ok(())
}

/// Sets an attribute.
pub(super) fn set(
    context: &PathContext<'_>,
    fd: BorrowedFd<'_>,
    name: &[u8],
    value: &[u8],
    create: Option<bool>,
) -> Outcome<PathDone> {
    let flags = match create {
        Some(true) => XattrFlags::CREATE,
        Some(false) => XattrFlags::REPLACE,
        None => XattrFlags::empty(),
    };
    if value.len() > SIZE_MAX {
        return Err(Error::AttributeTooLarge.into());
    }
    admit(context, fd, name)?;
    rustix::fs::setxattr(by_path(fd), name, value, flags)?;
    Ok(PathDone::Ok)
}

/// Returns the names of all attributes, each terminated by NUL.
pub(super) fn list(fd: BorrowedFd<'_>) -> Outcome<PathDone> {
    let path = by_path(fd);
    read(|bytes| rustix::fs::listxattr(&path, bytes))
}

/// Removes an attribute.
pub(super) fn remove(
    context: &PathContext<'_>,
    fd: BorrowedFd<'_>,
    name: &[u8],
) -> Outcome<PathDone> {
    admit(context, fd, name)?;
    rustix::fs::removexattr(by_path(fd), name)?;
    Ok(PathDone::Ok)
}
