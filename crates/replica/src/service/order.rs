//! The order of operations at one replica, and the states that it leads to.
//!
//! ```text
//!   applied for ever │ placed, not final          │
//!   ─────────────────┼─────────┼─────────┼────────┼──▶ labels
//!                frontier   kept      kept      last
//!                 stable   state     state     current
//! ```
//!
//! Copies of a state cost little, so some between the frontier and the last one are kept. What is
//! placed among others makes those behind it wrong; the next who asks has what follows the last
//! right one applied again.

use super::{Entry, Label};
use crate::data::DataType;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

/// How many operations there are between states that are kept.
const STRIDE: usize = 64;

/// With how many operations behind it one is compared, to find out that it could as well be last.
const COMPARED_MAX: usize = 64;

/// The order, from the frontier on.
#[derive(Clone, Debug)]
pub(super) struct Order<D: DataType> {
    data: D,
    /// Everything up to here is applied to `stable`.
    frontier: Option<Label>,
    stable: D::State,
    /// What is placed behind the frontier.
    suffix: BTreeMap<Label, Arc<Entry<D::Operator>>>,
    /// States after some of them, all of them right.
    kept: BTreeMap<Label, D::State>,
    /// The state after everything up to `applied`.
    current: D::State,
    applied: Option<Label>,
    /// How many were applied to it since one was kept.
    since: usize,
}

impl<D: DataType> Order<D> {
    pub(super) fn new(data: D, stable: D::State, frontier: Option<Label>) -> Order<D> {
        let (current, suffix, kept) = (stable.clone(), BTreeMap::new(), BTreeMap::new());
        Order { data, frontier, stable, suffix, kept, current, applied: frontier, since: 0 }
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

    /// Places an operation behind all others; its value there.
    pub(super) fn append(&mut self, entry: Arc<Entry<D::Operator>>) -> D::Value {
        assert!(self.suffix.last_key_value().is_none_or(|(last, _)| *last < entry.label));
        self.refresh();
        self.insert(entry.clone());
        let value = self.data.apply(&mut self.current, &entry.operator);
        self.passed(entry.label);
        value
    }

    /// What an operator answers that changes nothing, behind all that is placed.
    pub(super) fn look(&mut self, operator: &D::Operator) -> D::Value {
        self.refresh();
        self.data.apply(&mut self.current, operator)
    }

    /// Places an operation where its label says.
    pub(super) fn place(&mut self, entry: Arc<Entry<D::Operator>>) {
        let label = entry.label;
        if Some(label) < self.applied {
            self.kept.split_off(&label);
            if self.could_be_last(&entry) {
                self.perform(&entry);
            } else {
                let last = self.kept.last_key_value();
                let (applied, state) = match last {
                    Some((label, state)) => (Some(*label), state),
                    None => (self.frontier, &self.stable),
                };
                (self.current, self.applied, self.since) = (state.clone(), applied, 0);
            }
        }
        self.insert(entry);
    }

    /// Whether an operation commutes with all that is behind it; if those are not many.
    fn could_be_last(&self, entry: &Entry<D::Operator>) -> bool {
        let applied = self.applied.expect("something behind it is applied");
        let mut behind = self.suffix.range(entry.label..=applied).map(|(_, other)| other);
        let commutes = |other: &Arc<Entry<_>>| self.data.commute(&entry.operator, &other.operator);
        behind.by_ref().take(COMPARED_MAX).all(commutes) && behind.next().is_none()
    }

    /// Invariant I8: what is final has nothing placed before it any more.
    fn insert(&mut self, entry: Arc<Entry<D::Operator>>) {
        assert!(Some(entry.label) > self.frontier, "I8: placed before what is final");
        let before = self.suffix.insert(entry.label, entry);
        assert!(before.is_none(), "I7: a label was given twice");
    }

    /// Changes the current state as an operation does.
    fn perform(&mut self, entry: &Entry<D::Operator>) {
        if !self.data.is_read(&entry.operator) {
            self.data.apply(&mut self.current, &entry.operator);
        }
    }

    /// Everything up to here is applied to the current state.
    fn passed(&mut self, label: Label) {
        self.applied = Some(label);
        self.since += 1;
        if self.since == STRIDE {
            self.since = 0;
            self.kept.insert(label, self.current.clone());
        }
    }

    /// Moves the frontier, by at most so many operations, and tells what it passes and is wanted,
    /// with the values that they have for ever. Whether that was all.
    pub(super) fn advance(
        &mut self,
        frontier: Label,
        most: usize,
        wanted: impl Fn(&Entry<D::Operator>) -> bool,
        mut tell: impl FnMut(Arc<Entry<D::Operator>>, D::Value),
    ) -> bool {
        let mut left = most;
        while let Some(first) = self.suffix.first_entry()
            && *first.key() <= frontier
        {
            if left == 0 {
                self.tidy();
                return false;
            }
            left -= 1;
            let entry = first.remove();
            self.frontier = Some(entry.label);
            let is_wanted = wanted(&entry);
            if is_wanted || !self.data.is_read(&entry.operator) {
                let value = self.data.apply(&mut self.stable, &entry.operator);
                if is_wanted {
                    tell(entry, value);
                }
            }
        }
        self.frontier = self.frontier.max(Some(frontier));
        self.tidy();
        true
    }

    /// Forgets states in front of the frontier. One that operations led to in another order may
    /// differ from the stable one in what no operation's value is of.
    fn tidy(&mut self) {
        if let Some(frontier) = self.frontier {
            self.kept = self.kept.split_off(&frontier);
            self.kept.remove(&frontier);
        }
        if self.suffix.is_empty() || self.applied <= self.frontier {
            (self.current, self.applied, self.since) = (self.stable.clone(), self.frontier, 0);
        }
    }

    /// The state after everything that is placed.
    pub(super) fn current(&mut self) -> &D::State {
        self.refresh();
        &self.current
    }

    fn refresh(&mut self) {
        let from = self.applied.map_or(Bound::Unbounded, Bound::Excluded);
        if self.suffix.range((from, Bound::Unbounded)).next().is_none() {
            return;
        }
        let rest = self.suffix.range((from, Bound::Unbounded));
        let rest: Vec<Arc<Entry<D::Operator>>> = rest.map(|(_, entry)| entry.clone()).collect();
        for entry in rest {
            self.perform(&entry);
            self.passed(entry.label);
        }
    }

    pub(super) fn check(&self) {
        assert!(self.applied >= self.frontier);
        assert!(self.kept.keys().all(|label| Some(*label) > self.frontier));
        assert!(self.kept.keys().all(|label| Some(*label) <= self.applied));
    }
}
