//! Clients of a service, which record everything and check every answer.

use super::linear::History;
use base::Instant;
use esds::Id;
use replica::service::{ReplicaId, Ticket, Vector};
use std::collections::{BTreeMap, BTreeSet};

/// Client.
#[derive(Clone, Debug, Default)]
pub(super) struct Client {
    /// Token received.
    pub(super) token: Vector,
    /// Operations shown by its answers.
    pub(super) seen: BTreeSet<Id>,
    /// Current replica.
    pub(super) replica: u16,
    /// Outstanding request.
    pub(super) waits: Option<Ticket>,
}

/// Requested operation.
#[derive(Clone, Debug)]
pub(super) struct Requested {
    pub(super) client: usize,
    /// Replica that received the request.
    pub(super) replica: u16,
    pub(super) strict: bool,
    pub(super) at: Instant,
    /// Operations shown to its client before the request.
    pub(super) seen: BTreeSet<Id>,
    /// Strict operations answered before the request.
    pub(super) strict_before: BTreeSet<Id>,
    /// Value in the answer.
    pub(super) answer: Option<Vec<Id>>,
}

/// Common record of all clients, and the known final order.
#[derive(Clone, Debug, Default)]
pub(super) struct Memory {
    pub(super) requested: BTreeMap<Id, Requested>,
    /// Known prefix of the eventual order.
    order: Vec<Id>,
    strict_answered: BTreeSet<Id>,
    pub(super) history: History,
}

impl Memory {
    /// Records a request.
    pub(super) fn ask(
        &mut self,
        at: Instant,
        id: Id,
        (client, replica): (usize, u16),
        strict: bool,
        seen: BTreeSet<Id>,
    ) {
        self.history.ask(id);
        let strict_before = self.strict_answered.clone();
        self.requested.insert(
            id,
            Requested { client, replica, strict, at, seen, strict_before, answer: None },
        );
    }

    /// Checks an answer: G1, G2, G6, G8.
    pub(super) fn receive(&mut self, id: Id, value: &[Id], is_final: bool) -> Result<(), String> {
        let requested = self.requested.get_mut(&id).ok_or(format!("{id:?} was never asked"))?;
        self.history.answer(id, value);
        let all: BTreeSet<Id> = value.iter().copied().collect();
        if value.last() != Some(&id) || all.len() != value.len() {
            return Err(format!("G2: {id:?} was answered {value:?}, which is no order"));
        }
        if let Some(missing) = requested.seen.difference(&all).next() {
            return Err(format!("G6: {id:?} does not see {missing:?}, which its client had seen"));
        }
        if requested.answer.replace(value.to_vec()).is_some() {
            return Err(format!("G7: {id:?} was answered twice"));
        }
        if requested.strict != is_final {
            return Err(format!("G8: {id:?} is reported as final and is not, or the reverse"));
        }
        if is_final {
            self.strict_answered.insert(id);
            self.agree(value).map_err(|wrong| format!("G1: {id:?} was answered {wrong}"))?;
        }
        match value.iter().find(|each| !self.requested.contains_key(each)) {
            Some(stranger) => Err(format!("G2: nobody asked {stranger:?}")),
            None => Ok(()),
        }
    }

    /// Known prefix of the eventual order.
    pub(super) fn order(&self) -> &Vec<Id> {
        &self.order
    }

    /// Checks a replica's prefix of the eventual order: I6, G4.
    pub(super) fn agree(&mut self, order: &[Id]) -> Result<(), String> {
        let both = self.order.len().min(order.len());
        if self.order[..both] != order[..both] {
            return Err(format!("{order:?}, but the eventual order is {:?}", self.order));
        }
        self.order.extend(&order[both..]);
        Ok(())
    }

    /// Checks the end of a run: G3, G4, G5, G7. Non-strict operations of lost replicas may be lost.
    pub(super) fn sum_up(&self, lost: &BTreeSet<u16>) -> Result<usize, String> {
        let places: BTreeMap<Id, usize> =
            self.order.iter().enumerate().map(|(place, id)| (*id, place)).collect();
        if places.len() != self.order.len() {
            return Err("G4: an operation is twice in the eventual order".into());
        }
        let mut inconsistent = 0;
        for (id, requested) in &self.requested {
            let Some(place) = places.get(id) else {
                if requested.answer.is_some()
                    && (requested.strict || !lost.contains(&requested.replica))
                {
                    return Err(format!("G4: {id:?} was answered, and is lost"));
                }
                continue;
            };
            let may_lack = |other: &Id| {
                let other = &self.requested[other];
                !other.strict && lost.contains(&other.replica)
            };
            let before = |other: &&Id| match places.get(other) {
                Some(other) => other > place,
                None => !may_lack(other),
            };
            if let Some(late) = requested.seen.iter().find(before) {
                return Err(format!("G5: {late:?} is not before {id:?}, whose client had seen it"));
            }
            if let Some(late) = requested.strict_before.iter().find(before) {
                return Err(format!("G3: {late:?} was answered strictly before {id:?} was asked"));
            }
            let differs = |answer: &Vec<Id>| answer[..] != self.order[..=*place];
            inconsistent += usize::from(requested.answer.as_ref().is_some_and(differs));
        }
        Ok(inconsistent)
    }
}

impl Client {
    /// Records an answer.
    pub(super) fn learn(&mut self, value: &[Id], token: &Vector) {
        self.seen.extend(value);
        self.token.join(token);
        self.waits = None;
    }
}

/// Returns the identifier of a replica.
pub(super) fn name(at: u16) -> ReplicaId {
    ReplicaId(at)
}
