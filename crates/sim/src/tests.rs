//! Light runs of everything.

use crate::canary::{Mistake, hunt};
use crate::fuzz::{FUZZERS, Fails, fuzz};
use crate::params::Params;
use crate::run::{Outcome, play, run};
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
    a_seed_is_a_run(7, |seed, show| run(Params::light(seed), show));
}

/// The same seed gives the same trace, the next one a different trace.
pub(crate) fn a_seed_is_a_run(seed: u64, run: impl Fn(u64, Show) -> Outcome) {
    let [one, two] = [(); 2].map(|()| run(seed, Show::Keep));
    assert_eq!(one.hash, two.hash);
    assert!(one.trace == two.trace && one.trace.len() > 1000);
    assert_ne!(one.hash, run(seed + 1, Show::Hash).hash);
}

#[test]
fn quotas_are_exceeded_and_volumes_grow_and_survive_power_failures() {
    let mut sum = (0, 0, 0, 0);
    for seed in 1..=20 {
        let params = Params::calm(seed).with_quotas(u32::from(seed % 2 == 0) * 4);
        let totals = run(params, Show::Hash).totals;
        sum.0 += totals.refusals;
        sum.1 += totals.audits;
        sum.2 += totals.growths;
        sum.3 += totals.failures;
    }
    let (refusals, audits, growths, failures) = sum;
    assert!(refusals > 100 && audits > 40 && growths > 20 && failures > 10, "{sum:?}");
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
        let must_fail = fuzzer.fails == Fails::Always;
        let cases = if must_fail { 10_000 } else { 400 };
        let verdict = fuzz(fuzzer, 1, |done| done < cases);
        assert_eq!(verdict.failed.is_some(), must_fail, "{}: {verdict:?}", fuzzer.name);
    }
}

/// A scenario file is a script, a line of dashes, and the expected result.
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

/// Listeners of the world accept connections from within; data arrives in order, and each end is
/// notified of the other's end.
#[test]
fn a_node_connects_to_another() {
    use base::op::{Address, Done, Op, OpId, Socket};
    use base::{Buf, Error, Reactor};
    fn wait(world: &mut crate::world::World, wanted: u64) -> Done {
        loop {
            let mut events = Vec::new();
            world.wait(Some(base::Instant(u64::MAX / 2)), &mut events);
            for event in events {
                if event.id == OpId(wanted) {
                    return event.done;
                }
            }
        }
    }
    fn receive(world: &mut crate::world::World, socket: Socket) -> Result<Vec<u8>, Error> {
        world.submit(Op::Receive { id: OpId(9), socket, into: base::op::ReceiveBuf::Default });
        let Done::Received(received) = wait(world, 9) else { panic!("it receives") };
        received.map(|buf| buf.to_vec())
    }
    let mut world = crate::world::World::new(Params::calm(1), Show::Hash);
    let listener = world.listen();
    let to = |port| Address::Tcp(std::net::SocketAddr::from(([10, 0, 0, 1], port)));
    world.submit(Op::Connect { id: OpId(1), to: to(7) });
    assert!(matches!(wait(&mut world, 1), Done::Connected(Err(Error::Disconnected))));
    world.submit(Op::Accept { id: OpId(3), listener, max: 1 });
    world.submit(Op::Connect { id: OpId(2), to: to(0) });
    let Done::Connected(Ok(near)) = wait(&mut world, 2) else { panic!("nobody refuses") };
    let Done::Accepted(Ok(accepted)) = wait(&mut world, 3) else { panic!("it accepts") };
    let (far, _) = accepted[0];
    for (from, to) in [(near, far), (far, near)] {
        let data = vec![Buf::from(vec![7; 5000])];
        world.submit(Op::Send { id: OpId(4), socket: from, data });
        let mut got = 0;
        while got < 5000 {
            got += receive(&mut world, to).expect("it comes").len();
        }
    }
    world.submit(Op::Hangup { socket: near });
    assert_eq!(receive(&mut world, far), Err(Error::Disconnected));
    for socket in [near, far] {
        world.submit(Op::CloseSocket { socket });
    }
}
