//! Paths: opening, creating, renaming and removing files; listing directories.
#![expect(clippy::too_many_arguments, reason = "they are those of WASI")]

use super::path::{Found, find, parent};
use super::way::OpenParameters;
use super::{Call, files};
use crate::abi::{self, Errno};
use crate::host::{Host, OpenDir, Slot, Stop};
use crate::host_channel::{Given, Want};
use crate::listings::{Entries, Seen, joined, parted, plain};
use base::{Access, Buf, Kind, Stat};
use std::sync::Arc;
use tree::{Ask, NodeId, OpenId, Reply};

/// Approximate size of a listing request, bytes.
const LIST: u32 = 64 << 10;

/// Number of bytes read on open.
const FETCH: u32 = 64 << 10;

impl Call<'_> {
    /// Returns the directory and the path of a call.
    async fn place(&mut self, fd: u32, at: u32, len: u32) -> Result<(NodeId, Vec<u8>), Stop> {
        self.host().files.dir(fd)?;
        let path = self.path(at, len)?;
        let node = self.node(fd).await?.ok_or(Errno::Notdir)?;
        Ok((node, path))
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
        let path = self.path(at, len)?;
        self.host().files.dir(fd)?;
        let way = OpenParameters::new(flags, oflags as u16, rights, fdflags as u16)?;
        if !self.host().files.has_room() {
            return Err(Errno::Mfile.into());
        }
        // The open file must not be lost because its number cannot be stored.
        self.bytes(out, 4)?;
        if way.changes() {
            self.must_write()?;
        }
        let slot = match way.changes() {
            true => None,
            false => self.open_ahead(fd, &path, &way).await?,
        };
        let slot = match slot {
            Some(slot) => slot,
            None => self.open_at(fd, &path, &way).await?,
        };
        let fd = self.host().add(slot);
        Ok(self.put_u32(out, fd)?)
    }

    /// Opens step by step, and creates if requested.
    async fn open_at(&mut self, fd: u32, path: &[u8], way: &OpenParameters) -> Result<Slot, Stop> {
        let base = self.node(fd).await?.ok_or(Errno::Notdir)?;
        let (client, access) = (self.client(), way.access);
        let found = match find(&client, base, path, way.follow).await {
            Ok(_) if way.has(abi::CREAT) && way.has(abi::EXCL) => return Err(Errno::Exist.into()),
            Ok(found) => found,
            Err(Stop::Errno(Errno::Noent)) if way.has(abi::CREAT) => {
                let (dir, name) = parent(&client, base, path).await?;
                let exclusive = way.has(abi::EXCL);
                let (node, open) = client.create(dir.node(), name, access, exclusive).await?;
                return Ok(Slot::File(way.opened(node, open)));
            }
            Err(stop) => return Err(stop),
        };
        let Found { held, stat, straight } = found;
        match stat.kind {
            Kind::Symlink => Err(Errno::Loop.into()),
            Kind::Directory if access.changes() => Err(Errno::Isdir.into()),
            Kind::Directory => {
                let above = self.host().files.dir(fd)?.path.clone().filter(|_| straight);
                let path = above.zip(plain(path)).map(|(above, path)| joined(&above, &path));
                Ok(Slot::Dir(OpenDir::found(held.keep(), path)))
            }
            _ if way.has(abi::DIRECTORY) => Err(Errno::Notdir.into()),
            Kind::File => {
                let open = client.open(held.node(), access).await?;
                Ok(Slot::File(way.opened(held.keep(), open)))
            }
            // Those may block forever, or behave unlike files.
            Kind::Fifo | Kind::Socket | Kind::CharDevice | Kind::BlockDevice => {
                Err(Errno::Notsup.into())
            }
        }
    }

    /// Returns the path from the guest's root, if neither it nor the known path of the directory
    /// has `..`.
    fn straight(&mut self, fd: u32, path: &[u8]) -> Result<Option<Vec<u8>>, Stop> {
        let above = self.host().files.dir(fd)?.path.clone();
        Ok(above.zip(plain(path)).map(|(above, path)| joined(&above, &path)))
    }

    /// Opens from cached listings, or by fetching the whole file, with at most one request.
    async fn open_ahead(
        &mut self,
        fd: u32,
        path: &[u8],
        way: &OpenParameters,
    ) -> Result<Option<Slot>, Stop> {
        let directory = way.has(abi::DIRECTORY);
        let straight = self.straight(fd, path)?;
        let to_dir = path.ends_with(b"/") || path.ends_with(b"/.");
        let straight = straight.filter(|path| !path.is_empty() && !to_dir);
        let Some(path) = straight else { return Ok(None) };
        let host = self.host();
        host.absorb();
        let seen = host.seen();
        let known = host.prefetcher.listings.kind(&path, seen);
        if known.is_none() && self.is_absent(&path).await? {
            return Err(Errno::Noent.into());
        }
        let host = self.host();
        let (seen, root) = (host.seen(), host.root);
        match known.or_else(|| host.prefetcher.listings.kind(&path, seen)) {
            Some(Kind::Directory) => return Ok(Some(Slot::Dir(OpenDir::listed(path)))),
            Some(Kind::File) if directory => return Err(Errno::Notdir.into()),
            Some(Kind::File) => {}
            None if way.follow && !directory => {}
            Some(
                Kind::Symlink | Kind::Fifo | Kind::Socket | Kind::CharDevice | Kind::BlockDevice,
            )
            | None => return Ok(None),
        }
        if let Some((stat, data, seen)) = self.content(&path).await? {
            return Ok(Some(Slot::File(way.fetched(path, (stat, data, None), seen))));
        }
        let found = self.client().fetch(root, &path, FETCH).await?;
        Ok(found.map(|found| Slot::File(way.fetched(path, found, seen))))
    }

    /// Returns whether a path is known not to exist. Obtains the listing of its directory if the
    /// guest is about to list that: programs look for their own files in each directory first.
    async fn is_absent(&mut self, path: &[u8]) -> Result<bool, Stop> {
        let (dir, host) = (parted(path).0, self.host());
        host.absorb();
        let seen = host.seen();
        if host.prefetcher.listings.is_expected(dir, seen) && host.left_to_ask().is_some() {
            self.learn(dir).await?;
        }
        let host = self.host();
        let seen = host.seen();
        Ok(host.prefetcher.listings.is_absent(path, seen, host.received))
    }

    /// Takes a prefetched file, and prefetches those behind it.
    async fn content(&mut self, path: &[u8]) -> Result<Option<(Stat, Buf, Seen)>, Stop> {
        self.host().absorb();
        if self.host().prefetcher.is_file_coming(path) {
            self.client().want(Want::Prefetch).await?;
            self.host().absorb();
        }
        let host = self.host();
        let (seen, root) = (host.seen(), host.root);
        let content = host.prefetcher.take_file(path, seen);
        if let Some(left) = host.left_to_ask()
            && let Some(ask) = host.prefetcher.see_files(path, root, seen, left)
        {
            self.client().foresee(ask).await?;
        }
        Ok(content)
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
            let (entries, place) = self.entries_behind(fd, cookie).await?;
            if place >= entries.len() {
                break;
            }
            for (entry, behind) in entries[place..].iter().zip(place + 1..) {
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
                self.host().files.dir(fd)?.place = (cookie, behind);
            }
        }
        Ok(self.put_u32(out, done)?)
    }

    /// Returns entries and the index of the first one after a cookie; none there at the end.
    async fn entries_behind(&mut self, fd: u32, cookie: u64) -> Result<(Entries, usize), Stop> {
        if cookie == 0 {
            // Reading from the start shows the directory as it is now.
            self.list_ahead(fd).await?;
        }
        let dir = self.host().files.dir(fd)?;
        if let Some(place) = dir.place_behind(cookie)
            && (dir.is_all || place < dir.entries.len())
        {
            return Ok((Arc::clone(&dir.entries), place));
        }
        if dir.is_all && dir.entries.is_empty() {
            return Ok((Entries::default(), 0));
        }
        let (open, client) = (self.open_dir(fd).await?, self.client());
        let entries = Arc::new(client.list(open, cookie, LIST).await?);
        let dir = self.host().files.dir(fd)?;
        (dir.from, dir.entries, dir.is_all) = (cookie, Arc::clone(&entries), false);
        dir.place = (cookie, 0);
        Ok((entries, 0))
    }

    /// Opens a directory.
    async fn open_dir(&mut self, fd: u32) -> Result<OpenId, Stop> {
        if let Some(open) = self.host().files.dir(fd)?.open {
            return Ok(open);
        }
        let node = self.node(fd).await?.ok_or(Errno::Notdir)?;
        let open = self.client().open(node, Access::READ).await?;
        self.host().files.dir(fd)?.open = Some(open);
        Ok(open)
    }

    /// Obtains all entries of a directory from the prefetch cache, or prefetches from here if its
    /// tree supports that.
    async fn list_ahead(&mut self, fd: u32) -> Result<(), Stop> {
        let host = self.host();
        let (seen, root) = (host.seen(), host.root);
        let dir = host.files.dir(fd)?;
        (dir.entries, dir.is_all, dir.from, dir.place) = (Entries::default(), false, 0, (0, 0));
        let Some(path) = dir.path.clone() else { return Ok(()) };
        self.learn(&path).await?;
        let host = self.host();
        if let Some(entries) = host.prefetcher.listings.visit(&path, seen) {
            let dir = host.files.dir(fd)?;
            (dir.entries, dir.is_all) = (entries, true);
        }
        if host.left_to_ask().is_some()
            && let Some(ask) = host.prefetcher.see_directories(root, seen)
        {
            self.client().foresee(ask).await?;
        }
        Ok(())
    }

    /// Requests the listing of a directory, and of those behind it, if it is not cached and its
    /// tree supports that.
    async fn learn(&mut self, path: &[u8]) -> Result<(), Stop> {
        let host = self.host();
        let (seen, root) = (host.seen(), host.root);
        host.absorb();
        let is_known = |host: &Host| host.prefetcher.listings.get(path, seen).is_some();
        if !is_known(host) && host.prefetcher.are_listings_coming() {
            self.client().want(Want::Prefetch).await?;
            self.host().absorb();
        }
        while !is_known(self.host()) && !self.host().prefetcher.listings.unsupported {
            let (wanted, bytes_max) = self.host().prefetcher.listings.wanted(path, seen);
            let listed = self.client().list_all(root, wanted, bytes_max).await?;
            let listings = &mut self.host().prefetcher.listings;
            match listed {
                Some(listed) => listings.add(listed, seen),
                None => listings.unsupported = true,
            }
            if listings.get(path, seen).is_none() && !listings.ask_most() {
                break;
            }
        }
        Ok(())
    }

    pub(super) async fn path_filestat_get(
        &mut self,
        fd: u32,
        flags: u32,
        at: u32,
        len: u32,
        out: u32,
    ) -> Result<(), Stop> {
        let path = self.path(at, len)?;
        if let Some(path) = self.straight(fd, &path)?
            && self.is_absent(&path).await?
        {
            return Err(Errno::Noent.into());
        }
        let ((base, path), client) = (self.place(fd, at, len).await?, self.client());
        let follow = flags & abi::SYMLINK_FOLLOW != 0;
        let stat = find(&client, base, &path, follow).await?.stat;
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
        let ((base, path), client) = (self.place(fd, at, len).await?, self.client());
        let follow = flags & abi::SYMLINK_FOLLOW != 0;
        let set = files::times(atim, mtim, which)?;
        let held = find(&client, base, &path, follow).await?.held;
        client.ask(Ask::SetStat { node: held.node(), open: None, set }).await.map(drop)
    }

    pub(super) async fn path_create_directory(
        &mut self,
        fd: u32,
        at: u32,
        len: u32,
    ) -> Result<(), Stop> {
        self.must_write()?;
        let ((base, path), client) = (self.place(fd, at, len).await?, self.client());
        let (dir, name) = parent(&client, base, &path).await?;
        client.ask(Ask::MakeDir { dir: dir.node(), name, mode: 0o777, gid: None }).await.map(drop)
    }

    async fn remove(&mut self, fd: u32, at: u32, len: u32, directory: bool) -> Result<(), Stop> {
        self.must_write()?;
        let ((base, path), client) = (self.place(fd, at, len).await?, self.client());
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
        let (old, old_path) = self.place(old_fd, old_at, old_len).await?;
        let ((new, new_path), client) = (self.place(new_fd, new_at, new_len).await?, self.client());
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
        let (old, old_path) = self.place(old_fd, old_at, old_len).await?;
        let ((new, new_path), client) = (self.place(new_fd, new_at, new_len).await?, self.client());
        let follow = flags & abi::SYMLINK_FOLLOW != 0;
        let held = find(&client, old, &old_path, follow).await?.held;
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
        let ((base, path), client) = (self.place(fd, at, len).await?, self.client());
        let target = self.path(target, target_len)?;
        if target.is_empty() || target[0] == b'/' {
            // It would lead out of the guest's root, for other clients too.
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
        let ((base, path), client) = (self.place(fd, at, len).await?, self.client());
        let Found { held, stat, .. } = find(&client, base, &path, false).await?;
        if stat.kind != Kind::Symlink {
            return Err(Errno::Inval.into());
        }
        let target = client.read_link(held.node()).await?;
        let count = target.len().min(buf_len as usize);
        self.put(buf, &target[..count])?;
        Ok(self.put_u32(out, count as u32)?)
    }
}

/// Returns the resources of a reply that nothing waits for any more.
pub fn handed_out(reply: &Reply) -> Vec<Given> {
    match reply {
        Reply::Walked(_, node) => node.iter().map(|node| Given::Node(*node)).collect(),
        Reply::Fetched(_, _, open) => open.iter().map(|open| Given::Open(*open)).collect(),
        Reply::Opened(open, _) => vec![Given::Open(*open)],
        Reply::Created(node, open, _) => vec![Given::Open(*open), Given::Node(*node)],
        Reply::Done
        | Reply::Unexpected(_)
        | Reply::Stat(_)
        | Reply::FileHandle(_)
        | Reply::Data(_)
        | Reply::Pieces(_)
        | Reply::DataAt(_)
        | Reply::Written(_)
        | Reply::Entries(_)
        | Reply::Listings(..)
        | Reply::Contents(..)
        | Reply::Bytes(_)
        | Reply::StatFs(_)
        | Reply::Locked
        | Reply::Blocked
        | Reply::Conflict(_)
        | Reply::User(_) => Vec::new(),
    }
}
