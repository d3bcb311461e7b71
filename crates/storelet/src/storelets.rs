//! The tree of storelets: `/.upcall/storelets/`.
//!
//! Opening `new` begins one: what is written to that open file is its [order](crate::order), its
//! module and its input, and what is read from it is what it says. Whoever closes the file ends
//! the storelet. So every client that can open a file can run programs here, and nothing is left
//! behind by one that is gone. `running` lists those that are there; writing `kill 17` to it ends
//! one.
//!
//! Whoever starts a storelet has it run as himself. Memory is admitted here: the sum of what the
//! storelets that run may have stays below a limit, and the others wait in the order they came.

mod listing;

use crate::budget::Reason;
use crate::compile::{Compiled, Fresh, Hash, Module, ToCompiler};
use crate::crossing::{Begin, Crossing, DomainId, ToHome, ToWorker};
use crate::domain::{self, Domain};
use base::op::{Done, Entry, Op, Parcel};
use base::{Automaton, Buf, Caller, Error, Instant, Kind, Name, Stat, StatFs, Time, User};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{RngCore as _, SeedableRng as _};
use slab::Slab;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use tree::flat::{self, ROOT, part};
use tree::{Ask, Input, NodeId, OpenId, Output, Reply, Request, RequestId};

/// Most storelets at once, running or not.
pub const DOMAINS_MAX: usize = 1024;

/// Most that run: there are no more places for guests.
const RUNNING_MAX: usize = crate::engine::GUESTS_MAX as usize - 1;

/// Most of them that one user has begun.
const DOMAINS_OF_ONE: usize = DOMAINS_MAX / 4 * 3;

/// Most files open at once.
pub const OPENS_MAX: usize = DOMAINS_MAX + 256;

/// How much modules may take that come in or wait to be compiled, bytes.
const MODULES_BYTES_MAX: usize = 256 << 20;

/// Most programs that are kept ready.
const PROGRAMS_MAX: usize = 32;

/// What the server keeps for each storelet beside its memory, bytes.
const OVERHEAD: u64 = 2 << 20;

/// The device number of these files; no host has it.
pub(crate) const DEVICE: u64 = u64::MAX - 2;

/// The files.
const NEW: usize = 1;
const RUNNING: usize = 2;
const FILES: [(&str, usize, u32); 2] = [("new", NEW, 0o666), ("running", RUNNING, 0o644)];

/// What is settled before the first storelet.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The numbers of the nodes that run storelets.
    pub workers: Vec<usize>,
    /// The number of whoever compiles.
    pub compiler: usize,
    /// How much memory all storelets may have, bytes.
    pub memory: u64,
    /// Whether storelets may change files at all.
    pub writes: bool,
    /// Where random numbers begin: what nobody can guess.
    pub seed: [u8; 32],
}

/// A storelet.
#[derive(Debug)]
struct Here {
    domain: Domain,
    caller: Caller,
    since: Instant,
    /// Where it runs, and with how much memory.
    runs: Option<(usize, u64)>,
    /// What it was started as.
    name: String,
}

#[derive(Debug)]
enum Opened {
    Directory,
    Text(Vec<u8>),
    /// A storelet of this open file.
    Domain(DomainId),
    /// Whoever has it may end storelets: his own, or all.
    Control(Caller),
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
    here: BTreeMap<DomainId, Here>,
    next: u64,
    /// Programs that were run of late, the last one at the end.
    programs: VecDeque<Fresh>,
    /// Those that wait for memory.
    queue: VecDeque<DomainId>,
    /// Memory of those that run, bytes.
    memory: u64,
    closing: bool,
}

impl Storelets {
    /// Number `index` among the node's trees; its files bear the date `started`, and belong to
    /// `owner`.
    pub fn new(index: u16, started: Time, owner: u32, settings: Settings) -> Storelets {
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
            queue: VecDeque::new(),
            memory: 0,
            closing: false,
        }
    }

    /// The root.
    pub fn root(&self) -> NodeId {
        NodeId::new(self.index, ROOT)
    }

    /// Its attributes.
    pub fn root_stat(&self) -> Stat {
        self.stat(ROOT)
    }

    /// How many files are open.
    pub fn opens(&self) -> usize {
        self.opens.len()
    }

    /// How many storelets are in which state, in words.
    pub fn states(&self) -> Vec<(&'static str, usize)> {
        let mut counts = BTreeMap::new();
        for here in self.here.values() {
            *counts.entry(here.domain.state_name()).or_insert(0) += 1;
        }
        counts.into_iter().collect()
    }

    /// Memory that storelets have been given, and how much there is for them, bytes.
    pub fn memory(&self) -> (u64, u64) {
        (self.memory, self.settings.memory)
    }

    /// Ends all storelets, for the end of the server.
    pub fn close(&mut self, now: Instant, out: &mut Vec<Output>) {
        if std::mem::replace(&mut self.closing, true) {
            return;
        }
        for id in self.here.keys().copied().collect::<Vec<_>>() {
            if !self.here[&id].domain.has_ended() {
                self.step_domain(now, id, domain::Input::Kill(Reason::Shutdown), out);
            }
        }
        self.post(self.settings.compiler, Parcel(Box::new(ToCompiler::End)), out);
    }

    /// Whether nothing is under way any more.
    pub fn is_closed(&self) -> bool {
        self.closing && self.here.values().all(|here| here.domain.has_ended())
    }

    fn post(&self, to: usize, parcel: Parcel, out: &mut Vec<Output>) {
        out.push(Output::Do(Op::Post { to, parcel }));
    }

    fn tell(&self, worker: usize, told: ToWorker, out: &mut Vec<Output>) {
        self.post(worker, Crossing::Worker(told).parcel(), out);
    }
}

impl Automaton for Storelets {
    type Input = Input;
    type Output = Output;

    fn step(&mut self, now: Instant, input: Input, out: &mut Vec<Output>) {
        match input {
            Input::Ask(id, request) => self.ask(now, id, request, out),
            Input::Cancel(id) => {
                let waits = |(_, here): &(&DomainId, &Here)| here.domain.is_asked(id);
                let domain = self.here.iter().find(waits).map(|(domain, _)| *domain);
                if let Some(domain) = domain {
                    self.step_domain(now, domain, domain::Input::Cancel(id), out);
                }
            }
            // Nodes are numbers here: there is nothing to free.
            Input::Release(_) => {}
            Input::Close(open) | Input::Abandon(open) => self.take_back(now, open, out),
            Input::Done(_, Done::Parcel(parcel)) => {
                let crossing = parcel.0.downcast::<Crossing>().expect("others send nothing here");
                self.crossed(now, *crossing, out);
            }
            Input::Done(_, done) => unreachable!("{done:?} was not asked for"),
            Input::Rendered(..) | Input::Commanded(..) => unreachable!("nothing is rendered here"),
        }
    }

    fn deadline(&self) -> Option<Instant> {
        self.here.values().filter_map(|here| here.domain.due()).min()
    }

    fn check(&self) {
        assert!(self.here.len() <= DOMAINS_MAX && self.opens.len() <= OPENS_MAX);
        let runs = self.here.values().filter_map(|here| here.runs);
        assert_eq!(runs.map(|(_, memory)| memory).sum::<u64>(), self.memory);
        self.here.values().for_each(|here| here.domain.check());
        assert!(self.queue.iter().all(|id| self.here[id].domain.order().is_some()));
    }
}

/// Storelets.
impl Storelets {
    /// Begins one, for whoever opens `new`.
    fn begin(&mut self, now: Instant, caller: Caller) -> Result<Reply, Error> {
        let caller = humble(caller);
        let theirs = self.here.values().filter(|here| here.caller == caller).count();
        if self.closing || self.here.len() >= DOMAINS_MAX || theirs >= DOMAINS_OF_ONE {
            return Err(Error::Busy);
        }
        let id = DomainId(self.next);
        let open = self.open(Opened::Domain(id))?;
        self.next += 1;
        let (domain, name) = (Domain::new(now), String::new());
        self.here.insert(id, Here { domain, caller, since: now, runs: None, name });
        Ok(Reply::Opened(open, self.stat(NEW)))
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
    }

    fn perform(&mut self, now: Instant, id: DomainId, ask: domain::Output, out: &mut Vec<Output>) {
        let (ticket, compiler) = (id.0, self.settings.compiler);
        match ask {
            domain::Output::Reply(id, reply) => out.push(Output::Reply(id, reply)),
            domain::Output::Compile(Module::Known(hash)) if self.has(hash) => {
                let fresh = self.programs.back().cloned().expect("it is there");
                self.step_domain(now, id, domain::Input::Compiled(Ok(fresh)), out);
            }
            domain::Output::Compile(module) => {
                let asked = ToCompiler::Compile { ticket, module };
                self.post(compiler, Parcel(Box::new(asked)), out);
            }
            domain::Output::CancelCompile => {
                self.post(compiler, Parcel(Box::new(ToCompiler::Cancel(ticket))), out);
            }
            domain::Output::Enqueue => self.queue.push_back(id),
            domain::Output::Dequeue => self.queue.retain(|other| *other != id),
            domain::Output::Begin(mut order, program) => {
                let here = self.here.get_mut(&id).expect("it is stepped");
                let (worker, _) = here.runs.expect("it was admitted");
                here.name = listing::name(&order.args);
                order.writes &= self.settings.writes;
                let mut seed = [0; 32];
                self.random.fill_bytes(&mut seed);
                let caller = here.caller.clone();
                let begin = Begin { program, order: *order, caller, seed };
                self.tell(worker, ToWorker::Begin(id, Box::new(begin)), out);
            }
            domain::Output::Feed(bytes) => self.tell_its(id, ToWorker::Input(id, bytes), out),
            domain::Output::Taken(count) => self.tell_its(id, ToWorker::Taken(id, count), out),
            domain::Output::Kill(reason) => self.tell_its(id, ToWorker::Kill(id, reason), out),
        }
    }

    /// Whether what is written to a storelet cannot be kept: modules that come in, or its input.
    fn has_no_room(&self, id: DomainId) -> bool {
        let domain = &self.here[&id].domain;
        let modules = || self.here.values().map(|here| here.domain.module_bytes()).sum::<usize>();
        domain.is_full() || (domain.due().is_some() && modules() > MODULES_BYTES_MAX)
    }

    /// Ends those whose owners have not said in time what is to be run.
    pub fn tick(&mut self, now: Instant, out: &mut Vec<Output>) {
        let late = |here: &Here| here.domain.due().is_some_and(|due| due <= now);
        let ids = self.here.iter().filter(|(_, here)| late(here)).map(|(id, _)| *id);
        for id in ids.collect::<Vec<DomainId>>() {
            self.step_domain(now, id, domain::Input::Kill(Reason::Time), out);
        }
    }

    /// Whether a program was run of late; it is the last one then.
    fn has(&mut self, hash: Hash) -> bool {
        let Some(place) = self.programs.iter().position(|fresh| fresh.hash == hash) else {
            return false;
        };
        let fresh = self.programs.remove(place).expect("it was found there");
        self.programs.push_back(Fresh { was_there: true, cpu_ns: 0, ..fresh });
        true
    }

    /// Keeps a program for the next who wants it.
    fn keep(&mut self, fresh: &Fresh) {
        if !self.has(fresh.hash) {
            if self.programs.len() == PROGRAMS_MAX {
                self.programs.pop_front();
            }
            self.programs.push_back(fresh.clone());
        }
    }

    /// Tells the worker of a storelet that has one.
    fn tell_its(&self, id: DomainId, told: ToWorker, out: &mut Vec<Output>) {
        if let Some((worker, _)) = self.here[&id].runs {
            self.tell(worker, told, out);
        }
    }

    /// Takes memory back from one that has ended, and forgets it if it is over.
    fn settle(&mut self, id: DomainId) {
        let Some(here) = self.here.get_mut(&id) else { return };
        if here.domain.has_ended()
            && let Some((_, memory)) = here.runs.take()
        {
            self.memory -= memory;
        }
        if here.domain.is_over() {
            self.here.remove(&id);
        }
    }

    /// Lets those run for which there is memory, in the order they came.
    fn admit(&mut self, now: Instant, out: &mut Vec<Output>) {
        while let Some(id) = self.queue.front().copied().filter(|_| !self.closing) {
            let order = self.here[&id].domain.order().expect("it waits for memory");
            let wanted = order.budget.memory.saturating_add(OVERHEAD);
            if wanted > self.settings.memory {
                self.queue.pop_front();
                let most = (self.settings.memory - OVERHEAD.min(self.settings.memory)) >> 20;
                let why = format!("it may have no more memory than this server gives: {most}M");
                self.step_domain(now, id, domain::Input::Refused(why), out);
                continue;
            }
            let running = self.here.values().filter(|here| here.runs.is_some()).count();
            if self.memory + wanted > self.settings.memory || running >= RUNNING_MAX {
                return;
            }
            self.queue.pop_front();
            self.memory += wanted;
            let worker = self.idlest();
            self.here.get_mut(&id).expect("it waits").runs = Some((worker, wanted));
            self.step_domain(now, id, domain::Input::Admitted, out);
        }
    }

    /// The worker that has the fewest storelets.
    fn idlest(&self) -> usize {
        let load = |worker: &usize| {
            let runs = self.here.values().filter_map(|here| here.runs);
            runs.filter(|(other, _)| other == worker).count()
        };
        *self.settings.workers.iter().min_by_key(|worker| load(worker)).expect("there is one")
    }

    fn crossed(&mut self, now: Instant, crossing: Crossing, out: &mut Vec<Output>) {
        let (id, input) = match crossing {
            Crossing::Home(ToHome::Said(id, stream, bytes)) => {
                (id, domain::Input::Said(stream, bytes))
            }
            Crossing::Home(ToHome::Eaten(id, count)) => (id, domain::Input::Eaten(count)),
            Crossing::Home(ToHome::Ended(id, report)) => (id, domain::Input::Ended(report)),
            Crossing::Compiled(Compiled { ticket, result }) => {
                result.iter().for_each(|fresh| self.keep(fresh));
                (DomainId(ticket), domain::Input::Compiled(result))
            }
            Crossing::Worker(told) => unreachable!("this is no worker: {told:?}"),
        };
        self.step_domain(now, id, input, out);
    }
}

/// Files.
impl Storelets {
    fn ask(&mut self, now: Instant, id: RequestId, request: Request, out: &mut Vec<Output>) {
        let Request { caller, ask } = request;
        #[allow(clippy::wildcard_enum_match_arm, reason = "the others are alike here")]
        let answer = match ask {
            Ask::Open { node, access } => match node.local() {
                NEW if access.read && access.write => self.begin(now, caller),
                NEW => Err(Error::Denied),
                RUNNING if access.changes() => self
                    .open(Opened::Control(caller))
                    .map(|open| Reply::Opened(open, self.stat(RUNNING))),
                ROOT if access.changes() => Err(Error::IsDirectory),
                node => self.look(now, &caller, node),
            },
            Ask::Write { open, data, .. } => match &self.opens[open.local()] {
                Opened::Domain(domain) if self.has_no_room(*domain) => Err(Error::Busy),
                Opened::Domain(domain) => {
                    let input = domain::Input::Write(id, data);
                    return self.step_domain(now, *domain, input, out);
                }
                Opened::Control(caller) => self.control(now, &caller.clone(), &data, out),
                Opened::Directory | Opened::Text(_) => Err(Error::Denied),
            },
            Ask::Read { open, offset, count, headroom } => match &self.opens[open.local()] {
                Opened::Domain(domain) => {
                    let input = domain::Input::Read(id, count, headroom);
                    return self.step_domain(now, *domain, input, out);
                }
                Opened::Text(text) => Ok(Reply::Data(part(text, offset, count, headroom))),
                Opened::Control(_) => Ok(Reply::Data(part(&[], offset, count, headroom))),
                Opened::Directory => Err(Error::IsDirectory),
            },
            Ask::Fetch { path, headroom, .. } => self.fetch(now, &caller, &path, headroom),
            // Who writes a file anew makes it empty first: nothing is kept here.
            Ask::SetStat { node, set, .. } if node.local() != ROOT && set.size.is_some() => {
                Ok(Reply::Done)
            }
            ask if ask.changes() => Err(Error::NotPermitted),
            ask => self.answer(ask),
        };
        out.push(Output::Reply(id, answer));
    }

    fn open(&mut self, opened: Opened) -> Result<OpenId, Error> {
        if self.opens.len() >= OPENS_MAX {
            return Err(Error::TooManyOpen);
        }
        Ok(OpenId::new(self.index, self.opens.insert(opened)))
    }

    /// Opens what can only be looked at.
    fn look(&mut self, now: Instant, caller: &Caller, node: usize) -> Result<Reply, Error> {
        if node == ROOT {
            let open = self.open(Opened::Directory)?;
            return Ok(Reply::Opened(open, self.stat(ROOT)));
        }
        let text = self.listing(now, caller);
        let stat = Stat { size: text.len() as u64, ..self.stat(node) };
        Ok(Reply::Opened(self.open(Opened::Text(text))?, stat))
    }

    fn fetch(
        &mut self,
        now: Instant,
        caller: &Caller,
        path: &[Name],
        headroom: u32,
    ) -> Result<Reply, Error> {
        match path {
            [] => {
                let open = self.open(Opened::Directory)?;
                Ok(Reply::Fetched(self.stat(ROOT), Buf::default(), Some(open)))
            }
            [name] if find(name)? == RUNNING => {
                let text = self.listing(now, caller);
                let stat = Stat { size: text.len() as u64, ..self.stat(RUNNING) };
                Ok(Reply::Fetched(stat, part(&text, 0, u32::MAX, headroom), None))
            }
            [_new] => Err(Error::Unsupported),
            _deeper => Err(Error::NotFound),
        }
    }

    fn take_back(&mut self, now: Instant, open: OpenId, out: &mut Vec<Output>) {
        if let Opened::Domain(id) = self.opens.remove(open.local()) {
            self.step_domain(now, id, domain::Input::Gone, out);
        }
    }

    /// Carries out lines such as `kill 17`.
    fn control(
        &mut self,
        now: Instant,
        caller: &Caller,
        data: &[u8],
        out: &mut Vec<Output>,
    ) -> Result<Reply, Error> {
        let text = str::from_utf8(data).map_err(|_| Error::Invalid)?;
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            let number = line.strip_prefix("kill ").and_then(|number| number.trim().parse().ok());
            let id = DomainId(number.ok_or(Error::Invalid)?);
            let here = self.here.get(&id).ok_or(Error::NotFound)?;
            if !self.may(caller, &here.caller) {
                return Err(Error::NotPermitted);
            }
            if !here.domain.has_ended() {
                self.step_domain(now, id, domain::Input::Kill(Reason::Cancelled), out);
            }
        }
        Ok(Reply::Written(u32::try_from(data.len()).expect("one message")))
    }

    /// Whether somebody may look at and end what another has started.
    fn may(&self, caller: &Caller, other: &Caller) -> bool {
        match caller {
            Caller::Server => *other == Caller::Server,
            Caller::User(user) => {
                let whose = |other: &Caller| match other {
                    Caller::Server => self.owner,
                    Caller::User(other) => other.uid,
                };
                [0, self.owner, whose(other)].contains(&user.uid)
            }
        }
    }

    /// The storelets that somebody may know of, a line each.
    fn listing(&self, now: Instant, caller: &Caller) -> Vec<u8> {
        let theirs = self.here.iter().filter(|(_, here)| self.may(caller, &here.caller));
        listing::text(now, theirs)
    }

    fn answer(&mut self, ask: Ask) -> Result<Reply, Error> {
        #[allow(clippy::wildcard_enum_match_arm, reason = "nothing else can be done here")]
        match ask {
            Ask::Walk { from, names } => flat::walk(from, &names, find, |node| self.stat(node)),
            Ask::Stat { node } => Ok(Reply::Stat(self.stat(node.local()))),
            Ask::List { open, cookie, with_stat, .. } => self.list(open, cookie, with_stat),
            Ask::Sync { .. } => Ok(Reply::Done),
            Ask::StatFs { .. } => Ok(Reply::StatFs(StatFs { name_max: 255, ..StatFs::default() })),
            Ask::ListAttrs { .. } => Ok(Reply::Bytes(Vec::new())),
            Ask::GetAttr { .. } => Err(Error::NoAttribute),
            Ask::ReadLink { .. } => Err(Error::Invalid),
            _other => Err(Error::Unsupported),
        }
    }

    fn list(&self, open: OpenId, cookie: u64, with_stat: bool) -> Result<Reply, Error> {
        let Opened::Directory = &self.opens[open.local()] else {
            return Err(Error::NotDirectory);
        };
        let entry = |(name, node, _): &(&str, usize, u32)| Entry {
            cookie: *node as u64,
            inode: *node as u64,
            device: None,
            kind: Kind::File,
            name: Name::new(name.as_bytes()).expect("a plain name"),
            stat: with_stat.then(|| self.stat(*node)),
        };
        let behind = FILES.iter().filter(|(_, node, _)| *node as u64 > cookie);
        Ok(Reply::Entries(behind.map(entry).collect()))
    }

    fn stat(&self, node: usize) -> Stat {
        let file = FILES.iter().find(|(_, number, _)| *number == node);
        let (kind, mode) = file.map_or((Kind::Directory, 0o555), |(.., mode)| (Kind::File, *mode));
        Stat {
            device: DEVICE,
            inode: node as u64,
            kind,
            mode,
            links: if kind == Kind::Directory { 2 } else { 1 },
            uid: self.owner,
            accessed: self.started,
            modified: self.started,
            changed: self.started,
            block_size: 4096,
            ..Stat::default()
        }
    }
}

/// A caller whose programs command nothing: a mount that they ask for could lead to the host.
fn humble(caller: Caller) -> Caller {
    match &caller {
        Caller::User(user) if user.commands => {
            Caller::User(Arc::new(User { commands: false, ..(**user).clone() }))
        }
        Caller::User(_) | Caller::Server => caller,
    }
}

fn find(name: &Name) -> Result<usize, Error> {
    if matches!(name.as_bytes(), b"." | b"..") {
        return Ok(ROOT);
    }
    let found = FILES.iter().find(|(text, ..)| text.as_bytes() == name.as_bytes());
    found.map(|(_, node, _)| *node).ok_or(Error::NotFound)
}
