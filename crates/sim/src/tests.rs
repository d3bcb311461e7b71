//! Light runs of everything.

use crate::canary::{Mistake, hunt};
use crate::fuzz::{FUZZERS, fuzz};
use crate::params::Params;
use crate::run::{play, run};
use crate::trace::Show;

#[test]
fn forty_seeds_with_faults_pass() {
    for seed in 1..=40 {
        run(Params::light(seed), Show::Hash);
    }
}

#[test]
fn calm_seeds_pass_and_judge_every_kind_of_client() {
    let requests: u64 =
        (100..110).map(|seed| run(Params::calm(seed), Show::Hash).totals.requests).sum();
    assert!(requests > 1000, "only {requests} requests were judged");
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    let [one, two] = [(); 2].map(|()| run(Params::light(7), Show::Keep));
    assert_eq!(one.hash, two.hash);
    assert!(one.trace == two.trace && one.trace.len() > 1000);
    assert_ne!(one.hash, run(Params::light(8), Show::Hash).hash);
}

#[test]
fn every_planted_mistake_is_found() {
    for mistake in Mistake::ALL {
        assert!(hunt(mistake, 20).is_some(), "{mistake:?} was not found");
    }
}

#[test]
fn fuzzers_pass_and_the_canary_among_them_fails() {
    for fuzzer in FUZZERS {
        let cases = if fuzzer.must_fail { 10_000 } else { 400 };
        let verdict = fuzz(fuzzer, 1, |done| done < cases);
        assert_eq!(verdict.failed.is_some(), fuzzer.must_fail, "{}: {verdict:?}", fuzzer.name);
    }
}

/// A scenario is its script, a line of dashes, and what came of it.
#[test]
fn scenarios_go_as_they_are_written() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios");
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let (script, expected) = text.split_once("----\n").unwrap();
        let played = play(script);
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            std::fs::write(&path, format!("{script}----\n{played}")).unwrap();
        } else {
            assert_eq!(played, expected, "{}", path.display());
        }
    }
}
