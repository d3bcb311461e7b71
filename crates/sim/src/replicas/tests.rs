//! Light runs, the canaries, and determinism.

use super::canary::Mistake;
use super::hunt::hunt;
use super::params::Trouble;
use super::{Params, run};
use crate::tests::a_seed_is_a_run;
use crate::trace::Show;
use replica::data::Kind;

#[test]
fn seeds_with_every_trouble_pass() {
    let (mut requests, mut faults) = (0, 0);
    for seed in 1..=12 {
        let totals = run(&Params::light(seed), Show::Hash).totals;
        (requests, faults) = (requests + totals.requests, faults + totals.faults);
    }
    assert!(requests > 300 && faults > 50, "{requests} requests, {faults} faults");
}

#[test]
fn final_replies_of_each_kind_are_replayed() {
    for kind in [Kind::Counter, Kind::Map, Kind::Set, Kind::Register, Kind::Sheet] {
        let replayed = (1..=3).map(|seed| {
            let params = Params { kind, ..Params::light(seed) };
            run(&params, Show::Hash).totals.replayed
        });
        assert!(replayed.sum::<u64>() > 0, "{kind:?}");
    }
}

/// The others detect each server that is frozen for long.
#[test]
fn servers_that_stand_still_are_noticed() {
    let trouble = Trouble { freeze: 1, ..Trouble::default() };
    assert!(silences(trouble) > 4);
}

/// Servers that a server cannot hear detect it, although they hear that server.
#[test]
fn servers_that_cannot_be_reached_are_noticed() {
    let trouble = Trouble { cut: 1, ..Trouble::default() };
    assert!(silences(trouble) > 4);
}

/// Makes clients run so long that troubles end before they do.
fn last(params: &mut Params) {
    (params.operations, params.pace_ms) = (60, 20_000);
}

/// Returns how often a server was seen to have detected that another one does not reply.
fn silences(trouble: Trouble) -> u64 {
    let seeds = 1..=4;
    let silences = seeds.map(|seed| {
        let mut params = Params::light(seed);
        params.trouble = trouble.clone();
        last(&mut params);
        (params.lasts_ms, params.pause_ms, params.troubles) = (40_000, 40_000, 8);
        run(&params, Show::Hash).totals.silences
    });
    silences.sum()
}

/// Members that are frozen or partitioned are removed, and replies of the others remain valid.
#[test]
fn silent_members_are_removed() {
    let mut epochs = 0;
    for seed in 1..=12 {
        let mut params = Params::light(seed);
        params.let_remove();
        last(&mut params);
        let trace = run(&params, Show::Keep).trace;
        let epoch = |line: &str| {
            let (_, news) = line.split_once(": epoch ").filter(|_| line.contains(" news of "))?;
            news.split_once(':').and_then(|(number, _)| number.parse::<u64>().ok())
        };
        epochs += trace.lines().filter_map(epoch).max().map_or(0, |last| last - 1);
    }
    assert!(epochs > 5, "{epochs} members were removed");
}

/// After an outage of all connections they are restored one after the other, and all members stay.
#[test]
fn an_outage_removes_nobody() {
    for seed in 1..=12 {
        let mut params = Params::light(seed);
        params.let_remove();
        params.trouble = Trouble { outage: 1, ..Trouble::default() };
        last(&mut params);
        params.troubles = 4;
        let trace = run(&params, Show::Keep).trace;
        assert!(trace.contains("cluster: Reconnect"), "seed {seed} has no outage");
        let removes = trace.lines().find(|line| line.ends_with("asking the others to remove it"));
        assert_eq!(removes, None);
    }
}

/// A replica joined while another one was removed, and a third restarted in between: it closed its
/// link to the new member with the epoch of the removal, and never made it anew.
#[test]
fn a_replica_that_joins_while_another_leaves_is_reached_by_all() {
    run(&Params::draw(6_003_681), Show::Hash);
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
