//! Files and directories that programs have open.

use crate::errno::{self, Errno};
use crate::link::Fid;
use crate::listing::Listing;
use crate::lock;
use crate::store::Content;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Open file.
#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) node: u64,
    /// User that attached.
    pub(crate) user: u32,
    /// Flags of open(2).
    pub(crate) flags: u32,
    /// Open fid, of the connection that it was last used with. None was needed yet if what is read
    /// was sent ahead.
    pub(crate) fid: Mutex<Option<Arc<Fid>>>,
    /// Contents that were sent ahead.
    pub(crate) content: Option<Arc<Content>>,
    /// How often its node had got another name by another client when it was opened.
    pub(crate) moves: u64,
    /// How often it was found open without a fid.
    pub(crate) lasts: AtomicU64,
    /// Whether a lock was taken through it. It cannot be opened again on another connection.
    pub(crate) locked: AtomicBool,
    /// Lost changes of the node that were reported through this handle, or before it was opened.
    pub(crate) losses: AtomicU64,
    /// Read position of a directory.
    pub(crate) listing: Mutex<Listing>,
}

impl Handle {
    pub(crate) fn new(
        node: u64,
        (user, flags): (u32, u32),
        source: Source,
        (losses, moves): (u64, u64),
    ) -> Handle {
        let (fid, content) = match source {
            Source::Fid(fid) => (Some(Arc::new(fid)), None),
            Source::Listing => (None, None),
            Source::Content(content) => (None, Some(content)),
        };
        Handle {
            node,
            user,
            flags,
            fid: Mutex::new(fid),
            content,
            moves,
            lasts: AtomicU64::new(0),
            locked: AtomicBool::new(false),
            losses: AtomicU64::new(losses),
            listing: Mutex::default(),
        }
    }
}

/// Source of what is read from an open file.
#[derive(Debug)]
pub(crate) enum Source {
    /// An open fid.
    Fid(Fid),
    /// The entries of a directory that were sent ahead.
    Listing,
    /// Contents that were sent ahead.
    Content(Arc<Content>),
}

#[derive(Debug, Default)]
struct State {
    open: BTreeMap<u64, Arc<Handle>>,
    last: u64,
}

/// Table of open files.
#[derive(Debug, Default)]
pub(crate) struct Handles(Mutex<State>);

impl Handles {
    /// Adds an open file and returns its number.
    pub(crate) fn add(&self, handle: Handle) -> u64 {
        let mut state = lock(&self.0);
        state.last += 1;
        let number = state.last;
        state.open.insert(number, Arc::new(handle));
        number
    }

    /// Returns an open file.
    ///
    /// # Errors
    /// `EBADF`.
    pub(crate) fn get(&self, number: u64) -> Result<Arc<Handle>, Errno> {
        lock(&self.0).open.get(&number).cloned().ok_or(errno::EBADF)
    }

    /// Removes an open file.
    pub(crate) fn remove(&self, number: u64) -> Option<Arc<Handle>> {
        lock(&self.0).open.remove(&number)
    }

    /// Returns the nodes that are open.
    pub(crate) fn nodes(&self) -> BTreeSet<u64> {
        lock(&self.0).open.values().map(|handle| handle.node).collect()
    }

    /// Returns whether a user has a node open.
    pub(crate) fn has_open(&self, node: u64, user: u32) -> bool {
        let state = lock(&self.0);
        state.open.values().any(|handle| handle.node == node && handle.user == user)
    }

    /// Returns an open fid of a node on a connection, if there is one.
    pub(crate) fn fid_of(&self, node: u64, user: u32, connection: u64) -> Option<Arc<Fid>> {
        let state = lock(&self.0);
        let mut own = state.open.values().filter(|it| it.node == node && it.user == user);
        own.find_map(|handle| {
            lock(&handle.fid).clone().filter(|fid| fid.connection.number == connection)
        })
    }

    /// Returns the files without a fid that were open at the last call already.
    pub(crate) fn lasting(&self) -> Vec<Arc<Handle>> {
        let state = lock(&self.0);
        let without = state.open.values().filter(|handle| lock(&handle.fid).is_none());
        // Once: what cannot be opened is gone.
        let lasting = without.filter(|it| it.lasts.fetch_add(1, Ordering::SeqCst) == 1);
        lasting.cloned().collect()
    }
}
