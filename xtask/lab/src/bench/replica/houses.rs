//! Three servers each: our replicas of a map, and Redis with two replicas of its own.

use super::messages::{self, Operation, Ours, Parameters, Redis};
use super::requester::{self, Seen, Until};
use anyhow::{Context as _, Result, ensure};
use rig::server::{self, Kind, Server};
use rig::sh;
use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Number of servers of each kind.
pub(super) const SERVERS: usize = 3;

/// Name of the service.
const NAME: &str = "measured";

/// Timeout for servers to become ready or to converge.
pub(super) const TIMEOUT: Duration = Duration::from_secs(60);

/// Our replicas.
pub(super) struct House {
    pub(super) servers: Vec<Server>,
}

impl House {
    /// Starts three servers of a map, with their files below `dir`, and stores all keys.
    pub(super) fn start(kind: Kind, dir: &Path) -> Result<House> {
        let mut ports = Vec::new();
        for index in 0..SERVERS {
            std::fs::create_dir_all(dir.join(index.to_string()))?;
            ports.push((server::free_port()?, server::free_port()?));
        }
        let members: Vec<String> = ports.iter().map(|(p, _)| format!("127.0.0.1:{p}")).collect();
        let mut init = Command::new(server::program(kind)?);
        init.args(["replica", "init", NAME, "--type", "map", "--size", "4G", "--members"]);
        sh::read(init.arg(members.join(",")).arg("--dir").arg(dir))?;
        let mut servers = Vec::new();
        for (index, ports) in ports.iter().enumerate() {
            let file = dir.join(format!("{NAME}.{}.replica", index + 1)).display().to_string();
            let extra = ["--storelet-threads", "0", "--replica", &file];
            let dir = dir.join(index.to_string());
            servers.push(Server::start_at(kind, &dir, *ports, &extra)?);
        }
        let house = House { servers };
        let way = Parameters { action: Operation::Load, strict: 0, lines: 100, once: false };
        house.ask(1, 1, Until::Count(messages::KEYS), way)?;
        house.settle()?;
        Ok(house)
    }

    /// Runs clients, distributed round robin over the first `replicas` replicas.
    pub(super) fn ask(
        &self,
        replicas: usize,
        clients: usize,
        until: Until,
        way: Parameters,
    ) -> Result<Seen> {
        self.ask_each(replicas, clients, until, |_| way)
    }

    /// Like `ask`, with parameters of its own for each client.
    pub(super) fn ask_each(
        &self,
        replicas: usize,
        clients: usize,
        until: Until,
        way: impl Fn(usize) -> Parameters,
    ) -> Result<Seen> {
        let ports: Vec<u16> =
            (0..clients).map(|client| self.servers[client % replicas].http).collect();
        requester::run(&ports, until, |client| Ours::new(NAME, client, way(client)))
    }

    /// Waits until all operations are stable everywhere.
    pub(super) fn settle(&self) -> Result<()> {
        let start = Instant::now();
        loop {
            let mut states = Vec::new();
            for server in &self.servers {
                let path = format!("/services/{NAME}/status.json");
                let status: Value = serde_json::from_str(&fetch(server.http, "GET", &path, "")?)?;
                states.push((status["done"].to_string(), status["unfinal"].as_u64()));
            }
            if states.iter().all(|state| *state == states[0] && state.1 == Some(0)) {
                return Ok(());
            }
            ensure!(start.elapsed() < TIMEOUT, "replicas are not equal: {states:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Returns the body of a response, fetched on a new connection.
pub(super) fn fetch(port: u16, method: &str, path: &str, body: &str) -> Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: \
         {length}\r\n\r\n{body}"
    )?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let (head, body) = text.split_once("\r\n\r\n").context("no answer")?;
    ensure!(head.split(' ').nth(1) == Some("200"), "{method} {path}: {head}");
    Ok(body.to_owned())
}

/// Redis: the first server is the primary. Each fsyncs its log, as a replica would have to after a
/// failover.
pub(super) struct RedisHouse {
    pub(super) servers: Vec<Server>,
}

impl RedisHouse {
    /// Starts three servers, with their files below `dir`.
    pub(super) fn start(dir: &Path) -> Result<RedisHouse> {
        let program = sh::which("redis-server").context("Redis is not installed")?;
        let mut servers: Vec<Server> = Vec::new();
        for index in 0..SERVERS {
            let dir = dir.join(index.to_string());
            std::fs::create_dir_all(&dir)?;
            let port = server::free_port()?;
            let mut command = Command::new(&program);
            command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--dir"]);
            command.arg(dir).args(["--appendonly", "yes", "--appendfsync", "always"]);
            command.args(["--save", "", "--repl-diskless-sync-delay", "0"]);
            if let Some(primary) = servers.first() {
                command.args(["--replicaof", &format!("127.0.0.1 {}", primary.ninep)]);
            }
            servers.push(Server::start_other("redis", command, port)?);
        }
        let house = RedisHouse { servers };
        let start = Instant::now();
        while !house.is_whole()? {
            ensure!(start.elapsed() < TIMEOUT, "Redis' replicas do not come");
            std::thread::sleep(Duration::from_millis(100));
        }
        house.ask(16, Until::Count(messages::KEYS), Some(2))?;
        Ok(house)
    }

    /// Returns whether both replicas follow.
    fn is_whole(&self) -> Result<bool> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.servers[0].ninep))?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.write_all(b"SET x y\r\nWAIT 2 1000\r\n")?;
        let mut printed = Vec::new();
        while printed.iter().filter(|byte| **byte == b'\n').count() < 2 {
            let mut room = [0; 64];
            let count = stream.read(&mut room)?;
            ensure!(count > 0, "Redis hung up");
            printed.extend_from_slice(&room[..count]);
        }
        Ok(printed.ends_with(b":2\r\n"))
    }

    /// Runs clients that set keys at the primary and wait for `wait` replicas.
    pub(super) fn ask(&self, clients: usize, until: Until, wait: Option<u8>) -> Result<Seen> {
        let ports = vec![self.servers[0].ninep; clients];
        requester::run(&ports, until, |_| Redis::new(wait))
    }
}
