//! `cargo xtask hostile [--runs N] [--at-once N] [--server uring|threads]`: malicious storelets
//! against a running server.
//!
//! The modules are those of `crates/wasi/tests/hostile`, which declare their expected ends,
//! with the same small budgets. Many run concurrently, alternately by `upcall run` (9P) and by
//! `POST`, and every ninth client disconnects in the middle. Meanwhile others read files over 9P
//! and HTTP and verify every byte. At the end no other client has had an error, the server is
//! alive, and its memory and descriptors are those after a first round. Before that it gets modules
//! that are expensive to compile, while its compiler is monitored.
//!
//! CPU budgets are instructions in the tests and time here: modules that must end for another
//! reason get a larger one, for a busy machine. As a suite of `conformance` it is one round.

#[path = "../../../crates/upcall/tests/it/bombs.rs"]
#[allow(dead_code, reason = "its parts are for tests of the compiler alone")]
mod bombs;
mod compiler;
#[path = "../../../crates/wasi/tests/hostile/corpus.rs"]
mod corpus;
mod ground;
mod others;
mod run;

pub(crate) use bombs::slow;

use anyhow::{Context, Result, bail, ensure};
use ground::Ground;
use others::Others;
use rig::report::Report;
use rig::server::{self, Kind, Server};
use rig::{apt, sh};
use run::{Ran, Runs};
use std::time::{Duration, Instant};

/// Default number of concurrent runs.
const AT_ONCE: usize = 16;

/// Maximum memory at the end beyond that after the first round, KiB.
const KEPT_KIB_MAX: u64 = 16 << 10;

/// Timeout for memory and descriptors to return.
const SETTLE: Duration = Duration::from_secs(20);

/// Runs the command. Returns whether everything passed.
pub(crate) fn main(args: &[String]) -> Result<bool> {
    server::expect_measured()?;
    let (mut runs, mut at_once, mut kind) = (1000, AT_ONCE, Kind::Uring);
    let mut words = args.iter();
    while let Some(word) = words.next() {
        let value = words.next().map_or("", String::as_str);
        match word.as_str() {
            "--runs" => runs = value.parse().context("--runs: how many?")?,
            "--at-once" => at_once = value.parse().context("--at-once: how many?")?,
            "--server" => kind = Kind::named(value).context("--server: use uring or threads")?,
            other => bail!("no option {other}: there are --runs N, --at-once N, --server NAME"),
        }
    }
    ensure!(runs > 0 && at_once > 0, "nothing is run");
    apt::need(&[apt::CURL])?;
    server::build()?;
    let mut report = Report::default();
    report.stage("hostile programs", |report| attack(report, kind, runs, at_once));
    Ok(report.finish())
}

/// Runs the suite: one round of all modules.
pub(crate) fn suite(report: &mut Report, kind: Kind) -> Result<()> {
    if matches!(kind, Kind::Diod | Kind::Nginx) {
        report.skip("hostile", "only our own server runs programs");
        return Ok(());
    }
    attack(report, kind, 0, AT_ONCE)
}

/// Runs a first round of all modules, and then this number of runs.
fn attack(report: &mut Report, kind: Kind, count: usize, at_once: usize) -> Result<()> {
    let ground = Ground::new()?;
    let mut server = ground.serve(kind)?;
    let others = Others::begin(&server, &ground);
    report.case("hostile/compiling", || compiler::expensive(&server, &ground));
    let runs = Runs::new(&server, &ground)?;
    let all = runs.count();
    report.case("hostile/first_round", || judged(&runs.go(0..all, at_once)));
    if count > 0 {
        let before = Held::settled(&server)?;
        report.case("hostile/runs", || judged(&runs.go(all..all + count, at_once)));
        report.case("hostile/nothing_is_kept", || before.returned(&server));
    }
    report.case("hostile/others", || others.end());
    report.case("hostile/server_lives", || {
        ensure!(server.alive(), "the server died: {}", sh::tail(&server.printed(), 500));
        let none = ground.running(&server)?;
        ensure!(none.is_empty(), "programs are still there: {none:?}");
        let status = server.stop()?;
        ensure!(status == Some(0), "ended with {status:?}");
        Ok("SIGTERM ends it with 0".into())
    });
    Ok(())
}

/// Checks that all runs ended as expected.
fn judged(ran: &Ran) -> Result<String> {
    let shown = &ran.wrong[..ran.wrong.len().min(12)];
    ensure!(shown.is_empty(), "{} ended wrongly:\n{}", ran.wrong.len(), shown.join("\n"));
    Ok(format!(
        "{} ended as they must ({} by 9P, {} by HTTP), {} were left",
        ran.ninep + ran.http,
        ran.ninep,
        ran.http,
        ran.left
    ))
}

/// Resources held by a server.
#[derive(Clone, Copy, Debug)]
struct Held {
    kib: u64,
    descriptors: usize,
}

impl Held {
    fn of(server: &Server) -> Result<Held> {
        let list = std::fs::read_dir(format!("/proc/{}/fd", server.pid()))?;
        Ok(Held { kib: server.rss_kib(), descriptors: list.count() })
    }

    /// Returns the resources once they are unchanged for some seconds.
    fn settled(server: &Server) -> Result<Held> {
        let (begun, mut last, mut since) = (Instant::now(), Held::of(server)?, Instant::now());
        while begun.elapsed() < SETTLE && since.elapsed() < Duration::from_secs(4) {
            std::thread::sleep(Duration::from_millis(200));
            let now = Held::of(server)?;
            if now.descriptors != last.descriptors || now.kib.abs_diff(last.kib) > 512 {
                (last, since) = (now, Instant::now());
            }
        }
        Held::of(server)
    }

    /// Waits until the server holds no more than this.
    fn returned(self, server: &Server) -> Result<String> {
        let begun = Instant::now();
        loop {
            let now = Held::of(server)?;
            let more = now.kib.saturating_sub(self.kib);
            let reported = format!(
                "{} KiB more than {}, {} descriptors and {} before",
                more, self.kib, now.descriptors, self.descriptors
            );
            if more <= KEPT_KIB_MAX && now.descriptors <= self.descriptors {
                return Ok(reported);
            }
            ensure!(begun.elapsed() < SETTLE, "{reported}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}
