//! Knowledge of operations at a replica and its growth by gossip: the part common to the plain and
//! the optimised algorithm.

use super::{Action, Descriptor, Hops, Id, Label, News, REPLICAS_MAX, Rules, Slip};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Set of replicas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Replicas(u32);

impl Replicas {
    /// Returns the set of the first `replicas` replicas.
    pub(super) fn first(replicas: usize) -> Replicas {
        assert!((1..=REPLICAS_MAX).contains(&replicas), "a set has a bit for each replica");
        Replicas(u32::MAX >> (REPLICAS_MAX - replicas))
    }

    pub(super) fn has(self, replica: usize) -> bool {
        self.0 >> replica & 1 == 1
    }

    pub(super) fn add(&mut self, replica: usize) {
        assert!(replica < REPLICAS_MAX, "a set has a bit for each replica");
        self.0 |= 1 << replica;
    }

    pub(super) fn remove(&mut self, replica: usize) {
        self.0 &= !(1 << replica);
    }
}

/// Knowledge of one operation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Known<O> {
    pub(super) descriptor: Arc<Descriptor<O>>,
    /// `minlabel`.
    pub(super) label: Option<Label>,
    /// Replicas known to have done it.
    pub(super) done: Replicas,
    /// Replicas at which it is known to be stable.
    pub(super) stable: Replicas,
}

/// Knowledge of all operations.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Knowledge<O> {
    pub(super) me: usize,
    pub(super) replicas: usize,
    pub(super) rules: Rules,
    pub(super) clock: u64,
    of: BTreeMap<Id, Known<O>>,
    /// Operations done here, in order.
    order: BTreeMap<Label, Id>,
    /// Operations received but not done here.
    waiting: BTreeSet<Id>,
}

impl<O> Knowledge<O> {
    pub(super) fn new(me: usize, replicas: usize, rules: Rules) -> Knowledge<O> {
        assert!((1..=REPLICAS_MAX).contains(&replicas) && me < replicas);
        let (of, order, waiting) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        Knowledge { me, replicas, rules, clock: 0, of, order, waiting }
    }

    /// Returns the other replicas.
    pub(super) fn others(&self) -> Replicas {
        let mut others = Replicas::first(self.replicas);
        others.remove(self.me);
        others
    }

    pub(super) fn get(&self, id: Id) -> Option<&Known<O>> {
        self.of.get(&id)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Known<O>> {
        self.of.values()
    }

    /// Returns the operations done here, by label.
    pub(super) fn order(&self) -> &BTreeMap<Label, Id> {
        &self.order
    }

    pub(super) fn is_done(&self, id: Id) -> bool {
        self.of.get(&id).is_some_and(|known| known.done.has(self.me))
    }

    pub(super) fn is_stable(&self, id: Id) -> bool {
        self.of.get(&id).is_some_and(|known| known.stable.has(self.me))
    }

    /// `receive` of a descriptor. Returns whether it is new.
    pub(super) fn receive(&mut self, descriptor: &Arc<Descriptor<O>>) -> bool {
        let id = descriptor.id;
        if self.of.contains_key(&id) {
            return false;
        }
        let (done, stable) = (Replicas::default(), Replicas::default());
        let descriptor = descriptor.clone();
        self.of.insert(id, Known { descriptor, label: None, done, stable });
        self.waiting.insert(id)
    }

    /// Returns the operations that can be done: received, not done, and with all predecessors done.
    pub(super) fn doable(&self) -> impl Iterator<Item = Id> {
        let ready =
            |id: &&Id| self.of[*id].descriptor.prev.iter().all(|before| self.is_done(*before));
        self.waiting.iter().filter(ready).copied()
    }

    /// `do_it`: places an operation after everything done here.
    pub(super) fn perform(&mut self, id: Id) {
        assert!(self.waiting.contains(&id), "done operations were received once");
        self.clock += 1;
        let replica = if self.rules.slips(Slip::LabelsShared) { 0 } else { self.me };
        self.place(id, Label { counter: self.clock, replica });
        self.mark_done(id, &[self.me]);
        // Changes something only if there is a single replica (paper 001, 4.3.1).
        self.stabilise(id);
    }

    /// Merges gossip about an operation. Returns whether this replica's own state has changed, and
    /// therefore has news for others.
    pub(super) fn merge(&mut self, from: usize, news: &News<O>) -> bool {
        assert!(from < self.replicas && from != self.me, "another replica tells it");
        let id = news.descriptor.id;
        let mut changed = self.receive(&news.descriptor);
        let (was_done, was_stable) = (self.is_done(id), self.is_stable(id));
        if let Some(label) = news.label {
            changed |= self.lower(id, label);
            self.mark_done(id, &[from, self.me]);
        }
        if news.stable {
            self.mark_done(id, &(0..self.replicas).collect::<Vec<_>>());
            self.of.get_mut(&id).expect("received").stable.add(from);
        }
        self.stabilise(id);
        changed | (self.is_done(id) != was_done) | (self.is_stable(id) != was_stable)
    }

    /// Takes the smaller label, and raises the clock to its counter. Returns whether the label
    /// changed.
    fn lower(&mut self, id: Id, label: Label) -> bool {
        if !self.rules.slips(Slip::ClockNotRaised) {
            self.clock = self.clock.max(label.counter);
        }
        let present = self.of[&id].label;
        let smaller = present.is_none_or(|present| label < present);
        let takes = smaller || self.rules.slips(Slip::LabelsAssigned) && present != Some(label);
        if takes {
            self.place(id, label);
        }
        takes
    }

    fn place(&mut self, id: Id, label: Label) {
        let known = self.of.get_mut(&id).expect("received");
        if let Some(old) = known.label.replace(label) {
            self.order.remove(&old);
        }
        self.order.insert(label, id);
    }

    fn mark_done(&mut self, id: Id, replicas: &[usize]) {
        let known = self.of.get_mut(&id).expect("received");
        replicas.iter().for_each(|replica| known.done.add(*replica));
        if known.done.has(self.me) {
            self.waiting.remove(&id);
        }
    }

    /// Marks an operation stable here if it is known to be done everywhere.
    pub(super) fn stabilise(&mut self, id: Id) {
        let known = self.of.get_mut(&id).expect("received");
        if known.done == Replicas::first(self.replicas) {
            known.stable.add(self.me);
        }
    }

    /// Returns this replica's gossip about an operation.
    pub(super) fn news(&self, known: &Known<O>) -> News<O> {
        News {
            descriptor: known.descriptor.clone(),
            label: known.label.filter(|_| known.done.has(self.me)),
            stable: known.stable.has(self.me),
        }
    }

    /// Returns the operator of a known operation.
    pub(super) fn operator(&self, id: Id) -> &O {
        &self.of[&id].descriptor.operator
    }

    pub(super) fn received(&self) -> BTreeSet<Id> {
        self.of.keys().copied().collect()
    }

    pub(super) fn done(&self, i: usize) -> BTreeSet<Id> {
        self.ids(|known| known.done.has(i))
    }

    pub(super) fn stable(&self, i: usize) -> BTreeSet<Id> {
        self.ids(|known| known.stable.has(i))
    }

    fn ids(&self, which: impl Fn(&Known<O>) -> bool) -> BTreeSet<Id> {
        self.of.iter().filter(|(_, known)| which(known)).map(|(id, _)| *id).collect()
    }

    /// Returns the possible answers to pending operations.
    pub(super) fn responses(&self, pending: &BTreeSet<Id>) -> impl Iterator<Item = Action> {
        let answerable = pending.iter().filter(|id| self.is_answerable(**id));
        answerable.map(|id| Action::Respond(*id, self.of[id].descriptor.sender))
    }

    /// Reports whether a pending operation can be answered.
    fn is_answerable(&self, id: Id) -> bool {
        let Some(known) = self.of.get(&id).filter(|known| known.done.has(self.me)) else {
            return false;
        };
        if !known.descriptor.strict || self.rules.slips(Slip::StrictWhenDone) {
            return true;
        }
        match self.rules.hops {
            Hops::Three => known.stable == Replicas::first(self.replicas),
            Hops::Two => known.stable.has(self.me),
        }
    }

    /// Returns a violated invariant, if any.
    pub(super) fn contradiction(&self) -> Option<&'static str> {
        let done = self.of.values().filter(|known| known.done.has(self.me)).count();
        let stands = |(label, id): (&Label, &Id)| self.of[id].label == Some(*label);
        if !self.order.iter().all(stands) {
            return Some("an operation stands elsewhere than its label says");
        }
        if done != self.order.len() {
            return Some("what is done here is not what has a place here");
        }
        (done + self.waiting.len() != self.of.len())
            .then_some("something neither waits nor is done")
    }
}
