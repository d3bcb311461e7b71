//! Pending requests, indexed by ticket, by the event that they wait for, and by deadline, so that
//! none is searched for.

use super::members::Members;
use super::{Amount, Origins, Output, Peers, ReplicaId, Ticket, Vector};
use crate::data::DataType;
use crate::work::{self, Meter};
use base::Instant;
use std::collections::{BTreeMap, BTreeSet};

/// Reason why a request was not answered in time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Predecessors from these replicas are missing. It was not done.
    Behind(Vec<ReplicaId>),
    /// Done, but unacknowledged by these replicas, so it is unknown when it will be final.
    NotFinal(Vec<ReplicaId>),
    /// Too much is retained for these replicas, which lag behind. It was not done.
    Full(Vec<ReplicaId>),
    /// Too many requests or answers are pending. It was not done.
    Busy,
    /// The journal of this replica is too slow. The operation is done if its record gets written.
    Unwritten,
    /// This replica was restored from an older copy. It was not done.
    Outdated,
    /// Predecessors are lost with these former members. It was not done.
    Lost(Vec<ReplicaId>),
    /// This replica is not a member, or is leaving. It was not done.
    Outside,
}

/// Request waiting for its predecessors or its turn.
#[derive(Clone, Debug)]
pub(super) struct Blocked<O> {
    pub(super) ticket: Ticket,
    pub(super) after: Vector,
    pub(super) strict: bool,
    pub(super) operator: O,
    /// Heap size, in bytes.
    pub(super) bytes: usize,
    pub(super) until: Instant,
}

impl<O> Blocked<O> {
    fn size(&self) -> usize {
        size_of_val(self) + self.bytes
    }
}

/// Answer waiting for a journal record.
#[derive(Clone, Debug)]
struct PendingAnswer<V> {
    ticket: Ticket,
    value: V,
    /// Heap size of the value, in bytes.
    bytes: usize,
    is_final: bool,
    token: Vector,
}

impl<V> PendingAnswer<V> {
    fn size(&self) -> usize {
        size_of_val(self) + self.bytes + self.token.size()
    }
}

/// Queue of a ticket, and its key there.
#[derive(Clone, Copy, Debug)]
enum QueueKey {
    /// Waiting for this predecessor; with its arrival number.
    Blocked(ReplicaId, u64, u64),
    /// Waiting for its turn; with its arrival number.
    Ready(u64),
    /// Waiting for this journal record; with its creation number.
    PendingAnswer(u64, u64),
    /// Waiting for this operation to be final.
    Strict(u64),
}

/// Pending requests and answers.
#[derive(Clone, Debug)]
pub(super) struct Waiting<D: DataType> {
    places: BTreeMap<Ticket, (QueueKey, Instant)>,
    by_time: BTreeSet<(Instant, Ticket)>,
    /// By the first missing predecessor and the arrival number.
    blocked: BTreeMap<(ReplicaId, u64, u64), Blocked<D::Operator>>,
    /// Requests without missing predecessors, by arrival number.
    ready: BTreeMap<u64, Blocked<D::Operator>>,
    /// Total size of both.
    held: Amount,
    pending_answers: BTreeMap<(u64, u64), PendingAnswer<D::Value>>,
    /// Size of these in bytes.
    unsent_bytes: usize,
    /// Number of the last record in the journal.
    durable: u64,
    /// By operation number.
    strict: BTreeMap<u64, Ticket>,
    /// Arrived requests plus created answers.
    arrivals: u64,
}

impl<D: DataType> Waiting<D> {
    pub(super) fn new() -> Waiting<D> {
        Waiting {
            places: BTreeMap::new(),
            by_time: BTreeSet::new(),
            blocked: BTreeMap::new(),
            ready: BTreeMap::new(),
            held: Amount::default(),
            pending_answers: BTreeMap::new(),
            unsent_bytes: 0,
            durable: 0,
            strict: BTreeMap::new(),
            arrivals: 0,
        }
    }

    /// Amount waiting for predecessors or a turn.
    pub(super) fn blocked(&self) -> Amount {
        self.held
    }

    /// Reports whether a request waits only for its turn.
    pub(super) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    fn expect(&mut self, ticket: Ticket, place: QueueKey, until: Instant) {
        let before = self.places.insert(ticket, (place, until));
        assert!(before.is_none(), "a ticket waits for one thing");
        self.by_time.insert((until, ticket));
    }

    fn leave(&mut self, ticket: Ticket) -> Option<QueueKey> {
        let (place, until) = self.places.remove(&ticket)?;
        let timed = self.by_time.remove(&(until, ticket));
        assert!(timed, "a waiting request has a deadline");
        Some(place)
    }

    /// Adds a request, which waits for the part of `after` that is missing in `done`.
    pub(super) fn block(&mut self, request: Blocked<D::Operator>, done: &Vector) {
        self.arrivals += 1;
        self.held.add(request.size());
        self.put(self.arrivals, request, done);
    }

    fn put(&mut self, arrival: u64, request: Blocked<D::Operator>, done: &Vector) {
        let (ticket, until) = (request.ticket, request.until);
        let lacks = done.lacks(&request.after).next();
        let place = match lacks {
            Some((of, number)) => {
                self.blocked.insert((of, number, arrival), request);
                QueueKey::Blocked(of, number, arrival)
            }
            None => {
                self.ready.insert(arrival, request);
                QueueKey::Ready(arrival)
            }
        };
        self.expect(ticket, place, until);
    }

    fn release(&mut self, request: &Blocked<D::Operator>) {
        assert!(self.held.operations > 0, "waiting entries are counted");
        assert!(self.held.bytes >= request.size(), "its bytes are counted");
        self.held = self.held.without(Amount { operations: 1, bytes: request.size() });
    }

    /// Requeues requests whose first missing predecessor is now in `done`.
    pub(super) fn unblock(&mut self, done: &Vector) {
        let Some(((first, ..), _)) = self.blocked.first_key_value() else { return };
        let mut next = Some(*first);
        while let Some(of) = next {
            let range = (of, 0, 0)..=(of, done.get(of), u64::MAX);
            while let Some((key, _)) = self.blocked.range(range.clone()).next() {
                let key = *key;
                let request = self.blocked.remove(&key).expect("it was just found");
                self.leave(request.ticket);
                self.put(key.2, request, done);
            }
            let behind = self.blocked.range((of, u64::MAX, u64::MAX)..).next();
            next = behind.map(|((of, ..), _)| *of);
        }
    }

    /// Removes requests that have become impossible, after a change of members.
    pub(super) fn refuse_blocked(&mut self, members: &Members) -> Vec<(Ticket, Refusal)> {
        let mut refused = Vec::new();
        let all = self.ready.values().chain(self.blocked.values());
        for request in all {
            refused.extend(why_never(request, members).map(|why| (request.ticket, why)));
        }
        refused.iter().for_each(|(ticket, _)| self.forget(*ticket));
        refused
    }

    /// Takes the first ready request.
    pub(super) fn take_ready(&mut self) -> Option<Blocked<D::Operator>> {
        let (_, request) = self.ready.pop_first()?;
        self.leave(request.ticket);
        self.release(&request);
        Some(request)
    }

    /// Returns the first ready request.
    pub(super) fn first_ready(&self) -> Option<&Blocked<D::Operator>> {
        self.ready.first_key_value().map(|(_, request)| request)
    }

    /// Adds an answer that waits for a record.
    pub(super) fn answer_when(
        &mut self,
        record: u64,
        (ticket, until): (Ticket, Instant),
        (value, bytes): (D::Value, usize),
        is_final: bool,
        token: Vector,
    ) {
        self.arrivals += 1;
        let pending_answers = PendingAnswer { ticket, value, bytes, is_final, token };
        self.unsent_bytes += pending_answers.size();
        self.pending_answers.insert((record, self.arrivals), pending_answers);
        self.expect(ticket, QueueKey::PendingAnswer(record, self.arrivals), until);
    }

    /// Amount of answers waiting for the journal.
    pub(super) fn pending_answers(&self) -> Amount {
        Amount { operations: self.pending_answers.len(), bytes: self.unsent_bytes }
    }

    /// Adds a strict operation that waits to be final.
    pub(super) fn expect_final(&mut self, number: u64, ticket: Ticket, until: Instant) {
        let before = self.strict.insert(number, ticket);
        assert!(before.is_none(), "one waits for each operation");
        self.expect(ticket, QueueKey::Strict(number), until);
    }

    /// Takes the ticket that waits for this own operation to be final.
    pub(super) fn take_strict(&mut self, number: u64) -> Option<Ticket> {
        let ticket = self.strict.remove(&number)?;
        self.leave(ticket);
        Some(ticket)
    }

    /// Records that the journal is durable up to this record.
    pub(super) fn allow_send(&mut self, record: u64) {
        self.durable = self.durable.max(record);
    }

    /// Reports whether an answer is ready to be sent.
    pub(super) fn has_durable(&self) -> bool {
        self.pending_answers
            .first_key_value()
            .is_some_and(|((record, _), _)| *record <= self.durable)
    }

    /// Sends answers whose records are durable, as far as the meter allows.
    pub(super) fn send_durable(
        &mut self,
        meter: &mut Meter,
        out: &mut Vec<Output<D::Operator, D::Value>>,
    ) {
        while meter.has_left()
            && self.has_durable()
            && let Some((_, first)) = self.pending_answers.pop_first()
        {
            meter.spend(1 + work::of_bytes(first.bytes));
            self.unsent_bytes -= first.size();
            let PendingAnswer { ticket, value, is_final, token, .. } = first;
            self.leave(ticket);
            out.push(Output::Answer { ticket, value, is_final, token });
        }
    }

    /// Removes a ticket from its queue.
    pub(super) fn forget(&mut self, ticket: Ticket) {
        match self.leave(ticket) {
            Some(QueueKey::Blocked(of, number, arrival)) => {
                let request = self.blocked.remove(&(of, number, arrival));
                self.release(&request.expect("it is at its place"));
            }
            Some(QueueKey::Ready(arrival)) => {
                let request = self.ready.remove(&arrival);
                self.release(&request.expect("it is at its place"));
            }
            Some(QueueKey::PendingAnswer(record, arrival)) => {
                let pending_answers = self.pending_answers.remove(&(record, arrival));
                self.unsent_bytes -= pending_answers.expect("it is at its place").size();
            }
            Some(QueueKey::Strict(number)) => drop(self.strict.remove(&number)),
            None => {}
        }
    }

    /// Returns the earliest deadline.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// Refuses expired requests, each with its cause.
    pub(super) fn expire(
        &mut self,
        now: Instant,
        (me, has): (ReplicaId, &Vector),
        origins: &Origins<D::Operator>,
        peers: &Peers,
        out: &mut Vec<Output<D::Operator, D::Value>>,
    ) {
        while let Some((_, ticket)) = self.by_time.first().copied().filter(|(at, _)| *at <= now) {
            let why = match self.places[&ticket].0 {
                QueueKey::Blocked(of, number, arrival) => {
                    let request = &self.blocked[&(of, number, arrival)];
                    let missing = origins.done().lacks(&request.after).map(|(id, _)| id);
                    Refusal::Behind(missing.collect())
                }
                QueueKey::Ready(_) => Refusal::Busy,
                QueueKey::PendingAnswer(..) => Refusal::Unwritten,
                QueueKey::Strict(number) => {
                    let lacks = peers.iter().filter(|(_, peer)| peer.knows.get(me) < number);
                    let mut missing: Vec<ReplicaId> = lacks.map(|(id, _)| id).collect();
                    if missing.is_empty() {
                        // A leaving replica also waits for everything before the operation.
                        let behind = peers.iter().filter(|(_, peer)| !peer.knows.covers(has));
                        missing = behind.map(|(id, _)| id).collect();
                    }
                    let unwritten = missing.is_empty() || has.get(me) < number;
                    if unwritten { Refusal::Unwritten } else { Refusal::NotFinal(missing) }
                }
            };
            self.forget(ticket);
            out.push(Output::Refuse(ticket, why));
        }
    }

    pub(super) fn check(&self) {
        assert_eq!(self.places.len(), self.by_time.len());
        let waiting =
            [self.blocked.len(), self.ready.len(), self.pending_answers.len(), self.strict.len()];
        assert_eq!(self.places.len(), waiting.iter().sum::<usize>());
        assert_eq!(self.held.operations, self.blocked.len() + self.ready.len());
        for (ticket, (place, until)) in &self.places {
            assert!(self.by_time.contains(&(*until, *ticket)), "a waiting request has a deadline");
            let found = match place {
                QueueKey::Blocked(of, number, arrival) => {
                    self.blocked.get(&(*of, *number, *arrival)).map(|request| request.ticket)
                }
                QueueKey::Ready(arrival) => self.ready.get(arrival).map(|request| request.ticket),
                QueueKey::PendingAnswer(record, arrival) => self
                    .pending_answers
                    .get(&(*record, *arrival))
                    .map(|pending_answers| pending_answers.ticket),
                QueueKey::Strict(number) => self.strict.get(number).copied(),
            };
            assert_eq!(found, Some(*ticket), "a ticket is at its place");
        }
        let held = self.blocked.values().chain(self.ready.values());
        assert_eq!(self.held.bytes, held.map(Blocked::size).sum::<usize>(), "bytes are counted");
        let pending_answers = self.pending_answers.values().map(PendingAnswer::size).sum::<usize>();
        assert_eq!(self.unsent_bytes, pending_answers, "bytes of answers are counted");
        let blocked = self.blocked.keys().map(|(_, _, arrival)| arrival);
        let mut arrivals = blocked.chain(self.ready.keys());
        assert!(arrivals.all(|arrival| *arrival <= self.arrivals), "arrivals are counted");
    }
}

/// Returns the reason why a request can never be done here, if any.
pub(super) fn why_never<O>(request: &Blocked<O>, members: &Members) -> Option<Refusal> {
    let lost = members.lost_of(&request.after);
    let lost = (!lost.is_empty()).then_some(Refusal::Lost(lost));
    if members.is_outside() { Some(Refusal::Outside) } else { lost }
}
