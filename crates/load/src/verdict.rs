//! Validity of the results of a run.
//!
//! A late generator measures itself. So each run is declared VALID or INVALID by a table of rules
//! with stated limits, together with the causes of late I/Os: a processor stolen by the machine, a
//! thread blocked in the kernel, a target without free slots, or the generator itself.

#[cfg(test)]
mod tests;

use crate::io::Cause;
use crate::report::units;
use crate::statistics::{LATE_NS, Machine, Statistics};
use serde::Serialize;

/// Requirements of a valid run.
///
/// The two limits of lateness are those of *Buttress* (FAST 2004): it claims that I/Os are issued
/// within 100 µs, and 95 to 98 % of its I/Os were within 10 µs where it was good. They detect
/// different problems: many small delays change the shape of bursts, while a few long ones create
/// queues that the workload does not have.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Thresholds {
    /// Minimum share of I/Os issued within 10 µs of their times; `None` to skip the rule, as for
    /// I/Os without times of their own (closed loops).
    pub near_share: Option<f64>,
    /// Maximum 99th percentile of lateness in ns; `None` to skip the rule.
    pub p99_ns: Option<u64>,
    /// Maximum growth of the median lateness during the run in ns; `None` to skip the rule.
    pub drift_ns: Option<u64>,
    /// Maximum relative deviation from the rates that are requested and scheduled; `None` to skip
    /// both rules, as for closed loops, which have no schedule.
    pub rate_share: Option<f64>,
    /// Maximum skipped I/Os.
    pub skipped: u64,
    /// Maximum I/Os that fail on the target.
    pub errors: u64,
    /// With a witness: maximum 99th percentile of the differences to the kernel's issue times, in
    /// ns.
    pub witness_ns: u64,
}

impl Default for Thresholds {
    fn default() -> Thresholds {
        Thresholds {
            near_share: Some(0.95),
            p99_ns: Some(100_000),
            drift_ns: Some(100_000),
            rate_share: Some(0.01),
            skipped: 0,
            errors: 0,
            witness_ns: 50_000,
        }
    }
}

/// Rule of the verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// I/Os were issued at all.
    Measured,
    /// Most I/Os are issued within 10 µs.
    Near,
    /// Nearly all I/Os are issued within the tail limit.
    Tail,
    /// The generator does not fall behind.
    Drift,
    /// The rate is the requested one.
    AskedRate,
    /// The issue rate equals the scheduled rate.
    KeptRate,
    /// No I/O is skipped.
    Skipped,
    /// The target reports no errors.
    Errors,
    /// The kernel's trace has the same issue times.
    Witness,
    /// The kernel sees no I/O before its issue.
    WitnessOrder,
}

/// Direction of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Least,
    Most,
}

/// Row of the table: a rule applied to a run.
struct Row {
    rule: Rule,
    /// `None` if the rule does not apply to this run.
    measured: Option<f64>,
    side: Side,
    limit: f64,
    say: fn(f64, f64) -> String,
}

/// Result of a rule.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reason {
    /// Rule.
    pub rule: Rule,
    /// Measured value: a fraction of one, nanoseconds or a count, depending on the rule.
    pub measured: f64,
    /// Limit.
    pub limit: f64,
    /// Whether the rule holds.
    pub holds: bool,
    /// Result as a sentence.
    pub sentence: String,
}

/// Cause of I/Os later than 10 µs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LateCauses {
    /// Cause, in words.
    pub because: &'static str,
    /// Number of late I/Os with this cause.
    pub late: u64,
    /// Share of all late I/Os.
    pub share: f64,
    /// Advice.
    pub advice: &'static str,
}

/// Verdict on a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// Whether every rule holds.
    pub valid: bool,
    /// All rules that apply to this run, in order.
    pub reasons: Vec<Reason>,
    /// Causes of lateness, most important first.
    pub blames: Vec<LateCauses>,
    /// Further notes for readers of the results.
    pub notes: Vec<String>,
}

impl Verdict {
    /// Judges a run; `asked_rate` is the requested rate in I/Os per second, if any.
    pub fn of(
        statistics: &Statistics,
        machine: &Machine,
        asked_rate: Option<f64>,
        thresholds: &Thresholds,
    ) -> Verdict {
        let rows = rows(statistics, asked_rate, thresholds);
        let reasons: Vec<Reason> = rows.into_iter().filter_map(Row::judge).collect();
        let valid = reasons.iter().all(|reason| reason.holds);
        let blames = blames(statistics, machine);
        Verdict { valid, reasons, blames, notes: notes(statistics, machine) }
    }

    /// Returns `VALID` or `INVALID`.
    pub fn word(&self) -> &'static str {
        if self.valid { "VALID" } else { "INVALID" }
    }

    /// Returns the exit status of a command: 0 for a valid run, 3 otherwise.
    pub fn exit_status(&self) -> u8 {
        if self.valid { 0 } else { 3 }
    }

    /// Returns the broken rules.
    pub fn broken(&self) -> impl Iterator<Item = &Reason> {
        self.reasons.iter().filter(|reason| !reason.holds)
    }
}

impl Row {
    fn judge(self) -> Option<Reason> {
        let Row { rule, measured, side, limit, say } = self;
        let measured = measured?;
        let holds = match side {
            Side::Least => measured >= limit,
            Side::Most => measured <= limit,
        };
        Some(Reason { rule, measured, limit, holds, sentence: say(measured, limit) })
    }
}

/// Returns the table. A run without issued I/Os has only the first row.
fn rows(statistics: &Statistics, asked_rate: Option<f64>, limits: &Thresholds) -> Vec<Row> {
    let issued = statistics.issued_count();
    let row = |rule, measured, side, limit, say| Row { rule, measured, side, limit, say };
    let measured = row(Rule::Measured, Some(issued as f64), Side::Least, 1.0, say::MEASURED);
    if issued == 0 {
        return vec![measured];
    }
    let tail_ns = statistics.together().lateness.value_at_quantile(0.99) as f64;
    let drift_ns = statistics.drift().map(|drift| drift.median_ns as f64);
    let witness = statistics.witness();
    let apart_ns = witness.map(|witness| witness.apart.value_at_quantile(0.99) as f64);
    let before = witness.map(|w| w.before as f64 / w.lateness.len().max(1) as f64);
    // The number of random arrivals has a standard deviation of its square root; three are
    // permitted.
    let rate_most = limits.rate_share.unwrap_or_default();
    let chance = rate_most + 3.0 / (issued as f64).sqrt();
    let asked_rate = asked_rate.filter(|_| limits.rate_share.is_some());
    let requested = asked_rate.map(|requested| (statistics.rate() / requested - 1.0).abs());
    let kept = (statistics.rate() / statistics.scheduled_rate() - 1.0).abs();
    let is_kept = issued > 1 && kept.is_finite() && limits.rate_share.is_some();
    let kept = is_kept.then_some(kept);
    let (skipped, errors) = (statistics.skipped() as f64, statistics.failed() as f64);
    let near = limits.near_share.map(|_| statistics.within_share(1));
    let near_least = limits.near_share.unwrap_or_default();
    let tail = limits.p99_ns.map(|_| tail_ns);
    let drift = limits.drift_ns.and(drift_ns);
    let most = |limit: Option<u64>| limit.unwrap_or_default() as f64;
    let (skipped_most, errors_most) = (limits.skipped as f64, limits.errors as f64);
    vec![
        measured,
        row(Rule::Near, near, Side::Least, near_least, say::NEAR),
        row(Rule::Tail, tail, Side::Most, most(limits.p99_ns), say::TAIL),
        row(Rule::Drift, drift, Side::Most, most(limits.drift_ns), say::DRIFT),
        row(Rule::AskedRate, requested, Side::Most, chance, say::ASKED_RATE),
        row(Rule::KeptRate, kept, Side::Most, rate_most, say::KEPT_RATE),
        row(Rule::Skipped, Some(skipped), Side::Most, skipped_most, say::SKIPPED),
        row(Rule::Errors, Some(errors), Side::Most, errors_most, say::ERRORS),
        row(Rule::Witness, apart_ns, Side::Most, limits.witness_ns as f64, say::WITNESS),
        row(Rule::WitnessOrder, before, Side::Most, 0.001, say::WITNESS_ORDER),
    ]
}

/// Sentence of each rule, from the measured value and the limit.
mod say {
    use super::units::{count, percent, time};

    type Say = fn(f64, f64) -> String;

    pub(super) const MEASURED: Say = |issued, _| format!("{} I/Os were issued", many(issued));
    pub(super) const NEAR: Say = |share, least| {
        let (share, least) = (percent(share), percent(least));
        format!("{share} were issued within 10 µs of their time; at least {least} have to be")
    };
    pub(super) const TAIL: Say = |late, most| {
        let (late, most) = (time(late), time(most));
        format!("99 % were issued within {late} of their time; the limit is {most}")
    };
    pub(super) const DRIFT: Say = |drift, most| {
        let (drift, most) = (time(drift), time(most));
        format!("lateness grew by {drift} from the start to the end; the limit is {most}")
    };
    pub(super) const ASKED_RATE: Say = |off, most| {
        let (off, most) = (percent(off), percent(most));
        format!("the rate deviated by {off} from the requested one; at most {most} is allowed")
    };
    pub(super) const KEPT_RATE: Say = |off, most| {
        let (off, most) = (percent(off), percent(most));
        format!("the rate was {off} off that of the schedule; the limit is {most}")
    };
    pub(super) const SKIPPED: Say =
        |skipped, most| format!("{} I/Os were skipped; {} may be", many(skipped), many(most));
    pub(super) const ERRORS: Say =
        |errors, most| format!("the target refused {} I/Os; {} may be", many(errors), many(most));
    pub(super) const WITNESS: Say = |apart, most| {
        let (apart, most) = (time(apart), time(most));
        format!("99 % were seen by the kernel within {apart} of their issue; the limit is {most}")
    };
    pub(super) const WITNESS_ORDER: Say = |share, most| {
        let (share, most) = (percent(share), percent(most));
        format!("{share} were seen by the kernel before their issue, {most} may be: clocks differ")
    };

    fn many(number: f64) -> String {
        count(number as u64)
    }
}

/// Returns the causes of lateness, most important first.
fn blames(statistics: &Statistics, machine: &Machine) -> Vec<LateCauses> {
    let all = statistics.late().max(1) as f64;
    let blame = |(cause, late): (Cause, u64)| {
        let (because, advice) = words(cause, machine.realtime);
        LateCauses { because, late, share: late as f64 / all, advice }
    };
    let late = statistics.causes().map(|(cause, late)| (cause, late.late));
    let mut blames: Vec<LateCauses> = late.filter(|(_, late)| *late > 0).map(blame).collect();
    blames.sort_by_key(|blame| std::cmp::Reverse(blame.late));
    blames
}

/// Returns the description of a cause, and advice.
fn words(cause: Cause, realtime: bool) -> (&'static str, &'static str) {
    match cause {
        Cause::None => ("of something that was not found", "look at the records"),
        Cause::Stolen if realtime => {
            ("the machine took the processor away", "use a quieter machine")
        }
        Cause::Stolen => (
            "the machine took the processor away",
            "use a quieter machine, or allow real-time priority",
        ),
        Cause::Submission => (
            "the kernel kept the thread that handed over an earlier I/O",
            "use direct I/O, or more workers and calls that wait",
        ),
        Cause::Full => (
            "every connection or place in the target's queue was taken",
            "allow more of them: the target does not keep up with this rate",
        ),
        Cause::Generator => ("the generator was busy", "lower the rate, or use more workers"),
    }
}

/// Returns further notes.
fn notes(statistics: &Statistics, machine: &Machine) -> Vec<String> {
    let mut notes = late_sentences(statistics, machine);
    if machine.watched_ns > 0 {
        notes.push(stolen_sentence(machine));
    }
    if !machine.realtime {
        notes.push("Real-time priority is not permitted here.".to_owned());
    }
    if let Some((_, last)) = machine.policies.get(1..).and_then(<[_]>::last) {
        let changes = machine.policies.len() - 1;
        notes
            .push(format!("The way of waiting changed in the run ({changes}), at last to {last}."));
    }
    if statistics.issued_count() > 0 && statistics.drift().is_none() {
        notes.push("The run is too short to tell whether it drifts.".to_owned());
    }
    notes
}

/// Describes the number of late I/Os and their causes.
fn late_sentences(statistics: &Statistics, machine: &Machine) -> Vec<String> {
    let blames = blames(statistics, machine);
    if blames.is_empty() {
        return Vec::new();
    }
    let share = statistics.late() as f64 / statistics.issued_count().max(1) as f64;
    let (share, limit) = (units::percent(share), units::time(LATE_NS as f64));
    let first = format!("{share} of the I/Os were more than {limit} late.");
    let part = |blame: &LateCauses| {
        let LateCauses { because, share, advice, .. } = blame;
        format!("{} of these because {because} → {advice}.", units::percent(*share))
    };
    std::iter::once(first).chain(blames.iter().map(part)).collect()
}

/// Describes the stolen time, in comparison with that of a bare loop.
fn stolen_sentence(machine: &Machine) -> String {
    let share = units::percent(machine.stolen_share());
    let longest = units::time(machine.gap_ns_max() as f64);
    let spins = [(machine.spin_before, "before"), (machine.spin_after, "after")];
    let spins = spins.into_iter().filter_map(|(spin, when)| {
        Some(format!("{} just {when} the run", units::percent(spin?.share())))
    });
    let bare = spins.collect::<Vec<_>>().join(" and ");
    let bare = if bare.is_empty() { bare } else { format!(" A bare loop lost {bare}.") };
    format!("The machine took {share} of the watched time away, {longest} at most at once.{bare}")
}
