//! Reports of a comparison: text, JSON and HTML.

use super::{Comparison, Effect, Part};
use crate::report::units::{bytes, count, digits, percent, time};
use crate::report::{Axis, Line, Mark, Page, Plot, Table, Unit, text};

/// Row of the table of both runs: name and value.
type Cell = (&'static str, fn(&Part) -> String);

const CELLS: [Cell; 12] = [
    ("I/Os", |part| count(part.issued)),
    ("skipped", |part| count(part.skipped)),
    ("refused", |part| count(part.failed)),
    ("out of order", |part| count(part.displaced)),
    ("length", |part| time(part.len_ns as f64)),
    ("response, mean", |part| time(part.response.mean)),
    ("response, max", |part| time(part.response.max as f64)),
    ("service, mean", |part| time(part.service.mean)),
    ("service, p99", |part| time(part.service.p99 as f64)),
    ("queue, mean", |part| digits(part.queue_mean)),
    ("queue, max", |part| count(part.queue_max)),
    ("sequential", |part| percent(part.sequential)),
];

/// Formats the comparison as text.
pub fn text(comparison: &Comparison) -> String {
    let mut lines = vec![format!("{:<18} {:>12} {:>12} {:>9}", "", "A", "B", "B/A")];
    for table in [both(comparison), quantiles("service", &comparison.service), bursts(comparison)] {
        for row in table.rows {
            let cells = row[1..].iter().zip([12, 12, 9]);
            let cells = cells.map(|(cell, width)| format!(" {cell:>width$}")).collect::<String>();
            lines.push(format!("{:<18}{cells}", row[0]).trim_end().to_owned());
        }
    }
    lines.push(String::new());
    lines.push(word(comparison).to_owned());
    for finding in &comparison.findings {
        let mark = if finding.holds { "✓" } else { "✗" };
        lines.extend(text::wrap(mark, &finding.sentence));
    }
    lines.extend(text::wrap("·", &comparison.summary));
    lines.join("\n") + "\n"
}

fn word(comparison: &Comparison) -> &'static str {
    if comparison.faithful { "FAITHFUL" } else { "NOT FAITHFUL" }
}

/// Formats the comparison as JSON. Times are in ns, shares are fractions of one.
pub fn json(comparison: &Comparison) -> String {
    serde_json::to_string_pretty(comparison).expect("every key is a string and nothing fails")
        + "\n"
}

fn both(comparison: &Comparison) -> Table {
    let mut table = Table::new(["", "A", "B"]);
    let runs = &comparison.runs;
    for (name, cell) in CELLS {
        table.row([name.to_owned(), cell(&runs.a), cell(&runs.b)]);
    }
    table
}

fn quantiles(what: &str, effect: &Effect) -> Table {
    let mut table = Table::new(["", "A", "B", "B/A"]);
    for ratio in &effect.quantiles {
        let name = format!("{what}, p{}", (ratio.quantile * 1000.0).round() / 10.0);
        let (a, b) = (time(ratio.ns.a as f64), time(ratio.ns.b as f64));
        let ratio = ratio.ratio;
        let shown = if ratio.is_finite() { format!("{ratio:.3}") } else { "-".to_owned() };
        table.row([name, a, b, shown]);
    }
    table
}

/// The fourth column is the correlation of the counts.
fn bursts(comparison: &Comparison) -> Table {
    let mut table = Table::new(["variance by mean", "A", "B", "together"]);
    let number = |number: Option<f64>| number.map_or("-".to_owned(), digits);
    for burst in &comparison.bursts {
        let name = format!("bursts in {}", time(burst.width_ns as f64));
        let (a, b) = (number(burst.dispersion.a), number(burst.dispersion.b));
        table.row([name, a, b, number(burst.correlation)]);
    }
    table
}

/// Formats the comparison as an HTML page; `names` describes A and B.
pub fn html(comparison: &Comparison, names: [&str; 2]) -> String {
    let mut page = Page::new("upcall load: two runs compared");
    page.paragraph(&format!("A is {}, B is {}.", names[0], names[1]));
    let findings = comparison.findings.iter();
    let sentences = findings.map(|finding| (finding.holds, finding.sentence.as_str()));
    page.verdict(word(comparison), comparison.faithful, sentences);
    page.paragraph(&comparison.summary);
    page.begin_plots();
    plots(&mut page, comparison);
    page.end_plots();
    page.table("Both runs", &both(comparison));
    page.html()
}

fn plots(page: &mut Page, comparison: &Comparison) {
    let share = |name| Axis { name, unit: Unit::Share, logarithmic: false };
    let axis = |name, unit, logarithmic| Axis { name, unit, logarithmic };
    let curves = &comparison.curves;
    let effects = [&comparison.service, &comparison.response];
    let times = [
        ("service", "Service times, from issue (figures 8, 11)", &curves.service),
        ("response", "Response times, from when I/Os were to be issued", &curves.response),
    ];
    for ((what, headline, curves), effect) in times.into_iter().zip(effects) {
        let x = axis(what, Unit::Time, true);
        let plot = Plot { x, y: share("share of I/Os"), lines: pair(curves) };
        page.plot(headline, &plot, Some(&quantiles(what, effect)));
    }
    let headline = format!("I/Os in each {} (figure 10)", time(curves.counts_width_ns as f64));
    let (x, y) = (axis("time", Unit::Seconds, false), axis("I/Os", Unit::Count, false));
    page.plot(&headline, &Plot { x, y, lines: pair(&curves.counts) }, Some(&bursts(comparison)));
    shapes(page, comparison);
}

/// Plots queue lengths, issue times and seek distances.
fn shapes(page: &mut Page, comparison: &Comparison) {
    let share = |name| Axis { name, unit: Unit::Share, logarithmic: false };
    let axis = |name, unit, logarithmic| Axis { name, unit, logarithmic };
    let curves = &comparison.curves;
    let x = axis("I/Os in flight", Unit::Count, false);
    let plot = Plot { x, y: share("share of time"), lines: pair(&curves.queue) };
    page.plot("Length of the queue", &plot, None);
    let points = curves.issue.clone();
    let name = "A to B, either way".to_owned();
    let lines = vec![Line { name, points, mark: Mark::Line }];
    let x = axis("issue error", Unit::Time, true);
    page.plot(
        "Issue times",
        &Plot { x, y: share("share of I/Os"), lines },
        Some(&issue(comparison)),
    );
    let x = axis("distance from the I/O before", Unit::Bytes, true);
    let plot = Plot { x, y: share("share of I/Os"), lines: pair(&curves.distances) };
    page.plot("Seek distances", &plot, Some(&places(comparison)));
}

/// A as a wide, pale line, B over it.
fn pair(curves: &[Vec<(f64, f64)>; 2]) -> Vec<Line> {
    let line = |(points, (name, mark)): (&Vec<(f64, f64)>, (&str, Mark))| Line {
        name: name.to_owned(),
        points: points.clone(),
        mark,
    };
    curves.iter().zip([("A", Mark::Under), ("B", Mark::Line)]).map(line).collect()
}

fn issue(comparison: &Comparison) -> Table {
    let issue = &comparison.issue;
    let mut table = Table::new(["matched", "1 µs", "10 µs", "100 µs", "1 ms", "B earlier"]);
    let of = issue.apart.count.max(1) as f64;
    let [a, b, c, d] = issue.within.map(|count| percent(count as f64 / of));
    let how = if issue.by_place { "by place" } else { "by number" };
    table.row([format!("{how}: {}", count(issue.apart.count)), a, b, c, d, percent(issue.early)]);
    table
}

fn places(comparison: &Comparison) -> Table {
    let mut table = Table::new(["", "A", "B"]);
    let median = |curve: &[(f64, f64)]| {
        let half = curve.iter().find(|(_, share)| *share >= 0.5);
        half.map_or("-".to_owned(), |(distance, _)| bytes(*distance))
    };
    let [a, b] = &comparison.curves.distances;
    table.row(["median".to_owned(), median(a), median(b)]);
    let runs = &comparison.runs;
    let (a, b) = (percent(runs.a.sequential), percent(runs.b.sequential));
    table.row(["sequential".to_owned(), a, b]);
    table
}
