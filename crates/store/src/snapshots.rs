//! Snapshots: retained roots, and the blocks that only they contain.
//!
//! A snapshot is the checkpoint of its epoch. Blocks that leave the present tree and are not
//! younger than the newest snapshot stay in use; they are recorded in that snapshot's *dead list*.
//! When a snapshot is dropped, its own list alone determines their fate: blocks younger than the
//! previous snapshot are free, the rest goes to that one's list (as in ZFS). So a drop takes time
//! in proportion to the blocks that it frees, in steps, and nothing waits for it.

use crate::btree::Freed;
use crate::little_endian::{u32_at, u64_at};
use crate::page::Ptr;
use crate::{Change, Layout, SnapshotId, Table};
use base::Time;

#[cfg(test)]
mod tests;

/// Table of snapshots: name → epoch, root, date.
pub(crate) const SNAPSHOTS: Table = Table(2);
/// Table of dead lists: epoch of the snapshot, epoch and number of the entry → blocks that left the
/// tree.
pub(crate) const DEAD: Table = Table(3);
/// Table of the epochs of snapshots being dropped, without values.
pub(crate) const DROPPING: Table = Table(4);

/// Maximum number of snapshots of a volume.
pub(crate) const SNAPSHOTS_MAX: usize = 4096;

/// A snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Snapshot {
    pub(crate) name: Vec<u8>,
    pub(crate) id: SnapshotId,
    pub(crate) root: Ptr,
    pub(crate) date: Time,
}

/// All snapshots, in the order of epochs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshots {
    all: Vec<Snapshot>,
    /// Checkpoint that is about to become a snapshot.
    coming: Option<SnapshotId>,
}

impl Snapshots {
    /// Returns the newest snapshot, or the one being made: blocks not younger than it stay in use.
    pub(crate) fn newest(&self) -> Option<SnapshotId> {
        self.coming.or_else(|| self.all.last().map(|snapshot| snapshot.id))
    }

    /// Returns the one being made.
    pub(crate) fn coming(&self) -> Option<SnapshotId> {
        self.coming
    }

    /// Returns the last one before an epoch.
    pub(crate) fn before(&self, epoch: u64) -> Option<SnapshotId> {
        let older = self.all.iter().rev().find(|snapshot| snapshot.id.0 < epoch);
        older.map(|snapshot| snapshot.id)
    }

    pub(crate) fn get(&self, id: SnapshotId) -> Option<&Snapshot> {
        self.all.iter().find(|snapshot| snapshot.id == id)
    }

    pub(crate) fn named(&self, name: &[u8]) -> Option<&Snapshot> {
        self.all.iter().find(|snapshot| snapshot.name == name)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Snapshot> {
        self.all.iter()
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Prevents blocks of this epoch from being freed.
    pub(crate) fn expect(&mut self, id: SnapshotId) {
        assert!(self.coming.is_none(), "snapshots are made one after the other");
        self.coming = Some(id);
    }

    /// Ends the making of the expected one, with or without success.
    pub(crate) fn settle(&mut self, snapshot: Option<Snapshot>) {
        self.coming = None;
        self.all.extend(snapshot);
        self.all.sort_by_key(|snapshot| snapshot.id);
    }

    pub(crate) fn remove(&mut self, id: SnapshotId) {
        self.all.retain(|snapshot| snapshot.id != id);
    }
}

impl Snapshot {
    /// Encodes the snapshot: `epoch, root (24), seconds, nanoseconds (4)`.
    pub(crate) fn to_change(&self) -> Change {
        let mut value = Vec::with_capacity(44);
        value.extend(self.id.0.to_le_bytes());
        value.extend(self.root.encode());
        value.extend(self.date.secs.to_le_bytes());
        value.extend(self.date.nanos.to_le_bytes());
        Change::Put { table: SNAPSHOTS, key: self.name.clone(), value }
    }

    pub(crate) fn decode(name: &[u8], value: &[u8]) -> Option<Snapshot> {
        if value.len() != 44 {
            return None;
        }
        let root = Ptr::decode(&value[8..32]);
        let date = Time { secs: u64_at(value, 32) as i64, nanos: u32_at(value, 40) };
        (root.frame().is_none()).then(|| Snapshot {
            name: name.to_vec(),
            id: SnapshotId(u64_at(value, 0)),
            root,
            date,
        })
    }
}

/// Returns the key of an entry of a snapshot's dead list.
pub(crate) fn dead_key(owner: u64, epoch: u64, number: u32) -> Vec<u8> {
    let mut key = owner.to_be_bytes().to_vec();
    key.extend(epoch.to_be_bytes());
    key.extend(number.to_be_bytes());
    key
}

/// Returns the maximum number of runs in one entry.
pub(crate) fn chunk_max(layout: &Layout) -> usize {
    (layout.inline_max() - 24) / RUN
}

/// Size of one run, bytes: block, birth, count.
const RUN: usize = 20;

pub(crate) fn encode_dead(runs: &[Freed]) -> Vec<u8> {
    let mut value = Vec::with_capacity(runs.len() * RUN);
    for run in runs {
        value.extend(run.at.to_le_bytes());
        value.extend(run.birth.to_le_bytes());
        value.extend(run.count.to_le_bytes());
    }
    value
}

pub(crate) fn decode_dead(value: &[u8]) -> Option<Vec<Freed>> {
    let whole = value.len().is_multiple_of(RUN);
    let runs = value.chunks_exact(RUN).map(|run| Freed {
        at: u64_at(run, 0),
        birth: u64_at(run, 8),
        count: u32_at(run, 16),
    });
    whole.then(|| runs.collect())
}

/// Returns the changes of one step of a drop, which processes one entry of the dead list.
pub(crate) fn reap(key: &[u8], runs: &[Freed], before: Option<SnapshotId>) -> Vec<Change> {
    let oldest = before.map_or(0, |id| id.0);
    let (free, kept): (Vec<Freed>, Vec<Freed>) = runs.iter().partition(|run| run.birth > oldest);
    let mut changes = vec![Change::Delete { table: DEAD, key: key.to_vec() }];
    changes.extend(free.iter().map(|run| Change::Free { at: run.at, count: run.count }));
    if !kept.is_empty() {
        let mut key = key.to_vec();
        key[..8].copy_from_slice(&oldest.to_be_bytes());
        changes.push(Change::Put { table: DEAD, key, value: encode_dead(&kept) });
    }
    changes
}
