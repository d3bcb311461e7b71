//! Operations by the replica they belong to, as far as they may still be asked for.

use super::{Entry, Label, ReplicaId, Vector};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

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
pub(super) struct Origins<O> {
    of: BTreeMap<ReplicaId, Origin<O>>,
    /// What is placed: `done` of each.
    done: Vector,
    /// How many are kept.
    kept: usize,
}

impl<O> Origins<O> {
    /// All up to `base` are done everywhere.
    pub(super) fn new(members: impl IntoIterator<Item = ReplicaId>, base: &Vector) -> Origins<O> {
        let of = members.into_iter().map(|id| (id, Origin::from(base.get(id))));
        let of: BTreeMap<_, _> = of.collect();
        let done = of.iter().map(|(id, origin): (&ReplicaId, &Origin<O>)| (*id, origin.done));
        Origins { done: done.collect(), of, kept: 0 }
    }

    /// From now on there may be operations of these as well.
    pub(super) fn admit(&mut self, ids: impl IntoIterator<Item = ReplicaId>) {
        for id in ids {
            self.of.entry(id).or_insert_with(|| Origin::from(0));
        }
    }

    /// Drops what was received of this one and is not placed.
    pub(super) fn drop_early(&mut self, id: ReplicaId) {
        let Some(origin) = self.of.get_mut(&id) else { return };
        let placed = usize::try_from(origin.done - origin.forgotten).expect("they are kept");
        self.kept -= origin.entries.len() - placed;
        origin.entries.truncate(placed);
    }

    /// Keeps an operation that was heard of, if it is the next of its origin. At most `early_max`
    /// of one origin wait for others to come before them.
    pub(super) fn receive(&mut self, entry: Arc<Entry<O>>, early_max: usize) -> Receipt {
        let Some(origin) = self.of.get_mut(&entry.label.origin) else { return Receipt::Early };
        if entry.number <= origin.received() {
            return Receipt::Known;
        }
        let early = origin.received() - origin.done;
        if entry.number > origin.received() + 1 || early >= early_max as u64 {
            return Receipt::Early;
        }
        origin.entries.push_back(entry);
        self.kept += 1;
        Receipt::New
    }

    /// The next operation of its origin, which has everything before it: our own, or one of the
    /// journal.
    pub(super) fn append(&mut self, entry: Arc<Entry<O>>) {
        let id = entry.label.origin;
        let origin = self.of.get_mut(&id).expect("a member's");
        assert!(origin.received() == origin.done && entry.number == origin.done + 1, "the next");
        origin.entries.push_back(entry);
        origin.done += 1;
        self.done.raise(id, origin.done);
        self.kept += 1;
    }

    /// How many are received of a member.
    pub(super) fn received(&self, id: ReplicaId) -> u64 {
        self.of.get(&id).map_or(0, Origin::received)
    }

    /// The label of the last one that is kept of each.
    pub(super) fn last_labels(&self) -> BTreeMap<ReplicaId, Label> {
        let last =
            |(id, origin): (&ReplicaId, &Origin<O>)| Some((*id, origin.entries.back()?.label));
        self.of.iter().filter_map(last).collect()
    }

    /// Whether this is a member's.
    pub(super) fn knows(&self, id: ReplicaId) -> bool {
        self.of.contains_key(&id)
    }

    /// An operation that is received, and has everything done that must be done before it.
    pub(super) fn first_ready(&self) -> Option<Arc<Entry<O>>> {
        self.of.values().find_map(|origin| {
            let next = origin.get(origin.done + 1);
            next.filter(|next| self.done.covers(&next.after)).cloned()
        })
    }

    /// This one of an origin counts as done from now on.
    pub(super) fn place(&mut self, id: ReplicaId, number: u64) {
        let origin = self.of.get_mut(&id).expect("it was ready");
        origin.done = number;
        self.done.raise(id, number);
    }

    /// What is placed.
    pub(super) fn done(&self) -> &Vector {
        &self.done
    }

    /// The label of an operation that is not forgotten.
    pub(super) fn label(&self, of: ReplicaId, number: u64) -> Option<Label> {
        Some(self.of.get(&of)?.get(number)?.label)
    }

    /// The last operation of a replica with at most this number, and a label below this one, if
    /// there is such; if it is not forgotten.
    pub(super) fn last_before(
        &self,
        bound: Option<Label>,
        of: ReplicaId,
        number: u64,
    ) -> Option<(u64, Label)> {
        let origin = self.of.get(&of)?;
        let below = |entry: &Arc<Entry<O>>| bound.is_none_or(|bound| entry.label < bound);
        let number = match origin.get(number) {
            Some(last) if below(last) => number,
            Some(_) | None => {
                number.min(origin.forgotten + origin.entries.partition_point(below) as u64)
            }
        };
        Some((number, origin.get(number)?.label))
    }

    /// The operations that follow `from`, up to what is in `to`: at most so many, in the order of
    /// their labels. So each comes behind all that must be before it.
    pub(super) fn between(&self, from: &Vector, to: &Vector, most: usize) -> Vec<Arc<Entry<O>>> {
        let of_origin = |(id, origin): (&ReplicaId, &Origin<O>)| {
            let first = from.get(*id).max(origin.forgotten) + 1;
            let numbers = (first..=to.get(*id)).take(most);
            numbers.map_while(|n| origin.get(n).cloned()).collect::<Vec<_>>()
        };
        let mut entries: Vec<_> = self.of.iter().flat_map(of_origin).collect();
        entries.sort_by_key(|entry| entry.label);
        entries.truncate(most);
        entries
    }

    /// Everything up to here is done everywhere.
    pub(super) fn forget(&mut self, everywhere: &Vector) {
        for (id, origin) in &mut self.of {
            let to = everywhere.get(*id);
            while origin.forgotten < to && origin.entries.pop_front().is_some() {
                origin.forgotten += 1;
                self.kept -= 1;
            }
        }
    }

    /// What is done everywhere, as far as this replica knew at any time.
    pub(super) fn forgotten(&self) -> Vector {
        self.of.iter().map(|(id, origin)| (*id, origin.forgotten)).collect()
    }

    /// How many are kept.
    pub(super) fn len(&self) -> usize {
        self.kept
    }
}
