use super::*;
use base::rng::seeded;

fn owner(process: u32) -> Owner {
    Owner { client: b"host".to_vec(), process }
}

fn lock(kind: LockKind, start: u64, length: u64, process: u32) -> Lock {
    Lock::new(kind, start, length, owner(process)).unwrap()
}

const FILE: FileKey = (1, 2);

#[test]
fn a_range_is_shared_or_exclusive_and_splits_when_part_of_it_is_given_up() {
    use LockKind::{Exclusive, None as Unlock, Shared};
    let mut table: Table<u32, u32> = Table::default();
    let mut ask = |l: Lock| table.request(FILE, 0, l, None).unwrap();
    assert_eq!(ask(lock(Shared, 0, 10, 1)), Outcome::Granted);
    assert_eq!(ask(lock(Shared, 5, 10, 2)), Outcome::Granted);
    assert_eq!(ask(lock(Exclusive, 9, 1, 3)), Outcome::Blocked);
    assert_eq!(ask(lock(Exclusive, 0, 0, 3)), Outcome::Blocked);
    assert_eq!(ask(lock(Unlock, 3, 4, 1)), Outcome::Granted);
    assert_eq!(ask(lock(Exclusive, 3, 2, 3)), Outcome::Granted);
    assert_eq!(table.counts(), (4, 0));
    assert_eq!(table.conflict(FILE, &lock(Exclusive, 0, 1, 3)).unwrap().last, 2);
    assert_eq!(table.conflict((9, 9), &lock(Exclusive, 0, 1, 3)), None);
}

#[test]
fn who_waits_is_granted_in_line_and_a_circle_is_refused() {
    use LockKind::{Exclusive, None as Unlock};
    let mut table: Table<u32, u32> = Table::default();
    assert_eq!(table.request(FILE, 1, lock(Exclusive, 0, 1, 1), None), Ok(Outcome::Granted));
    assert_eq!(table.request(FILE, 2, lock(Exclusive, 1, 1, 2), None), Ok(Outcome::Granted));
    assert_eq!(table.request(FILE, 1, lock(Exclusive, 1, 1, 1), Some(7)), Ok(Outcome::Waits));
    let circle = table.request(FILE, 2, lock(Exclusive, 0, 1, 2), Some(8));
    assert_eq!(circle, Err(Error::WouldDeadlock));
    assert_eq!(table.grant(FILE), []);
    table.request(FILE, 2, lock(Unlock, 0, 0, 2), None).unwrap();
    assert_eq!(table.grant(FILE), [7]);
    table.close(FILE, 1);
    assert_eq!(table.counts(), (0, 0));
}

/// No two owners ever hold conflicting ranges, and one owner's ranges never overlap.
#[test]
fn locks_exclude_each_other() {
    for seed in 0..300 {
        let mut rng = seeded(seed);
        let mut table: Table<u32, u32> = Table::default();
        for n in 0..100 {
            let kinds = [LockKind::Shared, LockKind::Exclusive, LockKind::None];
            let kind = kinds[rng.usize(0..3)];
            let want = lock(kind, rng.u64(0..20), rng.u64(0..8), rng.u32(0..4));
            let wait = rng.bool().then_some(n);
            let _ = table.request(FILE, want.owner.process, want, wait);
            if rng.u8(0..20) == 0 {
                table.close(FILE, rng.u32(0..4));
            }
            table.grant(FILE);
            table.check();
            let none = Vec::new();
            let held = table.held.get(&FILE).unwrap_or(&none);
            for (i, a) in held.iter().enumerate() {
                for b in &held[i + 1..] {
                    assert!(!a.lock.conflicts(&b.lock), "seed {seed}");
                    assert!(a.lock.owner != b.lock.owner || !a.lock.overlaps(&b.lock));
                }
            }
        }
    }
}

/// Locks that are held and waited for on one file are not looked at for another.
#[test]
fn a_file_that_many_wait_for_slows_no_other() {
    use LockKind::{Exclusive, None as Unlock};
    const OTHER: FileKey = (1, 3);
    let mut table: Table<u32, u32> = Table::default();
    for n in 0..4000 {
        let taken = table.request(FILE, 0, lock(Exclusive, n, 1, 0), None);
        assert_eq!(taken, Ok(Outcome::Granted));
    }
    for n in 0..4000 {
        let want = lock(Exclusive, n.into(), 1, n + 1);
        assert_eq!(table.request(FILE, 1, want, Some(n)), Ok(Outcome::Waits));
    }
    assert_eq!(table.counts(), (4000, 4000));
    assert_eq!(table.request(OTHER, 2, lock(Exclusive, 0, 0, 9), None), Ok(Outcome::Granted));
    assert_eq!(table.request(OTHER, 3, lock(Exclusive, 7, 1, 8), Some(9999)), Ok(Outcome::Waits));
    assert_eq!(table.ranges(OTHER).count(), 1);
    // Everything on the first file could be granted now, but nobody released anything there.
    table.held.remove(&FILE);
    table.held_count -= 4000;
    table.request(OTHER, 2, lock(Unlock, 0, 0, 9), None).unwrap();
    assert_eq!(table.grant(OTHER), [9999]);
    assert_eq!(table.counts(), (1, 4000));
    assert_eq!(table.grant(FILE).len(), 4000);
    table.check();
}

#[test]
fn what_is_locked_can_be_unlocked_when_no_more_can_be_locked() {
    use LockKind::{Exclusive, None as Unlock, Shared};
    let mut table: Table<u32, u32> = Table::default();
    for n in 0..RANGES_MAX as u64 {
        let file = (1, n);
        table.request(file, 0, lock(Exclusive, 0, 0, 1), None).unwrap();
    }
    assert_eq!(table.request(FILE, 0, lock(Shared, 0, 1, 1), None), Err(Error::NoMemory));
    let unlocked = table.request(FILE, 0, lock(Unlock, 5, 1, 1), None);
    assert_eq!(unlocked, Ok(Outcome::Granted));
    assert_eq!(table.counts().0, RANGES_MAX + 1);
    let long = Owner { client: vec![0; CLIENT_MAX + 1], process: 1 };
    assert_eq!(Lock::new(Shared, 0, 0, long), Err(Error::Invalid));
}

/// A hundred readers are no chain, but a chain that is too long to follow counts as a circle.
#[test]
fn a_search_for_circles_ends() {
    use LockKind::{Exclusive, Shared};
    let mut table: Table<u32, u32> = Table::default();
    for n in 0..1000 {
        table.request(FILE, n, lock(Shared, 0, 1, n), None).unwrap();
    }
    let want = lock(Exclusive, 0, 1, 5000);
    assert_eq!(table.request(FILE, 0, want, Some(0)), Ok(Outcome::Waits));
    // Each owner holds one range and waits for that of the owner before.
    for n in 0..=CHAIN_MAX as u32 {
        let (own, before) = (u64::from(n) + 10, u64::from(n) + 9);
        table.request((1, 3), n, lock(Exclusive, own, 1, n), None).unwrap();
        if n > 0 {
            let wait = table.request((1, 3), n, lock(Exclusive, before, 1, n), Some(n));
            assert_eq!(wait, Ok(Outcome::Waits));
        }
    }
    let next = CHAIN_MAX as u32 + 1;
    let want = lock(Exclusive, u64::from(next) + 9, 1, next);
    assert_eq!(table.request((1, 3), 0, want.clone(), Some(next)), Ok(Outcome::Waits));
    table.request((1, 3), 0, lock(Exclusive, u64::from(next) + 10, 1, next), None).unwrap();
    let want = lock(Exclusive, u64::from(next) + 10, 1, next + 1);
    assert_eq!(table.request((1, 3), 0, want, Some(next + 1)), Err(Error::WouldDeadlock));
}
