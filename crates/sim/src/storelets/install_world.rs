//! Installed storelets across crashes: the tree of storelets with a disk, files, and runs.
//!
//! A client installs, uses and removes storelets; files appear in a directory; the state store has
//! latency. At any moment everything crashes, and restarts with the contents of the disk.
//! Acknowledged changes must survive; no storelet runs concurrently with itself; each file is
//! processed at least once, and not again once that is on the disk.

use super::canary::Mistake;
use super::programs::{self, Kinds};
use crate::event_queue::EventQueue;
use crate::trace::hash;
use crate::world::WALL;
use base::op::{Done, Entry, Op, OpId};
use base::rng::Rng;
use base::{Access, Automaton as _, Buf, Caller, Instant, Kind, Name, Stat, Time, User};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use storelet::compile::{Compiled, Fresh, Module, ToCompiler};
use storelet::standing::{Change, Kept, Key, Stock, ToStateStore};
use storelet::{Crossing, DomainId, Maxima, Report, Settings, Storelets, ToHome, ToWorker};
use tree::{Ask, Input, NodeId, OpenId, Output, Reply, Request, RequestId};
use wasi::{Code, Ended, Hash, Refused, Used};
use wire::storelet::{FRAME_HEAD, Frame};

/// Numbers of the nodes involved.
const HOME: usize = 0;
const WORKER: usize = 1;
const COMPILER: usize = 2;

/// Number of the tree.
const TREE: u16 = 9;

/// Duration of activity, and of the quiet period until everything is done, ns.
const BUSY: u64 = 120_000_000_000;
const CALM: u64 = 200_000_000_000;

const NAMES: [&str; 3] = ["see", "tick", "plain"];

/// A scheduled event.
#[derive(Debug)]
enum ScheduledEvent {
    Compiled(u64, Result<(Hash, Code), Refused>),
    Kept(u64, Vec<Change>),
    Answered(u64, Ask),
    Ended(DomainId, Ended),
    File,
    Say,
    Crash,
    Stop,
}

/// A storelet that was started by the server.
#[derive(Debug)]
struct ServerStarted {
    label: String,
    file: Option<String>,
}

/// A client with an install session.
#[derive(Debug)]
struct InstallClient {
    open: OpenId,
    /// Name of the storelet concerned.
    label: &'static str,
}

struct InstallWorld {
    rng: Rng,
    now: Instant,
    tree: Storelets,
    disk: BTreeMap<Key, Vec<u8>>,
    queue: EventQueue<ScheduledEvent>,
    /// Number of directories opened so far.
    opened: u64,
    install_client: Option<InstallClient>,
    running: BTreeMap<u64, ServerStarted>,
    opens: BTreeSet<u64>,
    files: BTreeMap<String, Stat>,
    /// Number of successful runs for each file, and the runs recorded on the disk.
    done: BTreeMap<String, u32>,
    /// Acknowledged state: names with the version in use; `None` if removed.
    notified: BTreeMap<&'static str, Option<u32>>,
    /// Names in an unknown state.
    doubt: BTreeSet<&'static str>,
    mistake: Option<Mistake>,
    /// Time when the last write of the state store completes.
    kept_at: Instant,
    /// Number of failures for each file.
    failed: BTreeMap<String, u32>,
    crashes: u32,
    turns: u32,
    ended: bool,
    judged: u64,
    sum: u64,
}

/// Runs a seed; returns the number of checks, and a hash of the run.
pub(super) fn run(seed: u64, mistake: Option<Mistake>) -> (u64, u64) {
    let mut install_world = InstallWorld::new(seed, mistake);
    while install_world.turn() {}
    install_world.judge();
    (install_world.judged, install_world.sum)
}

fn settings(standing: Stock) -> Settings {
    let (workers, memory) = (vec![WORKER], 1 << 30);
    Settings {
        workers,
        home: HOME,
        compiler: COMPILER,
        memory,
        client_memory: memory / 2,
        maxima: Maxima::NONE,
        writes: false,
        seed: [1; 32],
        standing,
    }
}

fn owner() -> Caller {
    Caller::User(Arc::new(User { uid: 5, gid: 5, groups: Vec::new(), commands: true }))
}

impl InstallWorld {
    fn new(seed: u64, mistake: Option<Mistake>) -> InstallWorld {
        let mut install_world = InstallWorld {
            rng: base::rng::seeded(seed ^ 0x5_4095),
            now: Instant(1_000_000),
            tree: Storelets::new(TREE, WALL, 5, settings(Stock::default())),
            disk: BTreeMap::new(),
            queue: EventQueue::default(),
            opened: 0,
            install_client: None,
            running: BTreeMap::new(),
            opens: BTreeSet::new(),
            files: BTreeMap::new(),
            done: BTreeMap::new(),
            notified: BTreeMap::new(),
            doubt: BTreeSet::new(),
            mistake,
            kept_at: Instant(0),
            failed: BTreeMap::new(),
            crashes: 0,
            turns: 0,
            ended: false,
            judged: 0,
            sum: 0,
        };
        for _ in 0..install_world.rng.u32(1..=12) {
            install_world.some_time(ScheduledEvent::File);
        }
        for _ in 0..install_world.rng.u32(4..=14) {
            install_world.some_time(ScheduledEvent::Say);
        }
        for _ in 0..install_world.rng.u32(0..=5) {
            install_world.some_time(ScheduledEvent::Crash);
        }
        install_world.at(Instant(BUSY + CALM), ScheduledEvent::Stop);
        install_world
    }

    fn some_time(&mut self, what: ScheduledEvent) {
        let at = Instant(self.rng.u64(1_000_000..BUSY));
        self.at(at, what);
    }

    fn at(&mut self, at: Instant, what: ScheduledEvent) {
        self.queue.schedule(at, what);
    }

    fn within(&mut self, most_us: u64, what: ScheduledEvent) {
        let at = Instant(self.now.0 + self.rng.u64(1000..=most_us * 1000));
        self.at(at, what);
    }

    /// Advances to the next event; returns false if there is none.
    fn turn(&mut self) -> bool {
        let next = self.queue.next_time();
        let due = self.tree.deadline();
        let Some(at) = next.into_iter().chain(due).min() else { return false };
        self.now = self.now.max(at);
        self.turns += 1;
        assert!(self.turns < 1_000_000, "it goes round and round: {:?}", self.tree.deadline());
        let mut out = Vec::new();
        if let Some(what) = self.queue.pop_due(self.now) {
            self.sum = hash(self.sum, format!("{} {what:?}", self.now.0).as_bytes());
            self.happen(what, &mut out);
        }
        self.tree.tick(self.now, &mut out);
        self.settle(out);
        self.tree.check();
        !self.ended || !self.tree.is_closed()
    }

    fn settle(&mut self, out: Vec<Output>) {
        for output in out {
            match output {
                Output::Reply(_, Ok(Reply::Data(outputs))) => self.received(&outputs),
                Output::Reply(_, Ok(Reply::Written(_))) => {}
                Output::Do(Op::Post { to, envelope }) => self.posted(to, envelope.0),
                other => panic!("nobody asked for {other:?}"),
            }
        }
    }

    fn posted(&mut self, to: usize, envelope: Box<dyn std::any::Any + Send>) {
        if to == COMPILER {
            return match envelope.downcast::<ToCompiler>() {
                Ok(requested) => self.compile(*requested),
                Err(other) => {
                    let requested =
                        other.downcast::<ToStateStore>().expect("it keeps and compiles");
                    // Writes complete in order.
                    let at = Instant(self.now.0 + self.rng.u64(1000..30_000_000)).max(self.kept_at);
                    self.kept_at = at;
                    self.at(at, ScheduledEvent::Kept(requested.ticket, requested.changes));
                }
            };
        }
        match *envelope.downcast::<Crossing>().expect("the others take these") {
            Crossing::Ask(id, request) => {
                assert_eq!(request.caller.clone(), theirs(), "as who installed it");
                self.within(5000, ScheduledEvent::Answered(id, request.ask));
            }
            Crossing::Close(open) => assert!(self.opens.remove(&(open.local() as u64))),
            Crossing::Worker(ToWorker::Begin(id, begin)) => {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                let label = text(&begin.run_spec.args[0]);
                let twice = self.running.values().any(|own| own.label == label);
                assert!(!twice, "{label} runs twice at once");
                let file = begin.run_spec.stdin.as_deref().map(text);
                self.running.insert(id.0, ServerStarted { label, file });
                let code = u32::from(self.fails(id.0));
                self.within(3_000_000, ScheduledEvent::Ended(id, Ended::Exit(code)));
            }
            // The messages of storelets that it ends are those of a normal end.
            Crossing::Worker(_) | Crossing::Cancel(_) => {}
            other => panic!("nobody takes {other:?}"),
        }
    }

    /// Decides whether a starting run fails; no file fails so often that it is abandoned.
    fn fails(&mut self, id: u64) -> bool {
        let may = self.rng.u8(..4) == 0 && self.now.0 < BUSY;
        let Some(file) = self.running[&id].file.clone().filter(|_| may) else { return may };
        let failed = self.failed.entry(file).or_insert(0);
        *failed += 1;
        *failed < 3
    }

    fn compile(&mut self, requested: ToCompiler) {
        let ToCompiler::Compile { ticket, module, code, .. } = requested else { return };
        let hash = match module {
            Module::Known(hash) => hash,
            Module::Sent(parts) => {
                let bytes: Vec<u8> = parts.iter().flat_map(|part| part.to_vec()).collect();
                Hash::of(&bytes)
            }
        };
        let known = programs::all().iter().any(|it| it.hash == hash);
        let result = if known { Ok((hash, code)) } else { Err(Refused::Unknown) };
        self.within(20_000, ScheduledEvent::Compiled(ticket, result));
    }

    fn happen(&mut self, what: ScheduledEvent, out: &mut Vec<Output>) {
        let crossing = match what {
            ScheduledEvent::Compiled(ticket, result) => {
                let fresh = |(hash, code)| {
                    let all = programs::all().iter();
                    let it = all.clone().find(|it| it.hash == hash).expect("it was there");
                    let program = it.program.clone();
                    Fresh { hash, code, program, was_there: true, cpu_ns: 0 }
                };
                Crossing::Compiled(Compiled { ticket, result: result.map(fresh) })
            }
            ScheduledEvent::Kept(ticket, changes) => {
                if self.mistake != Some(Mistake::LoseKept) {
                    changes.into_iter().for_each(|change| self.apply(change));
                }
                Crossing::Kept(Kept { ticket, result: Ok(()) })
            }
            ScheduledEvent::Answered(id, ask) => Crossing::Answered(id, Ok(self.answer(ask))),
            ScheduledEvent::Ended(id, ended) => match self.ran(id, &ended) {
                Some(report) => Crossing::Home(ToHome::Ended(id, Box::new(report))),
                None => return,
            },
            ScheduledEvent::File => return self.come(),
            ScheduledEvent::Say => return self.begin_change(out),
            ScheduledEvent::Crash => return self.crash(),
            ScheduledEvent::Stop => {
                self.ended = true;
                return self.tree.close(self.now, out);
            }
        };
        let done = Done::Envelope(crossing.envelope());
        self.tree.step(self.now, Input::Done(OpId::UNREQUESTED, done), out);
    }

    fn apply(&mut self, change: Change) {
        match change.bytes {
            Some(bytes) => drop(self.disk.insert(change.key, bytes)),
            None => drop(self.disk.remove(&change.key)),
        }
    }

    fn ran(&mut self, id: DomainId, ended: &Ended) -> Option<Report> {
        let own = self.running.remove(&id.0)?;
        self.judged += 1;
        if let (Ended::Exit(0), Some(file)) = (ended, own.file) {
            if self.on_disk(&file) {
                panic!("{file} was run for, and that was on the disk");
            }
            let done = self.done.entry(file).or_insert(0);
            *done += 1;
            assert!(
                *done <= 1 + self.crashes,
                "run for {done} times, and {} crashes",
                self.crashes
            );
        }
        let spoilt = self.mistake == Some(Mistake::ForgetFile);
        let notified = if spoilt { Ended::Exit(1) } else { ended.clone() };
        Some(Report::new(&notified, Used::default(), 1))
    }

    /// Returns whether the disk records that a file was processed.
    fn on_disk(&self, file: &str) -> bool {
        let label = "see".parse().expect("a name");
        let bytes = self.disk.get(&Key::Files(label));
        let quoted = format!("\"{}\"", file.replace('-', "%2D"));
        bytes.is_some_and(|bytes| String::from_utf8_lossy(bytes).contains(&quoted))
    }

    /// Adds a file.
    fn come(&mut self) {
        let number = self.files.len() as u64;
        let dir = if self.rng.bool() { "in" } else { "in/sub" };
        let (path, now) = (format!("{dir}/f-{number}"), self.date());
        let stat = Stat { kind: Kind::File, inode: number + 10, modified: now, ..directory() };
        self.files.insert(path, Stat { changed: now, size: number, ..stat });
    }

    fn date(&self) -> Time {
        let (secs, nanos) = (self.now.0 / 1_000_000_000, self.now.0 % 1_000_000_000);
        Time { secs: WALL.secs + secs.cast_signed(), nanos: WALL.nanos + nanos as u32 }
    }

    /// Replies to a request to the namespace.
    fn answer(&mut self, ask: Ask) -> Reply {
        #[allow(clippy::wildcard_enum_match_arm, reason = "the others are alike here")]
        match ask {
            Ask::Fetch { path, .. } => {
                let deep = path.len() > 1;
                self.opened += 1;
                let number = self.opened << 1 | u64::from(deep);
                self.opens.insert(number);
                let open = OpenId::new(1, number as usize);
                Reply::Fetched(directory(), Buf::default(), Some(open))
            }
            Ask::List { cookie: 1.., .. } => Reply::Entries(Vec::new()),
            Ask::List { open, .. } => {
                let number = open.local() as u64;
                assert!(self.opens.contains(&number), "it is not open");
                let deep = number & 1 == 1;
                let dir = if deep { "in/sub/" } else { "in/" };
                let here = self.files.iter().filter_map(|(path, stat)| {
                    let name = path.strip_prefix(dir)?;
                    (!name.contains('/')).then(|| entry(name, stat.clone()))
                });
                let sub = (!deep).then(|| entry("sub", directory()));
                Reply::Entries(here.chain(sub).collect())
            }
            other => panic!("no look is {other:?}"),
        }
    }

    fn ask(&mut self, id: u64, ask: Ask, out: &mut Vec<Output>) {
        let request = Request { caller: owner(), ask };
        self.tree.step(self.now, Input::Ask(RequestId(id), request), out);
    }

    /// Begins to install or remove something.
    fn begin_change(&mut self, out: &mut Vec<Output>) {
        if self.install_client.is_some() {
            return;
        }
        let install = Name::new(b"install").expect("a name");
        let mut outputs = Vec::new();
        self.ask(1, Ask::Walk { from: self.tree.root(), names: vec![install] }, &mut outputs);
        let Some(Output::Reply(_, Ok(Reply::Walked(_, Some(node))))) = outputs.pop() else {
            panic!("the desk is not there")
        };
        let node: NodeId = node;
        let access = Access { write: true, ..Access::READ };
        self.ask(1, Ask::Open { node, access }, &mut outputs);
        let Some(Output::Reply(_, Ok(Reply::Opened(open, _)))) = outputs.pop() else {
            panic!("nobody may sit down")
        };
        let label = NAMES[self.rng.usize(..NAMES.len())];
        let program = programs::of(Kinds::ALL[self.rng.usize(..3)]);
        let known = self.notified.get(label).copied().flatten();
        let text = match (known, self.rng.u8(..8)) {
            (Some(version), 0) => format!("frames\nuse {label}@{}\n\n", version.max(2) - 1),
            // The storelet that watches for files stays, so its files are known.
            (Some(_), 1) if label != "see" => format!("frames\nremove {label}\n\n"),
            _ => {
                let more = match label {
                    "see" => "on /in\nexisting\n",
                    "tick" => "every 7s\n",
                    _plain => "",
                };
                let length = program.module.len();
                format!("frames\nname {label}\n{more}module {length}\n\n")
            }
        };
        let data = Buf::from(&[text.as_bytes(), &program.module].concat()[..]);
        self.install_client = Some(InstallClient { open, label });
        self.doubt.insert(label);
        self.ask(2, Ask::Write { open, offset: 0, data }, out);
        self.listen(open, out);
    }

    /// Reads the next frames.
    fn listen(&mut self, open: OpenId, out: &mut Vec<Output>) {
        self.ask(3, Ask::Read { open, offset: 0, count: 1 << 16, headroom: 0 }, out);
    }

    /// Handles the result, which may follow a state frame: then it reads again.
    fn received(&mut self, outputs: &[u8]) {
        let Some(InstallClient { open, label }) = self.install_client.take() else {
            panic!("the listener has ended")
        };
        let (mut rest, mut report) = (outputs, None);
        while let Some((frame, body)) = Frame::decode(rest).expect("frames") {
            assert!(report.is_none(), "something comes behind the report");
            assert!(matches!(frame, Frame::State | Frame::Report), "{frame:?} of an install");
            report = (frame == Frame::Report).then_some(body);
            rest = &rest[FRAME_HEAD + body.len()..];
        }
        let Some(report) = report else {
            self.install_client = Some(InstallClient { open, label });
            let mut out = Vec::new();
            self.listen(open, &mut out);
            return self.settle(out);
        };
        let text = String::from_utf8_lossy(report).into_owned();
        let version = text.split("\"version\":").nth(1).and_then(|rest| {
            rest.split(|c: char| !c.is_ascii_digit()).next().and_then(|text| text.parse().ok())
        });
        if text.contains("\"removed\"") {
            self.notified.insert(label, None);
        } else if version.is_some() {
            self.notified.insert(label, version);
        } else {
            assert!(text.contains("\"unknown\""), "{text}");
        }
        self.doubt.remove(label);
        self.judged += 1;
        let mut out = Vec::new();
        self.tree.step(self.now, Input::Close(open), &mut out);
        self.settle(out);
    }

    /// Crashes everything; pending writes of the state store are lost in part; and restarts.
    fn crash(&mut self) {
        let mut pending = std::mem::take(&mut self.queue);
        let mut goes_on = self.mistake != Some(Mistake::LoseKept);
        self.crashes += 1;
        while let Some((at, what)) = pending.pop() {
            match what {
                ScheduledEvent::Kept(_, changes) => {
                    for change in changes {
                        goes_on = goes_on && self.rng.u8(..3) > 0;
                        if goes_on {
                            self.apply(change);
                        }
                    }
                }
                ScheduledEvent::Compiled(..)
                | ScheduledEvent::Answered(..)
                | ScheduledEvent::Ended(..) => {}
                what @ (ScheduledEvent::File
                | ScheduledEvent::Say
                | ScheduledEvent::Crash
                | ScheduledEvent::Stop) => {
                    self.queue.schedule(at, what);
                }
            }
        }
        self.kept_at = self.now;
        (self.install_client, self.running, self.opens) = (None, BTreeMap::new(), BTreeSet::new());
        self.tree = Storelets::new(TREE, WALL, 5, settings(self.stock()));
        assert!(self.tree.next_report().is_none(), "the stored state is invalid");
        self.look();
    }

    fn stock(&self) -> Stock {
        let mut stock = Stock::default();
        for (key, bytes) in &self.disk {
            stock.take(key.clone(), bytes.clone());
        }
        stock
    }

    /// Checks that acknowledged installations are present.
    fn look(&mut self) {
        let path = vec![Name::new(b"installed.json").expect("a name")];
        let mut outputs = Vec::new();
        let ask = Ask::Fetch { root: Some(self.tree.root()), path, read_max: 0, headroom: 0 };
        self.ask(4, ask, &mut outputs);
        let Some(Output::Reply(_, Ok(Reply::Fetched(_, text, _)))) = outputs.pop() else {
            panic!("the list cannot be read")
        };
        let all: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
        let all = all.as_array().expect("a list");
        let notified = self.notified.clone();
        for (label, version) in notified.into_iter().filter(|(it, _)| !self.doubt.contains(it)) {
            let found = all.iter().find(|it| it["name"] == label);
            let found = found.and_then(|it| it["current"].as_u64());
            assert_eq!(found, version.map(u64::from), "{label} differs from the acknowledged one");
            self.judged += 1;
        }
        for label in std::mem::take(&mut self.doubt) {
            let found = all.iter().find(|it| it["name"] == label);
            let found = found.and_then(|it| it["current"].as_u64());
            self.notified.insert(label, found.map(|version| version as u32));
        }
    }

    /// Checks at the end that nothing is in progress, and each file was processed.
    fn judge(&mut self) {
        assert!(self.opens.is_empty(), "directories are open: {:?}", self.opens);
        assert!(self.tree.opens() == 0, "files of its own are open");
        if self.notified.get("see").copied().flatten().is_some() {
            for file in self.files.keys() {
                assert!(self.done.contains_key(file), "{file} was not run for");
                self.judged += 1;
            }
        }
    }
}

/// Returns the installer of the watching storelet, which runs as that user.
fn theirs() -> Caller {
    Caller::User(Arc::new(User { uid: 5, gid: 5, groups: Vec::new(), commands: false }))
}

fn directory() -> Stat {
    Stat { kind: Kind::Directory, mode: 0o755, links: 1, ..Stat::default() }
}

fn entry(name: &str, stat: Stat) -> Entry {
    let name = Name::new(name.as_bytes()).expect("a name");
    let (kind, inode) = (stat.kind, stat.inode);
    let (stat, handle) = (Some(stat), None);
    Entry { cookie: 1, inode, device: None, kind, name, stat, handle }
}
