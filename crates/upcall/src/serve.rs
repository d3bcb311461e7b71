//! `upcall serve`: opens the served tree, prints how to reach it, runs the node.

use crate::clock::wall_at_zero;
use crate::config::{Form, Serve};
use crate::files;
use crate::fronts::{Fronts, Plan};
use crate::greeting::Greeting;
use crate::hosting::{self, Hosting};
use crate::listening::{Bound, nfs_port, patiently};
use crate::log;
use crate::nfs;
use crate::place::{self, TreeSource, What};
use crate::portmapper::{Portmapper, Registration};
use crate::record::{Recording, Sheet};
use crate::replica::kept;
use crate::rule::{self, Rule};
use crate::service::{self, HomeLog, Sockets};
use crate::space::{self, MountEntry, MountSource, Space};
use crate::volume::file::CACHE_MIB;
use crate::worker_pool::WorkerPool;
use base::Reactor;
use base::op::Listener;
use node::{Config, Join, Joined, Kept, Limits, Nfs, Node, Port, Protocol, Served, Web};
use reactor::{Address, World};
use std::fmt::Display;
use std::io::{self, Write as _};
use std::net::Ipv6Addr;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// Exit code after a failed write to a volume.
const STORAGE_FAILED: u8 = 1;

/// Serves until a signal.
pub(crate) fn run(serve: &Serve) -> Result<ExitCode, String> {
    let (sockets, own, addresses) = addresses(serve)?;
    let (limits, web) = (limits(serve)?, web(serve)?);
    let (form, form_reason) = choose_form(serve.reactor)?;
    let threads = threads(serve)?;
    let sheet = serve.record.as_deref().map(Sheet::open).transpose()?;
    let space = space::find(serve, &|text| emit(&text))?;
    let replicas = replicas(serve)?;
    // Before any thread starts: one that does not block signals would let them end the process.
    reactor::hold_signals();
    log::start(serve)?;
    let files = files::budget(serve.connections_max)?;
    let portmapper = portmapper(serve, &addresses)?;
    let rule = rule::choose(serve, &space, &addresses)?;
    rule.check(&space.root, &addresses)?;
    let settings = settings(serve);
    let mut world = World::new(form, &settings)
        .map_err(|error| format!("cannot start the {form_reason} reactor: {error}"))?;
    let (ports, bound) = listen(&mut world, (sockets, &own), &rule)?;
    let registration = register(portmapper, &bound)?;
    // Only now: Unix sockets are created with the administrator's umask.
    reactor::clear_umask();
    let Space { root, entries, file } = space;
    let path = root.path.clone();
    let (served, volume) = open(&mut world, root)?;
    let lines: Vec<(usize, String)> = entries.iter().map(|j| (j.line, j.text())).collect();
    let joins = entries.into_iter().map(|entry| join(&mut world, entry));
    let joins = joins.collect::<Result<Vec<Join>, String>>()?;
    let pool = WorkerPool::start(serve, file.as_deref().unwrap_or(&path), &rule.homes)?;
    let first = first_front(!replicas.is_empty(), threads, pool.as_ref())?;
    let nfs = nfs::settings(serve, &path, &rule.homes, world.wall())?;
    let mut share = share(serve, threads, ports, &world, (limits, &files, web, nfs));
    share.storelets =
        pool.as_ref().map(|it| it.settings(serve, first + threads - 1)).transpose()?;
    let mut node = Node::new(share.clone(), served, joins);
    let settings = reactor::Config { signals: false, ..settings };
    let informed: Vec<String> = replicas.iter().map(kept::Opened::line).collect();
    let hosting = host(replicas, (form, &settings, &share), &mut node, &mut world)?;
    let recording = record(sheet, &mut node, &world)?;
    node::set_up(&mut node, &mut world);
    check_joined(&node, &lines, file.as_deref())?;
    let plan = Plan {
        form,
        settings,
        config: share,
        export: node.export(),
        first,
        fronts: threads - 1,
        workers: pool.as_ref().map_or(0, |pool| pool.workers),
        beat: pool.as_ref().map(|pool| pool.ticker.beat()),
    };
    let fronts = help(&plan, (hosting.as_ref(), pool.as_ref()), &mut node, &mut world)?;
    emit(&Greeting {
        serve,
        path: &path,
        volume: volume.as_deref(),
        names: file.as_deref().map(|file| (file, lines.len())),
        replicas: &informed,
        form: &form_reason,
        rule: &rule.text,
        limit: files.limit.as_deref(),
        bound: &bound,
    });
    service::ready(&path.display().to_string(), &bound);
    run_node(&mut node, &mut world, recording);
    drop(registration);
    end(&node, (fronts, hosting, pool))
}

/// Opens the socket to the portmapper, with `--nfs-portmapper`.
fn portmapper(serve: &Serve, addresses: &[Bound]) -> Result<Option<Portmapper>, String> {
    if serve.nfs_portmapper && nfs_port(addresses).is_none() {
        return Err(
            "--nfs-portmapper registers NFS at an IPv4 address: give one by --nfs".to_string()
        );
    }
    serve.nfs_portmapper.then(Portmapper::open).transpose()
}

/// Registers the first NFS address with the portmapper.
fn register(
    portmapper: Option<Portmapper>,
    bound: &[Bound],
) -> Result<Option<Registration>, String> {
    let both = portmapper.zip(nfs_port(bound));
    let own = bound.iter().filter_map(|bound| match bound {
        (_, Address::Tcp(address)) => Some(address.port()),
        (_, Address::Unix(_)) => None,
    });
    let own: Vec<u16> = own.collect();
    both.map(|(portmapper, port)| Registration::new(portmapper, port, &own)).transpose()
}

/// Ends the log and the other threads.
fn end(
    node: &Node,
    (fronts, hosting, pool): (Fronts, Option<Hosting>, Option<WorkerPool>),
) -> Result<ExitCode, String> {
    let code = exit_code(node);
    log::finish();
    if !node.is_quiet() {
        // Something hangs, or a second signal came: outstanding operations are abandoned.
        std::process::exit(code.into());
    }
    join_all(fronts, hosting, pool).map(|()| ExitCode::from(code))
}

/// Runs the node until it has ended, and writes its recording.
fn run_node(node: &mut Node, world: &mut World, recording: Option<Recording>) {
    // A failure only makes clients wait a little longer.
    let _ = reactor::take_short_slices();
    let keep = |batch| recording.as_ref().map_or(Kept::Ended, |it| it.keep(batch));
    node::run(node, world, &mut HomeLog, &mut { keep });
    if let Some(recording) = recording {
        emit(&recording.end(node.tally().unwrap_or_default()));
    }
    emit(&"upcall: ended\n");
}

/// Returns the sockets of the service manager, the addresses of own sockets, and all addresses.
fn addresses(serve: &Serve) -> Result<(Sockets, Vec<Bound>, Vec<Bound>), String> {
    // Before other descriptors: those of the service manager have fixed numbers.
    let sockets = service::sockets()?;
    let inherited: Vec<Bound> = sockets.iter().map(|(bound, _)| bound.clone()).collect();
    let own = place::addresses(serve, &inherited)?;
    let all = [inherited, own.clone()].concat();
    Ok((sockets, own, all))
}

/// Checks that everything in the names file could be joined.
fn check_joined(node: &Node, lines: &[(usize, String)], file: Option<&Path>) -> Result<(), String> {
    let Some((number, error)) = node.joined().and_then(|failed| failed.first()) else {
        return Ok(());
    };
    let (line, text) = &lines[*number];
    Err(space::explain(file, *line, text, *error))
}

/// Waits for the end of the other threads.
fn join_all(
    fronts: Fronts,
    hosting: Option<Hosting>,
    pool: Option<WorkerPool>,
) -> Result<(), String> {
    fronts.join()?;
    hosting.map_or(Ok(()), Hosting::join)?;
    pool.map_or(Ok(()), WorkerPool::join)
}

/// Returns the exit code, and logs a failed volume.
fn exit_code(node: &Node) -> u8 {
    let Some(reason) = node.failure() else { return 0 };
    log::error("volume", reason);
    STORAGE_FAILED
}

/// Opens the replicas.
fn replicas(serve: &Serve) -> Result<Vec<kept::Opened>, String> {
    if serve.read_only && !serve.replica.is_empty() {
        return Err("a replica is written all the time: leave out --read-only".to_string());
    }
    let mut replicas: Vec<kept::Opened> = Vec::new();
    for path in &serve.replica {
        let opened = kept::open(path)?;
        if replicas.iter().any(|other| other.service() == opened.service()) {
            let name = opened.service();
            return Err(format!("two replicas of {name}: each needs a server of its own"));
        }
        replicas.push(opened);
    }
    for reach in &serve.reach {
        let done = replicas.iter_mut().map(|replica| replica.reach(reach));
        if !done.collect::<Result<Vec<bool>, String>>()?.contains(&true) {
            return Err(format!(
                "--reach {reach}: use NAME.ID=ADDR, where ID is another replica of the service \
                 NAME than that of --replica"
            ));
        }
    }
    Ok(replicas)
}

/// Returns the number of the first front; workers follow the fronts, and the replicas' node
/// precedes them.
fn first_front(replicas: bool, threads: usize, pool: Option<&WorkerPool>) -> Result<usize, String> {
    let first = node::HOME + 1 + usize::from(replicas);
    let workers = pool.map_or(0, |pool| pool.workers);
    if first + threads - 2 + workers > node::NODES_MAX {
        return Err(format!(
            "--threads {threads} and --storelet-threads {workers} are too many together; reduce \
             one"
        ));
    }
    Ok(first)
}

/// Starts the thread of the replicas, if there are any.
fn host(
    replicas: Vec<kept::Opened>,
    (form, settings, config): (reactor::Form, &reactor::Config, &Config),
    node: &mut Node,
    world: &mut World,
) -> Result<Option<Hosting>, String> {
    let services: Vec<String> = replicas.iter().map(|it| it.service().to_string()).collect();
    let trees = node.host(&services);
    if trees.is_empty() {
        return Ok(None);
    }
    let plan = hosting::Plan {
        form,
        settings: settings.clone(),
        config: config.clone(),
        replicas: trees.into_iter().zip(replicas).collect(),
    };
    Hosting::start(plan, world).map(Some)
}

/// Starts the other threads, and exchanges the mailboxes.
fn help(
    plan: &Plan,
    (hosting, pool): (Option<&Hosting>, Option<&WorkerPool>),
    node: &mut Node,
    world: &mut World,
) -> Result<Fronts, String> {
    let others = pool.iter().map(|pool| pool.compiler.mailbox()).collect();
    let hosts = hosting.iter().map(|hosting| hosting.mailbox()).collect();
    let (fronts, all) = Fronts::start(plan, world, (hosts, others))?;
    let mut ops = Vec::new();
    node.set_fronts(plan.numbers(), &mut ops);
    ops.into_iter().for_each(|op| world.submit(op));
    if let Some(pool) = pool {
        pool.meet(all);
    }
    Ok(fronts)
}

/// Returns the parameters of each of `threads` threads: its share of all limits.
fn share(
    serve: &Serve,
    threads: usize,
    ports: Vec<Port>,
    world: &World,
    (limits, files, web, nfs): (Limits, &files::Budget, Web, Nfs),
) -> Config {
    Config {
        read_only: serve.read_only,
        write_through: serve.write_through,
        service: !serve.no_status,
        web,
        nfs,
        owner: reactor::own_user(),
        ports,
        wall: wall_at_zero(world),
        limits,
        connections_max: files.connections.div_ceil(threads),
        bytes_max: (serve.memory_max.unwrap_or(512) << 20) / threads,
        files_max: files.files,
        sharers: threads,
        volume_cache: serve.cache.unwrap_or(CACHE_MIB).saturating_mul(1 << 20),
        storelets: None,
    }
}

/// Passes the served tree to the world; returns the description of a volume.
fn open(world: &mut World, place: TreeSource) -> Result<(Served, Option<String>), String> {
    let TreeSource { path, stat, what } = place;
    let bytes = path.as_os_str().as_encoded_bytes().to_vec();
    match what {
        What::Directory => {
            let root = world.open_root(&path).map_err(|error| {
                let shown = path.display();
                format!("cannot open {shown}: {error}; serve a directory that you may read")
            })?;
            Ok((Served::Directory { root, stat, path: bytes }, None))
        }
        What::Skeleton(paths) => Ok((Served::Skeleton { paths }, None)),
        What::Remote(to, aname) => {
            Ok((Served::Remote { to, aname: aname.into_bytes(), path: bytes }, None))
        }
        What::Volume(opened, facts) => {
            let file = world.adopt_volume(opened.disk.file);
            let (store, outputs) = (Box::new(opened.store), vec![store::Output::Opened(Ok(()))]);
            Ok((Served::Volume { file, store, outputs, path: bytes }, Some(facts.line())))
        }
    }
}

/// Begins to record, if requested, before the first client.
fn record(
    sheet: Option<Sheet>,
    node: &mut Node,
    world: &World,
) -> Result<Option<Recording>, String> {
    let Some(sheet) = sheet else { return Ok(None) };
    node.start_recording();
    Recording::begin(sheet, world.wall()).map(Some)
}

/// Passes a joined tree to the world.
fn join(world: &mut World, entry: MountEntry) -> Result<Join, String> {
    let MountEntry { what, at, order, create, source_text, .. } = entry;
    let what = match what {
        MountSource::Path(path) => Joined::Path(path),
        MountSource::Gone(text) => Joined::Gone(text),
        MountSource::TreeSource(place) => Joined::Tree(open(world, place)?.0),
    };
    Ok(Join { what, at, order, create, source_text })
}

/// Prints to standard output, which may be closed already.
fn emit(text: &dyn Display) {
    let _ = write!(io::stdout(), "{text}");
}

fn settings(serve: &Serve) -> reactor::Config {
    let defaults = reactor::Config::default();
    let spin = serve.spin.map_or(defaults.spin, Duration::from_micros);
    reactor::Config { signals: true, spin, ..defaults }
}

/// Returns the number of threads.
fn threads(serve: &Serve) -> Result<usize, String> {
    match serve.threads.unwrap_or(1) {
        count @ 1..=node::NODES_MAX => Ok(count),
        count => Err(format!("--threads {count}: use a number from 1 to {}", node::NODES_MAX)),
    }
}

fn limits(serve: &Serve) -> Result<Limits, String> {
    let limits = Limits::default();
    let msize = serve.msize.unwrap_or(limits.msize);
    if !(4096..=1 << 20).contains(&msize) {
        return Err(format!("--msize {msize}: use a size from 4096 to 1048576"));
    }
    let least = [serve.connections_max, serve.memory_max, serve.cache];
    if least.contains(&Some(0)) {
        return Err("--connections-max, --memory-max and --cache must be at least 1".to_string());
    }
    Ok(Limits { msize, ..limits })
}

/// Returns the settings of HTTP.
fn web(serve: &Serve) -> Result<Web, String> {
    for host in &serve.allow_host {
        let is_bare = host.parse::<Ipv6Addr>().is_ok()
            || !host.contains(':') && wire::http::host_name(host).is_some();
        if !is_bare {
            return Err(format!(
                "--allow-host {host}: use a host name without scheme, port or path, like \
                 files.example.com"
            ));
        }
    }
    let hosts = serve.allow_host.clone().into();
    let logs = serve.access_log.is_some();
    Ok(Web { write: serve.http_write, index: serve.index, logs, hosts })
}

/// Returns the form of the reactor, and the reason of the choice.
fn choose_form(requested: Option<Form>) -> Result<(reactor::Form, String), String> {
    match (requested, reactor::probe()) {
        (Some(Form::Threads), _) => {
            Ok((reactor::Form::Threads, "threads, as requested".to_string()))
        }
        (Some(Form::Uring), Ok(())) => {
            Ok((reactor::Form::Uring, "uring, as requested".to_string()))
        }
        (Some(Form::Uring), Err(reason)) => {
            Err(format!("io_uring cannot be used: {reason}; leave out '--reactor uring'"))
        }
        (None, Ok(())) => Ok((reactor::Form::Uring, "uring".to_string())),
        (None, Err(reason)) => Ok((
            reactor::Form::Threads,
            format!("threads, because io_uring cannot be used: {reason}"),
        )),
    }
}

/// Listens at the sockets of the service manager and at own addresses.
fn listen(
    world: &mut World,
    (sockets, own): (Sockets, &[Bound]),
    rule: &Rule,
) -> Result<(Vec<Port>, Vec<Bound>), String> {
    let mut all = Vec::new();
    for (bound, socket) in sockets {
        let listener = world
            .adopt_listener(socket)
            .map_err(|error| format!("cannot listen on {}: {error}", bound.1))?;
        all.push((listener, bound));
    }
    for (protocol, address) in own {
        let bound = patiently(|| world.listen(address));
        let (listener, at) = bound.map_err(|error| refuse_port(*protocol, address, &error))?;
        all.push((listener, (*protocol, at)));
    }
    let port = |(listener, bound): &(Listener, Bound)| {
        let local = match &bound.1 {
            Address::Tcp(address) => address.ip().to_canonical().is_loopback(),
            Address::Unix(_) => true,
        };
        let clients = rule.clients(bound);
        Port { listener: *listener, protocol: bound.0, local, clients }
    };
    let ports = all.iter().map(port).collect();
    Ok((ports, all.into_iter().map(|(_, bound)| bound).collect()))
}

fn refuse_port(protocol: Protocol, address: &Address, error: &io::Error) -> String {
    let flag = format!("--{}", service::name_of(protocol));
    let is_other_file = |path: &Path| {
        std::fs::symlink_metadata(path).is_ok_and(|meta| !meta.file_type().is_socket())
    };
    let advice = match (address, error.kind()) {
        (Address::Unix(path), io::ErrorKind::AddrInUse) if is_other_file(path) => {
            "there is a file that is no socket: remove it, or choose another path"
        }
        (Address::Unix(_), io::ErrorKind::PermissionDenied) => {
            "this user may not create files in that directory: choose another path"
        }
        (Address::Unix(_), io::ErrorKind::NotFound) => {
            "create its directory, or choose another path"
        }
        (Address::Tcp(_), io::ErrorKind::PermissionDenied) => {
            "ports below 1024 are for root: choose another address"
        }
        (Address::Tcp(_), io::ErrorKind::AddrNotAvailable) => {
            "no interface of this host has that address: choose another one"
        }
        _other => "choose another address",
    };
    format!("cannot listen on {address}: {error}; {advice}, with {flag} ADDR")
}
