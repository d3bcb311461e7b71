//! The node: all automata of one server, and the routing between them.
//!
//! A composition of automata is an automaton. Its input is a *turn*: the completions from the
//! reactor; its outputs are operations. Within a turn messages are routed by a `match` until none
//! is left, and the sessions' output of a turn is sent together, so that a burst of requests is
//! answered by one system call.
//!
//! ```text
//!   reactor ──events──▶ listener, connection(session) ──requests──▶ names ──▶ tree, service
//!      ▲                        │    ▲                                │           │
//!      └────────operations──────┴────┼──────────replies───────────────┘           │
//!      └────────operations───────────┴──────────────────────────────────────────-─┘
//! ```
//!
//! Admission control happens here, once, for connections and bytes. At a limit sockets are not
//! read, and TCP exerts backpressure.

mod admission;
mod bill;
mod changes;
mod client_keys;
mod config;
pub mod connection;
mod fairness;
mod joins;
pub mod listener;
pub mod log;
mod message;
mod messages;
mod metrics;
mod mounted_tree;
mod places;
mod recorder;
mod recording;
mod relay;
mod replicas;
mod report;
mod role;
mod route;
mod shadow;
mod shown;
mod sources;
pub mod stages;
mod status;
mod storelets;
mod surveys;
mod traffic;
mod trees;
mod unresponsive;
mod watched;
mod work;

pub use changes::advice;
pub use config::{Clients, Config, Join, Joined, Port, Served};
pub use fairness::ticking;
pub use front::{Export, Identity, Limits, Nfs, Protocol, Squash, Web};
pub use messages::NODES_MAX;
pub use names::{Order, script};
pub use recorder::{Act, BATCH, BATCH_TIME, Kept, Recorded, Tally};
pub use replicas::{REPLICAS, Replicated};
pub use role::HOME;
pub use shadow::{FromHome, Shadow, duplicate, label};
pub use work::work;

use admission::Admission;
use base::op::{ClientKey, Envelope, Event, Op};
use base::{Automaton, Error, Instant, Name, Reactor};
use bill::Bill;
use changes::Changes;
use connection::Connection;
use front::nfs::Replays;
use front::webdav::Locks;
use listener::ACCEPTED_MAX;
use listener::Listener;
use log::{Access, Log, LogMessage};
use message::Message;
use mounted_tree::Tree;
use names::{Mount, Names, NamespaceChange, Source};
use places::Places;
use recorder::Recorder;
use role::{Client, Role};
use slab::Slab;
use stages::Stages;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::RangeInclusive;
use std::time::Duration;
use storelet::{Storelets, Worker};
use surveys::Surveys;
use traffic::Traffic;
use tree::service::{Coverage, Service};
use tree::volume::Volume;
use trees::Trees;

/// Grace period of a shutdown for requests in progress.
pub const DRAIN_TIME: Duration = Duration::from_secs(10);

/// Additional time for requests that hang.
pub const CUT_TIME: Duration = Duration::from_secs(2);

/// Number of files reserved for the process itself: reactor, libraries, recently fetched files.
const FILES_KEPT: usize = 512;

/// Share of the memory of clients for replies to NFS calls that may be sent again, and its maximum,
/// bytes: some thousand replies, many times what a client has outstanding when it reconnects.
const REPLAYS_PART: usize = 64;
const REPLAYS_MAX: usize = 4 << 20;

/// Returns what sessions need to know of the server, whose root is on this device.
fn export(
    config: &Config,
    (root, device): (tree::NodeId, u64),
    path: Vec<u8>,
    limits: Limits,
) -> Export {
    Export {
        root,
        device,
        path,
        wall: config.wall,
        limits,
        web: Web { write: config.web.write && !config.read_only, ..config.web.clone() },
        nfs: config.nfs.clone(),
        services: [].into(),
    }
}

/// Returns the memory for replies to NFS calls, bytes.
fn replays_max(config: &Config) -> usize {
    let serves_nfs = config.ports.iter().any(|port| port.protocol == Protocol::Nfs);
    if serves_nfs { (config.bytes_max / REPLAYS_PART).min(REPLAYS_MAX) } else { 0 }
}

/// Maximum number of queued messages for the operator; the oldest are dropped.
const LOG_MESSAGES_MAX: usize = 256;

/// Phase of a node's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Constructing the namespace; clients are not accepted yet.
    Joining,
    /// Serving.
    Running,
    /// Shutting down: requests in progress are completed, at most until the given time.
    Draining(Instant),
    /// All clients are disconnected: volumes are being closed, at most until the given time.
    Closing(Instant),
    /// End of the grace period: connections are closed, and their outstanding requests are waited
    /// for, at most until the given time.
    Cutting(Instant),
    /// Ended: the process may exit.
    Over,
}

/// Numbers of the fixed trees.
const MAIN: u16 = 0;
const SERVICE: u16 = 1;

/// Timeout of closing a volume.
pub const CLOSE_TIME: Duration = Duration::from_secs(30);

/// One server.
#[derive(Debug)]
pub struct Node {
    phase: Phase,
    role: Role,
    config: Config,
    export: Export,
    listeners: Vec<Listener>,
    /// Listeners that wait for room, or for the end of a pause.
    waiting: BTreeSet<usize>,
    connections: Slab<Connection>,
    /// Clients of the connections of fronts.
    front_clients: BTreeMap<Client, ClientKey>,
    /// Number of files that threads are closing.
    closing: usize,
    places: Places,
    names: Names,
    trees: Trees,
    /// Messages between automata. Empty between turns.
    messages: VecDeque<Message>,
    /// Connections that have operations to submit at the end of the turn.
    busy: Vec<usize>,
    /// Unprocessed messages of other nodes, in order of arrival: bounded by the requests of
    /// storelets and of replicas in flight.
    mail: VecDeque<Envelope>,
    /// Nodes that connections of fronts have released, with the numbers of the fronts. A part of
    /// them is released in each turn, so they are not many more than those of some turns.
    releases: VecDeque<(usize, tree::NodeId)>,
    /// Connections with input, in the order in which they are served.
    queue: fairness::Queue,
    /// Alarms of connections. A connection's true deadline may be later, never earlier.
    alarms: BTreeSet<(Instant, usize)>,
    /// Admission control of memory and connections.
    admission: Admission,
    /// Replies to NFS calls that clients may send again over another connection.
    replays: Replays<connection::Origin>,
    /// Locks of WebDAV, in home.
    dav_locks: Locks,
    stages: Stages,
    traffic: Traffic,
    changes: Changes,
    /// Volume that is growing for a change.
    growing: Option<u16>,
    surveys: Surveys,
    /// Changes of requests to trees, for watches. Bounded by the node's admission of requests.
    changing: BTreeMap<tree::RequestId, tree::Changes>,
    /// Recorder of file I/O, if enabled.
    recorder: Option<Box<Recorder>>,
    /// Accounting of the time spent on behalf of storelets.
    bill: Bill,
    /// Worker, if this node runs storelets.
    worker: Option<Box<Worker>>,
    /// File systems of the host that do not respond.
    unresponsive: unresponsive::ByNode,
    /// Number of the node that has the replicas of services, if there are any; in home only.
    replicas: Option<usize>,
    /// Messages for the operator. At most [`LOG_MESSAGES_MAX`].
    log_messages: VecDeque<LogMessage>,
    /// Access log entries of the present turn.
    accesses: Vec<Access>,
    scratch: Scratch,
}

/// Vectors for outputs, kept between steps for their memory. Empty between steps.
#[derive(Debug, Default)]
struct Scratch {
    connections: Vec<connection::Output>,
    names: Vec<names::Output>,
    trees: Vec<tree::Output>,
}

impl Node {
    /// Creates a node that starts with its first turn, which should be empty, and accepts clients
    /// when all `joins` are made or have failed, one after the other.
    pub fn new(config: Config, served: Served, joins: Vec<Join>) -> Node {
        let path = served.path().to_vec();
        let main = mounted_tree::open(MAIN, served, &config);
        let (mut service, storelets, hidden) = hidden(&*main, &config);
        let (root, root_stat) = (main.root(), main.root_stat());
        let device = root_stat.device;
        let identifier = if main.identifies() { MAIN } else { SERVICE };
        let mut names = Names::new(root, root_stat, hidden, identifier);
        service.set_points(names.point_names(MAIN));
        let mut trees = Trees::default();
        trees.plant(|_| main);
        trees.plant(|_| Box::new(service));
        storelets.map(|tree| trees.plant(|_| Box::new(tree)));
        let changes = begin(joins, &mut trees, &config);
        if config.service {
            let joined = trees.iter().skip(usize::from(SERVICE) + 1);
            joined.filter_map(<dyn Tree>::hidden_snapshots).for_each(|mount| names.hide(mount));
        }
        let limits = limits(&config, &trees);
        let export = export(&config, (names.root(), device), path, limits);
        let phase = if changes.is_empty() { Phase::Running } else { Phase::Joining };
        let listeners = config.ports.iter().map(|port| Listener::new(port.listener));
        let listeners: Vec<Listener> = listeners.collect();
        let replays_max = replays_max(&config);
        let admission = Admission::new(config.bytes_max - replays_max);
        Node {
            phase,
            role: Role::Home(BTreeSet::new()),
            config,
            export,
            waiting: (0..listeners.len()).collect(),
            listeners,
            connections: Slab::new(),
            front_clients: BTreeMap::new(),
            closing: 0,
            places: Places::default(),
            names,
            trees,
            messages: VecDeque::new(),
            busy: Vec::new(),
            mail: VecDeque::new(),
            releases: VecDeque::new(),
            queue: fairness::Queue::default(),
            alarms: BTreeSet::new(),
            admission,
            replays: Replays::new(replays_max),
            dav_locks: Locks::default(),
            stages: Stages::default(),
            traffic: Traffic::default(),
            changes,
            growing: None,
            surveys: Surveys::new(),
            changing: BTreeMap::new(),
            recorder: None,
            bill: Bill::default(),
            worker: None,
            unresponsive: BTreeMap::new(),
            replicas: None,
            log_messages: VecDeque::new(),
            accesses: Vec::new(),
            scratch: Scratch::default(),
        }
    }

    /// Returns whether the node ends, or has ended.
    fn is_ending(&self) -> bool {
        !matches!(self.phase, Phase::Joining | Phase::Running)
    }

    /// Returns whether the node has ended.
    pub fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// Creates a node with connections, which sends their requests to another node of this process,
    /// whose [`Node::export`] this is.
    ///
    /// # Panics
    /// If there are more nodes than [`NODES_MAX`].
    pub fn front(number: usize, config: Config, export: Export) -> Node {
        assert!(number != HOME && number <= NODES_MAX, "node {number}");
        // Only home has the tree of storelets, with its registry.
        let config = Config { storelets: None, ..config };
        let mut node = Node::new(config, Served::Skeleton { paths: Vec::new() }, Vec::new());
        (node.role, node.export) = (Role::Front(number), export);
        node
    }

    /// Sets the numbers of the fronts and workers that will send requests. If this node is already
    /// ending, `ops` shut them down.
    pub fn set_fronts(&mut self, numbers: RangeInclusive<usize>, ops: &mut Vec<Op>) {
        self.role = Role::Home(numbers.collect());
        if !self.is_running() {
            self.stop_fronts(ops);
        }
    }

    /// Returns whether clients are accepted and no shutdown has begun.
    pub fn is_running(&self) -> bool {
        self.phase == Phase::Running
    }

    /// Returns the properties of this server that sessions need.
    pub fn export(&self) -> Export {
        self.export.clone()
    }

    /// Returns the failed joins, each with its position in the configuration, once the namespace
    /// is constructed.
    pub fn joined(&self) -> Option<&[(usize, Error)]> {
        (self.phase != Phase::Joining).then_some(self.changes.failed())
    }

    /// Returns the numbers of nodes and open files held of each tree; last, the numbers of nodes
    /// tracked by the mux and of open unions.
    pub fn held(&self) -> Vec<(usize, usize)> {
        let counts = self.trees.iter().map(Tree::counts);
        let trees = counts.map(|tree| (tree.nodes, tree.opens));
        trees.chain([self.names.counts()]).collect()
    }

    /// Returns the write failure of a volume, if there was one.
    pub fn failure(&self) -> Option<String> {
        self.trees.iter().filter_map(<dyn Tree>::volume).find_map(Volume::failure)
    }

    /// Returns whether nothing is outstanding; `false` if the node was stopped before.
    pub fn is_quiet(&self) -> bool {
        let is_asking = self.changes.is_opening() || self.has_streams();
        !is_asking && self.connections.is_empty() && self.trees.iter().all(Tree::is_closed)
    }

    /// Returns the volume, if one is served at the root.
    pub fn volume(&self) -> Option<&Volume> {
        self.trees[MAIN].volume()
    }

    /// Asserts that the state of a turn is empty.
    fn check_turn(&self) {
        let Scratch { connections, names, trees } = &self.scratch;
        assert!(
            connections.is_empty() && names.is_empty() && trees.is_empty(),
            "unprocessed changes at the end of a turn"
        );
        assert!(self.busy.is_empty(), "each connection has asked for what it needs");
        assert!(self.log_messages.len() <= LOG_MESSAGES_MAX, "few messages wait");
        for (_, survey) in &self.surveys {
            assert!(!survey.awaited().is_empty(), "a survey waits for somebody");
        }
        let closed = self.listeners.iter().all(Listener::is_closed);
        let ends = matches!(self.phase, Phase::Closing(_) | Phase::Cutting(_));
        assert!(
            !ends || closed || !self.listeners.iter().any(Listener::is_waiting),
            "no more come"
        );
    }

    /// Asserts that each connection has an alarm no later than its deadline.
    fn check_alarms(&self) {
        let alarms = self.connections.iter().filter_map(|(slot, it)| Some((it.alarm?, slot)));
        assert_eq!(self.alarms, alarms.collect(), "alarms are those of connections");
        for (slot, connection) in &self.connections {
            assert!(!connection.is_marked, "marks are for the end of a turn");
            assert!(!connection.is_over(), "an ended connection is forgotten: {slot}");
            let wanted = connection.deadline();
            let early = wanted.is_none_or(|at| connection.alarm.is_some_and(|alarm| alarm <= at));
            assert!(
                early || self.queue.has_tick(Client::of_slot(slot)),
                "connection {slot} is looked at too late"
            );
        }
    }

    /// Returns the number of host files that clients may hold. A part of the process's files is
    /// reserved for connections, present or not, so that one client's files do not lock others out.
    fn files_shared(&self) -> usize {
        let kept = self.connections.len().max(self.config.files_max / 8) + FILES_KEPT;
        self.config.files_max.saturating_sub(kept)
    }

    /// Returns the number of nodes and open files that clients of this node may hold together: its
    /// share of the smallest tree's limit, less a sixteenth that is reserved for requests in
    /// progress, and no more than fit into half of the memory.
    fn handles_share(&self) -> usize {
        let all = self.export.limits.handles.min(self.files_shared()) / 16 * 15;
        let fit = self.config.bytes_max / 2 / admission::HANDLE_BYTES;
        (all / self.config.sharers.max(1)).min(fit)
    }
}

impl Automaton for Node {
    type Input = Vec<Event>;
    type Output = Op;

    fn step(&mut self, now: Instant, events: Vec<Event>, ops: &mut Vec<Op>) {
        self.turn(now, &ticking(now), &mut { events }, ops);
    }

    fn deadline(&self) -> Option<Instant> {
        if !self.queue.is_empty() || !self.mail.is_empty() || !self.releases.is_empty() {
            return Some(Instant(0));
        }
        let alarm = self.alarms.first().map(|(at, _)| *at);
        let drain = match self.phase {
            Phase::Draining(until) | Phase::Cutting(until) | Phase::Closing(until) => Some(until),
            Phase::Joining | Phase::Running | Phase::Over => None,
        };
        let listeners = self.waiting.iter().filter_map(|index| self.listeners[*index].deadline());
        let recorder = self.recorder.as_ref().and_then(|recorder| recorder.deadline());
        let worker = self.worker.as_ref().and_then(|worker| worker.deadline());
        let handles = self.admission.handles_at().filter(|_| self.is_running());
        let hungry =
            self.admission.deadline().into_iter().chain(self.places_at()).chain(handles).min();
        let others = [
            alarm,
            drain,
            self.changes.deadline(),
            self.trees.deadline(),
            recorder,
            worker,
            hungry,
        ];
        listeners.chain(others.into_iter().flatten()).min()
    }

    fn check(&self) {
        self.replays.check();
        self.dav_locks.check();
        assert!(self.messages.is_empty());
        // When there is one place left, each listener may be accepting connections.
        let places = self.config.connections_max + admission::LOCAL_PLACES;
        assert!(self.connections.len() <= places + ACCEPTED_MAX * self.listeners.len());
        let bytes: usize = self.connections.iter().map(|(_, connection)| connection.bytes()).sum();
        assert_eq!(bytes, self.admission.bytes());
        let held: usize = self.connections.iter().map(|(_, it)| it.handles()).sum();
        assert_eq!(held + self.admission.closing(), self.admission.handles());
        assert_eq!(self.places.count(), self.connections.len(), "each is counted for its client");
        self.admission.check();
        self.queue.check();
        let mut listeners = self.listeners.iter().enumerate();
        assert!(listeners.all(|(index, it)| it.is_waiting() == self.waiting.contains(&index)));
        self.names.check();
        self.trees.iter().for_each(Automaton::check);
        self.trees.check();
        if let Some(recorder) = &self.recorder {
            recorder.check();
            assert!(recorder.is_idle() || !self.is_over() || !self.is_quiet());
        }
        self.worker.iter().for_each(|worker| worker.check());
        self.listeners.iter().for_each(Automaton::check);
        self.changes.check();
        self.check_turn();
        self.check_alarms();
        self.connections.iter().for_each(|(_, connection)| connection.check());
    }
}

/// Returns the limits of each connection: one client leaves some of each tree to the others.
fn limits(config: &Config, trees: &Trees) -> Limits {
    let most = trees.least_handles_max(config.files_max);
    let (fids, handles) = (config.limits.fids.min(most / 8 * 5), config.limits.handles.min(most));
    Limits { fids, handles, ..config.limits }
}

/// Creates a name from a literal.
fn plain(name: &str) -> Name {
    Name::new(name.as_bytes()).expect("a plain name")
}

/// Creates the trees of the server itself, and their hidden mounts in the first tree.
fn hidden(main: &dyn Tree, config: &Config) -> (Service, Option<Storelets>, Vec<Mount>) {
    let snapshots = main.volume().map(Volume::snapshots_root);
    let settings = config.storelets.clone().filter(|_| config.service);
    let storelets =
        settings.map(|it| Storelets::new(storelets::STORELETS, config.wall, config.owner, it));
    let behind = snapshots.map(|root| (plain("snapshots"), root));
    let behind = behind.into_iter();
    let behind = behind.chain(storelets.iter().map(|tree| (plain("storelets"), tree.root())));
    let behind: Vec<(Name, tree::NodeId)> = behind.collect();
    let places = behind.iter().map(|(name, _)| name.clone()).collect();
    let top = (main.root(), main.root_stat().device);
    let mut service = Service::new(SERVICE, config.wall, config.owner, places, top);
    let is_complete = main.volume().is_some();
    service.set_coverage(Coverage { is_complete, has_unions: false });
    let mut hidden = Vec::new();
    if config.service {
        let (at, root) = (main.root(), service.root());
        hidden.push(Mount { at, name: plain(".upcall"), root });
        let mount = |(name, root)| Mount { at: service.root(), name, root };
        hidden.extend(behind.into_iter().map(mount));
    }
    (service, storelets, hidden)
}

/// Creates the queue of initial changes; their trees are added to `trees`.
fn begin(joins: Vec<Join>, trees: &mut Trees, config: &Config) -> Changes {
    let Config { read_only, volume_cache, .. } = *config;
    let mut changes = Changes::new(sources::Settings { read_only, volume_cache });
    for (number, join) in joins.into_iter().enumerate() {
        let Join { what, at, order, create, source_text } = join;
        let what = match what {
            Joined::Path(path) => Source::Path(path),
            Joined::Gone(source_text) => {
                changes.add(number, NamespaceChange::Part { at, source_text });
                continue;
            }
            Joined::Tree(served) => {
                let make = |number| mounted_tree::open(number, served, config);
                let Some(tree) = trees.plant(make) else {
                    changes.fail(number, Error::TooManyOpen);
                    continue;
                };
                Source::Tree(trees[tree].root(), trees[tree].root_stat())
            }
        };
        changes.add(number, NamespaceChange::Join { at, what, order, create, source_text });
    }
    changes
}

/// Runs a node until its namespace is constructed.
pub fn set_up(node: &mut Node, reactor: &mut impl Reactor) {
    run_while(node, reactor, |node| node.phase == Phase::Joining);
}

/// Runs the event loop of a server. Messages for the operator go to `log`, recorded I/O to `keep`.
/// Neither may block.
pub fn run(
    node: &mut Node,
    reactor: &mut impl Reactor,
    log: &mut dyn Log,
    keep: &mut dyn FnMut(Vec<Recorded>) -> Kept,
) {
    let mut is_ending = false;
    let goes_on = |node: &mut Node| {
        node.write_log(log);
        if !is_ending && node.is_ending() {
            is_ending = true;
            log.ending();
        }
        node.hand_out(keep);
        !node.is_over()
    };
    run_while(node, reactor, goes_on);
}

fn run_while(
    node: &mut Node,
    reactor: &mut impl Reactor,
    mut goes_on: impl FnMut(&mut Node) -> bool,
) {
    let (mut events, mut ops, mut spans) = (Vec::new(), Vec::new(), Vec::new());
    while goes_on(node) {
        let now = reactor.now();
        reactor.spans(&mut spans);
        spans.drain(..).for_each(|span| node.stages.record_span(now, span));
        node.bill.begin(events.len());
        node.turn(now, &|| reactor.now(), &mut events, &mut ops);
        let (count, turned) = (ops.len(), reactor.now());
        ops.drain(..).for_each(|op| reactor.submit(op));
        node.queue.note_submitted(count, reactor.now().since(turned));
        if node.is_recording() {
            node.end_turn(reactor.now());
        }
        if node.bill.is_open() {
            node.bill.share(reactor.now().since(now));
        }
        if goes_on(node) {
            reactor.wait(node.deadline(), &mut events);
        }
    }
}
