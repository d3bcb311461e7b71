//! Attributes: those of every file, and extended ones; usage of the volume.

use super::NodeRef;
use super::permission::{READ, WRITE};
use super::plan::{Effects, Planned, Planner, answer};
use super::quota::Named;
use super::read_view::Stop;
use super::record::{ATTRS, Attr, Holder, Inode, Quota, pair};
use super::write_set::WriteSet;
use crate::request::{NodeId, OpenId, Reply};
use base::{Error, Kind, NAME_MAX, SetStat, SetTime, StatFs, Time};
use std::ops::ControlFlow;
use store::View;

/// Maximum length of the value of an extended attribute, bytes (Linux `XATTR_SIZE_MAX`).
const VALUE_MAX: usize = 64 << 10;
/// Maximum length of the name of an extended attribute, bytes (Linux `XATTR_NAME_MAX`).
const ATTR_NAME_MAX: usize = 255;
/// Maximum number of extended attributes of a file: their names fit the longest list in Linux.
const ATTRS_MAX: u32 = 256;

/// Magic number of this file system (`statfs(2)`): "Upca".
const MAGIC: u32 = 0x5570_6361;

impl Planner<'_> {
    /// Changes attributes: size and owner first, because both clear set-id bits.
    pub(super) fn set_stat(&self, node: NodeId, open: Option<OpenId>, set: &SetStat) -> Planned {
        let ino = self.changeable(node)?;
        let (mut write_set, mut effects) = (self.write_set()?, Effects::default());
        if *set == SetStat::default() {
            return answer(Reply::Done);
        }
        let writer = match open.filter(|_| set.size.is_some()) {
            Some(open) => {
                let access = self.volume.open(open).what.access;
                if !access.write && !access.append {
                    return Err(Error::Invalid.into());
                }
                true
            }
            None => false,
        };
        let before = write_set.look(ino)?;
        if let Some(size) = set.size {
            self.expect_resizable(&before, writer)?;
            self.resize(&mut write_set, ino, size, &mut effects)?;
        }
        if set.uid.is_some() || set.gid.is_some() {
            self.set_owner(&mut write_set, ino, &before, set)?;
        }
        if let Some(mode) = set.mode {
            self.set_mode(&mut write_set, ino, &before, mode)?;
        }
        self.set_times(&mut write_set, ino, &before, writer, set)?;
        let now = write_set.now();
        let inode = write_set.inode(ino)?;
        if set.size.is_none() {
            inode.touch(now);
        }
        self.commit(write_set, Reply::Done, effects)
    }

    fn expect_resizable(&self, inode: &Inode, writer: bool) -> Result<(), Error> {
        match inode.kind {
            Kind::File if writer => Ok(()),
            Kind::File => self.who.may(inode, WRITE),
            Kind::Directory => Err(Error::IsDirectory),
            Kind::Symlink | Kind::Fifo | Kind::Socket | Kind::CharDevice | Kind::BlockDevice => {
                Err(Error::Invalid)
            }
        }
    }

    /// Changes owner and group: only root changes owners; owners choose among their groups.
    fn set_owner(
        &self,
        write_set: &mut WriteSet<'_>,
        ino: u64,
        before: &Inode,
        set: &SetStat,
    ) -> Result<(), Stop> {
        if set.uid == Some(u32::MAX) || set.gid == Some(u32::MAX) {
            return Err(Error::Invalid.into());
        }
        let (uid, gid) = (set.uid.unwrap_or(before.uid), set.gid.unwrap_or(before.gid));
        let (who, same_uid, same_gid) = (self.who, uid == before.uid, gid == before.gid);
        let may =
            who.is_root() || (who.owns(before) && same_uid && (same_gid || who.is_member(gid)));
        if !may {
            return Err(Error::NotPermitted.into());
        }
        let inode = write_set.inode(ino)?;
        inode.mode = who.mode_after_chown(inode);
        inode.gid = gid;
        write_set.change_owner(ino, uid)
    }

    fn set_mode(
        &self,
        write_set: &mut WriteSet<'_>,
        ino: u64,
        before: &Inode,
        mode: u32,
    ) -> Result<(), Stop> {
        if before.kind == Kind::Symlink {
            return Err(Error::Unsupported.into());
        }
        if !self.who.owns(before) {
            return Err(Error::NotPermitted.into());
        }
        let inode = write_set.inode(ino)?;
        inode.mode = self.who.mode_after_chmod(mode, inode.gid);
        Ok(())
    }

    /// Changes timestamps: chosen ones for owners only; the current time for all who may write.
    fn set_times(
        &self,
        write_set: &mut WriteSet<'_>,
        ino: u64,
        before: &Inode,
        writer: bool,
        set: &SetStat,
    ) -> Result<(), Stop> {
        let times = [set.accessed, set.modified];
        if times.iter().all(Option::is_none) {
            return Ok(());
        }
        let explicit = times.iter().flatten().any(|time| *time != SetTime::Now);
        if !self.who.owns(before) {
            if explicit {
                return Err(Error::NotPermitted.into());
            }
            if !writer {
                self.who.may(before, WRITE)?;
            }
        }
        let now = write_set.now();
        let inode = write_set.inode(ino)?;
        let date = |time| match time {
            SetTime::Now => now,
            SetTime::At(time) => Time { nanos: time.nanos.min(999_999_999), ..time },
        };
        inode.accessed = set.accessed.map_or(inode.accessed, date);
        inode.modified = set.modified.map_or(inode.modified, date);
        Ok(())
    }

    /// Returns the usage of the volume with respect to its own limits; in a directory with a quota,
    /// and beneath it, the usage of the quota.
    pub(super) fn stat_fs(&self, node: NodeId) -> Planned {
        let write_set = self.write_set()?;
        let read_view = &write_set.read_view;
        let (space, counters) = (self.volume.store.space(), read_view.counters()?);
        let quota = match self.volume.node_ref(node) {
            NodeRef::File(View::Present, ino) => write_set
                .quota(Holder::Project(write_set.look(ino)?.project))
                .filter(Quota::is_enforced),
            NodeRef::File(View::Snapshot(_), _) | NodeRef::Snapshots => None,
        };
        let limit = read_view.settings.bytes_max / read_view.block;
        let blocks = space.blocks.min(limit);
        let left = blocks.saturating_sub(counters.blocks);
        // Without a limit, each free block allows about one more file.
        let most = counters.inodes.saturating_add(space.blocks_available);
        let files = read_view.settings.inodes_max.min(most);
        let mut stat = StatFs {
            kind: MAGIC,
            block_size: u32::try_from(read_view.block).expect("blocks are small"),
            blocks,
            blocks_free: space.blocks_free.min(left),
            blocks_available: space.blocks_available.min(left),
            files,
            files_free: files.saturating_sub(counters.inodes),
            id: read_view.device,
            name_max: NAME_MAX as u32,
        };
        if let Some(quota) = quota {
            let limits = quota.limits(read_view.block, blocks, files);
            let left = limits.blocks.saturating_sub(quota.blocks);
            stat.blocks = limits.blocks;
            stat.blocks_free = stat.blocks_free.min(left);
            stat.blocks_available = stat.blocks_available.min(left);
            stat.files = limits.inodes;
            stat.files_free = stat.files_free.min(limits.inodes.saturating_sub(quota.inodes));
        }
        answer(Reply::StatFs(stat))
    }

    pub(super) fn get_attr(&self, node: NodeId, name: &[u8]) -> Planned {
        let NodeRef::File(view, ino) = self.volume.node_ref(node) else {
            return Err(Error::NoAttribute.into());
        };
        let read_view = self.read_view(view)?;
        self.may_attr(&read_view.inode(ino)?, name, READ)?;
        if let Some(named) = Named::of(name) {
            return self.get_quota(view, ino, named);
        }
        let (_, value) = read_view.attr(ino, name)?.ok_or(Error::NoAttribute)?;
        answer(Reply::Bytes(value))
    }

    /// Returns the names of the attributes visible to the caller.
    pub(super) fn list_attrs(&self, node: NodeId) -> Planned {
        let NodeRef::File(view, ino) = self.volume.node_ref(node) else {
            return answer(Reply::Bytes(Vec::new()));
        };
        let read_view = self.read_view(view)?;
        let mut list = Vec::new();
        if read_view.inode(ino)?.attrs > 0 {
            let root = self.who.is_root();
            read_view.scan(ATTRS, ino, 0, &mut |_cookie, value| {
                if let Some(attr) = Attr::decode(&value.bytes())
                    && (root || !attr.name.starts_with(b"trusted."))
                {
                    list.extend(attr.name.iter().chain(&[0]));
                }
                ControlFlow::Continue(())
            })?;
        }
        answer(Reply::Bytes(list))
    }

    pub(super) fn set_attr(
        &self,
        node: NodeId,
        name: &[u8],
        value: &[u8],
        create: Option<bool>,
    ) -> Planned {
        let ino = self.changeable(node)?;
        let mut write_set = self.write_set()?;
        self.may_attr(&write_set.look(ino)?, name, WRITE)?;
        if let Some(named) = Named::of(name) {
            return self.limit(ino, named, value, create);
        }
        let attr = Attr { name, value }.encode();
        if value.len() > VALUE_MAX || attr.len() > self.volume.store.layout().value_max() {
            return Err(Error::AttributeTooLarge.into());
        }
        let old = write_set.read_view.attr(ino, name)?;
        let cookie = match (old, create) {
            (Some(_), Some(true)) => return Err(Error::Exists.into()),
            (None, Some(false)) => return Err(Error::NoAttribute.into()),
            (Some((cookie, _)), _) => cookie,
            (None, _) => {
                let inode = write_set.inode(ino)?;
                if inode.attrs >= ATTRS_MAX {
                    return Err(Error::NoSpace.into());
                }
                inode.attrs += 1;
                write_set.read_view.vacant(ATTRS, ino, name)?
            }
        };
        write_set.put(ATTRS, pair(ino, cookie).to_vec(), attr);
        let now = write_set.now();
        write_set.inode(ino)?.touch(now);
        self.commit(write_set, Reply::Done, Effects::default())
    }

    pub(super) fn remove_attr(&self, node: NodeId, name: &[u8]) -> Planned {
        let ino = self.changeable(node)?;
        let mut write_set = self.write_set()?;
        self.may_attr(&write_set.look(ino)?, name, WRITE)?;
        if let Some(named) = Named::of(name) {
            return self.remove_quota(ino, named);
        }
        let (cookie, _) = write_set.read_view.attr(ino, name)?.ok_or(Error::NoAttribute)?;
        write_set.delete(ATTRS, pair(ino, cookie).to_vec());
        let now = write_set.now();
        let inode = write_set.inode(ino)?;
        inode.attrs = inode.attrs.saturating_sub(1);
        inode.touch(now);
        self.commit(write_set, Reply::Done, Effects::default())
    }

    /// Checks the permission to read or write an attribute (`xattr(7)`).
    fn may_attr(&self, inode: &Inode, name: &[u8], want: u32) -> Result<(), Error> {
        if name.is_empty() || name.len() > ATTR_NAME_MAX {
            return Err(Error::AttributeTooLarge);
        }
        if name.contains(&0) || [&b"user."[..], b"trusted.", b"security."].contains(&name) {
            return Err(Error::Invalid);
        }
        let (root, write) = (self.who.is_root(), want == WRITE);
        let refused = if write { Error::NotPermitted } else { Error::NoAttribute };
        if name.starts_with(b"trusted.") {
            return if root { Ok(()) } else { Err(refused) };
        }
        if name.starts_with(b"security.") {
            return if root || !write { Ok(()) } else { Err(Error::NotPermitted) };
        }
        if !name.starts_with(b"user.") {
            return Err(Error::Unsupported);
        }
        match inode.kind {
            Kind::File => {}
            // In a directory writable for all they would be storage without a quota.
            Kind::Directory if write && inode.mode & 0o1000 != 0 && !self.who.owns(inode) => {
                return Err(Error::NotPermitted);
            }
            Kind::Directory => {}
            Kind::Symlink | Kind::Fifo | Kind::Socket | Kind::CharDevice | Kind::BlockDevice => {
                return Err(refused);
            }
        }
        self.who.may(inode, want)
    }
}
