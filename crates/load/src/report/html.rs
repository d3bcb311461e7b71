//! Report as a self-contained HTML page with plots.

use super::units::{bytes, count, digits, percent, rate, time};
use super::{Axis, Line, Mark, Page, Plot, Run, Summary, Table, Unit, cdf, text, thin};
use crate::io::Kind;
use crate::statistics::{Statistics, Tick, Times, Within};
use hdrhistogram::Histogram;

/// Maximum points of a series.
const POINTS: usize = 300;
/// Maximum gaps drawn, longest first.
const GAPS: usize = 2_000;
/// Lower bound of drawn times, in ns.
const LEAST_NS: f64 = 10.0;

/// Formats the page.
pub fn report(run: &Run<'_>) -> String {
    let mut page = Page::new(&format!("upcall load: {}", run.title.target));
    page.paragraph(&format!("{} · {} · {}", run.title.workload, run.title.started, run.title.host));
    let reasons = run.verdict.reasons.iter();
    let sentences = reasons.map(|reason| (reason.holds, reason.sentence.as_str()));
    page.verdict(run.verdict.word(), run.verdict.valid, sentences);
    run.verdict.notes.iter().for_each(|note| page.paragraph(note));
    page.table("Totals", &totals(run));
    page.table("Times", &times(run.statistics));
    page.begin_plots();
    issue_error(&mut page, run.statistics);
    latency(&mut page, run.statistics);
    over_time(&mut page, run.statistics);
    queue(&mut page, run.statistics);
    burstiness(&mut page, run.statistics);
    gaps(&mut page, run);
    page.end_plots();
    page.table("Late I/Os", &causes(run.statistics));
    page.table("Facts", &facts(run));
    page.html()
}

/// Tabulates lateness by cause.
fn causes(statistics: &Statistics) -> Table {
    let mut table = Table::new(["cause", "I/Os", "later than 10 µs", "lateness", "skipped"]);
    for (cause, late) in statistics.causes() {
        let lateness = time(late.lateness_ns as f64);
        let [all, later, skipped] = [late.count, late.late, late.skipped].map(count);
        table.row([super::cause_name(cause).to_owned(), all, later, lateness, skipped]);
    }
    table
}

/// Tabulates facts without a plot.
fn facts(run: &Run<'_>) -> Table {
    let machine = run.machine;
    let mut table = Table::new(["what", "is"]);
    let mut fact = |name: &str, is: String| table.row([name.to_owned(), is]);
    if let Some(drift) = run.statistics.drift() {
        fact("drift, first tenth to last", time(drift.median_ns as f64));
        fact("drift in a second", time(drift.slope_ns_per_s));
        fact("run longer by", time(drift.stretch_ns as f64));
    }
    if let Some(witness) = run.statistics.witness() {
        let apart = Summary::of(&witness.apart);
        fact("issue to kernel, median", time(apart.p50 as f64));
        fact("issue to kernel, p99", time(apart.p99 as f64));
        fact("seen by the kernel before issue", count(witness.before));
    }
    let distances = run.statistics.distances();
    fact("sequential", percent(distances.sequential_share()));
    fact("median distance", bytes(distances.quantile(0.5) as f64));
    fact("processors", machine.processors.to_string());
    fact("clock", machine.clock.clone());
    fact("calibrations of the clock", count(machine.recalibrations));
    fact("real-time priority", if machine.realtime { "permitted" } else { "not permitted" }.into());
    for (at_ns, policy) in machine.policies.iter().take(20) {
        fact(&format!("waits from {}", time(*at_ns as f64)), policy.clone());
    }
    for (number, refused) in run.statistics.errors() {
        fact(&format!("error {number}"), count(*refused));
    }
    table
}

fn totals(run: &Run<'_>) -> Table {
    let statistics = run.statistics;
    let requested = run.title.asked_rate.map_or("-".to_owned(), rate);
    let mut table = Table::new([
        "run", "I/Os", "asked", "issued", "read", "written", "refused", "skipped", "queue",
    ]);
    table.row([
        time(statistics.run_ns() as f64),
        count(statistics.issued_count()),
        requested,
        rate(statistics.rate()),
        bytes(statistics.bytes_read() as f64),
        bytes(statistics.bytes_written() as f64),
        count(statistics.failed()),
        count(statistics.skipped()),
        digits(statistics.queue_mean()),
    ]);
    table
}

fn times(statistics: &Statistics) -> Table {
    let mut table = Table::new(["", "I/Os", "mean", "p50", "p90", "p99", "p99.9", "p99.99", "max"]);
    let mut add = |name: String, times: &Histogram<u64>| {
        let all = Summary::of(times);
        let at = |ns: u64| time(ns as f64);
        table.row([
            name,
            count(all.count),
            time(all.mean),
            at(all.p50),
            at(all.p90),
            at(all.p99),
            at(all.p99_9),
            at(all.p99_99),
            at(all.max),
        ]);
    };
    let mut three = |kind: Option<Kind>, times: &Times| {
        let kind = text::kind_name(kind);
        add(format!("{kind}: lateness"), &times.lateness);
        add(format!("{kind}: service"), &times.service);
        add(format!("{kind}: response"), &times.response);
    };
    three(None, &statistics.together());
    let kinds: Vec<_> = statistics.kinds().collect();
    if kinds.len() > 1 {
        kinds.into_iter().for_each(|(kind, times)| three(Some(kind), times));
    }
    table
}

const SHARE: Axis<'static> = Axis { name: "share of I/Os", unit: Unit::Share, logarithmic: false };
const SECONDS: Axis<'static> = Axis { name: "time", unit: Unit::Seconds, logarithmic: false };

fn line(name: &str, points: Vec<(f64, f64)>) -> Line {
    Line { name: name.to_owned(), points, mark: Mark::Line }
}

fn under(name: &str, points: Vec<(f64, f64)>) -> Line {
    Line { mark: Mark::Under, ..line(name, points) }
}

/// Plots the distribution of issue errors: the paper's figures 4 to 6.
fn issue_error(page: &mut Page, statistics: &Statistics) {
    let together = statistics.together();
    let mut lines = vec![line("by the generator", cdf(&together.lateness, LEAST_NS))];
    let mut table = Table::new(["within", "1 µs", "10 µs", "100 µs", "1 ms"]);
    let shares = |within: &Within, of: u64| {
        within.counts().map(|count| percent(count as f64 / of.max(1) as f64))
    };
    let [a, b, c, d] = shares(statistics.within(), statistics.issued_count());
    table.row(["generator".to_owned(), a, b, c, d]);
    if let Some(witness) = statistics.witness() {
        lines.push(line("by the kernel's trace", cdf(&witness.lateness, LEAST_NS)));
        let [a, b, c, d] = shares(&witness.within, witness.lateness.len());
        table.row(["kernel".to_owned(), a, b, c, d]);
    }
    let x = Axis { name: "issue error", unit: Unit::Time, logarithmic: true };
    page.plot("How late I/Os were issued", &Plot { x, y: SHARE, lines }, Some(&table));
}

/// Plots service and response times of the two kinds with the most I/Os.
fn latency(page: &mut Page, statistics: &Statistics) {
    let mut kinds: Vec<_> = statistics.kinds().collect();
    kinds.sort_by_key(|(_, times)| std::cmp::Reverse(times.service.len()));
    let lines = kinds.iter().take(2).flat_map(|(kind, times)| {
        [
            under(&format!("{kind}: response"), cdf(&times.response, LEAST_NS)),
            line(&format!("{kind}: service"), cdf(&times.service, LEAST_NS)),
        ]
    });
    let lines = lines.collect();
    let x = Axis { name: "latency", unit: Unit::Time, logarithmic: true };
    page.plot("How long I/Os took", &Plot { x, y: SHARE, lines }, None);
}

fn over_time(page: &mut Page, statistics: &Statistics) {
    let spans = statistics.spans();
    let width = spans.width_ns() as f64 / 1e9;
    let full = spans.all().iter().enumerate().filter(|(_, span)| span.response.count() > 0);
    let full: Vec<_> = full.collect();
    let points = |at: fn(&crate::statistics::Buckets) -> u64| {
        let point = |(index, span): &(usize, &crate::statistics::Span)| {
            ((*index as f64 + 0.5) * width, at(&span.response) as f64)
        };
        full.iter().map(point).collect::<Vec<_>>()
    };
    let lines = vec![
        line("p50", points(|times| times.quantile(0.5))),
        line("p99", points(|times| times.quantile(0.99))),
        line("max", points(|times| times.max())),
    ];
    let y = Axis { name: "response time", unit: Unit::Time, logarithmic: true };
    let headline = format!("Response time in each {}", time(spans.width_ns() as f64));
    page.plot(&headline, &Plot { x: SECONDS, y, lines }, None);
}

/// Places values at the middles of intervals of width `width_s`.
fn at_middles(values: Vec<f64>, width_s: f64) -> Vec<(f64, f64)> {
    let points = values.into_iter().enumerate();
    points.map(|(index, value)| ((index as f64 + 0.5) * width_s, value)).collect()
}

fn queue(page: &mut Page, statistics: &Statistics) {
    let queue = statistics.queue();
    let mean = |group: &[crate::statistics::Queue]| {
        group.iter().map(|queue| queue.mean).sum::<f64>() / group.len() as f64
    };
    let max = |group: &[crate::statistics::Queue]| {
        group.iter().map(|queue| queue.max).max().unwrap_or(0) as f64
    };
    let (group, means) = thin(&queue, POINTS, mean);
    let (_, longest) = thin(&queue, POINTS, max);
    let width = statistics.series().width_ns() as f64 / 1e9 * group as f64;
    let lines = vec![
        line("mean", at_middles(means, width)),
        line("longest (at least)", at_middles(longest, width)),
    ];
    let mut table = Table::new(["whole run", "mean", "longest (at least)"]);
    table.row([
        "I/Os in flight".to_owned(),
        digits(statistics.queue_mean()),
        count(statistics.queue_max()),
    ]);
    let y = Axis { name: "I/Os in flight", unit: Unit::Count, logarithmic: false };
    page.plot("Length of the queue", &Plot { x: SECONDS, y, lines }, Some(&table));
}

/// Plots requests per interval: the paper's figure 10.
fn burstiness(page: &mut Page, statistics: &Statistics) {
    let series = statistics.series();
    // The last interval is partial, and would look like a pause.
    let whole = (statistics.issued().last_ns / series.width_ns()) as usize;
    let ticks = series.ticks().get(..whole.max(1)).unwrap_or_default();
    let sum = |of: fn(&Tick) -> u64| {
        thin(ticks, POINTS, move |group: &[Tick]| group.iter().map(of).sum::<u64>() as f64)
    };
    let (group, scheduled) = sum(|tick| tick.scheduled);
    let (_, issued) = sum(|tick| tick.issued);
    let width_ns = statistics.series().width_ns() as f64 * group as f64;
    let lines = vec![
        under("to be issued", at_middles(scheduled, width_ns / 1e9)),
        line("issued", at_middles(issued, width_ns / 1e9)),
    ];
    let y = Axis { name: "I/Os", unit: Unit::Count, logarithmic: false };
    let headline = format!("I/Os in each {}", time(width_ns));
    page.plot(&headline, &Plot { x: SECONDS, y, lines }, None);
}

/// Plots the times stolen by the machine.
fn gaps(page: &mut Page, run: &Run<'_>) {
    let machine = run.machine;
    let mut gaps = machine.gaps.clone();
    gaps.sort_by_key(|gap| std::cmp::Reverse(gap.len_ns));
    gaps.truncate(GAPS);
    let point = |gap: &crate::statistics::Gap| (gap.start_ns as f64 / 1e9, gap.len_ns as f64);
    let points = gaps.iter().map(point).collect();
    let lines = vec![Line { name: "gaps".to_owned(), points, mark: Mark::Dot }];
    let mut table = Table::new(["", "share of time", "longest gap"]);
    let longest = time(machine.gap_ns_max() as f64);
    table.row(["this run".to_owned(), percent(machine.stolen_share()), longest]);
    for (name, spin) in [("before", machine.spin_before), ("after", machine.spin_after)] {
        if let Some(spin) = spin {
            let longest = time(spin.gap_ns_max as f64);
            table.row([format!("bare loop {name}"), percent(spin.share()), longest]);
        }
    }
    let y = Axis { name: "length", unit: Unit::Time, logarithmic: true };
    let plot = Plot { x: SECONDS, y, lines };
    page.plot("When the machine took the processor away", &plot, Some(&table));
}
