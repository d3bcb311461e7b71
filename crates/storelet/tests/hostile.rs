//! Modules that want to do harm, each against small budgets.
//!
//! `hostile/*.wat` begin with what they try. Then come, in the same comment: `with:`, budgets other
//! than the usual ones, and `writes`; `pace: ticks`, it is run by time too; and `must:`, how it has
//! to end. After each, every node and open file is back, and memory, requests and output were
//! within the budget: the driver looks at that.

mod support;

use base::Kind;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use storelet::{Budget, Ended, Engine, Pace, Reason};
use support::drive::{self, Run, Session};
use support::ram::Ram;

/// Length of a slice by time.
const TICK: Duration = Duration::from_millis(1);

/// A module and what it says of itself.
struct Case {
    name: String,
    text: String,
    must: String,
    budget: Budget,
    writes: bool,
    by_ticks: bool,
}

/// What modules get that ask for nothing else.
const TIGHT: Budget = Budget {
    cpu_ns: 20_000_000,
    time_ns: 10_000_000_000,
    memory: 4 << 20,
    table: 1000,
    operations: 1000,
    bytes: 1 << 20,
    output: 64 << 10,
    files: 16,
};

impl Case {
    fn new(name: String, text: String) -> Case {
        let find = |label: &str| {
            let mut lines = text.lines().map_while(|line| line.strip_prefix(";;"));
            lines.find_map(|line| line.trim().strip_prefix(label).map(str::trim).map(str::to_owned))
        };
        let must = find("must:").unwrap_or_else(|| panic!("{name} does not say how it must end"));
        let (mut budget, mut writes) = (TIGHT, false);
        for word in find("with:").unwrap_or_default().split_whitespace() {
            match word.split_once('=') {
                Some((key, value)) => set(&mut budget, key, number(value)),
                None => writes |= word == "writes",
            }
        }
        let by_ticks = find("pace:").is_some_and(|pace| pace == "ticks");
        Case { name, text, must, budget, writes, by_ticks }
    }

    fn run(&self, engine: &Engine, clock: Option<fn() -> u64>) -> Option<Run> {
        let bytes = wat::parse_str(&self.text).unwrap_or_else(|e| panic!("{}: {e}", self.name));
        let program = engine.compile(&bytes).ok()?;
        let session = Session {
            budget: self.budget,
            writes: self.writes,
            clock,
            ..Session::new(&["guest", "argument"])
        };
        Some(drive::run(&mut tree(), &program, &session))
    }

    /// Whether a run has ended as it must.
    fn is_right(&self, run: Option<&Run>) -> bool {
        let (word, rest) = self.must.split_once(' ').unwrap_or((&self.must, ""));
        let Some(run) = run else { return word == "refused" };
        match (word, &run.ended) {
            ("killed", Ended::Killed(reason)) => format!("{reason:?}").to_lowercase() == rest,
            ("trap", Ended::Trap(why)) => why.contains(rest),
            ("exit", Ended::Exit(code)) => code.to_string() == rest,
            ("output", Ended::Exit(0)) => run.text() == rest,
            (_, Ended::Killed(_) | Ended::Trap(_) | Ended::Exit(_)) => false,
        }
    }
}

fn set(budget: &mut Budget, key: &str, value: u64) {
    let field = match key {
        "cpu" => &mut budget.cpu_ns,
        "time" => &mut budget.time_ns,
        "memory" => &mut budget.memory,
        "table" => &mut budget.table,
        "operations" => &mut budget.operations,
        "bytes" => &mut budget.bytes,
        "output" => &mut budget.output,
        "files" => &mut budget.files,
        other => panic!("no budget {other}"),
    };
    *field = value;
}

fn number(text: &str) -> u64 {
    let digits = text.trim_end_matches(|letter: char| !letter.is_ascii_digit());
    let unit = match &text[digits.len()..] {
        "" => 1,
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        other => panic!("no unit {other}"),
    };
    digits.parse::<u64>().expect("a number") * unit
}

fn tree() -> Ram {
    let mut ram = Ram::new(&[
        ("a/b/text", Kind::File, "some words that are read"),
        ("a/dir", Kind::Symlink, "b"),
        ("file", Kind::File, "0123456789"),
        ("fifo", Kind::Fifo, ""),
        ("out", Kind::Symlink, "../../etc/passwd"),
        ("dir-out", Kind::Symlink, ".."),
        ("host", Kind::Symlink, "/etc/passwd"),
        ("round", Kind::Symlink, "round"),
        ("bomb0", Kind::Symlink, "a"),
    ]);
    for n in 1..10 {
        let below = format!("bomb{}", n - 1);
        let target = format!("{below}/../{below}/../{below}/../{below}");
        ram.put(&format!("bomb{n}"), Kind::Symlink, target.as_bytes());
    }
    ram
}

fn cases() -> Vec<Case> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hostile");
    let mut cases: Vec<_> = std::fs::read_dir(dir)
        .expect("they are there")
        .map(|entry| entry.expect("they can be listed").path())
        .filter(|path| path.extension().is_some_and(|end| end == "wat"))
        .map(|path| {
            let name = path.file_stem().expect("it has a name").to_string_lossy().into_owned();
            Case::new(name, std::fs::read_to_string(&path).expect("it is text"))
        })
        .collect();
    cases.sort_by(|a, b| a.name.cmp(&b.name));
    cases
}

/// Complains of all that did not end as they must.
fn assert_right(wrong: &[String]) {
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn each_ends_as_it_must() {
    let engine = drive::by_fuel();
    let mut wrong = Vec::new();
    for case in cases() {
        let run = case.run(&engine, None);
        if !case.is_right(run.as_ref()) {
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
#[expect(clippy::disallowed_methods, reason = "slices of time are what is tested")]
fn by_time_they_end_too() {
    let engine = Engine::new(Pace::Ticks).expect("an engine");
    let (over, mut wrong) = (AtomicBool::new(false), Vec::new());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                std::thread::sleep(TICK);
                engine.tick();
            }
        });
        for case in cases().into_iter().filter(|case| case.by_ticks) {
            let run = case.run(&engine, Some(now));
            if !case.is_right(run.as_ref()) {
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
        let bytes = wat::parse_str(&case.text).expect("it is a module");
        let Ok(program) = engine.compile(&bytes) else { continue };
        for slices_max in [0, 1, 2, 3, 5, 8, 13] {
            let (budget, writes) = (case.budget, case.writes);
            let session = Session { budget, writes, slices_max, ..Session::new(&["guest"]) };
            let run = drive::run(&mut tree(), &program, &session);
            let cancelled = run.ended == Ended::Killed(Reason::Cancelled);
            assert!(cancelled || run.used.slices <= slices_max + 1, "{}", case.name);
        }
    }
}

/// Bytes of a module, changed in a few places, cut off, or doubled in part.
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
    let modules: Vec<_> = cases()
        .iter()
        .filter(|case| case.text.len() < 4000)
        .map(|case| wat::parse_str(&case.text).expect("it is a module"))
        .collect();
    let (mut refused, mut ran) = (0, 0);
    for _ in 0..400 {
        let module = random.choice(&modules).expect("there are some");
        let bytes = spoilt(&mut random, module);
        let Ok(program) = engine.compile(&bytes) else {
            refused += 1;
            continue;
        };
        ran += 1;
        let budget = Budget { cpu_ns: 1_000_000, ..TIGHT };
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
