//! One run: home, workers, the compiler, and clients, until nothing is left.

use super::canary::Mistake;
use super::compiler::Compiler;
use super::environment::{Environment, ScheduledEvent};
use super::files::Files;
use super::params::Params;
use super::programs;
use super::run_client::{Clients, FRONT};
use crate::disk::{Disk, ROOT};
use crate::run::Outcome;
use crate::trace::{Show, Trace, hash};
use crate::world::{Totals, WALL};
use base::op::{Done, Event, Op, OpId};
use base::{Automaton, Instant};
use node::{Config, HOME, Limits, Nfs, Node, Shadow, Web};
use std::collections::BTreeMap;
use std::time::Duration;
use storelet::standing::Stock;
use storelet::{Crossing, Settings, ToHome, ToWorker};

/// Maximum duration of a run, virtual time.
const TIME_MAX: Duration = Duration::from_secs(3600);

/// Maximum number of consecutive calls of a node for an expired deadline.
const SPINS_MAX: u32 = 1000;

/// A node.
#[derive(Debug)]
struct NodeSlot {
    number: usize,
    node: Node,
    events: Vec<Event>,
    is_new: bool,
    /// Time until which it is busy.
    until: Instant,
    /// Number of consecutive calls without an event.
    spins: u32,
}

impl NodeSlot {
    fn new(number: usize, node: Node) -> NodeSlot {
        let (events, until) = (Vec::new(), Instant(0));
        NodeSlot { number, node, events, is_new: true, until, spins: 0 }
    }

    /// Returns the time of its next turn.
    fn due(&self, now: Instant) -> Option<Instant> {
        if self.node.is_over() {
            return None;
        }
        let at = match self.is_new || !self.events.is_empty() {
            true => Some(now),
            false => self.node.deadline(),
        };
        at.map(|at| at.max(self.until))
    }
}

/// The whole run.
struct RunWorld {
    env: Environment,
    files: Files,
    places: Vec<NodeSlot>,
    compiler: Compiler,
    run_clients: Clients,
    /// Memory of running storelets, by number, bytes.
    running: BTreeMap<u64, u64>,
    /// CPU time of the slices of each running storelet, ns.
    sliced: BTreeMap<u64, u64>,
    /// Time of workers outside of slices to be charged, and the time charged in reports, ns.
    around: u64,
    reported: u64,
    totals: Totals,
    stopped: bool,
}

/// Runs a seed; panics on any failure.
pub(super) fn run(params: &Params, show: Show, mistake: Option<Mistake>) -> Outcome {
    let mut run_world = RunWorld::new(params, show, mistake);
    let held = run_world.places[0].node.held();
    while run_world.turn() {}
    run_world.judge(&held);
    let RunWorld { env, mut totals, run_clients, .. } = run_world;
    (totals.faults, totals.requests) = (env.faults, run_clients.judged());
    let (took, hash) = (env.now.since(Instant(0)), env.trace.hash());
    Outcome { took, totals, hash, trace: env.trace.into_text() }
}

impl RunWorld {
    fn new(params: &Params, show: Show, mistake: Option<Mistake>) -> RunWorld {
        let mut env = Environment::new(params, Trace::new(show), mistake);
        let mut disk = Disk::new(WALL);
        for (path, kind, data) in programs::stage() {
            let (dir, name) = path.rsplit_once('/').unwrap_or(("", &path));
            let names = dir.split('/').filter(|name| !name.is_empty());
            let dir = names.fold(ROOT, |at, name| {
                disk.lookup(at, name.as_bytes()).expect("it was planted before")
            });
            disk.plant(WALL, dir, name.as_bytes(), kind, &data);
        }
        let config = config(params);
        let mut home =
            Node::new(config.clone(), crate::run::directory(disk.open_root()), Vec::new());
        let mut ops = Vec::new();
        home.set_fronts(FRONT..=FRONT + params.workers, &mut ops);
        assert!(ops.is_empty(), "nothing is ending");
        let export = home.export();
        let mut places = vec![NodeSlot::new(HOME, home)];
        for number in FRONT + 1..=FRONT + params.workers {
            let config = Config { storelets: None, service: false, ..config.clone() };
            places.push(NodeSlot::new(number, Node::worker(number, config, export.clone())));
        }
        let run_clients = Clients::new(&mut env, Shadow::new(FRONT), export.root);
        if let Some(us) = params.stop_us {
            let at = Instant(env.now.0 + us * 1000);
            env.schedule(at, ScheduledEvent::Stop);
        }
        RunWorld {
            compiler: Compiler::new(FRONT + params.workers + 1),
            env,
            files: Files::new(disk),
            places,
            run_clients,
            running: BTreeMap::new(),
            sliced: BTreeMap::new(),
            around: 0,
            reported: 0,
            totals: Totals::default(),
            stopped: false,
        }
    }

    /// Advances to the next event; returns false if there is none.
    fn turn(&mut self) -> bool {
        let now = self.env.now;
        let due = self.places.iter().filter_map(|place| place.due(now));
        let Some(next) = due.chain(self.env.next_time()).min() else { return false };
        self.env.now = now.max(next);
        assert!(
            self.env.now.since(Instant(0)) < TIME_MAX,
            "it does not end: {:?}",
            self.run_clients
        );
        while let Some(scheduled) = self.env.pop_due() {
            self.happen(scheduled);
        }
        for index in 0..self.places.len() {
            if self.places[index].due(self.env.now).is_some_and(|at| at <= self.env.now) {
                self.step(index);
            }
        }
        if self.run_clients.are_content() && !self.stopped {
            let at = self.env.within(1000);
            self.stopped = true;
            self.env.schedule(at, ScheduledEvent::Stop);
        }
        true
    }

    fn happen(&mut self, scheduled: ScheduledEvent) {
        match scheduled {
            ScheduledEvent::Event(FRONT, event) => {
                self.see(FRONT, &event);
                let Done::Envelope(envelope) = event.done else {
                    unreachable!("it asked for nothing")
                };
                self.run_clients.receive(&mut self.env, envelope);
            }
            ScheduledEvent::Event(number, event) if number > FRONT + self.env.params.workers => {
                self.see(number, &event);
                let Done::Envelope(envelope) = event.done else {
                    unreachable!("it asked for nothing")
                };
                self.compiler.notified(&mut self.env, envelope);
            }
            ScheduledEvent::Event(number, event) => {
                self.see(number, &event);
                self.watch(&event);
                let place = self.places.iter_mut().find(|place| place.number == number);
                let place = place.expect("it is a node");
                // Messages to an ended node are dropped.
                if !place.node.is_over() {
                    self.totals.events += 1;
                    place.events.push(event);
                }
            }
            ScheduledEvent::Apply(id) => self.files.apply(&mut self.env, id),
            ScheduledEvent::Compiled(ticket) => self.compiler.send_home(&mut self.env, ticket),
            ScheduledEvent::Wake(index) => self.run_clients.wake(&mut self.env, index),
            ScheduledEvent::Stop => {
                if !self.run_clients.is_stopping() {
                    self.env.trace.line(format_args!("{} stop", self.env.now.0));
                    self.stopped = true;
                    self.run_clients.stop();
                    let event = Event { id: OpId::UNREQUESTED, done: Done::Stop };
                    self.places[0].events.push(event);
                }
            }
        }
    }

    /// Records an event for a node in the trace.
    fn see(&mut self, number: usize, event: &Event) {
        let (now, trace) = (self.env.now.0, &mut self.env.trace);
        match &event.done {
            Done::Envelope(envelope) => {
                let label = node::label(envelope);
                let (sum, start) = (hash(0, label.as_bytes()), label.chars().take(80));
                let start: String = start.collect();
                trace.line(format_args!("{now} {number} <- {start} {sum:x}"));
            }
            Done::Read(Ok(buf)) => {
                let sum = hash(0, buf);
                trace.line(format_args!("{now} {number} <- {:x} read {sum:x}", event.id.0));
            }
            done => trace.line(format_args!("{now} {number} <- {:x} {done:?}", event.id.0)),
        }
    }

    /// Checks messages about running storelets.
    fn watch(&mut self, event: &Event) {
        let Done::Envelope(envelope) = &event.done else { return };
        match envelope.0.downcast_ref::<Crossing>() {
            Some(Crossing::Worker(ToWorker::Begin(id, begin))) => {
                let before = self.running.insert(id.0, begin.run_spec.budget.memory);
                assert!(before.is_none(), "storelet {id} begins twice");
                let sum: u64 = self.running.values().sum();
                assert!(sum <= self.env.params.memory, "more memory than there is: {sum}");
                let (budget, maxima) = (begin.run_spec.budget, self.env.params.maxima());
                assert_eq!(maxima.within(budget), budget, "storelet {id} is beyond the maxima");
            }
            Some(Crossing::Home(ToHome::Ended(id, report))) => {
                assert!(self.running.remove(&id.0).is_some(), "storelet {id} ends twice");
                let sliced = self.sliced.remove(&id.0).unwrap_or(0);
                assert_eq!(report.used.cpu_ns, sliced, "slices of storelet {id} are not charged");
                self.reported += report.used.served_ns;
            }
            Some(Crossing::Home(ToHome::Emitted(id, ..))) => {
                assert!(self.running.contains_key(&id.0), "storelet {id} speaks after its end");
            }
            Some(
                Crossing::Worker(_)
                | Crossing::Home(_)
                | Crossing::Compiled(_)
                | Crossing::Kept(_)
                | Crossing::Ask(..)
                | Crossing::Cancel(_)
                | Crossing::Close(_)
                | Crossing::Answered(..),
            )
            | None => {}
        }
    }

    /// Performs one turn of a node, and a slice if it is a worker.
    fn step(&mut self, index: usize) {
        let (now, mut ops) = (self.env.now, Vec::new());
        let place = &mut self.places[index];
        let nothing_came = place.events.is_empty() && !place.is_new;
        place.is_new = false;
        place.node.turn(now, &node::ticking(now), &mut place.events, &mut ops);
        place.node.check();
        if place.number != HOME {
            let around = self.env.rng.u64(0..=self.env.params.around_ns);
            self.around += place.node.charge(now, around);
        }
        let mut ran = false;
        if let Some(slice) = place.node.take_slice(now, &mut ops) {
            self.submit(index, now, &mut ops);
            let cpu = self.env.rng.u64(1000..=self.env.params.slice_ns);
            *self.sliced.entry(slice.id().0).or_insert(0) += cpu;
            let later = Instant(now.0 + cpu);
            let place = &mut self.places[index];
            place.node.ran(later, slice.run(), cpu, &mut ops);
            place.node.check();
            (place.until, ran) = (later, true);
        }
        let place = &mut self.places[index];
        let is_due = place.node.deadline().is_some_and(|due| due <= now);
        place.spins = match nothing_came && !ran && ops.is_empty() && is_due {
            true => place.spins + 1,
            false => 0,
        };
        assert!(place.spins < SPINS_MAX, "node {} spins", place.number);
        let at = now.max(place.until);
        self.submit(index, at, &mut ops);
    }

    fn submit(&mut self, index: usize, at: Instant, ops: &mut Vec<Op>) {
        let from = self.places[index].number;
        for op in ops.drain(..) {
            match op {
                Op::Post { to, envelope } => self.env.post(from, at, to, envelope),
                op => self.files.submit(&mut self.env, op),
            }
        }
    }

    /// Checks at the end that nothing is left.
    fn judge(&mut self, held: &[(usize, usize)]) {
        for place in &self.places {
            let NodeSlot { number, node, .. } = place;
            assert!(node.is_over(), "node {number} has not ended: {:?}", self.run_clients);
            assert!(node.is_quiet(), "node {number} gave something up");
        }
        self.run_clients.finish();
        assert_eq!(self.places[0].node.held(), held, "something is held in the end");
        assert!(self.running.is_empty(), "they run for ever: {:?}", self.running);
        let RunWorld { around, reported, .. } = self;
        assert!(around <= reported, "{around} ns were done for storelets, {reported} are charged");
        assert!(self.compiler.is_over() && self.files.is_idle(), "something is in flight");
        assert_eq!(self.files.disk.open_count(), 1, "files were left open, besides the root");
        for (path, contents) in self.run_clients.written() {
            let name = path.strip_prefix("out/").expect("writers write there");
            let out = self.files.disk.lookup(ROOT, b"out").expect("it was planted");
            let found = self.files.disk.lookup(out, name.as_bytes());
            let file = found.unwrap_or_else(|| panic!("{path} was written, and is not there"));
            let data = &self.files.disk.inode(file).expect("it has a name").data;
            let data = data.read(0, data.len() as usize);
            assert!(data == *contents, "{path}: {} bytes, and others", data.len());
        }
    }
}

fn config(params: &Params) -> Config {
    let settings = Settings {
        workers: (FRONT + 1..=FRONT + params.workers).collect(),
        home: HOME,
        compiler: FRONT + params.workers + 1,
        memory: params.memory,
        client_memory: params.memory / 2,
        maxima: params.maxima(),
        writes: params.writes,
        seed: [5; 32],
        standing: Stock::default(),
    };
    Config {
        read_only: false,
        write_through: false,
        service: true,
        owner: 0,
        web: Web { write: true, ..Web::default() },
        nfs: Nfs::default(),
        ports: Vec::new(),
        wall: WALL,
        limits: Limits {
            msize: 1 << 20,
            fids: 1000,
            handles: 100_000,
            calls: 1000,
            bytes: 1 << 24,
        },
        connections_max: 10,
        bytes_max: 1 << 24,
        files_max: 100_000,
        sharers: 1,
        volume_cache: 1 << 24,
        storelets: Some(settings),
    }
}
