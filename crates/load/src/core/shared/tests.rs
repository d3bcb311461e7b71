//! Leader changes, step by step.

use super::*;

fn shared() -> Shared {
    Shared::new(Vec::new(), &Options::default(), 2, &Calibration::measure())
}

#[test]
fn the_lead_is_taken_once_and_given_away() {
    let shared = shared();
    assert!(shared.clock_leader(0) && shared.clock_leader(0) && !shared.clock_leader(1));
    shared.hand_over();
    assert!(shared.clock_leader(1) && !shared.clock_leader(0));
}

#[test]
fn a_neglected_lead_is_taken_over_once() {
    let shared = shared();
    assert!(shared.clock_leader(0) && !shared.take_over(1));
    shared.neglect(true);
    assert!(shared.take_over(1) && !shared.take_over(0) && !shared.clock_leader(0));
}

#[test]
fn a_relieved_clock_leader_loses_only_its_own_time() {
    let shared = shared();
    assert!(shared.clock_leader(0) && shared.stand_by(1) && !shared.stand_by(0));
    shared.beat(100);
    assert_eq!(shared.last_beat(), 100);
    shared.neglect(true);
    assert!(!shared.relieve(NOBODY, 1, 5_000), "he must know whom");
    assert!(shared.relieve(0, 1, 6_000));
    assert!(!shared.take_over(0), "a relieved worker is not chosen for an old delay");
    assert_eq!(shared.unwatched_until(0, 100, 50_000), 6_000);
    assert_eq!(shared.unwatched_until(0, 7_000, 50_000), 50_000, "that was another time");
    assert_eq!(shared.unwatched_until(1, 100, 50_000), 50_000, "he leads");
    shared.stand_down();
    shared.beat(200);
    assert_eq!(shared.last_beat(), 100, "nobody wants to know");
}

#[test]
fn an_offer_makes_one_heir_who_inherits_once() {
    let shared = shared();
    assert!(shared.clock_leader(0) && !shared.offer_lead(), "nobody sleeps");
    shared.lie_down(1);
    assert!(shared.offer_lead() && !shared.anybody_idle());
    shared.inherit(0);
    assert!(shared.clock_leader(0), "it is not his");
    shared.inherit(1);
    assert!(shared.clock_leader(1) && !shared.clock_leader(0));
}

#[test]
fn only_who_fell_asleep_last_wakes_up() {
    let shared = shared();
    shared.fall_asleep(0, 1_000);
    shared.fall_asleep(1, 2_000);
    shared.wake_up(0, 1_000);
    assert_eq!(shared.asleep.load(Ordering::SeqCst), asleep(1, 2_000));
    shared.wake_up(1, 2_000);
    assert_eq!(shared.asleep.load(Ordering::SeqCst), 0);
}
