//! Complete JSON format. Times are in ns, shares are fractions of one, series are columns.

use super::{Run, Summary, Title};
use crate::statistics::{Machine, Spin, Statistics, Times, Within, Witness};
use crate::verdict::Verdict;
use serde::Serialize;
use std::collections::BTreeMap;

/// Format version; incremented when a field changes its meaning or disappears.
pub const VERSION: u32 = 1;

/// Complete report.
#[derive(Debug, Serialize)]
struct Form<'a> {
    upcall_load: u32,
    title: &'a Title,
    verdict: &'a Verdict,
    run_ns: u64,
    scheduled: u64,
    issued: u64,
    skipped: u64,
    failed: u64,
    rate: f64,
    scheduled_rate: f64,
    times: BTreeMap<&'static str, Kinds>,
    within: Vec<Near>,
    causes: BTreeMap<&'static str, Cost>,
    errors: &'a BTreeMap<u16, u64>,
    queue: Queue,
    distances: Places,
    drift: Option<Drift>,
    witness: Option<Seen>,
    machine: Host,
    series: Series,
    spans: Spans,
}

#[derive(Debug, Serialize)]
struct Kinds {
    lateness: Summary,
    service: Summary,
    response: Summary,
    bytes: u64,
    failed: u64,
}

#[derive(Debug, Serialize)]
struct Near {
    limit_ns: u64,
    count: u64,
}

#[derive(Debug, Serialize)]
struct Cost {
    count: u64,
    late: u64,
    lateness_ns: u64,
    skipped: u64,
}

#[derive(Debug, Serialize)]
struct Queue {
    mean: f64,
    at_least_max: u64,
}

#[derive(Debug, Serialize)]
struct Places {
    count: u64,
    sequential: u64,
    /// Maximum distance of each bucket in bytes, and its count.
    apart: Vec<(u64, u64)>,
}

#[derive(Debug, Serialize)]
struct Drift {
    median_ns: i64,
    slope_ns_per_s: f64,
    stretch_ns: i64,
}

#[derive(Debug, Serialize)]
struct Seen {
    lateness: Summary,
    within: Vec<Near>,
    apart: Summary,
    before: u64,
}

#[derive(Debug, Serialize)]
struct Host {
    processors: u32,
    clock: String,
    recalibrations: u64,
    realtime: bool,
    policies: Vec<(u64, String)>,
    watched_ns: u64,
    stolen_ns: u64,
    gap_count: u64,
    /// Start and length of each recorded gap, in ns.
    gaps: Vec<(u64, u64)>,
    spin_before: Option<Loss>,
    spin_after: Option<Loss>,
}

#[derive(Debug, Serialize)]
struct Loss {
    watched_ns: u64,
    lost_ns: u64,
    gap_ns_max: u64,
}

#[derive(Debug, Serialize)]
struct Series {
    width_ns: u64,
    scheduled: Vec<u64>,
    issued: Vec<u64>,
    completed: Vec<u64>,
    bytes: Vec<u64>,
    response_ns_mean: Vec<f64>,
    response_ns_max: Vec<u64>,
    lateness_ns_max: Vec<u64>,
    queue_mean: Vec<f64>,
    queue_at_start: Vec<u64>,
    queue_at_least_max: Vec<u64>,
}

#[derive(Debug, Serialize)]
struct Spans {
    width_ns: u64,
    response_ns_mean: Vec<f64>,
    response_ns_p50: Vec<u64>,
    response_ns_p99: Vec<u64>,
    response_ns_max: Vec<u64>,
    lateness_ns_p50: Vec<u64>,
    lateness_ns_p99: Vec<u64>,
}

/// Formats the run as one JSON object.
pub fn report(run: &Run<'_>) -> String {
    let form = Form::of(run);
    serde_json::to_string_pretty(&form).expect("every key is a string and nothing fails") + "\n"
}

impl<'a> Form<'a> {
    fn of(run: &Run<'a>) -> Form<'a> {
        let statistics = run.statistics;
        let distances = statistics.distances();
        Form {
            upcall_load: VERSION,
            title: run.title,
            verdict: run.verdict,
            run_ns: statistics.run_ns(),
            scheduled: statistics.scheduled_count(),
            issued: statistics.issued_count(),
            skipped: statistics.skipped(),
            failed: statistics.failed(),
            rate: statistics.rate(),
            scheduled_rate: statistics.scheduled_rate(),
            times: times(statistics),
            within: near(statistics.within()),
            causes: causes(statistics),
            errors: statistics.errors(),
            queue: Queue { mean: statistics.queue_mean(), at_least_max: statistics.queue_max() },
            distances: Places {
                count: distances.count(),
                sequential: distances.sequential,
                apart: distances.apart.iter().collect(),
            },
            drift: statistics.drift().map(drift),
            witness: statistics.witness().map(seen),
            machine: host(run.machine),
            series: series(statistics),
            spans: spans(statistics),
        }
    }
}

fn times(statistics: &Statistics) -> BTreeMap<&'static str, Kinds> {
    let kinds = |times: &Times| Kinds {
        lateness: Summary::of(&times.lateness),
        service: Summary::of(&times.service),
        response: Summary::of(&times.response),
        bytes: times.bytes,
        failed: times.failed,
    };
    let each = statistics.kinds().map(|(kind, times)| (kind.name(), kinds(times)));
    each.chain([("together", kinds(&statistics.together()))]).collect()
}

fn near(within: &Within) -> Vec<Near> {
    let limits = Within::LIMITS_NS.into_iter().zip(within.counts());
    limits.map(|(limit_ns, count)| Near { limit_ns, count }).collect()
}

fn causes(statistics: &Statistics) -> BTreeMap<&'static str, Cost> {
    let named = statistics.causes().map(|(cause, late)| {
        let (count, lateness_ns) = (late.count, late.lateness_ns);
        (
            super::cause_name(cause),
            Cost { count, late: late.late, lateness_ns, skipped: late.skipped },
        )
    });
    named.collect()
}

fn drift(drift: crate::statistics::Drift) -> Drift {
    let crate::statistics::Drift { median_ns, slope_ns_per_s, stretch_ns } = drift;
    Drift { median_ns, slope_ns_per_s, stretch_ns }
}

fn seen(witness: &Witness) -> Seen {
    Seen {
        lateness: Summary::of(&witness.lateness),
        within: near(&witness.within),
        apart: Summary::of(&witness.apart),
        before: witness.before,
    }
}

fn host(machine: &Machine) -> Host {
    let loss = |spin: Spin| {
        let Spin { watched_ns, lost_ns, gap_ns_max } = spin;
        Loss { watched_ns, lost_ns, gap_ns_max }
    };
    Host {
        processors: machine.processors,
        clock: machine.clock.clone(),
        recalibrations: machine.recalibrations,
        realtime: machine.realtime,
        policies: machine.policies.clone(),
        watched_ns: machine.watched_ns,
        stolen_ns: machine.stolen_ns,
        gap_count: machine.gap_count,
        gaps: machine.gaps.iter().map(|gap| (gap.start_ns, gap.len_ns)).collect(),
        spin_before: machine.spin_before.map(loss),
        spin_after: machine.spin_after.map(loss),
    }
}

fn series(statistics: &Statistics) -> Series {
    let ticks = statistics.series().ticks();
    let queue = statistics.queue();
    Series {
        width_ns: statistics.series().width_ns(),
        scheduled: ticks.iter().map(|tick| tick.scheduled).collect(),
        issued: ticks.iter().map(|tick| tick.issued).collect(),
        completed: ticks.iter().map(|tick| tick.completed).collect(),
        bytes: ticks.iter().map(|tick| tick.bytes).collect(),
        response_ns_mean: ticks.iter().map(|tick| tick.response_ns_mean()).collect(),
        response_ns_max: ticks.iter().map(|tick| tick.response_ns_max).collect(),
        lateness_ns_max: ticks.iter().map(|tick| tick.lateness_ns_max).collect(),
        queue_mean: queue.iter().map(|queue| queue.mean).collect(),
        queue_at_start: queue.iter().map(|queue| queue.at_start).collect(),
        queue_at_least_max: queue.iter().map(|queue| queue.max).collect(),
    }
}

fn spans(statistics: &Statistics) -> Spans {
    let spans = statistics.spans().all();
    Spans {
        width_ns: statistics.spans().width_ns(),
        response_ns_mean: spans.iter().map(|span| span.response.mean()).collect(),
        response_ns_p50: spans.iter().map(|span| span.response.quantile(0.5)).collect(),
        response_ns_p99: spans.iter().map(|span| span.response.quantile(0.99)).collect(),
        response_ns_max: spans.iter().map(|span| span.response.max()).collect(),
        lateness_ns_p50: spans.iter().map(|span| span.lateness.quantile(0.5)).collect(),
        lateness_ns_p99: spans.iter().map(|span| span.lateness.quantile(0.99)).collect(),
    }
}
