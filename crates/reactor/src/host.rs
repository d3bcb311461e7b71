//! What all threads of a reactor know about the host: its devices, its `/proc`, the process.

use crate::identity::Own;
use base::Stat;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags, ResolveFlags};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

/// File systems whose calls end without waiting for anybody else once what they need is in
/// memory (`statfs(2)` magic numbers).
const LOCAL: [u32; 9] = [
    0x0000_ef53, // ext2, ext3, ext4
    0x5846_5342, // xfs
    0x9123_683e, // btrfs
    0xf2f5_2010, // f2fs
    0x0102_1994, // tmpfs
    0x8584_58f6, // ramfs
    0x794c_7630, // overlayfs
    0x2fc1_2fc1, // zfs
    0xca45_1a4e, // bcachefs
];

/// Locks for directories that are being listed; two jobs on one directory must not interleave.
const LISTING_LOCKS: usize = 64;

/// How many paths are remembered as leading to plain files.
const PLAIN_PATHS: usize = 2048;

/// What all threads of a reactor share.
#[derive(Debug)]
pub(crate) struct Host {
    /// The process's own identity.
    pub(crate) own: &'static Own,
    /// `/proc/self/fd`, for opening a handle's file again.
    proc: OwnedFd,
    /// Devices seen so far, and whether each is local. A handful.
    devices: RwLock<Vec<(u64, bool)>>,
    listing: [Mutex<()>; LISTING_LOCKS],
    /// Hashes of paths that led to a plain file or directory the last time.
    plain: Vec<AtomicU64>,
    hasher: RandomState,
}

impl Host {
    /// Looks around, as the server itself.
    ///
    /// # Errors
    /// If `/proc` is not mounted, or the kernel is too old or forbids `openat2(2)`; with the
    /// reason in words.
    pub(crate) fn new() -> io::Result<Host> {
        let own = Own::get()?;
        // The thread may have had another world before.
        own.be_server().map_err(|_| io::Error::from(io::ErrorKind::PermissionDenied))?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let proc = rustix::fs::open("/proc/self/fd", flags, Mode::empty()).map_err(|errno| {
            explain(errno, "/proc is needed to open files by their handles; is it mounted?")
        })?;
        rustix::fs::openat2(&proc, c".", flags, Mode::empty(), ResolveFlags::BENEATH).map_err(
            |errno| explain(errno, "openat2 does not work: the kernel is too old or forbids it"),
        )?;
        Ok(Host {
            own,
            proc,
            devices: RwLock::default(),
            listing: std::array::from_fn(|_| Mutex::new(())),
            plain: (0..PLAIN_PATHS).map(|_| AtomicU64::new(0)).collect(),
            hasher: RandomState::new(),
        })
    }

    /// The directory with a magic link for each open file, named by its number.
    pub(crate) fn proc(&self) -> BorrowedFd<'_> {
        self.proc.as_fd()
    }

    /// Whether a device is known to be local.
    pub(crate) fn is_local(&self, device: u64) -> bool {
        self.known(device) == Some(true)
    }

    fn known(&self, device: u64) -> Option<bool> {
        let devices = self.devices.read().unwrap_or_else(PoisonError::into_inner);
        devices.iter().find(|(known, _)| *known == device).map(|(_, local)| *local)
    }

    /// Finds out whether the device that `fd` is on is local. May wait for the device.
    pub(crate) fn learn(&self, fd: BorrowedFd<'_>, stat: &Stat) {
        if self.known(stat.device).is_some() {
            return;
        }
        let Ok(statfs) = rustix::fs::fstatfs(fd) else { return };
        let magic = (statfs.f_type & 0xffff_ffff) as u32;
        let mut devices = self.devices.write().unwrap_or_else(PoisonError::into_inner);
        devices.push((stat.device, LOCAL.contains(&magic)));
    }

    /// The right to move the position of the open directory with this number.
    pub(crate) fn listing(&self, number: u32) -> MutexGuard<'_, ()> {
        let lock = &self.listing[number as usize % LISTING_LOCKS];
        lock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What stands for a path below a root among the plain ones. Keyed, so that nobody can make
    /// up two paths with the same hash.
    pub(crate) fn path_hash(&self, root: u32, path: &[u8]) -> u64 {
        self.hasher.hash_one((root, path)).max(1)
    }

    /// Whether this path led to a plain file or directory the last time.
    pub(crate) fn was_plain(&self, hash: u64) -> bool {
        self.plain[hash as usize % PLAIN_PATHS].load(Ordering::Relaxed) == hash
    }

    /// Forgets all: a root has got a number that another one may have had.
    pub(crate) fn forget_plain(&self) {
        self.plain.iter().for_each(|slot| slot.store(0, Ordering::Relaxed));
    }

    /// Remembers, or forgets, that this path leads to a plain file or directory.
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
