//! One run: a world, a node, and clients, until all clients are done.

use crate::client::editor::{self, Editor, group::Group};
use crate::client::http::racer::{Ledger, Racer};
use crate::client::http::{self, Http};
use crate::client::lister::Lister;
use crate::client::ninep::{Ninep, Setup};
use crate::client::quota::administrator::{self, Administrator};
use crate::client::quota::uploader::{self, Uploader};
use crate::client::quota::{self, QuotaClient};
use crate::client::script::Script;
use crate::client::subtree::SubtreeReader;
use crate::disk::{DEVICE, Planted, ROOT};
use crate::params::{Params, Quotas};
use crate::stage::{self, Stage};
use crate::trace::Show;
use crate::world::{Host, Totals, WALL, World};
use base::op::{File, Listener};
use base::{Automaton, Caller, Kind, Reactor, Stat, User};
use node::{Clients, Config, Identity, Kept, Limits, Nfs, Node, Port, Protocol, Served, Web};
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::time::Duration;

/// Result of a run.
#[derive(Debug)]
pub struct Outcome {
    /// Virtual duration.
    pub took: Duration,
    /// Counts of events.
    pub totals: Totals,
    /// Hash of the trace.
    pub hash: u64,
    /// The trace, if it was kept.
    pub trace: String,
}

/// Listeners for the clients.
#[derive(Clone, Copy, Debug)]
struct Ports {
    ninep: Listener,
    http: Listener,
    /// For the owner of the server.
    administrator: Listener,
}

impl Ports {
    fn all(self) -> [Listener; 3] {
        [self.ninep, self.http, self.administrator]
    }
}

/// Runs a function that panics on failure; returns the panic message as an error.
pub fn attempt<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|payload| match payload.downcast::<String>() {
        Ok(text) => *text,
        Err(payload) => {
            payload.downcast::<&str>().map_or_else(|_| String::new(), |s| s.to_string())
        }
    })
}

/// Runs a seed; panics on any failure.
pub fn run(params: Params, show: Show) -> Outcome {
    run_with(params, show, |world| world)
}

/// Runs a seed in a wrapped world.
pub fn run_with<R: Reactor + AsMut<World>>(
    params: Params,
    show: Show,
    wrap: impl FnOnce(World) -> R,
) -> Outcome {
    run_on(params, show, wrap, populate)
}

/// Plays a scenario; returns the messages and replies, line by line.
pub fn play(text: &str) -> String {
    let stage = |world: &mut World, ports: Ports| {
        world.add(Box::new(Script::new(ports.ninep, text)));
    };
    let params = Params { quotas: None, ..Params::calm(1) };
    let outcome = run_on(params, Show::Keep, |world| world, stage);
    let lines = outcome.trace.lines().filter_map(|line| line.split_once(" client 0: "));
    lines.map(|(_, words)| words.to_string() + "\n").collect()
}

fn run_on<R: Reactor + AsMut<World>>(
    params: Params,
    show: Show,
    wrap: impl FnOnce(World) -> R,
    stage: impl FnOnce(&mut World, Ports),
) -> Outcome {
    let mut world = World::new(params.clone(), show);
    let root = world.env.disk.open_root();
    let [ninep, http, administrator] = [(); 3].map(|()| world.listen());
    let ports = Ports { ninep, http, administrator };
    stage(&mut world, ports);
    let served = match params.volume {
        true => copy_to_volume(&mut world, &params),
        false => directory(root),
    };
    let volume = match served {
        Served::Volume { file, .. } => Some(file),
        _ => None,
    };
    let mut node = Node::new(config(&params, ports), served, Vec::new());
    // The recording is compared with the references handed out by the trees, and must be empty at
    // the end.
    node.start_recording();
    let mut reactor = wrap(world);
    live(&mut node, &mut reactor, params.stop_after, &mut |world| {
        let file = volume.expect("the power fails for volumes only");
        restart(world, &params, ports, file)
    });
    let world = reactor.as_mut();
    // A node that gave up on hanging operations leaves the rest to the end of its process.
    if node.is_quiet() {
        world.finish(&[root]);
        volume.iter().for_each(|file| stage::check(world, *file));
    }
    let took = world.now().since(base::Instant(0));
    let trace = std::mem::replace(&mut world.env.trace, crate::trace::Trace::new(Show::Hash));
    Outcome { took, totals: world.env.totals, hash: trace.hash(), trace: trace.into_text() }
}

/// Creates a volume with the contents of the disk, optionally with a quota that makes the node
/// count it.
fn copy_to_volume(world: &mut World, params: &Params) -> Served {
    let mut stage = Stage::new(world);
    let mut nodes = vec![(ROOT, None)];
    for planted in world.env.disk.planted() {
        let Planted { dir, name, kind, data, inode } = planted;
        let place = nodes.iter().find(|(known, _)| *known == dir).expect("planted before");
        let (made, node) = stage.plant(world, place.1, (&name, kind), &data);
        assert_eq!(made, inode, "the clients know files by their inodes");
        nodes.push((inode, node));
    }
    if params.quotas.is_some() {
        let dirs: Vec<(&str, u32)> = quota::DIRS.into_iter().zip(quota::USERS).collect();
        stage.give(world, &dirs);
    } else if params.seed.is_multiple_of(2) {
        stage.limit(world);
    }
    stage.served(world)
}

/// Returns the served directory of an opened root.
pub(crate) fn directory(root: base::op::File) -> Served {
    let stat = Stat {
        kind: Kind::Directory,
        mode: 0o755,
        device: DEVICE,
        inode: ROOT,
        modified: WALL,
        ..Stat::default()
    };
    Served::Directory { root, stat, path: b"/srv".to_vec() }
}

fn config(params: &Params, ports: Ports) -> Config {
    let clients = Clients::All(Identity::Fixed(Caller::Server));
    let port =
        |listener, protocol| Port { listener, protocol, local: true, clients: clients.clone() };
    let root = User { uid: 0, gid: 0, groups: Vec::new(), commands: true };
    let administrator = Port {
        clients: Clients::All(Identity::Fixed(Caller::User(root.into()))),
        ..port(ports.administrator, Protocol::NineP)
    };
    Config {
        read_only: false,
        write_through: is_write_through(params),
        service: true,
        owner: 0,
        web: Web { write: true, ..Web::default() },
        nfs: Nfs::default(),
        ports: vec![
            port(ports.ninep, Protocol::NineP),
            port(ports.http, Protocol::Http),
            administrator,
        ],
        wall: WALL,
        limits: Limits {
            msize: params.msize,
            fids: 64,
            handles: 100_000,
            calls: params.calls,
            bytes: params.bytes.0,
        },
        connections_max: params.connections,
        bytes_max: params.bytes.1,
        files_max: 100_000,
        sharers: 1,
        volume_cache: 1 << 24,
        storelets: None,
    }
}

/// Simulates a power failure; returns the server that starts again.
fn restart(world: &mut World, params: &Params, ports: Ports, file: File) -> Node {
    world.env.fail_power(Host::default(), &ports.all(), file);
    ports.all().into_iter().for_each(|listener| world.env.listen_again(listener));
    let mut node = Node::new(config(params, ports), stage::served_again(world, file), Vec::new());
    node.start_recording();
    node
}

/// Runs the event loop of a server, with a check after every turn. `restart` simulates a power
/// failure.
fn live<R: Reactor + AsMut<World>>(
    node: &mut Node,
    reactor: &mut R,
    stop_after: Option<u64>,
    restart: &mut dyn FnMut(&mut World) -> Node,
) {
    let (mut events, mut ops) = (Vec::new(), Vec::new());
    let mut turns = 0u64;
    while !node.is_over() {
        let now = reactor.now();
        node.turn(now, &node::ticking(now), &mut events, &mut ops);
        node.end_turn(reactor.now());
        node.hand_out(&mut |_| Kept::Taken);
        node.check();
        ops.drain(..).for_each(|op| reactor.submit(op));
        turns += 1;
        let world = reactor.as_mut();
        if world.is_done() || stop_after == Some(turns) {
            world.stop();
        }
        if !node.is_over() {
            reactor.wait(node.deadline(), &mut events);
        }
        let world = reactor.as_mut();
        if !world.env.is_stopped() && world.env.is_power_failing() {
            events.drain(..).for_each(|event| world.env.drop_done(event.done));
            *node = restart(world);
        }
    }
}

/// Creates the initial state: directories, shared files, clients.
fn populate(world: &mut World, ports: Ports) {
    let params = world.env.params.clone();
    let mut rng = base::rng::seeded(params.seed ^ 0xf111);
    let mut contents = |length: usize| {
        let mut bytes = vec![0; length];
        rng.fill(&mut bytes);
        bytes
    };
    let files: Vec<(String, Vec<u8>)> =
        [("empty", 0), ("small", 10), ("page", 4096), ("large", 300_001)]
            .map(|(name, length)| (name.to_string(), contents(length)))
            .to_vec();
    let disk = &mut world.env.disk;
    let shared = disk.plant(WALL, ROOT, b"shared", Kind::Directory, b"");
    let plant = |(name, bytes): &(String, Vec<u8>)| {
        let inode = disk.plant(WALL, shared, name.as_bytes(), Kind::File, bytes);
        (name.clone(), inode, bytes.clone())
    };
    let files: Vec<(String, u64, Vec<u8>)> = files.iter().map(plant).collect();
    for number in 0..params.linux + params.plan9 {
        let home = format!("c{number}");
        let inode = world.env.disk.plant(WALL, ROOT, home.as_bytes(), Kind::Directory, b"");
        let (linux, listener) = (number < params.linux, ports.ninep);
        let shared = (shared, files.clone());
        let setup = Setup { listener, linux, home, inode, shared };
        world.add(Box::new(Ninep::new(setup, params.requests)));
    }
    let text = contents(10_000);
    let synthetic = world.env.disk.plant(WALL, ROOT, b"synthetic", Kind::Directory, b"");
    let inode = world.env.disk.plant(WALL, synthetic, b"f", Kind::File, &text);
    world.env.disk.hide_size(inode);
    for number in 0..params.http {
        let home = format!("h{number}");
        let inode = world.env.disk.plant(WALL, ROOT, home.as_bytes(), Kind::Directory, b"");
        let shared = files.iter().map(|(name, _, data)| (name.clone(), data.clone()));
        let shared = shared.chain([(http::SYNTHETIC.to_string(), text.clone())]).collect();
        let setup = http::Setup { listener: ports.http, home, inode, shared };
        world.add(Box::new(Http::new(setup, params.requests / 2)));
    }
    world.env.disk.plant(WALL, ROOT, b"race", Kind::Directory, b"");
    let ledger = Rc::new(RefCell::new(Ledger::default()));
    for _ in 0..params.racers {
        let racer = Racer::new(ports.http, Rc::clone(&ledger), params.requests / 4);
        world.add(Box::new(racer));
    }
    let edits = world.env.disk.plant(WALL, ROOT, b"edits", Kind::Directory, b"");
    let inode = world.env.disk.plant(WALL, edits, b"f", Kind::File, b"");
    let group = Rc::new(RefCell::new(Group::new(params.requests / 5)));
    for _ in 0..params.editors {
        world.add(Box::new(Editor::new(editor::Setup {
            listener: ports.ninep,
            names: ["edits", "f"].map(str::to_string).to_vec(),
            inode: Some(inode),
            group: Rc::clone(&group),
            msize: 1 << 20,
            breaks: params.edit_breaks,
        })));
    }
    let shared = files.into_iter().map(|(name, _, data)| (name, data)).collect();
    add_readers(world, ports, &params, shared);
    if let Some(quotas) = &params.quotas {
        add_quota_clients(world, ports, quotas);
    }
}

/// Adds clients that exceed quotas, and their administrator.
fn add_quota_clients(world: &mut World, ports: Ports, quotas: &Quotas) {
    for name in quota::DIRS {
        world.env.disk.plant(WALL, ROOT, name.as_bytes(), Kind::Directory, b"");
    }
    let Quotas { clients, entries, .. } = *quotas;
    let uploaders = quotas.uploaders;
    let ledger = quota::ledger::Ledger::new(clients + uploaders, clients * entries + uploaders);
    let ledger = Rc::new(RefCell::new(ledger));
    let write_through = is_write_through(&world.env.params);
    for number in 0..clients {
        world.add(Box::new(QuotaClient::new(quota::Setup {
            listener: ports.ninep,
            number,
            entries,
            requests: quotas.requests,
            write_through,
            ledger: Rc::clone(&ledger),
        })));
    }
    for number in 0..uploaders {
        world.add(Box::new(Uploader::new(uploader::Setup {
            listener: ports.http,
            number,
            requests: quotas.requests / 2,
            ledger: Rc::clone(&ledger),
        })));
    }
    let layout = stage::geometry(&world.env.params).layout().expect("a fair geometry");
    world.env.expected_blocks = Some(layout.blocks);
    world.add(Box::new(Administrator::new(administrator::Setup {
        listener: ports.administrator,
        ledger,
        layout,
        growths: quotas.growths,
        failures: quotas.failures,
        blocks_max: quotas.blocks_max,
        fills: world.env.params.fills(),
    })));
}

/// Returns whether each change is durable before its reply.
fn is_write_through(params: &Params) -> bool {
    params.seed % 7 == 3
}

/// Adds clients that list and read a directory that changes, and one that does not.
fn add_readers(world: &mut World, ports: Ports, params: &Params, shared: Vec<(String, Vec<u8>)>) {
    let busy = world.env.disk.plant(WALL, ROOT, b"busy", Kind::Directory, b"");
    for number in 0..params.entries {
        let name = format!("keep-{number}");
        world.env.disk.plant(WALL, busy, name.as_bytes(), Kind::File, b"");
    }
    for _ in 0..params.listers {
        world.env.begin_churn(busy);
        let times = params.requests / 40;
        world.add(Box::new(Lister::new(ports.ninep, params.entries, times)));
    }
    for _ in 0..params.subtrees {
        let times = params.requests / 20;
        world.add(Box::new(SubtreeReader::new(ports.ninep, shared.clone(), times)));
    }
}
