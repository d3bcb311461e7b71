//! Journals on in-memory disks, for tests.

use super::*;
use crate::Data;
use crate::settings::{Secret, version};
use replica::data::{Kind, Once};
use replica::service::ReplicaId;
use std::collections::BTreeMap;
use store::Geometry;
use store::drive::{self, Disk as _, Memory};

const BLOCK: u64 = 4096;
pub(crate) const NOW: Instant = Instant(1);
pub(crate) const ME: ReplicaId = ReplicaId(1);
pub(crate) const DATA: Data = Once(Kind::Log);

pub(crate) fn settings() -> Settings {
    Settings {
        version: version(None),
        id: 7,
        service: "log".to_string(),
        kind: Kind::Log,
        me: ME,
        members: BTreeMap::from([ME, ReplicaId(2)].map(|id| (id, "127.0.0.1:1".to_string()))),
        joins: false,
        remove_after: None,
        secret: Secret([3; 32]),
    }
}

/// Performs a store's outputs until there are none.
pub(crate) fn settle(store: &mut Store, disk: &mut Memory, mut outputs: Vec<store::Output>) {
    loop {
        let Some(output) = outputs.pop() else {
            store.tick(NOW, &mut outputs);
            match outputs.is_empty() {
                true => return,
                false => continue,
            }
        };
        if let store::Output::Io(io) = output {
            let (id, done) = drive::perform(disk, &io);
            store.done(NOW, id, done, &mut outputs);
        }
    }
}

/// Opens and recovers the store on a disk.
pub(crate) fn open(disk: &mut Memory) -> Store {
    let head = disk.head().expect("it has one");
    let layout = store::Superblock::newest(&head).expect("a volume").layout;
    let config = store::Config::for_memory(8 << 20, &layout);
    let mut outputs = Vec::new();
    let mut store = Store::open(&head, config, NOW, &mut outputs).expect("a volume");
    settle(&mut store, disk, outputs);
    store
}

/// Returns the volume of a new replica.
pub(crate) fn formatted() -> Memory {
    formatted_as(64 << 20)
}

/// Returns such a volume of this size in bytes.
pub(crate) fn formatted_as(bytes: u64) -> Memory {
    made(bytes, &settings())
}

/// Returns such a volume for these settings.
pub(crate) fn formatted_of(settings: &Settings) -> Memory {
    made(64 << 20, settings)
}

/// Returns such a volume with little space.
pub(crate) fn formatted_small(settings: &Settings) -> Memory {
    made(12 << 20, settings)
}

fn made(bytes: u64, settings: &Settings) -> Memory {
    let mut disk = Memory::formatted(&Geometry::for_bytes(bytes)).expect("a disk");
    let (mut store, mut outputs) = (open(&mut disk), Vec::new());
    let changes = format(settings);
    store
        .commit(NOW, Ticket(0), &changes, Durability::Durable, &mut outputs)
        .expect("there is room");
    settle(&mut store, &mut disk, outputs);
    disk
}

/// Fetches missing pages.
pub(crate) fn fetch(store: &mut Store, disk: &mut Memory, missing: store::Missing) {
    let mut outputs = Vec::new();
    store.fetch(NOW, Ticket(0), missing, &mut outputs);
    settle(store, disk, outputs);
}

/// Returns the store and the replica's data on a disk.
pub(crate) fn kept(disk: &mut Memory) -> (Store, StoredReplica) {
    let mut store = open(disk);
    let mut bring = |store: &mut Store, missing| {
        fetch(store, disk, missing);
        Ok(())
    };
    let kept = read_all(&mut store, &mut bring).expect("a replica");
    (store, kept)
}

/// Performs an operation of the reactor on an in-memory disk.
pub(crate) fn perform(disk: &mut Memory, op: Op) -> (OpId, Done) {
    #[allow(clippy::wildcard_enum_match_arm, reason = "a store asks for nothing else")]
    match op {
        Op::ReadBlocks { id, offset, count, .. } => {
            (id, Done::Blocks(disk.read(offset / BLOCK, count)))
        }
        Op::WriteBlocks { id, offset, blocks, durable, .. } => {
            (id, Done::Stored(disk.write(offset / BLOCK, &blocks, durable)))
        }
        Op::Sync { id, .. } => (id, Done::Synced(disk.flush())),
        other => panic!("{other:?}"),
    }
}
