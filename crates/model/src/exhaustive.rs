//! Cases of exhaustive checking, with their expected outcomes.

use crate::op_list::OpList;
use crate::reach::reach;
use crate::reservations::{self, Caller, Callers};
use crate::ring;
use crate::service::{Service, Trial, check, check_safety, check_within, plan, stations};
use crate::{Found, Verdict};
use esds::ioa::{Channelled, Combined, Discipline, Part, Reserved};
use esds::ring::Member;
use esds::{Hops, Optimised, Plain, Rules, Slip, Station, Submission};
use std::fmt::Debug;

/// Composition to check in every state.
pub struct Case {
    /// Name.
    pub name: &'static str,
    /// Checks about this many states at most.
    pub check: fn(usize) -> Verdict,
    /// Violations of a deliberately faulty case, one of which must be found; empty for a sound
    /// case.
    pub wrong: &'static [&'static str],
    /// Whether it reaches the notable states: both permitted anomalies of a service, and the final
    /// state of others.
    pub reaches: bool,
}

const TWO_HOPS: Rules = Rules { hops: Hops::Two, ..Rules::PAPER };

/// Default limit on states of a case, approximate; a state counts each time it is reached.
pub const STATES_MAX: usize = 5_000_000;

/// Lower bound of the limit in progress checks, whose result is known only after all states.
const STATES_PROGRESS: usize = 600_000;

const fn sound(name: &'static str, check: fn(usize) -> Verdict) -> Case {
    Case { name, check, wrong: &[], reaches: true }
}

const fn strict(name: &'static str, check: fn(usize) -> Verdict) -> Case {
    Case { name, check, wrong: &[], reaches: false }
}

const fn wrong(
    name: &'static str,
    wrong: &'static [&'static str],
    check: fn(usize) -> Verdict,
) -> Case {
    Case { name, check, wrong, reaches: false }
}

/// All cases.
pub const CASES: &[Case] = &[
    sound("ring of 3, in one step", |max| {
        of(ring::check(Combined::new(Member::ring(&[2, 3, 1])), max))
    }),
    sound("ring of 3, channels", |max| {
        of(ring::check(ring::channelled(&[2, 3, 1], reliable()), max))
    }),
    sound("ring of 3, reservations", |max| {
        of(ring::check(ring::reserved(&[2, 3, 1]), max.max(STATES_PROGRESS)))
    }),
    wrong("ring of 2, channels that lose", &["no way out"], |max| {
        let loses = Discipline { loses: true, ..reliable() };
        of(ring::check(ring::channelled(&[1, 2], loses), max))
    }),
    sound("2 who want each other, one fickle, a crash", |max| {
        let callers = [Caller::new(&[&[1], &[1]], true), Caller::new(&[&[0], &[0]], false)];
        of(reservations::check(Callers::new(&callers, 1), max.max(STATES_PROGRESS)))
    }),
    sound("3 in a circle, one fickle", |max| {
        let callers =
            [Caller::new(&[&[1]], true), Caller::new(&[&[2]], false), Caller::new(&[&[0]], false)];
        of(reservations::check(Callers::new(&callers, 0), max.max(STATES_PROGRESS)))
    }),
    sound("1 who wants both others, 1 who wants it, a crash", |max| {
        let callers =
            [Caller::new(&[&[1, 2]], false), Caller::new(&[&[0]], false), Caller::new(&[], false)];
        of(reservations::check(Callers::new(&callers, 1), max))
    }),
    sound("2 of 3 who want both others", |max| {
        let callers = [
            Caller::new(&[&[1, 2], &[1, 2]], false),
            Caller::new(&[&[0, 2]], true),
            Caller::new(&[], false),
        ];
        of(reservations::check(Callers::new(&callers, 0), max))
    }),
    wrong("2 who want each other, no release, as printed", &["no way out"], |max| {
        let callers = [Caller::new(&[&[1]], true), Caller::new(&[&[0]], false)];
        of(reservations::check(Callers::as_printed(&callers), max))
    }),
    sound("plain, 2 replicas, 2 operations, 1 strict", |max| {
        check(Trial::reduced(channels(plain(2, Rules::PAPER)), plan(2, 2, 0b01, &[])), max)
    }),
    strict("plain, 2 replicas, 2 operations, both strict", |max| {
        check(Trial::reduced(channels(plain(2, Rules::PAPER)), plan(2, 2, 0b11, &[])), max)
    }),
    strict("plain with reservations, 2 replicas, 1 strict operation", |max| {
        let parts = plain(2, Rules::PAPER).into_iter().map(Reserved::new).collect();
        settling(Trial::new(channels(parts), plan(2, 1, 0b1, &[])), max)
    }),
    sound("plain, 1 needs another, all moments", |max| {
        check(Trial::new(channels(plain(2, Rules::PAPER)), plan(2, 3, 0b010, &[(2, 1)])), max)
    }),
    sound("plain, to all, channels that lose and reorder", |max| {
        let bad = Discipline { reorders: true, loses: true, duplicates: true };
        let make = |me| Plain::new(OpList, me, 2, Rules::PAPER);
        let parts = stations(2, Submission::All, Rules::PAPER, make);
        // Lost messages are not retransmitted here, so progress is not checked.
        check_safety(Trial::new(Channelled::new(parts, bad), plan(2, 2, 0b01, &[])), max, |trial| {
            trial.longest_channel() <= 1
        })
    }),
    sound("optimised, 2 replicas, 2 operations, 1 strict", |max| {
        check(Trial::reduced(channels(optimised(2, TWO_HOPS)), plan(2, 2, 0b01, &[])), max)
    }),
    strict("optimised, 1 needs the other, all moments, 2 messages in a channel", |max| {
        let trial = Trial::new(channels(optimised(2, TWO_HOPS)), plan(2, 2, 0b01, &[(1, 0)]));
        check_within(trial, max, |trial| trial.longest_channel() <= 2)
    }),
    sound("optimised, 2 replicas, 3 operations, 1 strict, 1 needs another", |max| {
        check(Trial::reduced(channels(optimised(2, TWO_HOPS)), plan(2, 3, 0b010, &[(2, 1)])), max)
    }),
    sound("optimised, 3 replicas, 2 operations, 1 strict, in one step", |max| {
        check(Trial::reduced(Combined::new(optimised(3, TWO_HOPS)), plan(3, 2, 0b01, &[])), max)
    }),
    wrong("one delta for all, as printed", &["I5", "I6", "G4"], |max| {
        slipped(Slip::OneDelta, 3, Submission::One, max)
    }),
    wrong("labels assigned", &["I5", "I6", "I8"], |max| {
        slipped(Slip::LabelsAssigned, 3, Submission::All, max)
    }),
    wrong("the counter not raised, as printed", &["I7"], |max| {
        slipped(Slip::ClockNotRaised, 2, Submission::One, max)
    }),
    wrong("labels without their replica, as printed", &["I7"], |max| {
        slipped(Slip::LabelsShared, 2, Submission::One, max)
    }),
    wrong("strict when done here", &["G1", "G3"], |max| {
        slipped(Slip::StrictWhenDone, 2, Submission::One, max)
    }),
    wrong("optimised, channels that reorder", &["I4", "I5", "I6"], |max| {
        let reorders = Discipline { reorders: true, ..reliable() };
        let service = Channelled::new(optimised(2, TWO_HOPS), reorders);
        // Two messages in one channel, so that overtaking is possible.
        let trial = Trial::reduced(service, plan(2, 2, 0b01, &[(1, 0)]));
        check_within(trial, max, |trial| trial.longest_channel() <= 2)
    }),
    wrong("optimised, channels that lose", &["I4", "I5", "I6"], |max| {
        let loses = Discipline { loses: true, ..reliable() };
        let service = Channelled::new(optimised(2, TWO_HOPS), loses);
        let trial = Trial::reduced(service, plan(2, 2, 0b01, &[(1, 0)]));
        check_safety(trial, max, |trial| trial.longest_channel() <= 1)
    }),
];

/// Checks that from every state a state is reachable in which every operation is answered and
/// equally final at all replicas. The states are few.
fn settling<S: Service>(trial: Trial<S>, states_max: usize) -> Verdict {
    let found = reach(&trial, Trial::is_settled, states_max);
    of((check_within(trial, states_max, |_| true), found))
}

fn reliable() -> Discipline {
    Discipline::default()
}

fn plain(replicas: usize, rules: Rules) -> Vec<Station<OpList, Plain<OpList>>> {
    stations(replicas, Submission::One, rules, |me| Plain::new(OpList, me, replicas, rules))
}

fn optimised(replicas: usize, rules: Rules) -> Vec<Station<OpList, Optimised<OpList>>> {
    stations(replicas, Submission::One, rules, |me| Optimised::new(OpList, me, replicas, rules))
}

fn channels<P: Part>(parts: Vec<P>) -> Channelled<P> {
    Channelled::new(parts, reliable())
}

/// Checks two operations with an error in the algorithm.
fn slipped(slip: Slip, replicas: usize, submission: Submission, states_max: usize) -> Verdict {
    let rules = Rules { slip: Some(slip), ..TWO_HOPS };
    let make = |me| Optimised::new(OpList, me, replicas, rules);
    let parts = stations(replicas, submission, rules, make);
    check(Trial::reduced(channels(parts), plan(replicas, 2, 0b10, &[])), states_max)
}

/// Combines a safety and a progress result.
fn of<C: Debug>((verdict, found): (Verdict, Found<C>)) -> Verdict {
    let stuck = match found {
        Found::Always(_) => None,
        Found::Stuck(state) => Some(format!("no way out of {state:#?}")),
        Found::TooMany => Some("more states than expected".into()),
    };
    Verdict { violation: verdict.violation.or(stuck), ..verdict }
}
