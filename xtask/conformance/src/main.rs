//! `cargo xtask conformance [SUITE …] [--server uring|threads|diod] [--built] [--long]
//! [--record]`: third-party clients against a running server. Without a suite: all of them, but
//! those that take minutes (`tree`, `volume-tree`, and some that run over a volume or a directory
//! already) only with `--long`. `--built` skips the build; `--long` makes crash and failure suites
//! longer and lets the kernel read all of the source tree; `--record` writes the page that
//! `interop` compares with.
//!
//! | suite | client | needs |
//! |---|---|---|
//! | `kernel` | Linux in a virtual machine, mounts by 9P and works on files | qemu, root |
//! | `pjdfstest` | the same kernel, the 398 cases of pjdfstest | qemu, root |
//! | `mount` | `upcall mount` on this kernel: programs, two mounts, stops and restarts | root |
//! | `mount-pjdfstest` | pjdfstest over that mount | root |
//! | `mount-exercise` | fsx and stress-ng on that mount | root |
//! | `mount-kill` | writers on that mount while the server is killed, over and over | root |
//! | `nfs-kernel` | Linux, mounts by NFS | qemu, root |
//! | `nfs-pjdfstest` | the same with pjdfstest | qemu, root |
//! | `nfs-restart` | the same while the server is killed and started again | qemu, root |
//! | `portmapper` | rpcinfo, libnfs: NFS without port numbers, in namespaces | root |
//! | `cancel` | the same kernel, Ctrl-C in a hanging read | qemu, root, FUSE |
//! | `diod` | diodls, diodcat, diodload | diod |
//! | `client` | our own commands, also of diod: trees and 256 MiB out and in | diod, 1 GB of disk |
//! | `9p2000` | the client library of Plan 9 from User Space | go |
//! | `interop` | eight clients and ten servers, each with each | qemu, diod, go, python3 |
//! | `http` | curl, and raw bytes for requests that curl will not send | curl |
//! | `browser` | Chromium on the page of a directory | root |
//! | `webdav` | litmus, cadaver, rclone, davfs2, on a directory and a volume | root, FUSE |
//! | `firsthour` | a shell: the command blocks of README and docs, as they stand | root, curl |
//! | `operators` | nginx and Caddy in front, promtool, rclone, the access log | curl |
//! | `packages` | dpkg, systemd's tools, curl: each package installed and started | root |
//! | `appends` | our own: concurrent appends, writes and truncations of one file | |
//! | `crowd` | 10,000 idle connections, 1,000 dropped a second, malformed streams | |
//! | `hostile` | malicious storelets, once each, beside clients that only read | curl |
//! | `names` | the same kernel, in two diods, a volume and directories as one | qemu, root, diod |
//! | `oldest` | wget and the kernel's 9P, beside the server on the oldest kernel promised | qemu |
//! | `tree` | curl reads a Linux source, 78,000 files, the kernel some | qemu, root, 4 GB of disk |
//! | `replicas` | clients of three replicas, `kill -9` of one and of all, partitions | |
//! | `volume-http` … | `http`, `9p2000`, `kernel`, `pjdfstest`, `mount`, … on a volume | as those |
//! | `volume-tree` | the source tree in a volume, read by the kernel, copied out | as `tree` |
//! | `volume-kill` | changes over 9P and HTTP, `kill -9`, over and over | |
//! | `volume-power` | the same on a block device whose power fails | qemu |
//!
//! Missing packages are installed. `--server diod` calibrates the 9P suites against a known server;
//! `expected/pjdfstest.txt` lists the cases that no server of this protocol can pass.

mod appends;
mod attack;
mod browser;
mod cancel;
mod client;
mod crowd;
mod diod;
mod firsthour;
mod fuse;
mod ground;
mod hostile;
mod http;
mod interop;
mod kernel;
mod kill;
mod names;
mod oldest;
mod operators;
mod packages;
mod pjdfstest;
mod plan9;
mod portmapper;
mod power;
mod races;
mod raw;
mod replicas;
mod restart;
mod story;
mod test;
mod tree;
mod volume_tree;
mod webdav;

use anyhow::{Context, Result, anyhow, bail};
use ground::{On, Through};
use rig::lanes::{self, Part};
use rig::report::Report;
use rig::server::{self, Kind};
use rig::{apt, sh};
use std::process::{Command, ExitCode};

/// A suite: its name, the packages it needs, and the function that runs it.
struct Suite {
    name: &'static str,
    packages: &'static [&'static [apt::Package]],
    /// Whether the server must be root, to act as several users.
    root: bool,
    /// Whether it measures, so that it must run alone.
    alone: bool,
    /// Whether it takes minutes and is skipped without `--long`, unless named.
    long: bool,
    run: Run,
}

type Run = fn(&mut Report, Kind) -> Result<()>;

const fn suite(name: &'static str, packages: &'static [&[apt::Package]], run: Run) -> Suite {
    Suite { name, packages, root: false, alone: false, long: false, run }
}

impl Suite {
    const fn privileged(self) -> Suite {
        Suite { root: true, ..self }
    }

    const fn alone(self) -> Suite {
        Suite { alone: true, ..self }
    }

    const fn long(self) -> Suite {
        Suite { long: true, ..self }
    }
}

/// All suites, longest first, so that concurrent suites end at about the same time.
const SUITES: &[Suite] = &[
    suite("kernel", &[apt::VM], |report, kind| {
        kernel::run(report, kind, On::Directory, Through::NineP)
    })
    .privileged(),
    suite("volume-kernel", &[apt::VM], |report, kind| {
        ours(report, kind, |report, kind| kernel::run(report, kind, On::Volume, Through::NineP))
    })
    .privileged(),
    suite("nfs-kernel", &[apt::VM], |report, kind| {
        ours(report, kind, |report, kind| kernel::run(report, kind, On::Directory, Through::Nfs))
    })
    .privileged(),
    suite("volume-nfs-kernel", &[apt::VM], |report, kind| {
        ours(report, kind, |report, kind| kernel::run(report, kind, On::Volume, Through::Nfs))
    })
    .privileged()
    .long(),
    suite("tree", &[apt::VM, apt::CURL], tree::run).privileged().long(),
    suite("volume-tree", &[apt::VM], volume_tree::run).privileged().long(),
    suite("pjdfstest", &[apt::VM, apt::PJDFSTEST], |report, kind| {
        pjdfstest::run(report, kind, On::Directory, Through::NineP)
    })
    .privileged()
    .long(),
    suite("volume-pjdfstest", &[apt::VM, apt::PJDFSTEST], |report, kind| {
        ours(report, kind, |report, kind| pjdfstest::run(report, kind, On::Volume, Through::NineP))
    })
    .privileged(),
    suite("nfs-pjdfstest", &[apt::VM, apt::PJDFSTEST], |report, kind| {
        ours(report, kind, |report, kind| pjdfstest::run(report, kind, On::Directory, Through::Nfs))
    })
    .privileged()
    .long(),
    suite("volume-nfs-pjdfstest", &[apt::VM, apt::PJDFSTEST], |report, kind| {
        ours(report, kind, |report, kind| pjdfstest::run(report, kind, On::Volume, Through::Nfs))
    })
    .privileged()
    .long(),
    suite("mount-pjdfstest", &[apt::PJDFSTEST], |report, kind| {
        fuse::run_pjdfstest(report, kind, On::Directory)
    })
    .privileged(),
    suite("volume-mount-pjdfstest", &[apt::PJDFSTEST], |report, kind| {
        ours(report, kind, |report, kind| fuse::run_pjdfstest(report, kind, On::Volume))
    })
    .privileged(),
    suite("mount", &[apt::MOUNT], |report, kind| {
        ours(report, kind, |report, kind| fuse::run(report, kind, On::Directory))
    })
    .privileged(),
    suite("volume-mount", &[apt::MOUNT], |report, kind| {
        ours(report, kind, |report, kind| fuse::run(report, kind, On::Volume))
    })
    .privileged(),
    suite("mount-exercise", &[apt::MOUNT, apt::EXERCISE], |report, kind| {
        ours(report, kind, |report, kind| fuse::run_exercise(report, kind, On::Directory))
    })
    .privileged()
    .long(),
    suite("volume-mount-exercise", &[apt::MOUNT, apt::EXERCISE], |report, kind| {
        ours(report, kind, |report, kind| fuse::run_exercise(report, kind, On::Volume))
    })
    .privileged()
    .long(),
    suite("mount-kill", &[apt::MOUNT], |report, kind| {
        ours(report, kind, |report, kind| fuse::run_kills(report, kind, On::Directory))
    })
    .privileged()
    .long(),
    suite("volume-mount-kill", &[apt::MOUNT], |report, kind| {
        ours(report, kind, |report, kind| fuse::run_kills(report, kind, On::Volume))
    })
    .privileged(),
    suite("firsthour", &[apt::CURL, apt::NET], firsthour::run).privileged(),
    suite("packages", &[apt::MUSL, apt::ROOTFS, apt::CURL, apt::NET], packages::run).privileged(),
    suite("interop", &[apt::VM, apt::DIOD, apt::GO, apt::PYTHON], interop::run),
    suite("volume-power", &[apt::VM], power::run),
    suite("client", &[apt::DIOD], client::run),
    suite("names", &[apt::VM, apt::DIOD], names::run).privileged(),
    suite("volume-kill", &[], kill::run),
    suite("races", &[], races::run),
    suite("appends", &[], appends::run),
    suite("nfs-restart", &[apt::VM], |report, kind| {
        ours(report, kind, |report, kind| restart::run(report, kind, On::Directory))
    })
    .privileged()
    .long(),
    suite("volume-nfs-restart", &[apt::VM], |report, kind| {
        ours(report, kind, |report, kind| restart::run(report, kind, On::Volume))
    })
    .privileged(),
    suite("portmapper", &[apt::PORTMAPPER, apt::NET], |report, kind| {
        ours(report, kind, portmapper::run)
    })
    .privileged(),
    suite("oldest", &[apt::VM], oldest::run),
    suite("cancel", &[apt::VM, apt::CANCEL], cancel::run).privileged(),
    suite("9p2000", &[apt::GO], |report, kind| plan9::run(report, kind, On::Directory)),
    suite("volume-9p2000", &[apt::GO], |report, kind| {
        ours(report, kind, |report, kind| plan9::run(report, kind, On::Volume))
    }),
    suite("http", &[apt::CURL], |report, kind| http::run(report, kind, On::Directory)),
    suite("volume-http", &[apt::CURL], |report, kind| {
        ours(report, kind, |report, kind| http::run(report, kind, On::Volume))
    }),
    suite("operators", &[apt::CURL, apt::PROXY], operators::run),
    suite("webdav", &[apt::WEBDAV], webdav::run).privileged(),
    suite("browser", &[apt::BROWSER], browser::run).privileged(),
    suite("diod", &[apt::DIOD], diod::run),
    suite("hostile", &[apt::CURL], hostile::suite).alone(),
    suite("attack", &[], attack::suite).alone(),
    suite("crowd", &[], crowd::run).alone(),
    suite("replicas", &[], replicas::run).alone(),
];

pub(crate) use raw::Raw;

/// Runs a suite about what only our own server has: volumes and NFS.
fn ours(report: &mut Report, kind: Kind, run: Run) -> Result<()> {
    if kind == Kind::Diod {
        report.skip("over a volume or by NFS", "diod has neither");
        return Ok(());
    }
    run(report, kind)
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (word, rest) =
        args.split_first().map_or(("", &[][..]), |(word, rest)| (word.as_str(), rest));
    rig::report::exit(match word {
        "conformance" => suites(rest),
        "attack" => attack::main(rest),
        "hostile" => hostile::main(rest),
        "test" => test::main(rest),
        // Clients of an attack.
        attack::healthy::WORD => attack::healthy::main(rest).map(|()| true),
        // Inside the namespaces of that suite.
        firsthour::WORD => firsthour::inside(rest).map(|()| true),
        // In the virtual machine of the suite `volume-power`.
        "power-load" => power::load(rest).map(|()| true),
        _ => Err(anyhow!("use `cargo xtask conformance`, `attack`, `hostile` or `test`")),
    })
}

/// Runs the command. Returns whether everything passed.
fn suites(args: &[String]) -> Result<bool> {
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

/// Runs the named suites and reports each case: a single suite in this process, several
/// concurrently. The server must already be built.
fn run(report: &mut Report, names: &[&str], kind: Kind) -> Result<()> {
    let mut parts = parts(report, names, kind)?;
    let root = rustix::process::geteuid().is_root();
    let chosen: Vec<_> = SUITES.iter().filter(|suite| names.contains(&suite.name)).collect();
    if let &[suite] = &chosen[..]
        && (root || !suite.root)
    {
        let title = parts.remove(0).title;
        report.stage(&title, |report| (suite.run)(report, kind));
    } else {
        lanes::run(report, parts);
    }
    Ok(())
}

/// Returns the named suites, or all, each as a process of its own. Installs their packages.
pub(crate) fn parts(report: &mut Report, names: &[&str], kind: Kind) -> Result<Vec<Part>> {
    let long = report.long;
    let (all, named) = (names.is_empty(), |suite: &Suite| names.contains(&suite.name));
    let chosen = || SUITES.iter().filter(|s| named(s) || all && (long || !s.long));
    for suite in SUITES.iter().filter(|suite| all && suite.long && !long) {
        report.skip(suite.name, "only with --long");
    }
    let packages: Vec<_> = chosen().flat_map(|suite| suite.packages.iter().copied()).collect();
    apt::need(&packages)?;
    let report = &*report;
    let mode = if long { " --long" } else { "" };
    let part = |suite: &Suite| {
        Ok(Part {
            title: format!("conformance {}{} (server: {})", suite.name, mode, kind.name()),
            command: command(report, suite, kind)?,
            uses: suite.name.to_owned(),
            alone: suite.alone,
            sum: summed,
        })
    };
    chosen().map(part).collect()
}

/// Returns the command that runs a suite, as root if required.
fn command(report: &Report, suite: &Suite, kind: Kind) -> Result<Command> {
    let this = sh::own_path()?.display().to_string();
    let mut words = vec![this, "conformance".to_owned(), suite.name.to_owned()];
    words.extend(["--built", "--server", kind.name()].map(str::to_owned));
    words.extend(report.long.then(|| "--long".to_owned()));
    words.extend(report.record.then(|| "--record".to_owned()));
    if !suite.root || rustix::process::geteuid().is_root() {
        return Ok(sh::cmd(&words[0], &words[1..]));
    }
    let sudo = sh::read(&mut sh::cmd("sudo", &["-n", "true"]));
    sudo.context("these suites need root, and `sudo -n` does not work: run this command as root")?;
    let mut as_root = vec!["-n".to_owned(), "env".into()];
    for variable in ["PATH", "HOME", "CARGO", "CARGO_HOME", "RUSTUP_HOME", "CARGO_TARGET_DIR"] {
        if let Ok(value) = std::env::var(variable) {
            as_root.push(format!("{variable}={value}"));
        }
    }
    as_root.extend(words);
    Ok(sh::cmd("sudo", &as_root))
}

/// Parses the totals of a last line.
fn summed(line: &str) -> Option<(u32, u32)> {
    let (passed, rest) = line.split_once(" passed, ")?;
    Some((passed.parse().ok()?, rest.strip_suffix(" failed")?.parse().ok()?))
}

/// Flags that make our server trust the user names of its clients.
const TRUST: &[&str] = &["--trust-clients"];

/// Returns the `aname` to attach with: diod requires the directory's path, ours serves only one.
fn aname(server: &server::Server) -> String {
    server.dir.display().to_string()
}

/// Creates a directory to serve, on the disk of `target`.
fn served(name: &str) -> Result<std::path::PathBuf> {
    sh::empty(&format!("served/{name}"))
}

/// Changes the owner of everything in a directory to `nobody`, the user of unknown clients at a
/// server run by root.
fn give_away(dir: &std::path::Path) -> Result<()> {
    if rustix::process::geteuid().is_root() {
        sh::read(sh::cmd("chown", &["-hR", "65534:65534"]).arg(dir))?;
    }
    Ok(())
}
