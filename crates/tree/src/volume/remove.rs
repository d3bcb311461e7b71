//! Removal and renaming of entries.

use super::Place;
use super::data::CUT_MAX;
use super::draft::{Draft, LINKS_MAX};
use super::permission::{SEARCH, WRITE};
use super::plan::{Effects, Planned, Scene, answer};
use super::record::{ENTRIES, Entry, Inode, ROOT, Why};
use super::sight::{Found, Stop};
use super::walk::damaged;
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

impl Scene<'_> {
    /// Removes an entry.
    pub(super) fn remove(&self, dir: u64, name: &Name, directory: Option<bool>) -> Planned {
        if !name.plain() {
            return Err(Error::Invalid.into());
        }
        let mut draft = self.draft()?;
        let found = self.find(&draft, dir, name)?.ok_or(Error::NotFound)?;
        let victim = draft.look(found.ino).map_err(damaged)?;
        self.who.may_unname(&draft.look(dir)?, &victim)?;
        match (victim.is_directory(), directory) {
            (true, Some(false)) => return Err(Error::IsDirectory.into()),
            (false, Some(true)) => return Err(Error::NotDirectory.into()),
            (true, _) if victim.entries > 0 => return Err(Error::NotEmpty.into()),
            (true | false, _) => {}
        }
        let mut effects = Effects::default();
        draft.leave(dir, found.cookie)?;
        effects.gone = Some((found.ino, (dir, name.clone())));
        self.unname(&mut draft, dir, found.ino, &mut effects)?;
        self.commit(draft, Reply::Done, effects)
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
        let draft = self.draft()?;
        let present = match self.find(&draft, dir, name)? {
            Some(found) => {
                let inode = draft.look(found.ino).map_err(damaged)?;
                Some(draft.sight.stat(found.ino, &inode))
            }
            None => None,
        };
        if !expected.is_met_by(present.as_ref()) {
            return answer(Reply::Unexpected(present));
        }
        match by {
            Replacement::Nothing => self.remove(dir, name, Some(false)),
            Replacement::Entry(from, old) => {
                let (draft, effects) =
                    self.moved((self.changeable(*from)?, old), (dir, name), true)?;
                let (ino, ..) = *effects.moved.as_ref().ok_or(Error::Invalid)?;
                let stat = draft.sight.stat(ino, &draft.look(ino)?);
                self.commit(draft, Reply::Stat(stat), effects)
            }
            Replacement::Unnamed(node) => {
                let target = self.find(&draft, dir, name)?;
                self.give_name(draft, *node, (dir, name), target)
            }
        }
    }

    /// Gives an unnamed file this name, replacing a present file.
    fn give_name(
        &self,
        mut draft: Draft<'_>,
        node: NodeId,
        (dir, name): (u64, &Name),
        target: Option<Found>,
    ) -> Planned {
        let ino = self.changeable(node)?;
        let inode = draft.look(ino)?;
        if inode.links > 0 || inode.is_directory() {
            return Err(Error::Invalid.into());
        }
        let (mut effects, now) = (Effects::default(), draft.now());
        self.expect_writable(&draft, dir)?;
        match target {
            Some(target) => {
                let victim = draft.look(target.ino).map_err(damaged)?;
                self.who.may_unname(&draft.look(dir)?, &victim)?;
                if victim.is_directory() {
                    return Err(Error::IsDirectory.into());
                }
                draft.put_entry(dir, target.cookie, name, ino, inode.kind);
                draft.inode(dir)?.touch_contents(now);
                effects.gone = Some((target.ino, (dir, name.clone())));
                self.unname(&mut draft, dir, target.ino, &mut effects)?;
            }
            None => draft.enter(dir, name, ino, inode.kind)?,
        }
        // The replaced file no longer counts.
        draft.adopt(ino, None, dir, false)?;
        match inode.trimming {
            true => draft.orphan(ino, Why::Trimming)?,
            false => draft.settle(ino),
        }
        let named = draft.inode(ino)?;
        named.links = 1;
        named.touch(now);
        effects.named = Some((ino, (dir, name.clone())));
        let stat = draft.sight.stat(ino, &draft.look(ino)?);
        self.commit(draft, Reply::Stat(stat), effects)
    }

    /// Renames an entry.
    pub(super) fn rename(&self, from: (u64, &Name), to: (u64, &Name), replace: bool) -> Planned {
        let (draft, effects) = self.moved(from, to, replace)?;
        self.commit(draft, Reply::Done, effects)
    }

    /// Returns the changes of a rename. The order of the checks is Linux's.
    fn moved(
        &self,
        (from, name): (u64, &Name),
        (to, new_name): (u64, &Name),
        replace: bool,
    ) -> Result<(Draft<'_>, Effects), Stop> {
        if !name.plain() || !new_name.plain() {
            return Err(Error::Busy.into());
        }
        let mut draft = self.draft()?;
        let source = self.find(&draft, from, name)?;
        let target = self.find(&draft, to, new_name)?;
        let source = source.ok_or(Error::NotFound)?;
        if target.is_some() && !replace {
            return Err(Error::Exists.into());
        }
        let ends = Move { from, name, to, new_name, source, target };
        self.expect_no_circle(&draft, &ends)?;
        if target.is_some_and(|target| target.ino == source.ino) {
            return Ok((draft, Effects::default()));
        }
        self.expect_movable(&draft, &ends)?;
        let effects = self.apply(&mut draft, &ends)?;
        Ok((draft, effects))
    }

    /// # Errors
    /// `Invalid` if a directory would become its own descendant, `NotEmpty` if the replaced
    /// directory contains the renamed file.
    fn expect_no_circle(&self, draft: &Draft<'_>, ends: &Move<'_>) -> Result<(), Stop> {
        let Move { from, to, source, target, .. } = ends;
        let directory = source.kind == Kind::Directory;
        if directory && from != to && draft.sight.is_beneath(*to, source.ino)? {
            return Err(Error::Invalid.into());
        }
        match target {
            Some(target) if target.kind == Kind::Directory && from != to => {
                let holds = draft.sight.is_beneath(*from, target.ino)?;
                if holds { Err(Error::NotEmpty.into()) } else { Ok(()) }
            }
            Some(_) | None => Ok(()),
        }
    }

    fn expect_movable(&self, draft: &Draft<'_>, ends: &Move<'_>) -> Result<(), Stop> {
        let Move { from, to, source, target, .. } = ends;
        let moved = draft.look(source.ino).map_err(damaged)?;
        let (old, new) = (draft.look(*from)?, draft.look(*to)?);
        self.who.may_unname(&old, &moved)?;
        match target {
            None => self.expect_writable(draft, *to)?,
            Some(target) => {
                let victim = draft.look(target.ino).map_err(damaged)?;
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

    fn apply(&self, draft: &mut Draft<'_>, ends: &Move<'_>) -> Result<Effects, Stop> {
        let Move { from, name, to, new_name, source, target } = ends;
        let (mut effects, now) = (Effects::default(), draft.now());
        match target {
            Some(target) => {
                draft.put_entry(*to, target.cookie, new_name, source.ino, source.kind);
                draft.inode(*to)?.touch_contents(now);
                effects.gone = Some((target.ino, (*to, (*new_name).clone())));
                self.unname(draft, *to, target.ino, &mut effects)?;
            }
            None => draft.enter(*to, new_name, source.ino, source.kind)?,
        }
        // The replaced file no longer counts.
        effects.uncounted = draft.adopt(source.ino, Some(*from), *to, false)?;
        draft.leave(*from, source.cookie)?;
        let moved = draft.inode(source.ino)?;
        moved.touch(now);
        if source.kind == Kind::Directory && from != to {
            moved.parent = *to;
            draft.count_directory(*from, false)?;
            draft.count_directory(*to, true)?;
        }
        let places = ((*from, (*name).clone()), (*to, (*new_name).clone()));
        effects.moved = Some((source.ino, places.0, places.1));
        Ok(effects)
    }

    /// Removes a name of an inode in `dir`; without names the inode is removed after its last use.
    fn unname(
        &self,
        draft: &mut Draft<'_>,
        dir: u64,
        ino: u64,
        effects: &mut Effects,
    ) -> Result<(), Stop> {
        let now = draft.now();
        let inode = draft.inode(ino)?;
        inode.touch(now);
        inode.links = if inode.is_directory() { 0 } else { inode.links.saturating_sub(1) };
        let inode = inode.clone();
        if inode.is_directory() {
            draft.count_directory(dir, false)?;
            draft.drop_quota_of(ino, &inode);
        }
        if inode.links > 0 {
            return Ok(());
        }
        if !self.volume.is_held(ino) && goes_at_once(&inode) {
            draft.erase(ino, ATTRS_AT_ONCE)?;
            return Ok(());
        }
        draft.orphan(ino, Why::Nameless)?;
        effects.nameless = Some(ino);
        Ok(())
    }

    /// Returns the inode of a name, if the caller may search the directory.
    fn find(&self, draft: &Draft<'_>, dir: u64, name: &Name) -> Result<Option<Found>, Stop> {
        let inode = draft.look(dir)?;
        if !inode.is_directory() {
            return Err(Error::NotDirectory.into());
        }
        self.who.may(&inode, SEARCH)?;
        draft.sight.lookup(dir, name)
    }

    /// Returns the name by which a node was reached, if it still refers to the node.
    fn locate(&self, node: NodeId) -> Result<Place, Stop> {
        let ino = self.changeable(node)?;
        if ino == ROOT {
            return Err(Error::NotPermitted.into());
        }
        let sight = self.sight(View::Present)?;
        let inode = sight.inode(ino)?;
        let place = match self.volume.place(node) {
            Some(place) => place.clone(),
            // It was reached by `..` from a subdirectory.
            None if inode.is_directory() && inode.links > 0 => self.seek(ino, inode.parent)?,
            None => return Err(Error::NotFound.into()),
        };
        match sight.lookup(place.0, &place.1)? {
            Some(found) if found.ino == ino => Ok(place),
            Some(_) | None => Err(Error::NotFound.into()),
        }
    }

    /// Searches a directory for the name of its subdirectory.
    ///
    /// # Errors
    /// `Unsupported` if it is not among the first [`SEARCHED_MAX`] entries.
    fn seek(&self, ino: u64, parent: u64) -> Result<Place, Stop> {
        let (mut name, mut seen) = (None, 0);
        self.sight(View::Present)?.scan(ENTRIES, parent, 0, &mut |_cookie, value| {
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
