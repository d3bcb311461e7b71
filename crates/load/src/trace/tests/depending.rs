//! Dependencies.

use super::super::{Depended, Dependence};
use super::*;
use std::collections::BTreeSet;

fn depended(rule: Dependence, records: &[Traced]) -> Vec<Depended> {
    let records: Vec<Result<Traced, Error>> = records.iter().copied().map(Ok).collect();
    rule.of(records.into_iter()).map(|record| record.expect("times are known")).collect()
}

#[test]
fn the_drawing_of_the_module() {
    let records = [traced(0, 8, 0), traced(1, 14, 0), traced(10, 10, 0), traced(25, 5, 0)];
    let found = depended(Dependence::default(), &records);
    let parents: Vec<_> = found.iter().map(|record| record.parents.clone()).collect();
    assert_eq!(parents, [vec![], vec![], vec![0], vec![2, 1]]);
    let thinks: Vec<_> = found.iter().map(|record| record.think_ns).collect();
    assert_eq!(thinks, [0, 1, 2, 5]);
}

#[test]
fn a_completion_too_near_or_too_long_ago_does_not_matter_but_the_last_one() {
    let rule = Dependence { distance_ns: 10, window_ns: 100, ..Dependence::default() };
    let near = depended(rule, &[traced(0, 5, 0), traced(15, 5, 0)]);
    assert!(near[1].parents.is_empty());
    let far = depended(rule, &[traced(0, 5, 0), traced(1, 6, 0), traced(5000, 5, 0)]);
    assert_eq!((far[2].parents.clone(), far[2].think_ns), (vec![1], 4993));
}

/// Naive implementation of the definition: all candidates, minus the ancestors of others.
fn naive(rule: Dependence, records: &[Traced], at: usize) -> BTreeSet<u64> {
    let done = |record: &Traced| record.completed_ns().expect("times are known");
    let now_ns = records[at].at_ns;
    let is_before = |one: &Traced, at_ns: u64| done(one) + rule.distance_ns < at_ns;
    let candidates =
        |now_ns: u64| (0..at).filter(move |number| is_before(&records[*number], now_ns));
    let near = |number: &usize| done(&records[*number]) + rule.window_ns >= now_ns;
    let all: Vec<_> = candidates(now_ns).filter(near).collect();
    let implied =
        |number: usize| all.iter().any(|by| is_before(&records[number], records[*by].at_ns));
    all.iter().filter(|number| !implied(**number)).map(|number| *number as u64).collect()
}

#[test]
fn the_walk_finds_the_transitive_reduction() {
    for seed in 0..200 {
        let mut rng = base::rng::seeded(seed);
        let mut at_ns = 0;
        let records: Vec<_> = (0..60)
            .map(|_| {
                at_ns += rng.u64(..20);
                traced(at_ns, rng.u64(1..60), 0)
            })
            .collect();
        let rule = Dependence { window_ns: rng.u64(20..300), ..Dependence::default() };
        for (at, record) in depended(rule, &records).iter().enumerate() {
            let naive = naive(rule, &records, at);
            let found: BTreeSet<_> = record.parents.iter().copied().collect();
            if naive.is_empty() {
                assert!(found.len() <= 1, "seed {seed}, record {at}");
            } else {
                assert_eq!(found, naive, "seed {seed}, record {at}");
            }
        }
    }
}

#[test]
fn memory_is_bounded_by_what_is_tracked() {
    let rule = Dependence { window_ns: u64::MAX, tracked: 4, ..Dependence::default() };
    let records: Vec<_> = (0..100).map(|number| traced(number * 10, 35, 0)).collect();
    let found = depended(rule, &records);
    assert!(found.iter().all(|record| record.parents.len() <= 4));
}

#[test]
fn without_completions_nothing_can_be_inferred() {
    let records = super::records(MQSIM.as_bytes()).into_iter().map(Ok);
    let error = Dependence::default().of(records).find_map(Result::err);
    expect_test::expect![[r#"
        the trace has no completion times, so dependencies are unknown. Replay it by its times
            (open), or replay it once by its times with a recording and infer from that; of a
            blktrace, complete (C) events are needed
    "#]]
    .assert_eq(&folded(&error.expect("an error is reported").to_string()));
}
