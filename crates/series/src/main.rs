//! Services of replicas on threads, in real time: the measurements of the paper (001, chapter 5).
//!
//! Each line of standard input is a run in JSON ([`spec::Spec`]). All runs execute concurrently,
//! and each yields a line of standard output ([`spec::Outcome`]), in the same order.
//! `cargo xtask paper replica` defines the runs, and plots the results.
//!
//! A service is a composition of the automata of `crates/esds`, each in a thread of its own.
//! Messages are sent over TCP on loopback. A processor can be slowed down ([`spec::Speed`]): then a
//! part sleeps for the simulated time.

mod actor;
mod channels;
mod counted;
mod latch;
mod paper;
mod participant;
mod processor;
mod production;
mod run;
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
    // Each pair of parts has a connection with two ends.
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

/// Runs all of them concurrently.
fn run_at_once(specs: &[Spec]) -> Vec<io::Result<Outcome>> {
    thread::scope(|scope| {
        let running: Vec<_> =
            specs.iter().map(|spec| scope.spawn(move || run::run(spec))).collect();
        running.into_iter().map(|run| run.join().expect("a run does not panic")).collect()
    })
}
