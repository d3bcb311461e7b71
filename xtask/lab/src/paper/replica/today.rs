//! Full speed: the same algorithms without sleeps, the paper's three implementations compared, and
//! the production replica.

use super::claims::{MARGIN, compare, first, last, peak};
use super::performance::digits;
use super::runs::{
    Batch, Job, OPERATIONS, Point, Runs, at_front_end, at_replica, inconsistency, throughput,
};
use super::{Page, Size};
use crate::instrument::number;
use anyhow::Result;
use serde_json::{Value, json};

/// Submission rates that replicas can sustain, and cannot.
const RATES: [(&str, f64); 2] = [("2,000/s", 2_000.0), ("80,000/s", 80_000.0)];

/// The implementations, their lines with all operations and with half as many.
const KINDS: [(&str, &str, &str); 3] = [
    ("ESDSOptImpl", "ESDSOptImpl, half", "optimised"),
    ("ESDSImpl", "ESDSImpl, half", "plain"),
    ("SimpleESDSImpl", "SimpleESDSImpl, half", "simple"),
];

/// Submission rate of them, operations per second.
const KINDS_RATE: f64 = 500.0;

/// Trade-off of the paper's replica and of ours.
const TRADEOFF: [(&str, &str, u64); 3] =
    [("paper's", "optimised", 0), ("ours", "service", 0), ("ours, gathering", "service", GATHER)];

/// Batching delay of non-strict operations in ours, where enabled, microseconds.
const GATHER: u64 = 5000;

const TRADEOFF_RATE: f64 = 4_000.0;

pub(super) fn jobs(size: &Size) -> Vec<Batch> {
    let batch = |name: &str, jobs| Batch { name: name.into(), jobs, at_once: false, again: true };
    let replicas = || 1..=size.replicas_max;
    let fast = |(line, rate): (&'static str, f64)| {
        let operations = json!(size.today);
        replicas().map(move |count| {
            Job::today(line, count, rate, size).with("operations", operations.clone())
        })
    };
    let kinds = KINDS.into_iter().flat_map(|(whole, half, kind)| {
        let lines = [(whole, OPERATIONS), (half, OPERATIONS / 2)];
        lines.into_iter().flat_map(move |(line, operations)| {
            let job = move |count: &u64| {
                let job = Job::today(line, *count, KINDS_RATE, size).with("kind", json!(kind));
                job.with("operations", json!(operations))
            };
            size.tradeoff.iter().map(job)
        })
    });
    let tradeoff = TRADEOFF.into_iter().flat_map(|(line, kind, gather)| {
        size.tradeoff.iter().flat_map(move |count| {
            (0..=100).step_by(size.strict_step).map(move |strict| {
                let job = Job::today(line, *count, TRADEOFF_RATE, size);
                job.with("kind", json!(kind)).with("gather", json!(gather)).strict(strict)
            })
        })
    });
    vec![
        batch("today's speed, by replicas", RATES.into_iter().flat_map(fast).collect()),
        batch("the three implementations", kinds.collect()),
        batch("today's speed, strict operations", tradeoff.collect()),
    ]
}

pub(super) fn report(page: &mut Page, runs: &Runs, size: &Size) -> Result<()> {
    by_replicas(page, runs, size)?;
    implementations(page, runs, size);
    tradeoff(page, runs, size)
}

/// Returns a row of means along a line.
fn row(name: &str, values: &[(f64, f64)]) -> (String, Vec<String>) {
    (name.to_owned(), values.iter().map(|(_, value)| digits(*value)).collect())
}

fn by_replicas(page: &mut Page, runs: &Runs, size: &Size) -> Result<()> {
    let [(calm, calm_rate), (flood, flood_rate)] = RATES;
    page.section(
        "Today's speed, by replicas",
        &format!(
            "{} operations a run, since 300 take a few milliseconds; in turn; {calm_rate:.0} and \
             {flood_rate:.0} submitted in a second. All replicas and the front end have {} \
             processors between them, which other work on the machine takes from them at times: \
             from here on what is shown is the median of the runs, not their mean.",
            size.today,
            rig::machine::cores()
        ),
    );
    let columns: Vec<String> = (1..=size.replicas_max).map(|count| count.to_string()).collect();
    let rows = [
        row(&format!("{calm}: operations a second"), &runs.line(calm, &throughput)),
        row(&format!("{calm}: at the front end, ms"), &runs.line(calm, &at_front_end)),
        row(&format!("{calm}: at the replica, ms"), &runs.line(calm, &at_replica)),
        row(&format!("{flood}: operations a second"), &runs.line(flood, &throughput)),
        row(&format!("{flood}: messages an operation"), &runs.line(flood, &messages)),
        row(&format!("{calm}: messages an operation"), &runs.line(calm, &messages)),
    ];
    page.table("by replicas", &columns, &rows);
    let values = runs.line(flood, &throughput);
    let lines = vec![(flood, values.clone())];
    let title = "Throughput at today's speed, more submitted than can be done";
    page.plot("today", title, ("replicas", "operations a second"), lines)?;
    page.claim(
        "throughput rises with the number of replicas",
        &format!(
            "{} a second with one, at most {} with {}, {} with {}",
            digits(first(&values)),
            digits(peak(&values).1),
            peak(&values).0,
            digits(last(&values)),
            size.replicas_max
        ),
        last(&values) > first(&values),
        "Replicas that have no processor of their own add none: each operation is done by all of \
         them, and told by each to each. This is the paper's series 1 from the second replica on.",
    );
    let times = runs.line(calm, &at_front_end);
    page.claim(
        "the response time at the front end grows with the number of replicas",
        &format!(
            "{} ms with one, {} ms with {}",
            digits(first(&times)),
            digits(last(&times)),
            size.replicas_max
        ),
        last(&times) > first(&times),
        "",
    );
    Ok(())
}

fn messages(run: &Value) -> f64 {
    number(run, "/messages")
}

fn news(run: &Value) -> f64 {
    number(run, "/news")
}

fn bytes(run: &Value) -> f64 {
    number(run, "/bytes")
}

fn again(run: &Value) -> f64 {
    number(run, "/again")
}

fn implementations(page: &mut Page, runs: &Runs, size: &Size) {
    page.section(
        "The three implementations (4.2.7, 4.3.1)",
        &format!(
            "Today's speed, {KINDS_RATE:.0} operations a second, {OPERATIONS} of them, nothing \
             strict. *SimpleESDSImpl* is *ESDSImpl* with everything that parts say to each other \
             negotiated; who is refused rests 0.1 ms at first, and twice as long each time."
        ),
    );
    let columns = [
        "replicas",
        "at the front end, ms",
        "operations a second",
        "messages an operation",
        "news an operation",
        "with half as many operations",
        "bytes an operation",
        "applied again for an answer",
    ];
    let columns = columns.map(str::to_owned);
    let mut rows = Vec::new();
    for (whole, half, _) in KINDS {
        for replicas in size.tradeoff {
            let point = |line| Point { line, replicas: *replicas, strict: 0 };
            let of = |line, figure: fn(&Value) -> f64| digits(runs.mean(point(line), &figure));
            let cells = vec![
                replicas.to_string(),
                of(whole, at_front_end),
                of(whole, throughput),
                of(whole, messages),
                of(whole, news),
                of(half, news),
                of(whole, bytes),
                of(whole, again),
            ];
            rows.push((whole.to_owned(), cells));
        }
    }
    page.table("", &columns, &rows);
    differences(page, runs, size);
}

/// Adds the paper's claims about them.
fn differences(page: &mut Page, runs: &Runs, size: &Size) {
    let [(opt, opt_half, _), (plain, plain_half, _), (simple, ..)] = KINDS;
    let times = [plain, simple].map(|line| runs.line(line, &at_front_end));
    let ratios: Vec<f64> = times[0].iter().zip(&times[1]).map(|pair| pair.1.1 / pair.0.1).collect();
    let printed: Vec<String> = ratios.iter().map(|ratio| digits(*ratio)).collect();
    page.claim(
        "*ESDSImpl* is more efficient than *SimpleESDSImpl*, which has to synchronise (4.2.7)",
        &format!(
            "*SimpleESDSImpl* answers after {} times the time, with {} replicas",
            printed.join(", "),
            size.counts()
        ),
        ratios.iter().all(|ratio| *ratio > 1.0),
        "",
    );
    let growth = |whole: &str, half: &str| {
        let (whole, half) = (runs.line(whole, &news), runs.line(half, &news));
        whole.iter().zip(&half).map(|pair| pair.0.1 / pair.1.1).collect::<Vec<f64>>()
    };
    let (grows, stays) = (growth(plain, plain_half), growth(opt, opt_half));
    let list = |values: &[f64]| values.iter().map(|v| digits(*v)).collect::<Vec<_>>().join(", ");
    page.claim(
        "what *ESDSImpl* gossips of an operation grows linearly with the operations, what \
         *ESDSOptImpl* gossips does not (4.3.1)",
        &format!(
            "twice the operations are {} and {} times the news for each, with {} replicas",
            list(&grows),
            list(&stays),
            size.counts()
        ),
        grows.iter().all(|times| *times > 1.8) && stays.iter().all(|times| *times < 1.2),
        "Where it is less than twice, replicas do not keep up any more: changes gather, and there \
         are fewer messages.",
    );
    let spent = [plain, opt].map(|line| runs.line(line, &again));
    page.claim(
        "*ESDSImpl* computes every value from the beginning, *ESDSOptImpl* from what is stable",
        &format!(
            "{} and {} operations are applied for an answer, with {} replicas",
            digits(last(&spent[0])),
            digits(last(&spent[1])),
            size.tradeoff.last().copied().unwrap_or_default()
        ),
        last(&spent[0]) > 2.0 * last(&spent[1]),
        "",
    );
}

fn tradeoff(page: &mut Page, runs: &Runs, size: &Size) -> Result<()> {
    page.section(
        "Series 3 at today's speed, with our replica",
        &format!(
            "{TRADEOFF_RATE:.0} operations a second, *Add* returning. *Paper's* is *ESDSOptImpl* \
             in turn; *ours* is the replica of `crates/replica/src/service.rs`, which people will \
             use: strict answers after two hops, vectors instead of sets, gossip as soon as there \
             is something to tell, or, *gathering*, {} ms later if it is not strict. Its journal \
             counts as written at once: the algorithm is measured here, and no disk. The response \
             time is the mean from when an operation was to be submitted to when its client had \
             the answer. Times that differ by less than {:.0} % count as equal.",
            super::ms(GATHER),
            MARGIN * 100.0
        ),
    );
    let columns: Vec<String> =
        (0..=100).step_by(size.strict_step).map(|strict| format!("{strict} %")).collect();
    let time: fn(&Value) -> f64 = |run| number(run, "/client");
    let mut rows = Vec::new();
    for replicas in size.tradeoff {
        for (line, ..) in TRADEOFF {
            let name = format!("{line}, {replicas} replicas");
            let times = runs.by_strict(line, *replicas, &time);
            let wrong = runs.by_strict(line, *replicas, &inconsistency);
            rows.push(row(&format!("{name}: ms"), &times));
            rows.push(row(&format!("{name}: % inconsistent"), &wrong));
            let printed = runs.by_strict(line, *replicas, &messages);
            rows.push(row(&format!("{name}: messages an operation"), &printed));
        }
    }
    page.table("strict", &columns, &rows);
    let names: Vec<Vec<String>> = TRADEOFF
        .iter()
        .map(|(line, ..)| size.tradeoff.iter().map(|count| format!("{line}, {count}")).collect())
        .collect();
    let mut lines = Vec::new();
    for ((line, ..), names) in TRADEOFF.iter().zip(&names).take(2) {
        for (name, replicas) in names.iter().zip(size.tradeoff) {
            lines.push((&**name, runs.by_strict(line, *replicas, &time)));
        }
    }
    let title = "Response time by strict operations at today's speed, by replicas";
    page.plot("today-strict", title, ("percent strict", "ms"), lines)?;
    for replicas in size.tradeoff {
        beside(page, runs, *replicas, time);
    }
    Ok(())
}

/// Compares ours with the paper's.
fn beside(page: &mut Page, runs: &Runs, replicas: u64, time: fn(&Value) -> f64) {
    let [paper, ours, gathering] = TRADEOFF.map(|(line, ..)| runs.by_strict(line, replicas, &time));
    for (name, ours) in [("ours", ours), ("ours, gathering,", gathering)] {
        for (what, of) in [("everything", last as fn(&_) -> f64), ("nothing", first)] {
            page.shorter(
                &format!("{replicas} replicas: with {what} strict {name} answers sooner"),
                &format!("{} ms against {} ms", digits(of(&ours)), digits(of(&paper))),
                compare(of(&ours), of(&paper)),
                "It takes a hop less to a strict answer, but tells each operation by itself and \
                 says of each message that it has it, where the paper's replica lets news gather \
                 while it is busy: on two processors every message counts.",
            );
        }
    }
}
