//! *ESDSOptAlg*: the optimised algorithm (paper 001, figure 4.5, corrected).
//!
//! *Incremental gossip*: changes are appended to one log, and each peer has a position in it up to
//! which changes were sent. *Memoized stable state*: everything up to the greatest stable operation
//! is final, so it is applied once, and its values are kept. *No gossip to oneself.*
//!
//! Requires channels that do not lose, duplicate or reorder messages.

use super::knowledge::Knowledge;
use super::site::{Method, Site};
use super::{Id, Label, News, Slip};
use replica::data::DataType;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;

/// Replica of the optimised algorithm.
pub type Optimised<D> = Site<D, Changes<D>>;

/// Gossips changes only, and memoizes final values.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Changes<D: DataType> {
    log: Log,
    /// Label of the last operation applied to `stable_state`; it and all before it are final.
    commit_point: Option<Label>,
    /// State up to the commit point.
    stable_state: D::State,
    /// Values of the operations up to the commit point.
    values: BTreeMap<Id, D::Value>,
}

/// Log of changes, with the position of each peer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Log {
    /// Changed operations, oldest first. Changes sent to all peers are dropped.
    changes: VecDeque<Id>,
    /// Number of log entries sent to each replica.
    reported: Vec<usize>,
}

impl Log {
    fn has_news_for(&self, peer: usize) -> bool {
        self.reported[peer] < self.changes.len()
    }

    /// Returns the operations not yet sent to a peer, without duplicates, and advances its
    /// position.
    fn take(&mut self, peer: usize, me: usize) -> BTreeSet<Id> {
        assert!(peer != me, "nobody tells itself");
        assert!(
            self.reported[peer] <= self.changes.len(),
            "it was notified of changes that happened"
        );
        let news = self.changes.range(self.reported[peer]..).copied().collect();
        self.reported[peer] = self.changes.len();
        let others = || (0..self.reported.len()).filter(|other| *other != me);
        let everybody =
            others().map(|other| self.reported[other]).min().unwrap_or(self.changes.len());
        assert!(everybody <= self.changes.len(), "all were notified of changes that happened");
        self.changes.drain(..everybody);
        self.reported
            .iter_mut()
            .for_each(|reported| *reported = reported.saturating_sub(everybody));
        news
    }

    /// Counts changes sent to one peer as sent to all: the error of the figure.
    fn forget_all(&mut self) {
        self.reported.fill(self.changes.len());
    }
}

impl<D: DataType> Changes<D> {
    /// Returns the operations up to the commit point, in order.
    fn passed<'k>(&self, knowledge: &'k Knowledge<D::Operator>) -> impl Iterator<Item = &'k Id> {
        let (order, commit_point) = (knowledge.order().iter(), self.commit_point);
        order.take_while(move |(label, _)| Some(**label) <= commit_point).map(|(_, id)| id)
    }
}

impl<D: DataType> Method<D> for Changes<D> {
    fn new(data: &D, replicas: usize) -> Changes<D> {
        let log = Log { changes: VecDeque::new(), reported: vec![0; replicas] };
        Changes { log, commit_point: None, stable_state: data.initial(), values: BTreeMap::new() }
    }

    fn note(&mut self, id: Id) {
        // A single replica has no peers.
        if self.log.reported.len() > 1 {
            self.log.changes.push_back(id);
        }
    }

    /// Moves the commit point to this operation, and applies the operations passed.
    fn settle(&mut self, data: &D, knowledge: &Knowledge<D::Operator>, id: Id) {
        assert!(knowledge.is_stable(id), "settled operations are stable");
        let label =
            knowledge.get(id).and_then(|known| known.label).expect("stable operations are done");
        if Some(label) <= self.commit_point {
            return;
        }
        let behind = self.commit_point.map_or(Bound::Unbounded, Bound::Excluded);
        for (_, id) in knowledge.order().range((behind, Bound::Included(label))) {
            self.values.insert(*id, data.apply(&mut self.stable_state, knowledge.operator(*id)));
        }
        self.commit_point = Some(label);
    }

    fn has_news_for(&self, peer: usize) -> bool {
        self.log.has_news_for(peer)
    }

    fn gossip_for(
        &mut self,
        knowledge: &Knowledge<D::Operator>,
        peer: usize,
    ) -> Vec<News<D::Operator>> {
        let ids = self.log.take(peer, knowledge.me);
        if knowledge.rules.slips(Slip::OneDelta) {
            self.log.forget_all();
        }
        let known = ids.into_iter().filter_map(|id| knowledge.get(id));
        known.map(|known| knowledge.news(known)).collect()
    }

    fn value(&self, data: &D, knowledge: &Knowledge<D::Operator>, id: Id) -> D::Value {
        let twice = knowledge.rules.slips(Slip::AppliedTwice);
        let kept = self.values.get(&id).filter(|_| !twice || knowledge.is_stable(id));
        if let Some(value) = kept {
            return value.clone();
        }
        let mut state = self.stable_state.clone();
        let behind = self.commit_point.filter(|_| !twice).map_or(Bound::Unbounded, Bound::Excluded);
        let rest = knowledge.order().range((behind, Bound::Unbounded)).map(|(_, each)| *each);
        for each in rest.filter(|each| !twice || !knowledge.is_stable(*each)) {
            let value = data.apply(&mut state, knowledge.operator(each));
            if each == id {
                return value;
            }
        }
        panic!("{id:?} is not done here");
    }

    fn finals(&self, _data: &D, knowledge: &Knowledge<D::Operator>) -> Vec<(Id, D::Value)> {
        let passed = self.passed(knowledge);
        passed.filter_map(|id| Some((*id, self.values.get(id)?.clone()))).collect()
    }

    fn contradiction(&self, knowledge: &Knowledge<D::Operator>) -> Option<&'static str> {
        let kept = self.passed(knowledge).all(|id| self.values.contains_key(id));
        (!kept).then_some("I8: an operation came before what is final")
    }
}
