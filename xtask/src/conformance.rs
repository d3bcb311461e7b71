//! `cargo xtask conformance [SUITE …] [--server uring|threads|diod] [--built] [--long] [--record]`:
//! clients that nobody here wrote, against a running server. Without a suite: all of them.
//! `--built` takes the binary as it is; `--long` lets those who kill and fail go on for
//! longer, and the kernel read all of the source tree; `--record` writes the page that `interop`
//! compares with.
//!
//! | suite | client | needs |
//! |---|---|---|
//! | `kernel` | Linux in a virtual machine, mounts by 9P and works on files | qemu, root |
//! | `pjdfstest` | the same kernel, the 398 cases of pjdfstest | qemu, root |
//! | `cancel` | the same kernel, Ctrl-C in a read that hangs | qemu, root, FUSE |
//! | `diod` | diodls, diodcat, diodload | diod |
//! | `client` | our own commands, also of diod: trees and 1 GiB out and in | diod, 3 GB of disk |
//! | `9p2000` | the client library of Plan 9 from User Space | go |
//! | `interop` | eight clients and ten servers, each with each | qemu, diod, go, python3 |
//! | `http` | curl, and raw bytes for what curl will not send | curl |
//! | `crowd` | 10,000 idle connections, 1,000 dropped a second, malformed streams | |
//! | `hostile` | programs that want to do harm, once each, beside clients that only read | curl |
//! | `names` | the same kernel, in two diods, a volume and directories as one | qemu, root, diod |
//! | `oldest` | wget and the kernel's 9P, beside the server on the oldest kernel promised | qemu |
//! | `tree` | curl reads a Linux source, 78,000 files, the kernel some | qemu, root, 4 GB of disk |
//! | `replicas` | clients of three replicas, `kill -9` of one and of all, partitions | |
//! | `volume-http` … | `http`, `9p2000`, `kernel`, `pjdfstest` over a volume | as those |
//! | `volume-tree` | the source tree in a volume, read by the kernel, copied out | as `tree` |
//! | `volume-kill` | changes over 9P and HTTP, `kill -9`, over and over | |
//! | `volume-power` | the same on a block device whose power fails | qemu |
//!
//! Missing packages are installed. `--server diod` calibrates the 9P suites against a server that
//! is known; `expected/pjdfstest.txt` lists what cannot pass by any server of this protocol.

mod cancel;
mod client;
mod crowd;
mod diod;
mod ground;
mod http;
mod interop;
mod kernel;
mod kill;
mod names;
mod oldest;
mod pjdfstest;
mod plan9;
mod power;
mod races;
mod raw;
mod replicas;
mod story;
mod tree;
mod volume_tree;

use crate::report::Report;
use crate::server::{self, Kind};
use crate::{apt, sh};
use anyhow::{Context, Result, bail};
use ground::On;

/// A suite: its name, the packages it needs, and the function that runs it.
struct Suite {
    name: &'static str,
    packages: &'static [&'static [apt::Package]],
    /// Whether the server must be root, because it acts as several users.
    root: bool,
    run: fn(&mut Report, Kind) -> Result<()>,
}

const SUITES: &[Suite] = &[
    Suite {
        name: "http",
        packages: &[apt::CURL],
        root: false,
        run: |report, kind| http::run(report, kind, On::Directory),
    },
    Suite { name: "races", packages: &[], root: false, run: races::run },
    Suite {
        name: "9p2000",
        packages: &[apt::GO],
        root: false,
        run: |report, kind| plan9::run(report, kind, On::Directory),
    },
    Suite { name: "diod", packages: &[apt::DIOD], root: false, run: diod::run },
    Suite {
        name: "interop",
        packages: &[apt::VM, apt::DIOD, apt::GO, apt::PYTHON],
        root: false,
        run: interop::run,
    },
    Suite { name: "client", packages: &[apt::DIOD], root: false, run: client::run },
    Suite {
        name: "kernel",
        packages: &[apt::VM],
        root: true,
        run: |report, kind| kernel::run(report, kind, On::Directory),
    },
    Suite {
        name: "pjdfstest",
        packages: &[apt::VM, apt::PJDFSTEST],
        root: true,
        run: |report, kind| pjdfstest::run(report, kind, On::Directory),
    },
    Suite { name: "cancel", packages: &[apt::VM, apt::CANCEL], root: true, run: cancel::run },
    Suite { name: "names", packages: &[apt::VM, apt::DIOD], root: true, run: names::run },
    Suite { name: "oldest", packages: &[apt::VM], root: false, run: oldest::run },
    Suite { name: "tree", packages: &[apt::VM, apt::CURL], root: true, run: tree::run },
    Suite { name: "hostile", packages: &[apt::CURL], root: false, run: crate::hostile::suite },
    Suite { name: "attack", packages: &[], root: false, run: crate::attack::suite },
    Suite { name: "crowd", packages: &[], root: false, run: crowd::run },
    Suite { name: "replicas", packages: &[], root: false, run: replicas::run },
    Suite {
        name: "volume-http",
        packages: &[apt::CURL],
        root: false,
        run: |report, kind| over_volume(report, kind, http::run),
    },
    Suite {
        name: "volume-9p2000",
        packages: &[apt::GO],
        root: false,
        run: |report, kind| over_volume(report, kind, plan9::run),
    },
    Suite {
        name: "volume-kernel",
        packages: &[apt::VM],
        root: true,
        run: |report, kind| over_volume(report, kind, kernel::run),
    },
    Suite {
        name: "volume-pjdfstest",
        packages: &[apt::VM, apt::PJDFSTEST],
        root: true,
        run: |report, kind| over_volume(report, kind, pjdfstest::run),
    },
    Suite { name: "volume-tree", packages: &[apt::VM], root: true, run: volume_tree::run },
    Suite { name: "volume-kill", packages: &[], root: false, run: kill::run },
    Suite { name: "volume-power", packages: &[apt::VM], root: false, run: power::run },
];

pub(crate) use interop::mount9p;
pub(crate) use power::load as power_load;
pub(crate) use raw::Raw;
pub(crate) use tree::linux;

/// Runs a suite over a volume.
fn over_volume(
    report: &mut Report,
    kind: Kind,
    run: fn(&mut Report, Kind, On) -> Result<()>,
) -> Result<()> {
    if kind == Kind::Diod {
        report.skip("over a volume", "diod has none");
        return Ok(());
    }
    run(report, kind, On::Volume)
}

/// The command. True if everything passed.
pub(crate) fn main(args: &[String]) -> Result<bool> {
    let (mut names, mut kind, mut build) = (Vec::new(), Kind::Uring, true);
    let mut report = Report::default();
    let mut words = args.iter();
    while let Some(word) = words.next() {
        if word == "--server" {
            let name = words.next().map_or("", String::as_str);
            match Kind::named(name) {
                Some(named) => kind = named,
                None => bail!("--server {name}: use uring, threads or diod"),
            }
        } else if word == "--long" {
            report.long = true;
        } else if word == "--record" {
            report.record = true;
        } else if word == "--built" {
            build = false;
        } else if SUITES.iter().any(|suite| suite.name == *word) {
            names.push(word.as_str());
        } else {
            let known: Vec<_> = SUITES.iter().map(|suite| suite.name).collect();
            bail!("no suite {word}: the suites are {}", known.join(", "));
        }
    }
    if build && kind != Kind::Diod {
        server::build()?;
    }
    run(&mut report, &names, kind)?;
    Ok(report.finish())
}

/// Runs the named suites, or all, and enters each case. The server must have been built.
pub(crate) fn run(report: &mut Report, names: &[&str], kind: Kind) -> Result<()> {
    let chosen = || SUITES.iter().filter(|s| names.is_empty() || names.contains(&s.name));
    let packages: Vec<_> = chosen().flat_map(|suite| suite.packages.iter().copied()).collect();
    apt::need(&packages)?;
    let root = rustix::process::geteuid().is_root();
    let (here, elsewhere): (Vec<_>, Vec<_>) = chosen().partition(|suite| root || !suite.root);
    for suite in here {
        let title = format!("conformance {} (server: {})", suite.name, kind.name());
        report.stage(&title, |report| (suite.run)(report, kind));
    }
    let names: Vec<_> = elsewhere.iter().map(|suite| suite.name).collect();
    if names.is_empty() { Ok(()) } else { as_root(report, &names, kind) }
}

/// Runs suites as root, in a process of their own, and adds their sum to ours.
fn as_root(report: &mut Report, names: &[&str], kind: Kind) -> Result<()> {
    let this = sh::own_path()?.display().to_string();
    let mut words = vec!["-n".to_owned(), "env".into()];
    for variable in ["PATH", "HOME", "CARGO", "CARGO_HOME", "RUSTUP_HOME", "CARGO_TARGET_DIR"] {
        if let Ok(value) = std::env::var(variable) {
            words.push(format!("{variable}={value}"));
        }
    }
    words.extend([this, "conformance".into(), "--built".into()]);
    words.extend(["--server".to_owned(), kind.name().to_owned()]);
    words.extend(report.long.then(|| "--long".to_owned()));
    words.extend(names.iter().map(|name| (*name).to_owned()));
    let mut sum = None;
    sh::stream(&mut sh::cmd("sudo", &words), |line| match summed(line) {
        Some(found) => sum = Some(found),
        None => println!("{line}"),
    })?;
    let why = "these suites need root, and `sudo -n` does not work: run this command as root";
    let (passed, failed) = sum.context(why)?;
    report.counted("conformance as root", passed, failed);
    Ok(())
}

/// The figures of a last line.
fn summed(line: &str) -> Option<(u32, u32)> {
    let (passed, rest) = line.split_once(" passed, ")?;
    Some((passed.parse().ok()?, rest.strip_suffix(" failed")?.parse().ok()?))
}

/// The flags with which our server believes the users that its clients claim.
const TRUST: &[&str] = &["--trust-clients"];

/// The path to give as `aname`: diod wants the directory, ours serves only one.
fn aname(server: &server::Server) -> String {
    server.dir.display().to_string()
}

/// A new directory to serve, on the disk that holds `target`.
fn served(name: &str) -> Result<std::path::PathBuf> {
    sh::empty(&format!("served/{name}"))
}

/// Gives everything in a directory to `nobody`: as whom a server that root runs acts for clients
/// it does not know.
fn give_away(dir: &std::path::Path) -> Result<()> {
    if rustix::process::geteuid().is_root() {
        sh::read(sh::cmd("chown", &["-hR", "65534:65534"]).arg(dir))?;
    }
    Ok(())
}
