//! etcd: three members, and its project's own benchmark tool, both built from the modules of one
//! version.
//!
//! Its client speaks gRPC as etcd's users do: eight connections for 64 clients, because one for
//! each is slower, to the leader where requests have to go there anyway.

use super::houses::{SERVERS, TIMEOUT, fetch};
use super::messages::{KEY, KEYS, VALUE};
use super::requester::Seen;
use anyhow::{Context as _, Result, ensure};
use rig::server::{self, Server};
use rig::sh;
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Version of etcd.
pub(super) const VERSION: &str = "v3.6.8";

/// Its programs, as Go packages.
const SERVER: &str = "go.etcd.io/etcd/server/v3";
const BENCHMARK: &str = "go.etcd.io/etcd/v3/tools/benchmark";

/// Oldest minor version of Go that can build it.
const GO_MINOR_MIN: u32 = 24;

/// Key to read, in base64 `bWVhc3VyZWQ=`.
const READ: &str = "measured";
const READ_BASE64: &str = "bWVhc3VyZWQ=";

/// Operation.
#[derive(Clone, Copy)]
pub(super) enum What {
    Put,
    /// Read of the latest value, confirmed by the leader.
    Linearizable,
    /// Read of the local value of the member.
    Serializable,
}

/// The members.
pub(super) struct Etcd {
    pub(super) servers: Vec<Server>,
    benchmark: PathBuf,
    endpoints: String,
    /// Operations per second in the previous run.
    rate: Cell<f64>,
}

impl Etcd {
    /// Builds and starts the members, with their files below `dir`, and stores all keys.
    pub(super) fn start(dir: &Path) -> Result<Etcd> {
        let bin = built()?;
        let ports = |_| Ok((server::free_port()?, server::free_port()?));
        let ports: Vec<(u16, u16)> = (0..SERVERS).map(ports).collect::<Result<_>>()?;
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let cluster =
            ports.iter().enumerate().map(|(at, (_, peer))| format!("m{at}={}", url(*peer)));
        let cluster: Vec<String> = cluster.collect();
        let mut servers = Vec::new();
        for (at, (client, peer)) in ports.iter().enumerate() {
            let mut command = Command::new(bin.join("server"));
            command.args(["--name", &format!("m{at}"), "--log-level", "error", "--data-dir"]);
            command.arg(dir.join(at.to_string()));
            command.args(["--listen-client-urls", &url(*client)]);
            command.args(["--advertise-client-urls", &url(*client)]);
            command.args(["--listen-peer-urls", &url(*peer)]);
            command.args(["--initial-advertise-peer-urls", &url(*peer)]);
            command.args(["--initial-cluster", &cluster.join(",")]);
            servers.push(Server::start_other("etcd", command, *client)?);
        }
        let endpoints: Vec<String> =
            ports.iter().map(|(it, _)| format!("127.0.0.1:{it}")).collect();
        let (benchmark, endpoints) = (bin.join("benchmark"), endpoints.join(","));
        let etcd = Etcd { servers, benchmark, endpoints, rate: Cell::new(0.0) };
        etcd.fill()?;
        Ok(etcd)
    }

    /// Waits until all members are healthy, and stores all keys.
    fn fill(&self) -> Result<()> {
        let start = Instant::now();
        for server in &self.servers {
            while !fetch(server.ninep, "GET", "/health", "").is_ok_and(|it| it.contains("true")) {
                ensure!(start.elapsed() < TIMEOUT, "etcd is not healthy: {}", server.printed());
                std::thread::sleep(Duration::from_millis(100));
            }
        }
        self.benchmark(64, KEYS, What::Put, &["--sequential-keys"])?;
        // 256 zeros.
        let value = format!("{}==", "A".repeat(342));
        let port = self.servers[0].ninep;
        let put = format!("{{\"key\": \"{READ_BASE64}\", \"value\": \"{value}\"}}");
        fetch(port, "POST", "/v3/kv/put", &put)?;
        let get = format!("{{\"key\": \"{READ_BASE64}\"}}");
        let got = fetch(port, "POST", "/v3/kv/range", &get)?;
        ensure!(got.contains(&value), "etcd does not have what is to be read: {got}");
        Ok(())
    }

    /// Measures the throughput, which sizes the next run.
    pub(super) fn warm(&self, clients: usize, what: What) -> Result<()> {
        self.rate.set(self.benchmark(clients, 200 + 60 * clients as u64, what, &[])?.rate);
        Ok(())
    }

    /// Runs clients for about this time.
    pub(super) fn ask(&self, clients: usize, time: Duration, what: What) -> Result<Seen> {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
        let total = (self.rate.get() * time.as_secs_f64()).max(100.0) as u64;
        let seen = self.benchmark(clients, total, what, &[])?;
        self.rate.set(seen.rate);
        Ok(seen)
    }

    fn benchmark(&self, clients: usize, total: u64, what: What, more: &[&str]) -> Result<Seen> {
        let mut command = Command::new(&self.benchmark);
        command.args(["--precise", "--endpoints", &self.endpoints]);
        command.args(["--conns", &clients.min(8).to_string(), "--clients", &clients.to_string()]);
        match what {
            What::Put => {
                command.args(["--target-leader", "put", "--key-size", &KEY.to_string()]);
                command.args(["--val-size", &VALUE.to_string()]);
                command.args(["--key-space-size", &KEYS.to_string()]);
            }
            What::Linearizable => {
                command.args(["--target-leader", "range", READ, "--consistency", "l"]);
            }
            What::Serializable => {
                command.args(["range", READ, "--consistency", "s"]);
            }
        }
        command.args(["--total", &total.to_string()]).args(more);
        seen(total, &sh::read(&mut command)?)
    }
}

/// Parses the benchmark tool's output.
fn seen(operations: u64, printed: &str) -> Result<Seen> {
    ensure!(!printed.contains("Error distribution"), "etcd's benchmark: {printed}");
    let find = |begin: &str| {
        let line = printed.lines().find_map(|line| line.trim().strip_prefix(begin));
        let word = line.and_then(|rest| rest.split_whitespace().next());
        let word = word.with_context(|| format!("etcd's benchmark says no {begin}: {printed}"))?;
        Ok::<f64, anyhow::Error>(word.parse()?)
    };
    let (p50, p99) = (find("50% in")? * 1e6, find("99% in")? * 1e6);
    Ok(Seen { operations, rate: find("Requests/sec:")?, p50, p99 })
}

/// Returns the directory of its programs, building them if necessary.
fn built() -> Result<PathBuf> {
    let dir = sh::scratch("etcd")?;
    let (bin, stamp) = (dir.join("bin"), dir.join("built"));
    if std::fs::read_to_string(&stamp).is_ok_and(|version| version == VERSION) {
        return Ok(bin);
    }
    eprintln!("   building etcd {VERSION}, which takes some minutes");
    std::fs::write(dir.join("go.mod"), format!("module peer\n\ngo 1.{GO_MINOR_MIN}\n"))?;
    let packages = [format!("{SERVER}@{VERSION}"), format!("{BENCHMARK}@{VERSION}")];
    sh::read(go(&dir, &["get"])?.args(packages))?;
    let mut build = go(&dir, &["build", "-trimpath", "-o"])?;
    sh::read(build.arg(format!("{}/", bin.display())).args([SERVER, BENCHMARK]))?;
    std::fs::write(stamp, VERSION)?;
    Ok(bin)
}

fn go(dir: &Path, args: &[&str]) -> Result<Command> {
    let go = sh::which("go").context("no go toolchain")?.display().to_string();
    let printed = sh::read(sh::cmd(&go, &["env", "GOVERSION"]).env("GOTOOLCHAIN", "local"))?;
    let minor = printed.trim().strip_prefix("go1.").and_then(|rest| {
        rest.split(|letter: char| !letter.is_ascii_digit()).next()?.parse::<u32>().ok()
    });
    ensure!(
        minor.is_none_or(|minor| minor >= GO_MINOR_MIN),
        "{} cannot build etcd {VERSION}: Go 1.{GO_MINOR_MIN} can; put a newer one into PATH",
        printed.trim()
    );
    let mut command = sh::cmd(&go, args);
    command.current_dir(dir).env("GOTOOLCHAIN", "local").env("GOPATH", dir.join("go"));
    command.env("GOFLAGS", "-modcacherw -buildvcs=false").env("CGO_ENABLED", "0");
    command.env_remove("GOBIN").env_remove("GOMODCACHE");
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn etcd_benchmark_output_is_parsed() {
        let printed = "\nSummary:\n  Total:\t0.5 secs.\n  Requests/sec:\t7106.25\n\nLatency \
                    distribution:\n  50% in 0.0078 secs.\n  99% in 0.0221 secs.\n";
        let seen = seen(20, printed).unwrap();
        assert_eq!((seen.operations, seen.rate), (20, 7106.25));
        assert!((seen.p50 - 7800.0).abs() < 0.1 && (seen.p99 - 22100.0).abs() < 0.1);
        assert!(super::seen(20, "Requests/sec: 5\n").is_err());
        assert!(super::seen(20, &format!("{printed}\nError distribution:\n")).is_err());
    }
}
