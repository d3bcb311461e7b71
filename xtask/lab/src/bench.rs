//! `cargo xtask bench [9p] [http] [store] [files] [cold] [open] [nfs] [mount] [replica]
//! [replica-memory] [--servers diod,nginx,uring,threads] [--rounds N] [--seconds S]
//! [--operations N] [--built] [--before PROGRAM] [--record]`: our server and its peers, on the same
//! machine, in the same run.
//!
//! *9p* measures against diod with a pipelined client of our own (one connection, pinned to
//! processor 1, the server to processor 0); *http* against nginx (one worker, sendfile,
//! open_file_cache, no log) with wrk. In each round every server does the same work in turn; every
//! other round reverses the order. The reported figure is the ratio within a round, as median and
//! range over the rounds, because absolute rates drift with the machine. CPU time is the server's
//! own (user and system, from /proc) divided by the number of requests served. System calls are
//! counted in a separate short run under strace, which would distort the rates.
//!
//! *store* measures the embedded library against other engines, *files* a volume against a
//! directory on ext4 behind the same server, *cold* reads of uncached data. These measure
//! throughput; *open* measures latency at given rates, for all of these parts, with the workload
//! files of `benches/load` and `upcall load`.
//!
//! *nfs* measures NFSv3 against nfs-ganesha, and unfs3 if `unfsd` is in PATH, with a client of our
//! own, in a network namespace with a portmapper; it needs root.
//!
//! *mount* measures programs on `upcall mount`, sshfs and rclone, over links of 0, 1 and 20 ms.
//!
//! *replica* measures three replicas against etcd and Redis; *replica-memory* measures their memory
//! over ten million operations (or `--operations`) and fails if it grows.
//!
//! `--before` measures *9p*, *http*, *files* and *replica* against another build of the server
//! instead of peers.
//!
//! `--record` writes the tables to `docs/performance.md`. Rows where a peer wins are kept.

mod cold;
mod figures;
mod files;
mod http;
mod mount;
mod nfs;
mod ninep;
mod open;
pub(crate) mod record;
mod replica;
mod store;
pub(crate) mod table;

use anyhow::{Context, Result, bail};
use rig::machine::{core, more_files};
use rig::server::{self, Kind, Server};
use rig::{apt, sh};
use std::path::Path;
use std::time::Duration;

/// Options of the command line.
pub(crate) struct Plan {
    servers: Vec<Kind>,
    rounds: usize,
    time: Duration,
    /// Number of operations, for benchmarks not bounded by time.
    operations: Option<u64>,
}

/// A benchmark.
struct Bench {
    name: &'static str,
    title: &'static str,
    packages: &'static [&'static [apt::Package]],
    /// Default number of rounds.
    rounds: usize,
    /// Returns the circumstances and the table.
    run: fn(&Plan) -> Result<String>,
}

const BENCHES: &[Bench] = &[
    Bench {
        name: "9p",
        title: "9P2000.L against diod",
        packages: &[apt::BENCH],
        rounds: 5,
        run: |plan| rows(plan, Kind::Diod, ninep::run),
    },
    Bench {
        name: "http",
        title: "HTTP against nginx",
        packages: &[apt::BENCH],
        rounds: 5,
        run: |plan| rows(plan, Kind::Nginx, http::run),
    },
    Bench {
        name: "store",
        title: "The embedded library against redb, fjall, SQLite and RocksDB",
        packages: &[apt::BENCH_STORE],
        rounds: 3,
        run: store::run,
    },
    Bench {
        name: "files",
        title: "Files in a volume against files on ext4",
        packages: &[],
        rounds: 3,
        run: files::run,
    },
    Bench {
        name: "cold",
        title: "Cold random reads against nginx and diod",
        packages: &[apt::BENCH],
        rounds: 3,
        run: cold::run,
    },
    Bench {
        name: "open",
        title: "Response times at given rates",
        packages: &[apt::BENCH],
        rounds: 3,
        run: open::run,
    },
    Bench {
        name: "nfs",
        title: "NFSv3 against nfs-ganesha and unfs3",
        packages: &[apt::BENCH_NFS, apt::NET],
        rounds: 5,
        run: nfs::run,
    },
    Bench {
        name: "mount",
        title: "Mounts over links with a delay, against sshfs, rclone and diod",
        packages: &[apt::BENCH, apt::BENCH_MOUNT],
        rounds: 3,
        run: mount::run,
    },
    Bench {
        name: "replica",
        title: "Replicas against etcd and Redis",
        packages: &[apt::GO, apt::BENCH_REPLICA],
        rounds: 5,
        run: replica::run,
    },
    Bench {
        name: "replica-memory",
        title: "Memory of replicas over many operations",
        packages: &[],
        rounds: 1,
        run: replica::run_memory,
    },
];

/// Figures of one server for one kind of work in one round.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sample {
    /// Requests per second.
    pub(crate) rate: f64,
    /// CPU time of the server per request, microseconds.
    pub(crate) cpu_us: f64,
}

/// All results of one kind of work.
pub(crate) struct Row {
    pub(crate) work: String,
    /// One sample a round for each server.
    pub(crate) samples: Vec<(Kind, Vec<Sample>)>,
    /// System calls per request for each server.
    pub(crate) calls: Vec<(Kind, Option<f64>)>,
}

/// Runs the command.
pub(crate) fn main(args: &[String]) -> Result<()> {
    server::expect_measured()?;
    let (mut names, mut record, mut build, mut rounds) = (Vec::new(), false, true, None);
    let time = Duration::from_secs(2);
    let mut plan = Plan { servers: Vec::new(), rounds: 0, time, operations: None };
    let mut words = args.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().with_context(|| format!("{word} needs a value"));
        match word.as_str() {
            name if BENCHES.iter().any(|bench| bench.name == name) => names.push(name),
            "--record" => record = true,
            "--built" => build = false,
            "--rounds" => rounds = Some(value()?.parse()?),
            "--seconds" => plan.time = Duration::from_secs_f64(value()?.parse()?),
            "--operations" => plan.operations = Some(value()?.parse()?),
            "--before" => {
                let path = Path::new(value()?);
                server::set_before(path.canonicalize().context("--before: no such program")?);
                plan.servers = vec![Kind::Before, Kind::Uring];
            }
            "--servers" => {
                let list =
                    value()?.split(',').map(|name| Kind::named(name).context("no such server"));
                plan.servers = list.collect::<Result<_>>()?;
            }
            _ => {
                let known: Vec<_> = BENCHES.iter().map(|bench| bench.name).collect();
                bail!("no benchmark {word}: there are {}", known.join(", "));
            }
        }
    }
    if plan.servers.is_empty() {
        plan.servers = vec![Kind::Diod, Kind::Nginx, Kind::Uring, Kind::Threads];
    }
    let chosen = || BENCHES.iter().filter(|b| names.is_empty() || names.contains(&b.name));
    let packages: Vec<_> = chosen().flat_map(|bench| bench.packages.iter().copied()).collect();
    apt::need(&packages)?;
    if build && plan.servers.iter().any(|kind| matches!(kind, Kind::Uring | Kind::Threads)) {
        server::build()?;
    }
    more_files();
    for bench in chosen() {
        plan.rounds = rounds.unwrap_or(bench.rounds);
        let text = (bench.run)(&plan)?;
        println!("\n## {}\n\n{text}", bench.title);
        if record {
            record::record(bench.name, bench.title, &text)?;
        }
    }
    Ok(())
}

/// Returns a table of rates and costs against one peer or another build of our server.
fn rows(plan: &Plan, peer: Kind, run: fn(&Plan) -> Result<Vec<Row>>) -> Result<String> {
    let peer = if plan.servers.contains(&Kind::Before) { Kind::Before } else { peer };
    let rows = run(plan)?;
    Ok(format!("{}\n{}", record::circumstances(plan), table::markdown(&rows, peer)))
}

/// Starts the selected servers of one protocol, each pinned to processor 0.
fn start(plan: &Plan, peer: Kind, dir: &Path, extra: &[&str]) -> Result<Vec<(Kind, Server)>> {
    let other = if peer == Kind::Diod { Kind::Nginx } else { Kind::Diod };
    let kinds = plan.servers.iter().copied().filter(|kind| *kind != other);
    kinds.map(|kind| Ok((kind, Server::start_on(kind, dir, extra, core(0))?))).collect()
}

/// Runs one kind of work on every server in turn, `rounds` times, and counts system calls.
fn measure(
    plan: &Plan,
    work: &str,
    servers: &[(Kind, Server)],
    mut run: impl FnMut(&Server, Duration) -> Result<u64>,
) -> Result<Row> {
    eprintln!("   {work}");
    let mut samples: Vec<_> = servers.iter().map(|(kind, _)| (*kind, Vec::new())).collect();
    let mut order: Vec<usize> = (0..servers.len()).collect();
    for _ in 0..plan.rounds {
        for at in &order {
            let (kind, server) = &servers[*at];
            let taken = sample(server, || run(server, plan.time)).with_context(|| {
                format!("{work} on {}: {}", kind.name(), sh::tail(&server.printed(), 300))
            })?;
            samples[*at].1.push(taken);
        }
        order.reverse();
    }
    let mut calls = Vec::new();
    for (kind, server) in servers {
        let counted = count_calls(server, |time| run(server, time));
        calls.push((*kind, counted.inspect_err(|error| eprintln!("   {error:#}")).ok()));
    }
    Ok(Row { work: work.to_owned(), samples, calls })
}

/// Runs work that returns its number of requests; returns the rate and the server's cost.
fn sample(server: &Server, run: impl FnOnce() -> Result<u64>) -> Result<Sample> {
    let before = server.cpu_ticks();
    let start = std::time::Instant::now();
    let requests = run()?;
    let seconds = start.elapsed().as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "counts of seconds of work")]
    let (requests, ticks) = (requests as f64, (server.cpu_ticks() - before) as f64);
    Ok(Sample { rate: requests / seconds, cpu_us: ticks * 10_000.0 / requests })
}

/// Returns the system calls per request, counted by strace over half a second.
fn count_calls(server: &Server, run: impl FnOnce(Duration) -> Result<u64>) -> Result<f64> {
    let pid = server.worker();
    let file = sh::scratch("logs")?.join("strace");
    let mut strace = sh::cmd("strace", &["-c", "-f", "-q", "-o"]);
    strace.arg(&file).arg("-p").arg(pid.to_string()).stderr(std::process::Stdio::null());
    let mut tracer = strace.spawn().context("start strace")?;
    let traced = || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        !status.contains("TracerPid:\t0")
    };
    for _ in 0..200 {
        if traced() {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(Duration::from_millis(200));
    let requests = run(Duration::from_millis(500));
    let id = rustix::process::Pid::from_child(&tracer);
    let _ = rustix::process::kill_process(id, rustix::process::Signal::INT);
    tracer.wait()?;
    let text = std::fs::read_to_string(&file)?;
    let total = text.lines().find(|line| line.ends_with(" total")).context("strace has no sum")?;
    // The columns are % time, seconds, usecs/call, calls, errors (may be empty), syscall.
    let calls: f64 = total.split_whitespace().nth(3).context("strace's columns")?.parse()?;
    #[expect(clippy::cast_precision_loss, reason = "counts of half a second")]
    let requests = requests? as f64;
    Ok(calls / requests)
}

/// Waits until the disk is idle: a file system that discards deleted blocks continues to do so for
/// a while, and flushes are slow meanwhile.
fn settle() -> Result<()> {
    sh::read(&mut sh::cmd::<&str>("sync", &[]))?;
    std::thread::sleep(Duration::from_secs(4));
    Ok(())
}
