//! The nodes of a run and their troubles.

use super::build::{Root, Stage, address, build};
use super::canary::{Mistake, spoil};
use super::fault_log::FaultLog;
use super::liar::lie;
use super::mux_client::{MuxClient, Setup};
use super::params::Params;
use super::space::{EDITED, Space};
use crate::client::editor::group::{self, Group};
use crate::client::editor::{self, Editor};
use crate::event_queue::EventQueue;
use crate::host::Host;
use crate::run::Outcome;
use crate::trace::{Show, Trace};
use crate::world::{Host as Number, WALL, World, host_of};
use base::op::{Done, Event, File, Listener, Op, OpId};
use base::rng::Rng;
use base::{Buf, Caller, Instant, Kind, Reactor};
use node::{
    Clients, Config, Identity, Join, Limits, Nfs, Node, Port, Protocol, Served, Web,
    log::LogMessage,
};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use tree::remote::news::QUIET;

/// Time after the last trouble from which on no error is excused.
const REST: Duration = Duration::from_secs(60);

/// Time for the mux to release handles of its own connection to itself after the last client.
const STOP_DELAY: Duration = Duration::from_secs(1);

/// Number of clients that edit one file together.
const EDITORS: usize = 2;

/// End of the period in which troubles begin.
const TROUBLES_END: Duration = Duration::from_secs(3600);

/// A scheduled event of a server.
#[derive(Clone, Copy, Debug)]
enum ScheduledEvent {
    /// The next trouble, of any kind.
    Next,
    /// The restart of a crashed server.
    Start(usize),
    /// The end of a server's partition; whether its connections are reset.
    Heal(usize, bool),
    /// The end of a server's freeze.
    Thaw(usize),
    /// The end of a server's lying.
    Repent(usize),
    /// The beginning of the calm, long after the last trouble.
    Calm,
}

/// A server and its host.
#[derive(Debug)]
struct Machine {
    host: Option<Host>,
    listener: Listener,
    root: Root,
    /// Whether it is frozen.
    frozen: bool,
    lying: bool,
    /// Whether it lacks 9P2000.L.
    plain: bool,
    /// Replaced files: new and old inode numbers.
    swapped: Vec<(u64, u64)>,
}

/// The server of the file edited by several clients.
#[derive(Debug)]
struct EditedServer(Rc<RefCell<FaultLog>>, usize);

impl group::Server for EditedServer {
    fn is_open(&self) -> bool {
        self.0.borrow().is_open
    }

    fn is_troubled(&self, since: Instant) -> bool {
        self.0.borrow().away(since).contains(&self.1)
    }
}

#[derive(Debug)]
struct MuxWorld {
    world: World,
    rng: Rng,
    params: Params,
    mux: Host,
    servers: Vec<Machine>,
    fault_log: Rc<RefCell<FaultLog>>,
    queue: EventQueue<ScheduledEvent>,
    /// Number of processes started so far.
    hosts_started: u16,
    /// Troubles in progress.
    troubles: usize,
    /// References held of each tree when the mux began to serve.
    held: Option<Vec<(usize, usize)>>,
    /// Files open at that time.
    kept: Vec<File>,
    /// The mux's names of its servers.
    remotes: Vec<String>,
    /// Its messages about them, with their times.
    news: Vec<(Instant, String)>,
    is_ending: bool,
    mistake: Option<Mistake>,
    occasions: u32,
}

/// Runs a seed; panics on any failure.
pub(super) fn run(params: &Params, show: Show, mistake: Option<Mistake>) -> Outcome {
    let mut world = World::new(params.world.clone(), show);
    if params.again {
        world.env.stop_delay = STOP_DELAY;
    }
    let listeners: Vec<Listener> = (0..=params.servers).map(|_| world.listen()).collect();
    let stage = build(&mut world, params, &listeners, mistake);
    let Stage { space, mux, servers, others, joins, remotes } = stage;
    let roots: Vec<File> =
        [&mux].into_iter().chain(&servers).map(|root| root.file).chain(others).collect();
    let mut mux_world = MuxWorld::new(world, params, &listeners, (mux, servers, joins), mistake);
    mux_world.remotes = remotes;
    mux_world.invite(&Rc::new(space), listeners[0]);
    mux_world.live();
    mux_world.end();
    let kept = std::mem::take(&mut mux_world.kept);
    assert!(mux_world.mux.files.iter().eq(&kept), "files of the mux are open that were not before");
    let world = &mut mux_world.world;
    world.finish(&[roots, kept].concat());
    let took = world.now().since(Instant(0));
    let trace = std::mem::replace(&mut world.env.trace, Trace::new(Show::Hash));
    Outcome { took, totals: world.env.totals, hash: trace.hash(), trace: trace.into_text() }
}

fn config(params: &Params, listener: Listener, service: bool) -> Config {
    let world = &params.world;
    let clients = Clients::All(Identity::Fixed(Caller::Server));
    Config {
        read_only: false,
        write_through: params.seed % 7 == 3,
        service,
        owner: 0,
        web: Web::default(),
        nfs: Nfs::default(),
        ports: vec![Port { listener, protocol: Protocol::NineP, local: true, clients }],
        wall: WALL,
        limits: Limits {
            msize: world.msize,
            fids: 4096,
            handles: 100_000,
            calls: world.calls,
            bytes: world.bytes.0,
        },
        connections_max: world.connections,
        bytes_max: world.bytes.1,
        files_max: 100_000,
        sharers: 1,
        volume_cache: 1 << 24,
        storelets: None,
    }
}

impl MuxWorld {
    fn new(
        world: World,
        params: &Params,
        listeners: &[Listener],
        (mux, servers, joins): (Root, Vec<Root>, Vec<Join>),
        mistake: Option<Mistake>,
    ) -> MuxWorld {
        let served: Served = mux.served();
        let mut node = Node::new(config(params, listeners[0], true), served, joins);
        node.start_recording();
        let place = |(number, root): (usize, Root)| Machine {
            host: None,
            listener: listeners[number + 1],
            root,
            frozen: false,
            lying: false,
            plain: params.is_plain(number),
            swapped: Vec::new(),
        };
        let servers: Vec<Machine> = servers.into_iter().enumerate().map(place).collect();
        let fault_log = Rc::new(RefCell::new(FaultLog::new(servers.len())));
        let mut mux_world = MuxWorld {
            world,
            rng: base::rng::seeded(params.seed ^ 0x7_0017),
            params: params.clone(),
            mux: Host::new(node, 1, vec![listeners[0]]),
            servers,
            fault_log,
            queue: EventQueue::default(),
            hosts_started: 1,
            troubles: 0,
            held: None,
            kept: Vec::new(),
            remotes: Vec::new(),
            news: Vec::new(),
            is_ending: false,
            mistake,
            occasions: 0,
        };
        (0..mux_world.servers.len()).for_each(|server| mux_world.start(server));
        mux_world
    }

    fn invite(&mut self, space: &Rc<Space>, listener: Listener) {
        self.fault_log.borrow_mut().idle = (0, self.params.mux_clients * self.params.lanes);
        for number in 0..self.params.mux_clients {
            let (space, fault_log) = (Rc::clone(space), Rc::clone(&self.fault_log));
            let params = self.params.clone();
            let setup = Setup { listener, number, space, fault_log, params };
            self.world.add(Box::new(MuxClient::new(setup)));
        }
        if let Some(server) = self.params.edited() {
            self.invite_editors(listener, server);
        }
    }

    /// Adds clients that edit one file of a server together.
    fn invite_editors(&mut self, listener: Listener, server: usize) {
        let edited = EditedServer(Rc::clone(&self.fault_log), server);
        let group = Group::on_server(self.params.requests / 10, Box::new(edited));
        let group = Rc::new(RefCell::new(group));
        let root = self.servers[server].root.inode;
        for _ in 0..EDITORS {
            let setup = editor::Setup {
                listener,
                names: vec![format!("p{server}"), EDITED.to_string()],
                inode: self.world.env.disk.lookup(root, EDITED.as_bytes()),
                group: Rc::clone(&group),
                msize: self.params.world.msize,
                breaks: self.params.disconnect / 8,
            };
            self.world.add(Box::new(Editor::new(setup)));
        }
    }

    /// Starts a server, for the first time or again.
    fn start(&mut self, server: usize) {
        self.hosts_started += 1;
        let place = &mut self.servers[server];
        self.world.env.listen_again(place.listener);
        let config = config(&self.params, place.listener, false);
        let node = Node::new(config, place.root.served(), Vec::new());
        place.host = Some(Host::new(node, self.hosts_started, vec![place.listener]));
    }

    /// Runs the event loop of all nodes, until the mux has ended.
    fn live(&mut self) {
        while !self.mux.node.is_over() {
            self.turns();
            self.look_after();
            if !self.mux.node.is_over() {
                self.wait();
            }
        }
        assert!(self.mux.node.is_quiet(), "the mux gave up waiting for something");
    }

    /// Stops the servers, each on its own.
    fn end(&mut self) {
        for server in 0..self.servers.len() {
            let host = self.servers[server].host.as_mut().expect("all troubles are over");
            host.take(Event { id: OpId::UNREQUESTED, done: Done::Stop });
        }
        let is_over = |place: &Machine| place.host.as_ref().is_some_and(|host| host.node.is_over());
        while !self.servers.iter().all(is_over) {
            self.turns();
            if !self.servers.iter().all(is_over) {
                self.wait();
            }
        }
        for place in &self.servers {
            let quiet = place.host.as_ref().is_some_and(|host| host.node.is_quiet());
            assert!(quiet, "a server gave up waiting for something");
        }
    }

    /// Gives a turn to every node with work.
    fn turns(&mut self) {
        let now = self.world.now();
        if self.mux.is_due(now) {
            let (mistake, occasions) = (self.mistake, &mut self.occasions);
            let mut change = |_: &mut World, op| spoil(mistake, occasions, op);
            self.mux.turn(&mut self.world, &mut change);
            self.hear_news();
        }
        for place in &mut self.servers {
            let Machine { host, lying, swapped, .. } = place;
            let Some(host) = host.as_mut().filter(|host| !place.frozen && host.is_due(now)) else {
                continue;
            };
            let rng = &mut self.rng;
            let disguised = self.mistake == Some(Mistake::SameNumber);
            let mut change = |world: &mut World, mut op: Op| -> Option<Op> {
                if let Op::Send { data, .. } = &mut op {
                    if *lying && lie(rng, data) {
                        world.env.totals.faults += 1;
                    }
                    if disguised {
                        disguise(swapped, data);
                    }
                }
                Some(op)
            };
            host.turn(&mut self.world, &mut change);
        }
    }

    /// Checks that the mux's messages about its servers are true and not repeated.
    fn hear_news(&mut self) {
        let now = self.world.now();
        while let Some(LogMessage { text: news, .. }) = self.mux.node.next_log_message() {
            self.world.env.trace.line(format_args!("{} news: {news}", now.0));
            let again = self.mistake == Some(Mistake::SayTwice);
            for _ in 0..=usize::from(again) {
                self.news.push((now, news.clone()));
            }
            // A server mounted at several places has a connection for each.
            let (name, _) = news.split_once(": ").expect("a name and what is the matter");
            let most = self.remotes.iter().filter(|it| *it == name).count();
            let is_complaint = news.contains(": not connected: ");
            let begins = format!("{name}: ");
            let recent = self.news.iter().rev().take_while(|(at, _)| *at + QUIET > now);
            let of_it = recent.filter(|(_, outputs)| outputs.starts_with(&begins));
            let (downs, ups): (Vec<_>, Vec<_>) =
                of_it.partition(|(_, outputs)| outputs.contains(": not connected: "));
            let times = downs.iter().filter(|(_, outputs)| *outputs == news).count();
            assert!(times <= most, "{news}: logged {times} times, of {most} connections");
            // Once a minute, and after each message about a lost connection.
            assert!(ups.len() <= downs.len() + 2 * most, "{news}: logged {} times", ups.len());
            let away = self.fault_log.borrow().away(now);
            let server = |place: &&usize| {
                news.starts_with(&address(self.servers[**place].listener).to_string())
            };
            let of = away.iter().find(server);
            assert!(of.is_some() || !is_complaint, "{news}: nothing has happened to it");
        }
    }

    /// Checks that the last message about every server reports it as connected.
    fn expect_good_news(&self) {
        let mut last = BTreeMap::new();
        for (_, news) in &self.news {
            let (name, text) = news.split_once(": ").expect("a name and what is the matter");
            last.insert(name, text);
        }
        let bad = last.iter().find(|(_, text)| !text.starts_with("connected"));
        assert!(bad.is_none(), "last messages: {bad:?}");
    }

    fn wait(&mut self) {
        let hosts = self.servers.iter().filter(|place| !place.frozen);
        let hosts = hosts.filter_map(|place| place.host.as_ref());
        // A node that was just thawed or started has not had its turn yet.
        let now = self.world.now();
        let deadlines = hosts.chain([&self.mux]).filter_map(|host| host.deadline_after(now));
        let scheduled = self.queue.next_time();
        let mut events = Vec::new();
        self.world.wait(deadlines.chain(scheduled).min(), &mut events);
        for event in events {
            self.hand_out(event);
        }
    }

    fn hand_out(&mut self, mut event: Event) {
        let number = host_of(event.id);
        if event.id == OpId::UNREQUESTED {
            self.expect_nothing_held();
            self.expect_good_news();
            return self.mux.take(event);
        }
        if number == self.mux.number {
            return self.mux.take(event);
        }
        let place = self.servers.iter_mut().find(|place| number == number_of(place));
        let place = place.expect("completions of dead hosts are dropped");
        if let Done::Received(Ok(buf)) = &mut event.done
            && place.plain
        {
            hide_linux(buf);
        }
        place.host.as_mut().expect("it has a number").take(event);
    }

    /// Checks that after the last client the mux holds only what it held at the start.
    fn expect_nothing_held(&self) {
        let held = self.mux.node.held();
        assert_eq!(Some(&held), self.held.as_ref(), "something is held for nobody");
    }

    /// Performs due work outside of the nodes.
    fn look_after(&mut self) {
        if let (None, Some(failed)) = (&self.held, self.mux.node.joined()) {
            assert!(failed.is_empty(), "not everything could be joined: {failed:?}");
            self.held = Some(self.mux.node.held());
            self.kept = self.mux.files.iter().copied().collect();
            self.fault_log.borrow_mut().is_open = true;
            if self.params.trouble.sum() > 0 {
                self.plan(self.params.pause_ms, ScheduledEvent::Next);
            }
        }
        let (idle, all) = self.fault_log.borrow().idle;
        if idle == all && !self.is_ending {
            self.is_ending = true;
            self.plan_calm();
        }
        let now = self.world.now();
        while let Some(scheduled) = self.queue.pop_due(now) {
            self.world.env.trace.line(format_args!("{} world: {scheduled:?}", now.0));
            self.perform(scheduled);
        }
    }

    /// Schedules the calm once no trouble is in progress.
    fn plan_calm(&mut self) {
        if self.is_ending && self.troubles == 0 {
            self.queue.schedule(self.world.now() + REST, ScheduledEvent::Calm);
        }
    }

    /// Schedules an event after a random delay of at most `most_ms` milliseconds.
    fn plan(&mut self, most_ms: u64, scheduled: ScheduledEvent) {
        let span = Duration::from_micros(self.rng.u64(1000..=most_ms * 1000));
        self.queue.schedule(self.world.now() + span, scheduled);
    }

    fn note(&self, server: usize, troubled: bool, silent: bool) {
        self.fault_log.borrow_mut().note(self.world.now(), server, troubled, silent);
    }

    fn note_lying(&self, server: usize, lying: bool) {
        self.fault_log.borrow_mut().note_lying(self.world.now(), server, lying);
    }

    fn perform(&mut self, scheduled: ScheduledEvent) {
        match scheduled {
            ScheduledEvent::Next
                if self.is_ending || self.world.now().0 > TROUBLES_END.as_nanos() as u64 => {}
            ScheduledEvent::Next => {
                let server = self.rng.usize(..self.servers.len());
                if !self.fault_log.borrow().servers[server].troubled {
                    self.trouble(server);
                }
                self.plan(self.params.pause_ms, ScheduledEvent::Next);
            }
            ScheduledEvent::Start(server) => {
                self.start(server);
                self.over(server);
            }
            ScheduledEvent::Heal(server, reset) => {
                let listener = self.servers[server].listener;
                if reset {
                    self.world.env.reset_all(listener);
                }
                for listener in self.cut_with(server) {
                    self.world.heal(listener);
                }
                self.over(server);
            }
            ScheduledEvent::Thaw(server) => {
                self.servers[server].frozen = false;
                self.over(server);
            }
            ScheduledEvent::Repent(server) => {
                let place = &mut self.servers[server];
                place.lying = false;
                self.world.env.reset_all(place.listener);
                self.note_lying(server, false);
                self.over(server);
            }
            ScheduledEvent::Calm => self.fault_log.borrow_mut().calm_since = Some(self.world.now()),
        }
    }

    fn over(&mut self, server: usize) {
        self.troubles -= 1;
        self.note(server, false, false);
        self.plan_calm();
    }

    /// Returns the listeners that are partitioned together with a server's.
    fn cut_with(&self, server: usize) -> Vec<Listener> {
        let all = self.mistake == Some(Mistake::DelayAll);
        let places = self.servers.iter().enumerate();
        let cut = places.filter(|(number, _)| all || *number == server);
        cut.map(|(_, place)| place.listener).collect()
    }

    /// Begins a trouble of a server.
    fn trouble(&mut self, server: usize) {
        self.world.env.totals.faults += 1;
        let weights = &self.params.trouble;
        let mut drawn = self.rng.u32(..weights.sum());
        let mut is = |weight: u32| {
            let it = drawn < weight;
            drawn = if it { u32::MAX } else { drawn.saturating_sub(weight) };
            it
        };
        let (restart, cut, freeze, reset) =
            (is(weights.restart), is(weights.cut), is(weights.freeze), is(weights.reset));
        if reset {
            self.world.env.reset_all(self.servers[server].listener);
            return self.note(server, false, false);
        }
        self.note(server, true, !restart);
        self.troubles += 1;
        let scheduled = if restart {
            self.kill(server);
            ScheduledEvent::Start(server)
        } else if cut {
            for listener in self.cut_with(server) {
                self.world.env.cut(listener);
            }
            ScheduledEvent::Heal(server, self.rng.bool())
        } else if freeze {
            self.servers[server].frozen = true;
            ScheduledEvent::Thaw(server)
        } else {
            self.servers[server].lying = true;
            self.note_lying(server, true);
            ScheduledEvent::Repent(server)
        };
        self.plan(self.params.lasts_ms, scheduled);
    }

    /// Crashes a server, and perhaps changes files on its host meanwhile.
    fn kill(&mut self, server: usize) {
        let place = &mut self.servers[server];
        let mut host = place.host.take().expect("it is in no other trouble");
        for event in host.unreported() {
            self.world.env.drop_done(event.done);
        }
        let files: Vec<File> = host.files.iter().copied().collect();
        self.world.env.kill(host.number, &files, &host.listeners);
        if self.rng.bool() {
            self.replace_files(server);
        }
    }

    /// Replaces files of the server by others of the same names.
    fn replace_files(&mut self, server: usize) {
        let mut dirs = vec![self.servers[server].root.inode];
        let (now, date) = (self.world.now(), self.world.env.date());
        while let Some(dir) = dirs.pop() {
            let disk = &mut self.world.env.disk;
            let entries = disk.inode(dir).expect("it is there").entries.clone();
            for (name, place) in entries {
                let node = disk.inode(place.inode).expect("entries lead to files");
                // Files created by a client stay as they are.
                if node.kind == Kind::Directory {
                    dirs.push(place.inode);
                } else if name.as_bytes()[0] != b'w' && self.rng.u8(..4) == 0 {
                    let data = node.data.read(0, node.data.len() as usize);
                    disk.uproot(date, dir, name.as_bytes());
                    let mut other = vec![0; data.len().max(7)];
                    self.rng.fill(&mut other);
                    let new = disk.plant(date, dir, name.as_bytes(), Kind::File, &other);
                    self.servers[server].swapped.push((new, place.inode));
                    self.fault_log.borrow_mut().replace(now, place.inode, name, data);
                }
            }
        }
    }
}

fn number_of(place: &Machine) -> Number {
    place.host.as_ref().map_or(Number::default(), |host| host.number)
}

/// Replaces an offer of 9P2000.L by an unknown version, so that the server rejects it.
fn hide_linux(buf: &mut Buf) {
    let offer = b"9P2000.L";
    let found = buf.windows(offer.len()).position(|window| window == offer);
    if let (Some(at), Some(100)) = (found, buf.get(4)) {
        let mut bytes = buf.to_vec();
        bytes[at] = b'8';
        *buf = Buf::from(bytes);
    }
}

/// Gives replacing files the inode numbers of the replaced ones.
fn disguise(swapped: &[(u64, u64)], data: &mut [Buf]) {
    for buf in data {
        let mut bytes = buf.to_vec();
        for (new, old) in swapped {
            let new = new.to_le_bytes();
            while let Some(at) = bytes.windows(8).position(|window| window == new) {
                bytes[at..at + 8].copy_from_slice(&old.to_le_bytes());
            }
        }
        *buf = Buf::from(bytes);
    }
}
