use super::schedule::Input;
use super::*;
use crate::ring::Member;
use base::{Automaton, Instant};

const IDENTIFIERS: [u64; 5] = [4, 1, 5, 2, 3];

/// Runs a composition to quiescence. Returns its outputs and the number of transitions.
fn run<C: IoAutomaton>(mut whole: C, mut scheduler: impl Scheduler<C>) -> (Vec<C::Output>, usize) {
    let (mut output, mut transitions) = (Vec::new(), 0);
    while let Some(action) = scheduler.choose(&whole) {
        output.extend(whole.transition(action));
        transitions += 1;
        assert!(transitions < 100_000, "it never ends");
    }
    (output, transitions)
}

fn members() -> Vec<Member> {
    Member::ring(&IDENTIFIERS)
}

#[test]
fn every_composition_elects_the_same_under_every_scheduler() {
    let channelled = || Channelled::new(members(), Discipline::default());
    let reserved = || {
        let members = members().into_iter().map(Reserved::new).collect();
        Channelled::new(members, Discipline::default())
    };
    let leader = vec![(2, 5)];
    assert_eq!(run(Combined::new(members()), RoundRobin::default()).0, leader);
    assert_eq!(run(channelled(), RoundRobin::default()).0, leader);
    for seed in 0..200 {
        assert_eq!(run(Combined::new(members()), Random::seeded(seed)).0, leader, "seed {seed}");
        assert_eq!(run(channelled(), Random::seeded(seed)).0, leader, "seed {seed}");
        assert_eq!(run(reserved(), Random::seeded(seed)).0, leader, "seed {seed}");
    }
}

#[test]
fn a_process_is_an_automaton_of_the_house() {
    let ring = Channelled::new(members(), Discipline::default());
    let mut process = Process::new(ring, RoundRobin::default());
    let mut out = Vec::new();
    while process.deadline().is_some() {
        process.step(Instant(0), Input::Turn, &mut out);
    }
    assert_eq!(out, [(2, 5)]);
    process.step(Instant(0), Input::Action((0, ())), &mut out);
    assert!(process.automaton().parts()[2].leads() && out.len() == 1);
}

#[test]
fn a_process_does_no_more_in_a_step_than_it_may() {
    let ring = Channelled::new(Member::ring(&[2, 1]), Discipline::default());
    let mut process = Process::new(ring, RoundRobin::default()).with_transitions_max(1);
    let mut out = Vec::new();
    process.step(Instant(0), Input::Turn, &mut out);
    assert_eq!(process.automaton().on_their_way().count(), 1);
    process.step(Instant(0), Input::Turn, &mut out);
    assert_eq!(process.automaton().on_their_way().count(), 2);
}

#[test]
fn bad_channels_do_what_they_may() {
    let discipline = Discipline { reorders: true, loses: true, duplicates: true };
    let mut ring = Channelled::new(Member::ring(&[2, 1]), discipline);
    ring.transition(Move::Local(0, crate::ring::Action::Pass));
    let moves = all_enabled(&ring);
    let expected = [
        Move::Local(1, crate::ring::Action::Pass),
        Move::Deliver { from: 0, to: 1, index: 0 },
        Move::Duplicate { from: 0, to: 1 },
        Move::Lose { from: 0, to: 1 },
    ];
    assert_eq!(moves, expected);
    ring.transition(moves[2].clone());
    assert_eq!(ring.channel(0, 1).len(), 1);
    ring.transition(moves[3].clone());
    assert_eq!(ring.on_their_way().count(), 0);
}

/// All request at the same moment, are refused, rest, and request again: forever, if their rests
/// are equal.
#[test]
fn rests_that_differ_end_what_equal_rests_do_not() {
    assert!(rounds_until_done(|_, _| 1).is_none());
    let mut rng = base::rng::seeded(7);
    assert!(rounds_until_done(|_, doublings| rng.u32(1..=2 << doublings)).is_some());
}

/// Returns the rounds needed by two members in lockstep that both pass their identifiers to the
/// other. A member rests for `rest` rounds.
fn rounds_until_done(mut rest: impl FnMut(usize, u8) -> u32) -> Option<u32> {
    let mut parts: Vec<_> = Member::ring(&[1, 2]).into_iter().map(Reserved::new).collect();
    let mut resting = [0; 2];
    for round in 0..1000 {
        let mut output = Vec::new();
        for (at, part) in parts.iter_mut().enumerate() {
            match part.rest() {
                Some(doublings) if resting[at] == 0 => resting[at] = 1 + rest(at, doublings),
                Some(_) | None => {}
            }
            resting[at] = resting[at].saturating_sub(1);
            let ready =
                |work: &ReservedAction<_>| resting[at] == 0 || *work != ReservedAction::Rest;
            if let Some(work) = all_enabled(part).into_iter().find(ready) {
                output.extend(part.transition(work).map(|output| (at, output)));
            }
        }
        for (from, output) in output {
            match output {
                PartOutput::Outside(_) => return Some(round),
                PartOutput::To(others, exchange) => others
                    .into_iter()
                    .for_each(|to| parts[to].input(PartInput::From(from, exchange.clone()))),
            }
        }
    }
    None
}
