//! Requests to a store on a disk in memory.
#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

use super::*;
use base::Time;
use std::time::Duration;
use store::drive::Memory;
use store::{Change, Durability, Geometry, Table};

const GEOMETRY: Geometry = Geometry { block: 512, blocks: 12_000, journal: 4096, segment: 512 };
const CONFIG: Config = Config {
    cache: 3000,
    dirty: 2000,
    interval: Duration::from_secs(5),
    read_only: false,
    accept_loss: false,
};

/// Last block of the larger volume.
const LAST: u64 = 12_999;

/// A disk whose reads can be made to fail, except of [`LAST`].
struct Flaky {
    memory: Memory,
    fails: bool,
    failed: u32,
}

impl Disk for Flaky {
    fn head(&mut self) -> Result<Vec<u8>, base::Error> {
        self.memory.head()
    }

    fn read(&mut self, at: u64, count: u32) -> Result<Vec<Block>, base::Error> {
        let fails = self.fails && at != LAST;
        self.failed += u32::from(fails);
        if fails { Err(base::Error::Io) } else { self.memory.read(at, count) }
    }

    fn write(&mut self, at: u64, blocks: &[Block], durable: bool) -> Result<(), base::Error> {
        self.memory.write(at, blocks, durable)
    }

    fn flush(&mut self) -> Result<(), base::Error> {
        self.memory.flush()
    }
}

fn opened(disk: &mut impl Disk) -> Store {
    let (mut printed, mut to_do) = (Vec::new(), VecDeque::new());
    let mut store = Store::open(&disk.head().unwrap(), CONFIG, START, &mut printed).unwrap();
    loop {
        to_do.extend(printed.drain(..));
        match to_do.pop_front() {
            Some(Output::Io(io)) => {
                let (id, done) = drive::perform(disk, &io);
                store.done(START, id, done, &mut printed);
            }
            Some(Output::Opened(result)) => break result.unwrap(),
            other => panic!("{other:?} instead of an open store"),
        }
    }
    store
}

fn commit(store: &mut Store, disk: &mut impl Disk, change: impl Fn(u32) -> Change) {
    for number in 0..300 {
        let (ticket, mut printed, changes) = (Ticket(1), Vec::new(), [change(number)]);
        store.commit(START, ticket, &changes, Durability::Durable, &mut printed).unwrap();
        committed(store, disk, ticket, printed).unwrap();
    }
}

/// Returns a volume with a dropped snapshot whose long dead list is unprocessed.
fn with_a_dropped_snapshot() -> (Flaky, Store) {
    let mut memory = Memory::new(512, 14_000);
    drive::create(&mut memory, &GEOMETRY, 1, Time::default()).unwrap();
    let mut disk = Flaky { memory, fails: false, failed: 0 };
    let mut store = opened(&mut disk);
    let key = |number: u32| number.to_be_bytes().to_vec();
    let table = Table(300);
    commit(&mut store, &mut disk, |number| Change::Put {
        table,
        key: key(number),
        value: vec![7; 1500],
    });
    let (ticket, mut printed) = (Ticket(2), Vec::new());
    store.snapshot(START, ticket, b"s", Time::default(), &mut printed);
    committed(&mut store, &mut disk, ticket, printed).unwrap();
    commit(&mut store, &mut disk, |number| Change::Delete { table, key: key(number) });
    close_store(&mut store, &mut disk).unwrap();
    let (mut store, ticket, mut printed) = (opened(&mut disk), Ticket(3), Vec::new());
    store.drop_snapshot(START, ticket, b"s", &mut printed);
    committed(&mut store, &mut disk, ticket, printed).unwrap();
    (disk, store)
}

#[test]
fn a_request_leaves_no_operation_outstanding() {
    let (mut disk, mut store) = with_a_dropped_snapshot();
    disk.fails = true;
    let (ticket, mut printed) = (Ticket(4), Vec::new());
    store.grow(ticket, LAST + 1, &mut printed);
    committed(&mut store, &mut disk, ticket, printed).unwrap();
    assert!(disk.failed >= 2, "the list is read, and read again: {}", disk.failed);
    assert_eq!(store.counts().operations, 0);
    close_store(&mut store, &mut disk).unwrap();
    assert_eq!(store.superblock().layout.blocks, LAST + 1);
}
