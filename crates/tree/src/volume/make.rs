//! Creation of files of every kind, and hard links.

use super::data;
use super::permission::{SEARCH, WRITE};
use super::plan::{Answer, Effects, Plan, Planned, Planner, answer};
use super::read_view::Stop;
use super::record::{DATA, FreeReason, Inode, ORPHANS, Orphan, TARGET_MAX, key};
use super::walk::{damaged, expect_plain, wanted};
use super::write_set::{LINKS_MAX, WriteSet};
use super::{NodeRef, Opening};
use crate::request::{NodeId, Reply};
use base::{Access, Error, Kind, Name};
use store::{Change, View};

/// Maximum length of a target stored in the inode's record, bytes.
const TARGET_SHORT: usize = 255;

/// Parameters of a new file.
struct New<'n> {
    kind: Kind,
    /// Permission bits, and the group if the client chooses it.
    mode: (u32, Option<u32>),
    device: u64,
    target: &'n [u8],
}

impl New<'_> {
    fn plain(kind: Kind, mode: (u32, Option<u32>)) -> New<'static> {
        New { kind, mode, device: 0, target: &[] }
    }
}

impl Planner<'_> {
    /// Creates a file and opens it, or opens an existing one.
    pub(super) fn create(
        &self,
        dir: NodeId,
        name: &Name,
        access: Access,
        exclusive: bool,
        mode: (u32, Option<u32>),
    ) -> Planned {
        let dir = self.changeable(dir)?;
        let mut write_set = self.write_set()?;
        let place = (dir, name.clone());
        let opening =
            |ino| Opening { node_ref: NodeRef::File(View::Present, ino), kind: Kind::File, access };
        let Some(ino) = self.search(&write_set, dir, name)? else {
            let ino = self.make(&mut write_set, dir, name, &New::plain(Kind::File, mode))?;
            let stat = write_set.read_view.stat(ino, &write_set.look(ino)?);
            let created = Answer::Created(opening(ino), Some(place), stat);
            return self.commit_as(write_set, created, Effects::default());
        };
        if exclusive {
            return Err(Error::Exists.into());
        }
        let inode = write_set.look(ino).map_err(damaged)?;
        if inode.is_directory() {
            return Err(Error::IsDirectory.into());
        }
        expect_plain(&inode, access)?;
        self.who.may(&inode, wanted(access))?;
        if !access.truncate {
            let stat = write_set.read_view.stat(ino, &inode);
            return Ok(Plan::Answer(Answer::Created(opening(ino), Some(place), stat), Vec::new()));
        }
        let (stat, write_set, effects) = self.emptied(ino)?;
        self.commit_as(write_set, Answer::Created(opening(ino), Some(place), stat), effects)
    }

    /// Creates an unnamed file and opens it. It is an orphan from the start: it is freed after its
    /// last use, or after the next opening of the volume.
    pub(super) fn create_unnamed(&self, dir: NodeId, access: Access, mode: u32) -> Planned {
        let dir = self.changeable(dir)?;
        let mut write_set = self.write_set()?;
        if !write_set.look(dir)?.is_directory() {
            return Err(Error::NotDirectory.into());
        }
        self.expect_writable(&write_set, dir)?;
        let ino = self.add(&mut write_set, dir, &New::plain(Kind::File, (mode, None)))?;
        write_set.inode(ino)?.links = 0;
        write_set.put(
            ORPHANS,
            key(ino).to_vec(),
            Orphan { why: FreeReason::Nameless, end: 0 }.encode(),
        );
        let stat = write_set.read_view.stat(ino, &write_set.look(ino)?);
        let access = Access { write: true, ..access };
        let opening =
            Opening { node_ref: NodeRef::File(View::Present, ino), kind: Kind::File, access };
        let effects = Effects { orphans: Some(ino), ..Effects::default() };
        self.commit_as(write_set, Answer::Created(opening, None, stat), effects)
    }

    pub(super) fn make_dir(
        &self,
        dir: NodeId,
        name: &Name,
        mode: u32,
        gid: Option<u32>,
    ) -> Planned {
        self.make_new(dir, name, &New::plain(Kind::Directory, (mode, gid)))
    }

    pub(super) fn symlink(
        &self,
        dir: NodeId,
        name: &Name,
        target: &[u8],
        gid: Option<u32>,
    ) -> Planned {
        if target.is_empty() {
            return Err(Error::NotFound.into());
        }
        if target.len() > TARGET_MAX {
            return Err(Error::NameTooLong.into());
        }
        if target.contains(&0) {
            return Err(Error::Invalid.into());
        }
        let new = New { target, ..New::plain(Kind::Symlink, (0o777, gid)) };
        self.make_new(dir, name, &new)
    }

    pub(super) fn make_node(
        &self,
        dir: NodeId,
        name: &Name,
        kind: Kind,
        device: u64,
        mode: (u32, Option<u32>),
    ) -> Planned {
        let device = match kind {
            Kind::Directory | Kind::Symlink => return Err(Error::Invalid.into()),
            Kind::File | Kind::Fifo | Kind::Socket => 0,
            Kind::CharDevice | Kind::BlockDevice => device,
        };
        self.make_new(dir, name, &New { device, ..New::plain(kind, mode) })
    }

    fn make_new(&self, dir: NodeId, name: &Name, new: &New<'_>) -> Planned {
        let dir = self.changeable(dir)?;
        let mut write_set = self.write_set()?;
        self.expect_vacant(&write_set, dir, name)?;
        let device = matches!(new.kind, Kind::CharDevice | Kind::BlockDevice);
        if device && !self.who.is_root() {
            return Err(Error::NotPermitted.into());
        }
        let ino = self.make(&mut write_set, dir, name, new)?;
        let stat = write_set.read_view.stat(ino, &write_set.look(ino)?);
        self.commit(write_set, Reply::Stat(stat), Effects::default())
    }

    /// Returns the inode of a name, if the caller may search the directory.
    pub(super) fn search(
        &self,
        write_set: &WriteSet<'_>,
        dir: u64,
        name: &Name,
    ) -> Result<Option<u64>, Stop> {
        let inode = write_set.look(dir)?;
        if !inode.is_directory() {
            return Err(Error::NotDirectory.into());
        }
        if !name.plain() {
            return Err(Error::Exists.into());
        }
        self.who.may(&inode, SEARCH)?;
        Ok(write_set.read_view.lookup(dir, name)?.map(|found| found.ino))
    }

    /// # Errors
    /// Unless a file could be created under this name.
    fn expect_vacant(&self, write_set: &WriteSet<'_>, dir: u64, name: &Name) -> Result<(), Stop> {
        if self.search(write_set, dir, name)?.is_some() {
            return Err(Error::Exists.into());
        }
        self.expect_writable(write_set, dir)
    }

    /// # Errors
    /// Unless the caller may add an entry to this directory.
    pub(super) fn expect_writable(&self, write_set: &WriteSet<'_>, dir: u64) -> Result<(), Stop> {
        let inode = write_set.look(dir)?;
        if inode.links == 0 {
            return Err(Error::NotFound.into());
        }
        Ok(self.who.may(&inode, WRITE | SEARCH)?)
    }

    /// Creates an inode and an entry for it; the name must be vacant.
    fn make(
        &self,
        write_set: &mut WriteSet<'_>,
        dir: u64,
        name: &Name,
        new: &New<'_>,
    ) -> Result<u64, Stop> {
        self.expect_writable(write_set, dir)?;
        let ino = self.add(write_set, dir, new)?;
        write_set.enter(dir, name, ino, new.kind)?;
        if new.kind == Kind::Directory {
            write_set.count_directory(dir, true)?;
        }
        Ok(ino)
    }

    /// Adds an inode with the initial attributes of a new file in a directory.
    fn add(&self, write_set: &mut WriteSet<'_>, dir: u64, new: &New<'_>) -> Result<u64, Stop> {
        assert!(new.target.len() <= TARGET_MAX, "longer targets are refused");
        let directory = write_set.look(dir)?;
        let is_directory = new.kind == Kind::Directory;
        if is_directory && directory.links >= LINKS_MAX {
            return Err(Error::TooManyLinks.into());
        }
        let (mode, chosen) = new.mode;
        let (uid, gid) = self.who.owner_in(&directory, chosen);
        let short = new.target.len() <= TARGET_SHORT;
        let now = write_set.now();
        let ino = write_set.add(Inode {
            kind: new.kind,
            mode: self.who.mode_in(&directory, new.kind, mode, gid),
            links: if is_directory { 2 } else { 1 },
            uid,
            gid,
            size: new.target.len() as u64,
            accessed: now,
            modified: now,
            changed: now,
            special: new.device,
            parent: if is_directory { dir } else { 0 },
            project: write_set.project(&directory),
            target: if short { new.target.to_vec() } else { Vec::new() },
            ..Inode::default()
        })?;
        if !short {
            let (table, object, offset) = (DATA, ino, 0);
            write_set
                .take_blocks(ino, (new.target.len() as u64).div_ceil(write_set.read_view.block))?;
            write_set.push(Change::Write { table, object, offset, data: new.target.to_vec() });
        }
        Ok(ino)
    }

    /// Adds a hard link to a file.
    pub(super) fn link(&self, node: NodeId, dir: NodeId, name: &Name) -> Planned {
        let (ino, dir) = (self.changeable(node)?, self.changeable(dir)?);
        let mut write_set = self.write_set()?;
        self.expect_vacant(&write_set, dir, name)?;
        let inode = write_set.look(ino)?;
        if inode.is_directory() {
            return Err(Error::NotPermitted.into());
        }
        self.who.may_link(&inode)?;
        match inode.links {
            0 => return Err(Error::NotFound.into()),
            LINKS_MAX.. => return Err(Error::TooManyLinks.into()),
            _some => {}
        }
        let place = self.volume.place(node).map(|(dir, _)| *dir);
        let uncounted = write_set.adopt(ino, place, dir, true)?;
        write_set.enter(dir, name, ino, inode.kind)?;
        let now = write_set.now();
        let inode = write_set.inode(ino)?;
        inode.links += 1;
        inode.touch(now);
        self.commit(write_set, Reply::Done, Effects { uncounted, ..Effects::default() })
    }

    /// Returns the target of a symbolic link.
    pub(super) fn read_link(&self, node: NodeId) -> Planned {
        let NodeRef::File(view, ino) = self.volume.node_ref(node) else {
            return Err(Error::Invalid.into());
        };
        let read_view = self.read_view(view)?;
        let inode = read_view.inode(ino)?;
        if inode.kind != Kind::Symlink {
            return Err(Error::Invalid.into());
        }
        answer(Reply::Bytes(data::target(&read_view, ino, &inode)?))
    }
}
