//! How faithful one run is to another: a replay to its original.
//!
//! Two streams of records are read side by side with bounded memory: 24 MiB on each side to put
//! records into the order of their issue (they are written in the order of completion), 6 MiB to
//! find the same I/O on the other side, 16 MiB of counts, and 16 bytes for each file and for each
//! I/O in flight. Whatever does not fit is counted and told.
//!
//! The load and its effect are judged apart. The load is what a replay has to reproduce: the same
//! I/Os at the same times, so the same bursts and the same places. Response times and the length
//! of the queue are what the target made of it; on another target they may differ.

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

/// The quantiles that are compared.
pub const QUANTILES: [f64; 9] = [0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999];
/// The widths at which bursts are compared, ns: 1 ms, 10 ms, 100 ms and 1 s.
pub const WIDTHS_NS: [u64; 4] = [1_000_000, 10_000_000, 100_000_000, 1_000_000_000];
/// With fewer matched I/Os than this share the k-th of one is held against the k-th of the other.
const MATCHED_LEAST: f64 = 0.5;
/// No plot has more points.
const POINTS: usize = 400;

/// How much the load of a faithful replay may differ.
///
/// 100 µs is what *Buttress* (FAST 2004) claims for its issue times; the others are set so that a
/// run compared with itself at an issue error of that size holds them, and a replay that sleeps
/// does not.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Tolerance {
    /// At least this share of the I/Os is in both.
    pub matched_share: f64,
    /// 99 % are issued no further apart than this, ns.
    pub issue_ns: u64,
    /// The counts in intervals of 100 ms go together at least this well.
    pub correlation: f64,
    /// The distributions of seek distances are no further apart than this.
    pub distances: f64,
}

impl Default for Tolerance {
    fn default() -> Tolerance {
        Tolerance { matched_share: 0.999, issue_ns: 100_000, correlation: 0.98, distances: 0.02 }
    }
}

/// One of the two runs in numbers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Part {
    /// I/Os that were issued.
    pub issued: u64,
    /// I/Os that were not.
    pub skipped: u64,
    /// I/Os that the target refused.
    pub failed: u64,
    /// Records that were too far out of order to be put right.
    pub displaced: u64,
    /// From the first issue to the last, ns.
    pub len_ns: u64,
    /// Response times, from the scheduled time.
    pub response: Summary,
    /// Service times, from the issue.
    pub service: Summary,
    /// The mean length of the queue over time.
    pub queue_mean: f64,
    /// Its greatest length.
    pub queue_max: u64,
    /// The share of I/Os that begin where the one before ended.
    pub sequential: f64,
}

/// A number of each run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Pair<T> {
    /// Of the first run.
    pub a: T,
    /// Of the second.
    pub b: T,
}

/// The times at one quantile.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Ratio {
    /// The share of I/Os that took no longer.
    pub quantile: f64,
    /// How long, ns.
    pub ns: Pair<u64>,
    /// The second by the first; infinite (null in JSON) if the first is 0 alone.
    pub ratio: f64,
}

/// What the target made of the load: one kind of time of all I/Os that were done.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Effect {
    /// How far apart the two distributions are (Kolmogorov and Smirnov), 0 to 1.
    pub distance: f64,
    /// The mean of the second by that of the first.
    pub mean_ratio: f64,
    /// The times at [`QUANTILES`].
    pub quantiles: Vec<Ratio>,
}

/// Bursts at one width of interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Burst {
    /// The width, ns.
    pub width_ns: u64,
    /// Variance of the counts by their mean: 1 for independent arrivals.
    pub dispersion: Pair<Option<f64>>,
    /// How well the counts go together, from −1 to 1.
    pub correlation: Option<f64>,
}

/// How far apart the same I/Os were issued.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Issue {
    /// Whether I/Os were matched by what is done where; otherwise the k-th of each.
    pub by_place: bool,
    /// The matched share of the longer run, by what is done where.
    pub matched_share: f64,
    /// The share of the longer run where the k-th of each does the same to as many bytes,
    /// wherever: a replay on a smaller target has other places.
    pub alike_share: f64,
    /// How far apart, either way, after the starts are aligned, ns.
    pub apart: Summary,
    /// How many within 1, 10, 100 and 1000 µs.
    pub within: [u64; 4],
    /// The share that the second run issued earlier.
    pub early: f64,
}

/// One rule about the load.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// Whether it holds.
    pub holds: bool,
    /// It, in words.
    pub sentence: String,
}

/// Points of the plots; not part of what is written for programs.
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

/// Two runs beside each other.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Whether the load of the second is that of the first, as far as was tolerated.
    pub faithful: bool,
    /// All of it in a sentence.
    pub summary: String,
    /// What was asked of the load.
    pub findings: Vec<Finding>,
    /// The two.
    pub runs: Pair<Part>,
    /// Times from issue to completion, which is what a trace has: the paper's response time.
    pub service: Effect,
    /// Times from when I/Os were to be issued to completion.
    pub response: Effect,
    /// How far apart the distributions of queue lengths over time are, 0 to 1.
    pub queue_distance: f64,
    /// Mean queue length of the second by that of the first.
    pub queue_mean_ratio: f64,
    /// Bursts at [`WIDTHS_NS`].
    pub bursts: Vec<Burst>,
    /// Issue times.
    pub issue: Issue,
    /// How far apart the distributions of seek distances are, 0 to 1.
    pub distances_distance: f64,
    #[serde(skip)]
    curves: Curves,
}

/// Compares two streams of records, `b` with `a`; stops at the first error of either.
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
        // The last interval is not whole, and would look like a pause.
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

/// A ratio in words; there is none to something that took no time, or whose time is not known.
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
        // A few places in common are by chance, where all places were changed.
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

    /// Bursts at 100 ms; of a run with one such interval there is nothing to say.
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
