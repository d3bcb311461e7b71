//! Memory of our replicas over many operations: state of operations stable everywhere is freed.
//!
//! Puts and removals, which commute unless the key is the same, takes and conditional puts; one in
//! ten is strict; sixteen in a request. Every other client numbers its operations in a session, so
//! the state for deduplication is measured as well. The number of keys is the same at the end as at
//! the beginning.

use super::houses::{House, SERVERS};
use super::messages::{Operation, Parameters};
use super::requester::{self, Until};
use crate::bench::Plan;
use anyhow::{Result, ensure};
use rig::server::{Kind, Server};
use rig::sh;
use std::fmt::Write as _;

/// Number of operations between two measurements of memory.
const STEP: u64 = 1_000_000;

/// Default number of operations.
const OPERATIONS: u64 = 10 * STEP;

/// Maximum growth of memory from this step, counted from 1, to the last.
const GROWTH_MAX: f64 = 1.25;
const SETTLED: usize = 2;

const CLIENTS: usize = 12;
const LINES: u64 = 16;
const STRICT: u64 = 10;

/// Measurement after a step.
struct Sample {
    operations: u64,
    rate: f64,
    /// Resident memory of each server, MiB.
    rss: Vec<f64>,
}

/// Runs the benchmark.
///
/// # Errors
/// Fails if the memory of a server grows.
pub(crate) fn run(plan: &Plan) -> Result<String> {
    let house = House::start(Kind::Uring, &sh::empty("bench/replica")?)?;
    let all = plan.operations.unwrap_or(OPERATIONS);
    let mut looks: Vec<Sample> = Vec::new();
    let mut done = 0;
    while done < all {
        let seen = house.mix(STEP.min(all - done))?;
        done += seen.operations;
        let rss = house.servers.iter().map(resident).collect();
        let look = Sample { operations: done, rate: seen.rate, rss };
        eprintln!("   {done} operations, {:.0}/s; MiB: {:.0?}", look.rate, look.rss);
        looks.push(look);
    }
    house.settle()?;
    let grown = grown(&looks);
    drop(house);
    sh::empty("bench/replica")?;
    let text = format!("{}\n{}", circumstances(grown), markdown(&looks));
    ensure!(grown.is_none_or(|grown| grown <= GROWTH_MAX), "memory grows\n{text}");
    Ok(text)
}

impl House {
    /// Runs this number of operations of all kinds.
    fn mix(&self, count: u64) -> Result<requester::Seen> {
        let way = Parameters { action: Operation::Any, strict: STRICT, lines: LINES, once: false };
        let way = |client: usize| Parameters { once: client.is_multiple_of(2), ..way };
        self.ask_each(SERVERS, CLIENTS, Until::Count(count), way)
    }
}

#[expect(clippy::cast_precision_loss, reason = "memory of a machine")]
fn resident(server: &Server) -> f64 {
    server.rss_kib() as f64 / 1024.0
}

/// Returns the greatest growth of a server since the settled measurement, if there are enough of
/// them.
fn grown(looks: &[Sample]) -> Option<f64> {
    let (settled, last) = (looks.get(SETTLED - 1)?, looks.last()?);
    let ratios = last.rss.iter().zip(&settled.rss).map(|(last, settled)| last / settled);
    ratios.max_by(f64::total_cmp)
}

fn circumstances(grown: Option<f64>) -> String {
    let grown = grown.map_or_else(
        || format!("too few operations to compare with those after {SETTLED} steps"),
        |grown| format!("{grown:.2} times that after {SETTLED} steps, at most {GROWTH_MAX}"),
    );
    format!(
        "{}; load {:.1} at the end; three replicas of a map of 10,000 keys, {CLIENTS} clients, \
         {LINES} operations in a request: 60 % puts, 10 % removals, 15 % takes, 15 % conditional \
         puts; {STRICT} % strict; half of the clients with sessions. The most memory that a \
         server has at the end is {grown}.\n",
        rig::machine::describe(),
        super::quiet::load(),
    )
}

fn markdown(looks: &[Sample]) -> String {
    let servers = looks.first().map_or(0, |look| look.rss.len());
    let mut text = "| operations | a second |".to_owned();
    (1..=servers).for_each(|server| text += &format!(" replica {server}, MiB |"));
    text += &format!("\n|--:|--:|{}\n", "--:|".repeat(servers));
    for look in looks {
        let _ = write!(text, "| {} | {:.0} |", look.operations, look.rate);
        look.rss.iter().for_each(|rss| text += &format!(" {rss:.0} |"));
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_that_of_the_server_that_grows_most() {
        let look = |rss: [f64; 2]| Sample { operations: 1, rate: 2.0, rss: rss.to_vec() };
        let looks = [look([1.0, 1.0]), look([10.0, 10.0]), look([50.0, 9.0]), look([11.0, 15.0])];
        assert_eq!(grown(&looks), Some(1.5));
        assert_eq!(grown(&looks[..1]), None);
        assert!(markdown(&looks).ends_with("| 1 | 2 | 11 | 15 |\n"));
    }
}
