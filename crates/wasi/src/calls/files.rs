//! Descriptors: reading, writing, attributes.

use super::path::find;
use super::{Call, Piece, behind, len_of};
use crate::abi::{self, Errno};
use crate::host::{OpenDir, OpenFile, Slot, Stop};
use crate::host_channel::Want;
use crate::listings::Seen;
use base::{Access, Buf, SetStat, SetTime, Stat};
use tree::{Ask, NodeId, OpenId};

/// Maximum offset in a file, as in the trees.
const OFFSET_MAX: u64 = i64::MAX as u64;

/// Size of a `prestat`, bytes.
const PRESTAT: usize = 8;

impl Call<'_> {
    /// Returns the node of a descriptor; `None` for streams.
    pub(super) async fn node(&mut self, fd: u32) -> Result<Option<NodeId>, Stop> {
        let path = match self.host().files.get(fd)? {
            Slot::File(OpenFile { node: Some(node), .. })
            | Slot::Dir(OpenDir { node: Some(node), .. }) => return Ok(Some(*node)),
            Slot::File(file) => file.path.clone(),
            Slot::Dir(dir) => dir.path.clone().unwrap_or_default(),
            Slot::Input | Slot::Output(_) => return Ok(None),
        };
        let (client, root) = (self.client(), self.host().root);
        let node = find(&client, root, &path, true).await?.held.keep();
        match self.host().files.get(fd)? {
            Slot::File(file) => file.node = Some(node),
            Slot::Dir(dir) => dir.node = Some(node),
            Slot::Input | Slot::Output(_) => unreachable!("nobody else runs meanwhile"),
        }
        Ok(Some(node))
    }

    /// Returns the node of a file or directory.
    async fn some_node(&mut self, fd: u32) -> Result<NodeId, Stop> {
        Ok(self.node(fd).await?.ok_or(Errno::Inval)?)
    }

    /// Opens a file for reading or syncing.
    async fn open(&mut self, fd: u32) -> Result<OpenId, Stop> {
        if let Some(open) = self.host().files.file(fd)?.open {
            return Ok(open);
        }
        let node = self.some_node(fd).await?;
        let open = self.client().open(node, Access::READ).await?;
        self.host().files.file(fd)?.open = Some(open);
        Ok(open)
    }

    pub(super) async fn stat(&mut self, node: NodeId) -> Result<Stat, Stop> {
        self.client().stat(node).await
    }

    /// Returns the attributes of an open file or directory, possibly cached.
    async fn seen_stat(&mut self, fd: u32) -> Result<Stat, Stop> {
        let now = self.host().seen();
        if let Slot::File(OpenFile { stat: Some((stat, seen)), .. }) = self.host().files.get(fd)?
            && seen.is_fresh(now)
        {
            return Ok(stat.clone());
        }
        let node = self.some_node(fd).await?;
        let stat = self.stat(node).await?;
        if let Slot::File(file) = self.host().files.get(fd)? {
            file.stat = Some((stat.clone(), now)).filter(|_| !file.writes);
        }
        Ok(stat)
    }

    pub(super) async fn set_stat(&mut self, fd: u32, set: SetStat) -> Result<(), Stop> {
        self.must_write()?;
        let node = self.some_node(fd).await?;
        let open = match self.host().files.get(fd)? {
            Slot::File(file) => file.open,
            Slot::Dir(_) | Slot::Input | Slot::Output(_) => None,
        };
        self.client().ask(Ask::SetStat { node, open, set }).await.map(drop)
    }

    /// Reads from a file into pieces. Returns the number of bytes.
    async fn read_at(&mut self, fd: u32, offset: u64, pieces: &[Piece]) -> Result<u32, Stop> {
        if offset > OFFSET_MAX {
            return Err(Errno::Inval.into());
        }
        let count = u64::from(len_of(pieces)).min(OFFSET_MAX - offset) as u32;
        let mut moved = self.read_some(fd, offset, pieces, count).await?;
        // Metered guests get the same amount each time, independent of read-ahead.
        while self.host().pace.counts() && (1..count).contains(&moved) {
            let rest = behind(pieces, moved);
            let at = offset + u64::from(moved);
            match self.read_some(fd, at, &rest, count - moved).await {
                Ok(0) | Err(Stop::Errno(_)) => break,
                Ok(more) => moved += more,
                Err(ended) => return Err(ended),
            }
        }
        Ok(moved)
    }

    /// Reads part of it.
    async fn read_some(
        &mut self,
        fd: u32,
        offset: u64,
        pieces: &[Piece],
        count: u32,
    ) -> Result<u32, Stop> {
        if count == 0 {
            return Ok(0);
        }
        let host = self.host();
        let seen = host.seen();
        let mut window = host.files.file(fd)?.window.take().unwrap_or_default();
        let is_kept = !host.files.file(fd)?.writes;
        if !is_kept || !window.has(offset, seen) {
            let wanted = if is_kept { window.wanted(offset, count) } else { count };
            let open = self.open(fd).await?;
            let (bufs, seen) = match self.bytes_ahead(open, offset).await? {
                Some(prefetch) => prefetch,
                None => (self.client().read(open, offset, wanted).await?, seen),
            };
            let size = self.host().files.file(fd)?.stat.as_ref().map(|(stat, _)| stat.size);
            window.fill(offset, bufs, size, seen);
            self.host().shrink();
            if is_kept && let Some(part) = window.following() {
                self.read_ahead(open, part).await?;
            }
        }
        let moved = self.scatter_all(pieces, count, window.behind(offset))?;
        window.moved(offset, moved);
        self.host().files.file(fd)?.window = Some(window).filter(|_| is_kept);
        Ok(moved)
    }

    /// Takes the prefetched bytes of a file from an offset on, if there are any.
    async fn bytes_ahead(
        &mut self,
        open: OpenId,
        offset: u64,
    ) -> Result<Option<(Vec<Buf>, Seen)>, Stop> {
        self.end_prefetch(open).await?;
        let host = self.host();
        let seen = host.seen();
        Ok(host.prefetcher.take_bytes((open, offset), seen))
    }

    /// Waits for the prefetch of an open file, if one is in flight.
    async fn end_prefetch(&mut self, open: OpenId) -> Result<(), Stop> {
        self.host().absorb();
        if self.host().prefetcher.are_bytes_coming(open) {
            self.client().want(Want::Prefetch).await?;
            self.host().absorb();
        }
        Ok(())
    }

    /// Prefetches a part of a file that is read sequentially.
    async fn read_ahead(&mut self, open: OpenId, (from, count): (u64, u32)) -> Result<(), Stop> {
        let host = self.host();
        host.absorb();
        let seen = host.seen();
        // A prefetch must not exhaust the guest's budget.
        let Some(left) = host.left_to_ask() else { return Ok(()) };
        let count = u32::try_from(left / 2).unwrap_or(u32::MAX).min(count);
        match host.prefetcher.see_bytes(open, (from, count), seen) {
            Some(ask) => self.client().foresee(ask).await,
            None => Ok(()),
        }
    }

    /// Prepares a file to be closed: the request of a prefetch may still wait for admission, and
    /// must not reach a closed file.
    async fn close_ahead(&mut self, fd: u32) -> Result<(), Stop> {
        let open = match self.host().files.get(fd)? {
            Slot::File(file) => file.open,
            Slot::Dir(_) | Slot::Input | Slot::Output(_) => None,
        };
        if let Some(open) = open {
            self.end_prefetch(open).await?;
            let seen = self.host().seen();
            // Another file may get this number.
            self.host().prefetcher.take_bytes((open, 0), seen);
        }
        Ok(())
    }

    async fn write_at(&mut self, fd: u32, offset: u64, pieces: &[Piece]) -> Result<u32, Stop> {
        self.must_write()?;
        let (open, client) = (self.open(fd).await?, self.client());
        let bytes = self.gather(pieces)?;
        if offset.checked_add(bytes.len() as u64).is_none_or(|end| end > OFFSET_MAX) {
            return Err(Errno::Fbig.into());
        }
        if bytes.is_empty() {
            return Ok(0);
        }
        let mut data = Buf::with_room(0, bytes.len());
        data.extend(&bytes);
        client.write(open, offset, data).await
    }

    pub(super) async fn fd_read(
        &mut self,
        fd: u32,
        list: u32,
        count: u32,
        out: u32,
    ) -> Result<(), Stop> {
        let pieces = self.pieces(list, count)?;
        let moved = match self.host().files.get(fd)? {
            Slot::Input => self.read_input(&pieces).await?,
            Slot::Output(_) => return Err(Errno::Badf.into()),
            Slot::Dir(_) => return Err(Errno::Isdir.into()),
            Slot::File(file) => {
                let offset = file.offset;
                let moved = self.read_at(fd, offset, &pieces).await?;
                self.host().files.file(fd)?.offset += u64::from(moved);
                moved
            }
        };
        Ok(self.put_u32(out, moved)?)
    }

    pub(super) async fn fd_write(
        &mut self,
        fd: u32,
        list: u32,
        count: u32,
        out: u32,
    ) -> Result<(), Stop> {
        let pieces = self.pieces(list, count)?;
        let moved = match self.host().files.get(fd)? {
            Slot::Output(stream) => {
                let stream = *stream;
                self.write_output(stream, &pieces).await?
            }
            Slot::Input => return Err(Errno::Badf.into()),
            Slot::Dir(_) => return Err(Errno::Isdir.into()),
            Slot::File(file) => {
                let offset = file.offset;
                let moved = self.write_at(fd, offset, &pieces).await?;
                self.host().files.file(fd)?.offset += u64::from(moved);
                moved
            }
        };
        Ok(self.put_u32(out, moved)?)
    }

    pub(super) async fn fd_pread(
        &mut self,
        fd: u32,
        list: u32,
        count: u32,
        offset: u64,
        out: u32,
    ) -> Result<(), Stop> {
        let pieces = self.pieces(list, count)?;
        self.host().files.file(fd)?;
        let moved = self.read_at(fd, offset, &pieces).await?;
        Ok(self.put_u32(out, moved)?)
    }

    pub(super) async fn fd_pwrite(
        &mut self,
        fd: u32,
        list: u32,
        count: u32,
        offset: u64,
        out: u32,
    ) -> Result<(), Stop> {
        let pieces = self.pieces(list, count)?;
        self.host().files.file(fd)?;
        let moved = self.write_at(fd, offset, &pieces).await?;
        Ok(self.put_u32(out, moved)?)
    }

    pub(super) async fn fd_seek(
        &mut self,
        fd: u32,
        offset: i64,
        whence: u32,
        out: u32,
    ) -> Result<(), Stop> {
        let at = self.host().files.file(fd)?.offset;
        let from = match whence {
            abi::WHENCE_SET => 0,
            abi::WHENCE_CUR => at,
            abi::WHENCE_END => self.seen_stat(fd).await?.size,
            _ => return Err(Errno::Inval.into()),
        };
        let to = from.checked_add_signed(offset).filter(|to| *to <= OFFSET_MAX);
        let to = to.ok_or(Errno::Inval)?;
        self.host().files.file(fd)?.offset = to;
        Ok(self.put_u64(out, to)?)
    }

    pub(super) fn fd_tell(&mut self, fd: u32, out: u32) -> Result<(), Stop> {
        let offset = self.host().files.file(fd)?.offset;
        Ok(self.put_u64(out, offset)?)
    }

    async fn sync(&mut self, fd: u32, data_only: bool) -> Result<(), Stop> {
        let open = self.open(fd).await?;
        self.client().ask(Ask::Sync { open, data_only }).await.map(drop)
    }

    pub(super) async fn fd_sync(&mut self, fd: u32) -> Result<(), Stop> {
        self.sync(fd, false).await
    }

    pub(super) async fn fd_datasync(&mut self, fd: u32) -> Result<(), Stop> {
        self.sync(fd, true).await
    }

    /// Ignores the hint.
    pub(super) fn fd_advise(&mut self, fd: u32, _: u64, _: u64, _: u32) -> Result<(), Stop> {
        Ok(self.host().files.file(fd).map(drop)?)
    }

    /// Extends a file to at least this size.
    pub(super) async fn fd_allocate(&mut self, fd: u32, offset: u64, len: u64) -> Result<(), Stop> {
        self.host().files.file(fd)?;
        self.must_write()?;
        let node = self.some_node(fd).await?;
        let size = offset.checked_add(len).filter(|size| *size <= OFFSET_MAX);
        let size = size.ok_or(Errno::Fbig)?;
        if self.stat(node).await?.size >= size {
            return Ok(());
        }
        self.set_stat(fd, SetStat { size: Some(size), ..SetStat::default() }).await
    }

    pub(super) async fn fd_close(&mut self, fd: u32) -> Result<(), Stop> {
        self.close_ahead(fd).await?;
        let host = self.host();
        let slot = host.files.take(fd)?;
        host.close(&slot);
        Ok(())
    }

    pub(super) async fn fd_renumber(&mut self, from: u32, to: u32) -> Result<(), Stop> {
        if from != to {
            self.close_ahead(to).await?;
        }
        let host = self.host();
        if let Some(replaced) = host.files.renumber(from, to)? {
            host.close(&replaced);
        }
        Ok(())
    }

    pub(super) fn fd_fdstat_get(&mut self, fd: u32, out: u32) -> Result<(), Stop> {
        let stat = match self.host().files.get(fd)? {
            Slot::Input => abi::fdstat(abi::UNKNOWN, 0, abi::RIGHT_READ),
            Slot::Output(_) => abi::fdstat(abi::UNKNOWN, abi::APPEND, abi::RIGHT_WRITE),
            Slot::File(file) => {
                abi::fdstat(abi::file_type(base::Kind::File), file.flags(), file.rights)
            }
            Slot::Dir(_) => abi::fdstat(abi::file_type(base::Kind::Directory), 0, abi::RIGHTS),
        };
        Ok(self.put(out, &stat)?)
    }

    /// Accepts only flags that change nothing.
    pub(super) fn fd_fdstat_set_flags(&mut self, fd: u32, flags: u32) -> Result<(), Stop> {
        match self.host().files.get(fd)? {
            Slot::File(file) if u32::from(file.flags()) == flags => Ok(()),
            Slot::File(_) => Err(Errno::Notsup.into()),
            Slot::Dir(_) | Slot::Input | Slot::Output(_) => Ok(()),
        }
    }

    pub(super) fn fd_fdstat_set_rights(&mut self, fd: u32, _: u64, _: u64) -> Result<(), Stop> {
        Ok(self.host().files.get(fd).map(drop)?)
    }

    pub(super) async fn fd_filestat_get(&mut self, fd: u32, out: u32) -> Result<(), Stop> {
        let bytes = match self.host().files.get(fd)? {
            Slot::File(_) | Slot::Dir(_) => abi::filestat(&self.seen_stat(fd).await?),
            Slot::Input | Slot::Output(_) => [0; 64],
        };
        Ok(self.put(out, &bytes)?)
    }

    pub(super) async fn fd_filestat_set_size(&mut self, fd: u32, size: u64) -> Result<(), Stop> {
        self.host().files.file(fd)?;
        self.must_write()?;
        if size > OFFSET_MAX {
            return Err(Errno::Fbig.into());
        }
        self.set_stat(fd, SetStat { size: Some(size), ..SetStat::default() }).await
    }

    pub(super) async fn fd_filestat_set_times(
        &mut self,
        fd: u32,
        atim: u64,
        mtim: u64,
        flags: u32,
    ) -> Result<(), Stop> {
        self.set_stat(fd, times(atim, mtim, flags)?).await
    }

    pub(super) fn fd_prestat_get(&mut self, fd: u32, out: u32) -> Result<(), Stop> {
        let name = self.preopen(fd)?;
        let mut prestat = [0; PRESTAT];
        prestat[4..].copy_from_slice(&(name.len() as u32).to_le_bytes());
        Ok(self.put(out, &prestat)?)
    }

    pub(super) fn fd_prestat_dir_name(&mut self, fd: u32, at: u32, len: u32) -> Result<(), Stop> {
        let name = self.preopen(fd)?;
        if (len as usize) < name.len() {
            return Err(Errno::Nametoolong.into());
        }
        Ok(self.put(at, name)?)
    }

    fn preopen(&mut self, fd: u32) -> Result<&'static [u8], Errno> {
        match self.host().files.get(fd)? {
            Slot::Dir(dir) => dir.preopen.ok_or(Errno::Badf),
            Slot::File(_) | Slot::Input | Slot::Output(_) => Err(Errno::Badf),
        }
    }
}

/// Decodes `fstflags` with two times.
pub(super) fn times(atim: u64, mtim: u64, flags: u32) -> Result<SetStat, Errno> {
    let flags = u16::try_from(flags).map_err(|_| Errno::Inval)?;
    let one = |at, own: u16, now: u16| match (flags & own != 0, flags & now != 0) {
        (true, true) => Err(Errno::Inval),
        (true, false) => Ok(Some(SetTime::At(abi::time_of(at)))),
        (false, true) => Ok(Some(SetTime::Now)),
        (false, false) => Ok(None),
    };
    Ok(SetStat {
        accessed: one(atim, abi::ATIM, abi::ATIM_NOW)?,
        modified: one(mtim, abi::MTIM, abi::MTIM_NOW)?,
        ..SetStat::default()
    })
}
