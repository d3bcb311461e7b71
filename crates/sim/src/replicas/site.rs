//! One server and its machine: a disk with a replica, listeners, and the process if it runs.

use super::canary::Mistake;
use super::params::Params;
use crate::host::Host;
use crate::stage;
use crate::world::{WALL, World};
use base::op::{Address, File, Listener};
use base::{Caller, Instant, Reactor, Time, User};
use node::{
    Clients, Config, HOME, Identity, Nfs, Node, Port, Protocol, REPLICAS, Replicated, Served, Web,
};
use replica::service::ReplicaId;
use services::{ADMINISTRATOR, Limits, Options, Settings, settings};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use store::{Durability, Geometry, Store, Ticket};

/// Name of the service.
pub(super) const SERVICE: &str = "ledger";

/// Size of the disks, bytes: enough for two states and the operations since.
const DISK: u64 = 128 << 20;

/// The machine.
#[derive(Debug)]
pub(super) struct Site {
    pub(super) server: Option<Server>,
    /// Listener for clients.
    pub(super) acceptor: Listener,
    /// Listeners for each of the others; one that joins uses that for clients.
    pub(super) ways: BTreeMap<usize, Listener>,
    pub(super) file: File,
    /// Clock skew, seconds.
    skew: u64,
    /// Whether it is frozen.
    pub(super) frozen: bool,
    /// Whether it is in trouble.
    pub(super) troubled: bool,
    /// Time when its last trouble began, or ended.
    pub(super) since: Instant,
    /// Reachability from others.
    pub(super) health: Health,
    /// The same, also while no other one can be reached.
    pub(super) audience: Health,
    /// Whether all others are unreachable.
    pub(super) is_alone: bool,
}

/// Periods in which others may not hear a server: it is frozen or down, or a link to it or from it
/// is cut.
#[derive(Debug, Default)]
pub(super) struct Health {
    /// Number of present causes.
    causes: u32,
    /// Beginning of the last such period; gaps shorter than [`BREAK`] do not end it.
    since: Instant,
    /// End of the last cause.
    until: Option<Instant>,
}

/// Time in which a recovered server has propagated its state to others.
const BREAK: Duration = Duration::from_secs(15);

impl Health {
    /// Records the beginning of a cause.
    pub(super) fn fail(&mut self, now: Instant) {
        if self.causes == 0 && self.until.is_none_or(|until| now >= until + BREAK) {
            self.since = now;
        }
        self.causes += 1;
    }

    /// Records the end of a cause.
    pub(super) fn recover(&mut self, now: Instant) {
        (self.causes, self.until) = (self.causes - 1, Some(now));
    }

    /// Returns whether there is a cause at present.
    pub(super) fn is_failing(&self) -> bool {
        self.causes > 0
    }

    /// Returns the beginning of the period in which others may not have heard it, if it lasts or
    /// has just ended.
    pub(super) fn since(&self, now: Instant) -> Option<Instant> {
        let is_ill = self.causes > 0 || self.until.is_some_and(|until| now < until + BREAK);
        is_ill.then_some(self.since)
    }
}

/// A running server: the nodes of its process.
#[derive(Debug)]
pub(super) struct Server {
    /// The node with the namespace and the connections.
    pub(super) home: Host,
    /// The node with the replica.
    pub(super) replicas: Host,
    /// End of the work of that node's last turn.
    pub(super) until: Instant,
    /// A planted error: home shares that node's thread, and waits as long.
    shares_thread: bool,
}

impl Server {
    /// Returns both nodes.
    pub(super) fn nodes(&self) -> [&Host; 2] {
        [&self.home, &self.replicas]
    }

    /// Returns the node of this number.
    pub(super) fn node(&mut self, number: usize) -> &mut Host {
        match number {
            HOME => &mut self.home,
            REPLICAS => &mut self.replicas,
            other => unreachable!("there is no node {other}"),
        }
    }

    /// Returns whether a node has work and is not busy.
    pub(super) fn is_due(&self, number: usize, now: Instant) -> bool {
        let is_busy = (number == REPLICAS || self.shares_thread) && self.until > now;
        self.nodes()[number].is_due(now) && !is_busy
    }

    /// Returns the time of its next turn without further events.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let replicas = self.replicas.deadline_after(self.until);
        let home = match self.shares_thread {
            true => self.home.deadline_after(self.until),
            false => self.home.deadline(),
        };
        home.into_iter().chain(replicas).min()
    }

    /// Returns whether it has ended.
    pub(super) fn is_over(&self) -> bool {
        self.nodes().iter().all(|host| host.node.is_over())
    }
}

/// Returns the identifier of a replica.
pub(super) fn id(number: usize) -> ReplicaId {
    ReplicaId(u16::try_from(number + 1).expect("few replicas"))
}

/// Returns the address of a listener of the world.
fn address(listener: Listener) -> Address {
    services::address(&place(listener)).expect("it is in numbers")
}

/// Returns the same as text, as listed among the members.
fn place(listener: Listener) -> String {
    format!("127.0.0.1:{}", listener.0)
}

/// Returns the settings known to the holder of the service's key.
pub(super) fn key(params: &Params) -> Settings {
    let remove_after = params.remove_after_ms.map(Duration::from_millis);
    Settings {
        version: settings::version(remove_after),
        id: 7,
        service: SERVICE.to_string(),
        kind: params.kind,
        me: ADMINISTRATOR,
        members: (0..params.replicas).map(|member| (id(member), String::new())).collect(),
        joins: false,
        remove_after,
        secret: settings::Secret([3; 32]),
    }
}

fn store_config(params: &Params) -> store::Config {
    let interval = Duration::from_secs(5);
    let (cache, dirty) = (params.cache, params.cache / 2);
    store::Config { cache, dirty, interval, read_only: false, accept_loss: false }
}

impl Site {
    /// Returns a machine with a new replica on its disk, without a process. Replicas beyond the
    /// first members join.
    pub(super) fn new(world: &mut World, params: &Params, number: usize, skew: u64) -> Site {
        let (acceptor, joins) = (world.listen(), number >= params.replicas);
        let others = (0..params.members()).filter(|other| *other != number);
        let (block, journal) = params.disk;
        let geometry = Geometry { block, blocks: DISK / block as u64, journal, segment: 1024 };
        let file = stage::make(world, &geometry);
        let now = world.now();
        let (mut store, mut outputs) = stage::open(world, file, store_config(params), now);
        let mut settings = Settings { me: id(number), joins, ..key(params) };
        settings.members.extend(joins.then(|| (id(number), place(acceptor))));
        let changes = services::format(&settings);
        let commit = store.commit(now, Ticket(1), &changes, Durability::Durable, &mut outputs);
        commit.expect("there is room");
        stage::run_store(world, file, &mut store, now, &mut outputs);
        let way = |world: &mut World| if joins { acceptor } else { world.listen() };
        let ways = others.map(|other| (other, way(world))).collect();
        let (health, audience) = (Health::default(), Health::default());
        Site {
            server: None,
            acceptor,
            ways,
            file,
            skew,
            frozen: false,
            troubled: false,
            since: now,
            health,
            audience,
            is_alone: false,
        }
    }

    /// Returns all its listeners.
    pub(super) fn listeners(&self) -> Vec<Listener> {
        let all: BTreeSet<Listener> = self.ways.values().copied().chain([self.acceptor]).collect();
        all.into_iter().collect()
    }

    /// Starts the process with the contents of its disk, as hosts `numbers` of the world; `ways`
    /// are the other servers' listeners for it.
    pub(super) fn start(
        &mut self,
        world: &mut World,
        params: &Params,
        numbers: [u16; 2],
        ways: BTreeMap<usize, Listener>,
    ) {
        let now = world.now();
        let (mut store, _) = stage::open(world, self.file, store_config(params), now);
        let mut fetch = |store: &mut Store, missing| {
            let mut outputs = Vec::new();
            store.fetch(now, Ticket(0), missing, &mut outputs);
            stage::run_store(world, self.file, store, now, &mut outputs);
            Ok(())
        };
        let kept = services::read_all(&mut store, &mut fetch);
        let kept = kept.expect("a replica that was begun can be read for ever");
        let mut seed = [0; 32];
        world.env.rng.fill(&mut seed);
        let members = kept.members();
        let known = ways.into_iter().filter(|(other, _)| members.contains_key(&id(*other)));
        let addresses = known.map(|(other, at)| (id(other), vec![address(at)])).collect();
        let wall = Time { secs: WALL.secs + self.skew.cast_signed(), ..WALL };
        let limits = Limits { work: params.work, held: 64 << 20 };
        let options = Options { wall, date: WALL, owner: 0, seed, addresses, limits };
        let served = Served::Skeleton { paths: Vec::new() };
        let mut node = Node::new(self.config(params), served, Vec::new());
        let store = Box::new(store);
        let trees = node.host(&[SERVICE.to_string()]);
        let replica = Replicated { file: self.file, store, kept, options };
        let other = Node::replicas(self.config(params), vec![(trees[0], replica)]);
        for listener in self.listeners() {
            world.env.listen_again(listener);
        }
        let shares_thread = params.mistake == Some(Mistake::OneThread);
        let home = Host::new(node, numbers[HOME], self.listeners());
        let replicas = Host::new(other, numbers[REPLICAS], Vec::new());
        self.server = Some(Server { home, replicas, until: now, shares_thread });
    }

    fn config(&self, params: &Params) -> Config {
        let world = &params.world;
        let nobody = User { uid: 65_534, gid: 65_534, groups: Vec::new(), commands: false };
        let clients = Clients::All(Identity::Fixed(Caller::User(nobody.into())));
        let port = |listener| {
            let clients = clients.clone();
            Port { listener, protocol: Protocol::NineP, local: false, clients }
        };
        let (msize, calls, bytes) = (world.msize, world.calls, world.bytes.0);
        Config {
            read_only: false,
            write_through: false,
            service: true,
            owner: 0,
            web: Web::default(),
            nfs: Nfs::default(),
            ports: self.listeners().into_iter().map(port).collect(),
            wall: WALL,
            limits: node::Limits { msize, fids: 64, handles: 100_000, calls, bytes },
            connections_max: world.connections,
            bytes_max: world.bytes.1,
            files_max: 100_000,
            sharers: 1,
            volume_cache: 1 << 24,
            storelets: None,
        }
    }
}
