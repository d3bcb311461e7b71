//! Checks of dead lists with entries that contradict the trees.

use super::tight::{delete, put};
use super::*;
use crate::btree::{self, Freed, extent};
use crate::check::Finding;
use crate::keys::full_key;
use crate::page;
use crate::snapshots::{DEAD, dead_key, encode_dead};

/// Length of a value with three blocks of its own, bytes.
const LARGE: usize = 1500;

/// An entry of a dead list: key and value.
type Entry = (Vec<u8>, Vec<u8>);

impl Rig {
    /// Creates a snapshot; returns its epoch.
    fn make_named(&mut self, name: &[u8]) -> u64 {
        let ticket = Ticket(1 << 44 | self.next);
        self.next += 1;
        self.store.snapshot(Instant(self.now), ticket, name, Time::default(), &mut self.out);
        self.committed(ticket);
        self.store.snapshots().find(|(known, ..)| *known == name).unwrap().1.0
    }

    fn drop_named(&mut self, name: &[u8]) {
        let ticket = Ticket(1 << 44 | self.next);
        self.next += 1;
        self.store.drop_snapshot(Instant(self.now), ticket, name, &mut self.out);
        self.committed(ticket);
    }

    /// Returns the blocks of a value that was just put.
    fn blocks_of(&self, number: u32) -> Freed {
        let present = &self.store.present;
        let key = full_key(TREE, &number.to_be_bytes());
        let (leaf, index) = btree::find(&present.cache, present.tree.root, &key).unwrap().unwrap();
        let view = extent::View::new(page::value(leaf, index).0);
        Freed { at: view.at(), count: view.count() as u32, birth: view.birth() }
    }

    /// Adds an entry to the dead list of the snapshot with this epoch.
    fn plant(&mut self, owner: u64, runs: &[Freed]) {
        self.plant_entry(dead_key(owner, 1, 7), encode_dead(runs));
    }

    fn plant_entry(&mut self, key: Vec<u8>, value: Vec<u8>) {
        assert!(self.try_commit(Change::Put { table: DEAD, key, value }));
    }

    /// Moves all entries of the dead list of one epoch to that of another.
    fn move_list(&mut self, from: u64, to: u64) {
        for (mut key, value) in self.take_list(from) {
            key[..8].copy_from_slice(&to.to_be_bytes());
            self.plant_entry(key, value);
        }
    }

    /// Removes and returns all entries of the dead list of the snapshot with this epoch.
    fn take_list(&mut self, owner: u64) -> Vec<Entry> {
        let mut list = Vec::new();
        loop {
            list.clear();
            let reader = self.store.reader(View::Present).unwrap();
            let scanned = reader.scan(DEAD, b"", &mut |key, value| {
                list.push((key.to_vec(), value.bytes().into_owned()));
                ControlFlow::Continue(())
            });
            match scanned {
                Ok(_) => break,
                Err(missing) => self.fetch(missing),
            }
        }
        list.retain(|(key, _)| key.starts_with(&owner.to_be_bytes()));
        for (key, _) in list.clone() {
            assert!(self.try_commit(Change::Delete { table: DEAD, key }));
        }
        assert!(!list.is_empty(), "something left the present tree");
        list
    }

    /// Returns the findings of a check of the closed volume, which is opened again.
    fn findings(&mut self) -> Vec<Finding> {
        let checked = self.close_and_check();
        self.reopen();
        checked.findings
    }
}

#[test]
fn blocks_of_the_present_tree_in_a_dead_list_are_reported() {
    let mut rig = Rig::new(1);
    let owner = rig.make_named(b"a");
    assert!(rig.try_commit(put(1, LARGE)));
    let run = rig.blocks_of(1);
    assert_eq!((run.count, rig.findings()), (3, Vec::new()));
    rig.plant(owner, &[run]);
    assert_eq!(rig.findings(), [Finding::DeadInUse(owner, 3, run.at)]);
}

#[test]
fn blocks_of_a_newer_snapshot_in_a_dead_list_are_reported() {
    let mut rig = Rig::new(2);
    let older = rig.make_named(b"a");
    assert!(rig.try_commit(put(1, LARGE)));
    let newer = rig.make_named(b"b");
    assert!(rig.try_commit(delete(1)));
    assert_eq!(rig.findings(), []);
    // These would be freed with the older one, while the newer one contains them.
    rig.move_list(newer, older);
    let findings = rig.findings();
    let expected = matches!(findings[..], [Finding::DeadInUse(owner, 3.., _)] if owner == older);
    assert!(expected, "{findings:?}");
}

#[test]
fn blocks_of_an_older_snapshot_may_be_in_a_dead_list() {
    let mut rig = Rig::new(3);
    assert!(rig.try_commit(put(1, LARGE)));
    let older = rig.make_named(b"a");
    assert!(rig.try_commit(delete(1)));
    assert_eq!(rig.findings(), []);
    let newer = rig.make_named(b"b");
    rig.move_list(older, newer);
    assert_eq!(rig.findings(), []);
}

#[test]
fn blocks_that_two_dead_lists_have_are_reported() {
    let mut rig = Rig::new(4);
    assert!(rig.try_commit(put(1, LARGE)));
    let run = rig.blocks_of(1);
    let older = rig.make_named(b"a");
    assert!(rig.try_commit(delete(1)));
    assert_eq!(rig.findings(), []);
    let newer = rig.make_named(b"b");
    rig.plant(newer, &[run]);
    assert_eq!(rig.findings(), [Finding::DeadInUse(older, 3, run.at)]);
}

#[test]
fn blocks_in_the_dead_list_of_no_snapshot_are_unused() {
    let mut rig = Rig::new(5);
    assert!(rig.try_commit(put(1, LARGE)));
    let owner = rig.make_named(b"a");
    assert!(rig.try_commit(delete(1)));
    assert_eq!(rig.findings(), []);
    rig.move_list(owner, owner + 1000);
    rig.drop_named(b"a");
    rig.settle();
    let findings = rig.findings();
    assert!(matches!(findings[..], [Finding::Unused(3.., _)]), "{findings:?}");
}

#[test]
fn blocks_of_a_dropped_snapshot_are_in_use_until_its_list_is_worked_off() {
    let mut rig = Rig::new(6);
    (0..500).for_each(|number| assert!(rig.try_commit(put(number, 600))));
    rig.make_named(b"a");
    (0..500).for_each(|number| assert!(rig.try_commit(delete(number))));
    assert_eq!(rig.findings(), []);
    rig.drop_named(b"a");
    assert!(!rig.store.snapshotting.dropping_is_over());
    let checked = rig.close_and_check();
    assert_eq!((&checked.findings[..], checked.snapshots), (&[][..], 0));
    rig.reopen();
    rig.settle();
    assert!(rig.store.snapshotting.dropping_is_over());
    assert_eq!(rig.findings(), []);
}
