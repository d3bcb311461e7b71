//! Messages of 9P2000 that are not part of 9P2000.L: open, create, stat, wstat, and directories
//! that are read like files.

#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "each function takes its share of the messages and answers and hands on the rest"
)]

use super::Session;
use super::call::{Await, Next, encode, is_nothing};
use super::fid::{Claim, Cursor, Openness};
use super::shared::{Started, bare, opened};
use super::translate;
use crate::Output;
use base::op::{Detail, Entry};
use base::{Access, Buf, Error, Kind, Name, SetStat, SetTime, Stat, Time};
use tree::{Ask, NodeId, Reply};
use wire::ninep::{Data, Rmessage, Stat as WireStat, Tmessage};

impl Session {
    pub(super) fn start_plan9(&mut self, tag: u16, message: Tmessage<'_>) -> Started {
        match message {
            Tmessage::Open { fid, mode } => {
                let (access, remove) = translate::plan9_access(mode)?;
                let (node, caller) = (self.node(fid)?, self.caller(fid)?);
                let (claim, execute) = (self.fids.claim(fid)?, mode & 3 == 3);
                let awaits = Await::Open { claim, access, remove, execute };
                Ok(Next::Ask(awaits, caller, Ask::Open { node, access }))
            }
            Tmessage::Create { fid, name, perm, mode } => {
                let (access, remove) = translate::plan9_access(mode)?;
                let (name, node) = (Name::new(name)?, self.node(fid)?);
                let (caller, claim) = (self.caller(fid)?, self.fids.claim(fid)?);
                let awaits = Await::CreateMode { claim, name, perm, access, remove };
                Ok(Next::Ask(awaits, caller, Ask::Stat { node }))
            }
            Tmessage::Stat { fid } => {
                let ask = Ask::Stat { node: self.node(fid)? };
                Ok(Next::Ask(Await::Stat { fid }, self.caller(fid)?, ask))
            }
            Tmessage::Wstat { fid, stat } => self.wstat(tag, fid, &stat),
            // Messages of 9P2000.L.
            _other => Err(Error::Unsupported),
        }
    }

    pub(super) fn resume_plan9(
        &mut self,
        tag: u16,
        awaits: Await,
        reply: Reply,
        out: &mut Vec<Output>,
    ) -> Started {
        let message = match (awaits, reply) {
            (Await::Open { claim, access, remove, execute }, Reply::Opened(open, stat)) => {
                let Some(fid) = self.fids.claimed(claim) else {
                    out.push(Output::Close(open));
                    return Err(Error::Invalid);
                };
                if execute && !translate::may_execute(&fid.caller, &stat) {
                    self.fids.unclaim(claim);
                    out.push(Output::Close(open));
                    return Err(Error::Denied);
                }
                fid.openness = opened(&stat, open, access, remove);
                let (qid, iounit) = (self.qid(&stat), self.iounit());
                encode(tag, &Rmessage::Open { qid, iounit })
            }
            (Await::CreateMode { claim, name, perm, access, remove }, Reply::Stat(dir)) => {
                return self.create(claim, name, perm, access, remove, &dir);
            }
            (Await::Create { claim, name, access, remove }, Reply::Created(node, open, stat)) => {
                self.created((node, open), &stat, claim, name, access, remove, out)?;
                let (qid, iounit) = (self.qid(&stat), self.iounit());
                encode(tag, &Rmessage::Create { qid, iounit })
            }
            (Await::CreateDir { claim, name, access, remove }, Reply::Stat(_)) => {
                let fid = self.fids.claimed(claim).ok_or(Error::Invalid)?;
                let (from, caller) = (fid.node, fid.caller.clone());
                let names = vec![name.clone()];
                let awaits = Await::CreateDirWalk { claim, name, access, remove };
                return Ok(Next::Ask(awaits, caller, Ask::Walk { from, names }));
            }
            (Await::CreateDirWalk { claim, name, access, remove }, Reply::Walked(_, node)) => {
                return self.open_created(claim, name, access, remove, node, out);
            }
            (
                Await::CreateDirOpen { claim, name, access, remove, node },
                Reply::Opened(open, stat),
            ) => {
                self.created((node, open), &stat, claim, name, access, remove, out)?;
                let (qid, iounit) = (self.qid(&stat), self.iounit());
                encode(tag, &Rmessage::Create { qid, iounit })
            }
            (Await::Stat { fid }, Reply::Stat(stat)) => self.send_stat(tag, fid, &stat),
            (Await::ReadEntries { fid, count }, Reply::Entries(entries)) => {
                return self.entries_read(tag, fid, count as usize, entries);
            }
            (Await::Wstat { fid, rename: Some(name) }, Reply::Done | Reply::Stat(_)) => {
                return self.wstat_rename(fid, name);
            }
            (Await::WstatRename { fid, name }, Reply::Done) => {
                if let Ok(fid) = self.fids.get_mut(fid) {
                    fid.name = name.as_bytes().to_vec();
                }
                encode(tag, &Rmessage::Wstat {})
            }
            (Await::Wstat { rename: None, .. }, Reply::Done | Reply::Stat(_))
            | (Await::Success { .. }, Reply::Done) => encode(tag, &bare(127)),
            // The kind of a reply follows from the request.
            (awaits, reply) => unreachable!("{reply:?} for {awaits:?}"),
        };
        Ok(Next::Respond(message))
    }

    fn send_stat(&self, tag: u16, fid: u32, stat: &Stat) -> Buf {
        let name = self.fids.get(fid).map_or_else(|_| Vec::new(), |fid| fid.name.clone());
        let (uid, gid) = (stat.uid.to_string(), stat.gid.to_string());
        let stat = self.wire_stat(stat, &name, &uid, &gid);
        encode(tag, &Rmessage::Stat { stat })
    }

    /// Creates a file or directory; its permissions are no wider than its directory's (open(5)).
    fn create(
        &mut self,
        claim: Claim,
        name: Name,
        perm: u32,
        access: Access,
        remove: bool,
        dir: &Stat,
    ) -> Started {
        let fid = self.fids.claimed(claim).ok_or(Error::Invalid)?;
        let (node, caller, gid) = (fid.node, fid.caller.clone(), None);
        if perm & WireStat::DIR != 0 {
            let mode = perm & 0o777 & (!0o777 | dir.mode);
            let ask = Ask::MakeDir { dir: node, name: name.clone(), mode, gid };
            return Ok(Next::Ask(Await::CreateDir { claim, name, access, remove }, caller, ask));
        }
        if perm & !0o777 != 0 {
            self.fids.unclaim(claim);
            return Err(Error::Unsupported);
        }
        let mode = perm & (!0o666 | dir.mode & 0o666) & 0o777;
        let awaits = Await::Create { claim, name: name.clone(), access, remove };
        let ask = Ask::Create { dir: node, name, access, exclusive: true, mode, gid };
        Ok(Next::Ask(awaits, caller, ask))
    }

    /// Opens the new directory.
    fn open_created(
        &mut self,
        claim: Claim,
        name: Name,
        access: Access,
        remove: bool,
        node: Option<NodeId>,
        out: &mut Vec<Output>,
    ) -> Started {
        let (Some(fid), Some(node)) = (self.fids.claimed(claim), node) else {
            out.extend(node.map(Output::Release));
            self.fids.unclaim(claim);
            return Err(Error::NotFound);
        };
        let caller = fid.caller.clone();
        let awaits = Await::CreateDirOpen { claim, name, access, remove, node };
        Ok(Next::Ask(awaits, caller, Ask::Open { node, access }))
    }

    fn wstat(&mut self, tag: u16, fid: u32, stat: &WireStat<'_>) -> Started {
        let file = self.fids.get(fid)?;
        let numeric = |text: &[u8]| std::str::from_utf8(text).ok()?.parse().ok();
        let date = |secs: u32| SetTime::At(Time::from_secs(secs.into()));
        let given = |value: u32| value != u32::MAX;
        let gid = match stat.gid {
            b"" => None,
            text => Some(numeric(text).ok_or(Error::Invalid)?),
        };
        let set = SetStat {
            mode: given(stat.mode).then_some(stat.mode & 0o777),
            gid,
            size: (stat.length != u64::MAX).then_some(stat.length),
            accessed: given(stat.atime).then(|| date(stat.atime)),
            modified: given(stat.mtime).then(|| date(stat.mtime)),
            uid: None,
        };
        let rename = match stat.name {
            b"" => None,
            name if name == file.name => None,
            name => Some(Name::new(name)?),
        };
        if given(stat.mode) && (stat.mode & WireStat::DIR != 0) != (file.kind == Kind::Directory) {
            return Err(Error::NotPermitted);
        }
        match (is_nothing(&set), rename, file.open()) {
            (true, Some(name), _) => self.wstat_rename(fid, name),
            // A stat without changes requests durability (stat(5)).
            (true, None, Some(open)) => {
                let ask = Ask::Sync { open, data_only: false };
                Ok(Next::Ask(Await::Success { code: 127 }, file.caller.clone(), ask))
            }
            (true, None, None) => Ok(Next::Respond(encode(tag, &Rmessage::Wstat {}))),
            (false, rename, _) => {
                let (node, open) = (file.node, file.open_for_writing());
                let ask = Ask::SetStat { node, open, set };
                Ok(Next::Ask(Await::Wstat { fid, rename }, file.caller.clone(), ask))
            }
        }
    }

    fn wstat_rename(&self, fid: u32, name: Name) -> Started {
        let file = self.fids.get(fid)?;
        // stat(5): "it is an error to change the name to that of an existing file".
        let (node, new_name) = (file.node, name.clone());
        let ask = Ask::RenameNode { node, to: None, new_name, replace: false };
        Ok(Next::Ask(Await::WstatRename { fid, name }, file.caller.clone(), ask))
    }

    /// Reads a directory: whole entries, from the start or from the end of the last read.
    pub(super) fn read_entries(&mut self, tag: u16, fid: u32, offset: u64, count: u32) -> Started {
        let file = self.fids.get_mut(fid)?;
        let Openness::Directory { open, cursor, .. } = &mut file.openness else {
            return Err(Error::NotDirectory);
        };
        if offset == 0 {
            *cursor = Cursor::default();
        } else if offset != cursor.offset {
            return Err(Error::Invalid);
        }
        let (open, cookie) = (*open, cursor.cookie);
        if !cursor.ahead.is_empty() {
            return self.entries_read(tag, fid, count as usize, Vec::new());
        }
        // An entry with its attributes takes about three times as much as without: the excess is
        // kept in the fid.
        let count = self.listed(count);
        let ask = Ask::List { open, cookie, bytes_max: count / 3, detail: Detail::Stat };
        Ok(Next::Ask(Await::ReadEntries { fid, count }, self.caller(fid)?, ask))
    }

    fn entries_read(&mut self, tag: u16, fid: u32, count: usize, new: Vec<Entry>) -> Started {
        let Openness::Directory { cursor, .. } = &mut self.fids.get_mut(fid)?.openness else {
            return Err(Error::NotDirectory);
        };
        let mut taken = std::mem::take(cursor);
        if let Some(last) = new.last() {
            taken.cookie = last.cookie;
        }
        taken.ahead.extend(new);
        let mut data = Vec::new();
        while let Some(entry) = taken.ahead.front() {
            let before = data.len();
            if let Some(stat) = &entry.stat {
                let (uid, gid) = (stat.uid.to_string(), stat.gid.to_string());
                self.wire_stat(stat, entry.name.as_bytes(), &uid, &gid).put_entry(&mut data);
            }
            if data.len() > count {
                data.truncate(before);
                break;
            }
            taken.ahead.pop_front();
        }
        let too_small = data.is_empty() && !taken.ahead.is_empty();
        taken.offset += data.len() as u64;
        if let Openness::Directory { cursor, .. } = &mut self.fids.get_mut(fid)?.openness {
            *cursor = taken;
        }
        if too_small {
            return Err(Error::Invalid);
        }
        Ok(Next::Respond(encode(tag, &Rmessage::Read { data: Data(&data) })))
    }

    fn wire_stat<'a>(
        &self,
        stat: &Stat,
        name: &'a [u8],
        uid: &'a str,
        gid: &'a str,
    ) -> WireStat<'a> {
        let directory = stat.kind == Kind::Directory;
        let seconds = |time: Time| u32::try_from(time.secs.max(0)).unwrap_or(u32::MAX);
        WireStat {
            kind: 0,
            dev: 0,
            qid: self.qid(stat),
            mode: stat.mode & 0o777 | if directory { WireStat::DIR } else { 0 },
            atime: seconds(stat.accessed),
            mtime: seconds(stat.modified),
            length: if directory { 0 } else { stat.size },
            name,
            uid: uid.as_bytes(),
            gid: gid.as_bytes(),
            muid: uid.as_bytes(),
        }
    }
}
