use super::*;
use base::drawing::Drawing;
use base::rng::seeded;

const TABLE: Table = Table(300);

fn key(name: u8) -> Span {
    Span::key(TABLE, &[name])
}

fn range(from: u8, to: u8) -> Span {
    Span::range(TABLE, &[from], Some(&[to]))
}

const GRANTED: Result<Outcome, Refused> = Ok(Outcome::Granted);
const WAITS: Result<Outcome, Refused> = Ok(Outcome::Waits);
const DEADLOCK: Result<Outcome, Refused> = Err(Refused::WouldDeadlock);

#[test]
fn many_may_read_and_one_may_write() {
    let mut locks = Locks::default();
    assert_eq!(locks.request(Owner(1), key(b'a'), Mode::Shared), GRANTED);
    assert_eq!(locks.request(Owner(2), key(b'a'), Mode::Shared), GRANTED);
    assert_eq!(locks.request(Owner(3), key(b'a'), Mode::Exclusive), WAITS);
    assert_eq!(locks.request(Owner(3 + 1), key(b'b'), Mode::Exclusive), GRANTED);
    assert_eq!(locks.counts(), (3, 1));
    assert_eq!(locks.release(Owner(1)), []);
    assert_eq!(locks.release(Owner(2)), [Owner(3)]);
    assert!(locks.is_free(&key(b'c'), Mode::Exclusive) && !locks.is_free(&key(b'a'), Mode::Shared));
    assert_eq!(locks.release(Owner(3)), []);
    assert_eq!(locks.release(Owner(4)), []);
    assert!(locks.is_empty() && locks.points.is_empty());
}

#[test]
fn a_waiting_writer_is_not_starved_by_later_readers() {
    let mut locks = Locks::default();
    assert_eq!(locks.request(Owner(1), key(b'a'), Mode::Shared), GRANTED);
    assert_eq!(locks.request(Owner(2), key(b'a'), Mode::Exclusive), WAITS);
    assert_eq!(locks.request(Owner(3), key(b'a'), Mode::Shared), WAITS);
    assert_eq!(locks.request(Owner(4), range(b'a', b'c'), Mode::Shared), WAITS);
    assert_eq!(locks.release(Owner(1)), [Owner(2)]);
    assert_eq!(locks.release(Owner(2)), [Owner(3), Owner(4)]);
}

#[test]
fn a_reader_that_wants_to_write_passes_the_line_but_two_would_deadlock() {
    let mut locks = Locks::default();
    assert_eq!(locks.request(Owner(1), key(b'a'), Mode::Shared), GRANTED);
    assert_eq!(locks.request(Owner(2), key(b'a'), Mode::Exclusive), WAITS);
    assert_eq!(locks.request(Owner(1), key(b'a'), Mode::Exclusive), GRANTED);
    assert_eq!(locks.release(Owner(1)), [Owner(2)]);
    locks.release(Owner(2));

    assert_eq!(locks.request(Owner(1), key(b'a'), Mode::Shared), GRANTED);
    assert_eq!(locks.request(Owner(2), key(b'a'), Mode::Shared), GRANTED);
    assert_eq!(locks.request(Owner(1), key(b'a'), Mode::Exclusive), WAITS);
    assert_eq!(locks.request(Owner(2), key(b'a'), Mode::Exclusive), DEADLOCK);
    assert_eq!(locks.release(Owner(2)), [Owner(1)]);
}

#[test]
fn a_circle_of_three_is_refused() {
    let mut locks = Locks::default();
    for owner in 0..3 {
        assert_eq!(locks.request(Owner(owner), key(owner as u8), Mode::Exclusive), GRANTED);
    }
    assert_eq!(locks.request(Owner(0), key(1), Mode::Shared), WAITS);
    assert_eq!(locks.request(Owner(1), key(2), Mode::Shared), WAITS);
    assert_eq!(locks.request(Owner(2), range(0, 9), Mode::Shared), DEADLOCK);
    assert_eq!(locks.release(Owner(2)), [Owner(1)]);
}

/// A request does not queue behind one that waits for its owner.
#[test]
fn a_lock_holder_that_others_wait_for_skips_the_queue() {
    let mut locks = Locks::default();
    assert_eq!(locks.request(Owner(1), key(b'a'), Mode::Shared), GRANTED);
    assert_eq!(locks.request(Owner(2), range(b'a', b'z'), Mode::Exclusive), WAITS);
    assert_eq!(locks.request(Owner(1), key(b'm'), Mode::Exclusive), GRANTED);
    assert_eq!(locks.request(Owner(3), key(b'n'), Mode::Shared), WAITS);
    assert_eq!(locks.release(Owner(1)), [Owner(2)]);
    assert_eq!(locks.release(Owner(2)), [Owner(3)]);
}

#[test]
fn the_ranges_of_a_scan_in_steps_become_one() {
    let mut locks = Locks::default();
    for step in 0..100 {
        let granted = locks.request(Owner(1), range(step, step + 1), Mode::Shared);
        assert_eq!(granted, GRANTED);
    }
    assert_eq!(locks.counts(), (1, 0));
    assert!(locks.holds(Owner(1), &range(3, 70), Mode::Shared));
    assert_eq!(locks.request(Owner(2), key(50), Mode::Exclusive), WAITS);
    assert_eq!(locks.request(Owner(2), key(100), Mode::Exclusive), GRANTED);
}

/// No two owners ever hold conflicting locks, every request without a conflict is granted, and when
/// all owners have ended, every request was answered.
#[test]
fn locks_exclude_each_other_and_nobody_waits_for_ever() {
    for seed in 0..400 {
        let mut rng = seeded(seed);
        let (mut locks, mut waiting) = (Locks::default(), BTreeSet::new());
        for _ in 0..200 {
            let owner = Owner(rng.u64(0..8));
            let from = rng.u8(0..12);
            let span = if rng.u8(0..4) == 0 { range(from, rng.u8(from..13)) } else { key(from) };
            let mode = if rng.bool() { Mode::Shared } else { Mode::Exclusive };
            if rng.u8(0..8) == 0 {
                waiting.remove(&owner);
                locks.release(owner).iter().for_each(|owner| assert!(waiting.remove(owner)));
            } else if rng.u8(0..20) == 0 {
                waiting.remove(&owner);
                locks.withdraw(owner).iter().for_each(|owner| assert!(waiting.remove(owner)));
            } else if !waiting.contains(&owner) && locks.request(owner, span, mode) == WAITS {
                waiting.insert(owner);
            }
            locks.check();
        }
        // Holders end, in any order: nobody is left, so there was no cycle.
        while !locks.is_empty() {
            let idle: Vec<Owner> =
                locks.owners.keys().filter(|owner| !waiting.contains(owner)).copied().collect();
            assert!(!idle.is_empty(), "seed {seed}: everybody waits");
            let owner = idle[rng.usize(0..idle.len())];
            locks.release(owner).iter().for_each(|owner| assert!(waiting.remove(owner)));
        }
        assert!(waiting.is_empty() && locks.points.is_empty());
    }
}

fn sample(holders: &[Mode], waits: Option<Mode>) -> Locks {
    let mut locks = Locks::default();
    for (owner, mode) in (1..).zip(holders) {
        assert_eq!(locks.request(Owner(owner), key(b'k'), *mode), GRANTED);
    }
    if let Some(mode) = waits {
        assert_eq!(locks.request(Owner(8), key(b'k'), mode), WAITS);
    }
    locks
}

fn state(locks: &Locks) -> String {
    let Some(point) = locks.points.values().next() else { return "free".to_string() };
    let exclusive = point.holders.iter().any(|held| held.1 == Mode::Exclusive);
    let waits = if point.line.is_empty() { "" } else { "-waited-for" };
    format!("{}{waits}", if exclusive { "exclusive" } else { "shared" })
}

#[test]
fn the_drawing_is_fresh() {
    use Mode::{Exclusive, Shared};
    let mut drawing = Drawing::default();
    let states: [(&[Mode], Option<Mode>); 7] = [
        (&[], None),
        (&[Shared], None),
        (&[Shared, Shared], None),
        (&[Exclusive], None),
        (&[Shared], Some(Exclusive)),
        (&[Exclusive], Some(Shared)),
        (&[Exclusive], Some(Exclusive)),
    ];
    for (holders, waits) in states {
        let others = if holders.len() > 1 { "one of the holders" } else { "the holder" };
        let events = [
            ("another wants it shared".to_string(), Owner(9), Some(Shared)),
            ("another wants it exclusive".to_string(), Owner(9), Some(Exclusive)),
            (format!("{others} wants it exclusive"), Owner(1), Some(Exclusive)),
            (format!("{others} ends"), Owner(1), None),
        ];
        for (label, owner, mode) in events {
            if holders.is_empty() && owner == Owner(1) {
                continue;
            }
            let mut locks = sample(holders, waits);
            let before = state(&locks);
            let answer = match mode.map(|mode| locks.request(owner, key(b'k'), mode)) {
                Some(answer) => answer.map_or_else(|e| format!("{e:?}"), |o| format!("{o:?}")),
                None if locks.release(owner).is_empty() => String::new(),
                None => "Granted to who waited".to_string(),
            };
            drawing.row(&before, &label, &state(&locks), &answer);
        }
    }
    drawing.assert_fresh(concat!(env!("CARGO_MANIFEST_DIR"), "/src/locks/states.md"));
}
