//! State of the host shared by all threads of a reactor: devices, `/proc`, the process.

use crate::identity::ProcessCredentials;
use crate::mounts::Mounts;
use crate::path::search::Searches;
use crate::pool::lanes::Lane;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, StatxFlags};
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Number of paths remembered as leading to plain files.
const PLAIN_PATHS: usize = 2048;

/// State shared by all threads of a reactor.
#[derive(Debug)]
pub(crate) struct Host {
    /// The process's own identity.
    pub(crate) own: &'static ProcessCredentials,
    /// `/proc/self/fd`, for reopening handles.
    proc: OwnedFd,
    /// The mount table.
    pub(crate) mounts: Mounts,
    /// Locks of open directories being listed; two listings of one must not interleave.
    listing: Mutex<BTreeMap<u32, Arc<Mutex<()>>>>,
    /// Searches for files by their inode numbers.
    pub(crate) searches: Searches,
    /// Hashes of paths that led to a plain file or directory the last time.
    plain: Vec<AtomicU64>,
    hasher: RandomState,
}

impl Host {
    /// Inspects the host, as the server itself.
    ///
    /// # Errors
    /// If `/proc` is not mounted, or the kernel is too old or forbids `openat2(2)`; with a
    /// description of the reason.
    pub(crate) fn new() -> io::Result<Host> {
        let own = ProcessCredentials::get()?;
        // The thread may have had another reactor before.
        own.be_server().map_err(|_| io::Error::from(io::ErrorKind::PermissionDenied))?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let proc = rustix::fs::open("/proc/self/fd", flags, Mode::empty()).map_err(|errno| {
            explain(errno, "/proc is needed to open files by their handles; is it mounted?")
        })?;
        rustix::fs::openat2(&proc, c".", flags, Mode::empty(), ResolveFlags::BENEATH).map_err(
            |errno| explain(errno, "openat2 does not work: the kernel is too old or forbids it"),
        )?;
        let mounts = Mounts::open()
            .map_err(|error| io::Error::new(error.kind(), format!("no mount table: {error}")))?;
        Ok(Host {
            own,
            proc,
            mounts,
            listing: Mutex::default(),
            searches: Searches::default(),
            plain: (0..PLAIN_PATHS).map(|_| AtomicU64::new(0)).collect(),
            hasher: RandomState::new(),
        })
    }

    /// Returns the directory with a magic link for each open file, named by its number.
    pub(crate) fn proc(&self) -> BorrowedFd<'_> {
        self.proc.as_fd()
    }

    /// Returns the lane of operations on an open file or handle; `None` for a local file system.
    /// Does not block on the file system.
    pub(crate) fn lane_of(&self, fd: BorrowedFd<'_>) -> Option<Lane> {
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let stat = rustix::fs::statx(fd, c"", flags, StatxFlags::MNT_ID);
        let table = self.mounts.table();
        match stat.ok().and_then(|stat| table.by_id(stat.stx_mnt_id)) {
            Some(mount) if mount.is_local() => None,
            Some(mount) => Some(Lane::Device(mount.device)),
            // It was unmounted meanwhile.
            None => Some(Lane::Path((*b"an unmounted file system").into())),
        }
    }

    /// Runs `list` with exclusive use of the position of this open directory.
    pub(crate) fn listing<T>(&self, number: u32, list: impl FnOnce() -> T) -> T {
        let lock = Arc::clone(self.all_listings().entry(number).or_default());
        let guard = lock.lock().unwrap_or_else(PoisonError::into_inner);
        let result = list();
        drop(guard);
        let mut all = self.all_listings();
        // The table's reference and this one: nobody else waits for it.
        if Arc::strong_count(&lock) == 2 {
            all.remove(&number);
        }
        drop(all);
        result
    }

    fn all_listings(&self) -> MutexGuard<'_, BTreeMap<u32, Arc<Mutex<()>>>> {
        self.listing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the hash of a path below a root. Keyed, so that clients cannot construct two paths
    /// with the same hash.
    pub(crate) fn path_hash(&self, root: u32, path: &[u8]) -> u64 {
        self.hasher.hash_one((root, path)).max(1)
    }

    /// Returns whether this path led to a plain file or directory the last time.
    pub(crate) fn was_plain(&self, hash: u64) -> bool {
        self.plain[hash as usize % PLAIN_PATHS].load(Ordering::Relaxed) == hash
    }

    /// Forgets all paths: the number of a new root may be that of a former one.
    pub(crate) fn forget_plain(&self) {
        self.plain.iter().for_each(|slot| slot.store(0, Ordering::Relaxed));
    }

    /// Records whether this path leads to a plain file or directory.
    pub(crate) fn set_plain(&self, hash: u64, plain: bool) {
        let slot = &self.plain[hash as usize % PLAIN_PATHS];
        if plain {
            slot.store(hash, Ordering::Relaxed);
        } else if slot.load(Ordering::Relaxed) == hash {
            slot.store(0, Ordering::Relaxed);
        }
    }
}

fn explain(errno: rustix::io::Errno, what: &str) -> io::Error {
    let error = io::Error::from(errno);
    io::Error::new(error.kind(), format!("{what} ({error})"))
}
