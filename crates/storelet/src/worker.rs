//! A worker: the storelets of one thread, and their schedulers.
//!
//! An automaton like all others: it does not run guests itself. [`Worker::take_slice`] hands the
//! scheduled guest to the owner of the thread, and [`Worker::ran`] takes it back with its pause and
//! the processor time used. Waiting guests occupy no thread: they are stored in here.
//!
//! There are two schedulers: one of the processor, one of file requests, each with reservation,
//! weight and limit.

mod domain;
#[cfg(test)]
mod tests;

use crate::account::Account;
use crate::crossing::{AskId, Begin, DomainId, ToHome, ToWorker};
use crate::execution;
use crate::prefetch;
use crate::schedule::{Key, SECOND, Schedule, ShareSpec, Turn};
use base::{Automaton, Error, Instant, Time};
use domain::Domain;
use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::time::Duration;
use tree::{Ask, NodeId, OpenId, Reply, Request};
use wasi::{Given, Got, Guest, Pause, Reason, Times};

/// Maximum number of file requests in flight for all storelets of a worker; others are queued.
pub const REQUESTED_MAX: usize = 32;

/// Bytes that cost as much as one more file request.
const BYTES_PER_COST: u64 = 64 << 10;

/// Maximum unconsumed output of a storelet, bytes.
pub const OUTPUT_MAX: usize = 256 << 10;

/// Size and age at which buffered output is sent.
const OUTPUT_BYTES: usize = 32 << 10;
const OUTPUT_TIME: Duration = Duration::from_millis(2);

/// Weight of a user relative to others.
const USER_WEIGHT: u32 = 100;

/// Inputs of a worker.
#[derive(Debug)]
pub enum Input {
    /// A message from home.
    Message(ToWorker),
    /// The reply to a storelet's file request, and its cost at home, ns.
    Answered(AskId, Result<Reply, Error>, u64),
    /// Time has passed.
    Tick,
    /// Shut down: every storelet is killed.
    Drain,
}

/// Outputs of a worker.
#[derive(Debug)]
pub enum Output {
    /// Send a file request to the namespace on behalf of a storelet.
    Ask(AskId, Request),
    /// Cancel a request.
    Cancel(AskId),
    /// Release a node.
    Release(NodeId),
    /// Close an open file.
    Close(OpenId),
    /// Send a message to home.
    Tell(ToHome),
}

/// A scheduled guest, outside of its worker.
#[derive(Debug)]
pub struct Slice {
    id: DomainId,
    guest: Box<Guest>,
    got: Option<Got>,
    times: Times,
}

impl Slice {
    /// Returns the storelet.
    pub fn id(&self) -> DomainId {
        self.id
    }

    /// Runs the guest until it pauses.
    pub fn run(mut self) -> Ran {
        let pause = self.guest.resume(self.got.take(), self.times);
        Ran { id: self.id, guest: self.guest, pause }
    }
}

/// Result of a slice.
#[derive(Debug)]
pub struct Ran {
    id: DomainId,
    guest: Box<Guest>,
    pause: Pause,
}

impl Ran {
    /// Returns the fuel used so far, where fuel is metered.
    pub fn fuel(&self) -> u64 {
        self.guest.fuel()
    }
}

/// The worker automaton.
#[derive(Debug)]
pub struct Worker {
    /// Root of the served tree.
    root: NodeId,
    /// Wall-clock time at [`Instant`] zero.
    wall: Time,
    domains: BTreeMap<DomainId, Domain>,
    cpu: Schedule,
    io: Schedule,
    by_cpu: BTreeMap<Key, DomainId>,
    by_io: BTreeMap<Key, DomainId>,
    alarms: BTreeSet<(Instant, DomainId)>,
    /// Number of file requests in flight.
    requested: usize,
    /// Processor ceiling, ns of each second; and time from which it permits the next slice.
    ceiling: u64,
    open_from: Instant,
    /// Storelets that this thread has worked for since the last charge, beside their slices.
    bearers: Vec<(DomainId, Account)>,
    /// Time spent since then on behalf of none of them, ns.
    unborne_ns: u64,
    draining: bool,
}

impl Worker {
    /// Creates a worker without storelets, with the served root and the wall-clock time at
    /// [`Instant`] zero.
    pub fn new(root: NodeId, wall: Time) -> Worker {
        Worker {
            root,
            wall,
            domains: BTreeMap::new(),
            cpu: Schedule::default(),
            io: Schedule::default(),
            by_cpu: BTreeMap::new(),
            by_io: BTreeMap::new(),
            alarms: BTreeSet::new(),
            requested: 0,
            ceiling: SECOND,
            open_from: Instant(0),
            bearers: Vec::new(),
            unborne_ns: 0,
            draining: false,
        }
    }

    /// Returns the state of each storelet, in words.
    pub fn states(&self) -> Vec<&'static str> {
        self.domains.values().map(|domain| domain.execution.state_name()).collect()
    }

    /// Returns whether there are no storelets.
    pub fn is_idle(&self) -> bool {
        self.domains.is_empty()
    }

    /// Returns the scheduled guest. The worker must get it back before anything else happens.
    pub fn take_slice(&mut self, now: Instant, out: &mut Vec<Output>) -> Option<Slice> {
        if self.open_from > now {
            return None;
        }
        let Turn::Of(key) = self.cpu.next(now.0) else { return None };
        let id = self.by_cpu[&key];
        self.live(now, id, execution::Input::Turn, out);
        let domain = self.domains.get_mut(&id).expect("it is ready");
        let guest = domain.guest.take().expect("a ready domain has a guest");
        let got = domain.resumes.take().expect("it is resumed");
        let wall = (self.wall.secs.max(0) as u64).saturating_mul(SECOND).saturating_add(now.0);
        Some(Slice { id, guest, got, times: Times { wall, monotonic: now.0 } })
    }

    /// Counts a storelet among those that share the present work of the thread.
    fn bear(&mut self, id: DomainId) {
        if let Some(domain) = self.domains.get(&id) {
            self.bearers.push((id, domain.begin.account));
        }
    }

    /// Charges the thread's work since the last call, or since the end of the last slice, in equal
    /// parts to the storelets that it was for: messages from and to home, scheduling, the aftermath
    /// of a slice. Work for none is charged to the one that runs next. Users and clients are
    /// charged for a storelet that has ended. Returns the part that appears in the reports of
    /// storelets, ns.
    pub fn charge(&mut self, now: Instant, spent_ns: u64) -> u64 {
        if self.bearers.is_empty() {
            // If it was for a storelet about to run, that one is charged, and keeps its turn.
            self.unborne_ns += if self.cpu.peek().is_some() { spent_ns } else { 0 };
            return 0;
        }
        let bearers = mem::take(&mut self.bearers);
        let count = bearers.len() as u64;
        let (mut left, mut reported) = (spent_ns, 0);
        for (at, (id, account)) in (0..).zip(bearers) {
            // The last ones get the remainder of the division.
            let part = left / (count - at);
            left -= part;
            match self.domains.get_mut(&id) {
                Some(domain) => {
                    self.cpu.charge(domain.cpu, part, now.0);
                    if !domain.execution.has_ended() {
                        domain.served(part);
                        reported += part;
                    }
                }
                None => self.cpu.charge_account(account, part),
            }
            self.hold_back(now, part);
        }
        reported
    }

    /// Delays the next slice according to the ceiling.
    fn hold_back(&mut self, now: Instant, ns: u64) {
        if self.ceiling < SECOND {
            let spaced = u128::from(ns) * u128::from(SECOND) / u128::from(self.ceiling.max(1));
            let from = self.open_from.max(Instant(now.0.saturating_sub(ns)));
            self.open_from = Instant(from.0.saturating_add(spaced as u64));
        }
    }

    /// Takes a guest back, with the processor time of its slice, ns. The work that follows is
    /// charged to it, too.
    pub fn ran(&mut self, now: Instant, ran: Ran, cpu_ns: u64, out: &mut Vec<Output>) {
        let Ran { id, mut guest, pause } = ran;
        let unborne_ns = mem::take(&mut self.unborne_ns);
        guest.charge(cpu_ns, unborne_ns);
        let pause = guest.settle(pause);
        let domain = self.domains.get_mut(&id).expect("it was running");
        give_back(&guest, out);
        domain.gather(now, guest.take_output());
        let foreseen = guest.take_foreseen();
        domain.guest = Some(guest);
        let spent_ns = cpu_ns + unborne_ns;
        self.cpu.charge(domain.cpu, spent_ns, now.0);
        self.hold_back(now, spent_ns);
        self.bear(id);
        if let Some(ask) = foreseen {
            self.foresee(now, id, prefetch::Input::Foreseen(ask), out);
        }
        self.live(now, id, execution::Input::Paused(pause), out);
        self.pass_on(now, id, out);
        self.admit(now, out);
    }

    /// Sends buffered output if it is large or old, or if the guest waits.
    fn pass_on(&mut self, now: Instant, id: DomainId, out: &mut Vec<Output>) {
        let Some(domain) = self.domains.get_mut(&id) else { return };
        let old = domain.emitted_since.is_some_and(|since| since + OUTPUT_TIME <= now);
        if old || domain.output_bytes >= OUTPUT_BYTES || domain.execution.is_talking() {
            domain.emit(id, out);
        }
    }

    /// Steps the execution of a storelet and performs its outputs.
    fn live(&mut self, now: Instant, id: DomainId, input: execution::Input, out: &mut Vec<Output>) {
        let Some(domain) = self.domains.get_mut(&id) else { return };
        let mut asks = Vec::new();
        domain.execution.step(now, input, &mut asks);
        // Home must know that a request has no payer before it learns of the end.
        if self.domains.get(&id).is_some_and(|domain| domain.execution.has_ended()) {
            self.foresee(now, id, prefetch::Input::Leave, out);
        }
        for ask in asks {
            self.perform(now, id, ask, out);
        }
        self.settle(now, id);
    }

    /// Steps the prefetch of a storelet and performs its outputs.
    fn foresee(
        &mut self,
        now: Instant,
        id: DomainId,
        input: prefetch::Input,
        out: &mut Vec<Output>,
    ) {
        let Some(domain) = self.domains.get_mut(&id) else { return };
        let mut asks = Vec::new();
        domain.prefetch.step(now, input, &mut asks);
        for ask in asks {
            match ask {
                prefetch::Output::Ask(ask) => {
                    self.ask(AskId { domain: id, prefetch: true }, ask, out)
                }
                prefetch::Output::Cancel => {
                    out.push(Output::Cancel(AskId { domain: id, prefetch: true }))
                }
                prefetch::Output::Arrived(reply) => {
                    let guest = self.domains[&id].guest.as_ref();
                    guest.expect("an ended guest receives nothing").arrive(reply);
                    self.live(now, id, execution::Input::Arrived, out);
                }
            }
        }
    }

    fn ask(&mut self, id: AskId, ask: Ask, out: &mut Vec<Output>) {
        self.requested += 1;
        let caller = self.domains[&id.domain].begin.caller.clone();
        out.push(Output::Ask(id, Request { caller, ask }));
    }

    fn perform(
        &mut self,
        now: Instant,
        id: DomainId,
        ask: execution::Output,
        out: &mut Vec<Output>,
    ) {
        let domain = self.domains.get_mut(&id).expect("it is stepped");
        match ask {
            execution::Output::Ask(ask) => {
                self.ask(AskId { domain: id, prefetch: false }, ask, out)
            }
            execution::Output::Cancel => {
                out.push(Output::Cancel(AskId { domain: id, prefetch: false }))
            }
            execution::Output::Make(root) => domain.make(self.root, root, now),
            execution::Output::Resume(got) => domain.resumes = Some(got),
            execution::Output::Hungry(count) => {
                domain.hungry = Some(count);
                self.feed(now, id, out);
            }
            execution::Output::Say(stream, bytes) => {
                domain.pending = Some((stream, bytes));
                self.hear(now, id, out);
            }
            execution::Output::Drop => domain.drop_guest(out),
            execution::Output::Disclaim(reply) => give_all(&wasi::handed_out(&reply), out),
            execution::Output::Release(node) => out.push(Output::Release(node)),
            execution::Output::Ended(ended) => domain.end(id, now, &ended, out),
        }
    }

    /// Feeds available input to a storelet that waits for it.
    fn feed(&mut self, now: Instant, id: DomainId, out: &mut Vec<Output>) {
        let Some(domain) = self.domains.get_mut(&id).filter(|it| !it.execution.has_ended()) else {
            return;
        };
        let Some(bytes) = domain.next_input() else { return };
        if !bytes.is_empty() {
            out.push(Output::Tell(ToHome::Eaten(id, bytes.len())));
        }
        self.live(now, id, execution::Input::Fed(bytes), out);
    }

    /// Accepts the output of a storelet, if there is room.
    fn hear(&mut self, now: Instant, id: DomainId, out: &mut Vec<Output>) {
        let Some(domain) = self.domains.get_mut(&id).filter(|it| !it.execution.has_ended()) else {
            return;
        };
        if domain.take_pending(now) {
            self.live(now, id, execution::Input::Received, out);
        }
    }

    /// Updates the schedulers with the state of a storelet, or drops it.
    fn settle(&mut self, now: Instant, id: DomainId) {
        let Some(domain) = self.domains.get_mut(&id) else { return };
        self.cpu.set_ready(domain.cpu, domain.execution.is_ready(), now.0);
        self.io.set_ready(domain.io, domain.queued().is_some(), now.0);
        let alarm = domain.deadline();
        let old = mem::replace(&mut domain.alarm, alarm);
        if old != alarm {
            old.map(|at| self.alarms.remove(&(at, id)));
            alarm.map(|at| self.alarms.insert((at, id)));
        }
        if domain.execution.is_over() && domain.prefetch.is_free() {
            let domain = self.domains.remove(&id).expect("it is there");
            domain.alarm.map(|at| self.alarms.remove(&(at, id)));
            self.cpu.remove(domain.cpu);
            self.io.remove(domain.io);
            self.by_cpu.remove(&domain.cpu);
            self.by_io.remove(&domain.io);
        }
    }

    /// Sends file requests, up to the maximum number in flight.
    fn admit(&mut self, now: Instant, out: &mut Vec<Output>) {
        while self.requested < REQUESTED_MAX
            && let Turn::Of(key) = self.io.next(now.0)
        {
            let id = self.by_io[&key];
            let domain = &self.domains[&id];
            self.io.charge(key, domain.queued().map_or(1, cost), now.0);
            if domain.execution.queued().is_some() {
                self.live(now, id, execution::Input::Admitted, out);
            } else {
                self.foresee(now, id, prefetch::Input::Admitted, out);
                self.settle(now, id);
            }
        }
    }

    fn begin(&mut self, now: Instant, id: DomainId, begin: Box<Begin>, out: &mut Vec<Output>) {
        let account = begin.account;
        let cpu = self.cpu.add(account, USER_WEIGHT, begin.run_spec.share_spec);
        let run_spec = &begin.run_spec;
        let io_terms = ShareSpec {
            reservation: run_spec.io_reserve,
            weight: run_spec.share_spec.weight,
            limit: run_spec.io_limit,
        };
        let io = self.io.add(account, USER_WEIGHT, io_terms);
        let before = (self.by_cpu.insert(cpu, id), self.by_io.insert(io, id));
        assert_eq!(before, (None, None), "a place in a schedule is one storelet's");
        let before = self.domains.insert(id, Domain::new(begin, cpu, io, now));
        assert!(before.is_none(), "a storelet begins once");
        self.live(now, id, execution::Input::Begin(self.root), out);
        if self.draining {
            self.live(now, id, execution::Input::Kill(Reason::Shutdown), out);
        }
    }

    fn receive(&mut self, now: Instant, message: ToWorker, out: &mut Vec<Output>) {
        match message {
            ToWorker::Begin(id, begin) => {
                self.begin(now, id, begin, out);
                self.bear(id);
            }
            ToWorker::Input(id, bytes) => {
                self.bear(id);
                if let Some(domain) = self.domains.get_mut(&id) {
                    domain.take_input(bytes);
                    self.feed(now, id, out);
                }
            }
            ToWorker::Taken(id, bytes) => {
                self.bear(id);
                if let Some(domain) = self.domains.get_mut(&id) {
                    domain.allow(bytes);
                    self.hear(now, id, out);
                }
            }
            ToWorker::Kill(id, reason) => {
                self.bear(id);
                self.live(now, id, execution::Input::Kill(reason), out);
            }
            ToWorker::Ceiling(ns) => self.ceiling = ns.clamp(1, SECOND),
        }
    }

    fn tick(&mut self, now: Instant, out: &mut Vec<Output>) {
        while let Some(&(at, id)) = self.alarms.first().filter(|(at, _)| *at <= now) {
            self.alarms.remove(&(at, id));
            self.bear(id);
            let domain = self.domains.get_mut(&id).expect("a removed domain has no alarm");
            assert_eq!(domain.alarm, Some(at), "a storelet knows its alarm");
            domain.alarm = None;
            if domain.emitted_since.is_some_and(|since| since + OUTPUT_TIME <= now) {
                domain.emit(id, out);
            }
            let input = match domain.until <= now {
                true => execution::Input::Kill(Reason::Time),
                false => execution::Input::Tick,
            };
            self.live(now, id, input, out);
        }
    }
}

impl Automaton for Worker {
    type Input = Input;
    type Output = Output;

    fn step(&mut self, now: Instant, input: Input, out: &mut Vec<Output>) {
        match input {
            Input::Message(message) => self.receive(now, message, out),
            Input::Answered(AskId { domain: id, prefetch }, reply, served_ns) => {
                assert!(self.requested > 0, "a request is answered once");
                self.requested -= 1;
                self.bear(id);
                let domain = self.domains.get_mut(&id).expect("it asked");
                let served_ns = served_ns.saturating_add(reply.as_ref().map_or(0, job_ns));
                domain.served(served_ns);
                self.cpu.charge(domain.cpu, served_ns, now.0);
                if prefetch {
                    self.foresee(now, id, prefetch::Input::Answered(reply), out);
                    self.settle(now, id);
                } else {
                    self.live(now, id, execution::Input::Answered(reply), out);
                }
            }
            Input::Tick => self.tick(now, out),
            Input::Drain => {
                self.draining = true;
                let ids: Vec<DomainId> = self.domains.keys().copied().collect();
                for id in ids {
                    self.live(now, id, execution::Input::Kill(Reason::Shutdown), out);
                }
            }
        }
        self.admit(now, out);
    }

    fn deadline(&self) -> Option<Instant> {
        let alarm = self.alarms.first().map(|(at, _)| *at);
        let turn = self.cpu.peek().map(|at| Instant(at).max(self.open_from));
        let io = self.io.peek().filter(|_| self.requested < REQUESTED_MAX).map(Instant);
        [alarm, turn, io].into_iter().flatten().min()
    }

    fn check(&self) {
        assert_eq!(self.by_cpu.len(), self.domains.len());
        assert_eq!(self.by_io.len(), self.domains.len());
        assert!(self.alarms.len() <= self.domains.len());
        let alarmed = self.domains.values().filter(|domain| domain.alarm.is_some());
        assert_eq!(alarmed.count(), self.alarms.len());
        // The request at the start of a storelet needs no admission.
        assert!(self.requested <= REQUESTED_MAX + self.domains.len(), "few requests are in flight");
        for (id, domain) in &self.domains {
            assert_eq!(
                self.by_cpu.get(&domain.cpu),
                Some(id),
                "its place for the processor is its own"
            );
            assert_eq!(self.by_io.get(&domain.io), Some(id), "its place for files is its own");
            let listed = domain.alarm.is_none_or(|at| self.alarms.contains(&(at, *id)));
            assert!(listed, "a storelet is looked at when it wants to be");
        }
        assert!((1..=SECOND).contains(&self.ceiling), "a part of each second may be used");
        self.cpu.check();
        self.io.check();
    }
}

/// Returns the cost of a file request, in requests.
fn cost(ask: &Ask) -> u64 {
    let bytes = if let Ask::Read { count, .. }
    | Ask::List { bytes_max: count, .. }
    | Ask::ListAll { bytes_max: count, .. }
    | Ask::ReadAll { bytes_max: count, .. }
    | Ask::Fetch { read_max: count, .. } = ask
    {
        u64::from(*count)
    } else if let Ask::Write { data, .. } = ask {
        data.len() as u64
    } else {
        0
    };
    1 + bytes / BYTES_PER_COST
}

/// Returns the additional processor time of a batch request, ns.
fn job_ns(reply: &Reply) -> u64 {
    if let Reply::Listings(_, ns) | Reply::Contents(_, ns) = reply { *ns } else { 0 }
}

/// Releases the resources that a guest has given back.
fn give_back(guest: &Guest, out: &mut Vec<Output>) {
    give_all(&guest.take_given(), out);
}

fn give_all(given: &[Given], out: &mut Vec<Output>) {
    out.extend(given.iter().map(|given| match given {
        Given::Node(node) => Output::Release(*node),
        Given::Open(open) => Output::Close(*open),
    }));
}
