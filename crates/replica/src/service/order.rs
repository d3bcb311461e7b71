//! Order of operations at a replica, and the resulting states.
//!
//! ```text
//!   final, applied   │ placed, not final               │
//!   ─────────────────┼─────────┼─────────┼────────┼────┼──▶ labels
//!                frontier   kept      kept    applied last
//!                 stable   state     state     ahead
//! ```
//!
//! Operations that are not final are applied lazily: most answers need no state, and a state
//! without copies is modified in place. Clones are cheap, so some states between the commit point
//! and the last operation are kept. An operation placed among others invalidates the states after
//! it; the next query reapplies what follows the last valid one.

use super::{Entry, Label};
use crate::data::DataType;
use crate::work::Meter;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

/// Operations between two kept states.
const STRIDE: usize = 64;

/// Maximum later operations with which a newly placed one is compared, to find out whether it can
/// be applied last.
const COMPARED_MAX: usize = 64;

/// Maximum placed operations left unapplied: a query waits for their application.
pub(super) const LAG_MAX: usize = 4096;

/// Order from the commit point on.
#[derive(Clone, Debug)]
pub(super) struct Order<D: DataType> {
    data: D,
    /// Label of the last operation applied to `stable`.
    commit_point: Option<Label>,
    stable: D::State,
    /// Operations placed after the commit point.
    suffix: BTreeMap<Label, Arc<Entry<D::Operator>>>,
    /// Valid states after some of them, none later than `ahead`.
    kept: BTreeMap<Label, D::State>,
    /// State after the commit point computed for a query, while it is later than the commit point.
    ahead: Option<Ahead<D::State>>,
    /// Upper bound of the operations placed since all were applied; final ones do not count.
    pub(super) lag: usize,
}

/// State after some operations that are not final.
#[derive(Clone, Debug)]
struct Ahead<S> {
    state: S,
    /// Label of the last operation applied.
    applied: Option<Label>,
    /// Operations applied since a state was kept.
    since: usize,
}

impl<S: Clone> Ahead<S> {
    fn of(state: &S, applied: Option<Label>) -> Ahead<S> {
        Ahead { state: state.clone(), applied, since: 0 }
    }

    /// Applies an operation to the state.
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

    /// Advances to this operation, and keeps a copy of the state at every stride.
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
    pub(super) fn new(data: D, stable: D::State, commit_point: Option<Label>) -> Order<D> {
        let (suffix, kept) = (BTreeMap::new(), BTreeMap::new());
        Order { data, commit_point, stable, suffix, kept, ahead: None, lag: 0 }
    }

    pub(super) fn commit_point(&self) -> Option<Label> {
        self.commit_point
    }

    /// Returns the operations that are placed and not final, in order.
    pub(super) fn suffix(&self) -> impl ExactSizeIterator<Item = &Arc<Entry<D::Operator>>> {
        self.suffix.values()
    }

    /// Returns the final state.
    pub(super) fn stable(&self) -> &D::State {
        &self.stable
    }

    /// Places an operation after all others.
    pub(super) fn append(&mut self, entry: Arc<Entry<D::Operator>>) {
        assert!(self.suffix.last_key_value().is_none_or(|(last, _)| *last < entry.label));
        self.insert(entry);
    }

    /// Places an operation after all others, which must be applied, and returns its value.
    pub(super) fn answer(&mut self, entry: Arc<Entry<D::Operator>>, meter: &mut Meter) -> D::Value {
        if self.data.is_free(&entry.operator) {
            // The result is the same in every state.
            let mut state = self.data.initial();
            let value = self.data.apply_metered(&mut state, &entry.operator, meter);
            self.append(entry);
            return value;
        }
        assert!(self.is_applied(), "refreshed before");
        self.append(entry.clone());
        let ahead = self.ahead.get_or_insert_with(|| Ahead::of(&self.stable, self.commit_point));
        let value = self.data.apply_metered(&mut ahead.state, &entry.operator, meter);
        ahead.pass(entry.label, &mut self.kept);
        self.lag = 0;
        value
    }

    /// Returns the value of a read after all placed operations, which must be applied.
    pub(super) fn look(&mut self, operator: &D::Operator, meter: &mut Meter) -> D::Value {
        assert!(self.is_applied(), "refreshed before");
        let last = self.ahead.as_mut().map_or(&mut self.stable, |ahead| &mut ahead.state);
        self.data.apply_metered(last, operator, meter)
    }

    /// Places an operation according to its label.
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

    /// Reports whether an operation commutes with all applied ones after it, if those are few.
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

    /// Inserts an operation. Invariant I8: nothing is placed before a final operation.
    fn insert(&mut self, entry: Arc<Entry<D::Operator>>) {
        assert!(Some(entry.label) > self.commit_point, "I8: placed before what is final");
        let before = self.suffix.insert(entry.label, entry);
        assert!(before.is_none(), "I7: a label was given twice");
        self.lag += 1;
    }

    /// Moves the commit point as far as the meter allows, and passes wanted operations with their
    /// permanent values to `tell`, which returns its work. Returns whether the commit point was
    /// reached.
    pub(super) fn advance(
        &mut self,
        commit_point: Label,
        meter: &mut Meter,
        wanted: impl Fn(&Entry<D::Operator>) -> bool,
        mut send_gossip: impl FnMut(Arc<Entry<D::Operator>>, D::Value) -> u64,
    ) -> bool {
        // Old states are discarded first, so that the stable state shares no structure with them.
        if self.suffix.len() <= LAG_MAX {
            self.forget_to(commit_point);
        }
        while let Some(first) = self.suffix.first_entry()
            && *first.key() <= commit_point
        {
            if !meter.has_left() {
                self.commit_point.into_iter().for_each(|reached| self.forget_to(reached));
                if self.ahead.is_none() {
                    self.lag = self.suffix.len();
                }
                return false;
            }
            let entry = first.remove();
            self.commit_point = Some(entry.label);
            if wanted(&entry) {
                let value = self.data.apply_metered(&mut self.stable, &entry.operator, meter);
                meter.spend(send_gossip(entry, value));
            } else if self.data.is_read(&entry.operator) {
                meter.spend(1);
            } else {
                self.data.change(&mut self.stable, &entry.operator, meter);
            }
        }
        self.commit_point = self.commit_point.max(Some(commit_point));
        self.forget_to(commit_point);
        true
    }

    /// Discards states up to a commit point. Even one at the commit point is discarded: reached in
    /// another order, it may differ from the stable state in data that equality ignores.
    fn forget_to(&mut self, commit_point: Label) {
        self.kept = self.kept.split_off(&commit_point);
        self.kept.remove(&commit_point);
        self.ahead.take_if(|ahead| ahead.applied <= Some(commit_point));
        self.lag = self.lag.min(self.suffix.len());
    }

    /// Returns the state after all placed operations, if all are applied.
    pub(super) fn current(&self) -> Option<&D::State> {
        let ahead = self.ahead.as_ref().map_or(&self.stable, |ahead| &ahead.state);
        self.is_applied().then_some(ahead)
    }

    /// Applies placed operations if many are pending, so that queries need not wait long while
    /// nothing becomes final.
    pub(super) fn keep_up(&mut self, meter: &mut Meter) {
        if self.lags() {
            self.refresh(meter);
        }
    }

    /// Reports whether too many placed operations are unapplied.
    pub(super) fn lags(&self) -> bool {
        self.lag >= LAG_MAX
    }

    /// Reports whether all placed operations are applied.
    fn is_applied(&self) -> bool {
        let applied = self.ahead.as_ref().map_or(self.commit_point, |ahead| ahead.applied);
        self.suffix.last_key_value().is_none_or(|(last, _)| Some(*last) <= applied)
    }

    /// Applies placed operations as far as the meter allows. Returns whether all are applied.
    pub(super) fn refresh(&mut self, meter: &mut Meter) -> bool {
        let applied = self.ahead.as_ref().and_then(|ahead| ahead.applied);
        let from = applied.map_or(Bound::Unbounded, Bound::Excluded);
        for (label, entry) in self.suffix.range((from, Bound::Unbounded)) {
            if !meter.has_left() {
                return false;
            }
            let ahead =
                self.ahead.get_or_insert_with(|| Ahead::of(&self.stable, self.commit_point));
            ahead.perform(&self.data, entry, meter);
            ahead.pass(*label, &mut self.kept);
        }
        self.lag = 0;
        true
    }

    pub(super) fn check(&self) {
        let applied = self.ahead.as_ref().map_or(self.commit_point, |ahead| ahead.applied);
        assert!(applied >= self.commit_point);
        assert!(self.kept.keys().all(|label| Some(*label) > self.commit_point));
        assert!(self.kept.keys().all(|label| Some(*label) <= applied));
        for (label, entry) in &self.suffix {
            assert_eq!(*label, entry.label, "an operation is where its label says");
        }
        let first = self.suffix.first_key_value().map(|(label, _)| *label);
        assert!(
            first.is_none_or(|first| Some(first) > self.commit_point),
            "I8: what is final is not here"
        );
        assert!(self.lag <= self.suffix.len(), "only what is placed lags");
        assert!(self.ahead.as_ref().is_none_or(|ahead| ahead.since < STRIDE), "states are kept");
    }
}
