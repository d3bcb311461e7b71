//! Persistent identities of files (`name_to_handle_at(2)`).
//!
//! Opening a file by its identity needs `CAP_DAC_READ_SEARCH` and a file system that can be
//! exported. Without either the served directory is searched for its inode number.
#![allow(unsafe_code)]

use super::{Outcome, attrs};
use crate::descriptor;
use base::op::{File, PathDone};
use base::{Error, FileHandle, Stat};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use rustix::fs::{Mode, OFlags, RawDir, ResolveFlags};
use rustix::io::Errno;
use std::mem::MaybeUninit;

/// Size of the inode number in an identifier, bytes.
const INODE_SIZE: usize = 8;

/// Maximum size of the kernel's handle, bytes: what fits behind inode number and type.
const KERNEL_MAX: usize = base::FILE_HANDLE_MAX - base::TAG_SIZE - INODE_SIZE - 1;

/// Type of a handle of a file system that has none. Types of the kernel are below it.
const NO_TYPE: u8 = u8::MAX;

/// Maximum number of entries looked at by a search.
const SEARCH_MAX: usize = 1 << 20;

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
        let bytes = u32::try_from(KERNEL_MAX).expect("it is small");
        let mut this = KernelHandle { bytes, kind: 0, handle: [0; KERNEL_MAX] };
        let mut mount = 0;
        let at = (&raw mut this).cast();
        // SAFETY: the path is a C string, and `this` has the layout of `struct file_handle`, with
        // as many bytes behind it as `bytes` says.
        let result = unsafe {
            libc::name_to_handle_at(
                file.as_raw_fd(),
                c"".as_ptr(),
                at,
                &raw mut mount,
                libc::AT_EMPTY_PATH,
            )
        };
        if result == 0 { Ok(this) } else { Err(last_error()) }
    }

    /// Opens its file, as a handle without access. `mount` is any directory of the file system.
    fn open(mut self, mount: BorrowedFd<'_>) -> rustix::io::Result<OwnedFd> {
        let at = (&raw mut self).cast();
        let flags = libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC;
        // SAFETY: `self` has the layout of `struct file_handle`, with at least as many bytes behind
        // it as `bytes` says, which the kernel only reads.
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
    let mut identifier = stat.inode.to_be_bytes().to_vec();
    match KernelHandle::of(file) {
        Ok(handle) => handle.encode(&mut identifier),
        Err(_unsupported) => identifier.push(NO_TYPE),
    }
    FileHandle::new(&identifier).expect("the kernel's handle has room")
}

/// Opens the file with an identity.
///
/// # Errors
/// `Stale` if there is none.
pub(super) fn open(root: BorrowedFd<'_>, handle: &FileHandle) -> Outcome<PathDone> {
    let Some((inode, rest)) = handle.identifier().split_first_chunk::<INODE_SIZE>() else {
        return Err(Error::Stale.into());
    };
    let inode = u64::from_be_bytes(*inode);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mount = rustix::fs::openat(root, c".", flags, Mode::empty())?;
    let found = match KernelHandle::decode(rest).map(|handle| handle.open(mount.as_fd())) {
        Some(Ok(fd)) => Some(fd),
        Some(Err(Errno::STALE)) => None,
        Some(Err(Errno::PERM | Errno::OPNOTSUPP | Errno::INVAL)) | None => {
            search(mount.as_fd(), inode, handle)
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

/// Searches a directory, and those beneath it on the same file system, for the file with an
/// identity. Directories that cannot be read are left out.
fn search(top: BorrowedFd<'_>, inode: u64, handle: &FileHandle) -> Option<OwnedFd> {
    let mut memory = vec![MaybeUninit::uninit(); 32 << 10];
    let mut paths = vec![b".".to_vec()];
    let mut left = SEARCH_MAX;
    let resolve = ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH;
    let open = |path: &[u8], flags| {
        rustix::fs::openat2(top, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve).ok()
    };
    let is_it = |fd: &OwnedFd| {
        attrs::stat(fd.as_fd()).is_ok_and(|stat| identity(fd.as_fd(), &stat) == *handle)
    };
    if let Some(fd) = open(b".", OFlags::PATH).filter(is_it) {
        return Some(fd);
    }
    while let Some(path) = paths.pop() {
        let Some(dir) = open(&path, OFlags::RDONLY | OFlags::DIRECTORY) else { continue };
        let mut entries = RawDir::new(&dir, &mut memory);
        while let Some(Ok(entry)) = entries.next() {
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            left = left.checked_sub(1)?;
            let below = || [&path, name].join(&b'/');
            if entry.ino() == inode
                && let Some(fd) = open(&below(), OFlags::PATH | OFlags::NOFOLLOW).filter(is_it)
            {
                return Some(fd);
            }
            if matches!(
                entry.file_type(),
                rustix::fs::FileType::Directory | rustix::fs::FileType::Unknown
            ) {
                paths.push(below());
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn handle_of(done: PathDone) -> FileHandle {
        let PathDone::Handle(handle) = done else { panic!("{done:?} is no handle") };
        handle
    }

    /// A directory that is removed again.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Scratch {
            let dir = std::env::temp_dir().join(format!("upcall-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&dir).unwrap();
            Scratch(dir)
        }

        fn join(&self, path: &str) -> PathBuf {
            self.0.join(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            std::fs::remove_dir_all(&self.0).unwrap();
        }
    }

    #[test]
    fn files_are_found_by_their_handles_after_a_rename() {
        let dir = Scratch::new("found");
        std::fs::create_dir_all(dir.join("a/b")).unwrap();
        std::fs::write(dir.join("a/file"), "x").unwrap();
        let open = |path: &str| {
            let path = dir.join(path);
            rustix::fs::open(path, OFlags::PATH | OFlags::NOFOLLOW, Mode::empty()).unwrap()
        };
        let root = open("");
        let handle = handle_of(get(root.as_fd(), open("a/file").as_fd()).unwrap());
        std::fs::rename(dir.join("a/file"), dir.join("a/b/moved")).unwrap();
        assert_eq!(handle_of(get(root.as_fd(), open("a/b/moved").as_fd()).unwrap()), handle);
        let found = |opened: Outcome<PathDone>| match opened {
            Ok(PathDone::Walked(stats, Ok(file))) => {
                descriptor::close(file.0);
                Ok(stats[0].inode)
            }
            Ok(other) => panic!("{other:?} is no file"),
            Err(error) => Err(Error::from(error)),
        };
        let inode = attrs::stat(open("a/b/moved").as_fd()).unwrap().inode;
        assert_eq!(found(super::open(root.as_fd(), &handle)), Ok(inode));
        let top = rustix::fs::open(&dir.0, OFlags::RDONLY, Mode::empty()).unwrap();
        let searched = search(top.as_fd(), inode, &handle).expect("it is there");
        assert_eq!(attrs::stat(searched.as_fd()).unwrap().inode, inode);
        drop(searched);
        std::fs::remove_file(dir.join("a/b/moved")).unwrap();
        assert_eq!(found(super::open(root.as_fd(), &handle)), Err(Error::Stale));
        assert!(search(top.as_fd(), inode, &handle).is_none());
    }

    #[test]
    fn malformed_handles_are_stale() {
        let dir = Scratch::new("malformed");
        let root = rustix::fs::open(&dir.0, OFlags::PATH, Mode::empty()).unwrap();
        for identifier in [&b""[..], b"short", b"\0\0\0\0\0\0\0\x01", b"\0\0\0\0\0\0\0\x01\x01junk"]
        {
            let handle = FileHandle::new(identifier).unwrap();
            let opened = super::open(root.as_fd(), &handle).map_err(Error::from);
            assert_eq!(opened.map(|_| ()), Err(Error::Stale), "{identifier:?}");
        }
    }
}
