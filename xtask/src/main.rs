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
mod apt;
mod arrows;
mod attack;
mod bench;
mod book;
mod check;
mod conformance;
mod dist;
mod files;
mod guests;
mod guided;
mod hostile;
mod instrument;
mod lanes;
mod licences;
mod link;
mod paper;
mod peer_mount;
mod prose;
mod recording;
mod report;
mod server;
mod sh;
mod test;
mod tidy;
mod vm;
mod volume;

use anyhow::{Result, bail};
use std::io::Write as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (command, rest) = args.split_first().map_or(("", &[][..]), |(c, r)| (c.as_str(), r));
    match run(command, rest) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Commands with the source whose header is their manual.
const COMMANDS: &[(&str, &str)] = &[
    ("check", include_str!("check.rs")),
    ("test", include_str!("test.rs")),
    ("machines", include_str!("main.rs")),
    ("model", include_str!("../../crates/model/src/main.rs")),
    ("sim", include_str!("../../crates/sim/src/main.rs")),
    ("fuzz", include_str!("../../crates/sim/src/main.rs")),
    ("conformance", include_str!("conformance.rs")),
    ("attack", include_str!("attack.rs")),
    ("hostile", include_str!("hostile.rs")),
    ("api", include_str!("api.rs")),
    ("dist", include_str!("dist.rs")),
    ("guests", include_str!("guests.rs")),
    ("bench", include_str!("bench.rs")),
    ("paper", include_str!("paper.rs")),
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
        "model" => test::model(rest).map(|()| true),
        "sim" => test::sim(rest).map(|()| true),
        "fuzz" => match rest.split_first() {
            Some((word, rest)) if word == "--guided" => guided::main(rest),
            _ => test::fuzz(rest).map(|()| true),
        },
        "conformance" => conformance::main(rest),
        "attack" => attack::main(rest),
        // Clients of an attack.
        attack::healthy::WORD => attack::healthy::main(rest).map(|()| true),
        // Inside the namespaces of that suite.
        conformance::firsthour::WORD => conformance::firsthour::inside(rest).map(|()| true),
        "hostile" => hostile::main(rest),
        "api" => api::main(rest),
        "dist" => dist::main(rest).map(|()| true),
        "guests" => guests::main(rest),
        "bench" => bench::main(rest).map(|()| true),
        "paper" => paper::main(rest).map(|()| true),
        "book" => book::main(rest).map(|()| true),
        "recording" => recording::main().map(|()| true),
        recording::INSIDE => recording::inside().map(|()| true),
        // Runs in the virtual machine of the suite `volume-power`.
        "power-load" => conformance::power_load(rest).map(|()| true),
        _ => {
            let names: Vec<&str> = COMMANDS.iter().map(|(name, _)| *name).collect();
            bail!("usage: cargo xtask {} [--help]", names.join(" | "))
        }
    }
}
