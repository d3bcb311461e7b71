//! Checks of a volume while a store writes to it.

use super::*;
use crate::check::{self, Checked, Content, Finding, Verified, Watcher};
use std::cell::RefCell;

/// An observer that checks whether the superblock is still the newest.
struct Looker<'a> {
    rig: &'a RefCell<Rig>,
    epoch: u64,
}

impl Watcher for Looker<'_> {
    fn entry(&mut self, _: Table, _: &[u8], _: Content<'_>) {}

    fn wants(&self, _: Table) -> bool {
        false
    }

    fn progress(&mut self, _: u64, _: u64) {}

    fn is_current(&mut self) -> bool {
        Superblock::newest(&self.rig.borrow().disk.head()).unwrap().epoch == self.epoch
    }
}

/// Checks while one in `rarity` reads is preceded by commits, including reads of data and pages.
fn check_once(rig: &RefCell<Rig>, rarity: u32, verified: &mut Verified) -> (Checked, u64) {
    let head = rig.borrow().disk.head();
    let superblock = Superblock::newest(&head).unwrap();
    let layout = superblock.layout;
    let mut reads = 0;
    let mut read = |at: u64, count: u32| {
        let mut rig = rig.borrow_mut();
        let is_ring = (layout.journal_at..layout.journal_at + layout.journal).contains(&at);
        if rig.rng.u32(0..rarity) == 0 {
            (0..20).for_each(|_| rig.random_commit());
        }
        reads += u64::from(count);
        let block = |at| if is_ring { Block::zeroed(layout.block) } else { rig.disk.read(at) };
        Some((at..at + u64::from(count)).map(block).collect::<Vec<_>>())
    };
    let mut looker = Looker { rig, epoch: superblock.epoch };
    let checked = check::check_in_use(&mut read, &head, &mut looker, verified).unwrap();
    (checked, reads)
}

fn filled(seed: u64) -> RefCell<Rig> {
    filled_with_number(seed, 77)
}

fn filled_with_number(seed: u64, volume: u64) -> RefCell<Rig> {
    let mut rig = Rig::with_number(seed, volume);
    (0..300).for_each(|_| rig.random_commit());
    RefCell::new(rig)
}

#[test]
fn writes_during_a_check_are_not_damage() {
    let (mut outdated, mut complete) = (0, 0);
    for seed in 0..12 {
        let rig = filled(seed);
        let mut verified = Verified::default();
        let mut whole = false;
        for pass in 1..=12 {
            let (checked, _) = check_once(&rig, 1 << pass >> 1, &mut verified);
            assert_eq!(checked.findings, [], "seed {seed}, pass {pass}");
            outdated += u64::from(checked.outdated > 0);
            whole |= checked.outdated == 0;
        }
        complete += u64::from(whole);
    }
    assert!(outdated > 20, "writes come in between: {outdated}");
    assert_eq!(complete, 12, "each check comes to its end");
}

#[test]
fn damage_is_found_while_a_store_writes() {
    for seed in 0..40 {
        let rig = filled(seed);
        // The superblock does not change meanwhile: its state must be complete.
        let mut verified = Verified::default();
        let (before, reads) = check_once(&rig, u32::MAX, &mut verified);
        assert_eq!((&before.findings[..], before.outdated), (&[][..], 0));
        let again = check_once(&rig, u32::MAX, &mut verified).1;
        assert!(again + before.data <= reads, "data found right is not read again");
        let victim = {
            let mut rig = rig.borrow_mut();
            let superblock = Superblock::newest(&rig.disk.head()).unwrap();
            let block = rig.disk.durable.get_mut(&superblock.root.at).unwrap();
            block.bytes_mut()[100] ^= 1;
            superblock.root.at
        };
        let (after, _) = check_once(&rig, u32::MAX, &mut verified);
        assert!(matches!(after.findings[..], [Finding::Page(at, ..)] if at == victim));
    }
}

#[test]
fn data_of_another_volume_in_its_place_is_read() {
    // Equal contents, except for the number and the damage.
    let (rig, other) = (filled_with_number(1, 77), filled_with_number(1, 78));
    let mut verified = Verified::default();
    let (before, reads) = check_once(&rig, u32::MAX, &mut verified);
    let (_, again) = check_once(&rig, u32::MAX, &mut verified);
    assert!(before.data > 20 && again < reads, "data found right is not read again");
    let (_, all) = check_once(&other, u32::MAX, &mut verified);
    assert_eq!(all, reads, "nothing of the other volume was read before");
}
