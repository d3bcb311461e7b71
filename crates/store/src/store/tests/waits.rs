//! What waits, for pages and for room, and in which order it goes on.

use super::tight::put;
use super::*;
use crate::snapshots::SNAPSHOTS_MAX;

#[test]
fn what_was_replayed_waits_for_its_checkpoint_like_any_change() {
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
    assert!(rig.out.iter().all(|said| !matches!(said, Output::Committed(..))));
    rig.out.clear();
    rig.store.snapshot(Instant(0), Ticket(1 << 40), b"more", Time::default(), &mut rig.out);
    let refused = matches!(rig.out[..], [Output::Committed(_, Err(Error::NoSpace))]);
    assert!(refused, "{:?}", rig.out);
}
