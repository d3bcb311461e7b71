//! Operations by the replica they belong to, as far as they may still be asked for.

use super::{Entry, Label, ReplicaId, Vector};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Operations of one origin that wait for others to come before them, at most; more are dropped,
/// and come again.
const EARLY_MAX: usize = 4096;

/// The operations of one replica.
#[derive(Clone, Debug)]
struct Origin<O> {
    /// All up to this number are done everywhere, and forgotten.
    forgotten: u64,
    /// Those that follow.
    entries: VecDeque<Arc<Entry<O>>>,
    /// All up to this number are placed.
    done: u64,
}

impl<O> Origin<O> {
    fn from(forgotten: u64) -> Origin<O> {
        Origin { forgotten, entries: VecDeque::new(), done: forgotten }
    }

    fn received(&self) -> u64 {
        self.forgotten + self.entries.len() as u64
    }

    fn get(&self, number: u64) -> Option<&Arc<Entry<O>>> {
        let index = number.checked_sub(self.forgotten + 1)?;
        self.entries.get(usize::try_from(index).ok()?)
    }
}

/// What came of an operation that was heard of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Receipt {
    /// It is kept.
    New,
    /// It was known.
    Known,
    /// One before it has not come yet.
    Early,
}

/// The operations of all replicas.
#[derive(Clone, Debug)]
pub(super) struct Origins<O>(BTreeMap<ReplicaId, Origin<O>>);

impl<O> Origins<O> {
    /// All up to `base` are done everywhere.
    pub(super) fn new(members: impl IntoIterator<Item = ReplicaId>, base: &Vector) -> Origins<O> {
        Origins(members.into_iter().map(|id| (id, Origin::from(base.get(id)))).collect())
    }

    /// Keeps an operation, if it is the next of its origin.
    pub(super) fn receive(&mut self, entry: Arc<Entry<O>>) -> Receipt {
        let Some(origin) = self.0.get_mut(&entry.label.origin) else { return Receipt::Early };
        let early = origin.received() - origin.done;
        if entry.number <= origin.received() {
            return Receipt::Known;
        }
        if entry.number > origin.received() + 1 || early >= EARLY_MAX as u64 {
            return Receipt::Early;
        }
        origin.entries.push_back(entry);
        Receipt::New
    }

    /// An operation that is received, and has everything done that must be done before it. It
    /// counts as done from now on.
    pub(super) fn take_ready(&mut self) -> Option<Arc<Entry<O>>> {
        let done = self.done();
        let mut origins = self.0.values_mut();
        origins.find_map(|origin| {
            let next = origin.get(origin.done + 1).filter(|next| done.covers(&next.after))?.clone();
            origin.done += 1;
            Some(next)
        })
    }

    /// What is placed.
    pub(super) fn done(&self) -> Vector {
        self.0.iter().map(|(id, origin)| (*id, origin.done)).collect()
    }

    /// The label of an operation that is not forgotten.
    pub(super) fn label(&self, of: ReplicaId, number: u64) -> Option<Label> {
        Some(self.0.get(&of)?.get(number)?.label)
    }

    /// The operations that follow `from`, up to what is in `to`: at most so many, those of each
    /// origin in order.
    pub(super) fn between(&self, from: &Vector, to: &Vector, most: usize) -> Vec<Arc<Entry<O>>> {
        let of_origin = |(id, origin): (&ReplicaId, &Origin<O>)| {
            let first = from.get(*id).max(origin.forgotten) + 1;
            (first..=to.get(*id)).map_while(|n| origin.get(n).cloned()).collect::<Vec<_>>()
        };
        self.0.iter().flat_map(of_origin).take(most).collect()
    }

    /// Everything up to here is done everywhere.
    pub(super) fn forget(&mut self, everywhere: &Vector) {
        for (id, origin) in &mut self.0 {
            let to = everywhere.get(*id);
            while origin.forgotten < to && origin.entries.pop_front().is_some() {
                origin.forgotten += 1;
            }
        }
    }

    /// What is done everywhere, as far as this replica knew at any time.
    pub(super) fn forgotten(&self) -> Vector {
        self.0.iter().map(|(id, origin)| (*id, origin.forgotten)).collect()
    }

    /// How many are kept.
    pub(super) fn len(&self) -> usize {
        self.0.values().map(|origin| origin.entries.len()).sum()
    }
}
