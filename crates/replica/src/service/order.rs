//! The order of operations at one replica, and the states that it leads to.
//!
//! ```text
//!   applied for ever │ placed, not final               │
//!   ─────────────────┼─────────┼─────────┼────────┼────┼──▶ labels
//!                frontier   kept      kept    applied last
//!                 stable   state     state     ahead
//! ```
//!
//! What is not final is applied when somebody asks for what it leads to, and not before: most
//! answers need no state, and a state of which there is no copy is changed where it is. Copies cost
//! little, so some between the frontier and the last one are kept. What is placed among others
//! makes those behind it wrong; the next who asks has what follows the last right one applied
//! again.

use super::{Entry, Label};
use crate::data::DataType;
use crate::work::Meter;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

/// How many operations there are between states that are kept.
const STRIDE: usize = 64;

/// With how many operations behind it one is compared, to find out that it could as well be last.
const COMPARED_MAX: usize = 64;

/// So many that are placed need not be applied: who asks then waits for that.
pub(super) const LAG_MAX: usize = 4096;

/// The order, from the frontier on.
#[derive(Clone, Debug)]
pub(super) struct Order<D: DataType> {
    data: D,
    /// Everything up to here is applied to `stable`.
    frontier: Option<Label>,
    stable: D::State,
    /// What is placed behind the frontier.
    suffix: BTreeMap<Label, Arc<Entry<D::Operator>>>,
    /// States after some of them, all of them right, and none behind `ahead`.
    kept: BTreeMap<Label, D::State>,
    /// The state behind the frontier that somebody asked for, if it is still behind that.
    ahead: Option<Ahead<D::State>>,
    /// How many were placed since all were applied, at most; those that are final do not count.
    pub(super) lag: usize,
}

/// A state after some of what is not final.
#[derive(Clone, Debug)]
struct Ahead<S> {
    state: S,
    /// Everything up to here is applied to it.
    applied: Option<Label>,
    /// How many were applied to it since one was kept.
    since: usize,
}

impl<S: Clone> Ahead<S> {
    fn of(state: &S, applied: Option<Label>) -> Ahead<S> {
        Ahead { state: state.clone(), applied, since: 0 }
    }

    /// Changes the state as an operation does.
    fn perform<D: DataType<State = S>>(
        &mut self,
        data: &D,
        entry: &Entry<D::Operator>,
        meter: &mut Meter,
    ) {
        match data.is_read(&entry.operator) {
            true => meter.spend(1),
            false => data.change(&mut self.state, &entry.operator, meter),
        }
    }

    /// Everything up to here is applied to it.
    fn pass(&mut self, label: Label, kept: &mut BTreeMap<Label, S>) {
        assert!(self.applied < Some(label), "operations are applied in their order");
        self.applied = Some(label);
        self.since += 1;
        if self.since == STRIDE {
            self.since = 0;
            kept.insert(label, self.state.clone());
        }
    }
}

impl<D: DataType> Order<D> {
    pub(super) fn new(data: D, stable: D::State, frontier: Option<Label>) -> Order<D> {
        let (suffix, kept) = (BTreeMap::new(), BTreeMap::new());
        Order { data, frontier, stable, suffix, kept, ahead: None, lag: 0 }
    }

    pub(super) fn frontier(&self) -> Option<Label> {
        self.frontier
    }

    /// What is placed and not final, in order.
    pub(super) fn suffix(&self) -> impl ExactSizeIterator<Item = &Arc<Entry<D::Operator>>> {
        self.suffix.values()
    }

    /// The state that is final.
    pub(super) fn stable(&self) -> &D::State {
        &self.stable
    }

    /// Places an operation behind all others.
    pub(super) fn append(&mut self, entry: Arc<Entry<D::Operator>>) {
        assert!(self.suffix.last_key_value().is_none_or(|(last, _)| *last < entry.label));
        self.insert(entry);
    }

    /// Places an operation behind all others, which are applied; its value there.
    pub(super) fn answer(&mut self, entry: Arc<Entry<D::Operator>>, meter: &mut Meter) -> D::Value {
        if self.data.is_free(&entry.operator) {
            // It is the same in every state.
            let mut state = self.data.initial();
            let value = self.data.apply_metered(&mut state, &entry.operator, meter);
            self.append(entry);
            return value;
        }
        assert!(self.is_applied(), "refreshed before");
        self.append(entry.clone());
        let ahead = self.ahead.get_or_insert_with(|| Ahead::of(&self.stable, self.frontier));
        let value = self.data.apply_metered(&mut ahead.state, &entry.operator, meter);
        ahead.pass(entry.label, &mut self.kept);
        self.lag = 0;
        value
    }

    /// The answer of an operator that changes nothing, behind all that is placed and applied.
    pub(super) fn look(&mut self, operator: &D::Operator, meter: &mut Meter) -> D::Value {
        assert!(self.is_applied(), "refreshed before");
        let last = self.ahead.as_mut().map_or(&mut self.stable, |ahead| &mut ahead.state);
        self.data.apply_metered(last, operator, meter)
    }

    /// Places an operation where its label says.
    pub(super) fn place(&mut self, entry: Arc<Entry<D::Operator>>, meter: &mut Meter) {
        meter.spend(1);
        let label = entry.label;
        if let Some(mut ahead) = self.ahead.take_if(|ahead| Some(label) < ahead.applied) {
            self.kept.split_off(&label);
            self.ahead = if self.could_be_last(&entry, ahead.applied, meter) {
                ahead.perform(&self.data, &entry, meter);
                Some(ahead)
            } else {
                let last = self.kept.last_key_value();
                last.map(|(label, state)| Ahead::of(state, Some(*label)))
            };
        }
        self.insert(entry);
    }

    /// Whether an operation commutes with all behind it that are applied; if those are not many.
    fn could_be_last(
        &self,
        entry: &Entry<D::Operator>,
        applied: Option<Label>,
        meter: &mut Meter,
    ) -> bool {
        let applied = applied.expect("something behind it is applied");
        meter.spend(COMPARED_MAX as u64);
        let mut behind = self.suffix.range(entry.label..=applied).map(|(_, other)| other);
        let commutes = |other: &Arc<Entry<_>>| self.data.commute(&entry.operator, &other.operator);
        behind.by_ref().take(COMPARED_MAX).all(commutes) && behind.next().is_none()
    }

    /// Invariant I8: what is final has nothing placed before it any more.
    fn insert(&mut self, entry: Arc<Entry<D::Operator>>) {
        assert!(Some(entry.label) > self.frontier, "I8: placed before what is final");
        let before = self.suffix.insert(entry.label, entry);
        assert!(before.is_none(), "I7: a label was given twice");
        self.lag += 1;
    }

    /// Moves the frontier, as far as the meter allows, and tells what it passes and is wanted, with
    /// the values that they have for ever; `tell` says how much work that makes. Whether that was
    /// all.
    pub(super) fn advance(
        &mut self,
        frontier: Label,
        meter: &mut Meter,
        wanted: impl Fn(&Entry<D::Operator>) -> bool,
        mut tell: impl FnMut(Arc<Entry<D::Operator>>, D::Value) -> u64,
    ) -> bool {
        // No part of a state that is forgotten is shared with the one that changes.
        if self.suffix.len() <= LAG_MAX {
            self.forget_to(frontier);
        }
        while let Some(first) = self.suffix.first_entry()
            && *first.key() <= frontier
        {
            if !meter.has_left() {
                self.frontier.into_iter().for_each(|reached| self.forget_to(reached));
                if self.ahead.is_none() {
                    self.lag = self.suffix.len();
                }
                return false;
            }
            let entry = first.remove();
            self.frontier = Some(entry.label);
            if wanted(&entry) {
                let value = self.data.apply_metered(&mut self.stable, &entry.operator, meter);
                meter.spend(tell(entry, value));
            } else if self.data.is_read(&entry.operator) {
                meter.spend(1);
            } else {
                self.data.change(&mut self.stable, &entry.operator, meter);
            }
        }
        self.frontier = self.frontier.max(Some(frontier));
        self.forget_to(frontier);
        true
    }

    /// Forgets states in front of a frontier. One that operations led to in another order may
    /// differ from the stable one in what no operation's value is of.
    fn forget_to(&mut self, frontier: Label) {
        self.kept = self.kept.split_off(&frontier);
        self.kept.remove(&frontier);
        self.ahead.take_if(|ahead| ahead.applied <= Some(frontier));
        self.lag = self.lag.min(self.suffix.len());
    }

    /// The state after everything that is placed, if all of that is applied.
    pub(super) fn current(&self) -> Option<&D::State> {
        let ahead = self.ahead.as_ref().map_or(&self.stable, |ahead| &ahead.state);
        self.is_applied().then_some(ahead)
    }

    /// Applies what is placed if that has become much, so that nobody who asks has to wait long
    /// while nothing becomes final.
    pub(super) fn keep_up(&mut self, meter: &mut Meter) {
        if self.lags() {
            self.refresh(meter);
        }
    }

    /// Whether more is placed and not applied than should be.
    pub(super) fn lags(&self) -> bool {
        self.lag >= LAG_MAX
    }

    /// Whether everything that is placed is applied.
    fn is_applied(&self) -> bool {
        let applied = self.ahead.as_ref().map_or(self.frontier, |ahead| ahead.applied);
        self.suffix.last_key_value().is_none_or(|(last, _)| Some(*last) <= applied)
    }

    /// Applies what is placed and not applied yet, as far as the meter allows; whether that was
    /// all.
    pub(super) fn refresh(&mut self, meter: &mut Meter) -> bool {
        let applied = self.ahead.as_ref().and_then(|ahead| ahead.applied);
        let from = applied.map_or(Bound::Unbounded, Bound::Excluded);
        for (label, entry) in self.suffix.range((from, Bound::Unbounded)) {
            if !meter.has_left() {
                return false;
            }
            let ahead = self.ahead.get_or_insert_with(|| Ahead::of(&self.stable, self.frontier));
            ahead.perform(&self.data, entry, meter);
            ahead.pass(*label, &mut self.kept);
        }
        self.lag = 0;
        true
    }

    pub(super) fn check(&self) {
        let applied = self.ahead.as_ref().map_or(self.frontier, |ahead| ahead.applied);
        assert!(applied >= self.frontier);
        assert!(self.kept.keys().all(|label| Some(*label) > self.frontier));
        assert!(self.kept.keys().all(|label| Some(*label) <= applied));
        for (label, entry) in &self.suffix {
            assert_eq!(*label, entry.label, "an operation is where its label says");
        }
        let first = self.suffix.first_key_value().map(|(label, _)| *label);
        assert!(
            first.is_none_or(|first| Some(first) > self.frontier),
            "I8: what is final is not here"
        );
        assert!(self.lag <= self.suffix.len(), "only what is placed lags");
        assert!(self.ahead.as_ref().is_none_or(|ahead| ahead.since < STRIDE), "states are kept");
    }
}
