//! The simulator's command line.
//!
//! | command | does |
//! |---|---|
//! | `run [SEED] [--runs N] [--seconds N] [--trace]` | runs seeds, by default 200 from 1 on |
//! | `SEED` | the same as `run SEED` |
//! | `determinism SEED` | runs a seed twice and compares the traces |
//! | `volume [SEED] [--runs N] [--seconds N]` | runs a store on a failing disk, 300 seeds |
//! | `joined [--seed SEED] [--runs N] [--seconds N] [--trace]` | runs a mux of servers, 40 seeds |
//! | `replicas [SEED] [--runs N] [--seconds N] [--trace]` | runs replicated services, 120 seeds |
//! | `storelets [SEED] [--runs N] [--seconds N] [--trace]` | runs storelets, 100 seeds |
//! | `canary` | plants errors and must detect each |
//! | `fuzz [NAME] [--seconds N] [--seed S]` | runs one fuzzer, or all |
//! | `smoke`, `fuzz smoke` | everything, briefly |
//!
//! The last line is the total: `N passed, N failed`; before it a failure prints a line to paste.

use sim::canary::{Mistake, hunt};
use sim::fuzz::{FUZZERS, Fails, Fuzzer, fuzz};
use sim::joined;
use sim::params::Params;
use sim::replicas;
use sim::run::{Outcome, attempt, run};
use sim::storelets;
use sim::trace::Show;
use sim::volume;
use sim::world::Totals;
use std::fmt::Debug;
use std::panic::{set_hook, take_hook};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

/// Default number of seeds of a run.
const RUNS: u64 = 200;
/// Default number of seeds of a run of volumes.
const VOLUMES: u64 = 300;
/// Default number of seeds of a run of joined servers.
const JOINED: u64 = 40;
/// Default number of seeds of a run of replicated services.
const REPLICAS: u64 = 120;
/// Default number of seeds of a run of storelets.
const STORELETS: u64 = 100;
/// Maximum time of one world in the smoke test, seconds.
const SMOKE: u64 = 8;
/// Number of seeds within which a canary must be detected.
const CANARY_SEEDS: u64 = 20;
/// Number of seeds within which a canary in the store must be detected.
const VOLUME_CANARY_SEEDS: u64 = 200;

/// Flags and positional arguments.
#[derive(Debug, Default)]
struct Options {
    words: Vec<String>,
    runs: Option<u64>,
    seconds: Option<u64>,
    seed: Option<u64>,
    trace: bool,
}

fn main() -> ExitCode {
    let result = options().and_then(|options| command(&options));
    match result {
        Ok((passed, failed)) => {
            println!("{passed} passed, {failed} failed");
            if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(message) => {
            eprintln!("sim: {message}");
            ExitCode::from(2)
        }
    }
}

fn options() -> Result<Options, String> {
    let mut options = Options::default();
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut number = || {
            let value = args.next().and_then(|value| value.parse().ok());
            value.map(Some).ok_or(format!("{arg} needs a number"))
        };
        match &*arg {
            "--runs" => options.runs = number()?,
            "--seconds" => options.seconds = number()?,
            "--seed" => options.seed = number()?,
            "--trace" => options.trace = true,
            flag if flag.starts_with("--") => return Err(format!("there is no flag {flag}")),
            _ => options.words.push(arg),
        }
    }
    Ok(options)
}

fn command(options: &Options) -> Result<(u64, u64), String> {
    let words: Vec<&str> = options.words.iter().map(String::as_str).collect();
    let seed = |text: &str| text.parse::<u64>().map_err(|_| format!("{text} is no seed"));
    Ok(match words[..] {
        [] | ["run"] => runs(options, 1, options.runs.unwrap_or(RUNS)),
        ["run", first] => runs(options, seed(first)?, options.runs.unwrap_or(1)),
        ["volume"] => volumes(options, 1, options.runs.unwrap_or(VOLUMES)),
        ["volume", first] => volumes(options, seed(first)?, options.runs.unwrap_or(1)),
        ["joined"] => {
            let count = if options.seed.is_some() { 1 } else { JOINED };
            joins(options, options.seed.unwrap_or(1), options.runs.unwrap_or(count))
        }
        ["joined", first] => joins(options, seed(first)?, options.runs.unwrap_or(1)),
        ["replicas"] => replica_runs(options, 1, options.runs.unwrap_or(REPLICAS)),
        ["replicas", first] => replica_runs(options, seed(first)?, options.runs.unwrap_or(1)),
        ["storelets"] => storelet_runs(options, 1, options.runs.unwrap_or(STORELETS)),
        ["storelets", first] => storelet_runs(options, seed(first)?, options.runs.unwrap_or(1)),
        ["determinism", first] => determinism(seed(first)?),
        ["determinism"] => determinism(1),
        ["canary"] => canary(),
        ["fuzz"] => fuzzers(options, None)?,
        ["fuzz", "smoke"] => fuzzers(&Options { seconds: Some(1), ..Options::default() }, None)?,
        ["fuzz", name] => fuzzers(options, Some(name))?,
        ["fuzz", name, first] => {
            let seed = Some(seed(first)?);
            fuzzers(&Options { seed, seconds: options.seconds, ..Options::default() }, Some(name))?
        }
        ["smoke"] => smoke()?,
        ["smoke", "one"] => {
            let limited = Options { seconds: Some(SMOKE), ..Options::default() };
            let parts = [
                runs(&limited, 1, RUNS),
                volumes(&limited, 1, VOLUMES),
                joins(&limited, 1, JOINED),
            ];
            sum(&parts)
        }
        ["smoke", "two"] => {
            let limited = Options { seconds: Some(SMOKE), ..Options::default() };
            let parts = [
                storelet_runs(&limited, 1, STORELETS),
                replica_runs(&limited, 1, REPLICAS),
                determinism(1),
                canary(),
            ];
            sum(&parts)
        }
        [first] => runs(options, seed(first)?, options.runs.unwrap_or(1)),
        _ => {
            let worlds = "run | volume | joined | replicas | storelets";
            return Err(format!("{worlds} | determinism | canary | fuzz | smoke; see main.rs"));
        }
    })
}

#[allow(clippy::disallowed_methods, reason = "how long a person waits is measured by their clock")]
fn clock() -> Instant {
    Instant::now()
}

fn sum(parts: &[(u64, u64)]) -> (u64, u64) {
    parts.iter().fold((0, 0), |sum, part| (sum.0 + part.0, sum.1 + part.1))
}

/// Runs everything briefly: in two processes, because most machines have two processors, and the
/// panic hook is global to a process.
fn smoke() -> Result<(u64, u64), String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let part = &|name: &str| Command::new(&program).args(["smoke", name]).output();
    let parts = std::thread::scope(|scope| {
        let both = ["one", "two"].map(|name| scope.spawn(move || part(name)));
        both.map(|part| part.join().expect("waiting does not panic"))
    });
    let mut sums = Vec::new();
    for output in parts {
        let output = output.map_err(|error| error.to_string())?;
        let outputs = String::from_utf8_lossy(&output.stdout);
        let (last, before) = match outputs.trim_end().rsplit_once('\n') {
            Some((before, last)) => (last, before),
            None => (outputs.trim_end(), ""),
        };
        println!("{before}");
        eprint!("{}", String::from_utf8_lossy(&output.stderr));
        let figures = last.strip_suffix(" failed").and_then(|it| it.split_once(" passed, "));
        let figures = figures.and_then(|(good, bad)| Some((good.parse().ok()?, bad.parse().ok()?)));
        sums.push(figures.ok_or_else(|| format!("a half of it ended with {}", output.status))?);
    }
    Ok(sum(&sums))
}

fn within(since: Instant, seconds: Option<u64>) -> bool {
    seconds.is_none_or(|seconds| clock().duration_since(since) < Duration::from_secs(seconds))
}

fn runs(options: &Options, first: u64, count: u64) -> (u64, u64) {
    let (mut passed, mut failed) = (0, 0);
    let started = clock();
    let show = if options.trace { Show::Print } else { Show::Hash };
    for seed in (first..).take(usize::try_from(count).unwrap_or(usize::MAX)) {
        if !within(started, options.seconds) {
            break;
        }
        let params = Params::draw(seed);
        println!("seed {seed}: {params:?}");
        match attempt(|| run(params, show)) {
            Ok(outcome) => {
                let totals = outcome.totals;
                println!(
                    "seed {seed}: {:.3} s, {} events, {} requests, {} faults, {} bytes, \
                     {} refusals by quotas, {} audits, {} growths, {} power failures, {:016x}",
                    outcome.took.as_secs_f64(),
                    totals.events,
                    totals.requests,
                    totals.faults,
                    totals.bytes,
                    totals.refusals,
                    totals.audits,
                    totals.growths,
                    totals.failures,
                    outcome.hash
                );
                passed += 1;
            }
            Err(what) => {
                println!("seed {seed} failed: {what}\ncargo xtask sim {seed}");
                failed += 1;
            }
        }
    }
    (passed, failed)
}

fn volumes(options: &Options, first: u64, count: u64) -> (u64, u64) {
    let (mut passed, mut failed) = (0, 0);
    let started = clock();
    let mut sum = volume::Outcome::default();
    for seed in (first..).take(usize::try_from(count).unwrap_or(usize::MAX)) {
        if !within(started, options.seconds) {
            break;
        }
        let params = volume::Params::draw(seed);
        if count == 1 || options.trace {
            println!("volume {seed}: {params:?}");
        }
        match attempt(|| volume::run(&params)) {
            Ok(outcome) => {
                passed += 1;
                sum.commits += outcome.commits;
                sum.growths += outcome.growths;
                sum.rollbacks += outcome.rollbacks;
                sum.crashes += outcome.crashes;
                sum.faults += outcome.faults;
                sum.lost += outcome.lost;
                sum.hash = sum.hash.rotate_left(1) ^ outcome.hash;
            }
            Err(what) => {
                println!("volume {seed}: {params:?}");
                let what: String = what.chars().take(300).collect();
                println!("volume {seed} failed: {what}\ncargo xtask sim volume {seed}");
                failed += 1;
            }
        }
    }
    let volume::Outcome { commits, growths, rollbacks, crashes, faults, lost, hash } = sum;
    println!(
        "volumes: {passed} seeds from {first} on, {commits} transactions, {growths} growths, \
         {rollbacks} rollbacks, {crashes} crashes, {faults} faults of the disk, \
         {lost} volumes spoilt by it, {hash:016x}"
    );
    (passed, failed)
}

fn joins(options: &Options, first: u64, count: u64) -> (u64, u64) {
    let one = |seed, show| {
        let params = joined::Params::draw(seed);
        (format!("{params:?}"), move || joined::run(&params, show))
    };
    scenario(options, ("joined", "requests"), (first, count), one)
}

fn storelet_runs(options: &Options, first: u64, count: u64) -> (u64, u64) {
    let one = |seed, show| {
        let params = storelets::Params::draw(seed);
        (format!("{params:?}"), move || storelets::run(&params, show))
    };
    scenario(options, ("storelets", "storelets"), (first, count), one)
}

fn replica_runs(options: &Options, first: u64, count: u64) -> (u64, u64) {
    let one = |seed, show| {
        let params = replicas::Params::draw(seed);
        (format!("{params:?}"), move || replicas::run(&params, show))
    };
    scenario(options, ("replicas", "answers"), (first, count), one)
}

/// Runs a scenario with many seeds. `one` returns the description of a seed's parameters, and a
/// function that runs it.
fn scenario<R: FnOnce() -> Outcome>(
    options: &Options,
    (name, what): (&str, &str),
    (first, count): (u64, u64),
    one: impl Fn(u64, Show) -> (String, R),
) -> (u64, u64) {
    let (mut passed, mut failed) = (0, 0);
    let started = clock();
    let show = if options.trace { Show::Print } else { Show::Hash };
    let (mut sum, mut hash) = (Totals::default(), 0u64);
    for seed in (first..).take(usize::try_from(count).unwrap_or(usize::MAX)) {
        if !within(started, options.seconds) {
            break;
        }
        let (params, run) = one(seed, show);
        if count == 1 || options.trace {
            println!("{name} {seed}: {params}");
        }
        match attempt(run) {
            Ok(outcome) => {
                passed += 1;
                sum.events += outcome.totals.events;
                sum.requests += outcome.totals.requests;
                sum.faults += outcome.totals.faults;
                sum.replayed += outcome.totals.replayed;
                sum.bounded_sums += outcome.totals.bounded_sums;
                hash = hash.rotate_left(1) ^ outcome.hash;
            }
            Err(why) => {
                println!("{name} {seed}: {params}");
                let why: String = why.chars().take(1000).collect();
                println!("{name} {seed} failed: {why}\ncargo xtask sim {name} {seed}");
                failed += 1;
            }
        }
    }
    let Totals { events, requests, faults, bounded_sums, replayed, .. } = sum;
    println!(
        "{name}: {passed} seeds from {first} on, {events} events, {requests} {what}, {faults} \
         faults, {hash:016x}"
    );
    if replayed > 0 {
        println!("{name}: {replayed} final replies compared with the replay of their order");
    }
    if bounded_sums > 0 {
        println!("{name}: the sums of {bounded_sums} runs were held to bounds only");
    }
    (passed, failed)
}

fn determinism(seed: u64) -> (u64, u64) {
    let once = || attempt(|| run(Params::draw(seed), Show::Keep));
    match (once(), once()) {
        (Ok(one), Ok(two)) if one.trace == two.trace && one.hash == two.hash => {
            println!("seed {seed} twice: the same {} bytes of trace", one.trace.len());
            (1, 0)
        }
        (Ok(one), Ok(two)) => {
            let pairs = one.trace.lines().zip(two.trace.lines());
            let (number, lines) = pairs.enumerate().find(|(_, (a, b))| a != b).unwrap_or_default();
            println!("seed {seed} twice, line {number}:\n{}\n{}", lines.0, lines.1);
            (0, 1)
        }
        (one, two) => {
            println!("seed {seed} failed: {:?} {:?}", one.err(), two.err());
            (0, 1)
        }
    }
}

/// Runs a function that is expected to panic, without the panic message.
fn quietly<T>(work: impl FnOnce() -> T) -> T {
    let hook = take_hook();
    set_hook(Box::new(|_| {}));
    let result = work();
    set_hook(hook);
    result
}

fn canary() -> (u64, u64) {
    let parts = [
        hunts("seed ", &Mistake::ALL, CANARY_SEEDS, hunt),
        hunts("volume ", &volume::canary::Mistake::ALL, VOLUME_CANARY_SEEDS, volume::canary::hunt),
        hunts("joined ", &joined::canary::Mistake::ALL, CANARY_SEEDS, joined::hunt::hunt),
        hunts("replicas ", &replicas::canary::Mistake::ALL, CANARY_SEEDS, replicas::hunt::hunt),
        hunts("storelets ", &storelets::canary::Mistake::ALL, CANARY_SEEDS, storelets::hunt::hunt),
    ];
    sum(&parts)
}

/// Searches for each of these planted errors in a world, with this number of seeds.
fn hunts<M: Copy + Debug>(
    world: &str,
    mistakes: &[M],
    seeds: u64,
    hunt: fn(M, u64) -> Option<(u64, String)>,
) -> (u64, u64) {
    let (mut passed, mut failed) = (0, 0);
    for mistake in mistakes {
        match quietly(|| hunt(*mistake, seeds)) {
            Some((seed, what)) => {
                let line: String = what.chars().take(100).collect();
                println!("canary {mistake:?}: found by {world}{seed}: {line}");
                passed += 1;
            }
            None => {
                println!("canary {mistake:?}: NOT found within {seeds} seeds");
                failed += 1;
            }
        }
    }
    (passed, failed)
}

fn fuzzers(options: &Options, name: Option<&str>) -> Result<(u64, u64), String> {
    let chosen = FUZZERS.iter().filter(|fuzzer| name.is_none_or(|name| fuzzer.name == name));
    let chosen: Vec<&Fuzzer> = chosen.collect();
    if chosen.is_empty() {
        let names: Vec<&str> = FUZZERS.iter().map(|fuzzer| fuzzer.name).collect();
        return Err(format!("there is no such fuzzer; there are {}", names.join(", ")));
    }
    let (mut passed, mut failed) = (0, 0);
    let first = options.seed.unwrap_or(1);
    // A pasted seed is one case; the default is a few seconds.
    let only = (options.seed.is_some() && options.seconds.is_none()).then_some(1);
    let seconds = Some(options.seconds.unwrap_or(5));
    for fuzzer in chosen {
        let started = clock();
        let go_on = |cases| only.is_none_or(|most| cases < most) && within(started, seconds);
        let must_fail = fuzzer.fails == Fails::Always;
        let verdict = match must_fail {
            true => quietly(|| fuzz(fuzzer, first, go_on)),
            false => fuzz(fuzzer, first, go_on),
        };
        let Fuzzer { name, about, .. } = fuzzer;
        println!("fuzz {name}: {} cases: {about}", verdict.cases);
        match (verdict.failed, must_fail) {
            (None, false) | (Some(_), true) => passed += 1,
            (None, true) => {
                println!("fuzz {name}: did not fail, but must");
                failed += 1;
            }
            (Some(seed), false) => {
                println!("fuzz {name} failed\ncargo xtask fuzz {name} {seed}");
                failed += 1;
            }
        }
    }
    Ok((passed, failed))
}
