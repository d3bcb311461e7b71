//! Text report at the end of a run, and a progress line each second during it.

use super::units::{bytes, count, percent, rate, time};
use super::{Run, Summary, Title};
use crate::io::Kind;
use crate::statistics::{Statistics, Within};
use crate::verdict::Verdict;
use hdrhistogram::Histogram;

const SECOND_NS: u64 = 1_000_000_000;

/// Formats the final report: about 25 lines of up to 90 columns.
pub fn report(run: &Run<'_>) -> String {
    let mut lines = title(run.title);
    lines.push(totals(run.statistics));
    lines.push(String::new());
    lines.extend(times(run.statistics));
    lines.push(String::new());
    lines.extend(issue(run));
    lines.extend(shape(run.statistics));
    lines.push(machine(run));
    lines.push(String::new());
    lines.extend(verdict(run.verdict));
    lines.iter().map(|line| line.trim_end().to_owned() + "\n").collect()
}

fn title(title: &Title) -> Vec<String> {
    let Title { target, workload, started, host, .. } = title;
    let requested = title.asked_rate.map(|requested| format!(", {} asked for", rate(requested)));
    vec![
        format!("target    {}  ({}, from {})", plain(target), plain(started), plain(host)),
        format!("workload  {}{}", plain(workload), requested.unwrap_or_default()),
    ]
}

/// Replaces control characters in external text.
fn plain(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { '?' } else { letter }).collect()
}

fn totals(statistics: &Statistics) -> String {
    let seconds = statistics.run_ns() as f64 / 1e9;
    let (read, written) = (statistics.bytes_read(), statistics.bytes_written());
    let issued = count(statistics.issued_count());
    let mut line = format!(
        "run       {} · {issued} I/Os · {}",
        time(statistics.run_ns() as f64),
        rate(statistics.rate()),
    );
    for (moved, way) in [(read, "read"), (written, "written")] {
        if moved > 0 {
            line += &format!(" · {}/s {way}", bytes(moved as f64 / seconds.max(1e-9)));
        }
    }
    for (number, what) in [(statistics.skipped(), "skipped"), (statistics.failed(), "refused")] {
        if number > 0 {
            line += &format!(" · {} {what}", count(number));
        }
    }
    line
}

/// Formats the three times of all I/Os, and service and response of each kind if there are several.
fn times(statistics: &Statistics) -> Vec<String> {
    let together = statistics.together();
    let head = ["I/Os", "mean", "p50", "p90", "p99", "p99.9", "p99.99", "max"];
    let mut lines = vec![row("", &head.map(str::to_owned))];
    lines.push(times_row("lateness", &together.lateness));
    lines.push(times_row("service", &together.service));
    lines.push(times_row("response", &together.response));
    let kinds: Vec<_> = statistics.kinds().collect();
    if kinds.len() > 1 {
        for (kind, times) in kinds {
            lines.push(times_row(&format!("  {kind}"), &times.response));
        }
    }
    lines
}

fn times_row(name: &str, times: &Histogram<u64>) -> String {
    let all = Summary::of(times);
    let at = [all.p50, all.p90, all.p99, all.p99_9, all.p99_99, all.max];
    let mut cells = vec![count(all.count), time(all.mean)];
    cells.extend(at.map(|ns| time(ns as f64)));
    row(name, &cells)
}

fn row(name: &str, cells: &[String]) -> String {
    cells.iter().fold(format!("{name:<8}"), |line, cell| line + &format!(" {cell:>9}"))
}

/// Formats the quality of the issue times.
fn issue(run: &Run<'_>) -> Vec<String> {
    let statistics = run.statistics;
    let mut lines = vec![within("issued", statistics.within(), statistics.issued_count())];
    if let Some(witness) = statistics.witness() {
        lines.push(within("witness", &witness.within, witness.lateness.len()));
        let apart = Summary::of(&witness.apart);
        let (median, far) = (time(apart.p50 as f64), time(apart.p99 as f64));
        lines.push(format!("          the kernel saw them {median} after their issue, p99 {far}"));
    }
    if let Some(drift) = statistics.drift() {
        lines.push(format!(
            "drift     {} from first tenth to last · {} a second · run longer by {}",
            time(drift.median_ns as f64),
            time(drift.slope_ns_per_s),
            time(drift.stretch_ns as f64),
        ));
    }
    lines
}

fn within(name: &str, within: &Within, of: u64) -> String {
    let part = |(limit, count): (u64, u64)| {
        let share = count as f64 / of.max(1) as f64;
        format!("{} ≤ {}", percent(share), time(limit as f64))
    };
    let parts = Within::LIMITS_NS.into_iter().zip(within.counts()).map(part);
    format!("{name:<9} {}", parts.collect::<Vec<_>>().join(" · "))
}

/// Formats the shape of the load.
fn shape(statistics: &Statistics) -> Vec<String> {
    let mut lines = vec![format!(
        "queue     {} on average, at least {} at most",
        super::units::digits(statistics.queue_mean()),
        statistics.queue_max(),
    )];
    let distances = statistics.distances();
    if distances.count() > 0 {
        lines.push(format!(
            "places    {} sequential · half within {} of the one before",
            percent(distances.sequential_share()),
            bytes(distances.quantile(0.5) as f64),
        ));
    }
    lines
}

fn machine(run: &Run<'_>) -> String {
    let machine = run.machine;
    let policy = machine.policies.last().map_or("-", |(_, policy)| policy.as_str());
    format!(
        "machine   {} processors · clock {} · waits by {policy} · {} gaps, {} of the time",
        machine.processors,
        if machine.clock.is_empty() { "-" } else { &machine.clock },
        count(machine.gap_count),
        percent(machine.stolen_share()),
    )
}

/// Formats the verdict: its word, the broken rules, and notes.
pub fn verdict(verdict: &Verdict) -> Vec<String> {
    let mut lines = vec![verdict.word().to_owned()];
    lines.extend(verdict.broken().flat_map(|reason| wrap("✗", &reason.sentence)));
    lines.extend(verdict.notes.iter().flat_map(|note| wrap("·", note)));
    lines
}

/// Wraps a sentence after a mark into lines of up to 86 columns.
pub(crate) fn wrap(mark: &str, sentence: &str) -> Vec<String> {
    let mut lines = vec![format!("  {mark}")];
    for word in sentence.split_whitespace() {
        let last = lines.last_mut().expect("there is one from the start");
        if last.chars().count() + 1 + word.chars().count() <= 86 {
            *last += &format!(" {word}");
        } else {
            lines.push(format!("    {word}"));
        }
    }
    lines
}

/// Formats a line about the second before `now_ns`, in ns since the start of the run. If the run's
/// intervals are wider than a second, it covers the last interval.
pub fn progress(statistics: &Statistics, now_ns: u64) -> String {
    let series = statistics.series();
    let width = series.width_ns();
    let end = (now_ns / width) as usize;
    let some = (SECOND_NS / width).max(1) as usize;
    let ticks = series.ticks().iter().take(end).skip(end.saturating_sub(some));
    let (mut completed, mut bytes_done, mut ticks_seen, mut late) = (0, 0, 0, 0);
    for tick in ticks {
        completed += tick.completed;
        bytes_done += tick.bytes;
        late = late.max(tick.lateness_ns_max);
        ticks_seen += 1;
    }
    let seconds = (ticks_seen * width).max(1) as f64 / 1e9;
    let queue = statistics.queue().get(end.saturating_sub(1)).map_or(0, |queue| queue.max);
    let (median, tail) = recent(statistics, now_ns);
    let mut line = format!(
        "{:>5} s {:>11} {:>12}/s  response {:>8} p99 {:>8}  late ≤ {:>8}  queue {queue}",
        now_ns / SECOND_NS,
        rate(completed as f64 / seconds),
        bytes(bytes_done as f64 / seconds),
        time(median as f64),
        time(tail as f64),
        time(late as f64),
    );
    for (number, what) in [(statistics.skipped(), "skipped"), (statistics.failed(), "refused")] {
        if number > 0 {
            line += &format!("  {} {what}", count(number));
        }
    }
    line
}

/// Returns the median and 99th percentile of the response times of the last second.
fn recent(statistics: &Statistics, now_ns: u64) -> (u64, u64) {
    let spans = statistics.spans();
    let end = (now_ns / spans.width_ns()) as usize;
    let some = (SECOND_NS / spans.width_ns()).max(1) as usize;
    let mut response = crate::statistics::Buckets::default();
    for span in spans.all().iter().take(end).skip(end.saturating_sub(some)) {
        response.merge(&span.response);
    }
    (response.quantile(0.5), response.quantile(0.99))
}

/// Returns the name of a kind of I/O for headlines, or "all".
pub(super) fn kind_name(kind: Option<Kind>) -> String {
    kind.map_or_else(|| "all".to_owned(), |kind| kind.name().to_owned())
}
