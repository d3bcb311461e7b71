//! Every developer command. `cargo xtask COMMAND --help` prints its manual, the header of its
//! module.
//!
//! | command | does |
//! |---|---|
//! | `check` | format, lints, tidy, arrows, licences, documentation: under two minutes |
//! | `test` | everything: installs what is missing, then all tests, simulation, conformance |
//! | `machines` | runs every machine and draws its `states.md` again |
//! | `model states [WORD]` | every state of small compositions |
//! | `model run [SEED] [--runs N]` | random runs of larger ones |
//! | `sim [SEED] …` | the simulated twin; prints its seed first |
//! | `fuzz NAME [SEED]`, `fuzz smoke` | one fuzzer, or all for a moment |
//! | `fuzz --guided [NAME] [--seconds N]` | the same, guided by coverage |
//! | `conformance [SUITE …]` | third-party clients against a running server |
//! | `attack [KIND …] [--record]` | denial-of-service attacks on a running server |
//! | `hostile [--runs N]` | malicious storelets against a running server |
//! | `api [--record]` | the public interface of the published libraries, beside its listing |
//! | `dist [--quick]` | builds the packages: static program, Debian package, container image |
//! | `guests [NAME …]` | builds the storelet programs, into `target/guests` |
//! | `bench [9p] [http] [store] [files] [cold] [replica] [--record]` | benchmarks against peers |
//! | `bench replica-memory [--operations N]` | memory of replicas over many operations |
//! | `paper mux`, `paper load --traces DIR`, `paper storelet` | reproduces a paper's evaluation |
//! | `paper replica` | the same for the replicated data service: replicas on threads |
//! | `book [--pages]` | builds the documentation as a book, with a generated reference |
//! | `recording` | draws the terminal recording of the front page |
//!
//! `.ci/run` calls `test` and nothing else.

mod api;
mod arrows;
mod book;
mod check;
mod guided;
mod licences;
mod programs;
mod prose;
mod recording;
mod test;
mod tidy;

use anyhow::{Result, bail};
use programs::{Profile, build_and_replace};
use rig::{dist, guests, sh};
use std::io::Write as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (command, rest) = args.split_first().map_or(("", &[][..]), |(c, r)| (c.as_str(), r));
    rig::report::exit(run(command, rest))
}

/// Commands with the source whose header is their manual.
const COMMANDS: &[(&str, &str)] = &[
    ("check", include_str!("check.rs")),
    ("test", include_str!("test.rs")),
    ("machines", include_str!("main.rs")),
    ("model", include_str!("../../crates/model/src/main.rs")),
    ("sim", include_str!("../../crates/sim/src/main.rs")),
    ("fuzz", include_str!("../../crates/sim/src/main.rs")),
    ("conformance", include_str!("../conformance/src/main.rs")),
    ("attack", include_str!("../conformance/src/attack.rs")),
    ("hostile", include_str!("../conformance/src/hostile.rs")),
    ("api", include_str!("api.rs")),
    ("dist", include_str!("../rig/src/dist.rs")),
    ("guests", include_str!("../rig/src/guests.rs")),
    ("bench", include_str!("../lab/src/bench.rs")),
    ("paper", include_str!("../lab/src/paper.rs")),
    ("book", include_str!("book.rs")),
    ("recording", include_str!("recording.rs")),
];

/// Prints the header of a module.
fn print_manual(source: &str) {
    let lines = source.lines().map_while(|line| line.strip_prefix("//!"));
    let text: String = lines.map(|line| format!("{}\n", line.trim_start())).collect();
    // Its reader may have ended.
    let _ = std::io::stdout().write_all(text.as_bytes());
}

fn run(command: &str, rest: &[String]) -> Result<bool> {
    let is_help = |word: &str| matches!(word, "--help" | "-h" | "help");
    if is_help(command) {
        print_manual(include_str!("main.rs"));
        return Ok(true);
    }
    if let Some((_, source)) = COMMANDS.iter().find(|(name, _)| *name == command)
        && rest.iter().any(|word| is_help(word))
    {
        print_manual(source);
        return Ok(true);
    }
    match command {
        "check" => check::main(),
        "test" => test::main(rest),
        "machines" => {
            let mut cargo = sh::cargo(&["test", "--workspace", "--quiet", "states_md"]);
            sh::run(cargo.env("UPDATE_EXPECT", "1")).map(|()| true)
        }
        "model" => match build_and_replace("model", Profile::Measured, &[], rest)? {},
        "sim" => {
            let word = rest.first().map_or("", String::as_str);
            let is_run =
                word.is_empty() || word.starts_with(|c: char| c == '-' || c.is_ascii_digit());
            let words = if is_run { &["run"][..] } else { &[] };
            match build_and_replace("sim", Profile::Measured, words, rest)? {}
        }
        "fuzz" => match rest.split_first() {
            Some((word, rest)) if word == "--guided" => guided::main(rest),
            _ => match build_and_replace("sim", Profile::Measured, &["fuzz"], rest)? {},
        },
        "conformance" => {
            match build_and_replace("conformance", Profile::Tested, &[command], rest)? {}
        }
        "attack" | "hostile" => {
            match build_and_replace("conformance", Profile::Measured, &[command], rest)? {}
        }
        "bench" | "paper" => {
            match build_and_replace("lab", Profile::Measured, &[command], rest)? {}
        }
        "api" => api::main(rest),
        "dist" => dist::main(rest).map(|()| true),
        "guests" => guests::main(rest),
        "book" => book::main(rest).map(|()| true),
        "recording" => recording::main().map(|()| true),
        recording::INSIDE => recording::inside().map(|()| true),
        _ => {
            let names: Vec<&str> = COMMANDS.iter().map(|(name, _)| *name).collect();
            bail!("usage: cargo xtask {} [--help]", names.join(" | "))
        }
    }
}
