//! `upcall serve`: opens what is needed, says how to reach it, runs the node.

use crate::config::{self, Form, HTTP_DEFAULT, NINEP_DEFAULT, Serve};
use crate::greeting::Greeting;
use crate::rule::{self, Rule};
use base::{Reactor, Stat, Time};
use node::{Config, Limits, Node, Port, Protocol};
use reactor::{Address, World};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The directory to serve.
pub(crate) struct Directory {
    pub(crate) path: PathBuf,
    pub(crate) stat: Stat,
}

/// A port that is listened on: for what, and where.
pub(crate) type Bound = (Protocol, Address);

/// Serves until a signal ends it.
pub(crate) fn run(serve: &Serve) -> Result<(), String> {
    let dir = directory(serve.dir.as_deref())?;
    let addresses = addresses(serve)?;
    let limits = limits(serve)?;
    reactor::hold_signals();
    reactor::clear_umask();
    reactor::raise_open_files();
    let (form, form_reason) = choose_form(serve.reactor)?;
    let rule = rule::choose(serve, &dir, &addresses)?;
    let defaults = reactor::Config::default();
    let spin = serve.spin.map_or(defaults.spin, Duration::from_micros);
    let settings = reactor::Config { signals: true, spin, ..defaults };
    let mut world = World::new(form, &settings)
        .map_err(|error| format!("cannot start the {form_reason} reactor: {error}"))?;
    let root = world.open_root(&dir.path).map_err(|error| {
        format!("cannot open {}: {error}; serve a directory that you may read", dir.path.display())
    })?;
    let (ports, bound) = listen(&mut world, &addresses, &rule)?;
    let mut node = Node::new(Config {
        root,
        root_stat: dir.stat.clone(),
        root_path: dir.path.as_os_str().as_encoded_bytes().to_vec(),
        read_only: serve.read_only,
        service: !serve.no_status,
        http_write: serve.http_write,
        ports,
        wall: world.wall(),
        limits,
        connections_max: serve.connections_max.unwrap_or(16_384),
        bytes_max: serve.memory_max.unwrap_or(512) << 20,
    });
    print!(
        "{}",
        Greeting { serve, dir: &dir, form: &form_reason, rule: &rule.text, bound: &bound }
    );
    node::run(&mut node, &mut world);
    println!("upcall: ended");
    Ok(())
}

fn directory(path: Option<&Path>) -> Result<Directory, String> {
    let asked = path.unwrap_or(Path::new("."));
    let refuse = |reason: &dyn std::fmt::Display| {
        format!("cannot serve {}: {reason}; name a directory that exists", asked.display())
    };
    let path = asked.canonicalize().map_err(|error| refuse(&error))?;
    let meta = path.metadata().map_err(|error| refuse(&error))?;
    if !meta.is_dir() {
        return Err(refuse(&"it is not a directory"));
    }
    let stat = Stat {
        kind: base::Kind::Directory,
        mode: meta.mode() & 0o7777,
        uid: meta.uid(),
        gid: meta.gid(),
        device: meta.dev(),
        inode: meta.ino(),
        modified: Time::from_secs(meta.mtime()),
        ..Stat::default()
    };
    Ok(Directory { path, stat })
}

fn addresses(serve: &Serve) -> Result<Vec<Bound>, String> {
    let ninep = config::addresses(&serve.ninep, NINEP_DEFAULT)?;
    let http = config::addresses(&serve.http, HTTP_DEFAULT)?;
    let ninep = ninep.into_iter().map(|address| (Protocol::NineP, address));
    let http = http.into_iter().map(|address| (Protocol::Http, address));
    let all: Vec<Bound> = ninep.chain(http).collect();
    match all.is_empty() {
        true => Err("nothing to listen on: leave out '--9p none' or '--http none'".to_string()),
        false => Ok(all),
    }
}

fn limits(serve: &Serve) -> Result<Limits, String> {
    let limits = Limits::default();
    let msize = serve.msize.unwrap_or(limits.msize);
    if !(4096..=1 << 20).contains(&msize) {
        return Err(format!("--msize {msize}: say a size from 4096 to 1048576"));
    }
    if serve.connections_max == Some(0) || serve.memory_max == Some(0) {
        return Err("--connections-max and --memory-max must be at least 1".to_string());
    }
    Ok(Limits { msize, ..limits })
}

/// The form of the reactor, and how it came to be chosen.
fn choose_form(said: Option<Form>) -> Result<(reactor::Form, String), String> {
    match (said, reactor::probe()) {
        (Some(Form::Threads), _) => Ok((reactor::Form::Threads, "threads, as asked".to_string())),
        (Some(Form::Uring), Ok(())) => Ok((reactor::Form::Uring, "uring, as asked".to_string())),
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

fn listen(
    world: &mut World,
    addresses: &[Bound],
    rule: &Rule,
) -> Result<(Vec<Port>, Vec<Bound>), String> {
    let (mut ports, mut bound) = (Vec::new(), Vec::new());
    for asked in addresses {
        let (protocol, address) = asked;
        let (listener, at) =
            world.listen(address).map_err(|error| refuse_port(*protocol, address, &error))?;
        let local = match &at {
            Address::Tcp(address) => address.ip().to_canonical().is_loopback(),
            Address::Unix(_) => true,
        };
        ports.push(Port { listener, protocol: *protocol, local, identity: rule.identity(asked) });
        bound.push((*protocol, at));
    }
    Ok((ports, bound))
}

fn refuse_port(protocol: Protocol, address: &Address, error: &io::Error) -> String {
    let flag = match protocol {
        Protocol::NineP => "--9p",
        Protocol::Http => "--http",
    };
    let advices = [
        (io::ErrorKind::AddrInUse, "somebody listens there; choose another address"),
        (io::ErrorKind::PermissionDenied, "not permitted; ports below 1024 are for root"),
        (io::ErrorKind::AddrNotAvailable, "no interface of this host has that address"),
    ];
    let known = advices.iter().find(|(kind, _)| *kind == error.kind());
    let advice = known.map_or("choose another address", |(_, advice)| advice);
    format!("cannot listen on {address} ({error}): {advice}, with {flag} ADDR")
}
