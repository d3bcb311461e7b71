//! Command line of the exhaustive checks and of the random runs of the paper's algorithms.
//!
//! | command | does |
//! |---|---|
//! | `states [WORD] [--states N]` | checks all states of each case whose name contains the word |
//! | `run [SEED] [--runs N]` | runs seeds, by default 10,000 from 1 on |
//! | `replicas [SEED] [--runs N]` | the same for the production replicas |
//! | `mistakes` | injects mistakes and must find each |
//! | `smoke` | all of it, briefly |
//!
//! The last line is the total: `N passed, N failed`. Before it, each failure prints a command that
//! reproduces it.

use model::exhaustive::{CASES, Case, STATES_MAX};
use model::replicas;
use model::service::random::{self, Mistake, Params};
use std::panic::{self, AssertUnwindSafe};
use std::process::ExitCode;
use std::time::Instant;

/// Default number of seeds.
const RUNS: u64 = 10_000;

/// Number of runs that must show every possible outcome.
const RUNS_TELLING: u64 = 400;

/// States of a case in a smoke test.
const STATES_SMOKE: usize = 100_000;

/// Random runs of each kind in a smoke test.
const RUNS_SMOKE: u64 = 400;

const _: () = assert!(RUNS_SMOKE >= RUNS_TELLING, "a smoke test judges what runs show");

/// Number of seeds within which a mistake must be found.
const MISTAKE_SEEDS: u64 = 200;

/// Passed and failed checks.
type Sum = (u64, u64);

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match command(&args) {
        Ok((passed, failed)) => {
            println!("{passed} passed, {failed} failed");
            if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(message) => {
            eprintln!("model: {message}");
            ExitCode::from(2)
        }
    }
}

fn command(args: &[String]) -> Result<Sum, String> {
    let mut words = Vec::new();
    let (mut count, mut rest) = (None, args.iter());
    while let Some(arg) = rest.next() {
        match &**arg {
            "--runs" | "--states" => {
                let number = rest.next().and_then(|value| value.parse().ok());
                count = Some(number.ok_or(format!("{arg} needs a number"))?);
            }
            flag if flag.starts_with("--") => return Err(format!("there is no flag {flag}")),
            word => words.push(word),
        }
    }
    let states = count.map_or(STATES_MAX, |count| usize::try_from(count).unwrap_or(usize::MAX));
    match words[..] {
        ["states"] => Ok(cases("", states)),
        ["states", word] => Ok(cases(word, states)),
        ["run"] => Ok(runs(1, count.unwrap_or(RUNS))),
        ["run", seed] => {
            let seed = seed.parse().map_err(|_| format!("{seed} is no seed"))?;
            Ok(runs(seed, count.unwrap_or(1)))
        }
        ["replicas"] => Ok(replica_runs(1, count.unwrap_or(RUNS))),
        ["replicas", seed] => {
            let seed = seed.parse().map_err(|_| format!("{seed} is no seed"))?;
            Ok(replica_runs(seed, count.unwrap_or(1)))
        }
        ["mistakes"] => Ok(mistakes()),
        ["smoke"] => {
            let runs = [runs(1, RUNS_SMOKE), replica_runs(1, RUNS_SMOKE)];
            Ok(sum([sum(runs), cases("", STATES_SMOKE), mistakes()]))
        }
        _ => {
            let usage = "model states [WORD] | run [SEED] | replicas [SEED] | mistakes | smoke";
            Err(format!("usage: {usage}"))
        }
    }
}

fn sum(sums: impl IntoIterator<Item = Sum>) -> Sum {
    sums.into_iter().fold((0, 0), |(passed, failed), (p, f)| (passed + p, failed + f))
}

fn cases(word: &str, states_max: usize) -> Sum {
    sum(CASES.iter().filter(|case| case.name.contains(word)).map(|case| look(case, states_max)))
}

fn look(case: &Case, states_max: usize) -> Sum {
    #[allow(clippy::disallowed_methods, reason = "a tool tells how long things take")]
    let begin = Instant::now();
    let verdict = (case.check)(states_max);
    let as_expected = match &verdict.violation {
        Some(violation) => case.wrong.iter().any(|wrong| violation.starts_with(wrong)),
        // Unreachability is known only after all states.
        None => {
            case.wrong.is_empty() && (verdict.reached == [case.reaches; 2] || !verdict.complete)
        }
    };
    let what = if verdict.violation.is_some() { "wrong" } else { "sound" };
    let all = match verdict.violation {
        Some(_) => "until",
        None if verdict.complete => "all",
        None => "some",
    };
    let (seconds, states) = (begin.elapsed().as_secs_f64(), verdict.states);
    println!("  {what:5} {:66} {all:5} {states:9} states {seconds:6.1} s", case.name);
    if as_expected {
        return (1, 0);
    }
    let violation = verdict.violation.unwrap_or_else(|| "not what was expected".into());
    println!("{violation}\nfailed; look again with: cargo xtask model states \"{}\"", case.name);
    (0, 1)
}

fn runs(first: u64, count: u64) -> Sum {
    let (mut passed, mut failed, mut steps, mut inconsistent, mut late) = (0, 0, 0, 0, 0);
    for seed in first..first.saturating_add(count) {
        let params = Params::draw(seed, None);
        match random::run(&params) {
            Ok(report) => {
                passed += 1;
                steps += report.steps;
                inconsistent += u64::from(report.inconsistent);
                late += u64::from(report.late);
            }
            Err(wrong) => {
                failed += 1;
                println!("{params:#?}\n{wrong}\nfailed; replay with: cargo xtask model run {seed}");
            }
        }
    }
    println!(
        "  {count} runs, {steps} steps; {inconsistent} with an answer that was not final, \
         {late} with a strict operation before one that was answered earlier"
    );
    shown(count, inconsistent > 0 && late > 0, (passed, failed))
}

/// Fails a sum if many runs did not show what is possible: they would prove nothing.
fn shown(runs: u64, shown: bool, (passed, failed): Sum) -> Sum {
    if shown || runs < RUNS_TELLING {
        return (passed, failed);
    }
    println!("a required state was never seen");
    (passed, failed + 1)
}

fn replica_runs(first: u64, count: u64) -> Sum {
    let (mut passed, mut failed, mut all) = (0, 0, replicas::Report::default());
    for seed in first..first.saturating_add(count) {
        let params = replicas::Params::draw(seed, None);
        match attempt(|| replicas::run(&params)) {
            Ok(report) => {
                passed += 1;
                all.add(report);
            }
            Err(wrong) => {
                failed += 1;
                let again = format!("cargo xtask model replicas {seed}");
                println!("{params:#?}\n{wrong}\nfailed; replay with: {again}");
            }
        }
    }
    let replicas::Report { events, answered, unanswered, inconsistent, .. } = all;
    let replicas::Report { crashes, epochs, removals, linear, .. } = all;
    println!(
        "  {count} runs, {events} events, {crashes} crashes, {epochs} times a replica \
         reached another membership, {removals} times one began to remove a silent member; \
         {answered} answers, {inconsistent} of them not final, {unanswered} refused or lost; \
         {linear} histories are linearizable"
    );
    let all = inconsistent > 0 && crashes > 0 && epochs > 0 && removals > 0;
    let all = all && unanswered > 0 && linear > 0;
    shown(count, all, (passed, failed))
}

fn mistakes() -> Sum {
    let of_paper = Mistake::ALL.map(|mistake| {
        hunt(&format!("{mistake:?}"), mistake.breaks(), |seed| {
            random::run(&Params::draw(seed, Some(mistake))).map(|_| ())
        })
    });
    let of_replicas = replicas::Mistake::ALL.map(|mistake| {
        hunt(&format!("{mistake:?}"), mistake.breaks(), |seed| {
            replicas::run(&replicas::Params::draw(seed, Some(mistake))).map(|_| ())
        })
    });
    sum(of_paper.into_iter().chain(of_replicas))
}

/// Searches for a seed that fails with one of these violations.
fn hunt(name: &str, breaks: &[&str], run: impl Fn(u64) -> Result<(), String>) -> Sum {
    let find = |seed| {
        let wrong = attempt(|| run(seed)).err()?;
        breaks.iter().any(|breaks| wrong.starts_with(breaks)).then_some((seed, wrong))
    };
    match (1..=MISTAKE_SEEDS).find_map(find) {
        Some((seed, wrong)) => {
            println!("  found {name} with seed {seed}: {wrong}");
            (1, 0)
        }
        None => {
            println!("  {name} was not found within {MISTAKE_SEEDS} seeds");
            (0, 1)
        }
    }
}

/// Runs a function; a failed assertion becomes its error.
fn attempt<T>(run: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    let usual = panic::take_hook();
    panic::set_hook(Box::new(|_| {}));
    let result = panic::catch_unwind(AssertUnwindSafe(run));
    panic::set_hook(usual);
    result.unwrap_or_else(|payload| {
        let text = payload.downcast_ref::<String>().cloned();
        let text = text.or_else(|| payload.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(text.unwrap_or_else(|| "it panicked".into()))
    })
}
