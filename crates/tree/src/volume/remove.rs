//! Removal and renaming of entries.

use super::EntryKey;
use super::data::CUT_MAX;
use super::permission::{SEARCH, WRITE};
use super::plan::{Effects, Planned, Planner, answer};
use super::read_view::{Found, Stop};
use super::record::{ENTRIES, Entry, FreeReason, Inode, ROOT};
use super::walk::damaged;
use super::write_set::{LINKS_MAX, WriteSet};
use crate::request::{NodeId, Reply};
use base::op::Replacement;
use base::{Error, Expected, Kind, Name};
use std::ops::ControlFlow;
use store::View;

/// Maximum number of attributes removed in the transaction that makes them unused.
pub(super) const ATTRS_AT_ONCE: usize = 16;

/// Maximum number of entries searched for a directory whose name is unknown.
const SEARCHED_MAX: usize = 10_000;

/// Both ends of a rename.
struct Move<'n> {
    from: u64,
    name: &'n Name,
    to: u64,
    new_name: &'n Name,
    source: Found,
    target: Option<Found>,
}

impl Planner<'_> {
    /// Removes an entry.
    pub(super) fn remove(&self, dir: u64, name: &Name, directory: Option<bool>) -> Planned {
        if !name.plain() {
            return Err(Error::Invalid.into());
        }
        let mut write_set = self.write_set()?;
        let found = self.find(&write_set, dir, name)?.ok_or(Error::NotFound)?;
        let victim = write_set.look(found.ino).map_err(damaged)?;
        self.who.may_unname(&write_set.look(dir)?, &victim)?;
        match (victim.is_directory(), directory) {
            (true, Some(false)) => return Err(Error::IsDirectory.into()),
            (false, Some(true)) => return Err(Error::NotDirectory.into()),
            (true, _) if victim.entries > 0 => return Err(Error::NotEmpty.into()),
            (true | false, _) => {}
        }
        let mut effects = Effects::default();
        write_set.leave(dir, found.cookie)?;
        effects.gone = Some((found.ino, (dir, name.clone())));
        self.unname(&mut write_set, dir, found.ino, &mut effects)?;
        self.commit(write_set, Reply::Done, effects)
    }

    pub(super) fn remove_node(&self, node: NodeId) -> Planned {
        let (dir, name) = self.locate(node)?;
        self.remove(dir, &name, None)
    }

    pub(super) fn rename_node(
        &self,
        node: NodeId,
        to: Option<NodeId>,
        new_name: &Name,
        replace: bool,
    ) -> Planned {
        if !new_name.plain() {
            return Err(Error::Busy.into());
        }
        let (dir, name) = self.locate(node)?;
        let to = to.map_or(Ok(dir), |to| self.changeable(to))?;
        self.rename((dir, &name), (to, new_name), replace)
    }

    /// Replaces or removes an entry if it is as expected, in one transaction.
    pub(super) fn replace(
        &self,
        dir: NodeId,
        name: &Name,
        by: &Replacement<NodeId>,
        expected: Expected,
    ) -> Planned {
        let dir = self.changeable(dir)?;
        if !name.plain() {
            return Err(Error::Invalid.into());
        }
        let write_set = self.write_set()?;
        let present = match self.find(&write_set, dir, name)? {
            Some(found) => {
                let inode = write_set.look(found.ino).map_err(damaged)?;
                Some(write_set.read_view.stat(found.ino, &inode))
            }
            None => None,
        };
        if !expected.is_met_by(present.as_ref()) {
            return answer(Reply::Unexpected(present));
        }
        match by {
            Replacement::Nothing => self.remove(dir, name, Some(false)),
            Replacement::Entry(from, old) => {
                let (write_set, effects) =
                    self.moved((self.changeable(*from)?, old), (dir, name), true)?;
                let (ino, ..) = *effects.moved.as_ref().ok_or(Error::Invalid)?;
                let stat = write_set.read_view.stat(ino, &write_set.look(ino)?);
                self.commit(write_set, Reply::Stat(stat), effects)
            }
            Replacement::Unnamed(node) => {
                let target = self.find(&write_set, dir, name)?;
                self.give_name(write_set, *node, (dir, name), target)
            }
        }
    }

    /// Gives an unnamed file this name, replacing a present file.
    fn give_name(
        &self,
        mut write_set: WriteSet<'_>,
        node: NodeId,
        (dir, name): (u64, &Name),
        target: Option<Found>,
    ) -> Planned {
        let ino = self.changeable(node)?;
        let inode = write_set.look(ino)?;
        if inode.links > 0 || inode.is_directory() {
            return Err(Error::Invalid.into());
        }
        let (mut effects, now) = (Effects::default(), write_set.now());
        self.expect_writable(&write_set, dir)?;
        match target {
            Some(target) => {
                let victim = write_set.look(target.ino).map_err(damaged)?;
                self.who.may_unname(&write_set.look(dir)?, &victim)?;
                if victim.is_directory() {
                    return Err(Error::IsDirectory.into());
                }
                write_set.put_entry(dir, target.cookie, name, ino, inode.kind);
                write_set.inode(dir)?.touch_contents(now);
                effects.gone = Some((target.ino, (dir, name.clone())));
                self.unname(&mut write_set, dir, target.ino, &mut effects)?;
            }
            None => write_set.enter(dir, name, ino, inode.kind)?,
        }
        // The replaced file no longer counts.
        write_set.adopt(ino, None, dir, false)?;
        match inode.trimming {
            true => write_set.orphan(ino, FreeReason::Trimming)?,
            false => write_set.settle(ino),
        }
        let named = write_set.inode(ino)?;
        named.links = 1;
        named.touch(now);
        effects.named = Some((ino, (dir, name.clone())));
        let stat = write_set.read_view.stat(ino, &write_set.look(ino)?);
        self.commit(write_set, Reply::Stat(stat), effects)
    }

    /// Renames an entry.
    pub(super) fn rename(&self, from: (u64, &Name), to: (u64, &Name), replace: bool) -> Planned {
        let (write_set, effects) = self.moved(from, to, replace)?;
        self.commit(write_set, Reply::Done, effects)
    }

    /// Returns the changes of a rename. The order of the checks is Linux's.
    fn moved(
        &self,
        (from, name): (u64, &Name),
        (to, new_name): (u64, &Name),
        replace: bool,
    ) -> Result<(WriteSet<'_>, Effects), Stop> {
        if !name.plain() || !new_name.plain() {
            return Err(Error::Busy.into());
        }
        let mut write_set = self.write_set()?;
        let source = self.find(&write_set, from, name)?;
        let target = self.find(&write_set, to, new_name)?;
        let source = source.ok_or(Error::NotFound)?;
        if target.is_some() && !replace {
            return Err(Error::Exists.into());
        }
        let ends = Move { from, name, to, new_name, source, target };
        self.expect_no_circle(&write_set, &ends)?;
        if target.is_some_and(|target| target.ino == source.ino) {
            return Ok((write_set, Effects::default()));
        }
        self.expect_movable(&write_set, &ends)?;
        let effects = self.apply(&mut write_set, &ends)?;
        Ok((write_set, effects))
    }

    /// # Errors
    /// `Invalid` if a directory would become its own descendant, `NotEmpty` if the replaced
    /// directory contains the renamed file.
    fn expect_no_circle(&self, write_set: &WriteSet<'_>, ends: &Move<'_>) -> Result<(), Stop> {
        let Move { from, to, source, target, .. } = ends;
        let directory = source.kind == Kind::Directory;
        if directory && from != to && write_set.read_view.is_beneath(*to, source.ino)? {
            return Err(Error::Invalid.into());
        }
        match target {
            Some(target) if target.kind == Kind::Directory && from != to => {
                let holds = write_set.read_view.is_beneath(*from, target.ino)?;
                if holds { Err(Error::NotEmpty.into()) } else { Ok(()) }
            }
            Some(_) | None => Ok(()),
        }
    }

    fn expect_movable(&self, write_set: &WriteSet<'_>, ends: &Move<'_>) -> Result<(), Stop> {
        let Move { from, to, source, target, .. } = ends;
        let moved = write_set.look(source.ino).map_err(damaged)?;
        let (old, new) = (write_set.look(*from)?, write_set.look(*to)?);
        self.who.may_unname(&old, &moved)?;
        match target {
            None => self.expect_writable(write_set, *to)?,
            Some(target) => {
                let victim = write_set.look(target.ino).map_err(damaged)?;
                self.who.may_unname(&new, &victim)?;
                match (moved.is_directory(), victim.is_directory()) {
                    (true, false) => return Err(Error::NotDirectory.into()),
                    (false, true) => return Err(Error::IsDirectory.into()),
                    (true, true) if victim.entries > 0 => return Err(Error::NotEmpty.into()),
                    (true, true) | (false, false) => {}
                }
            }
        }
        if moved.is_directory() && from != to {
            // The rename changes its `..` entry.
            self.who.may(&moved, WRITE)?;
            if target.is_none() && new.links >= LINKS_MAX {
                return Err(Error::TooManyLinks.into());
            }
        }
        Ok(())
    }

    fn apply(&self, write_set: &mut WriteSet<'_>, ends: &Move<'_>) -> Result<Effects, Stop> {
        let Move { from, name, to, new_name, source, target } = ends;
        let (mut effects, now) = (Effects::default(), write_set.now());
        match target {
            Some(target) => {
                write_set.put_entry(*to, target.cookie, new_name, source.ino, source.kind);
                write_set.inode(*to)?.touch_contents(now);
                effects.gone = Some((target.ino, (*to, (*new_name).clone())));
                self.unname(write_set, *to, target.ino, &mut effects)?;
            }
            None => write_set.enter(*to, new_name, source.ino, source.kind)?,
        }
        // The replaced file no longer counts.
        effects.uncounted = write_set.adopt(source.ino, Some(*from), *to, false)?;
        write_set.leave(*from, source.cookie)?;
        let moved = write_set.inode(source.ino)?;
        moved.touch(now);
        if source.kind == Kind::Directory && from != to {
            moved.parent = *to;
            write_set.count_directory(*from, false)?;
            write_set.count_directory(*to, true)?;
        }
        let places = ((*from, (*name).clone()), (*to, (*new_name).clone()));
        effects.moved = Some((source.ino, places.0, places.1));
        Ok(effects)
    }

    /// Removes a name of an inode in `dir`; without names the inode is removed after its last use.
    fn unname(
        &self,
        write_set: &mut WriteSet<'_>,
        dir: u64,
        ino: u64,
        effects: &mut Effects,
    ) -> Result<(), Stop> {
        let now = write_set.now();
        let inode = write_set.inode(ino)?;
        inode.touch(now);
        inode.links = if inode.is_directory() { 0 } else { inode.links.saturating_sub(1) };
        let inode = inode.clone();
        if inode.is_directory() {
            write_set.count_directory(dir, false)?;
            write_set.drop_quota_of(ino, &inode);
        }
        if inode.links > 0 {
            return Ok(());
        }
        if !self.volume.is_held(ino) && goes_at_once(&inode) {
            write_set.erase(ino, ATTRS_AT_ONCE)?;
            return Ok(());
        }
        write_set.orphan(ino, FreeReason::Nameless)?;
        effects.orphans = Some(ino);
        Ok(())
    }

    /// Returns the inode of a name, if the caller may search the directory.
    fn find(&self, write_set: &WriteSet<'_>, dir: u64, name: &Name) -> Result<Option<Found>, Stop> {
        let inode = write_set.look(dir)?;
        if !inode.is_directory() {
            return Err(Error::NotDirectory.into());
        }
        self.who.may(&inode, SEARCH)?;
        write_set.read_view.lookup(dir, name)
    }

    /// Returns the name by which a node was reached, if it still refers to the node.
    fn locate(&self, node: NodeId) -> Result<EntryKey, Stop> {
        let ino = self.changeable(node)?;
        if ino == ROOT {
            return Err(Error::NotPermitted.into());
        }
        let read_view = self.read_view(View::Present)?;
        let inode = read_view.inode(ino)?;
        let place = match self.volume.place(node) {
            Some(place) => place.clone(),
            // It was reached by `..` from a subdirectory.
            None if inode.is_directory() && inode.links > 0 => self.seek(ino, inode.parent)?,
            None => return Err(Error::NotFound.into()),
        };
        match read_view.lookup(place.0, &place.1)? {
            Some(found) if found.ino == ino => Ok(place),
            Some(_) | None => Err(Error::NotFound.into()),
        }
    }

    /// Searches a directory for the name of its subdirectory.
    ///
    /// # Errors
    /// `Unsupported` if it is not among the first [`SEARCHED_MAX`] entries.
    fn seek(&self, ino: u64, parent: u64) -> Result<EntryKey, Stop> {
        let (mut name, mut seen) = (None, 0);
        self.read_view(View::Present)?.scan(ENTRIES, parent, 0, &mut |_cookie, value| {
            let entry = Entry::decode(&value.bytes()).filter(|entry| entry.ino == ino);
            name = entry.map(|entry| entry.name);
            seen += 1;
            match name.is_some() || seen >= SEARCHED_MAX {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        })?;
        let missing = if seen >= SEARCHED_MAX { Error::Unsupported } else { Error::NotFound };
        Ok((parent, name.ok_or(missing)?))
    }
}

/// Returns whether freeing all of an inode is little work.
fn goes_at_once(inode: &Inode) -> bool {
    let little = inode.blocks <= CUT_MAX && inode.attrs as usize <= ATTRS_AT_ONCE;
    little && !inode.trimming
}
