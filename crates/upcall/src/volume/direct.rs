//! A volume's file tree for straight-line code: every request is completed before `ask` returns.

use super::file::{FileDisk, Opened};
use crate::clock::{self, Clock};
use base::op::{Done, File, Op, OpId};
use base::{Automaton, Caller, Error, Name, Stat, StatFs};
use reactor::{VolumeFile, error_of};
use std::collections::VecDeque;
use std::path::Path;
use store::Store;
use tree::volume::Volume;
use tree::{Ask, Input, NodeId, OpenId, Output, Reply, Request, RequestId};

/// The volume is the only tree here, and its file the only one.
const TREE: u16 = 0;
const FILE: File = File(0);

/// Number of names of one walk.
const NAMES_MAX: usize = 16;

/// Path of the directory of snapshots.
const SNAPSHOTS: [&[u8]; 2] = [b".upcall", b"snapshots"];

/// A volume and its single client.
#[derive(Debug)]
pub(crate) struct Direct {
    volume: Volume,
    disk: FileDisk,
    clock: Clock,
    printed: Vec<Output>,
    ops: VecDeque<Op>,
    next: u64,
}

impl Direct {
    /// Creates one for an open volume.
    pub(crate) fn new(opened: Opened, read_only: bool) -> Direct {
        let Opened { disk, store } = opened;
        let clock = Clock::start();
        let mut volume = Volume::new(TREE, FILE, store, clock::wall(), read_only);
        let mut printed = Vec::new();
        volume.begin(clock.now(), vec![store::Output::Opened(Ok(()))], &mut printed);
        Direct { volume, disk, clock, printed, ops: VecDeque::new(), next: 0 }
    }

    /// Returns the root directory.
    pub(crate) fn root(&self) -> NodeId {
        self.volume.root()
    }

    pub(crate) fn store(&self) -> &Store {
        self.volume.store()
    }

    /// Performs a request with all permissions, those of the volume's holder. Each request is a
    /// turn.
    pub(crate) fn ask(&mut self, ask: Ask) -> Result<Reply, Error> {
        let answer = self.answer(ask);
        self.tick();
        self.settle();
        answer
    }

    fn answer(&mut self, ask: Ask) -> Result<Reply, Error> {
        self.next += 1;
        let id = RequestId(self.next);
        let request = Request { caller: Caller::Server, ask };
        self.step(Input::Ask(id, request));
        loop {
            let mut answer = None;
            for output in self.printed.drain(..) {
                match output {
                    Output::Do(op) => self.ops.push_back(op),
                    Output::Reply(_, reply) => answer = Some(reply),
                    Output::Render(..)
                    | Output::Command { .. }
                    | Output::CancelCommand(_)
                    | Output::AsClient(_) => {
                        unreachable!("no file of a volume is rendered")
                    }
                }
            }
            if let Some(answer) = answer {
                return answer;
            }
            if !self.operate() {
                self.tick();
            }
        }
    }

    fn step(&mut self, input: Input) {
        self.volume.step(self.clock.now(), input, &mut self.printed);
    }

    /// Performs one operation; returns whether there was one.
    fn operate(&mut self) -> bool {
        let Some(op) = self.ops.pop_front() else { return false };
        let (id, done) = perform(&self.disk.file, op);
        self.step(Input::Done(id, done));
        true
    }

    fn tick(&mut self) {
        self.volume.tick(self.clock.now(), &mut self.printed);
    }

    /// Performs all pending disk operations.
    fn settle(&mut self) {
        loop {
            for output in self.printed.drain(..) {
                match output {
                    Output::Do(op) => self.ops.push_back(op),
                    Output::Reply(id, _) => unreachable!("{id:?} was answered long ago"),
                    Output::Render(..)
                    | Output::Command { .. }
                    | Output::CancelCommand(_)
                    | Output::AsClient(_) => {
                        unreachable!("no file of a volume is rendered")
                    }
                }
            }
            if !self.operate() {
                return;
            }
        }
    }

    /// Releases a reference to a file.
    pub(crate) fn release(&mut self, node: NodeId) {
        if node != self.volume.root() && node != self.volume.snapshots_root() {
            self.step(Input::Release(node));
        }
    }

    /// Closes a file.
    pub(crate) fn close(&mut self, open: OpenId) {
        self.step(Input::Close(open));
    }

    /// Performs one step from a directory.
    pub(crate) fn find(&mut self, dir: NodeId, name: &Name) -> Result<(NodeId, Stat), Error> {
        let names = vec![name.clone()];
        match self.ask(Ask::Walk { from: dir, names })? {
            Reply::Walked(mut stats, Some(node)) => Ok((node, stats.pop().ok_or(Error::NotFound)?)),
            _ => Err(Error::NotFound),
        }
    }

    /// Looks up a file by its path, also in a snapshot; links are not followed.
    pub(crate) fn resolve(&mut self, path: &[Name]) -> Result<NodeId, Error> {
        let snapshots = path.len() >= 2
            && SNAPSHOTS.iter().zip(path).all(|(part, name)| *part == name.as_bytes());
        let (mut here, rest) = match snapshots {
            true => (self.volume.snapshots_root(), &path[2..]),
            false => (self.volume.root(), path),
        };
        for names in rest.chunks(NAMES_MAX) {
            let walked = self.ask(Ask::Walk { from: here, names: names.to_vec() });
            self.release(here);
            match walked? {
                Reply::Walked(_, Some(node)) => here = node,
                _ => return Err(Error::NotFound),
            }
        }
        Ok(here)
    }

    /// Returns the attributes of a file.
    pub(crate) fn stat(&mut self, node: NodeId) -> Result<Stat, Error> {
        match self.ask(Ask::Stat { node })? {
            Reply::Stat(stat) => Ok(stat),
            _ => Err(Error::Io),
        }
    }

    /// Returns the usage of the volume.
    pub(crate) fn stat_fs(&mut self) -> Result<StatFs, Error> {
        match self.ask(Ask::StatFs { node: self.root() })? {
            Reply::StatFs(full) => Ok(full),
            _ => Err(Error::Io),
        }
    }

    /// Makes everything so far durable.
    pub(crate) fn sync(&mut self) -> Result<(), Error> {
        let access = base::Access::READ;
        let Reply::Opened(open, _) = self.ask(Ask::Open { node: self.root(), access })? else {
            return Err(Error::Io);
        };
        let synced = self.ask(Ask::Sync { open, data_only: false });
        self.close(open);
        synced.map(|_| ())
    }

    /// Closes the volume.
    ///
    /// # Errors
    /// The next step.
    pub(crate) fn finish(mut self, path: &Path) -> Result<(), String> {
        self.volume.close(self.clock.now(), &mut self.printed);
        loop {
            self.settle();
            match self.volume.is_closed() {
                Some(result) => {
                    return result.map_err(|error| {
                        format!("{}: {error}; look at the disk, then try again", path.display())
                    });
                }
                None => self.tick(),
            }
        }
    }

    /// Returns the open volume, for another use. Nothing was changed.
    pub(crate) fn into_opened(mut self) -> Opened {
        self.settle();
        Opened { disk: self.disk, store: self.volume.into_store() }
    }
}

/// Performs one operation of a volume.
fn perform(file: &VolumeFile, op: Op) -> (OpId, Done) {
    match op {
        Op::ReadBlocks { id, file: _, offset, count, size } => {
            let blocks = file.read_blocks(offset, count as usize, size as usize);
            (id, Done::Blocks(blocks.map_err(error_of)))
        }
        Op::WriteBlocks { id, file: _, offset, blocks, durable } => {
            let stored = file.write_blocks(offset, &blocks, durable);
            (id, Done::Stored(stored.map_err(error_of)))
        }
        Op::Sync { id, .. } => (id, Done::Synced(file.sync().map_err(error_of))),
        other @ (Op::Accept { .. }
        | Op::CloseListener { .. }
        | Op::Connect { .. }
        | Op::Post { .. }
        | Op::Receive { .. }
        | Op::Send { .. }
        | Op::Finish { .. }
        | Op::Hangup { .. }
        | Op::CloseSocket { .. }
        | Op::Read { .. }
        | Op::Write { .. }
        | Op::Path { .. }
        | Op::CloseFile { .. }
        | Op::Cancel { .. }) => unreachable!("{other:?} of a volume"),
    }
}
