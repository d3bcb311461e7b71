//! Persistent identities of files (`name_to_handle_at(2)`).
//!
//! Opening a file by its identity needs `CAP_DAC_READ_SEARCH` and a file system that can be
//! exported. Without either the served directory is searched for its inode number ([`search`]).
#![allow(unsafe_code)]

use super::search::{self, Wanted};
use super::{Outcome, PathContext, attrs};
use crate::descriptor;
use base::op::{File, PathDone};
use base::{Error, FileHandle, Stat};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

/// Size of the inode number in an identifier, bytes.
const INODE_SIZE: usize = 8;

/// Maximum size of the kernel's handle, bytes: what fits behind inode number and type.
const KERNEL_MAX: usize = base::FILE_HANDLE_MAX - base::TAG_SIZE - INODE_SIZE - 1;

/// Type of a handle of a file system that has none. Types of the kernel are below it.
const NO_TYPE: u8 = u8::MAX;

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
        Some(Ok(fd)) => Some(fd),
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

/// Returns whether an open file has an identity. The tag in front belongs to the name space.
fn is_file_of(fd: BorrowedFd<'_>, handle: &FileHandle) -> bool {
    let stat = attrs::stat(fd);
    stat.is_ok_and(|stat| identity(fd, &stat).identifier() == handle.identifier())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Host;
    use crate::memory::Memory;
    use crate::path::{Performed, Task, perform};
    use crate::pool::lanes::Lane;
    use base::Caller;
    use base::op::{NOBODY, PathOp};
    use rustix::thread::{CapabilitySet, CapabilitySets};
    use std::path::{Path, PathBuf};

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

    /// Runs a test in a thread that may not open files by handle.
    fn unprivileged(test: fn()) {
        let run = move || {
            let none = CapabilitySet::empty();
            let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
            rustix::thread::set_capabilities(None, sets).unwrap();
            test();
        };
        std::thread::spawn(run).join().unwrap();
    }

    /// A served directory.
    struct Served {
        dir: Scratch,
        host: Host,
        root: File,
    }

    impl Served {
        fn new(name: &str) -> Served {
            let host = Host::new().unwrap();
            let dir = Scratch::new(name);
            let root = File(descriptor::release(handle(&dir.0)));
            Served { dir, host, root }
        }

        fn handle(&self, path: &str) -> FileHandle {
            let root = descriptor::file(self.root).unwrap();
            handle_of(get(root, handle(&self.dir.join(path)).as_fd()).unwrap())
        }

        fn perform(&self, handle: FileHandle, lanes: &[Lane]) -> Performed {
            let op = PathOp::OpenHandle { root: self.root, handle };
            let task = Task { caller: Caller::Server, asker: NOBODY, within: None, op };
            perform(&self.host, &mut Memory::default(), (lanes, false), &task)
        }

        /// Returns the lane in which a request for this handle waits, if it must.
        fn lane(&self, handle: FileHandle) -> Option<Lane> {
            match self.perform(handle, &[]) {
                Performed::Elsewhere(lane) => Some(lane),
                Performed::Done(done) => {
                    found(done).unwrap();
                    None
                }
                Performed::Lengthy => panic!("it has no steps to count"),
            }
        }

        /// Returns the inode number of the file that is found by one who waits in this lane.
        fn wait(&self, handle: FileHandle, lane: &Lane) -> Result<u64, Error> {
            let Performed::Done(done) = self.perform(handle, &[lane.clone()]) else {
                panic!("it was admitted");
            };
            found(done)
        }

        fn inode(&self, path: &str) -> u64 {
            attrs::stat(handle(&self.dir.join(path)).as_fd()).unwrap().inode
        }
    }

    impl Drop for Served {
        fn drop(&mut self) {
            descriptor::close(self.root.0);
        }
    }

    fn handle(path: &Path) -> OwnedFd {
        rustix::fs::open(path, OFlags::PATH | OFlags::NOFOLLOW, Mode::empty()).unwrap()
    }

    fn found(done: Result<PathDone, Error>) -> Result<u64, Error> {
        match done? {
            PathDone::Walked(stats, Ok(file)) => {
                descriptor::close(file.0);
                Ok(stats[0].inode)
            }
            other => panic!("{other:?} is no file"),
        }
    }

    #[test]
    fn files_are_found_by_their_handles_after_a_rename() {
        let dir = Scratch::new("found");
        std::fs::create_dir_all(dir.join("a/b")).unwrap();
        std::fs::write(dir.join("a/file"), "x").unwrap();
        let root = handle(&dir.0);
        let file = handle_of(get(root.as_fd(), handle(&dir.join("a/file")).as_fd()).unwrap());
        std::fs::rename(dir.join("a/file"), dir.join("a/b/moved")).unwrap();
        let moved = handle(&dir.join("a/b/moved"));
        assert_eq!(handle_of(get(root.as_fd(), moved.as_fd()).unwrap()), file);
        let (host, root) = (Host::new().unwrap(), File(descriptor::release(root)));
        let open = || {
            let op = PathOp::OpenHandle { root, handle: file };
            let task = Task { caller: Caller::Server, asker: NOBODY, within: None, op };
            let lanes = [Lane::Searching(host.searches.begun())];
            match perform(&host, &mut Memory::default(), (&lanes, false), &task) {
                Performed::Done(done) => found(done),
                other => panic!("{other:?} by who may wait"),
            }
        };
        assert_eq!(open(), Ok(attrs::stat(moved.as_fd()).unwrap().inode));
        drop(moved);
        std::fs::remove_file(dir.join("a/b/moved")).unwrap();
        assert_eq!(open(), Err(Error::Stale));
        descriptor::close(root.0);
    }

    #[test]
    fn handles_that_wait_share_one_search() {
        unprivileged(share_one_search);
    }

    fn share_one_search() {
        let served = Served::new("shared");
        let paths: Vec<String> = (0..300).map(|n| format!("d{}/e/f{n}", n % 7)).collect();
        for path in &paths {
            std::fs::create_dir_all(served.dir.join(path).parent().unwrap()).unwrap();
            std::fs::write(served.dir.join(path), "x").unwrap();
        }
        let all: Vec<(&str, FileHandle)> =
            paths.iter().map(|path| (path.as_str(), served.handle(path))).collect();
        let gone = served.handle("d3/e/f3");
        std::fs::remove_file(served.dir.join("d3/e/f3")).unwrap();
        // A tag in front belongs to the name space.
        let waiting = all.iter().map(|(path, handle)| (*path, handle.with_tag([128, 1, 2, 3])));
        let waiting: Vec<_> = waiting.map(|(path, it)| (path, it, served.lane(it))).collect();
        for (path, handle, lane) in waiting {
            let found = served.wait(handle, &lane.expect("nothing was searched yet"));
            match path {
                "d3/e/f3" => assert_eq!(found, Err(Error::Stale)),
                path => assert_eq!(found, Ok(served.inode(path))),
            }
        }
        assert_eq!(served.host.searches.begun(), 1);
        // Later requests need none, also in a directory that was renamed within.
        std::fs::rename(served.dir.join("d4"), served.dir.join("d5/d4")).unwrap();
        assert!(served.lane(all[5].1).is_none());
        let lane = served.lane(all[4].1).expect("it is not where it was");
        assert_eq!(served.wait(all[4].1, &lane), Ok(served.inode("d5/d4/e/f4")));
        assert_eq!(served.host.searches.begun(), 2);
        assert!(all.iter().filter(|(path, _)| *path != "d3/e/f3").all(|it| served.lane(it.1).is_none()));
        // Files made since are searched for, as are those that have gone.
        std::fs::write(served.dir.join("new"), "x").unwrap();
        for (handle, expected) in
            [(served.handle("new"), Ok(served.inode("new"))), (gone, Err(Error::Stale))]
        {
            let lane = served.lane(handle).expect("it was not found by the last search");
            assert_eq!(served.wait(handle, &lane), expected);
        }
        assert_eq!(served.host.searches.begun(), 4);
    }

    #[test]
    fn malformed_handles_are_stale() {
        unprivileged(refuse_malformed);
    }

    fn refuse_malformed() {
        let served = Served::new("malformed");
        for identifier in [&b""[..], b"short", b"\0\0\0\0\0\0\0\x01", b"\0\0\0\0\0\0\0\x01\x01junk"]
        {
            let handle = FileHandle::new(identifier).unwrap();
            let lane = Lane::Searching(served.host.searches.begun());
            assert_eq!(served.wait(handle, &lane), Err(Error::Stale), "{identifier:?}");
        }
    }
}
