//! Membership changes during a client's operations: one member joins, one leaves, one is lost.

use super::client::{Acked, Client, Progress};
use super::{House, NAME, STRICT};
use anyhow::{Context, Result, ensure};
use rig::server;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Operations of the client meanwhile.
const OPERATIONS: u64 = 1_000;

/// Timeout of a membership change.
const CHANGE: Duration = Duration::from_secs(120);

/// Index of the joining replica's server.
const NEW: usize = 3;

/// Changes the members while a client is active.
pub(super) fn run(house: &mut House, number: usize) -> Result<String> {
    let http = house.ports[0].1;
    let progress = Progress::default();
    let (acked, epochs) = std::thread::scope(|scope| {
        let requested = scope
            .spawn(|| Client::new(NAME, number, vec![http]).go_on(OPERATIONS, STRICT, &progress));
        let epochs = change(house);
        if epochs.is_err() {
            progress.give_up();
        }
        let acked = requested.join().expect("no client panics");
        Ok::<_, anyhow::Error>((acked?, epochs?))
    })?;
    judge(house, &acked)?;
    // A lost member that returns is no longer a member.
    house.start(2)?;
    wait(house, 2, |status| status["failed"] == "no member any more")?;
    refused(house, 2)?;
    Ok(format!("{epochs}; {} operations", acked.len()))
}

fn change(house: &mut House) -> Result<String> {
    let key = format!("{NAME}.key");
    let place = (server::free_port()?, server::free_port()?);
    let address = format!("127.0.0.1:{}", place.0);
    house.command(1, &["replica", "join", &key, &address, "--size", "4G"], "")?;
    house.ports.push(place);
    house.servers.push(None);
    std::fs::create_dir_all(house.dir.join(NEW.to_string()))?;
    house.start(NEW)?;
    wait(house, NEW, |status| members(status) == [1, 2, 3, 4] && status["settled"] == true)?;
    let left = house.command(0, &["replica", "remove", &key, "2"], "")?;
    refused(house, 1)?;
    house.kill(2)?;
    let lost = house.command(NEW, &["replica", "remove", &key, "3", "--lost"], "")?;
    let printed = [left, lost].map(|line| line.trim().to_string());
    let expected =
        ["epoch 3: the members are replicas 1, 3, 4", "epoch 4: the members are replicas 1, 4"];
    ensure!(printed == expected, "{printed:?}");
    Ok("one joined, one left, one was lost".to_string())
}

fn members(status: &Value) -> Vec<u64> {
    let members = status["members"].as_array().into_iter().flatten();
    members.filter_map(|member| member["replica"].as_u64()).collect()
}

/// Waits until the status of a replica satisfies `is_so`.
fn wait(house: &House, index: usize, is_so: impl Fn(&Value) -> bool) -> Result<()> {
    let start = Instant::now();
    loop {
        let status: Value = serde_json::from_slice(&house.read(index, "status.json")?)?;
        if is_so(&status) {
            return Ok(());
        }
        ensure!(start.elapsed() < CHANGE, "replica {}: {status}", index + 1);
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Tests that a replica that is not a member refuses operations.
fn refused(house: &House, index: usize) -> Result<()> {
    let printed = house.ask(index, &["op", NAME, "append", "nothing"], "")?;
    ensure!(!printed.status.success(), "it was done: {}", String::from_utf8_lossy(&printed.stdout));
    let text = String::from_utf8_lossy(&printed.stderr);
    ensure!(text.contains("no member"), "{text}");
    Ok(())
}

/// Checks that the remaining members and the new one have every acknowledged operation once.
fn judge(house: &House, acked: &[Acked]) -> Result<()> {
    ensure!(acked.len() as u64 == OPERATIONS, "{} operations were answered", acked.len());
    house.settle(&[0, NEW])?;
    let first = house.read(0, "stable")?;
    ensure!(first == house.read(NEW, "stable")?, "the new one differs");
    let text = String::from_utf8(first).context("records are text")?;
    let mut places: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for (at, line) in text.lines().enumerate() {
        places.entry(serde_json::from_str(line)?).or_default().push(at as u64);
    }
    for ack in acked {
        let at = places.get(&ack.record).map(Vec::as_slice).unwrap_or_default();
        ensure!(at.len() == 1, "{} is there {} times", ack.record, at.len());
        ensure!(!ack.is_final || at[0] == ack.answer, "{} was reported as final", ack.record);
    }
    Ok(())
}
