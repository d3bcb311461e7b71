//! Every developer command. `cargo xtask COMMAND`; each module's own header is its manual.
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
//! | `book` | builds the documentation as a book, with a generated reference |
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

fn run(command: &str, rest: &[String]) -> Result<bool> {
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
        "book" => book::main().map(|()| true),
        "recording" => recording::main().map(|()| true),
        recording::INSIDE => recording::inside().map(|()| true),
        // Runs in the virtual machine of the suite `volume-power`.
        "power-load" => conformance::power_load(rest).map(|()| true),
        _ => bail!(
            "usage: cargo xtask check | test | machines | model | sim | fuzz | conformance | \
             attack | hostile | guests | dist | api | bench | paper | book | recording"
        ),
    }
}
