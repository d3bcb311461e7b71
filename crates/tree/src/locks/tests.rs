use super::*;
use base::rng::seeded;

fn owner(process: u32) -> Owner {
    Owner { client: b"host".to_vec(), process }
}

fn lock(kind: LockKind, start: u64, length: u64, process: u32) -> Lock {
    Lock::new(kind, start, length, owner(process)).unwrap()
}

const FILE: FileKey = (1, 2);

/// A part of the server, whose share is not limited.
const ANY: ClientKey = ClientKey::NOBODY;

#[test]
fn a_range_is_shared_or_exclusive_and_splits_when_part_of_it_is_given_up() {
    use LockKind::{Exclusive, None as Unlock, Shared};
    let mut table: Table<u32, u32> = Table::default();
    let mut ask = |l: Lock| table.request(FILE, 0, l, None, ANY).unwrap();
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
fn waiters_are_granted_in_order_and_deadlocks_refused() {
    use LockKind::{Exclusive, None as Unlock};
    let mut table: Table<u32, u32> = Table::default();
    assert_eq!(table.request(FILE, 1, lock(Exclusive, 0, 1, 1), None, ANY), Ok(Outcome::Granted));
    assert_eq!(table.request(FILE, 2, lock(Exclusive, 1, 1, 2), None, ANY), Ok(Outcome::Granted));
    assert_eq!(table.request(FILE, 1, lock(Exclusive, 1, 1, 1), Some(7), ANY), Ok(Outcome::Waits));
    let circle = table.request(FILE, 2, lock(Exclusive, 0, 1, 2), Some(8), ANY);
    assert_eq!(circle, Err(Error::WouldDeadlock));
    assert!(table.advance().is_empty());
    table.request(FILE, 2, lock(Unlock, 0, 0, 2), None, ANY).unwrap();
    assert_eq!(table.advance(), [7]);
    table.close(FILE, 1);
    assert_eq!(table.counts(), (0, 0));
}

/// Locks as a list: too slow, and too simple to be wrong.
#[derive(Default)]
struct Model {
    held: Vec<Lock>,
    /// Waiting requests.
    line: Vec<(u32, Lock)>,
}

impl Model {
    fn overlap(one: &Lock, other: &Lock) -> bool {
        one.start <= other.last && other.start <= one.last
    }

    fn is_blocked(&self, want: &Lock) -> bool {
        let in_way = |held: &Lock| {
            let exclusive = held.kind == LockKind::Exclusive || want.kind == LockKind::Exclusive;
            exclusive && held.owner != want.owner && Model::overlap(held, want)
        };
        want.kind != LockKind::None && self.held.iter().any(in_way)
    }

    fn take(&mut self, want: Lock) {
        let mut kept = Vec::new();
        for held in std::mem::take(&mut self.held) {
            if held.owner != want.owner || !Model::overlap(&held, &want) {
                kept.push(held);
                continue;
            }
            if held.start < want.start {
                kept.push(Lock { last: want.start - 1, ..held.clone() });
            }
            if held.last > want.last {
                kept.push(Lock { start: want.last + 1, ..held });
            }
        }
        self.held = kept;
        if want.kind != LockKind::None {
            self.held.push(want);
        }
    }
}

/// The table behaves like a list: the same requests are granted and refused, the same ranges are
/// held, and no request without a conflict waits.
#[test]
fn the_table_is_what_a_list_is() {
    for seed in 0..400 {
        let mut rng = seeded(seed);
        let mut table: Table<u32, u32> = Table::default();
        let mut model = Model::default();
        for n in 0..150 {
            let kinds = [LockKind::Shared, LockKind::Exclusive, LockKind::None];
            let want = lock(kinds[rng.usize(0..3)], rng.u64(0..30), rng.u64(0..8), rng.u32(0..5));
            let wait = rng.bool().then_some(n);
            let blocked = model.is_blocked(&want);
            match table.request(FILE, want.owner.process, want.clone(), wait, ANY) {
                Ok(Outcome::Granted) => {
                    assert!(!blocked, "seed {seed}");
                    model.take(want);
                }
                Ok(Outcome::Blocked) => assert!(blocked && wait.is_none()),
                Ok(Outcome::Waits) => {
                    assert!(blocked && wait.is_some());
                    model.line.push((n, want));
                }
                Err(error) => assert!(blocked && error == Error::WouldDeadlock),
            }
            if rng.u8(0..20) == 0 {
                let through = rng.u32(0..5);
                let mut dropped = table.close(FILE, through);
                let is_of = |lock: &Lock| lock.owner.process == through;
                model.held.retain(|lock| !is_of(lock));
                let of = model.line.extract_if(.., |(_, lock)| is_of(lock));
                let mut wanted: Vec<u32> = of.map(|(id, _)| id).collect();
                dropped.sort_unstable();
                wanted.sort_unstable();
                assert_eq!(dropped, wanted);
            }
            if rng.u8(0..10) == 0 && !model.line.is_empty() {
                let (id, _) = model.line.swap_remove(rng.usize(..model.line.len()));
                assert!(table.cancel(id) && !table.cancel(id));
            }
            while table.is_due() {
                for id in table.advance() {
                    let at = model.line.iter().position(|(known, _)| *known == id).unwrap();
                    let (_, want) = model.line.remove(at);
                    assert!(!model.is_blocked(&want), "seed {seed}");
                    model.take(want);
                }
            }
            assert!(model.line.iter().all(|(_, want)| model.is_blocked(want)), "seed {seed}");
            table.check();
            assert_eq!(table.counts(), (model.held.len(), model.line.len()));
            let probe = lock(LockKind::Exclusive, rng.u64(0..30), rng.u64(0..8), 9);
            match table.conflict(FILE, &probe) {
                Some(found) => assert!(model.held.contains(&found)),
                None => assert!(!model.is_blocked(&probe)),
            }
        }
        (0..5).for_each(|through| drop(table.close(FILE, through)));
        assert!(table.files.is_empty() && table.owners.is_empty() && table.ids.is_empty());
    }
}

/// Cost with 60,000 ranges and 4,000 waiting requests: each release reconsiders only requests that
/// watched a released range, and no call exceeds its limit.
#[test]
fn a_release_looks_at_few_of_many_that_wait() {
    use LockKind::{Exclusive, None as Unlock, Shared};
    let mut table: Table<u32, u32> = Table::default();
    for n in 0..60_000 {
        let through = 2 + n as u32 / 8192;
        table.request(FILE, through, lock(Shared, n, 1, 0), None, ANY).unwrap();
    }
    for n in 0..4000 {
        let want = lock(Exclusive, n.into(), 0, n + 1);
        assert_eq!(table.request(FILE, 1, want, Some(n), ANY), Ok(Outcome::Waits));
    }
    let (mut looked_at, mut granted) = (0, Vec::new());
    for n in (0..60_000).rev() {
        table.request(FILE, 0, lock(Unlock, n, 1, 0), None, ANY).unwrap();
        while table.is_due() {
            let before = table.due.len();
            granted.extend(table.advance());
            assert!(before.saturating_sub(table.due.len()) <= ADVANCE_MAX);
            looked_at += before - table.due.len();
        }
    }
    assert_eq!(table.counts().0, 1, "one of them has its range");
    assert_eq!(granted, [3999], "nothing was left behind byte 3998 first");
    assert!(looked_at <= 3 * 4000, "{looked_at}");
    table.close(FILE, 1);
    assert!(table.files.is_empty() && table.counts() == (0, 0));
}

#[test]
fn unlock_works_at_the_lock_limit() {
    use LockKind::{Exclusive, None as Unlock, Shared};
    let mut table: Table<u32, u32> = Table::default();
    for n in 0..RANGES_MAX as u64 {
        let file = (1, n);
        table.request(file, 0, lock(Exclusive, 0, 0, 1), None, ANY).unwrap();
    }
    assert_eq!(table.request(FILE, 0, lock(Shared, 0, 1, 1), None, ANY), Err(Error::NoMemory));
    let unlocked = table.request(FILE, 0, lock(Unlock, 5, 1, 1), None, ANY);
    assert_eq!(unlocked, Ok(Outcome::Granted));
    assert_eq!(table.counts().0, RANGES_MAX + 1);
    let long = Owner { client: vec![0; CLIENT_MAX + 1], process: 1 };
    assert_eq!(Lock::new(Shared, 0, 0, long), Err(Error::Invalid));
}

#[test]
fn a_full_table_grants_to_those_who_were_admitted() {
    use LockKind::{Exclusive, None as Unlock};
    let mut table: Table<u32, u32> = Table::default();
    for n in 0..RANGES_MAX as u64 {
        let through = n as u32 / 8192;
        table.request(FILE, through, lock(Exclusive, 4 * n, 3, 1), None, ANY).unwrap();
    }
    for n in 0..RANGES_MAX as u64 {
        table.request(FILE, 0, lock(Unlock, 4 * n + 1, 1, 1), None, ANY).unwrap();
    }
    assert_eq!(table.counts().0, 2 * RANGES_MAX);
    assert_eq!(table.request(FILE, 9, lock(Exclusive, 0, 1, 2), Some(7), ANY), Ok(Outcome::Waits));
    table.request(FILE, 0, lock(Unlock, 0, 1, 1), None, ANY).unwrap();
    assert!(table.is_due());
    assert_eq!(table.advance(), [7]);
    assert!(!table.is_due(), "nothing is looked at again and again");
    table.check();
}

#[test]
fn one_open_file_holds_a_bounded_number_of_ranges() {
    let mut table: Table<u32, u32> = Table::default();
    for n in 0..OPEN_RANGES_MAX as u64 {
        table.request(FILE, 0, lock(LockKind::Shared, n, 1, 1), None, ANY).unwrap();
    }
    let more = lock(LockKind::Shared, 1 << 40, 1, 1);
    assert_eq!(table.request(FILE, 0, more.clone(), None, ANY), Err(Error::NoMemory));
    assert_eq!(table.request(FILE, 1, more, None, ANY), Ok(Outcome::Granted));
}

/// A thousand readers are no chain; a cycle through many owners is found.
#[test]
fn circles_are_found_among_many_who_wait() {
    use LockKind::{Exclusive, Shared};
    let mut table: Table<u32, u32> = Table::default();
    for n in 0..1000 {
        table.request(FILE, n, lock(Shared, 0, 1, n), None, ANY).unwrap();
    }
    let want = lock(Exclusive, 0, 1, 5000);
    assert_eq!(table.request(FILE, 0, want, Some(0), ANY), Ok(Outcome::Waits));
    // Each owner holds one range and waits for that of the owner before.
    const OTHER: FileKey = (1, 3);
    for n in 1..=200 {
        table.request(OTHER, n, lock(Exclusive, n.into(), 1, n), None, ANY).unwrap();
        if n > 1 {
            let wait =
                table.request(OTHER, n, lock(Exclusive, u64::from(n) - 1, 1, n), Some(n), ANY);
            assert_eq!(wait, Ok(Outcome::Waits));
        }
    }
    let circle = table.request(OTHER, 1, lock(Exclusive, 200, 1, 1), Some(1), ANY);
    assert_eq!(circle, Err(Error::WouldDeadlock));
    // An owner without locks may wait for all of them.
    let last = table.request(OTHER, 300, lock(Exclusive, 0, 0, 300), Some(300), ANY);
    assert_eq!(last, Ok(Outcome::Waits));
    table.check();
}

/// One client leaves ranges and places for waiting requests to others, on however many connections.
#[test]
fn a_client_with_many_locks_leaves_some_to_others() {
    use LockKind::Exclusive;
    let (one, other) = (ClientKey(1), ClientKey(2));
    let mut table: Table<u32, u32> = Table::default();
    let mut ask = |client: ClientKey, n: u64, through: u32, wait: Option<u32>| {
        table.request(FILE, through, lock(Exclusive, n, 1, through), wait, client)
    };
    let half = RANGES_MAX as u64 / 2;
    for n in 0..half {
        assert_eq!(ask(one, n, n as u32 / 4096, None), Ok(Outcome::Granted));
    }
    assert_eq!(ask(one, half, 100, None), Err(Error::NoMemory));
    for n in half..half + half / 2 {
        assert_eq!(ask(other, n, 200 + n as u32 / 4096, None), Ok(Outcome::Granted));
    }
    assert_eq!(ask(other, 1 << 40, 300, None), Err(Error::NoMemory));
    for n in 0..WAITING_MAX as u32 / 2 {
        assert_eq!(ask(one, half, 100, Some(n)), Ok(Outcome::Waits));
    }
    assert_eq!(ask(one, half, 100, Some(9000)), Err(Error::NoMemory));
    assert_eq!(ask(other, 0, 300, Some(9000)), Ok(Outcome::Waits));
    table.check();
    // It may have more when it has given up some.
    (0..3).for_each(|through| drop(table.close(FILE, through)));
    let want = lock(Exclusive, 1 << 41, 1, 100);
    assert_eq!(table.request(FILE, 100, want, None, one), Ok(Outcome::Granted));
    (0..400).for_each(|through| drop(table.close(FILE, through)));
    assert!(table.shares.is_empty() && table.files.is_empty());
}
