//! Unnamed files, and conditional changes of entries.
//!
//! On a real host the check and the change are two system calls, so the world performs the check
//! when the operation begins ([`Disk::precheck`]) and the change when it ends: this detects a
//! server with two concurrent changes of one entry.

use super::Disk;
use base::op::{File, PathDone, PathOp, Replacement};
use base::{Access, Error, Expected, Kind, Name, Stat, Time};

impl Disk {
    pub(super) fn create_unnamed(
        &mut self,
        now: Time,
        dir: File,
        access: Access,
        mode: u32,
    ) -> Result<PathDone, Error> {
        let dir = self.held(dir).inode;
        if self.node(dir).kind != Kind::Directory {
            return Err(Error::NotDirectory);
        }
        if self.node(dir).links == 0 {
            return Err(Error::NotFound);
        }
        let inode = self.make_unnamed(now, mode);
        let access = Access { write: true, ..access };
        let file = self.hold(inode, 0, Some(access));
        let handle = self.hold(inode, 0, None);
        Ok(PathDone::Created(file, handle, self.stat(inode)))
    }

    /// Returns the present entry of a conditional change, as found by its first system call.
    pub(crate) fn precheck(&self, op: &PathOp) -> Option<Option<Stat>> {
        match op {
            PathOp::Replace { dir, name, .. } => Some(self.present(self.held(*dir).inode, name)),
            _other => None,
        }
    }

    fn present(&self, dir: u64, name: &Name) -> Option<Stat> {
        self.step(dir, name).ok().map(|(inode, _)| self.stat(inode))
    }

    /// Performs the change, given the result of the check.
    pub(crate) fn replace_checked(
        &mut self,
        now: Time,
        op: &PathOp,
        found: Option<Stat>,
    ) -> Result<PathDone, Error> {
        let PathOp::Replace { dir, name, by, expected } = op else {
            unreachable!("{op:?} is not conditional")
        };
        let dir = self.held(*dir).inode;
        if !name.plain() {
            return Err(Error::Invalid);
        }
        if !expected.is_met_by(found.as_ref()) {
            return Ok(PathDone::Unexpected(found));
        }
        // The kernel itself guarantees this much.
        let there = self.present(dir, name);
        if found.is_none() != there.is_none() {
            return Ok(PathDone::Unexpected(there));
        }
        self.change(now, dir, name, by)
    }

    pub(super) fn replace(
        &mut self,
        now: Time,
        dir: u64,
        name: &Name,
        by: &Replacement<File>,
        expected: Expected,
    ) -> Result<PathDone, Error> {
        if !name.plain() {
            return Err(Error::Invalid);
        }
        let there = self.present(dir, name);
        if !expected.is_met_by(there.as_ref()) {
            return Ok(PathDone::Unexpected(there));
        }
        self.change(now, dir, name, by)
    }

    fn change(
        &mut self,
        now: Time,
        dir: u64,
        name: &Name,
        by: &Replacement<File>,
    ) -> Result<PathDone, Error> {
        if self.node(dir).kind != Kind::Directory {
            return Err(Error::NotDirectory);
        }
        let inode = match by {
            Replacement::Nothing => return self.remove(now, dir, name, Some(false)),
            Replacement::Entry(from, old) => {
                let from = self.held(*from).inode;
                self.rename(now, (from, old), (dir, name), true)?;
                self.step(dir, name)?.0
            }
            Replacement::Unnamed(file) => {
                let inode = self.held(*file).inode;
                if self.node(dir).links == 0 {
                    return Err(Error::NotFound);
                }
                if let Some(place) = self.node(dir).entries.get(name).copied() {
                    self.unlink(now, dir, name, place);
                }
                self.name(now, dir, name, inode);
                inode
            }
        };
        self.node_mut(inode).touch(now);
        Ok(PathDone::Stat(self.stat(inode)))
    }
}
