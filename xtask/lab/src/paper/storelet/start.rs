//! Start-up time of a storelet, and the cost of its code relative to native code.

use super::{Lab, seconds, spread, wasm};
use crate::bench::table::median;
use anyhow::{Context, Result, ensure};
use rig::server::{Server, binary};
use rig::{guests, sh};
use serde_json::Value;
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

/// Goal: time from the request to the first instruction of a cached module, µs.
const START_US: f64 = 200.0;

/// Modules started, with their arguments: small, in Go, and large.
const STARTED: [(&str, &str); 3] = [("find", "/"), ("sums", "/"), ("rg", "--version")];

/// Programs compared with their native builds, and their arguments.
const COMPARED: [(&str, &[&str]); 3] =
    [("wc", &["."]), ("rg", &["-c", "-j1", "--no-ignore", "the", "."]), ("sums", &["."])];

/// Measures and writes the section.
pub(super) fn measure(lab: &mut Lab) -> Result<()> {
    let tree = rig::linux::source()?;
    let empty = lab.base.join("empty");
    std::fs::create_dir_all(&empty)?;
    starts(lab, &empty)?;
    compared(lab, &tree)
}

fn starts(lab: &mut Lab, dir: &Path) -> Result<()> {
    // The cache of this server is empty.
    let server = lab.serve_with("cache-of-starts", dir, None)?;
    lab.text += "\n## Start\n\nFrom the request to the first instruction, as the server reports \
                 it, one after the other; the module is known but for the first time, when it is \
                 compiled: processor time of that. *Client* \
                 is the whole of `upcall run`, a process of its own.\n\n\
                 | program | compiled once in | start, median | p99 | client, median |\n\
                 |---|--:|--:|--:|--:|\n";
    let mut medians = Vec::new();
    for (name, arg) in STARTED {
        lab.tell(&format!("starts of {name}"));
        let first = once(&server, name, &[arg])?;
        let (mut waited, mut clients) = (Vec::new(), Vec::new());
        for _ in 0..lab.of(500, 50) {
            let ran = once(&server, name, &[arg])?;
            waited.push(get(&ran.report, "waited_ns") / 1e3);
            clients.push(ran.seconds);
        }
        let middle = median(waited.iter().copied());
        waited.sort_by(f64::total_cmp);
        let p99 = waited[waited.len() * 99 / 100];
        let _ = writeln!(
            lab.text,
            "| {name} | {} s | {middle:.0} µs | {p99:.0} µs | {} s |",
            seconds(get(&first.report, "compile_ns") / 1e9),
            seconds(median(clients.iter().copied())),
        );
        medians.push((name, middle, p99));
    }
    lab.text.push('\n');
    for (name, middle, p99) in medians {
        let goal = format!("{name} begins within {START_US:.0} µs");
        let got = format!("{middle:.0} µs, p99 {p99:.0} µs");
        lab.goal(&goal, &got, middle <= START_US);
    }
    Ok(())
}

fn compared(lab: &mut Lab, tree: &Path) -> Result<()> {
    let server = lab.serve(tree, None)?;
    lab.text += "\n## The same source, native\n\nOver Linux's source in the page cache, one \
                 thread each, in turn: wall clock of native code on the host's files, and of the \
                 storelet, seconds. *Of that* is its processor time and what the server spent \
                 for it.\n\n| program | native | storelet | native : storelet | of that |\n\
                 |---|--:|--:|--:|--:|\n";
    for (name, args) in COMPARED {
        lab.tell(&format!("{name} and native"));
        let program = guests::native(name)?.display().to_string();
        let (mut natives, mut owns, mut cpu) = (Vec::new(), Vec::new(), Vec::new());
        // The first round is a warm-up: it reads files into the page cache.
        for round in 0..=lab.of(3, 1) {
            let begun = Instant::now();
            let mut command = sh::cmd(&program, args);
            let printed = command.current_dir(tree).output().context("start it")?.stdout;
            let native = begun.elapsed().as_secs_f64();
            let own = once(&server, name, args)?;
            same(name, &printed, &own.printed)?;
            if round > 0 {
                natives.push(native);
                owns.push(own.seconds);
                cpu.push((get(&own.report, "cpu_ns") / 1e9, get(&own.report, "served_ns") / 1e9));
            }
        }
        let ratios: Vec<f64> = natives.iter().zip(&owns).map(|(n, o)| n / o).collect();
        let _ = writeln!(
            lab.text,
            "| {name} | {} | {} | {} | {} and {} |",
            spread(&natives, &seconds),
            spread(&owns, &seconds),
            spread(&ratios, &|ratio| format!("{ratio:.2}")),
            seconds(median(cpu.iter().map(|cpu| cpu.0))),
            seconds(median(cpu.iter().map(|cpu| cpu.1))),
        );
    }
    Ok(())
}

/// Checks that both printed the same lines, in any order.
fn same(name: &str, native: &[u8], own: &[u8]) -> Result<()> {
    let lines = |printed: &[u8]| {
        let text = String::from_utf8_lossy(printed);
        let mut lines: Vec<String> = text.lines().map(Into::into).collect();
        lines.sort_unstable();
        lines
    };
    let (native, own) = (lines(native), lines(own));
    let at = native.iter().zip(&own).position(|(native, own)| native != own);
    ensure!(
        at.is_none() && native.len() == own.len(),
        "{name}: native {:?}, storelet {:?}",
        at.map(|at| &native[at]),
        at.map(|at| &own[at])
    );
    Ok(())
}

/// Result of a run.
struct Ran {
    seconds: f64,
    report: Value,
    printed: Vec<u8>,
}

fn once(server: &Server, name: &str, args: &[&str]) -> Result<Ran> {
    let mut command = Command::new(binary());
    command.args(["run", &format!("127.0.0.1:{}", server.ninep), "--json"]);
    command.args(["--cpu", "10m", "--time", "20m"]).arg(wasm(name)).arg("--").args(args);
    let begun = Instant::now();
    let output = command.stdin(Stdio::null()).output().context("start upcall run")?;
    let seconds = begun.elapsed().as_secs_f64();
    let printed = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{name} ended with {}: {printed}", output.status);
    let report = printed.lines().rfind(|line| line.starts_with('{')).context("no report")?;
    Ok(Ran { seconds, report: serde_json::from_str(report)?, printed: output.stdout })
}

fn get(report: &Value, name: &str) -> f64 {
    report[name].as_f64().unwrap_or(f64::NAN)
}
