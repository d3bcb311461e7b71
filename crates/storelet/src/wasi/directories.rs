//! Paths: finding, making, moving and removing files, and listing directories.
#![expect(clippy::too_many_arguments, reason = "they are those of WASI")]

use super::path::{find, parent};
use super::{Call, files};
use crate::abi::{self, Errno};
use crate::door::Given;
use crate::host::{OpenDir, OpenFile, Slot, Stop};
use base::op::Entry;
use base::{Access, Kind, Stat};
use tree::{Ask, NodeId, OpenId, Reply};

/// About so many bytes of entries are got at once.
const LIST: u32 = 64 << 10;

impl Call<'_> {
    fn dir(&mut self, fd: u32) -> Result<NodeId, Errno> {
        self.host().files.dir(fd).map(|dir| dir.node)
    }

    pub(super) async fn path_open(
        &mut self,
        fd: u32,
        flags: u32,
        at: u32,
        len: u32,
        oflags: u32,
        rights: u64,
        _inheriting: u64,
        fdflags: u32,
        out: u32,
    ) -> Result<(), Stop> {
        let (base, path, client) = (self.dir(fd)?, self.path(at, len)?, self.client());
        let (oflags, fdflags) = (oflags as u16, fdflags as u16);
        let has = |flag| oflags & flag != 0;
        if has(abi::CREAT) && has(abi::DIRECTORY) {
            return Err(Errno::Inval.into());
        }
        if !self.host().files.has_room() {
            return Err(Errno::Mfile.into());
        }
        // What is opened must not be lost because its number cannot be told.
        self.bytes(out, 4)?;
        let access = Access {
            read: rights & abi::RIGHT_READ != 0 || rights & abi::RIGHT_WRITE == 0,
            write: rights & abi::RIGHT_WRITE != 0,
            append: fdflags & abi::APPEND != 0,
            truncate: has(abi::TRUNC),
            sync: fdflags & (abi::SYNC | abi::DSYNC) != 0,
        };
        if access.changes() || has(abi::CREAT) {
            self.must_write()?;
        }
        let follow = flags & abi::SYMLINK_FOLLOW != 0;
        let found = match find(&client, base, &path, follow).await {
            Ok(_) if has(abi::CREAT) && has(abi::EXCL) => return Err(Errno::Exist.into()),
            Ok(found) => Some(found),
            Err(Stop::Errno(Errno::Noent)) if has(abi::CREAT) => None,
            Err(stop) => return Err(stop),
        };
        let Some((held, stat)) = found else {
            let (dir, name) = parent(&client, base, &path).await?;
            let exclusive = has(abi::EXCL);
            let dir = dir.node();
            let ask = Ask::Create { dir, name, access, exclusive, mode: 0o666, gid: None };
            let Reply::Created(node, open, _) = client.ask(ask).await? else {
                unreachable!("an answer to another question")
            };
            return self.opened(node, open, access, rights, out);
        };
        match stat.kind {
            Kind::Symlink => return Err(Errno::Loop.into()),
            Kind::Directory => {
                if access.changes() {
                    return Err(Errno::Isdir.into());
                }
                let dir = Slot::Dir(OpenDir::new(held.keep(), None));
                let fd = self.host().files.add(dir);
                return Ok(self.put_u32(out, fd)?);
            }
            _ if has(abi::DIRECTORY) => return Err(Errno::Notdir.into()),
            Kind::File => {}
            // Those may wait for ever, or do what nobody expects of a file.
            Kind::Fifo | Kind::Socket | Kind::CharDevice | Kind::BlockDevice => {
                return Err(Errno::Notsup.into());
            }
        }
        let open = client.open(held.node(), access).await?;
        self.opened(held.keep(), open, access, rights, out)
    }

    fn opened(
        &mut self,
        node: NodeId,
        open: OpenId,
        access: Access,
        rights: u64,
        out: u32,
    ) -> Result<(), Stop> {
        let file = OpenFile { node, open, offset: 0, append: access.append, rights };
        let fd = self.host().files.add(Slot::File(file));
        Ok(self.put_u32(out, fd)?)
    }

    pub(super) async fn fd_readdir(
        &mut self,
        fd: u32,
        at: u32,
        len: u32,
        cookie: u64,
        out: u32,
    ) -> Result<(), Stop> {
        self.bytes(at, len)?;
        let (mut done, mut cookie) = (0, cookie);
        'full: loop {
            let entries = self.entries_behind(fd, cookie).await?;
            if entries.is_empty() {
                break;
            }
            for entry in &entries {
                let name = entry.name.as_bytes();
                let file_type = abi::file_type(entry.kind);
                let head = abi::dirent(entry.cookie, entry.inode, name.len() as u32, file_type);
                for bytes in [&head[..], name] {
                    let now = bytes.len().min((len - done) as usize);
                    self.put(at + done, &bytes[..now])?;
                    done += now as u32;
                    if done == len {
                        break 'full;
                    }
                }
                cookie = entry.cookie;
            }
        }
        Ok(self.put_u32(out, done)?)
    }

    /// Entries behind a cookie: some of those that were got, or the next; none: the end.
    async fn entries_behind(&mut self, fd: u32, cookie: u64) -> Result<Vec<Entry>, Stop> {
        let dir = self.host().files.dir(fd)?;
        if cookie == 0 {
            // From the beginning: as the directory is now, not as it was.
            dir.entries.clear();
        }
        let place = match dir.from == cookie && !dir.entries.is_empty() {
            true => Some(0),
            false => dir.entries.iter().position(|entry| entry.cookie == cookie).map(|at| at + 1),
        };
        if let Some(rest) = place.map(|place| &dir.entries[place..])
            && !rest.is_empty()
        {
            return Ok(rest.to_vec());
        }
        let (node, open, client) = (dir.node, dir.open, self.client());
        let open = match open {
            Some(open) => open,
            None => client.open(node, Access::READ).await?,
        };
        self.host().files.dir(fd)?.open = Some(open);
        let entries = client.list(open, cookie, LIST).await?;
        let dir = self.host().files.dir(fd)?;
        (dir.from, dir.entries) = (cookie, entries.clone());
        Ok(entries)
    }

    pub(super) async fn path_filestat_get(
        &mut self,
        fd: u32,
        flags: u32,
        at: u32,
        len: u32,
        out: u32,
    ) -> Result<(), Stop> {
        let (base, path, client) = (self.dir(fd)?, self.path(at, len)?, self.client());
        let follow = flags & abi::SYMLINK_FOLLOW != 0;
        let (_, stat): (_, Stat) = find(&client, base, &path, follow).await?;
        Ok(self.put(out, &abi::filestat(&stat))?)
    }

    pub(super) async fn path_filestat_set_times(
        &mut self,
        fd: u32,
        flags: u32,
        at: u32,
        len: u32,
        atim: u64,
        mtim: u64,
        which: u32,
    ) -> Result<(), Stop> {
        self.must_write()?;
        let (base, path, client) = (self.dir(fd)?, self.path(at, len)?, self.client());
        let follow = flags & abi::SYMLINK_FOLLOW != 0;
        let set = files::times(atim, mtim, which)?;
        let (held, _) = find(&client, base, &path, follow).await?;
        client.ask(Ask::SetStat { node: held.node(), open: None, set }).await.map(drop)
    }

    pub(super) async fn path_create_directory(
        &mut self,
        fd: u32,
        at: u32,
        len: u32,
    ) -> Result<(), Stop> {
        self.must_write()?;
        let (base, path, client) = (self.dir(fd)?, self.path(at, len)?, self.client());
        let (dir, name) = parent(&client, base, &path).await?;
        client.ask(Ask::MakeDir { dir: dir.node(), name, mode: 0o777, gid: None }).await.map(drop)
    }

    async fn remove(&mut self, fd: u32, at: u32, len: u32, directory: bool) -> Result<(), Stop> {
        self.must_write()?;
        let (base, path, client) = (self.dir(fd)?, self.path(at, len)?, self.client());
        let (dir, name) = parent(&client, base, &path).await?;
        let ask = Ask::Remove { dir: dir.node(), name, directory: Some(directory) };
        client.ask(ask).await.map(drop)
    }

    pub(super) async fn path_remove_directory(
        &mut self,
        fd: u32,
        at: u32,
        len: u32,
    ) -> Result<(), Stop> {
        self.remove(fd, at, len, true).await
    }

    pub(super) async fn path_unlink_file(
        &mut self,
        fd: u32,
        at: u32,
        len: u32,
    ) -> Result<(), Stop> {
        self.remove(fd, at, len, false).await
    }

    pub(super) async fn path_rename(
        &mut self,
        old_fd: u32,
        old_at: u32,
        old_len: u32,
        new_fd: u32,
        new_at: u32,
        new_len: u32,
    ) -> Result<(), Stop> {
        self.must_write()?;
        let (old, new, client) = (self.dir(old_fd)?, self.dir(new_fd)?, self.client());
        let (old_path, new_path) = (self.path(old_at, old_len)?, self.path(new_at, new_len)?);
        let (from, name) = parent(&client, old, &old_path).await?;
        let (to, new_name) = parent(&client, new, &new_path).await?;
        let (from, to) = (from.node(), to.node());
        client.ask(Ask::Rename { from, name, to, new_name, replace: true }).await.map(drop)
    }

    pub(super) async fn path_link(
        &mut self,
        old_fd: u32,
        flags: u32,
        old_at: u32,
        old_len: u32,
        new_fd: u32,
        new_at: u32,
        new_len: u32,
    ) -> Result<(), Stop> {
        self.must_write()?;
        let (old, new, client) = (self.dir(old_fd)?, self.dir(new_fd)?, self.client());
        let (old_path, new_path) = (self.path(old_at, old_len)?, self.path(new_at, new_len)?);
        let follow = flags & abi::SYMLINK_FOLLOW != 0;
        let (held, _) = find(&client, old, &old_path, follow).await?;
        let (dir, name) = parent(&client, new, &new_path).await?;
        client.ask(Ask::Link { node: held.node(), dir: dir.node(), name }).await.map(drop)
    }

    pub(super) async fn path_symlink(
        &mut self,
        target: u32,
        target_len: u32,
        fd: u32,
        at: u32,
        len: u32,
    ) -> Result<(), Stop> {
        self.must_write()?;
        let (base, path, client) = (self.dir(fd)?, self.path(at, len)?, self.client());
        let target = self.path(target, target_len)?;
        if target.is_empty() || target[0] == b'/' {
            // It would lead out of what the guest may see, for others too.
            return Err(Errno::Notcapable.into());
        }
        let (dir, name) = parent(&client, base, &path).await?;
        client.ask(Ask::Symlink { dir: dir.node(), name, target, gid: None }).await.map(drop)
    }

    pub(super) async fn path_readlink(
        &mut self,
        fd: u32,
        at: u32,
        len: u32,
        buf: u32,
        buf_len: u32,
        out: u32,
    ) -> Result<(), Stop> {
        let (base, path, client) = (self.dir(fd)?, self.path(at, len)?, self.client());
        let (held, stat) = find(&client, base, &path, false).await?;
        if stat.kind != Kind::Symlink {
            return Err(Errno::Inval.into());
        }
        let target = client.read_link(held.node()).await?;
        let count = target.len().min(buf_len as usize);
        self.put(buf, &target[..count])?;
        Ok(self.put_u32(out, count as u32)?)
    }
}

/// What an answer hands out that comes when nobody waits for it any more.
pub(crate) fn handed_out(reply: &Reply) -> Vec<Given> {
    match reply {
        Reply::Walked(_, node) => node.iter().map(|node| Given::Node(*node)).collect(),
        Reply::Fetched(_, _, open) => open.iter().map(|open| Given::Open(*open)).collect(),
        Reply::Opened(open, _) => vec![Given::Open(*open)],
        Reply::Created(node, open, _) => vec![Given::Open(*open), Given::Node(*node)],
        Reply::Done
        | Reply::Stat(_)
        | Reply::Data(_)
        | Reply::Pieces(_)
        | Reply::Written(_)
        | Reply::Entries(_)
        | Reply::Bytes(_)
        | Reply::StatFs(_)
        | Reply::Locked
        | Reply::Blocked
        | Reply::Conflict(_)
        | Reply::User(_) => Vec::new(),
    }
}
