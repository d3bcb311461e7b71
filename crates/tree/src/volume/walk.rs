//! Walks by nodes and by paths; opening of files.

use super::data::{self, Bounds};
use super::permission::{READ, SEARCH, WRITE};
use super::plan::{Answer, Effects, Plan, Planned, Planner, answer};
use super::read_view::{ReadView, Stop};
use super::record::{Inode, ROOT};
use super::write_set::WriteSet;
use super::{EntryKey, NodeRef, Opening};
use crate::request::{NodeId, Reply};
use base::{Access, Buf, Error, Kind, Name, Stat};
use store::View;

/// Maximum number of symbolic links followed on one path.
const LINKS_FOLLOWED_MAX: usize = 40;
/// Maximum number of names on one path, including those of the links followed.
const NAMES_MAX: usize = 1024;

/// Position of a walk.
pub(super) struct WalkPosition {
    node_ref: NodeRef,
    place: Option<EntryKey>,
    pub(super) stat: Stat,
    /// `None` for the directory of snapshots.
    inode: Option<Inode>,
}

impl<'a> Planner<'a> {
    /// Walks names from a node. A failure after the first name only ends the walk.
    pub(super) fn walk(&self, from: NodeId, names: &[Name]) -> Planned {
        let mut here = self.here(self.volume.node_ref(from))?;
        here.place = self.volume.place(from).cloned();
        let mut stats = Vec::with_capacity(names.len());
        for name in names {
            match self.step(&here, name) {
                Ok(next) => here = next,
                Err(Stop::Failed(_)) if !stats.is_empty() => {
                    return answer(Reply::Walked(stats, None));
                }
                Err(stop) => return Err(stop),
            }
            stats.push(here.stat.clone());
        }
        Ok(Plan::Answer(Answer::Walked(stats, here.node_ref, here.place), Vec::new()))
    }

    pub(super) fn here(&self, node_ref: NodeRef) -> Result<WalkPosition, Stop> {
        let (stat, inode) = match node_ref {
            NodeRef::Snapshots => (self.snapshots_stat(), None),
            NodeRef::File(view, ino) => {
                let read_view = self.read_view(view)?;
                let inode = read_view.inode(ino)?;
                (read_view.stat(ino, &inode), Some(inode))
            }
        };
        Ok(WalkPosition { node_ref, place: None, stat, inode })
    }

    fn step(&self, from: &WalkPosition, name: &Name) -> Result<WalkPosition, Stop> {
        match (from.node_ref, &from.inode) {
            (NodeRef::File(view, ino), Some(dir)) => self.step_from(view, ino, dir, from, name),
            (NodeRef::Snapshots | NodeRef::File(..), _) if name.plain() => {
                let id = self.snapshot(name).ok_or(Error::NotFound)?;
                self.here(NodeRef::File(View::Snapshot(id), ROOT))
            }
            (node_ref, _) => self.here(node_ref),
        }
    }

    fn step_from(
        &self,
        view: View,
        ino: u64,
        dir: &Inode,
        from: &WalkPosition,
        name: &Name,
    ) -> Result<WalkPosition, Stop> {
        if !dir.is_directory() {
            return Err(Error::NotDirectory.into());
        }
        self.who.may(dir, SEARCH)?;
        if name.is_parent() {
            return match (ino, view) {
                (ROOT, View::Present) => self.here(from.node_ref),
                (ROOT, View::Snapshot(_)) => self.here(NodeRef::Snapshots),
                (_, _) => self.here(NodeRef::File(view, dir.parent)),
            };
        }
        if !name.plain() {
            return Ok(WalkPosition { place: from.place.clone(), ..self.here(from.node_ref)? });
        }
        let found = self.read_view(view)?.lookup(ino, name)?.ok_or(Error::NotFound)?;
        let place = (view == View::Present).then(|| (ino, name.clone()));
        Ok(WalkPosition { place, ..self.here(NodeRef::File(view, found.ino)).map_err(damaged)? })
    }

    pub(super) fn stat(&self, node: NodeId) -> Planned {
        answer(Reply::Stat(self.here(self.volume.node_ref(node))?.stat))
    }

    pub(super) fn open(&self, node: NodeId, access: Access) -> Planned {
        let NodeRef::File(view, ino) = self.volume.node_ref(node) else {
            if access.changes() {
                return Err(Error::IsDirectory.into());
            }
            let opening = Opening { node_ref: NodeRef::Snapshots, kind: Kind::Directory, access };
            let opened = Answer::Opened(opening, self.snapshots_stat());
            return Ok(Plan::Answer(opened, Vec::new()));
        };
        let read_view = self.read_view(view)?;
        let inode = read_view.inode(ino)?;
        if view != View::Present && access.changes() {
            return Err(Error::ReadOnly.into());
        }
        expect_plain(&inode, access)?;
        self.who.may(&inode, wanted(access))?;
        let opening = Opening { node_ref: NodeRef::File(view, ino), kind: inode.kind, access };
        if !access.truncate {
            let opened = Answer::Opened(opening, read_view.stat(ino, &inode));
            return Ok(Plan::Answer(opened, Vec::new()));
        }
        let (stat, write_set, effects) = self.emptied(ino)?;
        self.commit_as(write_set, Answer::Opened(opening, stat), effects)
    }

    /// Returns the write set that truncates a file to zero.
    pub(super) fn emptied(&self, ino: u64) -> Result<(Stat, WriteSet<'a>, Effects), Stop> {
        let (mut write_set, mut effects) = (self.write_set()?, Effects::default());
        self.resize(&mut write_set, ino, 0, &mut effects)?;
        let inode = write_set.look(ino)?;
        Ok((write_set.read_view.stat(ino, &inode), write_set, effects))
    }

    /// Looks up a file by its path from a directory, following links, and reads its beginning. From
    /// the volume's root, `..` does not lead above it, and a link that begins with `/` starts
    /// there. From another directory, either fails.
    pub(super) fn fetch(
        &self,
        from: Option<NodeId>,
        path: &[Name],
        read_max: u32,
        headroom: u32,
    ) -> Planned {
        let node_ref = self.volume.node_ref(from.unwrap_or(self.volume.root()));
        let (view, top, path) = match (node_ref, path) {
            (NodeRef::File(view, ino), path) => (view, (ino, from.is_some()), path),
            (NodeRef::Snapshots, [first, rest @ ..]) => {
                let id = self.snapshot(first).ok_or(Error::NotFound)?;
                (View::Snapshot(id), (ROOT, false), rest)
            }
            (NodeRef::Snapshots, []) => {
                let (kind, access) = (Kind::Directory, Access::READ);
                let opening = Opening { node_ref: NodeRef::Snapshots, kind, access };
                let fetched = Answer::Fetched(self.snapshots_stat(), Buf::default(), Some(opening));
                return Ok(Plan::Answer(fetched, Vec::new()));
            }
        };
        let read_view = self.read_view(view)?;
        let (ino, inode) = self.resolve(&read_view, top, path)?;
        match inode.kind {
            Kind::File | Kind::Directory => {}
            Kind::Symlink | Kind::Fifo | Kind::Socket | Kind::CharDevice | Kind::BlockDevice => {
                return Err(Error::Unsupported.into());
            }
        }
        self.who.may(&inode, READ)?;
        let stat = read_view.stat(ino, &inode);
        let access = Access::READ;
        let opening = Opening { node_ref: NodeRef::File(view, ino), kind: inode.kind, access };
        if inode.is_directory() {
            let fetched = Answer::Fetched(stat, Buf::default(), Some(opening));
            return Ok(Plan::Answer(fetched, Vec::new()));
        }
        let count = inode.size.min(read_max.into()) as usize;
        let bounds = Bounds { offset: 0, count, headroom: headroom as usize };
        let data = data::copied(&read_view, ino, bounds)?;
        let more = inode.size > data.len() as u64;
        let touched = self.note_access(view, ino, &inode);
        Ok(Plan::Answer(Answer::Fetched(stat, data, more.then_some(opening)), touched))
    }

    /// Resolves a path from a directory, confined to it or with it as the root.
    fn resolve(
        &self,
        read_view: &ReadView<'_>,
        (top, within): (u64, bool),
        path: &[Name],
    ) -> Result<(u64, Inode), Stop> {
        let (mut ino, mut inode) = (top, read_view.inode(top)?);
        let (mut links, mut passed) = (0, 0);
        // Names to walk, the next one last.
        let mut rest: Vec<Name> = path.iter().rev().cloned().collect();
        while let Some(name) = rest.pop() {
            passed += 1;
            if !inode.is_directory() {
                return Err(Error::NotDirectory.into());
            }
            self.who.may(&inode, SEARCH)?;
            let next = match name.as_bytes() {
                b"." => ino,
                b".." if within && ino == top => return Err(Error::CrossDevice.into()),
                b".." if ino == ROOT => ROOT,
                b".." => inode.parent,
                _plain => read_view.lookup(ino, &name)?.ok_or(Error::NotFound)?.ino,
            };
            let found = read_view.inode(next).map_err(damaged)?;
            if found.kind != Kind::Symlink {
                (ino, inode) = (next, found);
                continue;
            }
            links += 1;
            if links > LINKS_FOLLOWED_MAX || passed + rest.len() > NAMES_MAX {
                return Err(Error::Loop.into());
            }
            let target = data::target(read_view, next, &found)?;
            if target.starts_with(b"/") {
                if within {
                    return Err(Error::CrossDevice.into());
                }
                (ino, inode) = (ROOT, read_view.inode(ROOT)?);
            }
            let names = target.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
            let names = names.map(Name::new).collect::<Result<Vec<_>, _>>()?;
            rest.extend(names.into_iter().rev());
        }
        Ok((ino, inode))
    }
}

/// Converts an error of an entry's inode, which exists unless the volume is damaged.
pub(super) fn damaged(stop: Stop) -> Stop {
    match stop {
        Stop::Failed(Error::Stale) => Stop::Failed(Error::Io),
        other @ (Stop::Failed(_) | Stop::Missing(_) | Stop::Trimming(_) | Stop::Appending(_)) => {
            other
        }
    }
}

/// # Errors
/// Unless a file of this kind can be opened in this mode.
pub(super) fn expect_plain(inode: &Inode, access: Access) -> Result<(), Error> {
    match inode.kind {
        Kind::File => Ok(()),
        Kind::Directory if access.changes() => Err(Error::IsDirectory),
        Kind::Directory => Ok(()),
        Kind::Symlink => Err(Error::Loop),
        Kind::Fifo | Kind::Socket | Kind::CharDevice | Kind::BlockDevice => Err(Error::Unsupported),
    }
}

/// Returns the permissions required for opening a file in this mode.
pub(super) fn wanted(access: Access) -> u32 {
    let write = if access.changes() { WRITE } else { 0 };
    let read = if access.read || !(access.write || access.append) { READ } else { 0 };
    read | write
}
