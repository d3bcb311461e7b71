//! Requests about names: lookups, creation, removal, renaming, links.

use crate::answer::{Answer, Body};
use crate::attr::Attr;
use crate::durability::Kind;
use crate::errno;
use crate::handles::Source;
use crate::link::{Failure, Fid, only};
use crate::session::{Caller, Session};
use crate::store::Known;
use crate::{linux, lock};
use std::sync::Arc;
use wire::fuse::{Entry, entry_reply, open_reply};
use wire::ninep::{Rmessage, Tmessage};

impl Session {
    /// Returns the entry of a file in replies.
    pub(crate) fn entry(&self, node: u64, attr: &Attr) -> Entry {
        Entry {
            node,
            name_valid: self.name_valid(attr),
            attr_valid: self.attributes_valid(attr),
            attributes: attr.shown,
        }
    }

    /// Walks to a name and gives the kernel its node.
    fn enter(
        &self,
        caller: &Caller<'_>,
        (dir, parent): (&Fid, u64),
        name: &[u8],
    ) -> Result<Entry, Failure> {
        let walked = dir.connection.walk(caller.interrupt, dir.number, &[name.to_vec()])?;
        let fid = Arc::new(walked.0);
        let attr = self.stat(caller, &fid)?;
        let mut nodes = lock(&self.nodes);
        let node = nodes.enter_with(&attr, (parent, name), Some((caller.user, fid)));
        Ok(self.entry(node, &attr))
    }

    /// Gives the kernel the node of a file that was sent ahead.
    fn enter_ahead(&self, attr: &Attr, parent: u64, name: &[u8]) -> Entry {
        let mut nodes = lock(&self.nodes);
        let node = nodes.enter_with(attr, (parent, name), None);
        self.entry(node, attr)
    }

    fn entered(&self, entry: &Entry) -> Answer {
        let body = Body::Bytes(entry_reply(entry));
        Answer { entered: vec![entry.node], ..Answer::new(body) }
    }

    /// Records a change of a directory's entries, for its next fsync.
    fn changed_entries(&self, caller: &Caller<'_>, fid: &Fid, dir: u64) {
        lock(&self.nodes).changed(dir, Kind::Other, fid.connection.number, caller.pid);
    }

    /// Looks up a name.
    pub(crate) fn lookup(
        &self,
        caller: &Caller<'_>,
        parent: u64,
        name: &[u8],
    ) -> Result<Answer, Failure> {
        match self.find_ahead(caller, parent, name)? {
            Known::File(attr) => return Ok(self.entered(&self.enter_ahead(&attr, parent, name))),
            Known::Absent => return self.absent(parent, name),
            Known::Unknown => {}
        }
        let dir = self.fid(caller, parent)?;
        match self.enter(caller, (&dir, parent), name) {
            Err(Failure::Errno(errno::ENOENT)) => self.absent(parent, name),
            done => Ok(self.entered(&done?)),
        }
    }

    /// Returns the reply that a name does not exist.
    fn absent(&self, parent: u64, name: &[u8]) -> Result<Answer, Failure> {
        let name_valid = self.absent_valid(parent, name);
        if name_valid.is_zero() {
            return Err(Failure::Errno(errno::ENOENT));
        }
        let entry = Entry { name_valid, ..Entry::default() };
        Ok(Answer { absent: Some(name.to_vec()), ..Answer::bytes(entry_reply(&entry)) })
    }

    /// Creates a directory.
    pub(crate) fn mkdir(
        &self,
        caller: &Caller<'_>,
        parent: u64,
        name: &[u8],
        mode: u32,
    ) -> Result<Answer, Failure> {
        let dir = self.fid(caller, parent)?;
        self.make_dir(caller, &dir, (name, mode))?;
        self.changed_entries(caller, &dir, parent);
        Ok(self.entered(&self.enter(caller, (&dir, parent), name)?))
    }

    /// Creates a symbolic link.
    pub(crate) fn symlink(
        &self,
        caller: &Caller<'_>,
        parent: u64,
        name: &[u8],
        target: &[u8],
    ) -> Result<Answer, Failure> {
        let dir = self.fid(caller, parent)?;
        self.linux_only(&dir.connection)?;
        let message = Tmessage::Symlink { dfid: dir.number, name, target, gid: caller.gid };
        let made = only!(Rmessage::Symlink { .. } => ());
        dir.connection.call(caller.interrupt, &message, made)?;
        self.changed_entries(caller, &dir, parent);
        Ok(self.entered(&self.enter(caller, (&dir, parent), name)?))
    }

    /// Creates a file, device, pipe or socket.
    pub(crate) fn mknod(
        &self,
        caller: &Caller<'_>,
        parent: u64,
        name: &[u8],
        (mode, (major, minor)): (u32, (u32, u32)),
    ) -> Result<Answer, Failure> {
        let dir = self.fid(caller, parent)?;
        self.linux_only(&dir.connection)?;
        let (dfid, gid) = (dir.number, caller.gid);
        let message = Tmessage::Mknod { dfid, name, mode, major, minor, gid };
        let made = only!(Rmessage::Mknod { .. } => ());
        dir.connection.call(caller.interrupt, &message, made)?;
        self.changed_entries(caller, &dir, parent);
        Ok(self.entered(&self.enter(caller, (&dir, parent), name)?))
    }

    /// Creates a hard link.
    pub(crate) fn link(
        &self,
        caller: &Caller<'_>,
        file: u64,
        (parent, name): (u64, &[u8]),
    ) -> Result<Answer, Failure> {
        let (dir, fid) = (self.fid(caller, parent)?, self.fid(caller, file)?);
        self.linux_only(&dir.connection)?;
        let message = Tmessage::Link { dfid: dir.number, fid: fid.number, name };
        dir.connection.call(caller.interrupt, &message, only!(Rmessage::Link {} => ()))?;
        self.changed_entries(caller, &dir, parent);
        Ok(self.entered(&self.enter(caller, (&dir, parent), name)?))
    }

    /// Removes a file or an empty directory. Open files stay usable through their fids.
    pub(crate) fn remove(
        &self,
        caller: &Caller<'_>,
        parent: u64,
        name: &[u8],
        is_dir: bool,
    ) -> Result<Answer, Failure> {
        let dir = self.fid(caller, parent)?;
        self.hold(caller, parent, name);
        self.remove_name(caller, &dir, (name, is_dir))?;
        self.changed_entries(caller, &dir, parent);
        lock(&self.nodes).removed(parent, name);
        Ok(Answer::empty())
    }

    /// Renames a file. 9P has no message for an exchange, or for one that replaces nothing.
    pub(crate) fn rename(
        &self,
        caller: &Caller<'_>,
        (from, name): (u64, &[u8]),
        (to, to_name): (u64, &[u8]),
        flags: u32,
    ) -> Result<Answer, Failure> {
        if flags != 0 {
            return Err(Failure::Errno(errno::EINVAL));
        }
        let (dir, to_dir) = (self.fid(caller, from)?, self.fid(caller, to)?);
        self.hold(caller, to, to_name);
        match self.rename_name(caller, (&dir, name), (&to_dir, to_name), from == to) {
            Err(failure) if linux::is_unknown(failure) => {
                self.linux_only(&dir.connection)?;
                // Servers that know fids by their path change that of this one.
                let known = lock(&self.nodes).child(from, name);
                let fid = match known {
                    Some(node) => self.fid(caller, node)?,
                    None => {
                        let names = [name.to_vec()];
                        Arc::new(dir.connection.walk(caller.interrupt, dir.number, &names)?.0)
                    }
                };
                linux::rename_fid(caller.interrupt, &fid, (&to_dir, to_name))?;
            }
            done => done?,
        }
        self.changed_entries(caller, &dir, from);
        self.changed_entries(caller, &to_dir, to);
        lock(&self.nodes).renamed((from, name), (to, to_name));
        Ok(Answer::empty())
    }

    /// Gets a fid of a file that is about to lose its name, so that it stays reachable for those
    /// that have it open. Without one only its open fids are left.
    fn hold(&self, caller: &Caller<'_>, parent: u64, name: &[u8]) {
        let known = lock(&self.nodes).child(parent, name);
        if let Some(node) = known.filter(|node| self.may_be_in_use(*node, caller.user)) {
            // If it fails, so does the request, or the file has no use for it.
            let _ = self.fid(caller, node);
        }
    }

    /// Returns whether a node is a directory, open, or known to the server: of others only names
    /// are in use.
    fn may_be_in_use(&self, node: u64, user: u32) -> bool {
        let is_known = {
            let nodes = lock(&self.nodes);
            nodes.is_directory(node) || nodes.fid(node, user).is_some()
        };
        is_known || self.handles.has_open(node, user)
    }

    /// Creates and opens a file.
    pub(crate) fn create(
        &self,
        caller: &Caller<'_>,
        parent: u64,
        (name, flags, mode): (&[u8], u32, u32),
    ) -> Result<Answer, Failure> {
        let (dir, open) = self.clone_fid(caller, parent)?;
        self.create_open(caller, &open, (name, self.server_flags(flags), mode))?;
        self.changed_entries(caller, &dir, parent);
        let entry = self.enter(caller, (&dir, parent), name)?;
        let source = (Source::Fid(open), None);
        let (handle, fopen) = self.opened(caller, entry.node, flags, source);
        let mut body = entry_reply(&entry);
        body.extend(open_reply(handle, fopen));
        let body = Body::Bytes(body);
        Ok(Answer { entered: vec![entry.node], handle: Some(handle), ..Answer::new(body) })
    }
}
