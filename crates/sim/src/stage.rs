//! Sets up a volume before the node begins: formats it and creates the same files as on the
//! simulated host, so that the same clients can check it.

use crate::disk::Sparse;
use crate::params::Params;
use crate::world::{WALL, World};
use base::op::{File, Op};
use base::{Access, Automaton, Buf, Caller, Instant, Kind, Name, Reactor as _, SetStat};
use node::Served;
use std::collections::VecDeque;
use std::time::Duration;
use store::{Block, Change, Config, Durability, Geometry, Io, Store, Ticket};
use tree::volume::verify::Verifier;
use tree::volume::{Format, Volume, format};
use tree::{Ask, Input, NodeId, Output, Reply, Request, RequestId};

/// Geometry of the volume.
const GEOMETRY: Geometry = Geometry { block: 4096, blocks: 20_000, journal: 600, segment: 1024 };
/// The same for a volume of clients of quotas only.
const SMALL: Geometry = Geometry { blocks: 3000, ..GEOMETRY };
const NOW: Instant = Instant(0);

/// A volume and its tree, accessed by straight-line code.
#[derive(Debug)]
pub(crate) struct Stage {
    file: File,
    volume: Volume,
}

/// Returns the geometry of the volume of a run.
pub(crate) fn geometry(params: &Params) -> Geometry {
    let failures = params.quotas.as_ref().map_or(0, |quotas| quotas.failures);
    if failures > 0 { SMALL } else { GEOMETRY }
}

/// Path of the volume's file.
const PATH: &[u8] = b"/srv.volume";

/// Configuration of the volume during setup.
const CONFIG: Config = Config {
    cache: 3000,
    dirty: 2000,
    interval: Duration::from_secs(5),
    read_only: false,
    accept_loss: false,
};

/// Creates the file of an empty volume.
pub(crate) fn make(world: &mut World, geometry: &Geometry) -> File {
    let mut contents = Sparse::default();
    contents.resize(geometry.blocks * geometry.block as u64);
    let file = world.add_volume(contents);
    for (at, blocks) in store::format(geometry, 7, WALL).expect("a fair geometry") {
        let (id, offset) = (base::op::OpId(0), at * geometry.block as u64);
        world.perform(&Op::WriteBlocks { id, file, offset, blocks, durable: true });
    }
    file
}

/// Opens the store in a volume's file.
pub(crate) fn open(
    world: &mut World,
    file: File,
    config: Config,
    now: Instant,
) -> (Store, Vec<store::Output>) {
    let head = world.volume(file).read(0, store::HEAD_BYTES);
    let mut outputs = Vec::new();
    let mut store = Store::open(&head, config, now, &mut outputs).expect("it is a volume");
    run_store(world, file, &mut store, now, &mut outputs);
    (store, outputs)
}

/// Performs a store's disk operations until there are none.
pub(crate) fn run_store(
    world: &mut World,
    file: File,
    store: &mut Store,
    now: Instant,
    outputs: &mut Vec<store::Output>,
) {
    let size = store.layout().block as u64;
    loop {
        store.tick(now, outputs);
        let (io, rest): (Vec<_>, Vec<_>) =
            outputs.drain(..).partition(|output| matches!(output, store::Output::Io(_)));
        *outputs = rest;
        if io.is_empty() {
            return;
        }
        for output in io {
            let store::Output::Io(io) = output else { continue };
            let id = base::op::OpId(0);
            let op = match io {
                Io::Read { at, count, .. } => {
                    Op::ReadBlocks { id, file, offset: at * size, count, size: size as u32 }
                }
                Io::Write { at, ref blocks, durable, .. } => {
                    let blocks = blocks.clone();
                    Op::WriteBlocks { id, file, offset: at * size, blocks, durable }
                }
                Io::Flush { .. } => Op::Sync { id, file, data_only: true },
            };
            let done = match world.perform(&op) {
                base::op::Done::Blocks(result) => store::IoDone::Read(result),
                base::op::Done::Stored(result) => store::IoDone::Written(result),
                base::op::Done::Synced(result) => store::IoDone::Flushed(result),
                other => unreachable!("{other:?} is not of a volume"),
            };
            store.done(now, io.id(), done, outputs);
        }
    }
}

/// Checks that the records of a closed volume are consistent.
pub(crate) fn check(world: &World, file: File) {
    let (contents, size) = (world.volume(file), GEOMETRY.block);
    let mut read = |at: u64, count: u32| {
        let block = |at: u64| contents.read(at * size as u64, size);
        let blocks = (at..at + u64::from(count)).map(block);
        Some(blocks.map(|bytes| Block::from_bytes(&bytes, size)).collect())
    };
    let mut verifier = Verifier::new(size);
    let head = contents.read(0, store::HEAD_BYTES);
    let checked = store::check::check(&mut read, &head, &mut verifier).expect("a volume");
    assert!(checked.findings.is_empty(), "{:#?}", checked.findings);
    let findings = verifier.finish();
    assert!(findings.is_empty(), "{findings:#?}");
    if let Some(expected) = world.env.expected_blocks {
        let blocks = store::Superblock::newest(&head).expect("a volume").layout.blocks;
        assert_eq!(blocks, expected, "the size of the volume, blocks");
    }
}

/// Recovers a volume after a power failure, to be served again.
pub(crate) fn served_again(world: &mut World, file: File) -> Served {
    let now = world.now();
    let (store, outputs) = open(world, file, CONFIG, now);
    Served::Volume { file, store: Box::new(store), outputs, path: PATH.to_vec() }
}

impl Stage {
    /// Returns a volume with an empty tree.
    pub(crate) fn new(world: &mut World) -> Stage {
        let file = make(world, &geometry(&world.env.params));
        let (mut store, mut outputs) = open(world, file, CONFIG, NOW);
        let chosen = Format {
            uid: 0,
            gid: 0,
            mode: 0o755,
            date: WALL,
            seed: 5,
            inodes_max: u64::MAX,
            bytes_max: u64::MAX,
        };
        let changes: Vec<Change> = format(&chosen);
        let commit = store.commit(NOW, Ticket(1), &changes, Durability::Durable, &mut outputs);
        commit.expect("there is room");
        run_store(world, file, &mut store, NOW, &mut outputs);
        let outputs = vec![store::Output::Opened(Ok(()))];
        let mut volume = Volume::new(0, file, store, WALL, false);
        volume.begin(NOW, outputs, &mut Vec::new());
        Stage { file, volume }
    }

    fn ask(&mut self, world: &mut World, ask: Ask) -> Reply {
        let request = Request { caller: Caller::Server, ask };
        let (mut out, mut answer) = (Vec::new(), None);
        self.volume.step(NOW, Input::Ask(RequestId(1), request), &mut out);
        self.volume.tick(NOW, &mut out);
        let mut to_do: VecDeque<Output> = out.drain(..).collect();
        while let Some(output) = to_do.pop_front() {
            match output {
                Output::Reply(_, reply) => answer = Some(reply.expect("the stage is sound")),
                Output::Do(op) => {
                    let id = op_id(&op);
                    let done = world.perform(&op);
                    self.volume.step(NOW, Input::Done(id, done), &mut out);
                }
                Output::Render(..)
                | Output::Command { .. }
                | Output::CancelCommand(_)
                | Output::AsClient(_) => {
                    unreachable!("no file here is rendered")
                }
            }
            self.volume.tick(NOW, &mut out);
            to_do.extend(out.drain(..));
        }
        answer.expect("every request is answered")
    }

    /// Creates a file or a directory; returns its inode, and for a directory its node.
    pub(crate) fn plant(
        &mut self,
        world: &mut World,
        dir: Option<NodeId>,
        (name, kind): (&str, Kind),
        data: &[u8],
    ) -> (u64, Option<NodeId>) {
        let dir = dir.unwrap_or(self.volume.root());
        let name = Name::new(name.as_bytes()).expect("a name of the stage");
        if kind == Kind::Directory {
            let make = Ask::MakeDir { dir, name: name.clone(), mode: 0o755, gid: None };
            let Reply::Stat(stat) = self.ask(world, make) else { unreachable!("a directory") };
            let walk = Ask::Walk { from: dir, names: vec![name] };
            let Reply::Walked(_, node) = self.ask(world, walk) else { unreachable!("a walk") };
            return (stat.inode, node);
        }
        let access = Access { write: true, ..Access::READ };
        let (exclusive, mode, gid) = (true, 0o644, None);
        let create = Ask::Create { dir, name, access, exclusive, mode, gid };
        let Reply::Created(node, open, stat) = self.ask(world, create) else {
            unreachable!("a new file")
        };
        let mut offset = 0;
        for part in data.chunks(4096) {
            self.ask(world, Ask::Write { open, offset, data: Buf::from(part) });
            offset += part.len() as u64;
        }
        self.volume.step(NOW, Input::Close(open), &mut Vec::new());
        self.volume.step(NOW, Input::Release(node), &mut Vec::new());
        (stat.inode, None)
    }

    /// Sets quotas of the root and of the files' owner that nothing exceeds: they make the node
    /// count all files.
    pub(crate) fn limit(&mut self, world: &mut World) {
        self.set_quota(world, "", "max_inodes=1000000");
        self.set_quota(world, ".user.0", "max_inodes=1000000");
    }

    /// Gives users directories in the root, and quotas without limits.
    pub(crate) fn give(&mut self, world: &mut World, dirs: &[(&str, u32)]) {
        for (name, uid) in dirs {
            let names = vec![Name::new(name.as_bytes()).expect("a name of the stage")];
            let walk = Ask::Walk { from: self.volume.root(), names };
            let Reply::Walked(_, Some(node)) = self.ask(world, walk) else {
                unreachable!("it was planted")
            };
            let set = SetStat { uid: Some(*uid), ..SetStat::default() };
            self.ask(world, Ask::SetStat { node, open: None, set });
            self.volume.step(NOW, Input::Release(node), &mut Vec::new());
            self.set_quota(world, &format!(".user.{uid}"), "max_inodes=none");
        }
    }

    fn set_quota(&mut self, world: &mut World, of: &str, value: &str) {
        let (node, name) = (self.volume.root(), format!("trusted.upcall.quota{of}").into_bytes());
        let value = value.as_bytes().to_vec();
        self.ask(world, Ask::SetAttr { node, name, value, create: None });
    }

    /// Simulates a power failure, after which the volume is opened again for the node.
    pub(crate) fn served(self, world: &mut World) -> Served {
        let Stage { file, mut volume } = self;
        let mut out = Vec::new();
        volume.close(NOW, &mut out);
        while let Some(output) = out.pop() {
            if let Output::Do(op) = output {
                let id = op_id(&op);
                let done = world.perform(&op);
                volume.step(NOW, Input::Done(id, done), &mut out);
            }
        }
        let (store, outputs) = open(world, file, CONFIG, NOW);
        Served::Volume { file, store: Box::new(store), outputs, path: PATH.to_vec() }
    }
}

fn op_id(op: &Op) -> base::op::OpId {
    match op {
        Op::ReadBlocks { id, .. } | Op::WriteBlocks { id, .. } | Op::Sync { id, .. } => *id,
        other => unreachable!("{other:?} is not of a volume"),
    }
}
