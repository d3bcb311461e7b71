//! A tree of empty directories, for use as mount points.
//!
//! It serves as the root of a namespace without a tree at its root (the thesis's `fsthread`, §4.2,
//! serves that from memory). It is immutable, so its only state is its open directories.

#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "what is not a read of a directory is not supported by it"
)]

use crate::request::{Ask, Input, NodeId, OpenId, Output, Reply};
use base::op::Entry;
use base::{Automaton, Buf, Error, Instant, Kind, Name, Stat, Time};
use slab::Slab;
use std::collections::BTreeMap;

#[cfg(test)]
mod tests;

/// Maximum number of open directories.
pub const OPENS_MAX: usize = 65_536;

/// Device number of these directories; no host has it.
const DEVICE: u64 = u64::MAX - 1;
const ROOT: usize = 0;

#[derive(Debug, Default)]
struct Directory {
    parent: usize,
    children: BTreeMap<Name, usize>,
}

/// The tree of empty directories. A node's number is that of its directory.
#[derive(Debug)]
pub struct Skeleton {
    index: u16,
    started: Time,
    directories: Vec<Directory>,
    opens: Slab<usize>,
}

impl Skeleton {
    /// Returns the tree with number `index`, with these directories and all above them.
    pub fn new(index: u16, started: Time, paths: &[Vec<Name>]) -> Skeleton {
        let directories = vec![Directory::default()];
        let mut skeleton = Skeleton { index, started, directories, opens: Slab::new() };
        for path in paths {
            path.iter().fold(ROOT, |at, name| skeleton.enter(at, name));
        }
        skeleton
    }

    fn enter(&mut self, parent: usize, name: &Name) -> usize {
        let new = self.directories.len();
        let found = *self.directories[parent].children.entry(name.clone()).or_insert(new);
        if found == new {
            self.directories.push(Directory { parent, children: BTreeMap::new() });
        }
        found
    }

    /// Returns the root.
    pub fn root(&self) -> NodeId {
        NodeId::new(self.index, ROOT)
    }

    /// Returns the root's attributes.
    pub fn root_stat(&self) -> Stat {
        self.stat(ROOT)
    }

    /// Returns the number of open directories.
    pub fn opens(&self) -> usize {
        self.opens.len()
    }

    fn answer(&mut self, ask: Ask) -> Result<Reply, Error> {
        match ask {
            Ask::Open { access, .. } if access.changes() => Err(Error::IsDirectory),
            ask if ask.changes() => Err(Error::ReadOnly),
            Ask::Walk { from, names } => self.walk(from.local(), &names),
            Ask::Fetch { root, path, headroom, .. } => {
                let start = root.map_or(ROOT, NodeId::local);
                let found = path.iter().try_fold(start, |at, name| {
                    self.directories[at].children.get(name).copied().ok_or(Error::NotFound)
                })?;
                let open = self.open(found)?;
                let data = Buf::with_room(headroom as usize, 0);
                Ok(Reply::Fetched(self.stat(found), data, Some(open)))
            }
            Ask::Stat { node } => Ok(Reply::Stat(self.stat(node.local()))),
            Ask::Open { node, .. } => {
                Ok(Reply::Opened(self.open(node.local())?, self.stat(node.local())))
            }
            Ask::Read { .. } => Err(Error::IsDirectory),
            Ask::List { open, cookie, detail, .. } => {
                Ok(self.list(open, cookie, detail.has_stat()))
            }
            other => crate::flat::answer(&other),
        }
    }

    fn walk(&self, mut at: usize, names: &[Name]) -> Result<Reply, Error> {
        let mut stats = Vec::new();
        for name in names {
            let directory = &self.directories[at];
            let next = match name.as_bytes() {
                b"." => Some(at),
                b".." => Some(directory.parent),
                _other => directory.children.get(name).copied(),
            };
            match next {
                Some(next) => at = next,
                None if stats.is_empty() => return Err(Error::NotFound),
                None => return Ok(Reply::Walked(stats, None)),
            }
            stats.push(self.stat(at));
        }
        Ok(Reply::Walked(stats, Some(NodeId::new(self.index, at))))
    }

    fn open(&mut self, directory: usize) -> Result<OpenId, Error> {
        if self.opens.len() >= OPENS_MAX {
            return Err(Error::TooManyOpen);
        }
        Ok(OpenId::new(self.index, self.opens.insert(directory)))
    }

    fn list(&self, open: OpenId, cookie: u64, with_stat: bool) -> Reply {
        let directory = &self.directories[self.opens[open.local()]];
        let seen = usize::try_from(cookie).unwrap_or(usize::MAX);
        let entry = |(number, (name, child)): (u64, (&Name, &usize))| Entry {
            cookie: number,
            inode: *child as u64,
            device: None,
            kind: Kind::Directory,
            name: name.clone(),
            stat: with_stat.then(|| self.stat(*child)),
            handle: None,
        };
        Reply::Entries((1..).zip(&directory.children).skip(seen).map(entry).collect())
    }

    fn stat(&self, directory: usize) -> Stat {
        let (accessed, modified, changed) = (self.started, self.started, self.started);
        let (kind, mode, inode) = (Kind::Directory, 0o555, directory as u64);
        let links = 2 + self.directories[directory].children.len() as u32;
        let (device, block_size) = (DEVICE, 4096);
        Stat {
            kind,
            mode,
            links,
            device,
            inode,
            block_size,
            accessed,
            modified,
            changed,
            ..Stat::default()
        }
    }
}

impl Automaton for Skeleton {
    type Input = Input;
    type Output = Output;

    fn step(&mut self, _now: Instant, input: Input, out: &mut Vec<Output>) {
        match input {
            Input::Ask(id, request) => {
                let answer = self.answer(request.ask);
                out.push(Output::Reply(id, answer));
            }
            // All requests are answered at once, and nodes are numbers.
            Input::Cancel(_) | Input::Release(_) => {}
            Input::Close(open) | Input::Abandon(open) => drop(self.opens.remove(open.local())),
            Input::Done(op, done) => unreachable!("{op:?} {done:?}: no operation was requested"),
            Input::Rendered(ticket, _)
            | Input::Commanded(ticket, _)
            | Input::Answered(ticket, _) => {
                unreachable!("{ticket}: no file here is rendered")
            }
        }
    }

    fn check(&self) {
        assert!(self.opens.len() <= OPENS_MAX);
        assert!(self.directories.iter().all(|one| one.parent < self.directories.len()));
        for (number, directory) in self.directories.iter().enumerate() {
            for child in directory.children.values() {
                assert_eq!(
                    self.directories[*child].parent, number,
                    "a directory knows where it is"
                );
            }
        }
        assert!(self.opens.iter().all(|(_, at)| *at < self.directories.len()), "it is there");
    }
}
