//! A server under test, or a peer in a benchmark: started on free loopback ports, stopped by its
//! process id, its CPU time read from /proc.

use crate::sh;
use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Server program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Ours, on io_uring.
    Uring,
    /// Ours, on epoll and threads.
    Threads,
    /// diod, the reference 9P2000.L server of the Linux community.
    Diod,
    /// nginx with one worker.
    Nginx,
    /// Another build of ours, on `io_uring`: the program set by [`set_before`].
    Before,
}

/// Program measured as [`Kind::Before`].
static BEFORE: OnceLock<PathBuf> = OnceLock::new();

/// Sets the program measured as [`Kind::Before`]; only the first call counts.
pub fn set_before(program: PathBuf) {
    BEFORE.get_or_init(|| program);
}

impl Kind {
    /// Returns the name in tables and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Uring => "uring",
            Kind::Threads => "threads",
            Kind::Diod => "diod",
            Kind::Nginx => "nginx",
            Kind::Before => "before",
        }
    }

    /// Returns the kind of that name.
    pub fn named(name: &str) -> Option<Kind> {
        [Kind::Uring, Kind::Threads, Kind::Diod, Kind::Nginx]
            .into_iter()
            .find(|kind| kind.name() == name)
    }
}

/// A running server. Dropping it stops it.
pub struct Server {
    /// 9P port on 127.0.0.1, 0 without 9P.
    pub ninep: u16,
    /// HTTP port on 127.0.0.1, 0 without HTTP.
    pub http: u16,
    /// Absolute path of the served directory or volume: also diod's `aname`.
    pub dir: PathBuf,
    child: Child,
    log: PathBuf,
}

impl Server {
    /// Starts `kind` on `dir`. `extra` are additional flags for our own server; paths among them
    /// are additional directories for diod, which crosses no mount points itself.
    pub fn start(kind: Kind, dir: &Path, extra: &[&str]) -> Result<Server> {
        Server::start_on(kind, dir, extra, None)
    }

    /// Like `start`, at these ports for 9P and HTTP.
    pub fn start_at(kind: Kind, dir: &Path, ports: (u16, u16), extra: &[&str]) -> Result<Server> {
        Server::start_with(kind, dir, ports, extra, None)
    }

    /// Like `start`, pinned to one processor.
    pub fn start_on(kind: Kind, dir: &Path, extra: &[&str], core: Option<usize>) -> Result<Server> {
        Server::start_with(kind, dir, (free_port()?, free_port()?), extra, core)
    }

    fn start_with(
        kind: Kind,
        dir: &Path,
        (ninep, http): (u16, u16),
        extra: &[&str],
        core: Option<usize>,
    ) -> Result<Server> {
        let dir = dir.canonicalize().with_context(|| format!("serve {}", dir.display()))?;
        let (mut command, ninep, http) = match kind {
            Kind::Uring | Kind::Threads => {
                let command = Command::new(binary());
                (ours(command, kind, &dir, (ninep, http), extra), ninep, http)
            }
            Kind::Diod => (diod(&dir, ninep, extra)?, ninep, 0),
            Kind::Nginx => (nginx(&dir, http)?, 0, http),
            Kind::Before => {
                let command = Command::new(program(kind)?);
                (ours(command, Kind::Uring, &dir, (ninep, http), extra), ninep, http)
            }
        };
        if let Some(core) = core {
            let mut pinned = Command::new("taskset");
            pinned.args(["-c", &core.to_string()]).arg(command.get_program());
            pinned.args(command.get_args());
            command = pinned;
        }
        let port = if ninep > 0 { ninep } else { http };
        let log = sh::scratch("logs")?.join(format!("{}-{port}.log", kind.name()));
        let file = std::fs::File::create(&log)?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let child = command.spawn().with_context(|| format!("start {}", kind.name()))?;
        let mut server = Server { ninep, http, dir, child, log };
        server.wait_ready()?;
        Ok(server)
    }

    /// Starts our server with a names file.
    pub fn start_space(kind: Kind, names: &Path, extra: &[&str]) -> Result<Server> {
        let (ninep, http) = (free_port()?, free_port()?);
        let mut command = Command::new(binary());
        command.arg("serve").arg("--names").arg(names);
        command.args(["--9p", &format!("127.0.0.1:{ninep}")]);
        command.args(["--http", &format!("127.0.0.1:{http}")]);
        command.args(["--reactor", kind.name()]).args(extra);
        let log = sh::scratch("logs")?.join("names.log");
        let file = std::fs::File::create(&log)?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let child = command.spawn().with_context(|| format!("start {}", kind.name()))?;
        let mut server = Server { ninep, http, dir: PathBuf::from("/"), child, log };
        server.wait_ready()?;
        Ok(server)
    }

    /// Starts our server with these arguments after `serve` and without HTTP; it is ready when it
    /// listens on `port`.
    pub fn start_words(
        kind: Kind,
        words: &[String],
        port: u16,
        core: Option<usize>,
    ) -> Result<Server> {
        let mut command = Command::new(binary());
        if let Some(core) = core {
            command = Command::new("taskset");
            command.args(["-c", &core.to_string()]).arg(binary());
        }
        command.arg("serve").args(words).args(["--http", "none", "--reactor", kind.name()]);
        let log = sh::scratch("logs")?.join(format!("words-{port}.log"));
        let file = std::fs::File::create(&log)?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let child = command.spawn().with_context(|| format!("start {}", kind.name()))?;
        let mut server = Server { ninep: port, http: 0, dir: PathBuf::from("/"), child, log };
        server.wait_ready()?;
        Ok(server)
    }

    /// Starts a third-party server; it is ready when it listens on `port`.
    pub fn start_other(name: &str, mut command: Command, port: u16) -> Result<Server> {
        let log = sh::scratch("logs")?.join(format!("{name}-{port}.log"));
        let file = std::fs::File::create(&log)?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let child = command.spawn().with_context(|| format!("start {name}"))?;
        let mut server = Server { ninep: port, http: 0, dir: PathBuf::from("/"), child, log };
        server.wait_ready()?;
        Ok(server)
    }

    /// Returns its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns its limit of open files.
    pub fn open_files(&self) -> Result<usize> {
        let text = std::fs::read_to_string(format!("/proc/{}/limits", self.pid()))?;
        let line = text.lines().find(|line| line.starts_with("Max open files"));
        let soft = line.and_then(|line| line.split_whitespace().nth(3));
        soft.and_then(|soft| soft.parse().ok()).context("/proc says no limit of open files")
    }

    /// Returns its CPU time so far, user and system, with its children, clock ticks (1/100 s).
    pub fn cpu_ticks(&self) -> u64 {
        family(self.pid()).iter().map(|pid| ticks_of(*pid)).sum()
    }

    /// Returns its resident memory, with its children, KiB.
    pub fn rss_kib(&self) -> u64 {
        family(self.pid()).iter().map(|pid| rss_of(*pid)).sum()
    }

    /// Returns its resident memory, without children, KiB.
    pub fn own_rss_kib(&self) -> u64 {
        rss_of(self.pid())
    }

    /// Returns its running children.
    pub fn children(&self) -> Vec<u32> {
        family(self.pid()).split_off(1)
    }

    /// Returns the working process: the last child if there is one, else itself.
    pub fn worker(&self) -> u32 {
        *family(self.pid()).last().expect("a family has its head")
    }

    /// Returns its output so far.
    pub fn printed(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Returns whether it still runs.
    pub fn alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Kills it.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Terminates it and waits; returns the exit status, or an error if it had to be killed.
    pub fn stop(&mut self) -> Result<Option<i32>> {
        if let Ok(Some(status)) = self.child.try_wait() {
            return Ok(status.code());
        }
        if let Some(pid) = Pid::from_raw(self.child.id().cast_signed()) {
            let _ = kill_process(pid, Signal::TERM);
        }
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(60) {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status.code());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        self.child.kill()?;
        self.child.wait()?;
        bail!("the server did not end within 5 s of SIGTERM")
    }

    fn wait_ready(&mut self) -> Result<()> {
        let start = Instant::now();
        let ports = [self.ninep, self.http];
        for port in ports.into_iter().filter(|port| *port != 0) {
            while TcpStream::connect(("127.0.0.1", port)).is_err() {
                if let Some(status) = self.child.try_wait()? {
                    bail!(
                        "the server ended at once ({status}): {}",
                        sh::tail(&self.printed(), 600)
                    );
                }
                if start.elapsed() > Duration::from_secs(60) {
                    bail!(
                        "the listener has ended on port {port}: {}",
                        sh::tail(&self.printed(), 600)
                    );
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.stop();
    }
}

/// Whether this is a release build. Benchmarks use the server as users build it; tests use the
/// build of the unit tests, as a second one would take minutes.
const IS_MEASURED: bool = !cfg!(debug_assertions);

/// Builds our server.
pub fn build() -> Result<()> {
    match IS_MEASURED {
        true => sh::build_optimised(),
        false => sh::build(),
    }
}

/// Fails in a debug build: clients of a measurement must not be its bottleneck, and the server is
/// built in the same way.
pub fn expect_measured() -> Result<()> {
    match IS_MEASURED {
        true => Ok(()),
        false => bail!("this is a debug build, which does not measure: start it by `cargo xtask`"),
    }
}

/// Returns the path of the server's binary.
pub fn binary() -> PathBuf {
    sh::target().join(if IS_MEASURED { "release/upcall" } else { "debug/upcall" })
}

/// Returns the binary of a server of ours.
pub fn program(kind: Kind) -> Result<PathBuf> {
    match kind {
        Kind::Uring | Kind::Threads => Ok(binary()),
        Kind::Before => BEFORE.get().cloned().context("no program to compare with"),
        Kind::Diod | Kind::Nginx => bail!("{} is not ours", kind.name()),
    }
}

fn ours(
    mut command: Command,
    kind: Kind,
    dir: &Path,
    (ninep, http): (u16, u16),
    extra: &[&str],
) -> Command {
    command.arg("serve").arg(dir);
    command.args(["--9p", &format!("127.0.0.1:{ninep}")]);
    command.args(["--http", &format!("127.0.0.1:{http}")]);
    command.args(["--reactor", kind.name()]).args(extra);
    command
}

fn diod(dir: &Path, port: u16, extra: &[&str]) -> Result<Command> {
    let path = sh::which("diod").context("diod is not installed")?;
    let mut command = Command::new(path);
    command.args(["-f", "-n", "-c", "/dev/null", "-l", &format!("127.0.0.1:{port}"), "-e"]);
    // It may leave a core file there.
    command.arg(dir).current_dir(sh::scratch("logs")?);
    for path in extra.iter().filter(|word| word.starts_with('/')) {
        command.arg("-e").arg(path);
    }
    Ok(command)
}

fn nginx(dir: &Path, port: u16) -> Result<Command> {
    let scratch = sh::scratch("nginx")?;
    let conf = scratch.join("nginx.conf");
    let user = if rustix::process::geteuid().is_root() { "user root;" } else { "" };
    let text = format!(
        "{user}\ndaemon off;\nworker_processes 1;\nworker_rlimit_nofile 8192;\n\
         pid {scratch}/pid;\nerror_log {scratch}/error.log crit;\n\
         events {{ worker_connections 4096; }}\n\
         http {{\n  access_log off;\n  sendfile on;\n  tcp_nopush on;\n  tcp_nodelay on;\n  \
         keepalive_timeout 65;\n  keepalive_requests 100000000;\n  \
         open_file_cache max=10000 inactive=60s;\n  open_file_cache_valid 60s;\n  \
         client_body_temp_path {scratch}/body;\n  proxy_temp_path {scratch}/proxy;\n  \
         fastcgi_temp_path {scratch}/fastcgi;\n  uwsgi_temp_path {scratch}/uwsgi;\n  \
         scgi_temp_path {scratch}/scgi;\n  types {{ text/plain txt; }}\n  \
         server {{ listen 127.0.0.1:{port} backlog=4096; root {dir}; }}\n}}\n",
        scratch = scratch.display(),
        dir = dir.display(),
    );
    std::fs::write(&conf, text)?;
    let mut command = Command::new(sh::which("nginx").context("nginx is not installed")?);
    command.arg("-c").arg(conf).arg("-p").arg(scratch);
    Ok(command)
}

/// Waits until nobody listens on a port of the loopback interface: the kernel closes the sockets of
/// an io_uring some time after the end of its process.
pub fn until_closed(port: u16) {
    while TcpListener::bind(("127.0.0.1", port)).is_err() {
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns a free port of the loopback interface, a different one each time. It is below the
/// kernel's ephemeral ports, so no connection takes it meanwhile.
pub fn free_port() -> Result<u16> {
    const FIRST: u32 = 10_240;
    const COUNT: u32 = 32_768 - FIRST;
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    let start = std::process::id().wrapping_mul(97);
    for _ in 0..COUNT {
        let step = start.wrapping_add(TAKEN.fetch_add(1, Ordering::Relaxed));
        let port = u16::try_from(FIRST + step % COUNT)?;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no port between {FIRST} and {} of 127.0.0.1 is free", FIRST + COUNT)
}

/// Returns a process and the children of its threads.
fn family(pid: u32) -> Vec<u32> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let children = threads.filter_map(|thread| {
        let list = std::fs::read_to_string(thread.path().join("children")).ok()?;
        Some(list.split_whitespace().filter_map(|c| c.parse().ok()).collect::<Vec<u32>>())
    });
    std::iter::once(pid).chain(children.flatten()).collect()
}

/// Returns the CPU time of a process, user and system, clock ticks; 0 if it has exited.
pub fn ticks_of(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let after = stat.rsplit(") ").next().unwrap_or_default();
    after.split(' ').skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum()
}

/// Returns the resident memory of a process, KiB; 0 if it has exited.
pub fn rss_of(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").trim().parse().unwrap_or(0)
}
