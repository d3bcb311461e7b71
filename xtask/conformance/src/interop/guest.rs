//! Linux as the client: one virtual machine mounts each server in turn, in both dialects.

use super::{Client, Dialect, Entry, NESTED, Row, Running, Setup, Step};
use anyhow::{Context, Result};
use rig::sh;
use rig::vm::Job;
use std::fmt::Write as _;

const SCRIPT: &str = include_str!("guest.sh");

/// Runs all pairs with Linux, and returns its release.
pub(super) fn run(setup: &Setup) -> Result<(Vec<Entry>, String)> {
    let mut pairs: Vec<(Row, Client, Running)> = Vec::new();
    let mut script = SCRIPT.to_owned();
    for row in setup.rows() {
        for client in Client::ALL.into_iter().filter(|client| client.in_guest()) {
            let running = setup.start(row, client)?;
            let options = options(client, &running);
            let (base, timeout) = (running.base, running.timeout);
            writeln!(script, "pair {} {options} {timeout} '{base}'", pairs.len())?;
            pairs.push((row, client, running));
        }
    }
    let job = Job::new("interop", &script)?;
    let dir = &setup.ground.dir;
    job.file("written", &std::fs::read(setup.ground.written())?)?;
    job.file("nested", NESTED.as_bytes())?;
    for (name, path) in [("big.md5", "big"), ("deep.md5", NESTED)] {
        let sum = sh::read(sh::cmd("md5sum", &["--"]).arg(dir.join(path)))?;
        job.file(name, sum.split(' ').next().unwrap_or_default().as_bytes())?;
    }
    let printed = job.run()?;
    let release = printed.lines().find(|line| line.contains("@booted "));
    let release = release.and_then(|line| line.split(" ").last()).context("no release")?;
    let entries = pairs.into_iter().enumerate().map(|(number, (row, client, mut running))| {
        let mark = format!("@{number} ");
        let steps: Vec<_> =
            printed.lines().filter_map(|line| Step::parse(line.strip_prefix(&mark)?)).collect();
        let id = format!("linux-{number}");
        (row, client, setup.cell((row, client), &id, &steps, &mut running))
    });
    Ok((entries.collect(), release.to_owned()))
}

fn options(client: Client, running: &Running) -> String {
    let (port, aname) = (running.port, &running.aname);
    let version = match client.dialect() {
        Dialect::Linux => "9p2000.L,access=user,cache=none",
        Dialect::Plan9 => "9p2000,access=any,uname=root,cache=none",
    };
    let aname = if aname.is_empty() { String::new() } else { format!(",aname={aname}") };
    format!("trans=tcp,port={port},msize=131072,version={version}{aname}")
}
