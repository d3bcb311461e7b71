//! Hostile modules, each with a small budget.
//!
//! `hostile/corpus.rs` describes them and the required outcomes. After each, every node and open
//! file must be released, and memory, requests and output within the budget: the driver checks
//! that.

#[path = "hostile/corpus.rs"]
mod corpus;
mod support;

use base::Kind;
use corpus::{Case, End, Limits, TIGHT, What};
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use support::drive::{self, Run, Session};
use support::ram::Ram;
use wasi::{Budget, Ended, Engine, Pace, Reason};

/// Length of a slice by time.
const TICK: Duration = Duration::from_millis(1);

fn budget(limits: Limits) -> Budget {
    Budget {
        cpu_ns: limits.cpu_ns,
        fuel: u64::MAX,
        time_ns: limits.time_ns,
        memory: limits.memory,
        table: limits.table,
        operations: limits.operations,
        bytes: limits.bytes,
        output: limits.output,
        files: limits.files,
    }
}

fn run(case: &Case, engine: &Engine, clock: Option<fn() -> u64>) -> Option<Run> {
    let program = engine.compile(&module(case)).ok()?;
    let session = Session {
        budget: budget(case.limits),
        writes: case.writes,
        clock,
        ..Session::new(&["guest", "argument"])
    };
    Some(drive::run(&mut tree(), &program, &session))
}

fn module(case: &Case) -> Vec<u8> {
    wat::parse_str(&case.text).unwrap_or_else(|error| panic!("{}: {error}", case.name))
}

/// Returns whether a run has the required outcome.
fn is_right(case: &Case, run: Option<&Run>) -> bool {
    let Some(run) = run else { return End::Refused.is(&case.must, "") };
    let end = match &run.ended {
        Ended::Killed(reason) => End::Killed(format!("{reason:?}").to_lowercase()),
        Ended::Trap(why) => End::Trap(why.clone()),
        Ended::Exit(code) => End::Exit(*code),
        Ended::Refused(_) => End::Refused,
    };
    end.is(&case.must, &run.text())
}

fn tree() -> Ram {
    let mut ram = Ram::new(&[]);
    for (path, what, text) in corpus::tree() {
        let kind = match what {
            What::File => Kind::File,
            What::Link => Kind::Symlink,
            What::Fifo => Kind::Fifo,
        };
        ram.put(&path, kind, text.as_bytes());
    }
    ram
}

fn cases() -> Vec<Case> {
    corpus::cases(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hostile"))
}

/// Fails if any outcome is wrong.
fn assert_right(wrong: &[String]) {
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn each_ends_as_it_must() {
    let engine = drive::by_fuel();
    let mut wrong = Vec::new();
    for case in cases() {
        let run = run(&case, &engine, None);
        if !is_right(&case, run.as_ref()) {
            let ended = run.map(|run| (run.ended, run.used));
            wrong.push(format!("{}: must: {}, but {ended:?}", case.name, case.must));
        }
    }
    assert_right(&wrong);
}

/// Time of this test, ns.
#[expect(clippy::disallowed_methods, reason = "slices of time are what is tested")]
fn now() -> u64 {
    static BEGIN: OnceLock<Instant> = OnceLock::new();
    let begin = *BEGIN.get_or_init(Instant::now);
    u64::try_from(Instant::now().duration_since(begin).as_nanos()).expect("it is not that long")
}

#[test]
fn by_time_they_end_too() {
    by_time(Pace::Ticks);
}

#[test]
fn by_time_they_end_too_where_fuel_is_counted() {
    by_time(Pace::Metered);
}

#[expect(clippy::disallowed_methods, reason = "slices of time are what is tested")]
fn by_time(pace: Pace) {
    let engine = Engine::new(pace).expect("an engine");
    let (over, mut wrong) = (AtomicBool::new(false), Vec::new());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                std::thread::sleep(TICK);
                engine.tick();
            }
        });
        for case in cases().into_iter().filter(|case| case.by_ticks) {
            let run = run(&case, &engine, Some(now));
            if !is_right(&case, run.as_ref()) {
                let ended = run.map(|run| (run.ended, run.used));
                wrong.push(format!("{}: must: {}, but {ended:?}", case.name, case.must));
            }
        }
        over.store(true, Ordering::Relaxed);
    });
    assert_right(&wrong);
}

#[test]
fn all_may_be_cancelled_at_any_time() {
    let engine = drive::by_fuel();
    for case in cases() {
        let Ok(program) = engine.compile(&module(&case)) else { continue };
        for slices_max in [0, 1, 2, 3, 5, 8, 13] {
            let (budget, writes) = (budget(case.limits), case.writes);
            let session = Session { budget, writes, slices_max, ..Session::new(&["guest"]) };
            let run = drive::run(&mut tree(), &program, &session);
            let cancelled = run.ended == Ended::Killed(Reason::Cancelled);
            assert!(cancelled || run.used.slices <= slices_max + 1, "{}", case.name);
        }
    }
}

/// Returns the bytes of a module, changed in a few places, truncated, or partially duplicated.
fn spoilt(random: &mut fastrand::Rng, module: &[u8]) -> Vec<u8> {
    let mut bytes = module.to_vec();
    for _ in 0..random.usize(1..4) {
        let at = random.usize(8..bytes.len().max(9));
        match random.u8(0..5) {
            0 => bytes.truncate(at),
            1 if at < bytes.len() => bytes[at] = random.u8(..),
            2 if at < bytes.len() => bytes[at] ^= 1 << random.u8(0..8),
            3 if at < bytes.len() => {
                bytes.insert(at, random.choice([0, 1, 0x7f, 0x80, 0xff]).expect("some"))
            }
            _ => {
                let end = bytes.len().min(at + random.usize(1..20));
                let piece = bytes.get(at..end).unwrap_or_default().to_vec();
                let to = random.usize(..=bytes.len());
                bytes.splice(to..to, piece);
            }
        }
    }
    bytes
}

#[test]
fn spoilt_modules_are_refused_or_run_in_their_budgets() {
    let engine = drive::by_fuel();
    let mut random = fastrand::Rng::with_seed(7);
    let modules: Vec<_> =
        cases().iter().filter(|case| case.text.len() < 4000).map(module).collect();
    let (mut refused, mut ran) = (0, 0);
    for _ in 0..400 {
        let module = random.choice(&modules).expect("there are some");
        let bytes = spoilt(&mut random, module);
        let Ok(program) = engine.compile(&bytes) else {
            refused += 1;
            continue;
        };
        ran += 1;
        let budget = budget(Limits { cpu_ns: 1_000_000, ..TIGHT });
        let session = Session { budget, writes: true, ..Session::new(&["guest"]) };
        drive::run(&mut tree(), &program, &session);
    }
    assert!(refused > 20 && ran > 20, "{refused} were refused, {ran} ran");
    let noise: Vec<u8> = (0..5000).map(|_| random.u8(..)).collect();
    for len in 1..100 {
        assert!(engine.compile(&noise[..len * 20]).is_err());
        let headed: Vec<u8> =
            b"\0asm\x01\0\0\0".iter().chain(&noise[len..len * 20 + 1]).copied().collect();
        assert!(engine.compile(&headed).is_err());
    }
}
