//! Waiting for pages and for space, and the order of continuation.

use super::tight::put;
use super::*;
use crate::missing::Want;
use crate::snapshots::SNAPSHOTS_MAX;

#[test]
fn replayed_changes_wait_for_their_checkpoint() {
    let mut rig = Rig::new(1);
    (0..2000).for_each(|number| assert!(rig.try_commit(put(number, 40))));
    rig.settle();
    assert!(rig.try_commit(put(700, 41)));
    rig.settle_journal();
    rig.reopen();
    assert_eq!(rig.store.recovered(), 1);
    let due = rig.store.deadline().expect("a checkpoint is to come");
    assert!(due.0 > rig.now, "it is due at {due:?}, and it is {}", rig.now);
}

#[test]
fn a_dropped_snapshot_is_freed_although_the_disk_cannot_be_read_for_a_while() {
    let mut rig = Rig::new(3);
    (0..3000).for_each(|number| assert!(rig.try_commit(put(number, 60))));
    rig.settle();
    let (used, now) = (rig.used(), Instant(rig.now));
    let (snapshot, dropped) = (Ticket(1 << 40), Ticket(1 << 41));
    rig.store.snapshot(now, snapshot, b"kept", Time::default(), &mut rig.out);
    rig.committed(snapshot);
    (0..3000).for_each(|number| assert!(rig.try_commit(put(number, 61))));
    rig.settle();
    assert!(rig.used() > used * 3 / 2);
    let now = Instant(rig.now);
    rig.store.drop_snapshot(now, dropped, b"kept", &mut rig.out);
    rig.committed(dropped);
    rig.unreadable = true;
    (0..10).for_each(|_| rig.progress());
    rig.unreadable = false;
    rig.settle();
    assert!(rig.used() < used * 11 / 10, "{used} blocks, and {} in the end", rig.used());
    assert_eq!(rig.close_and_check().findings, []);
}

#[test]
fn snapshots_that_are_still_to_be_made_count_too() {
    let mut rig = Rig::new(5);
    for number in 0..SNAPSHOTS_MAX as u64 {
        let (ticket, name) = (Ticket(number), number.to_be_bytes());
        rig.store.snapshot(Instant(0), ticket, &name, Time::default(), &mut rig.out);
    }
    assert!(rig.out.iter().all(|output| !matches!(output, Output::Committed(..))));
    rig.out.clear();
    rig.store.snapshot(Instant(0), Ticket(1 << 40), b"more", Time::default(), &mut rig.out);
    let refused = matches!(rig.out[..], [Output::Committed(_, Err(Error::NoSpace))]);
    assert!(refused, "{:?}", rig.out);
}

impl Rig {
    /// Tries one commit without a waiter.
    fn once(&mut self, changes: &[Change]) -> Result<(), Refusal> {
        let (now, ticket) = (Instant(self.now), Ticket(1 << 50));
        let tried = self.store.commit(now, ticket, changes, Durability::Soon, &mut self.out);
        self.sort_out();
        tried
    }

    /// Commits as soon as possible, while others never stop writing; returns the number of
    /// times that it had to wait.
    fn through_the_crowd(&mut self, changes: &[Change]) -> u32 {
        let (mut next, mut waits, mut waited) = (0, false, 0);
        for _ in 0..2000 {
            if !waits {
                match self.once(changes) {
                    Ok(()) => return waited,
                    Err(Refusal::Missing(missing)) => {
                        let now = Instant(self.now);
                        self.store.fetch(now, Ticket(1 << 51), missing, &mut self.out);
                        waits = true;
                        waited += 1;
                    }
                    Err(Refusal::Failed(error)) => panic!("{error}"),
                }
            }
            for _ in 0..20 {
                next += 1;
                let _ = self.once(&[put(next % 50, 100)]);
                let _ = self.once(&[put(100 + next % 300, 100)]);
            }
            self.progress();
            let fetched =
                |output| matches!(output, Output::Fetched(Ticket(of), _) if of == 1 << 51);
            waits &= !self.outputs.drain(..).any(fetched);
        }
        panic!("it never gets its turn: {:?}", self.store.counts());
    }
}

#[test]
fn nobody_overtakes_who_waits_for_room() {
    let mut rig = Rig::new(6);
    let large = |number: u32| (0..20_u32).map(|n| put(1000 * number + n, 100)).collect::<Vec<_>>();
    let mut number = 1;
    while rig.once(&large(number)).is_ok() {
        number += 1;
    }
    let small = [put(1, 1)];
    assert_eq!(rig.once(&small), Ok(()));
    let Err(Refusal::Missing(missing)) = rig.once(&large(number)) else { panic!("it is full") };
    rig.store.fetch(Instant(rig.now), Ticket(1), missing, &mut rig.out);
    assert!(matches!(rig.once(&small), Err(Refusal::Missing(_))));
    rig.until(|output| matches!(output, Output::Fetched(Ticket(1), Ok(()))));
    assert_eq!(rig.once(&large(number)), Ok(()));
    assert_eq!(rig.once(&small), Ok(()));
}

#[test]
fn a_transaction_larger_than_what_may_be_dirty_gets_its_turn_alone() {
    let mut rig = Rig::new(7);
    let huge: Vec<Change> = (0..70_u32).map(|n| put(1000 * n, 60)).collect();
    for _ in 0..20 {
        let waited = rig.through_the_crowd(&huge);
        assert!(waited < 4, "{waited} times");
    }
}

#[test]
fn nobody_hopes_for_what_a_checkpoint_does_not_give() {
    let mut rig = Rig::new(8);
    let one = |object| {
        let data = vec![object as u8 | 1; 512];
        Change::Write { table: RAW, object, offset: 512, data }
    };
    let mut objects = 0;
    while rig.try_commit(one(objects)) {
        objects += 1;
    }
    // Holes of one block each, everywhere.
    for object in (0..objects).step_by(2) {
        assert!(rig.try_commit(Change::Cut { table: RAW, object, from: 0, to: u64::MAX }));
    }
    rig.settle();
    let mut number = 0;
    while rig.try_commit(put(number, 2000)) {
        number += 1;
    }
    rig.settle();
    let space = rig.store.space();
    assert!(space.blocks_free > space.blocks / 10, "{space:?}");
    assert!(rig.try_commit(one(1)), "something is left behind all the time");
    let refusal = loop {
        match rig.once(&[put(number, 2000)]) {
            Err(Refusal::Missing(missing)) if !missing.0.contains(&Want::Room) => {
                rig.fetch(missing)
            }
            other => break other,
        }
    };
    assert_eq!(refusal, Err(Refusal::Failed(Error::NoSpace)));
    // Data that fits into the holes is still accepted.
    assert!(rig.try_commit(one(0)));
    assert_eq!(rig.close_and_check().findings, []);
}
