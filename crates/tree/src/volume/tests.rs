//! A volume in a simulated world: a disk in memory, one request at a time.

#![allow(clippy::wildcard_enum_match_arm, reason = "a test expects one variant")]

mod attributes;
mod batch;
mod concurrent;
mod contents;
mod drawing;
mod file_handles;
mod limits;
mod listing;
mod naming;
mod orphans;
mod permissions;
mod quotas;
mod random;
mod replacing;
mod snapshots;
mod through;
mod times;

use super::record::{INODES, Inode, of_key};
use super::verify::{RECORDS, Verifier};
use super::*;
use base::op::{Detail, Entry, Op, PathDone, PathOp, Who};
use base::{Access, Buf, Caller, Kind, Name, SetStat, Stat, StatFs, User};
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;
use store::drive::{Disk, Memory};
use store::{Config, Geometry};

/// Time without power, nanoseconds.
const OFF: u64 = 1_000_000_000;

/// Wall-clock time at instant zero of the tests.
const WALL: Time = Time { secs: 1_000_000, nanos: 0 };

const WRITE: Access = Access { read: true, write: true, ..NONE };
const APPEND: Access = Access { append: true, ..NONE };
const TRUNCATE: Access = Access { truncate: true, ..WRITE };
const NONE: Access =
    Access { read: false, write: false, append: false, truncate: false, sync: false };

fn user(uid: u32, groups: &[u32]) -> Caller {
    Caller::User(Arc::new(User { uid, gid: uid, groups: groups.to_vec(), commands: false }))
}

fn root() -> Caller {
    user(0, &[])
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

fn names(path: &str) -> Vec<Name> {
    path.split('/').filter(|part| !part.is_empty()).map(name).collect()
}

/// Directory and last name of a path.
fn split(path: &str) -> (&str, Name) {
    let (dir, last) = path.rsplit_once('/').unwrap_or(("", path));
    (dir, name(last))
}

fn usual() -> Format {
    let (inodes_max, bytes_max) = (u64::MAX, u64::MAX);
    Format { uid: 0, gid: 0, mode: 0o777, date: WALL, seed: 7, inodes_max, bytes_max }
}

struct Lab {
    volume: Volume,
    world: World,
    /// Current time, ns; each request takes some.
    now: u64,
    requested: u64,
    /// Identity of the caller.
    caller: Caller,
    replies: Vec<(RequestId, Result<Reply, Error>)>,
    /// Operations in flight.
    ops: VecDeque<Op>,
}

impl Lab {
    fn new() -> Lab {
        Lab::made(&usual(), World::new())
    }

    fn made(chosen: &Format, mut world: World) -> Lab {
        let store = world.make(&format(chosen));
        let mut lab = Lab::of(store, world, 0);
        lab.idle();
        lab
    }

    /// Returns the volume of a store that is opened at this time, nanoseconds.
    fn of(store: Store, world: World, now: u64) -> Lab {
        let mut volume = Volume::new(3, File(9), store, WALL, false);
        volume.begin(Instant(now), vec![store::Output::Opened(Ok(()))], &mut Vec::new());
        let (replies, ops) = (Vec::new(), VecDeque::new());
        Lab { volume, world, now, requested: 0, caller: root(), replies, ops }
    }

    /// Makes everything durable, then reopens the volume after a power failure.
    fn reopen(mut self) -> Lab {
        self.idle();
        let root = self.volume.root();
        let open = self.open_node(root, Access::READ).unwrap();
        self.done(Ask::Sync { open, data_only: false }).unwrap();
        self.crash()
    }

    /// Reopens the volume after a power failure.
    fn crash(mut self) -> Lab {
        self.world.disk.lose_power();
        let (now, requested) = (self.now + OFF, self.requested);
        let store = self.world.open();
        let mut lab = Lab { requested, ..Lab::of(store, self.world, now) };
        lab.idle();
        lab
    }

    fn instant(&mut self) -> Instant {
        self.now += 1000;
        Instant(self.now)
    }

    fn input(&mut self, input: Input) {
        let (now, mut out) = (self.instant(), Vec::new());
        self.volume.step(now, input, &mut out);
        self.volume.check();
        self.perform(out);
    }

    fn perform(&mut self, out: Vec<Output>) {
        for output in out {
            match output {
                Output::Reply(id, reply) => self.replies.push((id, reply)),
                Output::Do(op) => self.ops.push_back(op),
                Output::Render(..)
                | Output::Command { .. }
                | Output::CancelCommand(_)
                | Output::AsClient(_) => {
                    unreachable!("nothing is rendered")
                }
            }
        }
    }

    /// Performs one operation; returns whether there was one.
    fn operate(&mut self) -> bool {
        let Some(op) = self.ops.pop_front() else { return false };
        let (id, done) = self.world.perform(op);
        self.input(Input::Done(id, done));
        true
    }

    /// Performs one tick, if one is due; returns whether it was.
    fn tick(&mut self) -> bool {
        let Some(deadline) = self.volume.deadline() else { return false };
        self.now = self.now.max(deadline.0);
        let (now, mut out) = (self.instant(), Vec::new());
        self.volume.tick(now, &mut out);
        self.volume.check();
        self.perform(out);
        true
    }

    /// Runs all pending and background work.
    fn idle(&mut self) {
        for _ in 0..100_000 {
            let quiet = ["idle", "over"];
            let reaps = !quiet.contains(&self.volume.reaper.name());
            let counts = !quiet.contains(&self.volume.counting.name());
            if !self.operate() {
                if !reaps && !counts {
                    return;
                }
                self.tick();
            }
        }
        panic!("never idle");
    }

    fn begin(&mut self, ask: Ask) -> RequestId {
        self.requested += 1;
        let id = RequestId(self.requested);
        self.input(Input::Ask(id, Request { caller: self.caller.clone(), ask }));
        id
    }

    fn answered(&mut self, id: RequestId) -> Option<Result<Reply, Error>> {
        let at = self.replies.iter().position(|(known, _)| *known == id)?;
        Some(self.replies.remove(at).1)
    }

    fn ask(&mut self, ask: Ask) -> Result<Reply, Error> {
        let id = self.begin(ask);
        for _ in 0..10_000 {
            if let Some(reply) = self.answered(id) {
                return reply;
            }
            assert!(self.operate() || self.tick(), "nothing is going to answer");
        }
        panic!("no answer");
    }

    fn done(&mut self, ask: Ask) -> Result<(), Error> {
        match self.ask(ask)? {
            Reply::Done | Reply::Stat(_) => Ok(()),
            other => panic!("{other:?}"),
        }
    }

    fn release(&mut self, node: NodeId) {
        self.input(Input::Release(node));
    }

    fn close(&mut self, open: OpenId) {
        self.input(Input::Close(open));
    }

    fn walk_from(&mut self, from: NodeId, path: &str) -> Result<NodeId, Error> {
        let mut here = from;
        for (index, part) in names(path).chunks(16).enumerate() {
            let walked = self.ask(Ask::Walk { from: here, names: part.to_vec() });
            if index > 0 {
                self.release(here);
            }
            match walked? {
                Reply::Walked(stats, Some(node)) => {
                    assert_eq!(stats.len(), part.len());
                    here = node;
                }
                Reply::Walked(_, None) => return Err(Error::NotFound),
                other => panic!("{other:?}"),
            }
        }
        if here == from {
            let Ok(Reply::Walked(_, Some(node))) = self.ask(Ask::Walk { from, names: Vec::new() })
            else {
                panic!("one more reference");
            };
            here = node;
        }
        Ok(here)
    }

    fn walk(&mut self, path: &str) -> Result<NodeId, Error> {
        self.walk_from(self.volume.root(), path)
    }

    /// Runs a function on the node of a path.
    fn at<T>(
        &mut self,
        path: &str,
        then: impl FnOnce(&mut Lab, NodeId) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let node = self.walk(path)?;
        let result = then(self, node);
        self.release(node);
        result
    }

    fn stat(&mut self, path: &str) -> Result<Stat, Error> {
        self.at(path, |lab, node| lab.stat_node(node))
    }

    fn stat_node(&mut self, node: NodeId) -> Result<Stat, Error> {
        match self.ask(Ask::Stat { node })? {
            Reply::Stat(stat) => Ok(stat),
            other => panic!("{other:?}"),
        }
    }

    fn set(&mut self, path: &str, set: SetStat) -> Result<(), Error> {
        self.at(path, |lab, node| lab.done(Ask::SetStat { node, open: None, set }))
    }

    fn chmod(&mut self, path: &str, mode: u32) -> Result<(), Error> {
        self.set(path, SetStat { mode: Some(mode), ..SetStat::default() })
    }

    fn chown(&mut self, path: &str, uid: u32, gid: u32) -> Result<(), Error> {
        let keep = |id: u32| (id != u32::MAX).then_some(id);
        self.set(path, SetStat { uid: keep(uid), gid: keep(gid), ..SetStat::default() })
    }

    fn resize(&mut self, path: &str, size: u64) -> Result<(), Error> {
        self.set(path, SetStat { size: Some(size), ..SetStat::default() })
    }

    fn make_dir(&mut self, path: &str, mode: u32) -> Result<(), Error> {
        let (dir, name) = split(path);
        self.at(dir, |lab, dir| lab.done(Ask::MakeDir { dir, name, mode, gid: None }))
    }

    fn symlink(&mut self, path: &str, target: &str) -> Result<(), Error> {
        let ((dir, name), target) = (split(path), target.as_bytes().to_vec());
        self.at(dir, |lab, dir| lab.done(Ask::Symlink { dir, name, target, gid: None }))
    }

    fn make_node(&mut self, path: &str, kind: Kind, device: u64) -> Result<(), Error> {
        let ((dir, name), mode) = (split(path), 0o644);
        self.at(dir, |lab, dir| {
            lab.done(Ask::MakeNode { dir, name, kind, mode, device, gid: None })
        })
    }

    fn create_with(
        &mut self,
        path: &str,
        access: Access,
        exclusive: bool,
        mode: u32,
    ) -> Result<(NodeId, OpenId), Error> {
        let (dir, name) = split(path);
        self.at(dir, |lab, dir| {
            match lab.ask(Ask::Create { dir, name, access, exclusive, mode, gid: None })? {
                Reply::Created(node, open, _) => Ok((node, open)),
                other => panic!("{other:?}"),
            }
        })
    }

    fn create(&mut self, path: &str, mode: u32) -> Result<(), Error> {
        let (node, open) = self.create_with(path, WRITE, true, mode)?;
        self.close(open);
        self.release(node);
        Ok(())
    }

    fn open(&mut self, path: &str, access: Access) -> Result<OpenId, Error> {
        self.at(path, |lab, node| lab.open_node(node, access))
    }

    fn open_node(&mut self, node: NodeId, access: Access) -> Result<OpenId, Error> {
        match self.ask(Ask::Open { node, access })? {
            Reply::Opened(open, _) => Ok(open),
            other => panic!("{other:?}"),
        }
    }

    fn write_open(&mut self, open: OpenId, offset: u64, data: &[u8]) -> Result<usize, Error> {
        match self.ask(Ask::Write { open, offset, data: Buf::from(data) })? {
            Reply::Written(count) => Ok(count as usize),
            other => panic!("{other:?}"),
        }
    }

    fn read_open(&mut self, open: OpenId, offset: u64, count: u32) -> Result<Vec<u8>, Error> {
        match self.ask(Ask::Read { open, offset, count, headroom: 11 })? {
            Reply::Data(data) => {
                assert_eq!(data.headroom(), 11);
                Ok(data.to_vec())
            }
            Reply::Pieces(pieces) => Ok(pieces.iter().flat_map(|piece| piece.to_vec()).collect()),
            other => panic!("{other:?}"),
        }
    }

    /// Writes all of it, in as many requests as necessary.
    fn write(&mut self, path: &str, offset: u64, data: &[u8]) -> Result<(), Error> {
        let open = self.open(path, WRITE)?;
        let mut written = 0;
        while written < data.len() {
            let count = self.write_open(open, offset + written as u64, &data[written..]);
            match count {
                Ok(count) => written += count,
                Err(error) => {
                    self.close(open);
                    return Err(error);
                }
            }
        }
        self.close(open);
        Ok(())
    }

    fn read(&mut self, path: &str) -> Result<Vec<u8>, Error> {
        let open = self.open(path, Access::READ)?;
        let mut all = Vec::new();
        loop {
            let more = self.read_open(open, all.len() as u64, 100_000)?;
            if more.is_empty() {
                break;
            }
            all.extend(more);
        }
        self.close(open);
        Ok(all)
    }

    fn remove(&mut self, path: &str) -> Result<(), Error> {
        self.remove_as(path, None)
    }

    fn remove_as(&mut self, path: &str, directory: Option<bool>) -> Result<(), Error> {
        let (dir, name) = split(path);
        self.at(dir, |lab, dir| lab.done(Ask::Remove { dir, name, directory }))
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<(), Error> {
        let ((from, name), (to, new_name)) = (split(from), split(to));
        let from = self.walk(from)?;
        let result = self
            .at(to, |lab, to| lab.done(Ask::Rename { from, name, to, new_name, replace: true }));
        self.release(from);
        result
    }

    fn link(&mut self, path: &str, new: &str) -> Result<(), Error> {
        let (dir, name) = split(new);
        let node = self.walk(path)?;
        let result = self.at(dir, |lab, dir| lab.done(Ask::Link { node, dir, name }));
        self.release(node);
        result
    }

    fn list_open(&mut self, open: OpenId, cookie: u64, bytes: u32) -> Vec<Entry> {
        let ask = Ask::List { open, cookie, bytes_max: bytes, detail: Detail::Name };
        match self.ask(ask).unwrap() {
            Reply::Entries(entries) => entries,
            other => panic!("{other:?}"),
        }
    }

    /// Returns all names in a directory, sorted.
    fn list(&mut self, path: &str) -> Vec<String> {
        let open = self.open(path, Access::READ).unwrap();
        let (mut names, mut cookie) = (Vec::new(), 0);
        loop {
            let entries = self.list_open(open, cookie, 1000);
            let Some(last) = entries.last() else { break };
            cookie = last.cookie;
            names.extend(entries.iter().map(|entry| entry.name.to_string()));
        }
        self.close(open);
        names.sort();
        names
    }

    fn stat_fs(&mut self) -> StatFs {
        match self.ask(Ask::StatFs { node: self.volume.root() }).unwrap() {
            Reply::StatFs(stat) => stat,
            other => panic!("{other:?}"),
        }
    }

    /// Asserts the consistency of all records.
    fn verify(&mut self) {
        self.idle();
        let findings = self.findings();
        assert!(findings.is_empty(), "{findings:#?}");
        assert_eq!(self.volume.pending.len(), 0, "{:?}", self.volume.pending);
        assert!(self.replies.is_empty(), "{:?}", self.replies);
    }

    /// Returns all findings of the verifier.
    fn findings(&mut self) -> Vec<String> {
        let block = self.volume.store.layout().block;
        let (mut verifier, mut files) = (Verifier::new(block), Vec::new());
        for table in RECORDS {
            for (key, value) in self.records(table) {
                verifier.record(table, &key, &value);
                let inode = Inode::decode(&value).filter(|inode| !inode.is_directory());
                if table == INODES && inode.is_some() {
                    files.push(of_key(&key).unwrap());
                }
            }
        }
        for ino in files {
            self.runs(ino, 0, 1 << 62, &mut verifier);
        }
        verifier.finish().iter().map(ToString::to_string).collect()
    }

    /// Closes the volume and checks its disk.
    fn check_disk(mut self) -> Lab {
        self.idle();
        let (now, mut out) = (self.instant(), Vec::new());
        self.volume.close(now, &mut out);
        self.perform(out);
        while self.volume.is_closed().is_none() {
            assert!(self.operate() || self.tick());
        }
        assert_eq!(self.volume.is_closed(), Some(Ok(())));
        let mut verifier = Verifier::new(self.volume.store.layout().block);
        let disk = &mut self.world.disk;
        let head = disk.head().unwrap();
        let mut read = |at, count| disk.read(at, count).ok();
        let checked = store::check::check(&mut read, &head, &mut verifier).unwrap();
        assert!(checked.findings.is_empty(), "{:#?}", checked.findings);
        assert_eq!(verifier.finish(), []);
        self.crash()
    }

    /// Reads the store until no pages are missing.
    fn look<T>(&mut self, mut at: impl FnMut(&ReadView<'_>) -> Result<T, Stop>) -> T {
        loop {
            let result = self.volume.read_view(View::Present).and_then(|read_view| at(&read_view));
            let missing = match result {
                Ok(found) => return found,
                Err(Stop::Missing(missing)) => missing,
                Err(other) => panic!("{other:?}"),
            };
            let mut outputs = Vec::new();
            self.volume.store.fetch(Instant(self.now), LOOSE, missing, &mut outputs);
            self.world.run(&mut self.volume.store, outputs, |output| match output {
                store::Output::Fetched(..) => Some(()),
                _other => None,
            });
        }
    }

    /// Returns the number of counted blocks of contents.
    fn blocks(&mut self) -> u64 {
        self.look(|read_view| read_view.counters()).blocks
    }

    /// Returns all records of a table.
    fn records(&mut self, table: store::Table) -> Vec<(Vec<u8>, Vec<u8>)> {
        let (mut all, mut from) = (Vec::new(), Vec::new());
        loop {
            let some: Vec<(Vec<u8>, Vec<u8>)> = self.look(|read_view| {
                let mut some = Vec::new();
                read_view.reader.scan(table, &from, &mut |key, value| {
                    some.push((key.to_vec(), value.bytes().into_owned()));
                    match some.len() {
                        100.. => ControlFlow::Break(()),
                        _few => ControlFlow::Continue(()),
                    }
                })?;
                Ok(some)
            });
            let Some((last, _)) = some.last() else { return all };
            from = [&last[..], &[0]].concat();
            all.extend(some);
        }
    }

    /// Passes the allocated ranges of a file to the verifier, by bisection.
    fn runs(&mut self, ino: u64, from: u64, to: u64, verifier: &mut Verifier) {
        let block = self.volume.store.layout().block as u64;
        let count = self.look(|read_view| super::data::covered(read_view, ino, from, to));
        let blocks = (to - from) / block;
        if count == blocks {
            verifier.data(ino, from, blocks);
        } else if count > 0 {
            let middle = from + (blocks / 2) * block;
            self.runs(ino, from, middle, verifier);
            self.runs(ino, middle, to, verifier);
        }
    }
}

/// The environment: the disk, and the host's users.
struct World {
    disk: Memory,
    config: Config,
    /// Error of every write, if writes fail.
    failing: Option<Error>,
    /// Whether every read fails.
    unreadable: bool,
}

impl World {
    fn new() -> World {
        World::with(4096, 1 << 15)
    }

    /// Returns a disk with this number of blocks of this size, bytes. The cache is so small that
    /// plans miss pages.
    fn with(block: usize, blocks: u64) -> World {
        let geometry = Geometry { block, blocks, journal: 2048, segment: 1024 };
        let disk = Memory::formatted(&geometry).unwrap();
        let interval = Duration::from_secs(5);
        let (read_only, accept_loss) = (false, false);
        let config = Config { cache: 300, dirty: 200, interval, read_only, accept_loss };
        World { disk, config, failing: None, unreadable: false }
    }

    /// Opens the store, and runs it until it is open.
    fn open(&mut self) -> Store {
        let mut outputs = Vec::new();
        let head = self.disk.head().unwrap();
        let mut store = Store::open(&head, self.config, Instant(0), &mut outputs).unwrap();
        let opened = self.run(&mut store, outputs, |output| match output {
            store::Output::Opened(result) => Some(*result),
            _other => None,
        });
        opened.unwrap();
        store
    }

    /// Runs a store until it has the wanted output.
    fn run<T>(
        &mut self,
        store: &mut Store,
        mut outputs: Vec<store::Output>,
        wanted: impl Fn(&store::Output) -> Option<T>,
    ) -> T {
        for _ in 0..100_000 {
            let turn = mem::take(&mut outputs);
            let quiet = turn.is_empty();
            for output in turn {
                if let Some(found) = wanted(&output) {
                    return found;
                }
                if let store::Output::Io(io) = output {
                    let (id, done) = store::drive::perform(&mut self.disk, &io);
                    store.done(Instant(0), id, done, &mut outputs);
                }
            }
            if quiet {
                store.tick(Instant(0), &mut outputs);
            }
        }
        panic!("the store never says so");
    }

    fn make(&mut self, changes: &[store::Change]) -> Store {
        let (mut store, mut outputs) = (self.open(), Vec::new());
        let durable = Durability::Durable;
        store.commit(Instant(0), LOOSE, changes, durable, &mut outputs).unwrap();
        self.run(&mut store, outputs, |output| match output {
            store::Output::Committed(..) => Some(()),
            _other => None,
        });
        store
    }

    fn perform(&mut self, op: Op) -> (OpId, Done) {
        match op {
            Op::ReadBlocks { id, .. } if self.unreadable => (id, Done::Blocks(Err(Error::Io))),
            Op::ReadBlocks { id, offset, count, size, .. } => {
                (id, Done::Blocks(self.disk.read(offset / u64::from(size), count)))
            }
            Op::WriteBlocks { id, .. } if self.failing.is_some() => {
                (id, Done::Stored(self.failing.map_or(Ok(()), Err)))
            }
            Op::Sync { id, .. } if self.failing.is_some() => {
                (id, Done::Synced(self.failing.map_or(Ok(()), Err)))
            }
            Op::WriteBlocks { id, offset, blocks, durable, .. } => {
                let at = offset / blocks[0].len() as u64;
                (id, Done::Stored(self.disk.write(at, &blocks, durable)))
            }
            Op::Sync { id, .. } => (id, Done::Synced(self.disk.flush())),
            Op::Path { id, op: PathOp::Identify { who }, .. } => {
                let found = match who {
                    Who::Uid(uid) => {
                        Ok(User { uid, gid: uid, groups: Vec::new(), commands: false })
                    }
                    Who::Name(_) => Err(Error::NotFound),
                };
                (id, Done::Path(found.map(PathDone::User)))
            }
            other => panic!("{other:?}"),
        }
    }
}
