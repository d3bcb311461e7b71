//! `cargo xtask fuzz --guided [NAME] [--seconds N]`: coverage-guided fuzzing.
//!
//! The fuzzers are those of `crates/sim/src/fuzz.rs`; libFuzzer chooses the numbers that a case
//! draws. Only the crates of the workspace are built with its coverage counters, so the build takes
//! a minute after `cargo build`. Interesting inputs stay in `target/guided/corpus/NAME`, from which
//! the next run starts; inputs of failed cases are in `target/guided/failed/NAME`.

use anyhow::{Context as _, Result, bail, ensure};
use rig::{apt, sh};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// Compiler flags: edge counters, a table of program counters, and operands of comparisons.
const COUNTERS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
                        -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
                        -Cllvm-args=-sanitizer-coverage-pc-table \
                        -Cllvm-args=-sanitizer-coverage-trace-compares";

/// Default duration of each fuzzer, seconds.
const SECONDS: u64 = 60;

/// Maximum size of a case, bytes: each draws one or two, most cases some hundred.
const CASE_MAX: usize = 8192;

/// Environment variable with the name of the fuzzer.
const NAME: &str = "UPCALL_FUZZER";

/// Suffix of the names of fuzzers that must find a planted error.
const CANARY: &str = "canary";

/// Runs the command. Returns whether only planted errors were found.
pub(crate) fn main(args: &[String]) -> Result<bool> {
    let (mut only, mut seconds) = (None, SECONDS);
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--seconds" => {
                let number = args.next().context("write --seconds N")?;
                seconds = number.parse().context("write --seconds N")?;
            }
            name if !name.starts_with('-') => only = Some(name),
            other => bail!("{other}: write cargo xtask fuzz --guided [NAME] [--seconds N]"),
        }
    }
    apt::need(&[apt::GUIDED])?;
    let program = build()?;
    let all = sh::read(sh::cmd(&program.display().to_string(), &["-help=1"]).env(NAME, "list"))?;
    let names: Vec<&str> =
        all.lines().filter(|name| only.is_none_or(|only| only == *name)).collect();
    ensure!(
        !names.is_empty(),
        "there is no such fuzzer; there are {}",
        all.trim().replace('\n', ", ")
    );
    let mut is_good = true;
    for name in names {
        let run = run(&program, name, seconds)?;
        println!("guided {name}: {}", run.printed);
        let wanted = name.ends_with(CANARY);
        if run.failed != wanted {
            is_good = false;
            match wanted {
                true => println!("guided {name}: did not find its mistake"),
                false => println!("guided {name}: failed; see {}", run.log.display()),
            }
        }
    }
    Ok(is_good)
}

/// Builds the program with counters.
fn build() -> Result<PathBuf> {
    let dir = sh::scratch("guided")?;
    // Wrapper for the workspace's own crates only: the flags of other crates stay the same, so
    // those are not rebuilt.
    let compiler = dir.join("rustc.sh");
    std::fs::write(&compiler, format!("#!/bin/sh\nexec \"$@\" {COUNTERS}\n"))?;
    std::fs::set_permissions(&compiler, std::fs::Permissions::from_mode(0o755))?;
    let mut cargo = sh::cargo(&["build", "-p", "sim", "--features", "guided", "--bin", "guided"]);
    sh::run(cargo.env("RUSTC_WORKSPACE_WRAPPER", compiler.canonicalize()?))?;
    Ok(sh::target().join("debug/guided"))
}

/// Result of a fuzzer.
struct Run {
    failed: bool,
    /// Number of cases, and coverage.
    printed: String,
    log: PathBuf,
}

fn run(program: &Path, name: &str, seconds: u64) -> Result<Run> {
    let corpus = sh::scratch(&format!("guided/corpus/{name}"))?;
    let failed = sh::scratch(&format!("guided/failed/{name}"))?;
    let log = sh::target().join(format!("guided/{name}.log"));
    let mut command = sh::cmd(&program.display().to_string(), &[corpus.canonicalize()?]);
    command
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-max_len={CASE_MAX}"))
        .arg(format!("-artifact_prefix={}/", failed.canonicalize()?.display()))
        .args(["-timeout=20", "-rss_limit_mb=4096", "-use_value_profile=1"])
        .env(NAME, name)
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(&log)?);
    let status = command.status().context("start the fuzzer")?;
    let text = String::from_utf8_lossy(&std::fs::read(&log)?).into_owned();
    let last = text.lines().rev().find(|line| line.contains(" cov: "));
    let printed = last.map_or("nothing was run", |line| line.trim_start_matches('#'));
    Ok(Run { failed: !status.success(), printed: printed.replace('\t', " "), log })
}
