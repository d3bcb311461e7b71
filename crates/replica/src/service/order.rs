//! The order of operations at one replica, and the states that it leads to.
//!
//! ```text
//!   applied for ever │ placed, not final │
//!   ─────────────────┼───────────────────┼──▶ labels
//!                frontier              last
//!                 stable              current
//! ```

use super::{Entry, Label};
use crate::data::DataType;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The order, from the frontier on.
#[derive(Clone, Debug)]
pub(super) struct Order<D: DataType> {
    data: D,
    /// Everything up to here is applied to `stable`.
    frontier: Option<Label>,
    stable: D::State,
    /// What is placed behind the frontier.
    suffix: BTreeMap<Label, Arc<Entry<D::Operator>>>,
    /// The state after the suffix; out of date if something was placed within it.
    current: D::State,
    stale: bool,
}

impl<D: DataType> Order<D> {
    pub(super) fn new(data: D, stable: D::State, frontier: Option<Label>) -> Order<D> {
        let (current, suffix) = (stable.clone(), BTreeMap::new());
        Order { data, frontier, stable, suffix, current, stale: false }
    }

    pub(super) fn frontier(&self) -> Option<Label> {
        self.frontier
    }

    /// What is placed and not final, in order.
    pub(super) fn suffix(&self) -> impl Iterator<Item = &Arc<Entry<D::Operator>>> {
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
        let value = self.data.apply(&mut self.current, &entry.operator);
        self.insert(entry);
        value
    }

    /// Places an operation where its label says.
    pub(super) fn place(&mut self, entry: Arc<Entry<D::Operator>>) {
        let behind = || self.suffix.range(entry.label..).map(|(_, other)| other);
        let commutes = |other: &Arc<Entry<_>>| self.data.commute(&entry.operator, &other.operator);
        // What commutes with all that is behind it could as well be last.
        if !self.stale && behind().all(commutes) {
            self.data.apply(&mut self.current, &entry.operator);
        } else {
            self.stale = true;
        }
        self.insert(entry);
    }

    /// Invariant I8: what is final has nothing placed before it any more.
    fn insert(&mut self, entry: Arc<Entry<D::Operator>>) {
        assert!(Some(entry.label) > self.frontier, "I8: placed before what is final");
        let before = self.suffix.insert(entry.label, entry);
        assert!(before.is_none(), "I7: a label was given twice");
    }

    /// Moves the frontier, and tells what it passes, with the values that they have for ever.
    pub(super) fn advance(
        &mut self,
        frontier: Label,
        mut tell: impl FnMut(Arc<Entry<D::Operator>>, D::Value),
    ) {
        while let Some(first) = self.suffix.first_entry()
            && *first.key() <= frontier
        {
            let entry = first.remove();
            let value = self.data.apply(&mut self.stable, &entry.operator);
            tell(entry, value);
        }
        self.frontier = self.frontier.max(Some(frontier));
    }

    /// The state after everything that is placed.
    pub(super) fn current(&mut self) -> &D::State {
        self.refresh();
        &self.current
    }

    fn refresh(&mut self) {
        if !self.stale {
            return;
        }
        self.current = self.stable.clone();
        for entry in self.suffix.values() {
            self.data.apply(&mut self.current, &entry.operator);
        }
        self.stale = false;
    }
}
