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
    assert_eq!(table.grant(), None);
    table.request(FILE, 2, lock(Unlock, 0, 0, 2), None).unwrap();
    assert_eq!(table.grant(), Some(7));
    table.close(1);
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
                table.close(rng.u32(0..4));
            }
            while table.grant().is_some() {}
            for (i, a) in table.held.iter().enumerate() {
                for b in &table.held[i + 1..] {
                    assert!(!a.lock.conflicts(&b.lock), "seed {seed}");
                    assert!(a.lock.owner != b.lock.owner || !a.lock.overlaps(&b.lock));
                }
            }
        }
    }
}
