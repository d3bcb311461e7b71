//! Services of replicas on threads, in real time: the test series of the paper (001, chapter 5).
//!
//! Each line of standard input is a run, as JSON ([`spec::Spec`]); all of them run at the same
//! time, and what came of each is a line of standard output ([`spec::Outcome`]), in the same order.
//! `cargo xtask paper replica` says what is run, and makes figures of what comes of it.
//!
//! A service is a composition of the automata of `crates/replica`, each a process in a thread of
//! its own. What they say goes as bytes through TCP on loopback. A processor may be made slow
//! ([`spec::Speed`]): then a part sleeps as long as it would need.

mod actor;
mod bell;
mod counted;
mod paper;
mod post;
mod processor;
mod production;
mod run;
mod seat;
mod spec;
mod wire;

#[cfg(test)]
mod tests;

use rustix::process::{Resource, getrlimit, setrlimit};
use spec::{Outcome, Spec};
use std::io::{self, BufRead};
use std::process::ExitCode;
use std::thread;

fn main() -> ExitCode {
    match all() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("series: {error}");
            ExitCode::FAILURE
        }
    }
}

fn all() -> io::Result<()> {
    // Each two parts of a service have a connection, with two ends.
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit)?;
    let specs: io::Result<Vec<Spec>> =
        io::stdin().lock().lines().map(|line| Ok(serde_json::from_str(&line?)?)).collect();
    for outcome in run_at_once(&specs?) {
        println!("{}", serde_json::to_string(&outcome?)?);
    }
    Ok(())
}

/// Runs all of them at the same time.
fn run_at_once(specs: &[Spec]) -> Vec<io::Result<Outcome>> {
    thread::scope(|scope| {
        let running: Vec<_> =
            specs.iter().map(|spec| scope.spawn(move || run::run(spec))).collect();
        running.into_iter().map(|run| run.join().expect("a run does not panic")).collect()
    })
}
