//! Operations by the replica they belong to, as far as they may still be asked for.

use super::{Amount, Entry, Label, ReplicaId, Vector};
use crate::work::Meter;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// The operations of one replica.
#[derive(Clone, Debug)]
struct Origin<O> {
    /// All up to this number are done everywhere, and forgotten.
    forgotten: u64,
    /// How many bytes they took.
    forgotten_bytes: u64,
    /// Those that follow, each with how many bytes all up to it take.
    entries: VecDeque<(Arc<Entry<O>>, u64)>,
    /// All up to this number are placed.
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

    /// How many bytes all that are received take.
    fn received_bytes(&self) -> u64 {
        self.entries.back().map_or(self.forgotten_bytes, |(_, bytes)| *bytes)
    }

    /// How many bytes all up to this one take, as far as they are kept.
    fn bytes(&self, number: u64) -> u64 {
        let Some(behind) = number.checked_sub(self.forgotten + 1) else {
            return self.forgotten_bytes;
        };
        let entry = usize::try_from(behind).ok().and_then(|index| self.entries.get(index));
        entry.map_or_else(|| self.received_bytes(), |(_, bytes)| *bytes)
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
    /// What is kept.
    kept: Amount,
    /// How many need that nothing is forgotten.
    pins: usize,
}

impl<O> Origins<O> {
    /// All up to `base` are done everywhere.
    pub(super) fn new(members: impl IntoIterator<Item = ReplicaId>, base: &Vector) -> Origins<O> {
        let of = members.into_iter().map(|id| (id, Origin::from(base.get(id))));
        let of: BTreeMap<_, _> = of.collect();
        let done = of.iter().map(|(id, origin): (&ReplicaId, &Origin<O>)| (*id, origin.done));
        Origins { done: done.collect(), of, kept: Amount::default(), pins: 0 }
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
        assert!(placed <= origin.entries.len(), "what is placed was received");
        self.kept.operations -= origin.entries.len() - placed;
        self.kept.bytes -= count(origin.received_bytes() - origin.bytes(origin.done));
        origin.entries.truncate(placed);
    }

    /// Keeps an operation of so many bytes that was heard of, if it is the next of its origin. At
    /// most so much of one origin waits for others to come before it.
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

    /// The next operation of its origin, which has everything before it: our own, or one of the
    /// journal.
    pub(super) fn append(&mut self, entry: Arc<Entry<O>>, bytes: usize) {
        let id = entry.label.origin;
        let origin = self.of.get_mut(&id).expect("a member's");
        assert!(origin.received() == origin.done && entry.number == origin.done + 1, "the next");
        origin.push(entry, bytes);
        origin.done += 1;
        self.done.raise(id, origin.done);
        self.kept.add(bytes);
    }

    /// How many are received of a member.
    pub(super) fn received(&self, id: ReplicaId) -> u64 {
        self.of.get(&id).map_or(0, Origin::received)
    }

    /// The label of the last one that is kept of each.
    pub(super) fn last_labels(&self) -> BTreeMap<ReplicaId, Label> {
        let last =
            |(id, origin): (&ReplicaId, &Origin<O>)| Some((*id, origin.entries.back()?.0.label));
        self.of.iter().filter_map(last).collect()
    }

    /// The greatest counter of all that are kept.
    pub(super) fn last_counter(&self) -> u64 {
        let last = self.of.values().filter_map(|origin| origin.entries.back());
        last.map(|(entry, _)| entry.label.counter).max().unwrap_or(0)
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
        assert_eq!(number, origin.done + 1, "operations of one origin are placed in order");
        assert!(number <= origin.received(), "what is placed was received");
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
                let before = origin.entries.partition_point(|(entry, _)| below(entry));
                number.min(origin.forgotten + before as u64)
            }
        };
        Some((number, origin.get(number)?.label))
    }

    /// The operations that follow `from`, up to what is in `to`, in the order of their labels: so
    /// each comes behind all that must be before it. As many as are below this, and one more if
    /// those are.
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

    /// How many bytes an operation takes that is not forgotten.
    pub(super) fn size(&self, of: ReplicaId, number: u64) -> usize {
        let size =
            |origin: &Origin<O>| origin.bytes(number).saturating_sub(origin.bytes(number - 1));
        self.of.get(&of).map_or(0, |origin| count(size(origin)))
    }

    /// How much there is that follows `from`, up to what is in `to`.
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

    /// Forgets what is up to here, which is done everywhere, as far as the meter allows; whether
    /// that was all. Nothing is forgotten while it is pinned.
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
                assert!(origin.forgotten < origin.done, "what is forgotten is done");
                origin.forgotten += 1;
                self.kept.operations -= 1;
                self.kept.bytes -= count(bytes - origin.forgotten_bytes);
                origin.forgotten_bytes = *bytes;
                origin.entries.pop_front();
            }
        }
        true
    }

    /// Nothing is forgotten until it is unpinned as often.
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

    /// What is done everywhere, as far as this replica knew at any time.
    pub(super) fn forgotten(&self) -> Vector {
        self.of.iter().map(|(id, origin)| (*id, origin.forgotten)).collect()
    }

    /// Asserts that each origin's operations follow each other, and that what is kept is counted.
    pub(super) fn check(&self) {
        let mut kept = Amount::default();
        for (id, origin) in &self.of {
            assert!(origin.forgotten <= origin.done, "what is forgotten is done");
            assert!(origin.done <= origin.received(), "what is done was received");
            assert_eq!(self.done.get(*id), origin.done, "what is done is known of each");
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
        assert_eq!(self.kept.operations, kept.operations, "what is kept is counted");
        assert_eq!(self.kept.bytes, kept.bytes, "its bytes are counted");
    }

    /// How much is kept.
    pub(super) fn kept(&self) -> Amount {
        self.kept
    }
}

/// Differences of what is in memory.
fn count(difference: u64) -> usize {
    usize::try_from(difference).unwrap_or(usize::MAX)
}
