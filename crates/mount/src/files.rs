//! Requests about open files: opening, data, durability.

use crate::answer::{Answer, Body};
use crate::attr::Attr;
use crate::durability::{Kind, Proc};
use crate::errno;
use crate::handles::{Handle, Source};
use crate::link::{Failure, Fid};
use crate::linux::{O_ACCMODE, O_APPEND, O_CREAT, O_EXCL, O_RDWR, O_TRUNC, O_WRONLY};
use crate::lock;
use crate::options::Cache;
use crate::session::{Caller, Session};
use crate::store::Content;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;
use wire::fuse::{fopen, open_reply, write_reply};
use wire::ninep::{Rmessage, Tmessage};

impl Session {
    /// Opens a file.
    pub(crate) fn open_file(
        &self,
        caller: &Caller<'_>,
        node: u64,
        flags: u32,
    ) -> Result<Answer, Failure> {
        if let Some((content, attr)) = self.content_ahead(caller, node, flags)? {
            let source = (Source::Content(content), Some(attr));
            return Ok(self.open_answer(self.opened(caller, node, flags, source)));
        }
        let (fid, copy) = self.clone_fid(caller, node)?;
        let attr = match self.open(caller, (&copy, self.server_flags(flags)), Some(&fid)) {
            // The file may be written and not be read, so it cannot be cached in parts.
            Err(Failure::Errno(errno::EACCES)) if self.server_flags(flags) != flags => {
                self.open(caller, (&copy, flags), Some(&fid))?
            }
            done => done?,
        };
        if let Some(attr) = &attr {
            self.expect_name(node, attr)?;
        }
        let source = (Source::Fid(copy), attr);
        Ok(self.open_answer(self.opened(caller, node, flags, source)))
    }

    fn open_answer(&self, (handle, fopen): (u64, u32)) -> Answer {
        let body = Body::Bytes(open_reply(handle, fopen));
        Answer { handle: Some(handle), ..Answer::new(body) }
    }

    /// Fails with `ESTALE` if another client has removed or replaced a file whose name the kernel
    /// has cached: it looks the name up again, and finds what is there now.
    pub(crate) fn expect_name(&self, node: u64, attr: &Attr) -> Result<(), Failure> {
        match attr.shown.nlink == 0 && lock(&self.nodes).is_named(node) {
            true => Err(Failure::Errno(errno::ESTALE)),
            false => Ok(()),
        }
    }

    /// Adds an open file. Returns its number and the kernel's flags.
    pub(crate) fn opened(
        &self,
        caller: &Caller<'_>,
        node: u64,
        flags: u32,
        (source, attr): (Source, Option<Attr>),
    ) -> (u64, u32) {
        let (outdated, before) = {
            let mut nodes = lock(&self.nodes);
            let outdated = attr.is_some_and(|attr| nodes.show(node, &attr.shown));
            (outdated, (nodes.losses(node), nodes.moves(node)))
        };
        if outdated {
            // Another client has changed the file since the kernel asked last: it must not read up
            // to the old size.
            self.invalidate(node, false);
        }
        // Files made by programs have no size to read up to, so the kernel must not cache them.
        let is_empty = attr.is_some_and(|attr| attr.is_file() && attr.shown.size == 0);
        let fopen = match self.settings.cache {
            Cache::None => fopen::DIRECT_IO,
            // A file that is empty at the server may be in the cache with a write-back cache.
            Cache::Open | Cache::Keep if is_empty && flags & O_ACCMODE == 0 => fopen::DIRECT_IO,
            Cache::Open if self.is_node_watched(node) => fopen::KEEP_CACHE,
            Cache::Open => 0,
            Cache::Keep | Cache::Write => fopen::KEEP_CACHE,
        };
        let handle = Handle::new(node, (caller.user, flags), source, before);
        (self.handles.add(handle), fopen)
    }

    /// Returns the flags with which a file is opened at the server. With a write-back cache the
    /// kernel reads the rest of pages that are written in parts, and determines where to append.
    pub(crate) fn server_flags(&self, flags: u32) -> u32 {
        match (self.settings.cache, flags & O_ACCMODE) {
            (Cache::Write, O_WRONLY) => flags & !(O_ACCMODE | O_APPEND) | O_RDWR,
            (Cache::Write, _) => flags & !O_APPEND,
            (Cache::None | Cache::Open | Cache::Keep, _) => flags,
        }
    }

    /// Opens a directory.
    pub(crate) fn open_dir(
        &self,
        caller: &Caller<'_>,
        node: u64,
        flags: u32,
    ) -> Result<Answer, Failure> {
        let flags = flags & O_ACCMODE;
        let source = match self.is_listed_ahead(caller, node)? {
            true => Source::Listing,
            false => {
                let (_, copy) = self.clone_fid(caller, node)?;
                self.open(caller, (&copy, flags), None)?;
                Source::Fid(copy)
            }
        };
        let before = {
            let nodes = lock(&self.nodes);
            (nodes.losses(node), nodes.moves(node))
        };
        let handle = Handle::new(node, (caller.user, flags), source, before);
        let handle = self.handles.add(handle);
        // What is cached of it is invalidated by the next change.
        let is_cached = self.is_node_watched(node) && self.settings.cache != Cache::None;
        let fopen = if is_cached { fopen::CACHE_DIR | fopen::KEEP_CACHE } else { 0 };
        Ok(self.open_answer((handle, fopen)))
    }

    /// Returns the open fid of a file; opens it if none was needed yet, and again after a lost
    /// connection. A file with locks, or without a name, cannot be opened again.
    pub(crate) fn open_fid(
        &self,
        caller: &Caller<'_>,
        handle: &Handle,
    ) -> Result<Arc<Fid>, Failure> {
        let connection = self.connection(caller)?;
        let fid = lock(&handle.fid).clone();
        let is_first = fid.is_none();
        if let Some(fid) = fid.filter(|fid| fid.connection.number == connection.number) {
            return Ok(fid);
        }
        if handle.locked.load(Ordering::SeqCst) {
            return Err(Failure::Errno(errno::EIO));
        }
        let gone = Failure::Errno(if is_first { errno::ESTALE } else { errno::EIO });
        let has_created = {
            let nodes = lock(&self.nodes);
            // A name by which it was found since may be that of a new file with its number.
            if !nodes.has_created(handle.node) && nodes.is_moved_since(handle.node, handle.moves) {
                return Err(gone);
            }
            nodes.has_created(handle.node)
        };
        let user = handle.user;
        let owner = Caller { user, interrupt: caller.interrupt, ..*caller };
        let (_, copy) = self.clone_fid(&owner, handle.node).map_err(|failure| match failure {
            Failure::Errno(_) if !is_first => Failure::Errno(errno::EIO),
            Failure::Errno(_) | Failure::Lost(_) | Failure::Interrupted => failure,
        })?;
        let flags = handle.flags & !(O_CREAT | O_EXCL | O_TRUNC);
        if has_created {
            let attr = self.stat(&owner, &copy)?;
            if !lock(&self.nodes).is_same(handle.node, &attr) {
                return Err(gone);
            }
        }
        self.open(&owner, (&copy, self.server_flags(flags)), None)?;
        let mut fid = lock(&handle.fid);
        let is_present = |it: &&Arc<Fid>| it.connection.number == copy.connection.number;
        // Another thread may have opened it meanwhile, and taken locks.
        if let Some(other) = fid.as_ref().filter(is_present) {
            return Ok(other.clone());
        }
        Ok(fid.insert(Arc::new(copy)).clone())
    }

    /// Reads data: what was sent ahead, until it changes.
    pub(crate) fn read(
        &self,
        caller: &Caller<'_>,
        handle: &Handle,
        (offset, size): (u64, u32),
    ) -> Result<Answer, Failure> {
        let ahead = |content: &Arc<Content>| {
            Answer::new(Body::Part { content: content.clone(), offset, size })
        };
        if let Some(content) = handle.content.as_ref().filter(|it| it.is_current()) {
            return Ok(ahead(content));
        }
        match (self.open_fid(caller, handle), &handle.content) {
            (Ok(fid), _) => self.read_fid(caller, &fid, handle.node, (offset, size)),
            // The file was removed or replaced, so that its contents are still those.
            (Err(Failure::Errno(errno::ESTALE | errno::ENOENT)), Some(content)) => {
                Ok(ahead(content))
            }
            (Err(failure), _) => Err(failure),
        }
    }

    /// Reads data from the server. All messages that it takes are sent at once.
    fn read_fid(
        &self,
        caller: &Caller<'_>,
        fid: &Fid,
        node: u64,
        (offset, size): (u64, u32),
    ) -> Result<Answer, Failure> {
        let (connection, io_max) = (&fid.connection, fid.connection.io_max());
        let failed = |error| connection.failure(&error);
        let mut calls = Vec::new();
        for start in (0..size).step_by(io_max as usize) {
            let count = io_max.min(size - start);
            let offset = offset + u64::from(start);
            let message = Tmessage::Read { fid: fid.number, offset, count };
            calls.push((connection.raw.post(&message, None).map_err(failed)?, count));
        }
        connection.raw.push().map_err(failed)?;
        let mut pieces = Vec::new();
        for (call, count) in calls {
            let reply = call.wait(caller.interrupt).map_err(failed)?;
            let got = reply.data(count).map_err(failed)?.len();
            pieces.push((reply, count));
            if got < count as usize {
                break;
            }
        }
        self.read_rest(caller, fid, node, (offset, size), &mut pieces)?;
        Ok(Answer::new(Body::Data(pieces)))
    }

    /// Reads on where the server has sent less than was wanted, up to the known size: to the kernel
    /// a short reply is the end of the file.
    fn read_rest(
        &self,
        caller: &Caller<'_>,
        fid: &Fid,
        node: u64,
        (offset, size): (u64, u32),
        pieces: &mut Vec<(client::Reply, u32)>,
    ) -> Result<(), Failure> {
        let connection = &fid.connection;
        let failed = |error| connection.failure(&error);
        let known = lock(&self.nodes).shown(node).map_or(0, |shown| shown.size);
        let lengths = pieces.iter().map(|(reply, max)| reply.data(*max).map(<[u8]>::len));
        let mut have = lengths.sum::<Result<usize, _>>().map_err(failed)? as u64;
        while have > 0 && have < u64::from(size) && offset + have < known {
            let count = connection.io_max().min(size - have as u32);
            let message = Tmessage::Read { fid: fid.number, offset: offset + have, count };
            let reply = connection.request(caller.interrupt, &message, None)?;
            let got = reply.data(count).map_err(failed)?.len();
            if got == 0 {
                break;
            }
            have += got as u64;
            pieces.push((reply, count));
        }
        Ok(())
    }

    /// Writes data.
    pub(crate) fn write(
        &self,
        caller: &Caller<'_>,
        handle: &Handle,
        offset: u64,
        data: &[u8],
    ) -> Result<Answer, Failure> {
        let fid = self.open_fid(caller, handle)?;
        let connection = &fid.connection;
        let mut done = 0;
        while done < data.len() {
            let end = data.len().min(done + connection.io_max() as usize);
            let written = self.write_some(caller, &fid, offset + done as u64, &data[done..end]);
            match written {
                Ok(count) => done += count as usize,
                // What was written is reported; the next write gets the error.
                Err(Failure::Errno(_) | Failure::Interrupted) if done > 0 => break,
                Err(failure) => return Err(failure),
            }
        }
        let end = offset + done as u64;
        let mut nodes = lock(&self.nodes);
        nodes.wrote(handle.node, end);
        nodes.changed(handle.node, Kind::Data, connection.number, caller.pid);
        let has_set_id = nodes.shown(handle.node).is_some_and(|shown| shown.mode & 0o6000 != 0);
        drop(nodes);
        if has_set_id {
            // The server clears these bits when a user writes.
            self.invalidate(handle.node, false);
        }
        let count = u32::try_from(done).expect("a request is below 4 GiB");
        Ok(Answer::bytes(write_reply(count)))
    }

    fn write_some(
        &self,
        caller: &Caller<'_>,
        fid: &Fid,
        offset: u64,
        data: &[u8],
    ) -> Result<u32, Failure> {
        let connection = &fid.connection;
        let failed = |error| connection.failure(&error);
        let call = connection.raw.begin_write(fid.number, offset, data).map_err(failed)?;
        let reply = call.wait(caller.interrupt).map_err(failed)?;
        let count = reply.read(|reply| {
            let Rmessage::Write { count } = reply else { return None };
            (count as usize <= data.len()).then_some(count)
        });
        match count.map_err(failed)? {
            0 => Err(Failure::Errno(errno::EIO)),
            count => Ok(count),
        }
    }

    /// Makes a file or directory durable; reports lost changes.
    #[allow(clippy::disallowed_methods, reason = "the age of a loss")]
    pub(crate) fn fsync(
        &self,
        caller: &Caller<'_>,
        handle: &Handle,
        data_only: bool,
    ) -> Result<Answer, Failure> {
        let fid = self.open_fid(caller, handle)?;
        let counts = lock(&self.nodes).durability(handle.node).map(|it| it.counts());
        let synced = self.sync(caller, &fid, data_only);
        let now = Instant::now();
        let mut nodes = lock(&self.nodes);
        let Some(durability) = nodes.durability(handle.node) else {
            return synced.map(|()| Answer::empty());
        };
        match synced {
            Ok(()) => {
                let counts = counts.unwrap_or_default();
                durability.synced(fid.connection.number, counts, data_only, now);
            }
            // The server has lost changes itself, as one that passes requests on may, and tells of
            // it once.
            Err(Failure::Errno(errno::EIO)) => durability.lost(now),
            Err(failure) => return Err(failure),
        }
        let seen = handle.losses.swap(durability.losses(), Ordering::SeqCst);
        match durability.tell(seen, caller.pid, now, &Proc) {
            true => Err(Failure::Errno(errno::EIO)),
            false => Ok(Answer::empty()),
        }
    }
}
