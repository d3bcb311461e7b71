//! The whole store on a disk in memory that completes out of order, loses writes that were not
//! flushed, and tears those in flight.

#![allow(clippy::wildcard_enum_match_arm, reason = "tests name what they wait for")]

mod dead_lists;
mod growing;
mod in_use;
mod rolling;
mod tight;
mod waits;

use super::*;
use crate::{Change, Durability, Geometry, HEAD_BYTES, Piece, Table, format};
use base::{Block, rng};
use std::collections::BTreeMap;
use std::ops::ControlFlow;

const TREE: Table = Table(300);
const RAW: Table = Table(301);

/// A disk: durable blocks, and writes that are not flushed.
#[derive(Clone)]
struct Disk {
    block: usize,
    durable: BTreeMap<u64, Block>,
    volatile: Vec<(u64, Vec<Block>)>,
}

impl Disk {
    fn read(&self, at: u64) -> Block {
        let volatile =
            self.volatile.iter().rev().find_map(|(first, blocks)| {
                blocks.get(usize::try_from(at.checked_sub(*first)?).ok()?)
            });
        let found = volatile.or_else(|| self.durable.get(&at));
        found.cloned().unwrap_or_else(|| Block::zeroed(self.block))
    }

    fn flush(&mut self) {
        for (at, blocks) in std::mem::take(&mut self.volatile) {
            self.durable.extend((at..).zip(blocks));
        }
    }

    /// Simulates a power failure: any part of the unflushed writes may survive, in pieces of 512
    /// bytes.
    fn crash(&mut self, rng: &mut rng::Rng, under_way: Vec<(u64, Vec<Block>)>) {
        let all = std::mem::take(&mut self.volatile);
        for (at, blocks) in all.into_iter().chain(under_way) {
            for (at, block) in (at..).zip(blocks) {
                let mut there = self.read(at);
                for start in (0..self.block).step_by(512) {
                    if rng.bool() {
                        there.bytes_mut()[start..start + 512]
                            .copy_from_slice(&block[start..start + 512]);
                    }
                }
                self.durable.insert(at, there);
            }
        }
    }

    fn head(&self) -> Vec<u8> {
        let blocks = (HEAD_BYTES / self.block) as u64;
        (0..blocks).flat_map(|at| self.read(at).to_vec()).collect()
    }
}

/// A store, its disk, and its expected contents.
struct Rig {
    rng: rng::Rng,
    disk: Disk,
    store: Store,
    out: Vec<Output>,
    under_way: Vec<Io>,
    now: u64,
    model: Model,
    /// States committed, from the last one known to be durable.
    history: Vec<Model>,
    durable: usize,
    waiting: BTreeMap<u64, usize>,
    next: u64,
    outputs: Vec<Output>,
    /// Whether every read fails.
    unreadable: bool,
}

#[derive(Clone, Default, PartialEq, Debug)]
struct Model {
    tree: BTreeMap<Vec<u8>, Vec<u8>>,
    raw: BTreeMap<u64, Vec<u8>>,
}

const GEOMETRY: Geometry = Geometry { block: 512, blocks: 3000, journal: 128, segment: 128 };

fn config() -> Config {
    Config {
        cache: 200,
        dirty: 150,
        interval: Duration::from_secs(5),
        read_only: false,
        accept_loss: false,
    }
}

impl Rig {
    fn new(seed: u64) -> Rig {
        Rig::with_number(seed, 77)
    }

    /// Returns a rig whose volume has this number.
    fn with_number(seed: u64, volume: u64) -> Rig {
        let mut disk = Disk { block: 512, durable: BTreeMap::new(), volatile: Vec::new() };
        for (at, blocks) in format(&GEOMETRY, volume, Time::default()).unwrap() {
            disk.durable.extend((at..).zip(blocks));
        }
        let mut out = Vec::new();
        let store = Store::open(&disk.head(), config(), Instant(0), &mut out).unwrap();
        let mut rig = Rig {
            rng: rng::seeded(seed),
            disk,
            store,
            out,
            under_way: Vec::new(),
            now: 0,
            model: Model::default(),
            history: vec![Model::default()],
            durable: 0,
            waiting: BTreeMap::new(),
            next: 1,
            outputs: Vec::new(),
            unreadable: false,
        };
        rig.opened();
        rig
    }

    fn opened(&mut self) {
        loop {
            self.sort_out();
            let opened = self.outputs.iter().find_map(|output| match output {
                Output::Opened(result) => Some(*result),
                _ => None,
            });
            if let Some(result) = opened {
                result.unwrap();
                return self.outputs.clear();
            }
            self.progress();
        }
    }

    fn sort_out(&mut self) {
        for output in std::mem::take(&mut self.out) {
            match output {
                Output::Io(io) => self.under_way.push(io),
                Output::Committed(ticket, result) => {
                    result.unwrap();
                    if let Some(index) = self.waiting.remove(&ticket.0) {
                        self.durable = self.durable.max(index);
                    }
                    self.outputs.push(Output::Committed(ticket, result));
                }
                other => self.outputs.push(other),
            }
        }
    }

    /// Completes a random operation of the disk.
    fn progress(&mut self) {
        self.now += self.rng.u64(0..200_000_000);
        let now = Instant(self.now);
        if !self.under_way.is_empty() {
            let io = self.under_way.swap_remove(self.rng.usize(0..self.under_way.len()));
            let (id, done) = match io {
                Io::Read { id, .. } if self.unreadable => (id, IoDone::Read(Err(base::Error::Io))),
                Io::Read { id, at, count } => {
                    let blocks = (at..at + u64::from(count)).map(|at| self.disk.read(at));
                    (id, IoDone::Read(Ok(blocks.collect())))
                }
                Io::Write { id, at, blocks, durable } => {
                    if durable {
                        self.disk.volatile.retain(|(first, old)| {
                            first + old.len() as u64 <= at || *first >= at + blocks.len() as u64
                        });
                        self.disk.durable.extend((at..).zip(blocks));
                    } else {
                        self.disk.volatile.push((at, blocks));
                    }
                    (id, IoDone::Written(Ok(())))
                }
                Io::Flush { id } => {
                    self.disk.flush();
                    (id, IoDone::Flushed(Ok(())))
                }
            };
            self.store.done(now, id, done, &mut self.out);
        }
        if self.store.deadline().is_some_and(|at| at <= now) {
            self.store.tick(now, &mut self.out);
        }
        Automaton::check(&self.store);
        self.sort_out();
    }

    /// Runs until an output is accepted by `wanted`.
    fn until(&mut self, wanted: impl Fn(&Output) -> bool) {
        for _ in 0..100_000 {
            if let Some(index) = self.outputs.iter().position(&wanted) {
                self.outputs.remove(index);
                return;
            }
            self.progress();
        }
        panic!("no notification: {:?}", self.store.counts());
    }

    fn fetch(&mut self, missing: Missing) {
        let ticket = Ticket(self.next);
        self.next += 1;
        self.store.fetch(Instant(self.now), ticket, missing, &mut self.out);
        self.sort_out();
        self.until(|output| matches!(output, Output::Fetched(found, _) if *found == ticket));
    }

    /// Commits; returns `false` if the volume is full.
    fn commit(&mut self, changes: &[Change], durability: Durability) -> bool {
        let ticket = Ticket(self.next);
        self.next += 1;
        loop {
            let now = Instant(self.now);
            match self.store.commit(now, ticket, changes, durability, &mut self.out) {
                Ok(()) => break,
                Err(Refusal::Missing(missing)) => self.fetch(missing),
                Err(Refusal::Failed(Error::NoSpace | Error::TooLarge)) => return false,
                Err(Refusal::Failed(error)) => panic!("{error}"),
            }
        }
        self.model.apply(changes);
        self.history.push(self.model.clone());
        if durability == Durability::Durable {
            self.waiting.insert(ticket.0, self.history.len() - 1);
        }
        self.sort_out();
        true
    }

    fn look(&mut self) -> Model {
        loop {
            match look(&self.store, View::Present) {
                Ok(model) => return model,
                Err(missing) => self.fetch(missing),
            }
        }
    }

    fn random_change(&mut self) -> Change {
        let rng = &mut self.rng;
        let key = vec![rng.u8(0..60), rng.u8(0..3)];
        let object = rng.u64(0..4);
        match rng.u8(0..10) {
            0..4 => {
                let length = if rng.u8(0..8) == 0 { rng.usize(0..2000) } else { rng.usize(0..100) };
                Change::Put { table: TREE, key, value: vec![rng.u8(..); length] }
            }
            4 | 5 => Change::Delete { table: TREE, key },
            6..9 => {
                let offset = rng.u64(0..9000);
                let length = if rng.bool() { rng.usize(1..60) } else { rng.usize(1..3000) };
                Change::Write { table: RAW, object, offset, data: vec![rng.u8(1..); length] }
            }
            _ => {
                let from = rng.u64(0..9000);
                let to = if rng.bool() { u64::MAX } else { from + rng.u64(0..3000) };
                Change::Cut { table: RAW, object, from, to }
            }
        }
    }

    fn random_commit(&mut self) {
        let count = if self.rng.u8(0..10) == 0 { 6 } else { self.rng.usize(1..3) };
        let changes: Vec<Change> = (0..count).map(|_| self.random_change()).collect();
        let durable = self.rng.u8(0..3) == 0;
        let durability = if durable { Durability::Durable } else { Durability::Soon };
        self.commit(&changes, durability);
        for _ in 0..self.rng.usize(0..4) {
            self.progress();
        }
    }

    fn crash(&mut self) {
        let mut writes = Vec::new();
        for io in std::mem::take(&mut self.under_way) {
            if let Io::Write { at, blocks, .. } = io {
                writes.push((at, blocks));
            }
        }
        self.disk.crash(&mut self.rng, writes);
        self.reopen();
        let found = self.look();
        let whole = self.history.iter().rposition(|model| *model == found);
        let whole = whole.expect("the state after some transaction");
        assert!(whole >= self.durable, "found {whole}, acknowledged {}", self.durable);
        self.model = found;
        self.history = vec![self.model.clone()];
        self.durable = 0;
        self.waiting.clear();
    }

    fn reopen(&mut self) {
        self.begin_to_open();
        self.opened();
    }

    fn begin_to_open(&mut self) {
        self.outputs.clear();
        self.under_way.clear();
        self.out.clear();
        let now = Instant(self.now);
        self.store = Store::open(&self.disk.head(), config(), now, &mut self.out).unwrap();
    }
}

/// An observer that ignores everything.
struct Nobody;

impl crate::check::Watcher for Nobody {
    fn entry(&mut self, _: Table, _: &[u8], _: crate::check::Content<'_>) {}

    fn wants(&self, table: Table) -> bool {
        table == TREE
    }

    fn progress(&mut self, _: u64, _: u64) {}
}

impl Rig {
    /// Closes the volume and checks its disk.
    fn close_and_check(&mut self) -> crate::check::Checked {
        let ticket = Ticket(1 << 41);
        self.store.close(Instant(self.now), ticket, &mut self.out);
        self.sort_out();
        self.until(|output| matches!(output, Output::Closed(found, Ok(())) if *found == ticket));
        let disk = self.disk.clone();
        let mut read = |at: u64, count: u32| {
            Some((at..at + u64::from(count)).map(|at| disk.read(at)).collect::<Vec<_>>())
        };
        crate::check::check(&mut read, &disk.head(), &mut Nobody).unwrap()
    }
}

impl Model {
    fn apply(&mut self, changes: &[Change]) {
        for change in changes {
            match change.clone() {
                Change::Put { key, value, .. } => drop(self.tree.insert(key, value)),
                Change::Delete { key, .. } => drop(self.tree.remove(&key)),
                Change::Write { object, offset, data, .. } => {
                    let bytes = self.raw.entry(object).or_default();
                    let end = offset as usize + data.len();
                    bytes.resize(bytes.len().max(end), 0);
                    bytes[offset as usize..end].copy_from_slice(&data);
                }
                Change::Cut { object, from, to, .. } => {
                    let bytes = self.raw.entry(object).or_default();
                    let end = (bytes.len() as u64).min(to) as usize;
                    let from = (from as usize).min(end);
                    bytes[from..end].fill(0);
                }
                Change::Attach { .. } | Change::Free { .. } => unreachable!(),
            }
        }
        for bytes in self.raw.values_mut() {
            while bytes.last() == Some(&0) {
                bytes.pop();
            }
        }
        self.raw.retain(|_, bytes| !bytes.is_empty());
    }
}

/// Returns the contents of the store as a model.
fn look(store: &Store, view: View) -> Result<Model, Missing> {
    let reader = store.reader(view).unwrap();
    let mut model = Model::default();
    reader.scan(TREE, b"", &mut |key, value| {
        model.tree.insert(key.to_vec(), value.bytes().into_owned());
        ControlFlow::Continue(())
    })?;
    for (key, value) in &model.tree {
        assert_eq!(reader.get(TREE, key)?.unwrap().bytes(), &value[..]);
        let back = reader.seek_back(TREE, key)?.unwrap();
        assert_eq!(back.0, key);
    }
    for object in 0..4 {
        let mut bytes = Vec::new();
        for piece in reader.read(RAW, object, 0, 13_000)? {
            match piece {
                Piece::Data(block, range) => bytes.extend(&block[range]),
                Piece::Inline(inline) => bytes.extend(inline),
                Piece::Hole(count) => bytes.resize(bytes.len() + count, 0),
            }
        }
        assert_eq!(bytes.len(), 13_000);
        while bytes.last() == Some(&0) {
            bytes.pop();
        }
        if !bytes.is_empty() {
            model.raw.insert(object, bytes);
        }
    }
    Ok(model)
}

#[test]
fn committed_changes_are_readable() {
    let mut rig = Rig::new(1);
    for _ in 0..3000 {
        rig.random_commit();
    }
    assert_eq!(rig.look(), rig.model);
}

#[test]
fn how_far_an_object_has_so_many_blocks() {
    let mut rig = Rig::new(9);
    for _ in 0..60 {
        let (offset, length) = (rig.rng.u64(0..1 << 40), rig.rng.usize(1..4000));
        let data = vec![1; length];
        let near = if rig.rng.bool() { offset } else { offset % 100_000 };
        assert!(rig.try_commit(Change::Write { table: RAW, object: 7, offset: near, data }));
    }
    for _ in 0..500 {
        let (from, most) = (rig.rng.u64(0..1 << 40), rig.rng.u64(0..300));
        let from = if rig.rng.bool() { from } else { from % 100_000 };
        let (reach, blocks) = loop {
            let reader = rig.store.reader(View::Present).unwrap();
            let looked = reader.reach(RAW, 7, from, most).and_then(|reach| {
                let to = reach.unwrap_or(u64::MAX);
                Ok((reach, reader.allocated(RAW, 7, from, to)?))
            });
            match looked {
                Ok(found) => break found,
                Err(missing) => rig.fetch(missing),
            }
        };
        assert!(if reach.is_some() { blocks == most } else { blocks <= most }, "{from} {most}");
    }
}

#[test]
fn a_crash_leaves_the_state_after_some_transaction() {
    for seed in 0..60 {
        let mut rig = Rig::new(seed);
        for _ in 0..6 {
            for _ in 0..rig.rng.usize(1..80) {
                rig.random_commit();
            }
            rig.crash();
        }
        assert_eq!(rig.close_and_check().findings, [], "seed {seed}");
    }
}

#[test]
fn closing_leaves_nothing_to_replay() {
    let mut rig = Rig::new(5);
    for _ in 0..200 {
        rig.random_commit();
    }
    let ticket = Ticket(1 << 40);
    rig.store.close(Instant(rig.now), ticket, &mut rig.out);
    rig.sort_out();
    rig.until(|output| matches!(output, Output::Closed(found, Ok(())) if *found == ticket));
    rig.disk.volatile.clear();
    rig.reopen();
    assert_eq!(rig.store.changed_since, None);
    let checked = rig.close_and_check();
    assert_eq!((checked.journaled, &checked.findings[..]), (0, &[][..]));
    rig.reopen();
    assert_eq!(rig.look(), rig.model);
}

#[test]
fn a_store_is_closed_when_nothing_is_under_way_on_the_disk() {
    for seed in 0..60 {
        let mut rig = Rig::new(seed);
        for _ in 0..60 {
            rig.random_commit();
        }
        let last = rig.random_change();
        rig.commit(&[last], Durability::Durable);
        while rig.durable + 1 < rig.history.len() {
            rig.progress();
        }
        rig.begin_to_open();
        rig.sort_out();
        // Sometimes in the middle of recovery, sometimes in the middle of reads.
        for _ in 0..seed {
            rig.progress();
        }
        if let Err(missing) = look(&rig.store, View::Present) {
            rig.store.prefetch(missing.clone(), &mut rig.out);
            rig.store.fetch(Instant(rig.now), Ticket(7), missing, &mut rig.out);
        }
        let ticket = Ticket(1 << 40);
        rig.store.close(Instant(rig.now), ticket, &mut rig.out);
        rig.sort_out();
        rig.until(|output| matches!(output, Output::Closed(found, Ok(())) if *found == ticket));
        assert!(rig.under_way.is_empty(), "seed {seed}: {:?}", rig.under_way);
        assert!(!rig.outputs.iter().any(|output| matches!(output, Output::Closed(..))));
        rig.reopen();
        assert!(rig.look() == rig.model, "seed {seed}: something else is there");
    }
}

#[test]
fn a_snapshot_keeps_what_was_there_until_it_is_dropped() {
    for seed in 0..20 {
        let mut rig = Rig::new(seed);
        let mut kept: BTreeMap<Vec<u8>, Model> = BTreeMap::new();
        for round in 0..300_u32 {
            rig.random_commit();
            let ticket = Ticket(1 << 40 | u64::from(round));
            let now = Instant(rig.now);
            if rig.rng.u8(0..20) == 0 && kept.len() < 4 {
                let name = round.to_be_bytes().to_vec();
                rig.store.snapshot(now, ticket, &name, Time::default(), &mut rig.out);
                rig.sort_out();
                let model = rig.model.clone();
                rig.until(
                    |output| matches!(output, Output::Committed(found, _) if *found == ticket),
                );
                kept.insert(name, model);
            } else if rig.rng.u8(0..20) == 0 && !kept.is_empty() {
                let name = kept.keys().nth(rig.rng.usize(0..kept.len())).unwrap().clone();
                rig.store.drop_snapshot(now, ticket, &name, &mut rig.out);
                rig.sort_out();
                rig.until(
                    |output| matches!(output, Output::Committed(found, _) if *found == ticket),
                );
                kept.remove(&name);
            } else if rig.rng.u8(0..60) == 0 {
                rig.crash();
            }
        }
        let found: Vec<_> =
            rig.store.snapshots().map(|(name, id, _)| (name.to_vec(), id)).collect();
        assert_eq!(found.len(), kept.len());
        for (name, id) in found {
            let model = loop {
                match look(&rig.store, View::Snapshot(id)) {
                    Ok(model) => break model,
                    Err(missing) => rig.fetch(missing),
                }
            };
            assert_eq!(model, kept[&name], "seed {seed}");
        }
        let checked = rig.close_and_check();
        assert_eq!(checked.findings, [], "seed {seed}");
    }
}
