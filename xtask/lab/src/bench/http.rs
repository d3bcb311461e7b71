//! Static files over HTTP, fetched by wrk.

use super::{Plan, Row, measure, start};
use anyhow::{Context, Result, ensure};
use rig::machine::core;
use rig::server::{Kind, Server};
use rig::sh;
use std::time::Duration;

const SIZES: [(&str, usize); 4] =
    [("1 KB", 1_000), ("10 KB", 10_000), ("100 KB", 100_000), ("1 MB", 1_000_000)];
const CONNECTIONS: [u32; 3] = [1, 64, 1000];

/// Runs the benchmark.
pub(crate) fn run(plan: &Plan) -> Result<Vec<Row>> {
    let dir = sh::empty("bench/http")?;
    for (name, bytes) in SIZES {
        std::fs::write(dir.join(file(name)), vec![b'h'; bytes])?;
    }
    let servers = start(plan, Kind::Nginx, &dir, &[])?;
    let mut rows = Vec::new();
    for (size, _) in SIZES {
        for connections in CONNECTIONS {
            let work = format!("{size}, {connections} connections");
            rows.push(measure(plan, &work, &servers, |server, time| {
                wrk(server, &file(size), connections, time)
            })?);
        }
    }
    Ok(rows)
}

fn file(size: &str) -> String {
    format!("{}.txt", size.replace(' ', ""))
}

/// Runs wrk and returns the number of responses. An error or a status other than 200 is a failure.
fn wrk(server: &Server, file: &str, connections: u32, time: Duration) -> Result<u64> {
    // wrk accepts whole seconds only.
    let seconds = time.as_secs().max(1);
    let url = format!("http://127.0.0.1:{}/{file}", server.http);
    let mut words = vec!["wrk".to_owned(), "-t1".into(), format!("-c{connections}")];
    words.extend([format!("-d{seconds}s"), "--timeout".into(), "8s".into(), url]);
    if let Some(core) = core(1) {
        words.splice(0..0, ["taskset".into(), "-c".into(), core.to_string()]);
    }
    let text = sh::read(&mut sh::cmd(&words[0], &words[1..]))?;
    ensure!(!text.contains("Non-2xx"), "{text}");
    ensure!(!text.contains("Socket errors"), "{text}");
    let line =
        text.lines().find(|line| line.contains(" requests in ")).context("no output from wrk")?;
    Ok(line.split_whitespace().next().context("a count")?.parse()?)
}
