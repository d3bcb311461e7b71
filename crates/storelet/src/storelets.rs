//! The tree of storelets: `/.upcall/storelets/`.
//!
//! Opening `new` begins a storelet: its [run spec](crate::run_spec), module and input are written
//! to the open file, and its output is read from it. Closing the file ends the storelet. So every
//! client that can open a file can run programs here, and a client that disconnects leaves nothing
//! behind. `running` lists the present storelets; writing `kill 17` to it ends one.
//!
//! A storelet runs as the user who started it. This module admits storelets: the sum of their
//! memory limits stays below a bound, and users are served in turn.

mod files;
mod installs;
mod listing;
mod watches;

use crate::account::Account;
use crate::admission::{Admission, Limits, Need, user_of};
use crate::ceiling::Ceiling;
use crate::compile::{Compiled, Fresh, Module, ToCompiler};
use crate::crossing::{Begin, Crossing, DomainId, ToHome, ToWorker};
use crate::domain::{self, Domain, ORDER_TIME};
use crate::maxima::Maxima;
use crate::report::Report;
use crate::run_spec::{Label, RunSpec};
use crate::standing::registry::{self, InstalledRegistry};
use crate::standing::run_schedule::RunSchedule;
use crate::standing::{Stock, install, watch};
use base::op::{Done, Envelope, Op};
use base::{Automaton, Caller, Error, Instant, Stat, Time, User};
use installs::AtInstallSession;
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{RngCore as _, SeedableRng as _};
use slab::Slab;
use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::sync::Arc;
use std::time::Duration;
use tree::flat::ROOT;
use tree::{Input, NodeId, Output, Reply};
use wasi::{Code, Hash, Reason, Used};
use watches::Watched;

/// Maximum number of storelets, running or not.
pub const DOMAINS_MAX: usize = 1024;

/// Maximum number of running storelets, limited by the guest slots.
const RUNNING_MAX: usize = wasi::GUESTS_MAX as usize - 1;

/// Maximum number of storelets of one user.
const DOMAINS_OF_ONE: usize = DOMAINS_MAX / 4 * 3;

/// Maximum number of open files.
pub const OPENS_MAX: usize = DOMAINS_MAX + 256;

/// Maximum size of modules being received or compiled, bytes.
const MODULES_BYTES_MAX: usize = 256 << 20;

/// Program cache: maximum number of programs, size of their code, and size of one, bytes.
const PROGRAMS_MAX: usize = 32;
const PROGRAMS_BYTES_MAX: usize = 128 << 20;
const PROGRAM_BYTES_MAX: usize = PROGRAMS_BYTES_MAX / 4;

/// Server memory for each storelet beside its own, bytes.
pub const OVERHEAD: u64 = 6 << 20;

/// Configuration of storelets.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Numbers of the nodes that run storelets.
    pub workers: Vec<usize>,
    /// Number of the home node, which has the namespace.
    pub home: usize,
    /// Number of the mailbox of the compiler and state store.
    pub compiler: usize,
    /// Memory of all storelets, bytes.
    pub memory: u64,
    /// Memory of the storelets of one client, including the server's overhead, bytes.
    pub client_memory: u64,
    /// Maximum resources of one storelet.
    pub maxima: Maxima,
    /// Whether storelets may change files.
    pub writes: bool,
    /// Seed of random numbers; unpredictable.
    pub seed: [u8; 32],
    /// Contents of the state store.
    pub standing: Stock,
}

/// A storelet or chain.
#[derive(Debug)]
struct DomainEntry {
    domain: Domain,
    caller: Caller,
    account: Account,
    since: Instant,
    /// Workers of the storelets of its chain, and their total memory.
    runs: Option<(Vec<usize>, u64)>,
    /// Name for listings.
    name: String,
    /// The installed storelets in it, if any.
    named: Option<Named>,
}

/// A run of installed storelets.
#[derive(Debug)]
struct Named {
    /// Names and versions.
    all: Vec<(Label, u32)>,
    /// Start, seconds since 1970, and trigger.
    at: i64,
    trigger: String,
    why: RunReason,
}

/// Reason of a run of an installed storelet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RunReason {
    /// A request.
    Requested,
    /// A schedule.
    Time,
    /// A new file, found by the watch with this number.
    File(u64),
}

#[derive(Debug)]
enum Opened {
    Directory,
    Text(Vec<u8>),
    /// A storelet, by the open file.
    Domain(DomainId),
    /// An install session, by the open file.
    InstallSession(DomainId),
    /// The control file, and the caller who may kill storelets.
    Control(Caller),
}

/// Totals over all finished storelets.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Storelets or chains by outcome: [`Report::end`](crate::Report).
    pub ended: BTreeMap<&'static str, u64>,
    /// Resource usage.
    pub used: Used,
    /// Time from start to first instruction: order, compilation and admission, ns.
    pub waited_ns: u64,
    /// Processor time of compilations, ns.
    pub compile_ns: u64,
}

impl Totals {
    fn add(&mut self, report: &Report) {
        *self.ended.entry(report.end).or_insert(0) += 1;
        self.used = self.used.with(&report.used);
        self.waited_ns += report.waited_ns;
        self.compile_ns += report.compile_ns;
    }
}

/// The tree automaton.
#[derive(Debug)]
pub struct Storelets {
    index: u16,
    started: Time,
    owner: u32,
    settings: Settings,
    random: ChaCha20Rng,
    opens: Slab<Opened>,
    here: BTreeMap<DomainId, DomainEntry>,
    next: u64,
    /// Recently run programs, the latest at the end.
    programs: VecDeque<Fresh>,
    /// Admission queue and allocations.
    admission: Admission,
    /// Processor ceiling.
    ceiling: Ceiling,
    /// Registry of installed storelets, and install sessions.
    registry: InstalledRegistry,
    install_sessions: BTreeMap<DomainId, AtInstallSession>,
    /// Schedules and watches; whether they were started.
    run_schedules: BTreeMap<Label, RunSchedule>,
    watches: BTreeMap<u64, Watched>,
    is_settled: bool,
    totals: Totals,
    /// Messages for the operator.
    news: VecDeque<String>,
    closing: bool,
    /// Whether the compiler and state store were sent the end.
    is_over: bool,
}

impl Storelets {
    /// Creates the tree with number `index` among the node's trees; its files have the date
    /// `started`, and belong to `owner`.
    pub fn new(index: u16, started: Time, owner: u32, mut settings: Settings) -> Storelets {
        let (mut message, limits) = (Vec::new(), limits(&settings));
        let registry = InstalledRegistry::new(mem::take(&mut settings.standing), &mut message);
        let news = message.into_iter().filter_map(|output| match output {
            registry::Output::Tell(text) => Some(text),
            registry::Output::Keep(..)
            | registry::Output::Filed(..)
            | registry::Output::Saved(_) => None,
        });
        Storelets {
            index,
            started,
            owner,
            random: ChaCha20Rng::from_seed(settings.seed),
            settings,
            opens: Slab::new(),
            here: BTreeMap::new(),
            next: 1,
            programs: VecDeque::new(),
            admission: Admission::new(limits),
            ceiling: Ceiling::default(),
            registry,
            install_sessions: BTreeMap::new(),
            run_schedules: BTreeMap::new(),
            watches: BTreeMap::new(),
            is_settled: false,
            totals: Totals::default(),
            news: news.collect(),
            closing: false,
            is_over: false,
        }
    }

    /// Returns the root.
    pub fn root(&self) -> NodeId {
        NodeId::new(self.index, ROOT)
    }

    /// Returns the attributes of the root.
    pub fn root_stat(&self) -> Stat {
        self.stat(ROOT)
    }

    /// Returns the number of open files.
    pub fn opens(&self) -> usize {
        self.opens.len()
    }

    /// Returns the number of storelets in each state.
    pub fn states(&self) -> Vec<(&'static str, usize)> {
        let mut counts = BTreeMap::new();
        for here in self.here.values() {
            *counts.entry(here.domain.state_name()).or_insert(0) += 1;
        }
        counts.into_iter().collect()
    }

    /// Returns the memory allocated to storelets, and its limit, bytes.
    pub fn memory(&self) -> (u64, u64) {
        (self.admission.memory(), self.settings.memory)
    }

    /// Returns the totals over finished storelets.
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// Ends all storelets at shutdown.
    pub fn close(&mut self, now: Instant, out: &mut Vec<Output>) {
        if mem::replace(&mut self.closing, true) {
            return;
        }
        for id in self.here.keys().copied().collect::<Vec<_>>() {
            if !self.here[&id].domain.has_ended() {
                self.step_domain(now, id, domain::Input::Kill(Reason::Shutdown), out);
            }
        }
        self.leave_all(now, out);
        for install_session in self.install_sessions.keys().copied().collect::<Vec<_>>() {
            self.step_install(now, install_session, install::Input::Late, out);
        }
        self.end(out);
    }

    /// Terminates the compiler and state store once nothing is outstanding.
    fn end(&mut self, out: &mut Vec<Output>) {
        let ended = self.here.values().all(|here| here.domain.has_ended());
        let filed = self.registry.is_quiet()
            && self.install_sessions.values().all(|it| !it.install_session.waits());
        let left = self.watches.is_empty();
        if self.closing && ended && filed && left && !mem::replace(&mut self.is_over, true) {
            self.post(self.settings.compiler, Envelope(Box::new(ToCompiler::End)), out);
        }
    }

    /// Returns whether everything has ended.
    pub fn is_closed(&self) -> bool {
        self.is_over
    }

    /// Takes the next message for the operator.
    pub fn next_report(&mut self) -> Option<String> {
        self.news.pop_front()
    }

    fn post(&self, to: usize, envelope: Envelope, out: &mut Vec<Output>) {
        out.push(Output::Do(Op::Post { to, envelope }));
    }

    fn tell(&self, worker: usize, message: ToWorker, out: &mut Vec<Output>) {
        self.post(worker, Crossing::Worker(message).envelope(), out);
    }
}

impl Automaton for Storelets {
    type Input = Input;
    type Output = Output;

    fn step(&mut self, now: Instant, input: Input, out: &mut Vec<Output>) {
        match input {
            Input::Ask(id, request) => self.ask(now, id, request, out),
            Input::Cancel(id) => {
                let waits = |(_, here): &(&DomainId, &DomainEntry)| here.domain.is_asked(id);
                let domain = self.here.iter().find(waits).map(|(domain, _)| *domain);
                if let Some(domain) = domain {
                    self.step_domain(now, domain, domain::Input::Cancel(id), out);
                }
                let install_session =
                    self.install_sessions.iter().find(|(_, at)| at.install_session.is_asked(id));
                if let Some(install_session) =
                    install_session.map(|(install_session, _)| *install_session)
                {
                    self.step_install(now, install_session, install::Input::Cancel(id), out);
                }
            }
            // Nodes are plain numbers here: nothing to release.
            Input::Release(_) => {}
            Input::Close(open) | Input::Abandon(open) => self.take_back(now, open, out),
            Input::Done(_, Done::Envelope(envelope)) => {
                let crossing = envelope.0.downcast::<Crossing>().expect("others send nothing here");
                self.crossed(now, *crossing, out);
            }
            Input::Done(_, done) => unreachable!("{done:?} was not asked for"),
            Input::Rendered(..) | Input::Commanded(..) | Input::Answered(..) => {
                unreachable!("nothing is rendered here")
            }
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let install_sessions = self.install_sessions.values().filter_map(AtInstallSession::due);
        let due =
            self.here.values().filter_map(|here| here.domain.due()).chain(install_sessions).min();
        [due, self.watch_deadline(), self.ceiling.due()].into_iter().flatten().min()
    }

    fn check(&self) {
        assert!(self.here.len() <= DOMAINS_MAX && self.opens.len() <= OPENS_MAX);
        let runs = self.here.values().filter_map(|here| here.runs.as_ref());
        assert_eq!(runs.map(|(_, memory)| memory).sum::<u64>(), self.admission.memory());
        self.admission.check();
        self.here.values().for_each(|here| here.domain.check());
        self.registry.check();
        self.install_sessions.values().for_each(|at| at.install_session.check());
        self.watches.values().for_each(|it| it.watch.check());
        let running = self.here.iter().filter(|(_, here)| here.runs.is_some());
        let mut places = 0;
        for (id, here) in running {
            assert!(self.admission.holds(*id), "a running storelet was admitted");
            assert!(!here.domain.has_ended(), "an ended storelet holds no memory");
            places += here.runs.as_ref().map_or(0, |(workers, _)| workers.len());
        }
        assert!(places <= RUNNING_MAX, "{places} storelets run");
        assert!(self.here.keys().all(|id| id.0 < self.next), "numbers are given in order");
        assert!(self.programs.len() <= PROGRAMS_MAX, "few programs are kept");
        assert!(self.memory().0 <= self.settings.memory, "no more memory is given than there is");
        let ended = self.here.values().all(|here| here.domain.has_ended());
        assert!(!self.is_over || ended, "the compiler ends last");
    }
}

/// Storelets.
impl Storelets {
    /// Begins a storelet, on an open of `new`. A client has no more storelets than its user has
    /// left, so that other clients of the user find room.
    fn begin(&mut self, now: Instant, caller: Caller, client: u32) -> Result<Reply, Error> {
        let caller = humble(caller);
        let account = Account { user: user_of(&caller), client };
        let accounts = || self.here.values().map(|here| here.account);
        let theirs = accounts().filter(|it| it.user == account.user).count();
        let own = accounts().filter(|it| *it == account).count();
        let left = (DOMAINS_MAX - self.here.len()).min(DOMAINS_OF_ONE.saturating_sub(theirs));
        if self.closing || left == 0 || own >= left.max(1) {
            return Err(Error::Busy);
        }
        let id = DomainId(self.next);
        let open = self.open(Opened::Domain(id))?;
        self.next += 1;
        let (domain, name) = (Domain::new(now, self.settings.maxima), String::new());
        let (runs, named) = (None, None);
        let here = DomainEntry { domain, caller, account, since: now, runs, name, named };
        let before = self.here.insert(id, here);
        assert!(before.is_none(), "numbers are not given twice");
        Ok(Reply::Opened(open, self.stat(files::NEW)))
    }

    fn step_domain(
        &mut self,
        now: Instant,
        id: DomainId,
        input: domain::Input,
        out: &mut Vec<Output>,
    ) {
        let Some(here) = self.here.get_mut(&id) else { return };
        let mut asks = Vec::new();
        here.domain.step(now, input, &mut asks);
        for ask in asks {
            self.perform(now, id, ask, out);
        }
        self.settle(id);
        self.admit(now, out);
        self.look_how_late(now, out);
        self.end(out);
    }

    fn perform(&mut self, now: Instant, id: DomainId, ask: domain::Output, out: &mut Vec<Output>) {
        let (ticket, compiler) = (id.0, self.settings.compiler);
        match ask {
            domain::Output::Reply(id, reply) => out.push(Output::Reply(id, reply)),
            domain::Output::Compile(Module::Known(hash), code) if self.has(hash, code) => {
                let fresh = self.programs.back().cloned().expect("it is there");
                self.step_domain(now, id, domain::Input::Compiled(Ok(fresh)), out);
            }
            domain::Output::Compile(module, code) => {
                let account = self.here[&id].account;
                let requested = ToCompiler::Compile { ticket, module, code, account };
                self.post(compiler, Envelope(Box::new(requested)), out);
            }
            domain::Output::CancelCompile => {
                self.post(compiler, Envelope(Box::new(ToCompiler::Cancel(ticket))), out);
            }
            domain::Output::Enqueue => self.enqueue(now, id, out),
            domain::Output::Dequeue => self.admission.dequeue(id),
            domain::Output::Begin(chain) => self.begin_chain(id, chain, out),
            domain::Output::Feed(stage, bytes) => {
                self.tell_its(id, stage, ToWorker::Input(id.stage(stage), bytes), out);
            }
            domain::Output::Taken(stage, count) => {
                self.tell_its(id, stage, ToWorker::Taken(id.stage(stage), count), out);
            }
            domain::Output::Kill(stage, reason) => {
                self.tell_its(id, stage, ToWorker::Kill(id.stage(stage), reason), out);
            }
            domain::Output::Resolve(run_spec) => {
                let resolved = self.resolve(now, id, &run_spec);
                self.step_domain(now, id, domain::Input::Resolved(resolved), out);
            }
            domain::Output::Over(report, complaint) => {
                self.totals.add(&report);
                self.write_down(now, id, &report, &complaint, out);
            }
        }
    }

    /// Runs the storelets of a chain on their workers.
    fn begin_chain(&mut self, id: DomainId, chain: Vec<(RunSpec, Fresh)>, out: &mut Vec<Output>) {
        let here = self.here.get_mut(&id).expect("it is stepped");
        let (workers, _) = here.runs.clone().expect("it was admitted");
        assert_eq!(workers.len(), chain.len(), "each storelet of a chain has a worker");
        let names: Vec<String> = chain.iter().map(|(it, _)| listing::name(&it.args)).collect();
        here.name = names.join(" | ");
        let (caller, account) = (here.caller.clone(), here.account);
        for (stage, ((mut run_spec, program), worker)) in chain.into_iter().zip(workers).enumerate()
        {
            run_spec.writes &= self.settings.writes;
            let mut seed = [0; 32];
            self.random.fill_bytes(&mut seed);
            let begin = Begin { program, run_spec, caller: caller.clone(), account, seed };
            self.tell(worker, ToWorker::Begin(id.stage(stage), Box::new(begin)), out);
        }
    }

    /// Returns whether written data exceeds the limits: of buffered input, or of modules being
    /// received. Beyond one module a client has no more than is left free.
    fn has_no_room(&self, id: DomainId) -> bool {
        let DomainEntry { domain, account, .. } = &self.here[&id];
        if domain.is_full() || domain.due().is_none() {
            return domain.is_full();
        }
        let bytes = |here: &DomainEntry| here.domain.module_bytes();
        let all = self.here.values().map(bytes).sum::<usize>();
        let theirs = self.here.values().filter(|here| here.account == *account);
        let others = theirs.map(bytes).sum::<usize>() - domain.module_bytes();
        all > MODULES_BYTES_MAX || (others > 0 && others > MODULES_BYTES_MAX - all)
    }

    /// Ends those whose owners missed the deadline for order and module.
    pub fn tick(&mut self, now: Instant, out: &mut Vec<Output>) {
        let late = |here: &DomainEntry| here.domain.due().is_some_and(|due| due <= now);
        let ids = self.here.iter().filter(|(_, here)| late(here)).map(|(id, _)| *id);
        for id in ids.collect::<Vec<DomainId>>() {
            self.step_domain(now, id, domain::Input::Kill(Reason::Time), out);
        }
        let late = |at: &AtInstallSession| at.due().is_some_and(|due| due <= now);
        let install_sessions =
            self.install_sessions.iter().filter(|(_, at)| late(at)).map(|(id, _)| *id);
        for id in install_sessions.collect::<Vec<DomainId>>() {
            self.step_install(now, id, install::Input::Late, out);
        }
        self.look_around(now, out);
        self.look_how_late(now, out);
    }

    /// Returns whether a program is cached, and marks it as the latest.
    fn has(&mut self, hash: Hash, code: Code) -> bool {
        let mut programs = self.programs.iter();
        let place = programs.position(|fresh| (fresh.hash, fresh.code) == (hash, code));
        let Some(place) = place else { return false };
        let fresh = self.programs.remove(place).expect("it was found there");
        self.programs.push_back(Fresh { was_there: true, cpu_ns: 0, ..fresh });
        true
    }

    /// Adds a program to the cache.
    fn keep(&mut self, fresh: &Fresh) {
        let is_small = fresh.program.bytes() <= PROGRAM_BYTES_MAX;
        if is_small && !self.has(fresh.hash, fresh.code) {
            self.programs.push_back(fresh.clone());
            let bytes = |fresh: &Fresh| fresh.program.bytes();
            let mut all: usize = self.programs.iter().map(bytes).sum();
            while self.programs.len() > PROGRAMS_MAX || all > PROGRAMS_BYTES_MAX {
                all -= self.programs.pop_front().as_ref().map_or(0, bytes);
            }
        }
        assert!(self.programs.len() <= PROGRAMS_MAX, "few programs are kept");
    }

    /// Sends a message to the worker of a storelet of a chain, if it has one.
    fn tell_its(&self, id: DomainId, stage: usize, message: ToWorker, out: &mut Vec<Output>) {
        if let Some((workers, _)) = &self.here[&id].runs {
            self.tell(workers[stage], message, out);
        }
    }

    /// Releases the allocation of an ended storelet, and drops a finished one.
    fn settle(&mut self, id: DomainId) {
        let Some(here) = self.here.get_mut(&id) else { return };
        if here.domain.has_ended() && here.runs.take().is_some() {
            self.admission.release(id);
        }
        if here.domain.is_over() {
            self.here.remove(&id);
        }
    }

    /// Returns the resources of a storelet or chain that waits for admission.
    fn need(&self, id: DomainId) -> Need {
        let run_specs = self.here[&id].domain.wanted().expect("it waits to be admitted");
        let memory = run_specs.iter().map(|run_spec| run_spec.budget.memory).fold(0, more);
        let certain = |of: fn(&RunSpec) -> u64| {
            run_specs.iter().map(|run_spec| of(run_spec)).fold(0, u64::saturating_add)
        };
        let (processor, requests) = (
            certain(|run_spec| run_spec.share_spec.reservation),
            certain(|run_spec| run_spec.io_reserve),
        );
        Need { memory, places: run_specs.len(), processor, requests }
    }

    fn enqueue(&mut self, now: Instant, id: DomainId, out: &mut Vec<Output>) {
        let need = self.need(id);
        if self.admission.could_fit(need) {
            let here = &self.here[&id];
            let run_specs = here.domain.wanted().expect("it waits to be admitted");
            let time =
                run_specs.iter().map(|run_spec| run_spec.budget.time_ns).max().unwrap_or_default();
            let time = Duration::from_nanos(time);
            return self.admission.enqueue(id, here.account, need, time);
        }
        let Settings { memory, client_memory, .. } = self.settings;
        let most = client_memory.min(memory);
        let own = (most - OVERHEAD.min(most)) >> 20;
        let why = match need.memory <= most {
            false if need.places > 1 => format!(
                "a chain may have at most {}M of memory, with {}M for each of its storelets; \
                 reduce it",
                most >> 20,
                OVERHEAD >> 20
            ),
            false => format!("it may have no more memory than this server gives: {own}M"),
            true => "at most half a processor and 2000 requests a second can be certain to a \
                     chain: reserve less"
                .to_string(),
        };
        self.step_domain(now, id, domain::Input::Refused(why), out);
    }

    /// Admits and starts storelets for which there is room.
    fn admit(&mut self, now: Instant, out: &mut Vec<Output>) {
        while !self.closing
            && let Some(id) = self.admission.next(now)
        {
            let Need { memory, places, .. } = self.need(id);
            let workers = self.idlest(places);
            self.here.get_mut(&id).expect("it waits").runs = Some((workers, memory));
            self.step_domain(now, id, domain::Input::Admitted, out);
        }
    }

    /// Sends a changed processor ceiling to the workers.
    fn look_how_late(&mut self, now: Instant, out: &mut Vec<Output>) {
        let is_needed = !self.admission.is_idle() && !self.closing;
        if let Some(share) = self.ceiling.look(now, is_needed) {
            for worker in self.settings.workers.clone() {
                self.tell(worker, ToWorker::Ceiling(share), out);
            }
        }
    }

    /// Assigns each of `count` storelets to the least loaded worker.
    fn idlest(&self, count: usize) -> Vec<usize> {
        let runs = self.here.values().filter_map(|here| here.runs.as_ref());
        let mut busy: Vec<usize> = runs.flat_map(|(workers, _)| workers).copied().collect();
        let before = busy.len();
        for _ in 0..count {
            let load = |worker: &&usize| busy.iter().filter(|other| other == worker).count();
            let all = self.settings.workers.iter();
            busy.push(*all.min_by_key(load).expect("there is one"));
        }
        busy.split_off(before)
    }

    fn crossed(&mut self, now: Instant, crossing: Crossing, out: &mut Vec<Output>) {
        let (id, input) = match crossing {
            Crossing::Home(ToHome::Emitted(id, stream, bytes)) => {
                let (id, stage) = id.first();
                (id, domain::Input::Emitted(stage, stream, bytes))
            }
            Crossing::Home(ToHome::Eaten(id, count)) => {
                let (id, stage) = id.first();
                (id, domain::Input::Eaten(stage, count))
            }
            Crossing::Home(ToHome::Ended(id, report)) => {
                let (id, stage) = id.first();
                (id, domain::Input::Ended(stage, report))
            }
            Crossing::Compiled(Compiled { ticket, result }) => {
                result.iter().for_each(|fresh| self.keep(fresh));
                let id = DomainId(ticket);
                if self.install_sessions.contains_key(&id) {
                    return self.step_install(now, id, install::Input::Compiled(result), out);
                }
                (id, domain::Input::Compiled(result))
            }
            Crossing::Kept(kept) => {
                return self.step_registry(now, registry::Input::Kept(kept), out);
            }
            Crossing::Answered(id, reply) => {
                return self.step_watch(now, id, watch::Input::Answered(reply), out);
            }
            other @ (Crossing::Worker(_)
            | Crossing::Ask(..)
            | Crossing::Cancel(_)
            | Crossing::Close(_)) => unreachable!("this is for others: {other:?}"),
        };
        self.step_domain(now, id, input, out);
    }
}

/// Returns the resources available for storelets. Reservations reduce what the others get: they are
/// limited to half of one processor, and about as many requests as half a processor serves.
fn limits(settings: &Settings) -> Limits {
    let Settings { memory, client_memory, .. } = *settings;
    let all = Need { memory, places: RUNNING_MAX, processor: 500_000_000, requests: 2000 };
    Limits { all, client_memory }
}

/// Adds the memory of one more storelet, including the server's overhead.
fn more(sum: u64, memory: u64) -> u64 {
    sum.saturating_add(memory).saturating_add(OVERHEAD)
}

/// Removes administrative rights from a caller: a program could mount a directory of the host.
fn humble(caller: Caller) -> Caller {
    match &caller {
        Caller::User(user) if user.commands => {
            Caller::User(Arc::new(User { commands: false, ..(**user).clone() }))
        }
        Caller::User(_) | Caller::Server => caller,
    }
}
