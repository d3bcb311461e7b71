//! Simulated network, journals and clients, in virtual time.

use super::clients::{Client, Memory, name};
use super::{Mistake, Params, Replica, Report, linear};
use crate::op_list::OpList;
use base::rng::Rng;
use base::{Automaton, Instant};
use esds::Id;
use replica::service::{
    Amount, Config, Entry, Input, Limits, Message, Output, Record, Refusal, ReplicaId, Snapshot,
    Ticket, Vector, Vote,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// Number of events after which a run counts as nonterminating.
const EVENTS_MAX: usize = 100_000;

/// Maximum crashes in a run: each causes so many events that a run might not end.
const CRASHES_MAX: usize = 40;

/// Time after which a change counts as waiting for a lost member.
const STUCK: Duration = Duration::from_secs(60);

/// Timeout of a client.
const UNTIL: Duration = Duration::from_secs(5);

/// Replica with its durable state.
pub(super) struct ReplicaHost {
    pub(super) replica: Replica,
    pub(super) snapshot: Snapshot<OpList>,
    /// Records durable in its journal.
    pub(super) records: Vec<Record<Id>>,
    /// Records being written.
    writing: VecDeque<(u64, Record<Id>)>,
    /// Number of crashes.
    life: u32,
}

impl ReplicaHost {
    pub(super) fn new(replica: Replica) -> ReplicaHost {
        let (snapshot, records) = (replica.snapshot(), Vec::new());
        ReplicaHost { replica, snapshot, records, writing: VecDeque::new(), life: 0 }
    }
}

/// Future event.
pub(super) enum Event {
    Arrives { from: u16, to: u16, message: Message<Id> },
    Written { at: u16, life: u32, record: u64 },
    Asks(usize),
    Heals(u16, u16, bool),
    Begins(u16),
    Refuses(u16, u16),
    Silent(u16, BTreeSet<ReplicaId>),
    Votes { from: u16, to: u16, vote: Vote },
}

pub(super) struct World {
    pub(super) params: Params,
    pub(super) rng: Rng,
    now: Instant,
    /// By identifier; future members have none yet.
    pub(super) hosts: BTreeMap<u16, ReplicaHost>,
    /// Replicas known to clients and checks as lost, now or later.
    pub(super) doomed: BTreeSet<u16>,
    /// The one of them that is silent.
    pub(super) silenced: Option<u16>,
    /// Identifier of the next new member.
    pub(super) next_house: u16,
    events: BTreeMap<(Instant, u64), Event>,
    next_event: u64,
    cut: BTreeSet<(u16, u16)>,
    pub(super) clients: Vec<Client>,
    pub(super) memory: Memory,
    next_id: u64,
    /// Number of repeated requests for a change.
    pub(super) again: usize,
    pub(super) report: Report,
}

/// Performs a run. Returns the violation, if any.
pub fn run(params: &Params) -> Result<Report, String> {
    let mut world = World::new(params);
    world.begin()?;
    while let Some(entry) = world.events.first_key_value() {
        let at = *entry.0;
        let due = world.deadline().filter(|due| *due <= at.0);
        match due {
            Some(due) => world.tick(due)?,
            None => {
                let event = world.events.remove(&at).expect("it is the first");
                world.now = world.now.max(at.0);
                world.happen(event)?;
            }
        }
        world.look()?;
    }
    world.settle()?;
    world.report.inconsistent = world.memory.sum_up(&world.doomed)?;
    let linear = params.strict == 100 && params.operations <= linear::OPERATIONS_MAX;
    if linear && world.memory.history.is_small() {
        world.memory.history.judge()?;
        world.report.linear = 1;
    }
    Ok(world.report)
}

impl World {
    fn new(params: &Params) -> World {
        let ids: Vec<ReplicaId> = (0..params.replicas).map(name).collect();
        let config = config(params);
        let host =
            |id: &ReplicaId| (id.0, ReplicaHost::new(Replica::new(OpList, *id, &ids, config)));
        World {
            params: params.clone(),
            rng: base::rng::seeded(params.seed ^ 0x5eed),
            now: Instant(0),
            hosts: ids.iter().map(host).collect(),
            doomed: params.doomed.clone(),
            silenced: None,
            next_house: params.replicas,
            events: BTreeMap::new(),
            next_event: 0,
            cut: BTreeSet::new(),
            clients: vec![Client::default(); params.clients],
            memory: Memory::default(),
            next_id: 0,
            again: 0,
            report: Report::default(),
        }
    }

    fn begin(&mut self) -> Result<(), String> {
        for (a, b) in self.pairs() {
            self.step(a, Input::Connected(name(b)))?;
        }
        (0..self.clients.len()).for_each(|client| self.plan_to_ask(client));
        Ok(())
    }

    pub(super) fn host(&self, at: u16) -> &ReplicaHost {
        &self.hosts[&at]
    }

    fn house_mut(&mut self, at: u16) -> &mut ReplicaHost {
        self.hosts.get_mut(&at).expect("a host that is there")
    }

    /// Reports whether all operations were requested.
    pub(super) fn is_over(&self) -> bool {
        self.next_id >= self.params.operations
    }

    pub(super) fn is_cut(&self, a: u16, b: u16) -> bool {
        self.cut.contains(&(a, b))
    }

    /// Returns a random replica.
    pub(super) fn any(&mut self) -> u16 {
        let all: Vec<u16> = self.hosts.keys().copied().collect();
        all[self.rng.usize(..all.len())]
    }

    fn pairs(&self) -> Vec<(u16, u16)> {
        let all = || self.hosts.keys().copied();
        let pairs = all().flat_map(|a| all().map(move |b| (a, b)));
        pairs.filter(|(a, b)| a != b).collect()
    }

    pub(super) fn soon(&mut self, most: Duration, event: Event) {
        let after =
            Duration::from_nanos(self.rng.u64(0..=u64::try_from(most.as_nanos()).unwrap_or(1)));
        self.next_event += 1;
        self.events.insert((self.now + after, self.next_event), event);
    }

    fn plan_to_ask(&mut self, client: usize) {
        if !self.is_over() {
            self.soon(self.params.delay * 2, Event::Asks(client));
        }
    }

    fn deadline(&self) -> Option<Instant> {
        self.hosts.values().filter_map(|host| host.replica.deadline()).min()
    }

    fn tick(&mut self, due: Instant) -> Result<(), String> {
        self.now = self.now.max(due);
        for at in self.hosts.keys().copied().collect::<Vec<_>>() {
            if self.host(at).replica.deadline().is_some_and(|at| at <= self.now) {
                self.step(at, Input::Tick)?;
            }
        }
        Ok(())
    }

    fn happen(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Arrives { from, to, message } => {
                if !self.cut.contains(&(from, to)) && self.hosts.contains_key(&to) {
                    self.arrives(from, to, message)?;
                }
            }
            Event::Written { at, life, record } => self.written(at, life, record)?,
            Event::Asks(client) => self.ask(client)?,
            Event::Heals(a, b, reported) => self.heal(a, b, reported)?,
            Event::Begins(at) => self.begins(at)?,
            Event::Refuses(at, other) => self.refuses(at, other)?,
            Event::Silent(at, silent) => self.silent(at, silent)?,
            Event::Votes { from, to, vote }
                if !self.is_cut(from, to) && self.hosts.contains_key(&to) =>
            {
                self.step(to, Input::Voted(name(from), vote))?;
            }
            Event::Votes { .. } => {}
        }
        self.trouble()
    }

    pub(super) fn count(&mut self) -> Result<(), String> {
        self.report.events += 1;
        match self.report.events > EVENTS_MAX {
            true => Err("G4: it never ends".into()),
            false => Ok(()),
        }
    }

    /// Steps a replica, and performs its outputs.
    pub(super) fn step(&mut self, at: u16, input: Input<Id>) -> Result<(), String> {
        self.count()?;
        let mut out = Vec::new();
        let (now, work) = (self.now, self.params.work);
        let host = self.house_mut(at);
        host.replica.set_allowance(work);
        host.replica.step(now, input, &mut out);
        host.replica.check();
        for output in out {
            match output {
                Output::Answer { ticket, value, is_final, token } => {
                    self.answered(ticket, &value, is_final, &token)?;
                }
                Output::Refuse(ticket, refusal) => self.refused(at, ticket, &refusal)?,
                Output::Send(to, message) => {
                    let has = self.host(at).replica.has();
                    let kept = |entry: &Arc<Entry<Id>>| has.get(entry.label.origin) >= entry.number;
                    if !has.covers(&message.has) || !message.entries.iter().all(kept) {
                        return Err(format!("I10: {at} says what is not in its journal"));
                    }
                    self.send(at, to.0, message);
                }
                Output::Vote(to, vote) => self.vote(at, to.0, &vote),
                Output::Removes(_) => self.report.removals += 1,
                Output::Persist(number, record) => self.persist(at, number, record)?,
                Output::Members(membership) => self.members(at, &membership)?,
                Output::Final(entry, _) => {
                    return Err(format!("{entry:?} is reported without a watch"));
                }
                Output::Outdated(other) => {
                    return Err(format!("I10: {other:?} has more of {at} than its journal"));
                }
                Output::Distrust(other) => {
                    return Err(format!("I7: {at} does not believe that {other:?} is one of us"));
                }
            }
        }
        Ok(())
    }

    fn persist(&mut self, at: u16, number: u64, record: Record<Id>) -> Result<(), String> {
        let host = self.house_mut(at);
        host.writing.push_back((number, record));
        let life = host.life;
        self.soon(self.params.journal, Event::Written { at, life, record: number });
        if self.params.mistake == Some(Mistake::EarlyJournal) {
            self.step(at, Input::Persisted(number))?;
        }
        Ok(())
    }

    /// A journal is written in order: a completion implies that of all earlier records.
    fn written(&mut self, at: u16, life: u32, record: u64) -> Result<(), String> {
        let Some(host) = self.hosts.get_mut(&at).filter(|host| host.life == life) else {
            return Ok(());
        };
        while let Some((_, entries)) = host.writing.pop_front_if(|(number, _)| *number <= record) {
            host.records.push(entries);
        }
        self.step(at, Input::Persisted(record))
    }

    fn send(&mut self, from: u16, to: u16, mut message: Message<Id>) {
        self.spoil(&mut message);
        let times = match self.rng.u32(..100) {
            chance if chance < self.params.lost => 0,
            _ if self.rng.u32(..100) < self.params.repeated => 2,
            _ => 1,
        };
        for _ in 0..times {
            let message = message.clone();
            self.soon(self.params.delay, Event::Arrives { from, to, message });
        }
    }

    fn vote(&mut self, from: u16, to: u16, vote: &Vote) {
        let is_lost = self.rng.u32(..100) < self.params.lost;
        let times = if is_lost { 0 } else { self.rng.usize(1..=2) };
        for _ in 0..times {
            let vote = vote.clone();
            self.soon(self.params.delay, Event::Votes { from, to, vote });
        }
    }

    fn spoil(&mut self, message: &mut Message<Id>) {
        let rare = self.rng.u8(..4) == 0;
        match self.params.mistake.filter(|_| rare) {
            Some(Mistake::FalseVector) => {
                let more = message.has.iter().map(|(id, number)| (id, number + 1)).collect();
                message.has = more;
            }
            Some(Mistake::OtherLabel) => {
                for entry in &mut message.entries {
                    let entry = Arc::make_mut(entry);
                    entry.label.counter = entry.label.counter.saturating_sub(2);
                }
            }
            Some(Mistake::NoDependencies) => {
                for entry in &mut message.entries {
                    Arc::make_mut(entry).after = Vector::new();
                }
            }
            Some(
                Mistake::EarlyJournal
                | Mistake::HalfSnapshot
                | Mistake::LostToken
                | Mistake::ForgottenSeal
                | Mistake::EmptyGift,
            )
            | None => {}
        }
    }

    fn ask(&mut self, client: usize) -> Result<(), String> {
        if self.clients[client].waits.is_some() || self.is_over() {
            return Ok(());
        }
        let id = Id(self.next_id);
        self.next_id += 1;
        let is_gone = !self.hosts.contains_key(&self.clients[client].replica);
        if is_gone || self.rng.u32(..100) < self.params.wander {
            self.clients[client].replica = self.any();
        }
        let strict = self.rng.u32(..100) < self.params.strict;
        let asking = &mut self.clients[client];
        asking.waits = Some(Ticket(id.0));
        let requested = (client, asking.replica);
        self.memory.ask(self.now, id, requested, strict, asking.seen.clone());
        let forgets = self.params.mistake == Some(Mistake::LostToken);
        let after = if forgets { Vector::new() } else { asking.token.clone() };
        let (at, until) = (asking.replica, self.now + UNTIL);
        self.step(at, Input::Request { ticket: Ticket(id.0), after, strict, operator: id, until })
    }

    fn answered(
        &mut self,
        ticket: Ticket,
        value: &[Id],
        is_final: bool,
        token: &Vector,
    ) -> Result<(), String> {
        let id = Id(ticket.0);
        self.memory.receive(id, value, is_final)?;
        let requested = &self.memory.requested[&id];
        let (client, took) = (requested.client, self.now.since(requested.at));
        if self.params.timeout().is_some_and(|timeout| took > timeout) {
            return Err(format!("G9: {id:?} was answered after {took:?}"));
        }
        if self.clients[client].waits == Some(ticket) {
            self.clients[client].learn(value, token);
            self.plan_to_ask(client);
        }
        self.report.answered += 1;
        Ok(())
    }

    /// Checks that a refusal names replicas at fault, and that they are.
    fn refused(&mut self, at: u16, ticket: Ticket, refusal: &Refusal) -> Result<(), String> {
        let blames = match refusal {
            Refusal::Behind(missing) | Refusal::NotFinal(missing) | Refusal::Full(missing) => {
                !missing.is_empty() && !missing.contains(&name(at))
            }
            Refusal::Busy => {
                let Limits { blocked, pending_answers, .. } = self.params.limits;
                let is_short =
                    |most: Amount| self.params.clients > most.operations || most.bytes < usize::MAX;
                is_short(blocked) || is_short(pending_answers)
            }
            Refusal::Unwritten => !self.host(at).replica.is_written(),
            Refusal::Outdated => false,
            Refusal::Lost(lost) => self.has_lost(at, ticket, lost),
            Refusal::Outside => self.is_outside(at, ticket),
        };
        if !blames {
            return Err(format!("G9: {ticket:?} was refused without a reason: {refusal:?}"));
        }
        self.give_up(ticket);
        Ok(())
    }

    pub(super) fn client_of(&self, ticket: Ticket) -> usize {
        self.memory.requested[&Id(ticket.0)].client
    }

    /// Removes from a client's record the operations requested from a replica.
    pub(super) fn forget_seen(&mut self, client: usize, replica: u16) {
        let requested = &self.memory.requested;
        self.clients[client].seen.retain(|id| requested[id].replica != replica);
    }

    /// Returns the requests outstanding at a replica.
    pub(super) fn waiting_at(&self, at: u16) -> Vec<Ticket> {
        let here = self.clients.iter().filter(|client| client.replica == at);
        here.filter_map(|client| client.waits).collect()
    }

    pub(super) fn give_up(&mut self, ticket: Ticket) {
        self.report.unanswered += 1;
        let client = self.client_of(ticket);
        self.clients[client].waits = None;
        self.plan_to_ask(client);
    }

    fn chance(&mut self, one_in: u32) -> bool {
        one_in > 0 && !self.is_over() && self.rng.u32(..one_in) == 0
    }

    fn trouble(&mut self) -> Result<(), String> {
        let at = self.any();
        if self.chance(self.params.changes) {
            self.change(at)?;
        }
        if self.params.silences && self.chance(self.params.changes) {
            self.silence()?;
        }
        let at = self.any();
        if self.chance(self.params.snapshots) {
            self.snapshot(at);
        }
        if self.report.crashes < CRASHES_MAX && self.chance(self.params.crashes) {
            self.crash(at)?;
        }
        let other = self.any();
        if at != other && self.chance(self.params.cuts) {
            self.cut.extend([(at, other), (other, at)]);
            let reported = self.rng.bool();
            for (a, b) in [(at, other), (other, at)] {
                // Some partitions are detected, some are not.
                if reported {
                    self.step(a, Input::Disconnected(name(b)))?;
                }
            }
            self.soon(UNTIL * 2, Event::Heals(at, other, reported));
        }
        Ok(())
    }

    /// Ends a partition between two replicas; if they detected it, they are notified.
    fn heal(&mut self, a: u16, b: u16, reported: bool) -> Result<(), String> {
        for (a, b) in [(a, b), (b, a)] {
            self.cut.remove(&(a, b));
            if reported && [a, b].iter().all(|at| self.hosts.contains_key(at)) {
                self.step(a, Input::Connected(name(b)))?;
            }
        }
        Ok(())
    }

    /// Compacts the journal of a replica, if no write is in flight.
    fn snapshot(&mut self, at: u16) {
        let forgets = self.params.mistake == Some(Mistake::HalfSnapshot);
        let host = self.house_mut(at);
        if host.writing.is_empty() {
            host.snapshot = host.replica.snapshot();
            host.records.clear();
            if forgets {
                host.snapshot.rest.clear();
            }
        }
    }

    fn crash(&mut self, at: u16) -> Result<(), String> {
        self.report.crashes += 1;
        let config = config(&self.params);
        let forgets = self.params.mistake == Some(Mistake::ForgottenSeal);
        let there = self.rng.usize(..=self.host(at).writing.len());
        let host = self.house_mut(at);
        host.life += 1;
        // Some of the records in flight are durable, unacknowledged.
        host.records.extend(host.writing.drain(..).take(there).map(|(_, record)| record));
        let (mut snapshot, mut records) = (host.snapshot.clone(), host.records.clone());
        if forgets {
            snapshot.member_state.change = None;
            let member_states =
                records.iter_mut().filter_map(|record| record.member_state.as_mut());
            member_states.for_each(|member_state| member_state.change = None);
        }
        host.replica = Replica::recover(OpList, name(at), config, snapshot, records);
        self.waiting_at(at).into_iter().for_each(|ticket| self.give_up(ticket));
        let others: Vec<u16> = self.hosts.keys().copied().filter(|other| *other != at).collect();
        for other in others {
            self.step(at, Input::Connected(name(other)))?;
            if self.rng.bool() {
                self.step(other, Input::Connected(name(at)))?;
            }
        }
        let membership = self.host(at).replica.membership().clone();
        self.members(at, &membership)
    }

    /// Checks that final operations are a prefix of one order everywhere, that predecessors come
    /// first, and that no replica overestimates another's operations.
    fn look(&mut self) -> Result<(), String> {
        for (at, host) in &self.hosts {
            let stable = host.replica.stable();
            let agreed = self.memory.agree(stable);
            agreed.map_err(|wrong| format!("I6: at {at} what is final is {wrong}"))?;
            let mut before: BTreeSet<Id> = stable.iter().copied().collect();
            for entry in host.replica.suffix() {
                if !self.memory.requested[&entry.operator].seen.is_subset(&before) {
                    return Err(format!("I4: at {at} {:?} has not before it what it needs", entry));
                }
                before.insert(entry.operator);
            }
            for (other, peer) in &self.hosts {
                let known = host.replica.knows_of(name(*other));
                if known.is_some_and(|known| !peer.replica.has().covers(known)) {
                    return Err(format!("I2: {at} believes of {other} what is not so"));
                }
            }
        }
        Ok(())
    }

    /// Ends all faults, and runs to quiescence.
    fn settle(&mut self) -> Result<(), String> {
        (self.params.lost, self.params.repeated) = (0, 0);
        let mut looked = self.now;
        loop {
            let next = self.events.first_key_value().map(|(at, _)| *at);
            match (next, self.deadline()) {
                (None, None) if !self.request_again()? => break,
                (None, None) => {}
                (Some(at), due) if due.is_none_or(|due| due > at.0) => {
                    let event = self.events.remove(&at).expect("it is the first");
                    self.now = self.now.max(at.0);
                    self.happen(event)?;
                }
                (_, Some(due)) => {
                    // A leaving replica retransmits forever, perhaps to one that is gone.
                    if self.now.since(looked) > STUCK {
                        looked = self.now;
                        self.request_again()?;
                    }
                    self.tick(due)?;
                }
                (Some(_), None) => unreachable!("then there is no deadline before it"),
            }
            self.look()?;
        }
        self.ends_well()
    }
}

pub(super) fn config(params: &Params) -> Config {
    Config { gossip: params.gossip, limits: params.limits }
}
