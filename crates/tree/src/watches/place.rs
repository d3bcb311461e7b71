//! Watched directories, and their entries.

use super::text::join;
use crate::locks::FileKey;
use crate::request::NodeId;
use base::{Kind, Name, Stat};
use std::collections::BTreeSet;

/// An entry of a watched directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Child {
    pub(super) key: FileKey,
    pub(super) kind: Kind,
}

impl Child {
    pub(super) fn of(stat: &Stat) -> Child {
        Child { key: (stat.device, stat.inode), kind: stat.kind }
    }
}

/// Reason why a place is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// Its path was given.
    Given,
    /// It was there when everything beneath a path began to be watched.
    Listed,
    /// It was created since, so that all its entries are new.
    Created,
}

/// A watched directory, or the directory of a file that is watched by its own path.
#[derive(Debug)]
pub(super) struct WatchedDirectory {
    pub(super) path: Vec<u8>,
    pub(super) origin: Origin,
    /// Its node and identity, when it has been opened.
    pub(super) found: Option<(NodeId, FileKey)>,
    /// The entry that is watched, if it is the only one: a file by its own path, which is `path`.
    pub(super) only: Option<Name>,
    /// Whether directories in it are watched, too.
    pub(super) is_deep: bool,
    /// Entries to look at.
    pub(super) changed: BTreeSet<Name>,
    /// Whether it is no longer watched: its children are removed step by step.
    pub(super) is_dropped: bool,
    /// Number of places that there were before it.
    pub(super) serial: u64,
}

/// New contents or attributes of a file.
#[derive(Debug, Default)]
pub(super) struct Touched {
    pub(super) is_written: bool,
    /// Name up to which it was reported.
    pub(super) until: Option<(usize, Name)>,
}

impl WatchedDirectory {
    /// Returns the path of an entry.
    pub(super) fn path_of(&self, name: &Name) -> Vec<u8> {
        if self.only.is_some() { self.path.clone() } else { join(&self.path, name) }
    }
}
