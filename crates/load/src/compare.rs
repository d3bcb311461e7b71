//! Fidelity of one run to another: of a replay to its original.
//!
//! Two streams of records are read side by side in bounded memory: 24 MiB per side to sort records
//! by issue time (they are stored by completion), 6 MiB to match I/Os, 16 MiB of counts, and 16
//! bytes for each file and for each I/O in flight. Anything beyond these bounds is counted and
//! reported.
//!
//! The load and its effect are judged separately. A replay has to reproduce the load: the same I/Os
//! at the same times, with the same bursts and offsets. Response times and queue lengths are
//! effects of the target, and may differ on another target.

mod bursts;
mod distance;
mod matching;
mod order;
mod queue;
pub mod report;
mod side;
#[cfg(test)]
mod tests;

use crate::io::Record;
use crate::report::{Summary, cdf, units};
use crate::statistics::Within;
use bursts::{correlation, dispersion};
use distance::{kolmogorov_smirnov, of_distances, of_times};
use hdrhistogram::Histogram;
use matching::{Errors, Matching};
use order::Ordered;
use serde::Serialize;
use side::Side;

/// Quantiles compared.
pub const QUANTILES: [f64; 9] = [0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999];
/// Interval widths of the burst comparison, in ns: 1 ms, 10 ms, 100 ms and 1 s.
pub const WIDTHS_NS: [u64; 4] = [1_000_000, 10_000_000, 100_000_000, 1_000_000_000];
/// Below this share of matched I/Os, the k-th I/Os of both runs are compared instead.
const MATCHED_LEAST: f64 = 0.5;
/// Maximum points of a plot.
const POINTS: usize = 400;

/// Tolerated differences in the load of a faithful replay.
///
/// 100 µs is the issue error claimed by *Buttress* (FAST 2004). The other values are chosen so that
/// a run compared with itself at that issue error passes, and a replay that sleeps does not.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Tolerance {
    /// Minimum share of I/Os in both runs.
    pub matched_share: f64,
    /// Maximum 99th percentile of issue time differences, in ns.
    pub issue_ns: u64,
    /// Minimum correlation of the counts in intervals of 100 ms.
    pub correlation: f64,
    /// Maximum distance between the distributions of seek distances.
    pub distances: f64,
}

impl Default for Tolerance {
    fn default() -> Tolerance {
        Tolerance { matched_share: 0.999, issue_ns: 100_000, correlation: 0.98, distances: 0.02 }
    }
}

/// Statistics of one run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Part {
    /// Issued I/Os.
    pub issued: u64,
    /// Skipped I/Os.
    pub skipped: u64,
    /// I/Os that failed on the target.
    pub failed: u64,
    /// Records too far out of order to be sorted.
    pub displaced: u64,
    /// Time from the first issue to the last, in ns.
    pub len_ns: u64,
    /// Response times, from the scheduled time.
    pub response: Summary,
    /// Service times, from the issue.
    pub service: Summary,
    /// Mean queue length over time.
    pub queue_mean: f64,
    /// Maximum queue length.
    pub queue_max: u64,
    /// Share of I/Os that start at the end of the previous one.
    pub sequential: f64,
}

/// Values of both runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Pair<T> {
    /// Value of the first run.
    pub a: T,
    /// Value of the second run.
    pub b: T,
}

/// Times at one quantile.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Ratio {
    /// Quantile.
    pub quantile: f64,
    /// Times, in ns.
    pub ns: Pair<u64>,
    /// Ratio of the second to the first; infinite (null in JSON) if only the first is 0.
    pub ratio: f64,
}

/// Effect of the load on the target: one kind of time of all completed I/Os.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Effect {
    /// Kolmogorov–Smirnov distance of the two distributions, 0 to 1.
    pub distance: f64,
    /// Ratio of the second mean to the first.
    pub mean_ratio: f64,
    /// Times at [`QUANTILES`].
    pub quantiles: Vec<Ratio>,
}

/// Burstiness at one interval width.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Burst {
    /// Interval width, in ns.
    pub width_ns: u64,
    /// Variance-to-mean ratio of the counts (index of dispersion): 1 for independent arrivals.
    pub dispersion: Pair<Option<f64>>,
    /// Correlation of the counts, from −1 to 1.
    pub correlation: Option<f64>,
}

/// Differences of issue times.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Issue {
    /// Whether I/Os were matched by operation and offset; otherwise by index.
    pub by_place: bool,
    /// Share of the longer run that was matched by operation and offset.
    pub matched_share: f64,
    /// Share of the longer run whose k-th I/O has the same kind and length as the k-th of the
    /// other, at any offset: a replay on a smaller target has other offsets.
    pub alike_share: f64,
    /// Absolute differences after alignment of the starts, in ns.
    pub apart: Summary,
    /// Counts of differences within 1, 10, 100 and 1000 µs.
    pub within: [u64; 4],
    /// Share of I/Os issued earlier in the second run.
    pub early: f64,
}

/// Checked rule about the load.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// Whether the rule holds.
    pub holds: bool,
    /// Result as a sentence.
    pub sentence: String,
}

/// Points of the plots, excluded from JSON.
#[derive(Clone, Debug, Default, PartialEq)]
struct Curves {
    service: [Vec<(f64, f64)>; 2],
    response: [Vec<(f64, f64)>; 2],
    queue: [Vec<(f64, f64)>; 2],
    counts: [Vec<(f64, f64)>; 2],
    counts_width_ns: u64,
    distances: [Vec<(f64, f64)>; 2],
    issue: Vec<(f64, f64)>,
}

/// Comparison of two runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Whether the load of the second run equals that of the first within the tolerance.
    pub faithful: bool,
    /// Summary in one sentence.
    pub summary: String,
    /// Rules checked on the load.
    pub findings: Vec<Finding>,
    /// Statistics of both runs.
    pub runs: Pair<Part>,
    /// Times from issue to completion, as in a trace: the paper's response time.
    pub service: Effect,
    /// Times from the scheduled time to completion.
    pub response: Effect,
    /// Distance of the distributions of queue length over time, 0 to 1.
    pub queue_distance: f64,
    /// Ratio of the second mean queue length to the first.
    pub queue_mean_ratio: f64,
    /// Bursts at [`WIDTHS_NS`].
    pub bursts: Vec<Burst>,
    /// Issue times.
    pub issue: Issue,
    /// Distance of the distributions of seek distances, 0 to 1.
    pub distances_distance: f64,
    #[serde(skip)]
    curves: Curves,
}

/// Compares stream `b` with stream `a`; stops at the first error of either.
pub fn compare<E>(
    a: impl Iterator<Item = Result<Record, E>>,
    b: impl Iterator<Item = Result<Record, E>>,
    tolerance: &Tolerance,
) -> Result<Comparison, E> {
    let (mut from_a, mut from_b) = (Ordered::new(a), Ordered::new(b));
    let (mut a, mut b) = (Side::default(), Side::default());
    let mut matching = Matching::default();
    loop {
        let (next_a, next_b) = (from_a.next()?, from_b.next()?);
        if next_a.is_none() && next_b.is_none() {
            break;
        }
        let next_a = next_a.as_ref().map(|record| (record, a.add(record)));
        let next_b = next_b.as_ref().map(|record| (record, b.add(record)));
        matching.add(next_a, next_b);
    }
    a.queue.finish();
    b.queue.finish();
    matching.by_place.align();
    matching.by_number.align();
    let part_a = a.part(from_a.skipped, from_a.displaced);
    let part_b = b.part(from_b.skipped, from_b.displaced);
    Ok(conclude(&a, &b, Pair { a: part_a, b: part_b }, &matching, tolerance))
}

impl Side {
    fn part(&self, skipped: u64, displaced: u64) -> Part {
        Part {
            issued: self.issued,
            skipped,
            failed: self.failed,
            displaced,
            len_ns: self.len_ns(),
            response: Summary::of(&self.response),
            service: Summary::of(&self.service),
            queue_mean: self.queue.mean(),
            queue_max: self.queue.max,
            sequential: self.distances.sequential_share(),
        }
    }
}

fn conclude(
    a: &Side,
    b: &Side,
    runs: Pair<Part>,
    matching: &Matching,
    tolerance: &Tolerance,
) -> Comparison {
    let (issue, errors) = issue(matching, a.issued.max(b.issued));
    let distances = [of_distances(&a.distances), of_distances(&b.distances)];
    let queue = [a.queue.cdf(), b.queue.cdf()];
    let mut comparison = Comparison {
        faithful: false,
        summary: String::new(),
        findings: Vec::new(),
        service: effect(&a.service, &b.service),
        response: effect(&a.response, &b.response),
        queue_distance: kolmogorov_smirnov(&queue[0], &queue[1]),
        queue_mean_ratio: ratio(runs.b.queue_mean, runs.a.queue_mean),
        runs,
        bursts: WIDTHS_NS.into_iter().map(|width_ns| burst(a, b, width_ns)).collect(),
        issue,
        distances_distance: kolmogorov_smirnov(&distances[0], &distances[1]),
        curves: Curves { queue, distances, ..curves(a, b, errors) },
    };
    comparison.judge(tolerance);
    comparison
}

fn ratio(of: f64, to: f64) -> f64 {
    if to == 0.0 { if of == 0.0 { 1.0 } else { f64::INFINITY } } else { of / to }
}

fn issue(matching: &Matching, longer: u64) -> (Issue, &Errors) {
    let matched_share = matching.by_place.apart.len() as f64 / longer.max(1) as f64;
    let by_place = matched_share >= MATCHED_LEAST;
    let errors = if by_place { &matching.by_place } else { &matching.by_number };
    let issue = Issue {
        by_place,
        matched_share,
        alike_share: matching.alike as f64 / longer.max(1) as f64,
        apart: Summary::of(&errors.apart),
        within: errors.within.counts(),
        early: errors.early as f64 / errors.apart.len().max(1) as f64,
    };
    (issue, errors)
}

fn effect(a: &Histogram<u64>, b: &Histogram<u64>) -> Effect {
    let at = |quantile| {
        let ns = Pair { a: a.value_at_quantile(quantile), b: b.value_at_quantile(quantile) };
        Ratio { quantile, ns, ratio: ratio(ns.b as f64, ns.a as f64) }
    };
    Effect {
        distance: kolmogorov_smirnov(&of_times(a), &of_times(b)),
        mean_ratio: ratio(b.mean(), a.mean()),
        quantiles: QUANTILES.into_iter().map(at).collect(),
    }
}

fn burst(a: &Side, b: &Side, width_ns: u64) -> Burst {
    let (a, b) = (a.counts.at(width_ns), b.counts.at(width_ns));
    let both = a.as_deref().zip(b.as_deref());
    Burst {
        width_ns,
        correlation: both.and_then(|(a, b)| correlation(a, b)),
        dispersion: Pair {
            a: a.as_deref().and_then(dispersion),
            b: b.as_deref().and_then(dispersion),
        },
    }
}

fn curves(a: &Side, b: &Side, errors: &Errors) -> Curves {
    const LEAST_NS: f64 = 10.0;
    let width_ns = a.counts.width_for(POINTS).max(b.counts.width_for(POINTS));
    let counts = |side: &Side| {
        let mut counts = side.counts.at(width_ns).unwrap_or_default();
        // The last interval is partial, and would look like a pause.
        counts.truncate((counts.len() - counts.len().min(1)).max(1));
        let middle = |index: usize| (index as f64 + 0.5) * width_ns as f64 / 1e9;
        counts.into_iter().enumerate().map(|(index, count)| (middle(index), count)).collect()
    };
    Curves {
        service: [cdf(&a.service, LEAST_NS), cdf(&b.service, LEAST_NS)],
        response: [cdf(&a.response, LEAST_NS), cdf(&b.response, LEAST_NS)],
        counts: [counts(a), counts(b)],
        counts_width_ns: width_ns,
        issue: cdf(&errors.apart, LEAST_NS),
        ..Curves::default()
    }
}

/// Formats a ratio; there is none if the denominator is zero or unknown.
fn times(ratio: f64) -> String {
    if ratio.is_finite() { format!("× {ratio:.3}") } else { "not comparable".to_owned() }
}

impl Comparison {
    fn judge(&mut self, tolerance: &Tolerance) {
        let mut findings = vec![self.matched(tolerance), self.issued(tolerance)];
        findings.extend(self.burst(tolerance));
        if self.issue.by_place {
            findings.push(self.places(tolerance));
        }
        self.faithful = findings.iter().all(|finding| finding.holds);
        self.findings = findings;
        self.summary = self.sentence();
    }

    fn matched(&self, tolerance: &Tolerance) -> Finding {
        let (matched, alike) = (self.issue.matched_share, self.issue.alike_share);
        // With all offsets changed, a few still coincide by chance.
        let moved = !self.issue.by_place && alike > matched;
        let (share, how) = if moved { (alike, ", at other places") } else { (matched, "") };
        let (is, least) = (units::percent(share), units::percent(tolerance.matched_share));
        let holds = self.runs.a.issued > 0 && share >= tolerance.matched_share;
        Finding { holds, sentence: format!("{is} of the I/Os are in both{how}; at least {least}") }
    }

    fn issued(&self, tolerance: &Tolerance) -> Finding {
        let apart_ns = self.issue.apart.p99;
        let (is, most) = (units::time(apart_ns as f64), units::time(tolerance.issue_ns as f64));
        let sentence = format!("99 % are issued within {is} of each other; at most {most}");
        Finding { holds: apart_ns <= tolerance.issue_ns, sentence }
    }

    /// Checks bursts at 100 ms; `None` for runs with a single interval.
    fn burst(&self, tolerance: &Tolerance) -> Option<Finding> {
        let correlation = self.bursts[2].correlation?;
        let least = tolerance.correlation;
        let sentence = format!(
            "the counts of each 100 ms go together by {correlation:.4}; at least {least:.2}"
        );
        Some(Finding { holds: correlation >= least, sentence })
    }

    fn places(&self, tolerance: &Tolerance) -> Finding {
        let (is, most) = (self.distances_distance, tolerance.distances);
        let sentence =
            format!("the distributions of seek distances are {is:.4} apart; at most {most:.2}");
        Finding { holds: is <= most, sentence }
    }

    fn sentence(&self) -> String {
        let verdict = if self.faithful { "has the load of A" } else { "has another load than A" };
        let within = self.issue.within[Within::LIMITS_NS.len() - 2];
        let share = units::percent(within as f64 / self.issue.apart.count.max(1) as f64);
        let tail = self.service.quantiles.iter().find(|ratio| ratio.quantile == 0.99);
        format!(
            "B {verdict}: {share} of the I/Os within 100 µs. Service times are {:.3} apart \
             (mean {}, p99 {}), response times {:.3} (mean {}), queues {:.3} (mean {}).",
            self.service.distance,
            times(self.service.mean_ratio),
            times(tail.map_or(1.0, |ratio| ratio.ratio)),
            self.response.distance,
            times(self.response.mean_ratio),
            self.queue_distance,
            times(self.queue_mean_ratio),
        )
    }
}
