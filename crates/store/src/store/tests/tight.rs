//! Full volumes, thin pages, and user data that look like the store's own.

use super::*;
use crate::journal::batch::{self, Head};

pub(super) fn put(number: u32, length: usize) -> Change {
    Change::Put { table: TREE, key: number.to_be_bytes().to_vec(), value: vec![7; length] }
}

pub(super) fn delete(number: u32) -> Change {
    Change::Delete { table: TREE, key: number.to_be_bytes().to_vec() }
}

impl Rig {
    /// Commits without a model; returns whether there was space.
    pub(super) fn try_commit(&mut self, change: Change) -> bool {
        let ticket = Ticket(self.next);
        self.next += 1;
        loop {
            let now = Instant(self.now);
            let changes = [change.clone()];
            match self.store.commit(now, ticket, &changes, Durability::Soon, &mut self.out) {
                Ok(()) => break,
                Err(Refusal::Missing(missing)) => self.fetch(missing),
                Err(Refusal::Failed(Error::NoSpace)) => return false,
                Err(Refusal::Failed(error)) => panic!("{error}"),
            }
        }
        self.sort_out();
        self.progress();
        true
    }

    pub(super) fn committed(&mut self, ticket: Ticket) {
        self.sort_out();
        self.until(|output| matches!(output, Output::Committed(found, Ok(())) if *found == ticket));
    }

    pub(super) fn settle(&mut self) {
        for _ in 0..500 {
            self.now += 1_000_000_000;
            self.progress();
        }
    }

    /// Waits until everything committed is in the journal.
    pub(super) fn settle_journal(&mut self) {
        let ticket = Ticket(1 << 42);
        self.store.sync(Instant(self.now), ticket, &mut self.out);
        self.committed(ticket);
    }

    pub(super) fn used(&self) -> u64 {
        let space = &self.store.present.space;
        self.store.space().blocks - space.free_blocks() - space.releasing_blocks()
    }
}

#[test]
fn pages_that_get_thin_are_joined() {
    let mut rig = Rig::new(1);
    (0..4000).for_each(|number| assert!(rig.try_commit(put(number, 40))));
    rig.settle();
    let before = rig.used();
    for number in (0..4000).filter(|number| number % 10 != 0) {
        assert!(rig.try_commit(delete(number)));
    }
    rig.settle();
    let after = rig.used();
    assert!(after * 3 < before, "{before} blocks, and {after} after deleting nine of ten");
}

#[test]
fn a_full_volume_with_a_snapshot_can_be_emptied() {
    let mut rig = Rig::new(2);
    (0..6000).for_each(|number| assert!(rig.try_commit(put(number, 90))));
    let (snapshot, drop) = (Ticket(1 << 40), Ticket(1 << 41));
    let now = Instant(rig.now);
    rig.store.snapshot(now, snapshot, b"kept", Time::default(), &mut rig.out);
    rig.committed(snapshot);
    let mut keys = 6000;
    while rig.try_commit(put(keys, 90)) {
        keys += 1;
    }
    rig.settle();
    // Blocks held by the snapshot are not freed, so at some point deletions take more than they
    // free.
    let stuck = (0..keys).find(|number| !rig.try_commit(delete(*number)));
    let now = Instant(rig.now);
    rig.store.drop_snapshot(now, drop, b"kept", &mut rig.out);
    rig.committed(drop);
    rig.settle();
    for number in stuck.unwrap_or(keys)..keys {
        assert!(rig.try_commit(delete(number)), "{number} of {keys} cannot be deleted");
    }
    assert_eq!(rig.close_and_check().findings, []);
}

#[test]
fn user_data_is_not_mistaken_for_a_journal_batch() {
    let mut rig = Rig::new(4);
    let head = Head { volume: 77, sequence: 1 << 40, chain: 5, epoch: 1, records: 0 };
    let (blocks, _) = batch::encode(&head, b"", 512);
    // Whatever its position in the journal, one of them begins a block.
    for shift in 0..64 {
        let mut data = vec![1; shift];
        (0..30).for_each(|_| data.extend_from_slice(&blocks[0][..64]));
        rig.try_commit(Change::Write { table: RAW, object: 1, offset: 0, data });
    }
    let ticket = Ticket(1 << 40);
    rig.store.sync(Instant(rig.now), ticket, &mut rig.out);
    rig.committed(ticket);
    rig.reopen();
}
