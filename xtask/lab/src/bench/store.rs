//! The embedded library against redb, fjall, SQLite and RocksDB.
//!
//! The engines are in `benches/store`, a package outside of the workspace that is built only here.
//! Each round runs each engine in turn, alone on the machine; then all work that waits for flushes
//! again with every flush a millisecond longer (`benches/store/slow.c`, preloaded for each engine
//! in the same way).

use super::figures::{self, Figures};
use super::{Plan, record};
use anyhow::{Context, Result};
use rig::sh;
use std::path::{Path, PathBuf};

const ENGINES: [&str; 5] = ["upcall", "redb", "fjall", "sqlite", "rocksdb"];

/// Size of a million keys and values, bytes.
const LIVE: f64 = 124e6;

/// Runs the benchmark.
pub(crate) fn run(plan: &Plan) -> Result<String> {
    let (program, slow) = (built()?, slowed()?);
    let mut rows = Vec::new();
    let mut order: Vec<usize> = (0..ENGINES.len()).collect();
    for round in 1..=plan.rounds {
        for at in &order {
            eprintln!("   round {round}: {}", ENGINES[*at]);
            enter(&mut rows, *at, "", &once(plan, &program, ENGINES[*at], None)?);
            let text = once(plan, &program, ENGINES[*at], Some(&slow))?;
            enter(&mut rows, *at, ", flushes slowed by 1 ms", &text);
        }
        order.reverse();
    }
    let table = figures::markdown(&rows, &ENGINES);
    let method = format!(
        "{}; {}; {} rounds, {:.1} s for each piece of work, all engines in turn, order \
         alternating; not bound to processors. 1 GiB of memory for each; a million keys of 24 \
         bytes with incompressible values of 100. Figures are rates a second; space is in \
         multiples of what keys and values are ({:.0} MB), journals included (ours is a \
         ring of 32 MiB, which is 0.27), so there the smaller one is better.\n",
        rig::machine::describe(),
        versions(),
        plan.rounds,
        plan.time.as_secs_f64(),
        LIVE / 1e6,
    );
    Ok(format!("{method}\n{table}"))
}

/// Builds the engines' program. `rustix_use_libc`: our system calls go through libc too, where
/// `slow.c` intercepts them.
fn built() -> Result<PathBuf> {
    let target = sh::scratch("bench-store")?;
    println!("   building benches/store");
    let mut cargo = sh::cargo(&["build", "--release", "--quiet", "--locked"]);
    cargo.args(["--manifest-path", "benches/store/Cargo.toml", "--target-dir"]).arg(&target);
    sh::run(cargo.env("RUSTFLAGS", "--cfg rustix_use_libc"))?;
    Ok(target.join("release/bench-store"))
}

/// Builds the library that slows flushes.
fn slowed() -> Result<PathBuf> {
    let library = sh::scratch("bench-store")?.join("slow.so");
    let mut cc = sh::cmd("cc", &["-O2", "-Wall", "-shared", "-fPIC", "-o"]);
    sh::read(cc.arg(&library).args(["benches/store/slow.c", "-ldl"]))?;
    Ok(library)
}

/// Runs one engine's work in an empty directory.
fn once(plan: &Plan, program: &Path, engine: &str, slow: Option<&Path>) -> Result<String> {
    let dir = sh::empty("bench/store")?;
    super::settle()?;
    let mut command = sh::cmd(&program.display().to_string(), &[engine]);
    command.arg(&dir).arg(if slow.is_some() { "slow" } else { "normal" });
    command.arg(plan.time.as_secs_f64().to_string());
    if let Some(library) = slow {
        command.env("LD_PRELOAD", library);
    }
    let text = sh::read(&mut command).with_context(|| engine.to_owned());
    sh::empty("bench/store")?;
    text
}

/// Adds the figures in lines of `WORK<tab>FIGURE`.
fn enter(rows: &mut Vec<Figures>, engine: usize, suffix: &str, text: &str) {
    for (work, figure) in text.lines().filter_map(|line| line.split_once('\t')) {
        let Ok(figure) = figure.parse::<f64>() else { continue };
        if !suffix.is_empty() && !work.contains("durable commits") {
            continue;
        }
        let figure = if work.starts_with("space") { figure / LIVE } else { figure };
        let work = format!("{work}{suffix}");
        let at = rows.iter().position(|row| row.work == work).unwrap_or_else(|| {
            rows.push(Figures::new(&work, ENGINES.len()));
            rows.len() - 1
        });
        rows[at].samples[engine].push(figure);
    }
}

/// Returns the versions of the peers.
fn versions() -> String {
    let lock = sh::root().join("benches/store/Cargo.lock");
    let lock = std::fs::read_to_string(lock).unwrap_or_default();
    let version = |name: &str| {
        let start = lock.find(&format!("name = \"{name}\"\nversion = \""))?;
        lock[start..].split('"').nth(3).map(|version| format!("{name} {version}"))
    };
    let crates = ["redb", "fjall", "libsqlite3-sys"].into_iter().filter_map(version);
    let mut all: Vec<String> = crates.collect();
    all.push(record::packages(&["librocksdb-dev"]));
    all.join(", ")
}
