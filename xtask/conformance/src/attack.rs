//! `cargo xtask attack [KIND] [--attackers N] [--seconds S] [--server NAME] [--record]`:
//! denial-of-service attacks, with a healthy client measured at the same time.
//!
//! Each kind of attack has a server of its own with `--memory-max 64`, which serves a directory, or
//! also a volume and another server. One healthy client reads a
//! file over 9P and another gets it over HTTP, each on a kept connection. New clients connect and
//! get it as well; their times are in columns of their own, because they wait in the kernel's
//! accept queue behind attackers that connect. The healthy clients are measured alone, then during
//! the attack, then, while the attack continues, as clients of a second server that is not
//! attacked: its times are those of the machine under this load. The table shows the response times
//! and the maximum resident memory of the attacked server. Attackers run at idle priority, as if
//! they were on machines of their own. The healthy clients are a separate process.
//!
//! A row is within the limits if the 99th percentile of the healthy client is below three times
//! that of the same client alone, no request waited for more than 100 ms, and memory stayed within
//! `--memory-max` plus the documented amounts for connections, the process, services and storelets.
//! If the percentile is below three times only that at the second server, the verdict is `machine`.
//! As a suite of `conformance` it is shorter and judges only memory, correct replies and the
//! absence of hangs: response times of a machine with builds in progress are meaningless.
//!
//! `--record` writes the table into `docs/robustness.md`.

#[path = "../../../crates/reactor/tests/rig/fuse.rs"]
#[allow(clippy::unwrap_used, dead_code, reason = "a file system of tests")]
mod fuse;
pub(crate) mod healthy;
mod kind;
mod kinds;
mod nfs;
mod programs;
mod spaces;
mod subtrees;
mod watches;
mod webdav;

use anyhow::{Context, Result, bail, ensure};
use healthy::Times;
use kind::Kind;
use rig::report::Report;
use rig::server::{self, Kind as Program, Server};
use rig::sh;
use std::cell::Cell;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Memory for requests and responses of all connections, MiB.
const MEMORY_MAX: u64 = 64;

/// Memory of the process without clients, KiB, and of a connection beyond the limit.
const PROCESS_KIB: u64 = 96 << 10;
const CONNECTION_KIB: u64 = 128;

/// Maximum ratio of response times.
const RATIO_MAX: f64 = 3.0;
const STALL_MAX: Duration = Duration::from_millis(100);

/// Timeout of a healthy client's request, after which the suite gives up.
const HANG: Duration = Duration::from_secs(60);

/// Time after which attackers that have not begun never will: they run when nothing else does.
const BEGIN_MAX: Duration = Duration::from_secs(300);

/// Entries of a large directory, and bytes of a large sparse file.
const ENTRIES: usize = 20_000;
const LARGE: u64 = 1 << 30;

/// Nested directories beneath `deep`; a multiple of 16.
const DEEP: usize = 992;

/// A server under attack.
pub(crate) struct Target {
    ninep: u16,
    http: u16,
    nfs: u16,
    /// Whether the attacks are over.
    over: AtomicBool,
    /// Attackers whose attack has begun or was refused.
    armed: AtomicUsize,
    /// Attempts not refused by the server.
    effects: AtomicUsize,
}

/// Size of a run.
#[derive(Clone, Copy)]
struct Extent {
    attackers: usize,
    time: Duration,
}

/// Runs the command. Returns whether all rows are within the limits.
pub(crate) fn main(args: &[String]) -> Result<bool> {
    server::expect_measured()?;
    let mut extent = Extent { attackers: 100, time: Duration::from_secs(10) };
    let (mut names, mut program, mut record) = (Vec::new(), Program::Uring, false);
    let mut words = args.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().map_or("", String::as_str);
        match word.as_str() {
            "--attackers" => extent.attackers = value().parse().context("--attackers N")?,
            "--seconds" => extent.time = Duration::from_secs(value().parse().context("--seconds")?),
            "--server" => program = Program::named(value()).context("--server uring|threads")?,
            "--record" => record = true,
            name if kinds::all().any(|kind| kind.name == name) => names.push(name),
            other => bail!("no attack {other}; there are: {}", names_of_all()),
        }
    }
    ensure!(extent.attackers > 0, "--attackers: at least 1");
    ensure!(matches!(program, Program::Uring | Program::Threads), "only our own server");
    rig::machine::more_files();
    server::build()?;
    let ground = Ground::new(program, true)?;
    let mut rows = vec![HEAD.to_string()];
    println!("{HEAD}");
    let mut all = true;
    for kind in kinds::all().filter(|kind| names.is_empty() || names.contains(&kind.name)) {
        if kind.mounts && !rustix::process::geteuid().is_root() {
            println!("| {} | not run: only root may mount |", kind.name);
            continue;
        }
        let row = ground.run(kind, extent)?;
        all &= matches!(row.verdict().as_str(), "within" | "machine");
        println!("{}", row.text(kind));
        rows.push(row.text(kind));
    }
    if record {
        publish(&rows, extent)?;
    }
    Ok(all)
}

fn names_of_all() -> String {
    kinds::all().map(|kind| kind.name).collect::<Vec<_>>().join(", ")
}

/// Runs the suite: all kinds, briefly.
pub(crate) fn suite(report: &mut Report, program: Program) -> Result<()> {
    if matches!(program, Program::Diod | Program::Nginx) {
        report.skip("attack", "only our own server has these limits");
        return Ok(());
    }
    rig::machine::more_files();
    let ground = Ground::new(program, false)?;
    let extent = Extent { attackers: 50, time: Duration::from_millis(1000) };
    for kind in kinds::all() {
        let name = format!("attack/{}", kind.name);
        if kind.mounts && !rustix::process::geteuid().is_root() {
            report.skip(&name, "only root may mount");
            continue;
        }
        report.case(&name, || {
            let row = ground.run(kind, extent)?;
            ensure!(row.memory <= row.memory_max, "{} KiB, {} allowed", row.memory, row.memory_max);
            Ok(row.summary())
        });
    }
    Ok(())
}

/// Served files.
struct Ground {
    dir: PathBuf,
    program: Program,
    ports: (u16, u16),
    nfs: u16,
    replica: PathBuf,
    /// Names file of a server with a volume that mounts another server, and that server.
    space: PathBuf,
    _far: Server,
    /// A server of one file that is not attacked.
    control: Option<Server>,
}

impl Ground {
    fn new(program: Program, has_control: bool) -> Result<Ground> {
        let base = sh::empty("attack")?;
        let quiet = base.join("quiet");
        std::fs::create_dir(&quiet)?;
        std::fs::write(quiet.join("small"), vec![7; healthy::SIZE])?;
        let control = has_control.then(|| Server::start(program, &quiet, &[])).transpose()?;
        let dir = base.join("served");
        std::fs::create_dir_all(dir.join("many"))?;
        std::fs::create_dir_all(dir.join("deep").join("d/".repeat(DEEP)))?;
        std::fs::create_dir_all(dir.join("hung"))?;
        std::fs::write(dir.join("small"), vec![7; healthy::SIZE])?;
        std::fs::File::create(dir.join("large"))?.set_len(LARGE)?;
        std::fs::write(dir.join("locked"), "")?;
        for number in 0..ENTRIES {
            std::fs::write(dir.join("many").join(format!("entry-{number:06}-with-a-name")), "")?;
        }
        chain(&dir.join("links"))?;
        let (ports, nfs) = ((server::free_port()?, server::free_port()?), server::free_port()?);
        let far = Server::start(program, &quiet, &[])?;
        let space = spaces::names_file(&base, &dir, far.ninep)?;
        let mut init = Command::new(server::binary());
        init.args(["replica", "init", "sheet", "--type", "sheet", "--size", "1G", "--members"]);
        sh::read(init.arg(format!("127.0.0.1:{}", ports.0)).arg("--dir").arg(&base))?;
        let replica = base.join("sheet.1.replica");
        Ok(Ground { replica, dir, program, ports, nfs, space, _far: far, control })
    }

    fn serve(&self, kind: &Kind) -> Result<Server> {
        let (memory, replica) = (MEMORY_MAX.to_string(), self.replica.display().to_string());
        // The files belong to the user of this process.
        let uid = rustix::process::geteuid().as_raw().to_string();
        let nfs = format!("127.0.0.1:{}", self.nfs);
        let mut extra = vec!["--memory-max", &memory, "--as", &uid, "--nfs", &nfs];
        let storelets = kinds::STORELETS_MIB.to_string();
        let threads = kind.threads.to_string();
        extra.extend(["--storelet-memory", &storelets, "--http-write", "--threads", &threads]);
        let cache = spaces::CACHE_MIB.to_string();
        if kind.has_space {
            extra.extend(["--cache", &cache]);
            return Server::start_space(self.program, &self.space, &extra);
        }
        extra.extend(["--replica", &replica]);
        Server::start_at(self.program, &self.dir, self.ports, &extra)
    }

    /// Measures a healthy client alone, then beside the attackers.
    fn run(&self, kind: &Kind, extent: Extent) -> Result<Row> {
        let mount = kind.mounts.then(|| fuse::Fuse::mount(&self.dir.join("hung")));
        let mut server = self.serve(kind)?;
        let target = Target {
            ninep: server.ninep,
            http: server.http,
            nfs: self.nfs,
            over: AtomicBool::new(false),
            armed: AtomicUsize::new(0),
            effects: AtomicUsize::new(0),
        };
        let alone = healthy::measure(&server, extent.time, || ())?;
        if let Some(mount) = &mount {
            mount.hang();
        }
        let ((beside, memory), control) = std::thread::scope(|scope| {
            let target = &target;
            for number in 0..extent.attackers {
                scope.spawn(move || attack(kind, target, number));
            }
            let watched = watch(kind, target, &server, extent);
            let control = self.control.as_ref();
            let control = control.map(|it| healthy::measure(it, extent.time, || ())).transpose();
            target.over.store(true, Ordering::Relaxed);
            let lives = server.alive();
            drop(mount);
            // Ends the wait of attackers that still expect a reply from the server.
            server.kill()?;
            closed(&[server.ninep, server.http, self.nfs])?;
            ensure!(lives, "the server died: {}", sh::tail(&server.printed(), 800));
            Ok((watched?, control?))
        })?;
        let connections = kind.connections.max(extent.attackers as u64);
        let others = connections * CONNECTION_KIB + kind.memory_kib;
        let memory_max = (MEMORY_MAX << 10) + PROCESS_KIB + others;
        Ok(Row { alone, beside, control, memory, memory_max, extent })
    }
}

/// Makes a chain of the longest links that Linux follows.
fn chain(dir: &Path) -> Result<()> {
    std::fs::create_dir_all(dir.join("d"))?;
    std::fs::write(dir.join("39"), vec![7; healthy::SIZE])?;
    for number in 0..39 {
        let target = format!("{}{}", "d/../".repeat(800), number + 1);
        std::os::unix::fs::symlink(target, dir.join(number.to_string()))?;
    }
    Ok(())
}

/// Waits until these ports have no listener: the kernel closes files held by a ring shortly after
/// the process has exited, and the next server needs the ports.
fn closed(ports: &[u16]) -> Result<()> {
    let begun = Instant::now();
    while ports.iter().any(|port| TcpStream::connect(("127.0.0.1", *port)).is_ok()) {
        ensure!(begun.elapsed() < HANG, "somebody still listens at {ports:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Moves the calling thread into another scheduling class, if permitted: attackers would be on
/// machines of their own, so neither the server nor the healthy client may wait for processors that
/// they occupy. Without the permission all share the processors, and times are longer.
fn set_class(class: &str, priority: u32) {
    let thread = rustix::thread::gettid().as_raw_nonzero().to_string();
    let mut change = Command::new("chrt");
    change.args([class, "--pid", &priority.to_string(), &thread]);
    drop(change.stdout(Stdio::null()).stderr(Stdio::null()).status());
}

/// Runs one attacker until the attack is over, retrying refused attempts.
fn attack(kind: &Kind, target: &Target, number: usize) {
    set_class("--idle", 0);
    while !target.over() {
        // Errors are ignored: the server may refuse.
        let _ = (kind.attack)(target, number);
        target.arm();
        target.hold(Duration::from_millis(10));
    }
}

/// Measures the healthy client during the attack; also returns the server's maximum memory, KiB.
fn watch(kind: &Kind, target: &Target, server: &Server, extent: Extent) -> Result<(Times, u64)> {
    // Measures only once every attacker has begun, unless some of them wait for the server forever.
    let begun = Instant::now();
    while target.armed() == 0 || target.armed() < extent.attackers && begun.elapsed() < extent.time
    {
        ensure!(
            begun.elapsed() < BEGIN_MAX || target.armed() > 0,
            "{}: no attacker got so far",
            kind.name
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(extent.time / 4);
    let mut most = 0;
    let times = healthy::measure(server, extent.time, || most = most.max(server.own_rss_kib()))?;
    let effects = || target.effects.load(Ordering::Relaxed);
    // On a busy machine the first attempt may take longer than the measurement.
    while effects() == 0 && begun.elapsed() < BEGIN_MAX {
        std::thread::sleep(Duration::from_millis(5));
    }
    ensure!(effects() > 0, "{}: the server refused all attempts", kind.name);
    Ok((times, most))
}

impl Target {
    fn over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Returns the number of attackers that have begun.
    fn armed(&self) -> usize {
        self.armed.load(Ordering::Relaxed)
    }

    /// Sleeps for this time, or until the attack is over.
    fn hold(&self, time: Duration) {
        let end = Instant::now() + time;
        while !self.over() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(20).min(time));
        }
    }

    /// Records that this thread's attacker has begun work that occupies the server.
    fn arm(&self) {
        thread_local!(static ARMED: Cell<bool> = const { Cell::new(false) });
        if !ARMED.replace(true) {
            self.armed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Records a successful attempt of an attacker.
    fn note_effect(&self) {
        self.effects.fetch_add(1, Ordering::Relaxed);
    }

    /// Records success and holds the resource until the attack is over or `lives` returns false.
    fn keep(&self, mut lives: impl FnMut() -> bool) {
        self.arm();
        self.note_effect();
        while !self.over() && lives() {
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

const HEAD: &str = "\
| attack | alone p50 | p99 | worst ms | beside p50 | p99 | worst ms | ratio of p99 | second server \
p50 | p99 | worst ms | newcomers alone p50 | worst ms | beside p50 | worst ms | RSS MiB | allowed \
| verdict |
|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|";

/// A row of the table.
struct Row {
    alone: Times,
    beside: Times,
    control: Option<Times>,
    memory: u64,
    memory_max: u64,
    extent: Extent,
}

impl Row {
    fn ratio(&self) -> f64 {
        self.beside.quantile(0.99).as_secs_f64() / self.alone.quantile(0.99).as_secs_f64()
    }

    fn verdict(&self) -> String {
        let mut wrong = Vec::new();
        if self.ratio() >= RATIO_MAX {
            let p99 = |times: &Times| times.quantile(0.99).as_secs_f64();
            let is_slow = |control| p99(&self.beside) < RATIO_MAX * p99(control);
            wrong.push(if self.control.as_ref().is_some_and(is_slow) { "machine" } else { "p99" });
        }
        if self.beside.quantile(1.0) > STALL_MAX {
            wrong.push("stall");
        }
        if self.beside.new_quantile(1.0) > STALL_MAX {
            wrong.push("newcomers");
        }
        if self.memory > self.memory_max {
            wrong.push("memory");
        }
        if wrong.is_empty() { "within".into() } else { wrong.join(", ") }
    }

    fn text(&self, kind: &Kind) -> String {
        let figures = |times: &Times| {
            let of = |q| times.quantile(q).as_secs_f64() * 1e3;
            format!("{:.2} | {:.2} | {:.1}", of(0.5), of(0.99), of(1.0))
        };
        let newcomers = |times: &Times| {
            let of = |q| times.new_quantile(q).as_secs_f64() * 1e3;
            format!("{:.2} | {:.1}", of(0.5), of(1.0))
        };
        format!(
            "| {}: {} {} | {} | {} | {:.1} | {} | {} | {} | {} | {} | {} |",
            kind.name,
            self.extent.attackers,
            kind.does,
            figures(&self.alone),
            figures(&self.beside),
            self.ratio(),
            self.control.as_ref().map_or_else(|| "- | - | -".into(), figures),
            newcomers(&self.alone),
            newcomers(&self.beside),
            self.memory >> 10,
            self.memory_max >> 10,
            self.verdict()
        )
    }

    fn summary(&self) -> String {
        let of = |times: &Times, q| times.quantile(q).as_secs_f64() * 1e3;
        format!(
            "p99 {:.1} ms alone, {:.1} beside, worst {:.0}; {} MiB of {}",
            of(&self.alone, 0.99),
            of(&self.beside, 0.99),
            of(&self.beside, 1.0),
            self.memory >> 10,
            self.memory_max >> 10
        )
    }
}

/// Replaces the table in the documentation.
fn publish(rows: &[String], extent: Extent) -> Result<()> {
    let path = Path::new("docs/robustness.md");
    let page = std::fs::read_to_string(path).context("docs/robustness.md")?;
    let (begin, end) = ("<!-- table -->\n", "<!-- end of table -->");
    let (before, rest) = page.split_once(begin).context("no mark of the table's beginning")?;
    let (_, after) = rest.split_once(end).context("no mark of the table's end")?;
    let (attackers, seconds) = (extent.attackers, extent.time.as_secs());
    let machine = rig::machine::describe();
    let printed = format!("{attackers} attackers, {seconds} s each, {machine}\n\n");
    let table = rows.join("\n");
    std::fs::write(path, format!("{before}{begin}{printed}{table}\n{end}{after}"))?;
    Ok(())
}
