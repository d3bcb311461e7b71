//! Series 3 (paper 001, 5.6): latency against inconsistency, by the share of strict operations.

use super::claims::{Line, at, first, fit, last};
use super::performance::digits;
use super::runs::{Batch, Job, RATE, Runs, at_front_end, inconsistency};
use super::{Page, Size};
use anyhow::Result;
use serde_json::json;

/// The lines: name, and operations of the clients.
const LINES: [(&str, &str); 3] =
    [("Add, returning", "add"), ("Concatenate", "append"), ("Add, blind", "blind")];

pub(super) fn jobs(size: &Size) -> Vec<Batch> {
    let batch = |(line, data): (&'static str, &str)| {
        let points = size
            .tradeoff
            .iter()
            .flat_map(|replicas| (0..=100).step_by(size.strict_step).map(|s| (*replicas, s)));
        let job = |(replicas, strict)| {
            Job::new(line, replicas, RATE, size).with("data", json!(data)).strict(strict)
        };
        let name = format!("strict operations: {line}");
        Batch { name, jobs: points.map(job).collect(), at_once: true, again: true }
    };
    LINES.into_iter().map(batch).collect()
}

pub(super) fn report(page: &mut Page, runs: &Runs, size: &Size) -> Result<()> {
    page.section(
        "Series 3: response time against consistency (5.6, figures 5.12 to 5.14)",
        "33 operations a second (the paper does not say how many), in turn; the response time at \
         the front end in milliseconds, and how many of a hundred answers are inconsistent, by \
         how many of a hundred operations are strict.",
    );
    let columns: Vec<String> =
        (0..=100).step_by(size.strict_step).map(|strict| format!("{strict} %")).collect();
    let mut rows = Vec::new();
    for (line, _) in LINES {
        for replicas in size.tradeoff {
            let times = runs.by_strict(line, *replicas, &at_front_end);
            let wrong = runs.by_strict(line, *replicas, &inconsistency);
            let cells = |values: &[(f64, f64)]| values.iter().map(|v| digits(v.1)).collect();
            rows.push((format!("{line}, {replicas} replicas: ms"), cells(&times)));
            rows.push((format!("{line}, {replicas} replicas: % inconsistent"), cells(&wrong)));
        }
    }
    page.table("strict", &columns, &rows);
    figures(page, runs, size)?;
    for replicas in size.tradeoff {
        add_claims(page, runs, *replicas);
    }
    slopes(page, runs, size);
    kinds(page, runs, size);
    Ok(())
}

fn names(size: &Size, lines: &[&str]) -> Vec<String> {
    let of = |line: &&str| {
        size.tradeoff.iter().map(move |count| format!("{line}, {count} replicas")).collect()
    };
    lines.iter().flat_map(|line| -> Vec<String> { of(line) }).collect()
}

fn figures(page: &mut Page, runs: &Runs, size: &Size) -> Result<()> {
    let add = LINES[0].0;
    let labels = names(size, &[add]);
    let times = size.tradeoff.iter().map(|count| runs.by_strict(add, *count, &at_front_end));
    let times: Vec<_> = times.collect();
    let wrong = size.tradeoff.iter().map(|count| runs.by_strict(add, *count, &inconsistency));
    let wrong: Vec<_> = wrong.collect();
    let lines = |values: &[Vec<(f64, f64)>]| {
        labels.iter().map(String::as_str).zip(values.iter().cloned()).collect()
    };
    let title = "Figures 5.12 to 5.14: response time by strict operations";
    page.plot("strict-time", title, ("percent strict", "ms"), lines(&times))?;
    let all = names(size, &[add, LINES[1].0]);
    let texts = size.tradeoff.iter().map(|n| runs.by_strict(LINES[1].0, *n, &inconsistency));
    let both: Vec<_> = wrong.iter().cloned().chain(texts).collect();
    let both = all.iter().map(String::as_str).zip(both).collect();
    let title = "Figures 5.12 to 5.14: inconsistent answers by strict operations";
    page.plot("strict-wrong", title, ("percent strict", "percent inconsistent"), both)?;
    let pairs = |time: &Line, wrong: &Line| -> Vec<(f64, f64)> {
        wrong.iter().zip(time).map(|(wrong, time)| (wrong.1, time.1)).collect()
    };
    let both = times.iter().zip(&wrong);
    let against: Vec<_> = both.map(|(time, wrong)| pairs(time, wrong)).collect();
    let title = "Response time against inconsistent answers";
    page.plot("tradeoff", title, ("percent inconsistent", "ms"), lines(&against))
}

/// Adds the paper's claims for each number of replicas.
fn add_claims(page: &mut Page, runs: &Runs, replicas: u64) {
    let add = LINES[0].0;
    let wrong = runs.by_strict(add, replicas, &inconsistency);
    let times = runs.by_strict(add, replicas, &at_front_end);
    let (slope, _, straight) = fit(&wrong);
    page.claim(
        &format!("{replicas} replicas: inconsistent answers become fewer linearly"),
        &format!(
            "{} % if nothing is strict, {} % with half, {} % if all is; a straight line of {} \
             for each percent explains {:.1} %",
            digits(first(&wrong)),
            digits(at(&wrong, 50.0)),
            digits(last(&wrong)),
            digits(slope).replace('-', "−"),
            straight * 100.0
        ),
        straight > 0.95 && last(&wrong) == 0.0,
        "A replica sends no answer to a strict operation before it gossips it, so that news \
         leaves a message's time sooner. With two replicas this decides whether it comes before or \
         behind the next operation: each strict one then spares its successor an inconsistent \
         answer, too, and the line hangs through.",
    );
    let (slope, _, straight) = fit(&times);
    page.claim(
        &format!("{replicas} replicas: the mean response time grows linearly"),
        &format!(
            "from {} to {} ms, {} ms for each percent; a straight line explains {:.1} %",
            digits(first(&times)),
            digits(last(&times)),
            digits(slope),
            straight * 100.0
        ),
        straight > 0.95 && slope > 0.0,
        "",
    );
}

fn slopes(page: &mut Page, runs: &Runs, size: &Size) {
    let slope = |count: &u64| fit(&runs.by_strict(LINES[0].0, *count, &at_front_end)).0;
    let slopes: Vec<f64> = size.tradeoff.iter().map(slope).collect();
    let named = size.tradeoff.iter().zip(&slopes);
    let named: Vec<String> =
        named.map(|(count, slope)| format!("{} with {count}", digits(*slope))).collect();
    page.claim(
        "the coefficient of that growth is larger for more replicas",
        &format!("milliseconds for each percent: {}", named.join(", ")),
        slopes.is_sorted(),
        "",
    );
    let most = size.tradeoff.iter().max().copied().unwrap_or_default();
    let times = runs.by_strict(LINES[0].0, most, &at_front_end);
    page.claim(
        "a strict answer takes dramatically longer",
        &format!("{} times as long with {most} replicas", digits(last(&times) / first(&times))),
        last(&times) > 2.0 * first(&times),
        "",
    );
}

/// Compares operations that commute and operations without dependencies.
fn kinds(page: &mut Page, runs: &Runs, size: &Size) {
    let worst = |line: &str| {
        let of = |count: &u64| first(&runs.by_strict(line, *count, &inconsistency));
        size.tradeoff.iter().map(of).collect::<Vec<_>>()
    };
    let (add, text) = (worst(LINES[0].0), worst(LINES[1].0));
    let list =
        |values: &[f64]| values.iter().map(|value| digits(*value)).collect::<Vec<_>>().join(", ");
    let near = add.iter().zip(&text).all(|(add, text)| (add - text).abs() < 10.0);
    page.claim(
        "*Add*, which commutes, is not substantially less inconsistent than *Concatenate*, \
         which does not",
        &format!(
            "{} % inconsistent against {} % with nothing strict and {} replicas",
            list(&add),
            list(&text),
            size.counts(),
        ),
        near,
        "",
    );
    page.text += "\nThe paper takes from this that commuting does not help. It does not show \
        that: its *Add* answers the sum, and which sum that is depends on the order, even if the \
        state in the end does not. What helps is an answer that depends on nothing: of the blind \
        *Add*, which does the same to the counter and answers nothing, no answer is inconsistent, \
        in no run, with any share of strict operations; there strict operations cost their time \
        for nothing.\n";
}
