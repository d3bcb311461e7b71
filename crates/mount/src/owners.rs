//! Owners of locks at the server.

use crate::lock;
use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex};

/// Kind of lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Posix,
    Flock,
}

/// Owners of locks, and the process number that the server knows them by: threads and children
/// that share open files share the owner, and must share the number.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    /// By node, kind and owner.
    known: Mutex<BTreeMap<(u64, Kind, u64), u32>>,
    /// Never notified: for pauses.
    pub(crate) pause: (Mutex<()>, Condvar),
}

impl Owners {
    pub(crate) fn process(&self, node: u64, kind: Kind, owner: u64, pid: u32) -> u32 {
        *lock(&self.known).entry((node, kind, owner)).or_insert(pid)
    }

    pub(crate) fn take(&self, node: u64, kind: Kind, owner: u64) -> Option<u32> {
        lock(&self.known).remove(&(node, kind, owner))
    }
}
