//! Operations by origin, as long as peers may need them.

use super::{Amount, Entry, Label, ReplicaId, Vector};
use crate::work::Meter;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Operations of one origin.
#[derive(Clone, Debug)]
struct Origin<O> {
    /// Operations up to this number are done everywhere and dropped.
    forgotten: u64,
    /// Their total size in bytes.
    forgotten_bytes: u64,
    /// Operations after these, each with the cumulative size in bytes.
    entries: VecDeque<(Arc<Entry<O>>, u64)>,
    /// Operations up to this number are placed.
    done: u64,
}

impl<O> Origin<O> {
    fn from(forgotten: u64) -> Origin<O> {
        Origin { forgotten, forgotten_bytes: 0, entries: VecDeque::new(), done: forgotten }
    }

    fn received(&self) -> u64 {
        self.forgotten + self.entries.len() as u64
    }

    fn get(&self, number: u64) -> Option<&Arc<Entry<O>>> {
        let index = number.checked_sub(self.forgotten + 1)?;
        self.entries.get(usize::try_from(index).ok()?).map(|(entry, _)| entry)
    }

    fn push(&mut self, entry: Arc<Entry<O>>, bytes: usize) {
        assert_eq!(entry.number, self.received() + 1, "operations of one origin come in order");
        let bytes = self.received_bytes() + bytes as u64;
        self.entries.push_back((entry, bytes));
    }

    /// Total size of all received operations, in bytes.
    fn received_bytes(&self) -> u64 {
        self.entries.back().map_or(self.forgotten_bytes, |(_, bytes)| *bytes)
    }

    /// Total size of the operations up to this number, in bytes, if they are retained.
    fn bytes(&self, number: u64) -> u64 {
        let Some(behind) = number.checked_sub(self.forgotten + 1) else {
            return self.forgotten_bytes;
        };
        let entry = usize::try_from(behind).ok().and_then(|index| self.entries.get(index));
        entry.map_or_else(|| self.received_bytes(), |(_, bytes)| *bytes)
    }
}

/// Outcome of a received operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Receipt {
    /// Stored.
    New,
    /// Duplicate.
    Known,
    /// Dropped: a predecessor of its origin is missing, or too many wait.
    Early,
}

/// Operations of all origins.
#[derive(Clone, Debug)]
pub(super) struct Origins<O> {
    of: BTreeMap<ReplicaId, Origin<O>>,
    /// Placed operations: `done` of each origin.
    done: Vector,
    /// Retained operations.
    kept: Amount,
    /// Number of users that require retention.
    pins: usize,
}

impl<O> Origins<O> {
    /// Creates the operations of these origins, all done everywhere up to `base`.
    pub(super) fn new(members: impl IntoIterator<Item = ReplicaId>, base: &Vector) -> Origins<O> {
        let of = members.into_iter().map(|id| (id, Origin::from(base.get(id))));
        let of: BTreeMap<_, _> = of.collect();
        let done = of.iter().map(|(id, origin): (&ReplicaId, &Origin<O>)| (*id, origin.done));
        Origins { done: done.collect(), of, kept: Amount::default(), pins: 0 }
    }

    /// Admits further origins.
    pub(super) fn admit(&mut self, ids: impl IntoIterator<Item = ReplicaId>) {
        for id in ids {
            self.of.entry(id).or_insert_with(|| Origin::from(0));
        }
    }

    /// Drops the operations of this origin that are received but not placed.
    pub(super) fn drop_early(&mut self, id: ReplicaId) {
        let Some(origin) = self.of.get_mut(&id) else { return };
        let placed = usize::try_from(origin.done - origin.forgotten).expect("they are kept");
        assert!(placed <= origin.entries.len(), "placed operations were received");
        self.kept.operations -= origin.entries.len() - placed;
        self.kept.bytes -= count(origin.received_bytes() - origin.bytes(origin.done));
        origin.entries.truncate(placed);
    }

    /// Stores a received operation if it is the next of its origin. At most `early_max` of one
    /// origin wait for predecessors.
    pub(super) fn receive(
        &mut self,
        entry: Arc<Entry<O>>,
        bytes: usize,
        early_max: Amount,
    ) -> Receipt {
        let Some(origin) = self.of.get_mut(&entry.label.origin) else { return Receipt::Early };
        if entry.number <= origin.received() {
            return Receipt::Known;
        }
        let early = Amount {
            operations: count(origin.received() - origin.done),
            bytes: count(origin.received_bytes() - origin.bytes(origin.done)),
        };
        if entry.number > origin.received() + 1 || !early.is_below(early_max) {
            return Receipt::Early;
        }
        origin.push(entry, bytes);
        self.kept.add(bytes);
        Receipt::New
    }

    /// Appends and places the next operation of its origin, with all predecessors done: an own
    /// operation, or one of the journal.
    pub(super) fn append(&mut self, entry: Arc<Entry<O>>, bytes: usize) {
        let id = entry.label.origin;
        let origin = self.of.get_mut(&id).expect("a member's");
        assert!(origin.received() == origin.done && entry.number == origin.done + 1, "the next");
        origin.push(entry, bytes);
        origin.done += 1;
        self.done.raise(id, origin.done);
        self.kept.add(bytes);
    }

    /// Number of operations received of an origin.
    pub(super) fn received(&self, id: ReplicaId) -> u64 {
        self.of.get(&id).map_or(0, Origin::received)
    }

    /// Returns the label of the last retained operation of each origin.
    pub(super) fn last_labels(&self) -> BTreeMap<ReplicaId, Label> {
        let last =
            |(id, origin): (&ReplicaId, &Origin<O>)| Some((*id, origin.entries.back()?.0.label));
        self.of.iter().filter_map(last).collect()
    }

    /// Greatest counter of the retained operations.
    pub(super) fn last_counter(&self) -> u64 {
        let last = self.of.values().filter_map(|origin| origin.entries.back());
        last.map(|(entry, _)| entry.label.counter).max().unwrap_or(0)
    }

    /// Reports whether this origin is admitted.
    pub(super) fn knows(&self, id: ReplicaId) -> bool {
        self.of.contains_key(&id)
    }

    /// Returns a received operation with all predecessors done.
    pub(super) fn first_ready(&self) -> Option<Arc<Entry<O>>> {
        self.of.values().find_map(|origin| {
            let next = origin.get(origin.done + 1);
            next.filter(|next| self.done.covers(&next.after)).cloned()
        })
    }

    /// Marks an operation as placed.
    pub(super) fn place(&mut self, id: ReplicaId, number: u64) {
        let origin = self.of.get_mut(&id).expect("it was ready");
        assert_eq!(number, origin.done + 1, "operations of one origin are placed in order");
        assert!(number <= origin.received(), "placed operations were received");
        origin.done = number;
        self.done.raise(id, number);
    }

    /// Returns the placed operations.
    pub(super) fn done(&self) -> &Vector {
        &self.done
    }

    /// Returns the label of a retained operation.
    pub(super) fn label(&self, of: ReplicaId, number: u64) -> Option<Label> {
        Some(self.of.get(&of)?.get(number)?.label)
    }

    /// Returns the last retained operation of an origin up to this number with a label below
    /// `bound`, if there is one.
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
                let before = origin.entries.partition_point(|(entry, _)| below(entry));
                number.min(origin.forgotten + before as u64)
            }
        };
        Some((number, origin.get(number)?.label))
    }

    /// Returns the operations after `from` up to `to`, in label order, so that predecessors come
    /// first. Stops at the limit `most`, which the last operation may exceed in bytes.
    pub(super) fn between(&self, from: &Vector, to: &Vector, most: Amount) -> Vec<Arc<Entry<O>>> {
        let of_origin = |(id, origin): (&ReplicaId, &Origin<O>)| {
            let first = from.get(*id).max(origin.forgotten) + 1;
            let begin = origin.bytes(first - 1);
            let numbers = (first..=to.get(*id)).take(most.operations);
            let fits = numbers.take_while(|n| origin.bytes(n - 1) - begin < most.bytes as u64);
            fits.map_while(|n| origin.get(n).cloned()).collect::<Vec<_>>()
        };
        let mut entries: Vec<_> = self.of.iter().flat_map(of_origin).collect();
        entries.sort_by_key(|entry| entry.label);
        let mut before = Amount::default();
        let fits = |entry: &Arc<Entry<O>>| {
            let (fits, origin) = (before.is_below(most), &self.of[&entry.label.origin]);
            before.add(count(origin.bytes(entry.number) - origin.bytes(entry.number - 1)));
            fits
        };
        entries.into_iter().take_while(fits).collect()
    }

    /// Size of a retained operation, in bytes.
    pub(super) fn size(&self, of: ReplicaId, number: u64) -> usize {
        let size =
            |origin: &Origin<O>| origin.bytes(number).saturating_sub(origin.bytes(number - 1));
        self.of.get(&of).map_or(0, |origin| count(size(origin)))
    }

    /// Amount of operations after `from` up to `to`.
    pub(super) fn amount(&self, from: &Vector, to: &Vector) -> Amount {
        let each = to.iter().filter_map(|(id, last)| {
            let (origin, first) = (self.of.get(&id)?, from.get(id));
            let bytes = origin.bytes(last).saturating_sub(origin.bytes(first));
            Some((last.saturating_sub(first), bytes))
        });
        each.fold(Amount::default(), |sum, (operations, bytes)| Amount {
            operations: sum.operations.saturating_add(count(operations)),
            bytes: sum.bytes.saturating_add(count(bytes)),
        })
    }

    /// Drops operations done everywhere, as far as the meter allows. Returns whether all are
    /// dropped. Nothing is dropped while pinned.
    pub(super) fn forget(&mut self, everywhere: &Vector, meter: &mut Meter) -> bool {
        if self.is_pinned() {
            return false;
        }
        for (id, origin) in &mut self.of {
            let to = everywhere.get(*id);
            while origin.forgotten < to
                && let Some((_, bytes)) = origin.entries.front()
            {
                if !meter.has_left() {
                    return false;
                }
                meter.spend(1);
                assert!(origin.forgotten < origin.done, "forgotten operations are done");
                origin.forgotten += 1;
                self.kept.operations -= 1;
                self.kept.bytes -= count(bytes - origin.forgotten_bytes);
                origin.forgotten_bytes = *bytes;
                origin.entries.pop_front();
            }
        }
        true
    }

    /// Retains everything until the matching unpin.
    pub(super) fn pin(&mut self) {
        self.pins += 1;
    }

    pub(super) fn is_pinned(&self) -> bool {
        self.pins > 0
    }

    pub(super) fn unpin(&mut self) {
        assert!(self.pins > 0, "a pin is taken out once");
        self.pins -= 1;
    }

    /// Operations known at some time to be done everywhere.
    pub(super) fn forgotten(&self) -> Vector {
        self.of.iter().map(|(id, origin)| (*id, origin.forgotten)).collect()
    }

    /// Asserts that the operations of each origin are consecutive, and that counts are exact.
    pub(super) fn check(&self) {
        let mut kept = Amount::default();
        for (id, origin) in &self.of {
            assert!(origin.forgotten <= origin.done, "forgotten operations are done");
            assert!(origin.done <= origin.received(), "done operations were received");
            assert_eq!(self.done.get(*id), origin.done, "done operations are known of each");
            let (mut number, mut bytes, mut label) =
                (origin.forgotten, origin.forgotten_bytes, None);
            for (entry, upto) in &origin.entries {
                number += 1;
                assert_eq!((entry.label.origin, entry.number), (*id, number), "it is the next");
                assert!(label < Some(entry.label), "later operations have greater labels");
                assert!(bytes <= *upto, "bytes are added up");
                (bytes, label) = (*upto, Some(entry.label));
            }
            kept.operations += origin.entries.len();
            kept.bytes += count(bytes - origin.forgotten_bytes);
        }
        assert_eq!(self.kept.operations, kept.operations, "kept entries are counted");
        assert_eq!(self.kept.bytes, kept.bytes, "its bytes are counted");
    }

    /// Amount of retained operations.
    pub(super) fn kept(&self) -> Amount {
        self.kept
    }
}

/// Converts a difference of sizes in memory.
fn count(difference: u64) -> usize {
    usize::try_from(difference).unwrap_or(usize::MAX)
}
