//! `cargo xtask conformance [SUITE …] [--server uring|threads|diod]`: clients that nobody here
//! wrote, against a running server. Without a suite: all of them.
//!
//! | suite | client | needs |
//! |---|---|---|
//! | `kernel` | Linux in a virtual machine, mounts by 9P and works on files | qemu, root |
//! | `pjdfstest` | the same kernel, the 398 cases of pjdfstest | qemu, root |
//! | `cancel` | the same kernel, Ctrl-C in a read that hangs | qemu, root, FUSE |
//! | `diod` | diodls, diodcat, diodload | diod |
//! | `9p2000` | the client library of Plan 9 from User Space | go |
//! | `http` | curl, and raw bytes for what curl will not send | curl |
//! | `tree` | kernel and curl read a Linux source tree of 78,000 files | qemu, root, 4 GB of disk |
//!
//! Missing packages are installed. `--server diod` calibrates the 9P suites against a server that
//! is known; `expected/pjdfstest.txt` lists what cannot pass by any server of this protocol.

mod cancel;
mod diod;
mod http;
mod kernel;
mod pjdfstest;
mod plan9;
mod raw;
mod tree;

use crate::report::Report;
use crate::server::{self, Kind};
use crate::{apt, sh};
use anyhow::{Result, bail};

/// A suite: its name, the packages it needs, and the function that runs it.
struct Suite {
    name: &'static str,
    packages: &'static [&'static [apt::Package]],
    run: fn(&mut Report, Kind) -> Result<()>,
}

const SUITES: &[Suite] = &[
    Suite { name: "http", packages: &[apt::CURL], run: http::run },
    Suite { name: "9p2000", packages: &[apt::GO], run: plan9::run },
    Suite { name: "diod", packages: &[apt::DIOD], run: diod::run },
    Suite { name: "kernel", packages: &[apt::VM], run: kernel::run },
    Suite { name: "pjdfstest", packages: &[apt::VM, apt::PJDFSTEST], run: pjdfstest::run },
    Suite { name: "cancel", packages: &[apt::VM, apt::CANCEL], run: cancel::run },
    Suite { name: "tree", packages: &[apt::VM, apt::CURL], run: tree::run },
];

/// The command. True if everything passed.
pub(crate) fn main(args: &[String]) -> Result<bool> {
    let (mut names, mut kind) = (Vec::new(), Kind::Uring);
    let mut words = args.iter();
    while let Some(word) = words.next() {
        if word == "--server" {
            let name = words.next().map_or("", String::as_str);
            match Kind::named(name) {
                Some(named) => kind = named,
                None => bail!("--server {name}: use uring, threads or diod"),
            }
        } else if SUITES.iter().any(|suite| suite.name == *word) {
            names.push(word.as_str());
        } else {
            let known: Vec<_> = SUITES.iter().map(|suite| suite.name).collect();
            bail!("no suite {word}: the suites are {}", known.join(", "));
        }
    }
    let mut report = Report::default();
    run(&mut report, &names, kind)?;
    Ok(report.finish())
}

/// Runs the named suites, or all, and enters each case.
pub(crate) fn run(report: &mut Report, names: &[&str], kind: Kind) -> Result<()> {
    let chosen = || SUITES.iter().filter(|s| names.is_empty() || names.contains(&s.name));
    let packages: Vec<_> = chosen().flat_map(|suite| suite.packages.iter().copied()).collect();
    apt::need(&packages)?;
    if kind != Kind::Diod {
        server::build()?;
    }
    for suite in chosen() {
        let title = format!("conformance {} (server: {})", suite.name, kind.name());
        report.stage(&title, |report| (suite.run)(report, kind));
    }
    Ok(())
}

/// The flags with which our server believes the users that its clients claim.
const TRUST: &[&str] = &["--trust-clients"];

/// The suites with a kernel client act as several users: the server must be root for that.
fn need_root() -> Result<()> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    bail!("this suite acts as several users, so the server must run as root: try with sudo")
}

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
