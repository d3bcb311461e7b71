//! Growing volumes, and crashes meanwhile.

use super::tight::put;
use super::*;

impl Rig {
    fn begin_to_grow(&mut self, blocks: u64) -> Ticket {
        let ticket = Ticket(1 << 43 | blocks);
        self.store.grow(ticket, blocks, &mut self.out);
        self.sort_out();
        ticket
    }

    fn blocks(&self) -> u64 {
        Superblock::newest(&self.disk.head()).unwrap().layout.blocks
    }

    /// Returns the superblock found by a program that knows version 1 only.
    fn newest_of_version_1(&self) -> Option<Superblock> {
        let head = self.disk.head();
        let slots = head.chunks(4096).filter_map(|slot| Superblock::decode(slot).ok());
        slots.filter(|found| found.version() == 1).max_by_key(|found| found.epoch)
    }
}

#[test]
fn a_crash_while_a_volume_grows_leaves_the_old_or_the_new_size() {
    let (mut old, mut new, mut versions) = (0, 0, [0; 2]);
    for seed in 0..150 {
        let mut rig = Rig::new(seed);
        for _ in 0..8 {
            (0..rig.rng.usize(1..30)).for_each(|_| rig.random_commit());
            let before = rig.store.layout().blocks;
            let after =
                before + [rig.rng.u64(20..100), rig.rng.u64(200..3000)][rig.rng.usize(0..2)];
            if rig.store.layout().grown(after).is_err() {
                continue;
            }
            let ticket = rig.begin_to_grow(after);
            let mut is_done = false;
            for _ in 0..rig.rng.usize(0..40) {
                if rig.rng.u8(0..3) == 0 {
                    rig.random_commit();
                }
                rig.progress();
                is_done |= rig.outputs.contains_committed(ticket);
            }
            rig.crash();
            let found = rig.blocks();
            assert!(found == after || found == before && !is_done, "seed {seed}: {found}");
            assert_eq!(rig.store.layout().blocks, found);
            let known = rig.newest_of_version_1();
            assert!(known.is_none_or(|known| known == *rig.store.superblock()), "seed {seed}");
            old += u64::from(found == before);
            new += u64::from(found == after);
            versions[rig.store.superblock().version() as usize - 1] += 1;
        }
        let checked = rig.close_and_check();
        assert_eq!((&checked.findings[..], checked.journaled), (&[][..], 0), "seed {seed}");
    }
    assert!(old > 100 && new > 100, "{old} and {new}");
    assert!(versions.iter().all(|count| *count > 30), "{versions:?}");
}

/// Search for a successful commit in outputs.
trait Committed {
    fn contains_committed(&self, ticket: Ticket) -> bool;
}

impl Committed for Vec<Output> {
    fn contains_committed(&self, ticket: Ticket) -> bool {
        self.iter()
            .any(|output| matches!(output, Output::Committed(found, Ok(())) if *found == ticket))
    }
}

#[test]
fn a_full_volume_that_grows_takes_more() {
    let mut rig = Rig::new(3);
    let mut number = 0;
    for blocks in [3100, 5000, 5040, 12_000, 200_000] {
        while rig.try_commit(put(number, 1500)) {
            number += 1;
        }
        let full = number;
        let space = rig.store.space();
        let ticket = rig.begin_to_grow(blocks);
        rig.committed(ticket);
        let more = rig.store.space();
        let maps = more.blocks - space.blocks;
        assert!(more.blocks_free > space.blocks_free && maps > 10, "{space:?}, {more:?}");
        for _ in 0..(maps / 8).min(1000) {
            assert!(rig.try_commit(put(number, 1500)), "{number}");
            number += 1;
        }
        assert!(number > full);
        rig.model.tree.clear();
    }
    let checked = rig.close_and_check();
    assert_eq!(checked.findings, []);
    assert!(checked.data > 3 * u64::from(number) / 4, "{checked:?}");
    rig.reopen();
    assert_eq!(rig.store.layout().blocks, 200_000);
    let free = rig.store.space();
    assert!(free.blocks_free > 150_000, "{free:?}");
}

#[test]
fn new_blocks_are_given_out_when_the_superblock_knows_them() {
    let mut full = Rig::new(6);
    let mut number = 0;
    for length in [2500, 700] {
        while full.try_commit(put(number, length)) {
            number += 1;
        }
    }
    full.settle_journal();
    let disk = full.disk.clone();
    let (mut early, mut late) = (0_u64, 0_u64);
    for seed in 0..60 {
        let mut rig = Rig::new(seed);
        rig.disk = disk.clone();
        rig.reopen();
        rig.begin_to_grow(6000);
        for _ in 0..rig.rng.usize(20..80) {
            rig.progress();
            // A commit that needs new blocks waits: after a crash its record would be for the old
            // size.
            let (now, change) = (Instant(rig.now), [put(number, 2500)]);
            let (ticket, out) = (Ticket(9), &mut rig.out);
            match rig.store.commit(now, ticket, &change, Durability::Durable, out) {
                Ok(()) if rig.blocks() == 3000 => early += 1,
                Ok(()) => late += 1,
                Err(Refusal::Missing(missing)) => rig.store.prefetch(missing, &mut rig.out),
                Err(Refusal::Failed(error)) => assert_eq!(error, Error::NoSpace),
            }
            rig.sort_out();
        }
        let under_way = std::mem::take(&mut rig.under_way).into_iter();
        let writes = under_way.filter_map(|io| match io {
            Io::Write { at, blocks, .. } => Some((at, blocks)),
            Io::Read { .. } | Io::Flush { .. } => None,
        });
        rig.disk.crash(&mut rig.rng, writes.collect());
        rig.reopen();
        assert_eq!(rig.close_and_check().findings, [], "seed {seed}");
    }
    assert!(early == 0 && late > 0, "{early} and {late}");
}

#[test]
fn a_growth_that_is_none_or_has_no_room_for_maps_is_refused() {
    let mut rig = Rig::new(4);
    // Not larger, or too little for the larger maps.
    for blocks in [10, 3000, 3040, u64::MAX] {
        let mut out = Vec::new();
        rig.store.grow(Ticket(7), blocks, &mut out);
        assert!(
            matches!(out[..], [Output::Committed(Ticket(7), Err(Error::TooLarge))]),
            "{blocks}"
        );
        assert_eq!(rig.store.layout().blocks, 3000);
    }
}

#[test]
fn a_growth_beyond_the_end_of_the_disk_is_refused() {
    let (mut rig, mut out) = (Rig::new(5), Vec::new());
    let now = Instant(rig.now);
    rig.store.grow(Ticket(7), 4000, &mut out);
    let [Output::Io(Io::Read { id, at: 3999, count: 1 })] = out[..] else { panic!("{out:?}") };
    out.clear();
    rig.store.done(now, id, IoDone::Read(Err(base::Error::Io)), &mut out);
    assert!(matches!(out[..], [Output::Committed(Ticket(7), Err(Error::TooShort))]), "{out:?}");
    assert_eq!((rig.store.layout().blocks, rig.store.next_failure()), (3000, None));
    // The volume stays usable, and grows when the disk is longer.
    assert!(rig.try_commit(put(1, 100)));
    let ticket = rig.begin_to_grow(4000);
    rig.committed(ticket);
    assert_eq!(rig.store.layout().blocks, 4000);
    assert_eq!(rig.close_and_check().findings, []);
}
