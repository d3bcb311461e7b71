#![allow(clippy::wildcard_enum_match_arm, reason = "tests name what they wait for")]

use super::*;
use crate::{Geometry, format};
use base::Time;
use base::drawing::{self, Drawing};
use std::collections::BTreeMap;

const GEOMETRY: Geometry = Geometry { block: 512, blocks: 700, journal: 16, segment: 64 };

fn disk() -> (Superblock, BTreeMap<u64, Block>) {
    let mut disk = BTreeMap::new();
    for (at, blocks) in format(&GEOMETRY, 5, Time::default()).unwrap() {
        disk.extend((at..).zip(blocks));
    }
    let head: Vec<u8> = (0..64).flat_map(|at| disk[&at].to_vec()).collect();
    (Superblock::newest(&head).unwrap(), disk)
}

fn read(disk: &BTreeMap<u64, Block>, at: u64, count: u32) -> Vec<Block> {
    (at..at + u64::from(count)).map(|at| disk[&at].clone()).collect()
}

/// Steps until the first output other than a read; at most this number of reads.
fn run(recovery: &mut Recovery, disk: &BTreeMap<u64, Block>, reads: usize) -> Option<Output> {
    let mut out = Vec::new();
    recovery.step(Instant(0), Input::Begin, &mut out);
    for _ in 0..reads {
        match out.pop()? {
            Output::Read(at, count) => {
                let blocks = read(disk, at, count);
                recovery.step(Instant(0), Input::Read(blocks), &mut out);
            }
            other => return Some(other),
        }
    }
    out.pop()
}

#[test]
fn the_drawing_is_fresh() {
    let (superblock, disk) = disk();
    let mut drawing = Drawing::default();
    let at = |reads: Option<usize>, more: usize| {
        let mut recovery = Recovery::new(superblock.clone(), false, false);
        let mut out = Vec::new();
        if let Some(reads) = reads {
            run(&mut recovery, &disk, reads);
        }
        for input in [Input::Replayed, Input::Loaded].into_iter().take(more) {
            recovery.step(Instant(0), input, &mut out);
        }
        recovery
    };
    let states = [None, Some(0), Some(1), Some(2), Some(3), Some(4), Some(5)].map(|it| (it, 0));
    let later = [(Some(5), 1), (Some(5), 2)];
    for (reads, more) in states.into_iter().chain(later) {
        let wanted = {
            let mut out = Vec::new();
            let mut recovery = Recovery::new(superblock.clone(), false, false);
            recovery.step(Instant(0), Input::Begin, &mut out);
            for _ in 0..reads.unwrap_or(0) {
                if let Some(Output::Read(at, count)) = out.pop() {
                    let blocks = read(&disk, at, count);
                    recovery.step(Instant(0), Input::Read(blocks), &mut out);
                }
            }
            match out.pop() {
                Some(Output::Read(at, count)) => read(&disk, at, count),
                _ => Vec::new(),
            }
        };
        let garbage = vec![Block::from_bytes(&[7; 512], 512); wanted.len().max(1)];
        for (label, input) in [
            ("Begin", Input::Begin),
            ("Read", Input::Read(wanted)),
            ("Read, other blocks", Input::Read(garbage)),
            ("Erased", Input::Erased),
            ("Failed", Input::Failed),
            ("Replayed", Input::Replayed),
            ("Loaded", Input::Loaded),
        ] {
            let name = |recovery: &Recovery| drawing::variant(&recovery.state);
            drawing.sample_as(label, at(reads, more), input, name);
        }
    }
    drawing.assert_fresh(concat!(env!("CARGO_MANIFEST_DIR"), "/src/recovery/states.md"));
}

#[test]
fn an_empty_volume_has_nothing_to_replay() {
    let (superblock, disk) = disk();
    let mut recovery = Recovery::new(superblock, false, false);
    match run(&mut recovery, &disk, 100) {
        Some(Output::Replay(found)) => {
            assert_eq!((found.records.len(), found.head.sequence), (0, 1));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_batch_behind_the_end_means_that_one_was_lost() {
    let (superblock, mut disk) = disk();
    let head = batch::Head { volume: 5, sequence: 3, chain: 0, epoch: 2, records: 0 };
    let (blocks, _) = batch::encode(&head, b"", 512);
    disk.insert(superblock.layout.journal_at + 4, blocks[0].clone());
    let mut recovery = Recovery::new(superblock.clone(), false, false);
    let outputs = run(&mut recovery, &disk, 100);
    assert!(matches!(outputs, Some(Output::Broken(Error::Damaged))), "{outputs:?}");
    let mut recovery = Recovery::new(superblock.clone(), true, false);
    let outputs = run(&mut recovery, &disk, 100);
    let at = superblock.layout.journal_at + 4;
    assert!(matches!(outputs, Some(Output::Erase(erased)) if erased == at), "{outputs:?}");
    let mut out = Vec::new();
    recovery.step(Instant(0), Input::Erased, &mut out);
    assert!(matches!(out[..], [Output::Replay(_)]));
}

/// Steps until everything is read; the first read of block `wrong` of the ring returns zeros.
fn run_with_a_wrong_read(
    superblock: &Superblock,
    disk: &BTreeMap<u64, Block>,
    wrong: u64,
) -> Found {
    let mut spoilt = disk.clone();
    spoilt.insert(superblock.layout.journal_at + wrong, Block::zeroed(512));
    let (mut recovery, mut out) = (Recovery::new(superblock.clone(), false, false), Vec::new());
    recovery.step(Instant(0), Input::Begin, &mut out);
    let mut now = &spoilt;
    loop {
        match out.pop() {
            Some(Output::Read(at, count)) => {
                recovery.step(Instant(0), Input::Read(read(now, at, count)), &mut out);
                if at + u64::from(count) == superblock.layout.map_at {
                    now = disk;
                }
            }
            Some(Output::Replay(found)) => return *found,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn the_end_is_looked_at_again_also_at_the_beginning_of_the_ring() {
    let (mut superblock, mut disk) = disk();
    // A batch of three blocks that does not fit into the last two, and one behind it.
    superblock.tail = Position { block: 14, sequence: 9, chain: 7 };
    let head = batch::Head { volume: 5, sequence: 9, chain: 7, epoch: 2, records: 1 };
    let record = record::encode(&[], &[]);
    let (blocks, chain) = batch::encode(&head, &record.repeat(150), 512);
    let (more, _) = batch::encode(&batch::Head { sequence: 10, chain, ..head }, &record, 512);
    assert_eq!((blocks.len(), more.len()), (3, 1));
    disk.extend((superblock.layout.journal_at..).zip(blocks.into_iter().chain(more)));
    for wrong in [0, 3, 10] {
        let found = run_with_a_wrong_read(&superblock, &disk, wrong);
        assert_eq!((found.head.sequence, found.records.len()), (11, 151), "{wrong}");
    }
}

#[test]
fn a_wrong_map_is_not_believed() {
    let (superblock, mut disk) = disk();
    let map = superblock.layout.map(superblock.map);
    for at in [map, map + superblock.layout.index] {
        let good = disk[&at].clone();
        disk.get_mut(&at).unwrap().bytes_mut()[3] ^= 1;
        let mut recovery = Recovery::new(superblock.clone(), false, false);
        let outputs = run(&mut recovery, &disk, 100);
        assert!(matches!(outputs, Some(Output::Broken(Error::Damaged))), "{outputs:?}");
        disk.insert(at, good);
    }
}
