//! Series 1 (paper 001, 5.4): more replicas than processors.

use super::claims::{at, first, last, peak, rises};
use super::performance::digits;
use super::runs::{Batch, Job, OPERATIONS, PROCESSORS, RATE, Runs, throughput};
use super::{Page, Size};
use anyhow::Result;
use serde_json::json;

const LINES: [&str; 2] = ["virtual, in turn", "virtual, eager"];

/// A run long enough for the cost of gossip to show.
const LONG: &str = "virtual, in turn, a long run";

/// Number of its operations.
const LONG_RUN: u64 = 10 * OPERATIONS;

pub(super) fn jobs(size: &Size) -> Vec<Batch> {
    let job = |eager: bool, replicas: u64| {
        let line = LINES[usize::from(eager)];
        Job::new(line, replicas, 10.0 * RATE, size).with("eager", json!(eager))
    };
    let batch = |eager: bool| Batch {
        name: LINES[usize::from(eager)].into(),
        jobs: (1..=size.virtual_max).map(|replicas| job(eager, replicas)).collect(),
        at_once: true,
        again: true,
    };
    let long = [PROCESSORS, size.virtual_max].map(|replicas| {
        let mut job = job(false, replicas).with("operations", json!(LONG_RUN));
        job.point.line = LONG;
        job
    });
    let long = Batch { name: LONG.into(), jobs: long.into(), at_once: true, again: false };
    vec![batch(false), batch(true), long]
}

pub(super) fn report(page: &mut Page, runs: &Runs, size: &Size) -> Result<()> {
    page.section(
        "Series 1: virtual replicas (5.4, figure 5.1)",
        &format!(
            "Up to {} replicas on {PROCESSORS} processors, 330 operations a second. A processor \
             that has two replicas does one thing after the other, in the order in which they \
             want it, and going over costs.",
            size.virtual_max
        ),
    );
    let columns: Vec<String> = (1..=size.virtual_max).map(|count| count.to_string()).collect();
    let lines = LINES.map(|line| (line, runs.line(line, &throughput)));
    let row = |(line, values): &(&str, Vec<(f64, f64)>)| {
        let spread = runs.spread(line, &throughput) * 100.0;
        let cells = values.iter().map(|(_, value)| digits(*value)).collect();
        (format!("{line} (each run within {spread:.0} %)"), cells)
    };
    let rows: Vec<_> = lines.iter().map(row).collect();
    page.table("operations a second, by replicas", &columns, &rows);
    let title = "Figure 5.1: throughput by replicas on ten processors";
    page.plot("virtual", title, ("replicas", "operations a second"), lines.to_vec())?;
    for (line, values) in &lines {
        add_claims(page, line, values);
    }
    let long = runs.line(LONG, &throughput);
    page.claim(
        &format!(
            "5.1, *in turn*, {LONG_RUN} operations: more replicas than processors do not help"
        ),
        &format!(
            "{} with {PROCESSORS}, {} with {} (one run of each)",
            digits(first(&long)),
            digits(last(&long)),
            size.virtual_max
        ),
        last(&long) <= first(&long),
        "",
    );
    Ok(())
}

fn add_claims(page: &mut Page, line: &str, values: &[(f64, f64)]) {
    let own = values.iter().take_while(|point| point.0 <= 10.0).copied().collect::<Vec<_>>();
    let shared: Vec<_> = values.iter().skip(own.len()).copied().collect();
    let (ten, eleven, best) = (at(values, 10.0), at(values, 11.0), peak(&shared));
    page.claim(
        &format!("5.1, *{line}*: throughput rises with each replica that has its own processor"),
        &format!("{} for one, {} for ten", digits(at(values, 1.0)), digits(ten)),
        rises(&own, 0.02),
        "",
    );
    page.claim(
        &format!("5.1, *{line}*: it drops where a processor gets a second replica"),
        &format!("{} for ten, {} for eleven", digits(ten), digits(eleven)),
        eleven < ten,
        "",
    );
    page.claim(
        &format!("5.1, *{line}*: more replicas than processors do not help"),
        &format!("at best {} with {}, against {} for ten", digits(best.1), best.0, digits(ten)),
        best.1 <= ten,
        "The operations are balanced over replicas, not over processors: with eleven replicas one \
         processor has two shares of eleven, with twenty all have the same again. What each \
         operation then costs besides is gossip, of which a replica in turn hears one message \
         for each request: with twice as many replicas half as many rounds fit into the same run, \
         and the run ends before the news is heard. A long run has to pay for it, see below.",
    );
}
