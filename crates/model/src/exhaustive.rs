//! The list of what is checked exhaustively, and what is known of each.

use crate::reservations::{self, Caller, Town};
use crate::ring;
use crate::service::{Trial, check, plan, stations};
use crate::trail::Trail;
use crate::{Found, Verdict};
use replica::esds::{Hops, Optimised, Plain, Rules, Slip, Station, Submission};
use replica::ioa::{Channelled, Combined, Discipline, Part, Reserved};
use replica::ring::Member;
use std::fmt::Debug;

/// Something to be looked at in every state.
pub struct Case {
    /// What it is.
    pub name: &'static str,
    /// Looks at it, at about so many states at most.
    pub check: fn(usize) -> Verdict,
    /// Whether something is wrong with it on purpose.
    pub wrong: bool,
    /// Whether it can reach what is remarkable: of a service, both anomalies that are no errors; of
    /// others, their end.
    pub reaches: bool,
}

const TWO_HOPS: Rules = Rules { hops: Hops::Two, ..Rules::PAPER };

/// States to be looked at of most cases, at about most, counting each as often as it is reached.
pub const STATES_MAX: usize = 20_000_000;

const fn sound(name: &'static str, check: fn(usize) -> Verdict) -> Case {
    Case { name, check, wrong: false, reaches: true }
}

const fn strict(name: &'static str, check: fn(usize) -> Verdict) -> Case {
    Case { name, check, wrong: false, reaches: false }
}

const fn wrong(name: &'static str, check: fn(usize) -> Verdict) -> Case {
    Case { name, check, wrong: true, reaches: false }
}

/// Everything that is checked.
pub const CASES: &[Case] = &[
    sound("ring of 3, in one step", |_| of(ring::check(Combined::new(Member::ring(&[2, 3, 1]))))),
    sound("ring of 3, channels", |_| of(ring::check(ring::channelled(&[2, 3, 1], reliable())))),
    sound("ring of 3, reservations", |_| of(ring::check(ring::reserved(&[2, 3, 1])))),
    wrong("ring of 2, channels that lose", |_| {
        let loses = Discipline { loses: true, ..reliable() };
        of(ring::check(ring::channelled(&[1, 2], loses)))
    }),
    sound("2 who want each other, fickle, a crash", |_| {
        let callers = [Caller::new(&[&[1], &[1]], true), Caller::new(&[&[0], &[0]], true)];
        of(reservations::check(Town::new(&callers, 1)))
    }),
    sound("3 in a circle", |_| {
        let callers =
            [Caller::new(&[&[1]], true), Caller::new(&[&[2]], false), Caller::new(&[&[0]], false)];
        of(reservations::check(Town::new(&callers, 0)))
    }),
    sound("3 who want both others", |_| {
        let callers = [
            Caller::new(&[&[1, 2]], false),
            Caller::new(&[&[0, 2]], true),
            Caller::new(&[&[0, 1]], false),
        ];
        of(reservations::check(Town::new(&callers, 0)))
    }),
    wrong("2 who want each other, no release, as printed", |_| {
        let callers = [Caller::new(&[&[1]], true), Caller::new(&[&[0]], false)];
        of(reservations::check(Town::as_printed(&callers)))
    }),
    sound("plain, 2 replicas, 2 operations, 1 strict", |max| {
        check(Trial::reduced(channels(plain(2, Rules::PAPER)), plan(2, 2, 0b01, &[])), max)
    }),
    strict("plain, 2 replicas, 2 operations, both strict", |max| {
        check(Trial::reduced(channels(plain(2, Rules::PAPER)), plan(2, 2, 0b11, &[])), max)
    }),
    strict("plain with reservations, 2 replicas, 1 operation", |max| {
        let parts = plain(2, Rules::PAPER).into_iter().map(Reserved::new).collect();
        check(Trial::reduced(channels(parts), plan(2, 1, 0b1, &[])), max)
    }),
    sound("optimised, 2 replicas, 2 operations, 1 strict", |max| {
        check(Trial::reduced(channels(optimised(2, TWO_HOPS)), plan(2, 2, 0b01, &[])), max)
    }),
    sound("optimised, 2 replicas, 3 operations, 1 strict, 1 needs another", |max| {
        check(Trial::reduced(channels(optimised(2, TWO_HOPS)), plan(2, 3, 0b010, &[(2, 0)])), max)
    }),
    sound("optimised, 3 replicas, 2 operations, 1 strict, in one step", |max| {
        check(Trial::reduced(Combined::new(optimised(3, TWO_HOPS)), plan(3, 2, 0b01, &[])), max)
    }),
    wrong("one delta for all, as printed", |max| slipped(Slip::OneDelta, 3, Submission::One, max)),
    wrong("labels assigned, as printed", |max| {
        slipped(Slip::LabelsAssigned, 3, Submission::All, max)
    }),
    wrong("the counter not raised, as printed", |max| {
        slipped(Slip::ClockNotRaised, 2, Submission::One, max)
    }),
    wrong("strict when done here", |max| slipped(Slip::StrictWhenDone, 2, Submission::One, max)),
    wrong("optimised, channels that reorder", |max| {
        let reorders = Discipline { reorders: true, ..reliable() };
        let service = Channelled::new(optimised(2, TWO_HOPS), reorders);
        // Two messages in one channel: they must be able to overtake.
        let trial = Trial::reduced(service, plan(2, 2, 0b01, &[(1, 0)]));
        crate::service::check_within(trial, max, |trial| trial.longest_channel() <= 2)
    }),
    wrong("optimised, channels that lose", |max| {
        let loses = Discipline { loses: true, ..reliable() };
        let service = Channelled::new(optimised(2, TWO_HOPS), loses);
        check(Trial::reduced(service, plan(2, 2, 0b01, &[])), max)
    }),
];

fn reliable() -> Discipline {
    Discipline::default()
}

fn plain(replicas: usize, rules: Rules) -> Vec<Station<Trail, Plain<Trail>>> {
    stations(replicas, Submission::One, rules, |me| Plain::new(Trail, me, replicas, rules))
}

fn optimised(replicas: usize, rules: Rules) -> Vec<Station<Trail, Optimised<Trail>>> {
    stations(replicas, Submission::One, rules, |me| Optimised::new(Trail, me, replicas, rules))
}

fn channels<P: Part>(parts: Vec<P>) -> Channelled<P> {
    Channelled::new(parts, reliable())
}

/// Two operations, and an error.
fn slipped(slip: Slip, replicas: usize, submission: Submission, states_max: usize) -> Verdict {
    let rules = Rules { slip: Some(slip), ..TWO_HOPS };
    let make = |me| Optimised::new(Trail, me, replicas, rules);
    let parts = stations(replicas, submission, rules, make);
    check(Trial::reduced(channels(parts), plan(replicas, 2, 0b10, &[])), states_max)
}

/// A verdict, and whether something good stays possible, in one.
fn of<C: Debug>((verdict, found): (Verdict, Found<C>)) -> Verdict {
    let stuck = match found {
        Found::Always(_) => None,
        Found::Stuck(state) => Some(format!("no way out of {state:#?}")),
        Found::TooMany => Some("more states than expected".into()),
    };
    Verdict { violation: verdict.violation.or(stuck), ..verdict }
}
