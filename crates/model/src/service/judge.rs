//! Invariants of a service, checked after each step.

use super::{Service, Trial};
use esds::{Id, Label, Replica};
use std::collections::{BTreeMap, BTreeSet};

impl<S: Service> Trial<S> {
    /// Returns the violation, if any.
    pub fn wrong(&self) -> Option<&str> {
        self.history.wrong.as_deref()
    }

    /// Checks all invariants.
    pub(super) fn judge(&self) -> Option<String> {
        self.knowledge_is_wrong()
            .or_else(|| self.order_is_wrong())
            .or_else(|| self.labels_are_wrong())
            .or_else(|| self.answers_are_wrong())
    }

    /// Reports whether a non-strict answer differs from the eventual one (the first of two
    /// anomalies that must be possible; otherwise nothing is gained).
    pub fn has_inconsistent_answer(&self) -> bool {
        let final_of = |id: &Id| self.history.finals.get(id);
        let mut answers = self.history.answers.iter();
        answers.any(|(id, value)| final_of(id).is_some_and(|final_value| final_value != value))
    }

    /// Reports whether a strict operation precedes one answered before its request (the second
    /// anomaly).
    pub fn has_late_answer_before(&self) -> bool {
        self.plan.iter().filter(|each| each.strict).any(|strict| {
            let earlier = self.history.answered_before.get(&strict.id);
            let order = self.history.finals.get(&strict.id);
            earlier.zip(order).is_some_and(|(earlier, order)| {
                earlier.iter().any(|answered| !order.contains(answered))
            })
        })
    }

    /// Checks I1, I2, I3.
    fn knowledge_is_wrong(&self) -> Option<String> {
        let replicas = self.service.replicas();
        let every = || 0..replicas.len();
        for r in every() {
            if let Some(what) = replicas[r].contradiction() {
                return Some(format!("at {r} {what}"));
            }
            let (own_done, own_stable) = (replicas[r].done(r), replicas[r].stable(r));
            let labelled = |id: &Id| replicas[r].label(*id).is_some();
            let received = replicas[r].received();
            if own_done != received.iter().copied().filter(labelled).collect() {
                return Some(format!("I1: at {r} what is done is not what has a label"));
            }
            let mut everywhere = own_done.clone();
            for i in every() {
                let (done, stable) = (replicas[r].done(i), replicas[r].stable(i));
                let sound = done.is_subset(&replicas[i].done(i))
                    && stable.is_subset(&replicas[i].stable(i))
                    && done.is_subset(&own_done)
                    && stable.is_subset(&own_stable);
                if !sound {
                    return Some(format!("I2: {r} believes of {i} what is not so"));
                }
                everywhere.retain(|id| done.contains(id));
            }
            if own_stable != everywhere {
                return Some(format!("I3: at {r} what is stable is not what is done everywhere"));
            }
        }
        None
    }

    /// Checks I4: predecessors are done first.
    fn order_is_wrong(&self) -> Option<String> {
        let replicas = self.service.replicas();
        for (r, replica) in replicas.iter().enumerate() {
            let done = replica.done(r);
            for each in self.plan.iter().filter(|each| done.contains(&each.id)) {
                let label = replica.label(each.id);
                let fits = |p: &Id| done.contains(p) && replica.label(*p) < label;
                if !each.prev.iter().all(fits) {
                    return Some(format!(
                        "I4: at {r} {:?} has not before it what it needs",
                        each.id
                    ));
                }
            }
        }
        None
    }

    /// Checks I5, I7.
    fn labels_are_wrong(&self) -> Option<String> {
        let replicas = self.service.replicas();
        let ids = self.history.requested.iter();
        let of_replica = |r: usize| {
            ids.clone().filter_map(|id| Some((*id, replicas[r].label(*id)?))).collect::<Vec<_>>()
        };
        let mut all = self.service.labels_on_their_way();
        for (r, replica) in replicas.iter().enumerate() {
            let own = of_replica(r);
            if own.iter().any(|(_, label)| label.counter > replica.clock()) {
                return Some(format!("I7: the clock of {r} is behind a label that it has seen"));
            }
            all.extend(own);
        }
        let mut owner: BTreeMap<Label, Id> = BTreeMap::new();
        let mut least: BTreeMap<Id, Label> = BTreeMap::new();
        for (id, label) in all {
            if *owner.entry(label).or_insert(id) != id {
                return Some(format!("I7: {label:?} was given twice"));
            }
            let known = least.entry(id).or_insert(label);
            *known = label.min(*known);
        }
        for (r, replica) in replicas.iter().enumerate() {
            let stale = |id: &&Id| replica.label(**id) != least.get(id).copied();
            if let Some(id) = replica.stable(r).iter().find(stale) {
                return Some(format!("I5: {id:?} is stable at {r}, but there is a smaller label"));
            }
        }
        None
    }

    /// Checks G1, G2, G3, G5.
    fn answers_are_wrong(&self) -> Option<String> {
        let history = &self.history;
        for each in &self.plan {
            let (answer, last) = (history.answers.get(&each.id), history.finals.get(&each.id));
            if let Some(answer) = answer
                && !self.is_some_order(each.id, answer)
            {
                return Some(format!(
                    "G2: {:?} was answered {answer:?}, which is no order",
                    each.id
                ));
            }
            if let Some(last) = last
                && !self.is_some_order(each.id, last)
            {
                return Some(format!("G5: {:?} is {last:?} for ever, which is no order", each.id));
            }
            if each.strict
                && let (Some(answer), Some(last)) = (answer, last)
                && answer != last
            {
                return Some(format!("G1: {:?} was answered {answer:?}, and is {last:?}", each.id));
            }
            let earlier = history.answered_before.get(&each.id).into_iter().flatten();
            let mut strict =
                earlier.filter(|id| self.plan.iter().any(|p| p.id == **id && p.strict));
            if let Some(last) = last
                && let Some(before) = strict.find(|id| !last.contains(id))
            {
                return Some(format!(
                    "G3: {before:?} was answered, and {:?} is before it",
                    each.id
                ));
            }
        }
        None
    }

    /// Reports whether this is an order of requested operations that ends with `id` and respects
    /// predecessors.
    fn is_some_order(&self, id: Id, order: &[Id]) -> bool {
        let mut before = BTreeSet::new();
        let fits = order.iter().all(|each| {
            let planned = self.plan.iter().find(|descriptor| descriptor.id == *each);
            self.history.requested.contains(each)
                && planned.is_some_and(|descriptor| descriptor.prev.is_subset(&before))
                && before.insert(*each)
        });
        fits && order.last() == Some(&id)
    }

    /// Reports whether every operation is answered, and equally final at all replicas.
    pub fn is_settled(&self) -> bool {
        self.end_is_wrong().is_none()
    }

    /// Checks G4: the conditions at quiescence.
    pub(super) fn end_is_wrong(&self) -> Option<String> {
        let unanswered = self.plan.iter().find(|each| !self.history.answers.contains_key(&each.id));
        if let Some(each) = unanswered {
            return Some(format!("G4: {:?} is never answered", each.id));
        }
        let replicas = self.service.replicas();
        let finals: Vec<_> = replicas.iter().map(|replica| replica.finals()).collect();
        let complete = finals.iter().all(|each| each.len() == self.plan.len());
        if !complete || finals.windows(2).any(|two| two[0] != two[1]) {
            return Some("G4: nothing happens any more, and the replicas differ".into());
        }
        None
    }
}
