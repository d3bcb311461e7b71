//! Persistent identities of files (`name_to_handle_at(2)`).
//!
//! Opening a file by its identity needs `CAP_DAC_READ_SEARCH` and a file system that can be
//! exported. Without either the served directory is searched for its inode number ([`search`]).
#![allow(unsafe_code)]

#[cfg(test)]
mod tests;

use super::search::{self, Wanted};
use super::{Outcome, PathContext, attrs, enter, walk, within};
use crate::descriptor;
use base::op::{File, PathDone};
use base::{Error, FileHandle, Kind, Stat};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::ffi::CStr;

/// Size of the inode number in an identifier, bytes.
const INODE_SIZE: usize = 8;

/// Maximum size of the kernel's handle, bytes: what fits behind inode number and type.
const KERNEL_MAX: usize = base::FILE_HANDLE_MAX - base::TAG_SIZE - INODE_SIZE - 1;

/// Type of a handle of a file system that has none. Types of the kernel are below it.
const NO_TYPE: u8 = u8::MAX;

/// Number of attempts to open a handle for which the kernel claims to lack memory.
const ATTEMPTS: usize = 100;

/// The kernel's `struct file_handle`, with room.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct KernelHandle {
    bytes: u32,
    kind: i32,
    handle: [u8; KERNEL_MAX],
}

impl KernelHandle {
    /// Returns the kernel's handle of a file.
    fn of(file: BorrowedFd<'_>) -> rustix::io::Result<KernelHandle> {
        KernelHandle::at(file, c"", libc::AT_EMPTY_PATH)
    }

    /// Returns the kernel's handle of an entry of a directory, which may be a symbolic link.
    fn at(dir: BorrowedFd<'_>, name: &CStr, flags: i32) -> rustix::io::Result<KernelHandle> {
        let bytes = u32::try_from(KERNEL_MAX).expect("it is small");
        let mut this = KernelHandle { bytes, kind: 0, handle: [0; KERNEL_MAX] };
        let mut mount = 0;
        let at = (&raw mut this).cast();
        // SAFETY: the path is a C string, and `this` has the layout of `struct file_handle`, with
        // `bytes` bytes behind it.
        let result = unsafe {
            libc::name_to_handle_at(dir.as_raw_fd(), name.as_ptr(), at, &raw mut mount, flags)
        };
        if result == 0 { Ok(this) } else { Err(last_error()) }
    }

    /// Opens its file, as a handle without access. `mount` is any directory of the file system.
    fn open(self, mount: BorrowedFd<'_>) -> rustix::io::Result<OwnedFd> {
        // The inode number of a removed file may just be given to a new one. Meanwhile the kernel
        // returns `ENOMEM`, as for want of memory (`iget_locked`, `I_CREATING`), then `ESTALE`.
        for _ in 1..ATTEMPTS {
            let result = self.try_open(mount);
            if !matches!(result, Err(Errno::NOMEM)) {
                return result;
            }
            std::thread::yield_now();
        }
        self.try_open(mount)
    }

    fn try_open(mut self, mount: BorrowedFd<'_>) -> rustix::io::Result<OwnedFd> {
        let at = (&raw mut self).cast();
        let flags = libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC;
        // SAFETY: `self` has the layout of `struct file_handle`, with at least `bytes` bytes behind
        // it, which the kernel only reads.
        let fd = unsafe { libc::open_by_handle_at(mount.as_raw_fd(), at, flags) };
        if fd < 0 {
            return Err(last_error());
        }
        // SAFETY: the kernel has just opened it, and nobody else knows it.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// Returns type and bytes, as in an identifier.
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::try_from(self.kind).unwrap_or(NO_TYPE));
        out.extend(&self.handle[..(self.bytes as usize).min(KERNEL_MAX)]);
    }

    /// Returns the handle of type and bytes; `None` if the file system has none.
    fn decode(identifier: &[u8]) -> Option<KernelHandle> {
        let (kind, bytes) = identifier.split_first().filter(|(kind, _)| **kind != NO_TYPE)?;
        let mut handle = [0; KERNEL_MAX];
        handle.get_mut(..bytes.len())?.copy_from_slice(bytes);
        let length = u32::try_from(bytes.len()).expect("it is small");
        Some(KernelHandle { bytes: length, kind: i32::from(*kind), handle })
    }
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// Returns the identity of a file. Those of other file systems than the root's cannot be found
/// again and have none.
pub(super) fn get(root: BorrowedFd<'_>, file: BorrowedFd<'_>) -> Outcome<PathDone> {
    let stat = attrs::stat(file)?;
    if stat.device != attrs::stat(root)?.device {
        return Err(Error::Unsupported.into());
    }
    Ok(PathDone::Handle(identity(file, &stat)))
}

fn identity(file: BorrowedFd<'_>, stat: &Stat) -> FileHandle {
    identity_of(KernelHandle::of(file), stat)
}

/// Returns the identity of an entry of a directory, with these attributes. If it is replaced
/// meanwhile, this is the identity of no file.
pub(super) fn of_entry(dir: BorrowedFd<'_>, name: &CStr, stat: &Stat) -> FileHandle {
    identity_of(KernelHandle::at(dir, name, 0), stat)
}

fn identity_of(handle: rustix::io::Result<KernelHandle>, stat: &Stat) -> FileHandle {
    let mut identifier = stat.inode.to_be_bytes().to_vec();
    match handle {
        Ok(handle) => handle.encode(&mut identifier),
        Err(_unsupported) => identifier.push(NO_TYPE),
    }
    FileHandle::new(&identifier).expect("the kernel's handle has room")
}

/// Opens the file with an identity.
///
/// # Errors
/// `Stale` if there is none.
pub(super) fn open(
    context: &PathContext<'_>,
    root: BorrowedFd<'_>,
    handle: &FileHandle,
) -> Outcome<PathDone> {
    let Some((inode, rest)) = handle.identifier().split_first_chunk::<INODE_SIZE>() else {
        return Err(Error::Stale.into());
    };
    let inode = u64::from_be_bytes(*inode);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mount = rustix::fs::openat(root, c".", flags, Mode::empty())?;
    let found = match KernelHandle::decode(rest).map(|handle| handle.open(mount.as_fd())) {
        Some(Ok(fd)) => Some(fd).filter(|fd| is_beneath(context, root, fd.as_fd())),
        Some(Err(Errno::STALE)) => None,
        Some(Err(Errno::PERM | Errno::OPNOTSUPP | Errno::INVAL)) | None => {
            let wanted = Wanted { inode, is_it: &|fd| is_file_of(fd, handle) };
            search::find(context, mount.as_fd(), &wanted)?
        }
        Some(Err(error)) => return Err(error.into()),
    };
    let fd = found.ok_or(Error::Stale)?;
    let stat = attrs::stat(fd.as_fd())?;
    if stat.inode != inode {
        return Err(Error::Stale.into());
    }
    Ok(PathDone::Walked(vec![stat], Ok(File(descriptor::release(fd)))))
}

/// Returns whether a file that was opened by its handle may be used: the kernel opens any file of
/// the file system. Directories are beneath the root for certain, by climbing. Of another file it
/// is known only if the kernel remembers its name and it has no other one.
fn is_beneath(context: &PathContext<'_>, root: BorrowedFd<'_>, file: BorrowedFd<'_>) -> bool {
    let (Ok(top), Ok(stat)) = (attrs::stat(root), attrs::stat(file)) else { return false };
    if stat.kind == Kind::Directory {
        let above = walk::KnownAncestors::default().climb(context, &top, file, &stat);
        return above.unwrap_or(false);
    }
    stat.links != 1 || !is_known_outside(context, root, file)
}

/// Returns whether the kernel remembers a name of this file that is not beneath the root.
fn is_known_outside(context: &PathContext<'_>, root: BorrowedFd<'_>, file: BorrowedFd<'_>) -> bool {
    let path = enter::path_of(context, file);
    // The path of a file that is not in the kernel's cache of names.
    let is_known = path.is_ok_and(|path| path != b"/");
    is_known && within::expect_within(context, root, file).is_err()
}

/// Returns whether an open file has an identity. The tag in front belongs to the namespace.
fn is_file_of(fd: BorrowedFd<'_>, handle: &FileHandle) -> bool {
    let stat = attrs::stat(fd);
    stat.is_ok_and(|stat| identity(fd, &stat).identifier() == handle.identifier())
}
