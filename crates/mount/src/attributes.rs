//! Requests about attributes, permissions, extended attributes and space.

use crate::answer::Answer;
use crate::attr::Attr;
use crate::durability::Kind;
use crate::errno;
use crate::link::{Failure, Fid, only};
use crate::linux::{self, Xattr};
use crate::lock;
use crate::options::Cache;
use crate::session::{Caller, Session};
use std::sync::Arc;
use wire::fuse::{SetAttr, attr_reply, fattr, size_reply, statfs_reply};
use wire::ninep::{Rmessage, Tmessage};

/// Flag of `Txattrcreate`; with an empty value it removes the attribute.
const XATTR_REPLACE: u32 = 2;

impl Session {
    fn attributes(&self, node: u64, attr: &Attr) -> Answer {
        lock(&self.nodes).show(node, &attr.shown);
        Answer::bytes(attr_reply(self.attributes_valid(attr), &attr.shown))
    }

    /// Returns the fid to be used for attributes: the open one if the kernel names it.
    fn fid_for(
        &self,
        caller: &Caller<'_>,
        node: u64,
        handle: Option<u64>,
    ) -> Result<Arc<Fid>, Failure> {
        match handle.and_then(|handle| self.handles.get(handle).ok()) {
            Some(handle) => self.open_fid(caller, &handle),
            None => self.fid(caller, node),
        }
    }

    /// Returns whether an open file has contents that were sent ahead, and keeps them after it was
    /// removed.
    fn has_content(&self, handle: Option<u64>) -> bool {
        let handle = handle.and_then(|handle| self.handles.get(handle).ok());
        handle.is_some_and(|handle| handle.content.is_some())
    }

    /// Returns the attributes of a file.
    pub(crate) fn getattr(
        &self,
        caller: &Caller<'_>,
        node: u64,
        handle: Option<u64>,
    ) -> Result<Answer, Failure> {
        if let Some(attr) = self.attr_ahead(node) {
            return Ok(self.attributes(node, &attr));
        }
        let fid = match self.fid_for(caller, node, handle) {
            Err(Failure::Errno(errno::ESTALE | errno::ENOENT)) if self.has_content(handle) => {
                let attr = lock(&self.nodes).last_attributes(node).ok_or(errno::ESTALE)?;
                return Ok(self.attributes(node, &attr));
            }
            found => found?,
        };
        let attr = match self.stat(caller, &fid) {
            // Servers that know files by their path have lost one that is removed.
            Err(Failure::Errno(errno::ENOENT)) if self.handles.has_open(node, caller.user) => {
                lock(&self.nodes).removed_attributes(node).ok_or(errno::ENOENT)?
            }
            done => done?,
        };
        Ok(self.attributes(node, &attr))
    }

    /// Changes attributes.
    pub(crate) fn setattr(
        &self,
        caller: &Caller<'_>,
        node: u64,
        set: &SetAttr,
    ) -> Result<Answer, Failure> {
        let handle = (set.valid & fattr::FH != 0).then_some(set.handle);
        let set = &self.with_server_time(*set);
        let fid = match self.fid_for(caller, node, handle) {
            // Its name was lost with a connection. The kernel would report the error to those that
            // open the file next, under another name.
            Err(Failure::Errno(errno::ESTALE))
                if self.is_written_back(set) && !lock(&self.nodes).is_found(node) =>
            {
                let attr = lock(&self.nodes).shown_attr(node).ok_or(errno::ESTALE)?;
                return Ok(self.attributes(node, &attr));
            }
            found => found?,
        };
        match self.change(caller, &fid, set) {
            // The kernel writes back the modification time of a file that the user may write but
            // does not own; the server has set it with the data.
            Err(Failure::Errno(errno::EPERM | errno::EACCES)) if self.is_written_back(set) => {}
            done => {
                done?;
                let kind = if set.valid & fattr::SIZE != 0 { Kind::Data } else { Kind::Other };
                lock(&self.nodes).changed(node, kind, fid.connection.number, caller.pid);
            }
        }
        let attr = self.stat(caller, &fid)?;
        Ok(self.attributes(node, &attr))
    }

    /// With a write-back cache the kernel sends its own time instead of "now", which not only the
    /// owner may set. A change of the size sets the times in any case.
    fn with_server_time(&self, mut set: SetAttr) -> SetAttr {
        if self.settings.cache == Cache::Write && set.valid & fattr::SIZE != 0 {
            set.valid &= !(fattr::MTIME | fattr::CTIME);
        }
        let both_now = fattr::ATIME_NOW | fattr::MTIME | fattr::CTIME;
        let is_now = set.valid & both_now == both_now && set.mtime == set.ctime;
        if self.settings.cache == Cache::Write && is_now {
            set.valid |= fattr::MTIME_NOW;
        }
        set
    }

    /// Reports whether the kernel writes back what it has cached.
    fn is_written_back(&self, set: &SetAttr) -> bool {
        let times = fattr::MTIME | fattr::CTIME;
        self.settings.cache == Cache::Write && set.valid & !fattr::FH == times
    }

    /// Returns the target of a symbolic link.
    pub(crate) fn readlink(&self, caller: &Caller<'_>, node: u64) -> Result<Answer, Failure> {
        let fid = self.fid(caller, node)?;
        self.linux_only(&fid.connection)?;
        let message = Tmessage::Readlink { fid: fid.number };
        let target = only!(Rmessage::Readlink { target } => target.to_vec());
        Ok(Answer::bytes(fid.connection.call(caller.interrupt, &message, target)?))
    }

    /// Returns the space of a file system.
    pub(crate) fn statfs(&self, caller: &Caller<'_>, node: u64) -> Result<Answer, Failure> {
        let fid = self.fid(caller, node)?;
        Ok(Answer::bytes(statfs_reply(&self.space(caller, &fid)?)))
    }

    /// Answers access(2) by the mode bits, as 9P has no message for it. Every operation is checked
    /// by the server in any case.
    pub(crate) fn access(
        &self,
        caller: &Caller<'_>,
        node: u64,
        mask: u32,
    ) -> Result<Answer, Failure> {
        let attr = match self.attr_ahead(node) {
            Some(attr) => attr,
            None => self.stat(caller, &*self.fid(caller, node)?)?,
        };
        self.expect_name(node, &attr)?;
        let groups = || groups_of(caller.pid);
        match permits(&attr, (caller.uid, caller.gid), groups, mask & 7) {
            true => Ok(Answer::empty()),
            false => Err(Failure::Errno(errno::EACCES)),
        }
    }

    /// Returns an extended attribute, or the list of their names for an empty name.
    pub(crate) fn get_xattr(
        &self,
        caller: &Caller<'_>,
        node: u64,
        (name, size): (&[u8], u32),
    ) -> Result<Answer, Failure> {
        let fid = self.fid(caller, node)?;
        self.linux_only(&fid.connection)?;
        let found = linux::xattr(&fid.connection, caller.interrupt, fid.number, (name, size))?;
        Ok(Answer::bytes(match found {
            Xattr::Size(size) => size_reply(size),
            Xattr::Value(value) => value,
        }))
    }

    /// Sets an extended attribute.
    pub(crate) fn set_xattr(
        &self,
        caller: &Caller<'_>,
        node: u64,
        change: (&[u8], &[u8], u32),
    ) -> Result<Answer, Failure> {
        let (fid, copy) = self.clone_fid(caller, node)?;
        self.linux_only(&fid.connection)?;
        linux::set_xattr(caller.interrupt, copy, change)?;
        lock(&self.nodes).changed(node, Kind::Other, fid.connection.number, caller.pid);
        Ok(Answer::empty())
    }

    /// Removes an extended attribute.
    pub(crate) fn remove_xattr(
        &self,
        caller: &Caller<'_>,
        node: u64,
        name: &[u8],
    ) -> Result<Answer, Failure> {
        self.set_xattr(caller, node, (name, b"", XATTR_REPLACE))
    }
}

/// Returns the supplementary groups of a process; none if it cannot be seen.
fn groups_of(pid: u32) -> Vec<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Groups:"));
    line.unwrap_or_default().split_whitespace().filter_map(|it| it.parse().ok()).collect()
}

/// Reports whether the mode bits permit an access.
fn permits(
    attr: &Attr,
    (uid, gid): (u32, u32),
    groups: impl FnOnce() -> Vec<u32>,
    mask: u32,
) -> bool {
    const X_OK: u32 = 1;
    let mode = attr.shown.mode;
    if uid == 0 {
        return mask & X_OK == 0 || attr.is_dir() || mode & 0o111 != 0;
    }
    let bits = if uid == attr.shown.uid {
        mode >> 6
    } else if gid == attr.shown.gid || groups().contains(&attr.shown.gid) {
        mode >> 3
    } else {
        mode
    };
    mask & !bits == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::fuse::Attributes;
    use wire::ninep::Qid;

    #[test]
    fn mode_bits_are_those_of_owner_group_or_others() {
        let shown = Attributes { mode: 0o100_741, uid: 1000, gid: 100, ..Attributes::default() };
        let attr = Attr { qid: Qid::default(), shown, created: None };
        let may =
            |uid, gid, groups: &[u32], mask| permits(&attr, (uid, gid), || groups.to_vec(), mask);
        assert!(may(1000, 1, &[], 7));
        assert!(may(1, 100, &[], 4) && !may(1, 100, &[], 2));
        assert!(may(1, 1, &[5, 100], 4) && !may(1, 1, &[5], 4));
        assert!(may(1, 1, &[], 1) && may(0, 0, &[], 7));
    }

    #[test]
    fn own_groups_are_found() {
        let pid = std::process::id();
        assert!(groups_of(pid).iter().all(|gid| *gid < u32::MAX));
        assert!(groups_of(u32::MAX).is_empty());
    }
}
