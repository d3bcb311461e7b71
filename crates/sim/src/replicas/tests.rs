//! Light runs, the canaries, and that a seed is a run.

use super::canary::{Mistake, hunt};
use super::params::Trouble;
use super::{Params, run};
use crate::tests::a_seed_is_a_run;
use crate::trace::Show;

#[test]
fn seeds_with_every_trouble_pass() {
    let (mut requests, mut faults) = (0, 0);
    for seed in 1..=12 {
        let totals = run(&Params::light(seed), Show::Hash).totals;
        (requests, faults) = (requests + totals.requests, faults + totals.faults);
    }
    assert!(requests > 300 && faults > 50, "{requests} requests, {faults} faults");
}

/// The others notice each server that stands still for long.
#[test]
fn servers_that_stand_still_are_noticed() {
    for seed in 1..=4 {
        let mut params = Params::light(seed);
        params.trouble = Trouble { freeze: 1, ..Trouble::default() };
        (params.lasts_ms, params.troubles) = (40_000, 6);
        run(&params, Show::Hash);
    }
}

/// Members that stand still, or are cut off, are removed, and what others answer holds.
#[test]
fn silent_members_are_removed() {
    let mut removals = 0;
    for seed in 1..=12 {
        let mut params = Params::light(seed);
        params.let_remove();
        let trace = run(&params, Show::Keep).trace;
        let epochs = trace.lines().filter(|line| line.contains("cluster") || line.contains("news"));
        removals += epochs.filter(|line| line.ends_with("it is removed")).count();
    }
    assert!(removals > 5, "{removals} members were removed");
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    a_seed_is_a_run(3, |seed, show| run(&Params::light(seed), show));
}

#[test]
fn every_planted_mistake_is_found() {
    for mistake in Mistake::ALL {
        assert!(hunt(mistake, 20).is_some(), "{mistake:?} was not found");
    }
}
