//! Corrupted volumes: the store reports errors and does not panic.

use base::rng::Rng;
use base::{Instant, Time};
use engine::Driver;
use engine::access::{raw::Raw, tree::Tree};
use engine::{Call, On, Reply, Request};
use std::time::Duration;
use store::check::{self, Content, Watcher};
use store::drive::{Disk, Memory};
use store::{Block, Config, Durability, Geometry, Superblock, Table, View, canary};

const GEOMETRY: Geometry = Geometry { block: 512, blocks: 700, journal: 48, segment: 64 };
const TREE: Table = Table(2000);
const RAW: Table = Table(2001);
const NOW: Instant = Instant(0);

/// Tests pages with changed bytes, with checksum verification disabled.
pub(super) fn volume(rng: &mut Rng) {
    canary::believe_everything(false);
    let mut disk = filled(rng, true);
    let first = GEOMETRY.layout().expect("a fair geometry").data_at;
    for _ in 0..rng.usize(1..6) {
        spoil(&mut disk, rng, first..first + 60);
    }
    canary::believe_everything(true);
    use_it(disk, rng);
    canary::believe_everything(false);
}

/// Tests changed bytes before the pages, or anywhere, with checksum verification.
pub(super) fn head(rng: &mut Rng) {
    canary::believe_everything(false);
    let closed = rng.bool();
    let mut disk = filled(rng, closed);
    for _ in 0..rng.usize(1..4) {
        let end =
            [8 * 8, GEOMETRY.layout().expect("fair").data_at, GEOMETRY.blocks][rng.usize(0..3)];
        spoil(&mut disk, rng, 0..end);
    }
    use_it(disk, rng);
}

/// Tests a journal with changed bytes and matching checksums: recovery must cope with any contents.
pub(super) fn journal(rng: &mut Rng) {
    canary::believe_everything(false);
    let mut disk = filled(rng, false);
    let superblock = Superblock::newest(&disk.head().expect("large enough")).expect("it is sound");
    let layout = superblock.layout;
    let ring = layout.journal_at..layout.journal_at + layout.journal;
    for _ in 0..rng.usize(1..8) {
        spoil(&mut disk, rng, ring.clone());
        spoil_record(&mut disk, rng, ring.clone());
    }
    let count = u32::try_from(layout.journal).expect("a small one");
    let blocks = disk.read(layout.journal_at, count).expect("within the disk");
    let mut bytes: Vec<u8> = blocks.iter().flat_map(|block| block.iter().copied()).collect();
    canary::seal_journal(&superblock, &mut bytes);
    let blocks = bytes.chunks(layout.block).map(|bytes| Block::from_bytes(bytes, layout.block));
    disk.write(layout.journal_at, &blocks.collect::<Vec<_>>(), true).expect("within the disk");
    use_it(disk, rng);
}

fn config() -> Config {
    let interval = Duration::from_secs(5);
    Config { cache: 300, dirty: 200, interval, read_only: false, accept_loss: false }
}

/// Returns a volume with data of every kind.
fn filled(rng: &mut Rng, closed: bool) -> Memory {
    let disk = Memory::formatted(&GEOMETRY).expect("it is large enough");
    let mut driver = Driver::open(disk, config(), NOW).expect("it is sound");
    for _ in 0..rng.usize(1..80) {
        let call = change(rng);
        let _ = driver.ask(NOW, Request::Call(On::Once(View::Present, Durability::Soon), call));
        if rng.u8(0..20) == 0 {
            let name = vec![rng.u8(b'a'..=b'e')];
            let _ = driver.ask(NOW, Request::Snapshot { name, date: Time::default() });
        }
    }
    let request = if closed { Request::Close } else { Request::Sync };
    let _ = driver.ask(NOW, request);
    driver.into_disk()
}

fn change(rng: &mut Rng) -> Call {
    let key = [b"some prefix".to_vec(), vec![rng.u8(..); rng.usize(0..3)]].concat();
    match rng.u8(0..6) {
        0 => Tree(TREE).delete(&key),
        1 | 2 => Tree(TREE).put(&key, &vec![rng.u8(..); rng.usize(0..900)]),
        3 | 4 => Raw(RAW).write(rng.u64(0..3), rng.u64(0..9000), &vec![1; rng.usize(1..2000)]),
        _ => Raw(RAW).cut(rng.u64(0..3), rng.u64(0..9000), rng.u64(9000..12_000)),
    }
}

/// Changes a byte or a word somewhere.
fn spoil(disk: &mut Memory, rng: &mut Rng, range: std::ops::Range<u64>) {
    let at = rng.u64(range);
    let mut block = disk.read(at, 1).expect("within the disk").remove(0);
    let bytes = block.bytes_mut();
    // The beginnings of pages matter more than the rest.
    let most = [24, 64, 512][rng.usize(0..3)];
    let offset = rng.usize(0..most);
    match rng.u8(0..3) {
        0 => bytes[offset] ^= 1 << rng.u8(0..8),
        1 => bytes[offset] = rng.u8(..),
        _ => bytes[offset / 8 * 8..offset / 8 * 8 + 8].copy_from_slice(&rng.u64(..).to_le_bytes()),
    }
    disk.write(at, &[block], true).expect("within the disk");
}

/// Changes a byte of a batch's first record, if a batch begins somewhere.
fn spoil_record(disk: &mut Memory, rng: &mut Rng, range: std::ops::Range<u64>) {
    let begins = |block: &Block| block.starts_with(b"upcall\0J");
    let (first, count) = (rng.u64(range.clone()), range.end - range.start);
    let mut places = (0..count).map(|step| range.start + (first + step) % count);
    let found = places.find_map(|at| {
        let block = disk.read(at, 1).expect("within the disk").remove(0);
        begins(&block).then_some((at, block))
    });
    let Some((at, mut block)) = found else { return };
    let offset = 64 + rng.usize(0..80);
    block.bytes_mut()[offset] = [0, 1, 2, 3, 4, 5, 6, 255, rng.u8(..)][rng.usize(0..9)];
    disk.write(at, &[block], true).expect("within the disk");
}

struct Nobody;

impl Watcher for Nobody {
    fn entry(&mut self, _: Table, _: &[u8], _: Content<'_>) {}

    fn wants(&self, _: Table) -> bool {
        true
    }

    fn progress(&mut self, _: u64, _: u64) {}
}

/// Checks the volume, and uses it as long as that works.
fn use_it(mut disk: Memory, rng: &mut Rng) {
    let head = disk.head().expect("it is large enough");
    let mut copy = disk.clone();
    let mut read = |at: u64, count: u32| copy.read(at, count).ok();
    let _ = check::check(&mut read, &head, &mut Nobody);
    let Ok(mut driver) = Driver::open(disk, config(), NOW) else { return };
    for view in views(&mut driver) {
        let whole = Tree(TREE).range(b"", None);
        let read = On::Once(view, Durability::Soon);
        let _ = driver.ask(NOW, Request::Call(read, Call::Scan(whole)));
        for object in 0..3 {
            let call = Raw(RAW).read(object, rng.u64(0..9000), 4000);
            let _ = driver.ask(NOW, Request::Call(read, call));
        }
    }
    for _ in 0..rng.usize(0..10) {
        let write = On::Once(View::Present, Durability::Durable);
        let _ = driver.ask(NOW, Request::Call(write, change(rng)));
    }
    let name = vec![rng.u8(b'a'..=b'e')];
    let _ = driver.ask(NOW, Request::DropSnapshot { name });
    let _ = driver.ask(NOW, Request::Close);
}

fn views(driver: &mut Driver<Memory>) -> Vec<View> {
    let mut views = vec![View::Present];
    if let Ok(Reply::Snapshots(all)) = driver.ask(NOW, Request::Snapshots) {
        views.extend(all.into_iter().map(|(_, id, _)| View::Snapshot(id)));
    }
    views
}
