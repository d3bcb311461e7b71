//! Three replicas of a log, four clients, `kill -9` of one and of all, and partitions: the replicas
//! converge, every acknowledged operation is there once, and strict replies agree with the eventual
//! order.
//!
//! A client retransmits an unacknowledged operation, to the next server, with the same number.
//! Replicas reach each other over lines, one for each direction, that can be cut or silently drop
//! data. At the end members change.

mod client;
mod line;
mod members;

use anyhow::{Context, Result, ensure};
use client::{Acked, Client, Progress};
use line::{Line, Weather};
use rig::report::Report;
use rig::server::{self, Kind, Server};
use rig::sh;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const REPLICAS: usize = 3;
const ALL: [usize; REPLICAS] = [0, 1, 2];
const CLIENTS: usize = 4;

/// Operations of each client: by default, and with `--long`.
const OPERATIONS: u64 = 5_000;
const OPERATIONS_LONG: u64 = 25_000;

/// One of this number of operations is strict.
const STRICT: u64 = 10;

/// Timeout for replicas to converge after all faults have ended.
const SETTLE: Duration = Duration::from_secs(60);

/// Names of the services: a log, and a sheet for the commands.
const NAME: &str = "story";
const SHEET: &str = "plan";

/// Three servers, and the lines between them.
struct House {
    dir: PathBuf,
    ports: Vec<(u16, u16)>,
    /// Lines by source and destination.
    lines: BTreeMap<(usize, usize), Line>,
    servers: Vec<Option<Server>>,
    kind: Kind,
}

impl House {
    fn build(kind: Kind) -> Result<House> {
        let dir = sh::empty("replicas")?;
        let mut ports = Vec::new();
        for index in 0..REPLICAS {
            std::fs::create_dir_all(dir.join(index.to_string()))?;
            ports.push((server::free_port()?, server::free_port()?));
        }
        let members: Vec<String> = ports.iter().map(|(p, _)| format!("127.0.0.1:{p}")).collect();
        for (name, kind) in [(NAME, "log"), (SHEET, "sheet")] {
            let mut init = Command::new(server::binary());
            init.args(["replica", "init", name, "--type", kind, "--size", "4G", "--members"]);
            sh::read(init.arg(members.join(",")).arg("--dir").arg(&dir))?;
        }
        let mut lines = BTreeMap::new();
        for from in 0..REPLICAS {
            for to in (0..REPLICAS).filter(|to| *to != from) {
                lines.insert((from, to), Line::start(ports[to].0)?);
            }
        }
        let servers = (0..REPLICAS).map(|_| None).collect();
        let mut house = House { dir, ports, lines, servers, kind };
        for index in 0..REPLICAS {
            house.start(index)?;
        }
        Ok(house)
    }

    fn start(&mut self, index: usize) -> Result<()> {
        let mut extra = vec!["--storelet-threads".to_string(), "0".to_string()];
        for name in [NAME, SHEET] {
            let file = self.dir.join(format!("{name}.{}.replica", index + 1));
            if !file.exists() {
                continue;
            }
            extra.extend(["--replica".to_string(), file.display().to_string()]);
            for ((_, to), line) in self.lines.iter().filter(|((from, _), _)| *from == index) {
                let reach = format!("{name}.{}=127.0.0.1:{}", to + 1, line.port);
                extra.extend(["--reach".to_string(), reach]);
            }
        }
        let extra: Vec<&str> = extra.iter().map(String::as_str).collect();
        let dir = self.dir.join(index.to_string());
        let server = Server::start_at(self.kind, &dir, self.ports[index], &extra)?;
        self.servers[index] = Some(server);
        Ok(())
    }

    fn kill(&mut self, index: usize) -> Result<()> {
        let mut server = self.servers[index].take().context("it runs")?;
        server.kill()
    }

    /// Partitions one replica from the others, or ends the partition.
    fn part(&self, alone: usize, weather: Weather) {
        let concerns = |(from, to): &(usize, usize)| *from == alone || *to == alone;
        let lines = self.lines.iter().filter(|(ends, _)| concerns(ends));
        lines.for_each(|(_, line)| line.turn(weather));
    }

    /// Returns the output of a client command with this input.
    fn command(&self, index: usize, words: &[&str], input: &str) -> Result<String> {
        let output = self.ask(index, words, input)?;
        let printed = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "upcall {}: {} {printed}", words.join(" "), output.status);
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Runs a client command, which may fail.
    fn ask(&self, index: usize, words: &[&str], input: &str) -> Result<Output> {
        let mut command = Command::new(server::binary());
        command.args(words).args(["--at", &format!(":{}", self.ports[index].0)]);
        command.current_dir(&self.dir).stdin(Stdio::piped());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        child.stdin.take().context("it reads")?.write_all(input.as_bytes())?;
        Ok(child.wait_with_output()?)
    }

    /// Reads a file of a replica.
    fn read(&self, index: usize, file: &str) -> Result<Vec<u8>> {
        client::get(self.ports[index].1, &format!("/services/{NAME}/{file}"))
    }

    /// Waits until all operations are stable at these replicas; returns the duration.
    fn settle(&self, at: &[usize]) -> Result<Duration> {
        let start = Instant::now();
        loop {
            let mut states = Vec::new();
            for index in at.iter().copied() {
                let status: Value = serde_json::from_slice(&self.read(index, "status.json")?)?;
                states.push((status["done"].to_string(), status["unfinal"].as_u64()));
            }
            let equal = states.iter().all(|state| *state == states[0] && state.1 == Some(0));
            if equal {
                return Ok(start.elapsed());
            }
            ensure!(start.elapsed() < SETTLE, "replicas are not equal: {states:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Runs the suite.
pub(crate) fn run(report: &mut Report, kind: Kind) -> Result<()> {
    if kind == Kind::Diod {
        report.skip("replicas", "diod has none");
        return Ok(());
    }
    let each = if report.long { OPERATIONS_LONG } else { OPERATIONS };
    let mut house = None;
    report.case("replicas/three_servers_are_one_service", || {
        house = Some(House::build(kind)?);
        Ok(format!("{REPLICAS} servers"))
    });
    let Some(mut house) = house else { return Ok(()) };
    let mut acked = Vec::new();
    report.case("replicas/kills_and_partitions_stop_nobody_for_long", || {
        let start = Instant::now();
        acked = story(&mut house, each)?;
        let took = start.elapsed();
        let sum: usize = acked.iter().map(Vec::len).sum();
        let again: u64 = acked.iter().flatten().map(|ack| ack.tries - 1).sum();
        ensure!(sum as u64 == each * CLIENTS as u64, "{sum} operations were answered");
        Ok(format!("{sum} operations in {:.1} s, sent again {again} times", took.as_secs_f64()))
    });
    report.case("replicas/all_are_equal_and_nothing_is_lost_or_doubled", || judge(&house, &acked));
    report.case("replicas/commands_ask_any_of_them", || commands(&house));
    report.case("replicas/memory_of_what_is_final_is_given_back", || {
        let status: Value = serde_json::from_slice(&house.read(0, "status.json")?)?;
        ensure!(status["held"] == 0, "{status}");
        Ok("no operation is held".to_string())
    });
    report.case("replicas/members_come_and_go", || members::run(&mut house, CLIENTS));
    report.case("replicas/all_end_when_asked", || {
        for server in house.servers.iter_mut().flatten() {
            let code = server.stop()?;
            ensure!(code == Some(0), "exit status {code:?}: {}", sh::tail(&server.printed(), 500));
        }
        Ok(String::new())
    });
    Ok(())
}

/// Runs clients while one replica is killed and restarted, another one is partitioned, and the
/// third one's lines drop everything; then all are killed at once.
fn story(house: &mut House, each: u64) -> Result<Vec<Vec<Acked>>> {
    let ports: Vec<u16> = house.ports.iter().map(|(_, http)| *http).collect();
    let progress = Progress::default();
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let mut client = Client::new(NAME, number, ports.clone());
                let progress = &progress;
                scope.spawn(move || client.go_on(each, STRICT, progress))
            })
            .collect();
        let all = each * CLIENTS as u64;
        let troubles = (|| {
            progress.wait(all / 5)?;
            house.kill(1)?;
            std::thread::sleep(Duration::from_secs(1));
            house.start(1)?;
            progress.wait(all * 2 / 5)?;
            house.part(2, Weather::Cut);
            std::thread::sleep(Duration::from_secs(2));
            house.part(2, Weather::Fair);
            progress.wait(all * 3 / 5)?;
            house.part(0, Weather::Silent);
            std::thread::sleep(Duration::from_millis(500));
            house.part(0, Weather::Fair);
            progress.wait(all * 4 / 5)?;
            (0..REPLICAS).try_for_each(|index| house.kill(index))?;
            (0..REPLICAS).try_for_each(|index| house.start(index))
        })();
        if troubles.is_err() {
            progress.give_up();
        }
        let acked = clients.into_iter().map(|client| client.join().expect("no client panics"));
        let acked = acked.collect::<Result<Vec<_>>>();
        troubles.and(acked)
    })
}

/// Imports a sheet at one server and exports it at another one, as text and as a workbook, and
/// imports it again.
fn commands(house: &House) -> Result<String> {
    let typed = "Name,Amount\nA,1.5\nB,2.5\nSum,=SUM(B2:B3)\n";
    let shown = "Name,Amount\nA,1.5\nB,2.5\nSum,4\n";
    std::fs::write(house.dir.join("in.csv"), typed)?;
    house.command(0, &["replica", "import", SHEET, "in.csv"], "")?;
    // At the same replica a strict operation is ordered after the import; stable values are
    // everywhere.
    let sum = house.command(0, &["op", SHEET, "get", "B4", "--strict"], "")?;
    ensure!(sum == "4.0\n", "{sum:?}");
    house.command(1, &["replica", "export", SHEET, "out.csv"], "")?;
    house.command(1, &["replica", "export", SHEET, "out.xlsx"], "")?;
    let csv = std::fs::read_to_string(house.dir.join("out.csv"))?;
    ensure!(csv == shown, "{csv:?}");
    house.command(1, &["op", SHEET, "clear", "A1:Z99", "--strict"], "")?;
    house.command(2, &["replica", "import", SHEET, "out.xlsx"], "")?;
    let formula = house.command(2, &["op", SHEET, "input", "B4", "--strict"], "")?;
    ensure!(formula == "=SUM(B2:B3)\n", "{formula:?}");
    // The retransmission, to another replica, is not applied again.
    for index in [0, 1] {
        house.command(
            index,
            &["op", NAME, "append", "once", "--strict", "--once", "7", "1"],
            "",
        )?;
    }
    let lines = "append x\n{\"append\": \"c  d\"}\n\n";
    let printed = house.command(2, &["op", NAME, "--strict"], lines)?;
    ensure!(printed.lines().count() == 2, "{printed:?}");
    house.settle(&ALL)?;
    let log = String::from_utf8(house.read(0, "stable")?)?;
    let end: Vec<&str> = log.lines().rev().take(3).collect();
    ensure!(end[0] == "\"c  d\"" && end[2] == "\"once\"", "{end:?}");
    Ok("import, export, op".to_string())
}

/// Checks the final state of the replicas.
fn judge(house: &House, acked: &[Vec<Acked>]) -> Result<String> {
    let took = house.settle(&ALL)?;
    let first = house.read(0, "stable")?;
    for index in 0..REPLICAS {
        ensure!(house.read(index, "stable")? == first, "replica {} differs", index + 1);
        ensure!(house.read(index, "value")? == first, "replica {} differs", index + 1);
    }
    let text = String::from_utf8(first).context("records are text")?;
    let mut place = BTreeMap::new();
    for (index, line) in text.lines().enumerate() {
        let record: String = serde_json::from_str(line)?;
        let before = place.insert(record, index as u64);
        ensure!(before.is_none(), "line {index} was done twice: {line}");
    }
    let (mut strict, mut moved) = (0, 0);
    for ack in acked.iter().flatten() {
        let at = place.remove(&ack.record).with_context(|| format!("{} is lost", ack.record))?;
        let right = at == ack.answer;
        ensure!(right || !ack.is_final, "{} is at {at}, expected at {}", ack.record, ack.answer);
        ensure!(ack.is_final || !ack.strict, "{} was strict", ack.record);
        strict += u64::from(ack.strict);
        moved += u64::from(!right);
    }
    ensure!(place.is_empty(), "nobody asked for {:?}", place.keys().next());
    let all = acked.iter().map(Vec::len).sum::<usize>();
    let settled = took.as_secs_f64();
    Ok(format!("{all} records, {strict} strict; {moved} answers moved; equal after {settled:.1} s"))
}
