//! Clients of a service, who remember everything and believe nothing.

use super::linear::History;
use base::Instant;
use replica::esds::Id;
use replica::service::{ReplicaId, Ticket, Vector};
use std::collections::{BTreeMap, BTreeSet};

/// A client.
#[derive(Clone, Debug, Default)]
pub(super) struct Client {
    /// What it has seen, as it was told.
    pub(super) token: Vector,
    /// What it has seen.
    pub(super) seen: BTreeSet<Id>,
    /// The replica that it asks.
    pub(super) replica: u16,
    /// What it waits for.
    pub(super) waits: Option<Ticket>,
}

/// An operation, from its request on.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) client: usize,
    /// The replica that was asked.
    pub(super) replica: u16,
    pub(super) strict: bool,
    pub(super) at: Instant,
    /// What its client had seen when it asked.
    pub(super) seen: BTreeSet<Id>,
    /// Strict operations that had been answered when it was asked.
    pub(super) strict_before: BTreeSet<Id>,
    /// What it was answered.
    pub(super) answer: Option<Vec<Id>>,
}

/// What all clients know together, and what is known to be final.
#[derive(Clone, Debug, Default)]
pub(super) struct Memory {
    pub(super) asked: BTreeMap<Id, Asked>,
    /// The eventual order, as far as any replica has told it.
    order: Vec<Id>,
    strict_answered: BTreeSet<Id>,
    pub(super) history: History,
}

impl Memory {
    /// A client asks.
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
        self.asked
            .insert(id, Asked { client, replica, strict, at, seen, strict_before, answer: None });
    }

    /// An answer came: G1, G2, G6, G8.
    pub(super) fn hear(&mut self, id: Id, value: &[Id], is_final: bool) -> Result<(), String> {
        let asked = self.asked.get_mut(&id).ok_or(format!("{id:?} was never asked"))?;
        self.history.answer(id, value);
        let all: BTreeSet<Id> = value.iter().copied().collect();
        if value.last() != Some(&id) || all.len() != value.len() {
            return Err(format!("G2: {id:?} was answered {value:?}, which is no order"));
        }
        if let Some(missing) = asked.seen.difference(&all).next() {
            return Err(format!("G6: {id:?} does not see {missing:?}, which its client had seen"));
        }
        if asked.answer.replace(value.to_vec()).is_some() {
            return Err(format!("G7: {id:?} was answered twice"));
        }
        if asked.strict != is_final {
            return Err(format!("G8: {id:?} is said to be final, and is not, or the other way"));
        }
        if is_final {
            self.strict_answered.insert(id);
            self.agree(value).map_err(|wrong| format!("G1: {id:?} was answered {wrong}"))?;
        }
        match value.iter().find(|each| !self.asked.contains_key(each)) {
            Some(stranger) => Err(format!("G2: nobody asked {stranger:?}")),
            None => Ok(()),
        }
    }

    /// The eventual order, as far as it is known.
    pub(super) fn order(&self) -> &Vec<Id> {
        &self.order
    }

    /// Somebody says that the eventual order begins like this: I6, G4.
    pub(super) fn agree(&mut self, order: &[Id]) -> Result<(), String> {
        let both = self.order.len().min(order.len());
        if self.order[..both] != order[..both] {
            return Err(format!("{order:?}, but the eventual order is {:?}", self.order));
        }
        self.order.extend(&order[both..]);
        Ok(())
    }

    /// Nothing happens any more: G3, G4, G5, G7.
    /// Operations, not strict ones, of replicas that were lost may be lost.
    pub(super) fn sum_up(&self, lost: &BTreeSet<u16>) -> Result<usize, String> {
        let places: BTreeMap<Id, usize> =
            self.order.iter().enumerate().map(|(place, id)| (*id, place)).collect();
        if places.len() != self.order.len() {
            return Err("G4: an operation is twice in the eventual order".into());
        }
        let mut inconsistent = 0;
        for (id, asked) in &self.asked {
            let Some(place) = places.get(id) else {
                if asked.answer.is_some() && (asked.strict || !lost.contains(&asked.replica)) {
                    return Err(format!("G4: {id:?} was answered, and is lost"));
                }
                continue;
            };
            let may_lack = |other: &Id| {
                let other = &self.asked[other];
                !other.strict && lost.contains(&other.replica)
            };
            let before = |other: &&Id| match places.get(other) {
                Some(other) => other > place,
                None => !may_lack(other),
            };
            if let Some(late) = asked.seen.iter().find(before) {
                return Err(format!("G5: {late:?} is not before {id:?}, whose client had seen it"));
            }
            if let Some(late) = asked.strict_before.iter().find(before) {
                return Err(format!("G3: {late:?} was answered strictly before {id:?} was asked"));
            }
            let differs = |answer: &Vec<Id>| answer[..] != self.order[..=*place];
            inconsistent += usize::from(asked.answer.as_ref().is_some_and(differs));
        }
        Ok(inconsistent)
    }
}

impl Client {
    /// An answer came.
    pub(super) fn learn(&mut self, value: &[Id], token: &Vector) {
        self.seen.extend(value);
        self.token.join(token);
        self.waits = None;
    }
}

/// The name of a replica.
pub(super) fn name(at: u16) -> ReplicaId {
    ReplicaId(at)
}
