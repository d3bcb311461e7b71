//! The messages of 9P2000.L.

#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "each function takes its share of the messages and answers and hands on the rest"
)]

use super::Session;
use super::call::{ATTR_SIZE_MAX, Await, Next, encode};
use super::fid::{Fid, Openness};
use super::shared::{Started, bare, opened};
use super::translate::{self, flags};
use crate::{Identity, Output};
use base::op::{Detail, Entry};
use base::{Access, Error, Kind, Name, SetStat, SetTime, Stat, StatFs, Time};
use tree::request::{Lock, LockKind, Owner};
use tree::{Ask, NodeId, Reply};
use wire::ninep::{
    Data, IO_HEADER_SIZE, Qid, Rmessage, Tmessage, attributes, dirent_size, entry_qid, put_dirent,
};

impl Session {
    pub(super) fn start_linux(&mut self, tag: u16, message: Tmessage<'_>) -> Started {
        match message {
            Tmessage::Lopen { fid, flags } => self.lopen(fid, flags),
            Tmessage::Lcreate { fid, name, flags, mode, gid } => {
                let (name, dir) = (Name::new(name)?, self.node(fid)?);
                let access = translate::linux_access(flags)?;
                let (caller, claim) = (self.caller(fid)?, self.fids.claim(fid)?);
                let (exclusive, gid) = (flags & flags::EXCL != 0, self.group(gid));
                let awaits = Await::Create { claim, name: name.clone(), access, remove: false };
                let mode = mode & 0o7777;
                let ask = Ask::Create { dir, name, access, exclusive, mode, gid };
                Ok(Next::Ask(awaits, caller, ask))
            }
            Tmessage::Getattr { fid, .. } => {
                let ask = Ask::Stat { node: self.node(fid)? };
                Ok(Next::Ask(Await::Getattr, self.caller(fid)?, ask))
            }
            Tmessage::Setattr { fid, .. } => {
                let set = set_stat(&message);
                let file = self.fids.get(fid)?;
                file.expect_no_attr()?;
                let (node, open) = (file.node, file.open_for_writing());
                let ask = Ask::SetStat { node, open, set };
                Ok(Next::Ask(Await::Success { code: 27 }, file.caller.clone(), ask))
            }
            Tmessage::Readdir { fid, offset, count } => {
                let count = self.listed(count.min(self.msize - IO_HEADER_SIZE));
                let file = self.fids.get(fid)?;
                let Openness::Directory { open, device, .. } = file.openness else {
                    return Err(Error::NotDirectory);
                };
                let ask =
                    Ask::List { open, cookie: offset, bytes_max: count, detail: Detail::Name };
                Ok(Next::Ask(Await::Readdir { count, device }, file.caller.clone(), ask))
            }
            Tmessage::Fsync { fid, data_only } => {
                let file = self.fids.get(fid)?;
                let open = file.open().ok_or(Error::Invalid)?;
                let ask = Ask::Sync { open, data_only: data_only.is_some_and(|only| only != 0) };
                Ok(Next::Ask(Await::Success { code: 51 }, file.caller.clone(), ask))
            }
            Tmessage::Lock { .. } | Tmessage::Getlock { .. } => self.lock(&message),
            Tmessage::Statfs { fid } => {
                let ask = Ask::StatFs { node: self.node(fid)? };
                Ok(Next::Ask(Await::Statfs, self.caller(fid)?, ask))
            }
            Tmessage::Readlink { fid } => {
                let ask = Ask::ReadLink { node: self.node(fid)? };
                Ok(Next::Ask(Await::Readlink, self.caller(fid)?, ask))
            }
            Tmessage::Xattrwalk { fid, newfid, name } => {
                self.fids.expect_free(newfid)?;
                let ask = Ask::Walk { from: self.node(fid)?, names: Vec::new() };
                let awaits = Await::AttrNode { fid, newfid, name: name.to_vec() };
                Ok(Next::Ask(awaits, self.caller(fid)?, ask))
            }
            Tmessage::Xattrcreate { fid, name, size, flags } => {
                if size > ATTR_SIZE_MAX {
                    return Err(Error::AttributeTooLarge);
                }
                let create = translate::attr_flags(flags)?;
                let (name, size) = (name.to_vec(), usize::try_from(size).expect("64 KiB"));
                let write = Openness::AttrWrite { name, value: Vec::new(), size, create };
                self.fids.begin_attr(fid, write)?;
                Ok(Next::Respond(encode(tag, &Rmessage::Xattrcreate {})))
            }
            message => self.start_entry(message),
        }
    }

    /// Starts messages that create, move and remove entries.
    fn start_entry(&mut self, message: Tmessage<'_>) -> Started {
        let (fid, awaits, ask) = match message {
            Tmessage::Mkdir { dfid, name, mode, gid } => {
                let (dir, name, gid) = (self.node(dfid)?, Name::new(name)?, self.group(gid));
                let ask = Ask::MakeDir { dir, name, mode: mode & 0o7777, gid };
                (dfid, Await::Make { code: 73 }, ask)
            }
            Tmessage::Symlink { dfid, name, target, gid } => {
                let (dir, name, gid) = (self.node(dfid)?, Name::new(name)?, self.group(gid));
                let ask = Ask::Symlink { dir, name, target: target.to_vec(), gid };
                (dfid, Await::Make { code: 17 }, ask)
            }
            Tmessage::Mknod { dfid, name, mode, major, minor, gid } => {
                let (dir, name, gid) = (self.node(dfid)?, Name::new(name)?, self.group(gid));
                let kind = Kind::from_mode(mode).ok_or(Error::Invalid)?;
                let (mode, device) = (mode & 0o7777, crate::device_number(major, minor));
                let ask = Ask::MakeNode { dir, name, kind, mode, device, gid };
                (dfid, Await::Make { code: 19 }, ask)
            }
            Tmessage::Link { dfid, fid, name } => {
                let (dir, node, name) = (self.node(dfid)?, self.node(fid)?, Name::new(name)?);
                (dfid, Await::Success { code: 71 }, Ask::Link { node, dir, name })
            }
            Tmessage::Rename { fid, dfid, name } => {
                let (node, to, new_name) = (self.node(fid)?, self.node(dfid)?, Name::new(name)?);
                let ask = Ask::RenameNode { node, to: Some(to), new_name, replace: true };
                (fid, Await::Success { code: 21 }, ask)
            }
            Tmessage::Renameat { olddirfid, oldname, newdirfid, newname } => {
                let (from, to) = (self.node(olddirfid)?, self.node(newdirfid)?);
                let (name, new_name) = (Name::new(oldname)?, Name::new(newname)?);
                let ask = Ask::Rename { from, name, to, new_name, replace: true };
                (olddirfid, Await::Success { code: 75 }, ask)
            }
            Tmessage::Unlinkat { dfid, name, flags } => {
                const REMOVEDIR: u32 = 0x200;
                let (dir, name) = (self.node(dfid)?, Name::new(name)?);
                let directory = Some(flags & REMOVEDIR != 0);
                (dfid, Await::Success { code: 77 }, Ask::Remove { dir, name, directory })
            }
            // Messages of 9P2000 replaced in 9P2000.L.
            _other => return Err(Error::Unsupported),
        };
        Ok(Next::Ask(awaits, self.caller(fid)?, ask))
    }

    fn lopen(&mut self, fid: u32, flags: u32) -> Started {
        let file = self.fids.get(fid)?;
        let (node, caller) = (file.node, file.caller.clone());
        if flags & flags::DIRECTORY != 0 && file.kind != Kind::Directory {
            return Err(Error::NotDirectory);
        }
        let access = translate::linux_access(flags)?;
        let claim = self.fids.claim(fid)?;
        let awaits = Await::Open { claim, access, remove: false, execute: false };
        Ok(Next::Ask(awaits, caller, Ask::Open { node, access }))
    }

    fn lock(&self, message: &Tmessage<'_>) -> Started {
        const BLOCK: u32 = 1;
        let (fid, kind, flags, start, length, process, client) = match message {
            Tmessage::Lock { fid, kind, flags, start, length, proc_id, client_id } => {
                (*fid, *kind, Some(*flags), *start, *length, *proc_id, *client_id)
            }
            Tmessage::Getlock { fid, kind, start, length, proc_id, client_id } => {
                (*fid, *kind, None, *start, *length, *proc_id, *client_id)
            }
            other => unreachable!("{other:?} is about no lock"),
        };
        let kind = match kind {
            0 => LockKind::Shared,
            1 => LockKind::Exclusive,
            2 => LockKind::None,
            _unknown => return Err(Error::Invalid),
        };
        let file = self.fids.get(fid)?;
        let open = file.open().ok_or(Error::Invalid)?;
        let owner = Owner { client: client.to_vec(), process };
        let lock = Lock::new(kind, start, length, owner)?;
        Ok(match flags {
            Some(flags) => {
                let ask = Ask::Lock { open, lock, wait: flags & BLOCK != 0 };
                Next::Ask(Await::Lock, file.caller.clone(), ask)
            }
            None => Next::Ask(Await::Getlock, file.caller.clone(), Ask::GetLock { open, lock }),
        })
    }

    pub(super) fn resume_linux(
        &mut self,
        tag: u16,
        awaits: Await,
        reply: Reply,
        out: &mut Vec<Output>,
    ) -> Started {
        let message = match (awaits, reply) {
            (Await::Open { claim, access, remove, .. }, Reply::Opened(open, stat)) => {
                let Some(fid) = self.fids.claimed(claim) else {
                    out.push(Output::Close(open));
                    return Err(Error::Invalid);
                };
                fid.openness = opened(&stat, open, access, remove);
                let (qid, iounit) = (self.qid(&stat), self.iounit());
                encode(tag, &Rmessage::Lopen { qid, iounit })
            }
            (Await::Create { claim, name, access, remove }, Reply::Created(node, open, stat)) => {
                self.created((node, open), &stat, claim, name, access, remove, out)?;
                let (qid, iounit) = (self.qid(&stat), self.iounit());
                encode(tag, &Rmessage::Lcreate { qid, iounit })
            }
            (Await::Getattr, Reply::Stat(stat)) => {
                encode(tag, &attributes(&stat, self.export.device))
            }
            (Await::Make { code }, Reply::Stat(stat)) => encode(tag, &made(code, self.qid(&stat))),
            (Await::Success { code }, Reply::Done | Reply::Stat(_)) => encode(tag, &bare(code)),
            (Await::Readdir { count, device }, Reply::Entries(entries)) => {
                let data = self.dirents(&entries, device, count as usize);
                // An empty response would mean the end of the directory.
                if data.is_empty() && !entries.is_empty() {
                    return Err(Error::Invalid);
                }
                encode(tag, &Rmessage::Readdir { data: Data(&data) })
            }
            (Await::Statfs, Reply::StatFs(stat)) => encode(tag, &statfs(&stat)),
            (Await::Readlink, Reply::Bytes(target)) => {
                encode(tag, &Rmessage::Readlink { target: &target })
            }
            (Await::AttrNode { fid, newfid, name }, Reply::Walked(_, Some(node))) => {
                return self.attr_value(fid, newfid, node, name, out);
            }
            (Await::AttrValue { newfid, node, caller, kind }, Reply::Bytes(value)) => {
                let size = value.len() as u64;
                let openness = Openness::AttrRead { value };
                let file = Fid { node, caller, kind, name: Vec::new(), openness };
                self.fids.bind(newfid, file, out)?;
                encode(tag, &Rmessage::Xattrwalk { size })
            }
            (Await::Lock, Reply::Locked) => encode(tag, &Rmessage::Lock { status: 0 }),
            (Await::Lock, Reply::Blocked) => encode(tag, &Rmessage::Lock { status: 1 }),
            (Await::Getlock, Reply::Conflict(lock)) => encode(tag, &getlock(lock.as_ref())),
            // The kind of a reply follows from the request.
            (awaits, reply) => unreachable!("{reply:?} for {awaits:?}"),
        };
        Ok(Next::Respond(message))
    }

    /// Binds a new file to the fid of its directory.
    #[allow(clippy::too_many_arguments, reason = "the parts of one answer and one call")]
    pub(super) fn created(
        &mut self,
        (node, open): (NodeId, tree::OpenId),
        stat: &Stat,
        claim: super::fid::Claim,
        name: Name,
        access: Access,
        remove: bool,
        out: &mut Vec<Output>,
    ) -> Result<(), Error> {
        let name = self.fid_name(name.as_bytes());
        let Some(fid) = self.fids.claimed(claim) else {
            out.extend([Output::Close(open), Output::Release(node)]);
            return Err(Error::Invalid);
        };
        out.push(Output::Release(fid.node));
        (fid.node, fid.kind, fid.name) = (node, stat.kind, name);
        fid.openness = opened(stat, open, access, remove);
        Ok(())
    }

    fn attr_value(
        &mut self,
        fid: u32,
        newfid: u32,
        node: NodeId,
        name: Vec<u8>,
        out: &mut Vec<Output>,
    ) -> Started {
        let Ok(file) = self.fids.get(fid) else {
            out.push(Output::Release(node));
            return Err(Error::Invalid);
        };
        let (caller, kind) = (file.caller.clone(), file.kind);
        let ask = match name.is_empty() {
            true => Ask::ListAttrs { node },
            false => Ask::GetAttr { node, name },
        };
        Ok(Next::Ask(Await::AttrValue { newfid, node, caller: caller.clone(), kind }, caller, ask))
    }

    /// Encodes entries of a directory on a device.
    fn dirents(&self, entries: &[Entry], device: u64, count: usize) -> Vec<u8> {
        let mut data = Vec::with_capacity(count.min(64 << 10));
        for entry in entries {
            if data.len() + dirent_size(entry.name.as_bytes()) > count {
                break;
            }
            let qid = entry_qid(entry, device, self.export.device);
            let kind = entry.kind.dirent_type();
            put_dirent(qid, entry.cookie, kind, entry.name.as_bytes(), &mut data);
        }
        data
    }

    pub(super) fn node(&self, fid: u32) -> Result<NodeId, Error> {
        let file = self.fids.get(fid)?;
        file.expect_no_attr()?;
        Ok(file.node)
    }

    /// Returns the group that a client chooses for a new file, if clients' claims are trusted.
    fn group(&self, gid: u32) -> Option<u32> {
        (matches!(self.identity, Identity::Claimed(_)) && gid != u32::MAX).then_some(gid)
    }
}

/// Decodes the changes of `Tsetattr` (`P9_ATTR_…`).
fn set_stat(message: &Tmessage<'_>) -> SetStat {
    let Tmessage::Setattr { valid, mode, uid, gid, size, .. } = *message else {
        unreachable!("{message:?} sets nothing");
    };
    let Tmessage::Setattr { atime_sec, atime_nsec, mtime_sec, mtime_nsec, .. } = *message else {
        unreachable!("{message:?} sets nothing");
    };
    let has = |bit: u32| valid & bit != 0;
    let time = |bit: u32, explicit: u32, secs: u64, nanos: u64| {
        let nanos = u32::try_from(nanos).unwrap_or(0).min(999_999_999);
        let at = SetTime::At(Time { secs: secs.cast_signed(), nanos });
        has(bit).then_some(if has(explicit) { at } else { SetTime::Now })
    };
    SetStat {
        mode: has(1).then_some(mode & 0o7777),
        uid: has(2).then_some(uid),
        gid: has(4).then_some(gid),
        size: has(8).then_some(size),
        accessed: time(0x10, 0x80, atime_sec, atime_nsec),
        modified: time(0x20, 0x100, mtime_sec, mtime_nsec),
    }
}

fn made(code: u8, qid: Qid) -> Rmessage<'static> {
    match code {
        17 => Rmessage::Symlink { qid },
        19 => Rmessage::Mknod { qid },
        73 => Rmessage::Mkdir { qid },
        other => unreachable!("{other} carries no qid"),
    }
}

/// Returns the statistics of the file system, with the type 9P: the type of the host would suggest
/// limits and features (number of links, kinds of locks) that a client does not have.
fn statfs(stat: &StatFs) -> Rmessage<'static> {
    const V9FS_MAGIC: u32 = 0x0102_1997;
    Rmessage::Statfs {
        kind: V9FS_MAGIC,
        bsize: stat.block_size,
        blocks: stat.blocks,
        bfree: stat.blocks_free,
        bavail: stat.blocks_available,
        files: stat.files,
        ffree: stat.files_free,
        fsid: stat.id,
        namelen: stat.name_max,
    }
}

fn getlock(lock: Option<&Lock>) -> Rmessage<'_> {
    const UNLOCKED: u8 = 2;
    match lock {
        None => {
            let client_id = b"";
            Rmessage::Getlock { kind: UNLOCKED, start: 0, length: 0, proc_id: 0, client_id }
        }
        Some(lock) => Rmessage::Getlock {
            kind: u8::from(lock.kind == LockKind::Exclusive),
            start: lock.start,
            length: lock.length(),
            proc_id: lock.owner.process,
            client_id: &lock.owner.client,
        },
    }
}
