//! Series 2 (paper 001, 5.5): throughput and response times by replicas, with three patterns of
//! submission, with and without gossip.

use super::claims::{at, falls, first, keeps_trend, last, peak, rises, rises_and_levels_off};
use super::runs::{Batch, Job, RATE, Runs, at_front_end, at_replica, throughput};
use super::{Page, Size};
use anyhow::Result;
use serde_json::{Value, json};

/// A pattern of submission, with both ways to interleave messages and actions.
struct Pattern {
    /// Round robin, and eager.
    lines: [&'static str; 2],
    name: &'static str,
    file: &'static str,
    rate: fn(f64) -> f64,
}

const CONSTANT: Pattern = Pattern {
    lines: ["33/s, in turn", "33/s, eager"],
    name: "33 operations a second",
    file: "33",
    rate: |_| RATE,
};

const PROPORTIONAL: Pattern = Pattern {
    lines: ["33 N/s, in turn", "33 N/s, eager"],
    name: "33 operations a second for each replica",
    file: "33n",
    rate: |replicas| RATE * replicas,
};

const FLOOD: Pattern = Pattern {
    lines: ["330/s, in turn", "330/s, eager"],
    name: "330 operations a second",
    file: "330",
    rate: |_| 10.0 * RATE,
};

const SILENT: &str = "33 N/s, no gossip";

type Measure = fn(&Value) -> f64;

pub(super) fn jobs(size: &Size) -> Vec<Batch> {
    let of = |pattern: &Pattern, eager: bool| -> Vec<Job> {
        let job = |replicas: u64| {
            #[expect(clippy::cast_precision_loss, reason = "a small number")]
            let rate = (pattern.rate)(replicas as f64);
            let line = pattern.lines[usize::from(eager)];
            Job::new(line, replicas, rate, size).with("eager", json!(eager))
        };
        (1..=size.replicas_max).map(job).collect()
    };
    let silent = of(&PROPORTIONAL, false).into_iter().map(|mut job| {
        job.point.line = SILENT;
        job.with("gossip", json!(false))
    });
    let both = |pattern: &Pattern| [of(pattern, false), of(pattern, true)].concat();
    let calm = both(&CONSTANT).into_iter().chain(silent).collect();
    let busy = [both(&PROPORTIONAL), both(&FLOOD)].concat();
    let batch = |name: &str, jobs| Batch { name: name.into(), jobs, at_once: true, again: true };
    vec![batch("33 operations a second, no gossip", calm), batch("more operations", busy)]
}

pub(super) fn report(page: &mut Page, runs: &Runs, size: &Size) -> Result<()> {
    page.section("Series 2: throughput and response times (5.5)", "");
    throughputs(page, runs, size)?;
    at_replicas(page, runs, size)?;
    at_front_ends(page, runs, size)
}

/// Adds a table and a plot of some lines.
fn show(
    page: &mut Page,
    runs: &Runs,
    size: &Size,
    (file, title, axis): (&str, &str, &str),
    lines: &[&'static str],
    measure: Measure,
) -> Result<()> {
    let columns: Vec<String> = (1..=size.replicas_max).map(|count| count.to_string()).collect();
    let row = |line: &&'static str| {
        let values = runs.line(line, &measure);
        let cells = values.iter().map(|(_, value)| digits(*value)).collect();
        let spread = runs.spread(line, &measure) * 100.0;
        (format!("{line} (each run within {spread:.0} %)"), cells)
    };
    let rows: Vec<_> = lines.iter().map(row).collect();
    page.table(&format!("{axis}, by replicas"), &columns, &rows);
    let drawn = lines.iter().map(|line| (*line, runs.line(line, &measure))).collect();
    page.plot(file, title, ("replicas", axis), drawn)
}

/// Formats three digits, or all digits before the point.
pub(super) fn digits(value: f64) -> String {
    match value {
        none if none.is_nan() => "–".into(),
        0.0 => "0".into(),
        tiny if tiny.abs() < 0.1 => format!("{tiny:.3}"),
        small if small < 10.0 => format!("{small:.2}"),
        middle if middle < 100.0 => format!("{middle:.1}"),
        large => format!("{large:.0}"),
    }
}

fn throughputs(page: &mut Page, runs: &Runs, size: &Size) -> Result<()> {
    let most = f64::from(u32::try_from(size.replicas_max)?);
    #[expect(clippy::cast_precision_loss, reason = "a small number")]
    let rate = RATE * size.haste as f64;
    page.part("Throughput", "Operations a second, the mean of all runs.");
    for (figure, pattern) in [("5.2", CONSTANT), ("5.3", PROPORTIONAL), ("5.4", FLOOD)] {
        let title = format!("Figure {figure}: throughput at {}", pattern.name);
        let about = (&*format!("throughput-{}", pattern.file), &*title, "operations a second");
        show(page, runs, size, about, &pattern.lines, throughput)?;
    }
    for line in CONSTANT.lines {
        let values = runs.line(line, &throughput);
        let lowest = values.iter().map(|point| point.1).fold(f64::MAX, f64::min);
        page.claim(
            &format!("5.2, *{line}*: close to the limit of 33 for any number of replicas"),
            &format!("never below {}", digits(lowest)),
            lowest > 0.93 * rate,
            "",
        );
        let spread = runs.spread(line, &throughput);
        page.claim(
            &format!("5.2, *{line}*: a slight decline with the number of replicas"),
            &format!(
                "{} for one, {} for {most}; runs differ by {:.1} %",
                digits(first(&values)),
                digits(last(&values)),
                spread * 100.0
            ),
            last(&values) < first(&values) * (1.0 - spread.max(0.005)),
            "A replica that is asked less than it can do has time for gossip, so nothing is lost.",
        );
    }
    for line in PROPORTIONAL.lines {
        let values = runs.line(line, &throughput);
        let (slope, _, straight) = super::claims::fit(&values);
        let share = last(&values) / (rate * most);
        page.claim(
            &format!(
                "5.3, *{line}*: rises nearly linearly, and does not come close to 330 for \
                      ten"
            ),
            &format!(
                "{} for {most} replicas, {:.0} % of what is submitted; {} more for each, \
                      a straight line explains {:.0} %",
                digits(last(&values)),
                share * 100.0,
                digits(slope),
                straight * 100.0
            ),
            rises(&values, 0.0) && straight > 0.95 && share < 0.8,
            "Gossip takes more of each replica's time the more replicas there are, so each adds \
             less than the one before.",
        );
    }
    for line in FLOOD.lines {
        let values = runs.line(line, &throughput);
        page.claim(
            &format!("5.4, *{line}*: rises as more replicas join"),
            &format!("{} for one, {} for {most}", digits(first(&values)), digits(last(&values))),
            rises(&values, 0.02),
            "",
        );
    }
    Ok(())
}

fn at_replicas(page: &mut Page, runs: &Runs, size: &Size) -> Result<()> {
    page.part(
        "Response time at the replicas",
        "Milliseconds, the mean of all operations and runs.",
    );
    let lines = [PROPORTIONAL.lines[0], PROPORTIONAL.lines[1], SILENT];
    let (at_33, at_33n) = (
        "Figure 5.5: response time at replicas, 33 operations a second",
        "Figures 5.6, 5.7: response time at replicas, 33 operations a second for each",
    );
    show(page, runs, size, ("at-replica-33", at_33, "ms"), &CONSTANT.lines, at_replica)?;
    show(page, runs, size, ("at-replica-33n", at_33n, "ms"), &lines, at_replica)?;
    let why = [
        "An operation is stable three rounds of gossip after it was done, and there is time for \
         them, so only few operations are applied again, whatever the number of replicas. For \
         the paper's explanation, that nothing becomes stable before the run ends, gossip must \
         not keep up, as it does not in the eager replica.",
        "",
    ];
    for (line, why) in CONSTANT.lines.into_iter().zip(why) {
        let values = runs.line(line, &at_replica);
        let again = runs.line(line, &again);
        let (has_trend, from) = rises_and_levels_off(&values);
        page.claim(
            &format!("5.5, *{line}*: short with one replica, longer with more, level from four on"),
            &format!(
                "{} ms with one, {} ms with {}; level from {from} on; {} operations are \
                      applied again for an answer at last",
                digits(first(&values)),
                digits(last(&values)),
                size.replicas_max,
                digits(last(&again))
            ),
            has_trend,
            why,
        );
    }
    trend_with_more(page, runs);
    let silent = runs.line(SILENT, &at_replica);
    let (top, _) = peak(&silent);
    page.claim(
        "5.7, *no gossip*: up at first, then down, as each replica knows less",
        &format!(
            "{} ms with one, {} ms with {top}, {} ms with {}",
            digits(first(&silent)),
            digits(peak(&silent).1),
            digits(last(&silent)),
            size.replicas_max
        ),
        top > 1.0 && falls(&silent[1..], 0.01),
        "",
    );
    Ok(())
}

/// Adds figure 5.6: the paper expects the trend of figure 5.5, which is level from four replicas
/// on.
fn trend_with_more(page: &mut Page, runs: &Runs) {
    let why = [
        "In turn, at 33 operations a second the replicas have time for gossip whatever their \
         number; at 33 for each they are overloaded (5.3), and the more, the more they are.",
        "A replica that hears requests first hears no gossip while it is overloaded, so it knows \
         only what it was asked itself, and that becomes less with each replica: this is figure \
         5.7 with the cost of gossip.",
    ];
    let lines = PROPORTIONAL.lines.into_iter().zip(CONSTANT.lines);
    for ((line, constant), why) in lines.zip(why) {
        let (values, reference) = (runs.line(line, &at_replica), runs.line(constant, &at_replica));
        let described = |line| format!("{}, level from {} on", ends(line), level(line));
        page.claim(
            &format!("5.6, *{line}*: the same trend as at 33 a second, level from four on"),
            &format!("{}; at 33 a second {}", described(&values), described(&reference)),
            keeps_trend(&values, &reference),
            why,
        );
    }
}

/// Returns the number of replicas from which on a line is level.
fn level(line: &[(f64, f64)]) -> f64 {
    rises_and_levels_off(line).1
}

/// Describes the first and the last value.
fn ends(values: &[(f64, f64)]) -> String {
    let replicas = values.last().map_or(f64::NAN, |point| point.0);
    format!("{} ms with one, {} ms with {replicas}", digits(first(values)), digits(last(values)))
}

fn again(run: &Value) -> f64 {
    crate::instrument::number(run, "/again")
}

fn at_front_ends(page: &mut Page, runs: &Runs, size: &Size) -> Result<()> {
    page.part(
        "Response time at the front end",
        "Milliseconds, the mean of all operations and runs.",
    );
    let lines = [PROPORTIONAL.lines[0], PROPORTIONAL.lines[1], SILENT];
    for (file, title, lines) in [
        (
            "33",
            "Figure 5.8: response time at the front end, 33 operations a second",
            &CONSTANT.lines[..],
        ),
        (
            "33n",
            "Figures 5.9, 5.10: response time at the front end, 33 a second for each",
            &lines[..],
        ),
        (
            "330",
            "Figure 5.11: response time at the front end, 330 operations a second",
            &FLOOD.lines[..],
        ),
    ] {
        let file = format!("at-front-end-{file}");
        show(page, runs, size, (&file, title, "ms"), lines, at_front_end)?;
    }
    at_front_end_calm(page, runs);
    at_front_end_busy(page, runs);
    without_gossip(page, runs);
    for line in FLOOD.lines {
        let values = runs.line(line, &at_front_end);
        page.claim(
            &format!("5.11, *{line}*: very long with few replicas, shorter as more join"),
            &ends(&values),
            falls(&values, 0.02),
            "",
        );
    }
    Ok(())
}

/// Adds figure 5.10, as three claims of the paper.
fn without_gossip(page: &mut Page, runs: &Runs) {
    let silent = runs.line(SILENT, &at_front_end);
    for line in PROPORTIONAL.lines {
        let with = runs.line(line, &at_front_end);
        let longer = |pair: &(&(f64, f64), &(f64, f64))| pair.0.0 > 1.0 && pair.0.1 >= pair.1.1;
        let not: Vec<String> =
            silent.iter().zip(&with).filter(longer).map(|pair| pair.0.0.to_string()).collect();
        page.claim(
            &format!("5.10, against *{line}*: much shorter without gossip"),
            &format!(
                "{} against {} ms at last; {}",
                digits(last(&silent)),
                digits(last(&with)),
                match &not[..] {
                    [] => "shorter with every number of replicas from two on".to_owned(),
                    some => format!("not shorter with {} replicas", some.join(", ")),
                }
            ),
            not.is_empty(),
            "Without gossip nothing ever becomes stable, so all that a replica was asked is \
             applied again for each answer; with two replicas that is half of all.",
        );
    }
    let (top, _) = peak(&silent);
    page.claim(
        "5.10: a jump at the beginning, then a steady decline",
        &format!(
            "at most {} ms, with {top}; {} ms at last",
            digits(peak(&silent).1),
            digits(last(&silent))
        ),
        (2.0..=3.0).contains(&top) && falls(&silent[1..], 0.02),
        "",
    );
    let low = silent.iter().skip(1).map(|point| point.1).fold(f64::MAX, f64::min);
    page.claim(
        "5.10: for larger numbers of replicas it goes up again, since they are busier",
        &format!(
            "{} ms at last, {} ms at the lowest of more than one",
            digits(last(&silent)),
            digits(low)
        ),
        last(&silent) > 1.05 * low,
        "Each replica is asked 33 times a second whatever their number, and knows less with each \
         that joins, so it has less to do. What could be busier is the front end, which all have \
         in common: ours is not, at the costs above.",
    );
}

/// Adds figure 5.8.
fn at_front_end_calm(page: &mut Page, runs: &Runs) {
    for line in CONSTANT.lines {
        let values = runs.line(line, &at_front_end);
        page.claim(
            &format!("5.8, *{line}*: grows with the number of replicas"),
            &ends(&values),
            rises(&values, 0.02) && last(&values) > 1.05 * first(&values),
            "",
        );
    }
}

/// Adds figure 5.9.
fn at_front_end_busy(page: &mut Page, runs: &Runs) {
    for line in PROPORTIONAL.lines {
        let (values, calm) =
            (runs.line(line, &at_front_end), runs.line(CONSTANT.lines[0], &at_front_end));
        page.claim(
            &format!("5.9, *{line}*: longer than at 33 a second, without a steady upward trend"),
            &format!(
                "{} ms with two, {} ms with {}, at most {} ms with {}",
                digits(at(&values, 2.0)),
                digits(last(&values)),
                values.len(),
                digits(peak(&values).1),
                peak(&values).0
            ),
            last(&values) > last(&calm) && !rises(&values, 0.0),
            "",
        );
    }
}
