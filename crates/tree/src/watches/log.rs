//! The last changes of all files, and the watches that wait for changes of each.

use crate::change::Change;
use crate::locks::FileKey;
use base::op::ClientKey;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Maximum number of changes that are kept: a reader that is further behind has lost some.
pub(super) const CHANGES_MAX: usize = 8192;

/// Maximum memory of all watches, in bytes.
pub(crate) const BYTES_MAX: usize = 128 << 20;

/// Part of all that is the most for one client.
pub(super) const CLIENT_PART: usize = 4;

/// Shared by all watches.
#[derive(Debug, Default)]
pub(super) struct Log {
    /// The last changes, with the connections that made them.
    changes: VecDeque<(u32, Change)>,
    /// Number of the first of these.
    first: u64,
    /// Files of each watch.
    interest: BTreeSet<(FileKey, usize)>,
    /// Memory of all watches, and of those of each client, in bytes.
    bytes: usize,
    by_client: BTreeMap<ClientKey, usize>,
}

impl Log {
    /// Returns the number of the next change.
    pub(super) fn end(&self) -> u64 {
        self.first + self.changes.len() as u64
    }

    /// Adds a change made by `origin`.
    pub(super) fn push(&mut self, origin: u32, change: Change) {
        if self.changes.len() == CHANGES_MAX {
            self.changes.pop_front();
            self.first += 1;
        }
        self.changes.push_back((origin, change));
    }

    /// Drops all changes, as if there were too many.
    pub(super) fn lose(&mut self) {
        self.first = self.end() + 1;
        self.changes.clear();
    }

    /// Returns the changes from number `from` on with their origins, or `None` if some were
    /// dropped.
    pub(super) fn since(&self, from: u64) -> Option<impl Iterator<Item = &(u32, Change)>> {
        let skipped = usize::try_from(from.checked_sub(self.first)?).ok()?;
        Some(self.changes.iter().skip(skipped))
    }

    /// Returns whether the contents or attributes of a file may have changed since number `from`.
    pub(super) fn may_have_changed(&self, file: FileKey, from: u64) -> bool {
        let is_of = |change: &Change| match change {
            Change::Contents(key) | Change::Attributes(key) => *key == file,
            Change::Entry(..) | Change::Moved(_) => false,
        };
        self.since(from).is_none_or(|mut changes| changes.any(|(_, change)| is_of(change)))
    }

    /// Registers that a watch waits for changes of a file.
    pub(super) fn add(&mut self, file: FileKey, watch: usize) {
        self.interest.insert((file, watch));
    }

    /// Ends [`Log::add`].
    pub(super) fn remove(&mut self, file: FileKey, watch: usize) {
        let known = self.interest.remove(&(file, watch));
        assert!(known, "it was added");
    }

    /// Returns the watches that wait for changes of a file.
    pub(super) fn watches_of(&self, file: FileKey) -> Vec<usize> {
        let range = self.interest.range((file, 0)..=(file, usize::MAX));
        range.map(|(_, watch)| *watch).collect()
    }

    /// Counts memory of a client's watches; [`Log::release`] ends it.
    pub(super) fn hold(&mut self, client: ClientKey, bytes: usize) {
        self.bytes += bytes;
        *self.by_client.entry(client).or_insert(0) += bytes;
    }

    pub(super) fn release(&mut self, client: ClientKey, bytes: usize) {
        let held = self.by_client.entry(client).or_insert(0);
        assert!(*held >= bytes, "it was held");
        *held -= bytes;
        if *held == 0 {
            self.by_client.remove(&client);
        }
        self.bytes -= bytes;
    }

    /// Returns whether a client's watches may not hold `more` bytes.
    pub(super) fn is_full(&self, client: ClientKey, more: usize) -> bool {
        let held = self.by_client.get(&client).copied().unwrap_or(0);
        self.bytes + more > BYTES_MAX || held + more > BYTES_MAX / CLIENT_PART
    }

    /// Returns the memory of all watches, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn check(&self) {
        assert_eq!(self.bytes, self.by_client.values().sum::<usize>(), "each is a client's");
    }
}
