//! Search of a served directory for files by their inode numbers.
//!
//! One walk through the directory serves all requests that arrived before it began: it records the
//! *place* of every file, its name and the inode number of its directory, and a place counts only
//! if the file is still there. Requests wait in a lane of their own ([`Lane::Searching`]) without
//! occupying other threads. A file that the walk has not found has gone, for those who asked before
//! it began; a later request causes another walk.

use super::{Outcome, PathContext, attrs};
use crate::errno::StepError;
use crate::pool::lanes::Lane;
use rustix::fd::{AsFd as _, BorrowedFd, OwnedFd};
use rustix::fs::{FileType, Mode, OFlags, RawDir, ResolveFlags};
use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Maximum number of entries looked at by one walk.
const ENTRIES_MAX: usize = 1 << 20;

/// Maximum memory of the places of one served directory, bytes.
const BYTES_MAX: usize = 64 << 20;

/// Memory of a place beside its name, bytes.
const PLACE_SIZE: usize = 80;

/// Maximum depth of a file below the served directory.
const DEPTH_MAX: usize = 2048;

/// Size of one request for entries, bytes.
const KERNEL_BYTES: usize = 32 << 10;

/// Device and inode number of a served directory.
type Top = (u64, u64);

/// Searches of all served directories.
#[derive(Debug, Default)]
pub(crate) struct Searches {
    indexes: Mutex<BTreeMap<Top, SharedIndex>>,
    /// Number of walks begun.
    begun: AtomicU64,
}

impl Searches {
    /// Returns the number of walks begun.
    pub(crate) fn begun(&self) -> u64 {
        self.begun.load(Ordering::SeqCst)
    }

    fn index(&self, top: Top) -> SharedIndex {
        Arc::clone(lock(&self.indexes).entry(top).or_default())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Place of a file: the inode number of its directory, and its name there.
#[derive(Debug)]
struct Location {
    dir: u64,
    name: Box<[u8]>,
}

/// Places of the files of a served directory, as found by its last walk.
#[derive(Debug, Default)]
struct Index {
    places: BTreeMap<u64, Location>,
    /// Memory of the places, bytes.
    bytes: usize,
    /// Number of the last whole walk; zero before the first.
    walk: u64,
}

/// An index, held by the thread that walks or looks up a place.
type SharedIndex = Arc<Mutex<Index>>;

impl Index {
    /// Adds a place, if there is memory for it; returns whether there was.
    fn add(&mut self, inode: u64, dir: u64, name: &[u8]) -> bool {
        let size = PLACE_SIZE + name.len();
        if self.bytes + size > BYTES_MAX {
            return false;
        }
        let before = self.places.insert(inode, Location { dir, name: name.into() });
        self.bytes += size - before.map_or(0, |place| PLACE_SIZE + place.name.len());
        true
    }

    /// Returns the path of a file below the served directory `top`; `None` if it is unknown.
    fn path(&self, top: u64, inode: u64) -> Option<Vec<u8>> {
        let (mut names, mut here) = (Vec::new(), inode);
        while here != top {
            let place = self.places.get(&here).filter(|_| names.len() < DEPTH_MAX)?;
            names.push(&*place.name);
            here = place.dir;
        }
        names.reverse();
        Some(if names.is_empty() { b".".to_vec() } else { names.join(&b'/') })
    }
}

/// The file that is searched for.
pub(super) struct Wanted<'a> {
    pub(super) inode: u64,
    /// Returns whether an open file with this inode number is the one.
    pub(super) is_it: &'a dyn Fn(BorrowedFd<'_>) -> bool,
}

impl Wanted<'_> {
    /// Opens a path beneath the served directory, if the file is there.
    fn open(&self, top: BorrowedFd<'_>, path: &[u8]) -> Option<OwnedFd> {
        open(top, path, OFlags::PATH | OFlags::NOFOLLOW).filter(|fd| (self.is_it)(fd.as_fd()))
    }
}

fn open(top: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> Option<OwnedFd> {
    let resolve = ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH;
    rustix::fs::openat2(top, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve).ok()
}

/// Finds a file in the directory `top`, or beneath it on the same file system.
///
/// # Errors
/// `Elsewhere` if it takes a walk, unless the job is in its lane.
pub(super) fn find(
    context: &PathContext<'_>,
    top: BorrowedFd<'_>,
    wanted: &Wanted<'_>,
) -> Outcome<Option<OwnedFd>> {
    let stat = attrs::stat(top)?;
    let searches = &context.host.searches;
    let index = searches.index((stat.device, stat.inode));
    let known = |index: &Index| wanted.open(top, &index.path(stat.inode, wanted.inode)?);
    let waited = context.admitted.iter().find_map(|lane| match lane {
        Lane::Searching(begun) => Some(*begun),
        Lane::Device(_)
        | Lane::Hidden(_)
        | Lane::Path(_)
        | Lane::Hosts
        | Lane::Users
        | Lane::Freeing => None,
    });
    let Some(arrival) = waited else {
        let arrival = searches.begun();
        // A walk is in progress: its end is awaited in the lane.
        let found = index.try_lock().ok().and_then(|index| known(&index));
        return found.map(Some).ok_or(StepError::Elsewhere(Lane::Searching(arrival)));
    };
    let mut index = lock(&index);
    if let Some(fd) = known(&index) {
        return Ok(Some(fd));
    }
    if index.walk > arrival {
        return Ok(None);
    }
    let number = searches.begun.fetch_add(1, Ordering::SeqCst) + 1;
    *index = Index::default();
    let mut walk = Walk { index: &mut index, top, wanted, found: None, is_full: false };
    walk.run(stat.inode);
    let Walk { found, is_full, .. } = walk;
    if !is_full {
        index.walk = number;
    }
    Ok(found)
}

/// A walk through a served directory.
struct Walk<'a> {
    index: &'a mut Index,
    top: BorrowedFd<'a>,
    wanted: &'a Wanted<'a>,
    found: Option<OwnedFd>,
    /// Whether there was no memory for all places: others may be there that are not known.
    is_full: bool,
}

impl Walk<'_> {
    /// Records the places of all files beneath the directory with this inode number; without
    /// memory for all, ends where the wanted one is found. Directories that cannot be read are
    /// left out.
    fn run(&mut self, top: u64) {
        let mut memory = vec![MaybeUninit::uninit(); KERNEL_BYTES];
        let mut dirs = vec![(top, b".".to_vec())];
        let mut left = ENTRIES_MAX;
        while let Some((dir_inode, path)) = dirs.pop() {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
            let Some(dir) = open(self.top, &path, flags) else { continue };
            let mut entries = RawDir::new(&dir, &mut memory);
            while let Some(Ok(entry)) = entries.next() {
                let name = entry.file_name().to_bytes();
                if matches!(name, b"." | b"..") {
                    continue;
                }
                if left == 0 || self.is_full && self.found.is_some() {
                    return;
                }
                left -= 1;
                let below = || [&path, name].join(&b'/');
                self.pass(entry.ino(), (dir_inode, name), &below);
                if matches!(entry.file_type(), FileType::Directory | FileType::Unknown) {
                    dirs.push((entry.ino(), below()));
                }
            }
        }
    }

    /// Records an entry, and opens it if it is the wanted one.
    fn pass(&mut self, inode: u64, (dir, name): (u64, &[u8]), path: &dyn Fn() -> Vec<u8>) {
        self.is_full |= !self.index.add(inode, dir, name);
        if inode == self.wanted.inode && self.found.is_none() {
            self.found = self.wanted.open(self.top, &path());
        }
    }
}
