//! Requests that cannot be answered yet.

use super::members::Members;
use super::{Amount, Origins, Output, Peers, Refusal, ReplicaId, Ticket, Vector};
use crate::data::DataType;
use base::Instant;
use std::collections::{BTreeMap, VecDeque};

/// A request that waits for what must come before it.
#[derive(Clone, Debug)]
pub(super) struct Blocked<O> {
    pub(super) ticket: Ticket,
    pub(super) after: Vector,
    pub(super) strict: bool,
    pub(super) operator: O,
    /// How many bytes it takes beside itself.
    pub(super) bytes: usize,
    pub(super) until: Instant,
}

/// An answer, which may be given when a record is in the journal.
#[derive(Clone, Debug)]
struct Unsaid<V> {
    record: u64,
    until: Instant,
    ticket: Ticket,
    value: V,
    /// How many bytes that takes beside itself.
    bytes: usize,
    is_final: bool,
    token: Vector,
}

impl<V> Unsaid<V> {
    fn size(&self) -> usize {
        size_of_val(self) + self.bytes + self.token.size()
    }
}

/// A strict operation of this replica, which is done.
#[derive(Clone, Debug)]
struct Strict {
    ticket: Ticket,
    until: Instant,
}

/// All that wait.
#[derive(Clone, Debug)]
pub(super) struct Waiting<D: DataType> {
    blocked: Vec<Blocked<D::Operator>>,
    unsaid: VecDeque<Unsaid<D::Value>>,
    /// How many bytes these take.
    unsaid_bytes: usize,
    /// By the numbers of their operations.
    strict: BTreeMap<u64, Strict>,
    /// When the first of all gives up; perhaps it was answered before.
    earliest: Option<Instant>,
}

impl<D: DataType> Waiting<D> {
    pub(super) fn new() -> Waiting<D> {
        Waiting {
            blocked: Vec::new(),
            unsaid: VecDeque::new(),
            unsaid_bytes: 0,
            strict: BTreeMap::new(),
            earliest: None,
        }
    }

    /// How much waits for what must come before it.
    pub(super) fn blocked(&self) -> Amount {
        let size = |request: &Blocked<_>| size_of_val(request) + request.bytes;
        let bytes = self.blocked.iter().map(size).sum();
        Amount { operations: self.blocked.len(), bytes }
    }

    pub(super) fn block(&mut self, request: Blocked<D::Operator>) {
        self.hurry(request.until);
        self.blocked.push(request);
    }

    /// Takes out those that can never be done here.
    pub(super) fn refuse_blocked(&mut self, members: &Members) -> Vec<(Ticket, Refusal)> {
        if self.blocked.is_empty() {
            return Vec::new();
        }
        let why = |request: &Blocked<_>| {
            let lost = members.lost_of(&request.after);
            let lost = (!lost.is_empty()).then_some(Refusal::Lost(lost));
            if members.is_outside() { Some(Refusal::Outside) } else { lost }
        };
        let mut refused = Vec::new();
        self.blocked.retain(|request| {
            let refusal = why(request);
            refused.extend(refusal.clone().map(|refusal| (request.ticket, refusal)));
            refusal.is_none()
        });
        refused
    }

    /// The first request that waits for nothing more.
    pub(super) fn take_unblocked(&mut self, done: &Vector) -> Option<Blocked<D::Operator>> {
        let first = self.blocked.iter().position(|request| done.covers(&request.after))?;
        Some(self.blocked.remove(first))
    }

    /// An answer that waits for a record.
    pub(super) fn say_when(
        &mut self,
        record: u64,
        (ticket, until): (Ticket, Instant),
        (value, bytes): (D::Value, usize),
        is_final: bool,
        token: Vector,
    ) {
        self.hurry(until);
        let unsaid = Unsaid { record, until, ticket, value, bytes, is_final, token };
        self.unsaid_bytes += unsaid.size();
        self.unsaid.push_back(unsaid);
    }

    /// How many answers wait for the journal.
    pub(super) fn unsaid(&self) -> Amount {
        Amount { operations: self.unsaid.len(), bytes: self.unsaid_bytes }
    }

    /// A strict operation waits to be final.
    pub(super) fn expect_final(&mut self, number: u64, ticket: Ticket, until: Instant) {
        self.hurry(until);
        self.strict.insert(number, Strict { ticket, until });
    }

    /// Who waits for this operation of this replica to be final.
    pub(super) fn take_strict(&mut self, number: u64) -> Option<Ticket> {
        self.strict.remove(&number).map(|strict| strict.ticket)
    }

    /// Gives the answers that wait for this record, or an earlier one.
    pub(super) fn say(&mut self, record: u64, out: &mut Vec<Output<D::Operator, D::Value>>) {
        while let Some(first) = self.unsaid.pop_front_if(|first| first.record <= record) {
            self.unsaid_bytes -= first.size();
            let Unsaid { ticket, value, is_final, token, .. } = first;
            out.push(Output::Answer { ticket, value, is_final, token });
        }
    }

    pub(super) fn forget(&mut self, ticket: Ticket) {
        self.blocked.retain(|request| request.ticket != ticket);
        if let Some(at) = self.unsaid.iter().position(|unsaid| unsaid.ticket == ticket)
            && let Some(unsaid) = self.unsaid.remove(at)
        {
            self.unsaid_bytes -= unsaid.size();
        }
        self.strict.retain(|_, strict| strict.ticket != ticket);
    }

    fn hurry(&mut self, until: Instant) {
        self.earliest = Some(self.earliest.map_or(until, |earliest| earliest.min(until)));
    }

    /// When the first gives up, or earlier.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.earliest
    }

    /// Refuses those who give up now, and says whose fault it is.
    pub(super) fn expire(
        &mut self,
        now: Instant,
        (me, has): (ReplicaId, &Vector),
        origins: &Origins<D::Operator>,
        peers: &Peers,
        out: &mut Vec<Output<D::Operator, D::Value>>,
    ) {
        if self.earliest.is_none_or(|at| at > now) {
            return;
        }
        let done = origins.done();
        for request in self.blocked.extract_if(.., |request| request.until <= now) {
            let missing = done.lacks(&request.after).map(|(id, _)| id).collect();
            out.push(Output::Refuse(request.ticket, Refusal::Behind(missing)));
        }
        for (number, strict) in self.strict.extract_if(.., |_, strict| strict.until <= now) {
            let lacks = peers.iter().filter(|(_, peer)| peer.knows.get(me) < number);
            let missing: Vec<ReplicaId> = lacks.map(|(id, _)| id).collect();
            let unwritten = missing.is_empty() || has.get(me) < number;
            let why = if unwritten { Refusal::Unwritten } else { Refusal::NotFinal(missing) };
            out.push(Output::Refuse(strict.ticket, why));
        }
        let late = self.unsaid.iter().filter(|unsaid| unsaid.until <= now);
        out.extend(late.map(|unsaid| Output::Refuse(unsaid.ticket, Refusal::Unwritten)));
        self.unsaid.retain(|unsaid| unsaid.until > now);
        self.unsaid_bytes = self.unsaid.iter().map(Unsaid::size).sum();
        let blocked = self.blocked.iter().map(|request| request.until);
        let strict = self.strict.values().map(|strict| strict.until);
        let unsaid = self.unsaid.iter().map(|unsaid| unsaid.until);
        self.earliest = blocked.chain(strict).chain(unsaid).min();
    }
}
