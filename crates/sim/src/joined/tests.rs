//! Light runs, the canaries, and determinism.

use super::canary::Mistake;
use super::hunt::hunt;
use super::{Params, run};
use crate::tests::a_seed_is_a_run;
use crate::trace::Show;

#[test]
fn seeds_with_every_trouble_pass() {
    let (mut requests, mut faults) = (0, 0);
    for seed in 1..=6 {
        let totals = run(&Params::light(seed), Show::Hash).totals;
        (requests, faults) = (requests + totals.requests, faults + totals.faults);
    }
    assert!(requests > 4_000 && faults > 40, "{requests} requests, {faults} faults");
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
