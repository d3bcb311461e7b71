//! Requests in 9P2000, which has no links, no numeric owners, few attributes, and directories that
//! are read like files. A rename changes a file's stat, within its directory.

use super::step::{Next, Outcome, OwnStep, Step, last, send};
use super::{Remote, words};
use crate::request::{Ask, OpenId, Reply};
use base::op::Entry;
use base::{Access, Error, Kind, Name, SetStat, SetTime};
use session::Dialect;
use wire::ninep::{Reader, Rmessage, Stat as WireStat, Tmessage};

/// Maximum number of messages for one list request.
const ROUNDS_MAX: u32 = 1 << 16;

fn open(fid: u32, access: Access) -> Outcome {
    let message = words::open(Dialect::Plan9, fid, access);
    send(Step::Opening(fid), &message)
}

impl Remote {
    pub(super) fn start_plan9(&mut self, slot: usize, ask: &Ask) -> Outcome {
        let user = self.pending[slot].user;
        match ask {
            Ask::Stat { node } => last(&words::stat(Dialect::Plan9, self.stat_fid(slot, *node)?)),
            Ask::SetStat { node, open, set } => {
                let fid = match open.filter(|_| set.size.is_some()) {
                    Some(open) => self.open_fid(open),
                    None => self.fid_of(*node, user)?,
                };
                set_stat(fid, set, words::kind(self.inodes.qid(node.local())))
            }
            // The client cannot know the offset of the end.
            Ask::Open { access, .. } | Ask::Create { access, .. } if access.append => {
                Err(Error::Unsupported)
            }
            Ask::Create { dir, name, exclusive: false, .. } => {
                self.look_for(slot, *dir, name, OwnStep::Child)
            }
            Ask::Open { node, .. }
            | Ask::Create { dir: node, .. }
            | Ask::MakeDir { dir: node, .. }
            | Ask::RemoveNode { node } => self.copy(slot, *node),
            // A wstat that changes nothing requests durability (stat(5)).
            Ask::Sync { open, .. } => {
                let (fid, stat) = (self.open_fid(*open), WireStat::unchanged());
                self.sync(slot, &Tmessage::Wstat { fid, stat })
            }
            Ask::Rename { from, to, .. } if from.local() != to.local() => Err(Error::CrossDevice),
            Ask::Rename { from: dir, name, .. } | Ask::Remove { dir, name, .. } => {
                self.look_for(slot, *dir, name, OwnStep::Child)
            }
            Ask::RenameNode { node, to, new_name, .. } => {
                if to.is_some_and(|to| to.local() != self.inodes.parent(node.local())) {
                    return Err(Error::CrossDevice);
                }
                rename(self.fid_of(*node, user)?, new_name)
            }
            Ask::Symlink { .. }
            | Ask::MakeNode { .. }
            | Ask::ReadLink { .. }
            | Ask::Link { .. }
            | Ask::StatFs { .. }
            | Ask::GetAttr { .. }
            | Ask::SetAttr { .. }
            | Ask::ListAttrs { .. }
            | Ask::RemoveAttr { .. }
            | Ask::Lock { .. }
            | Ask::GetLock { .. } => Err(Error::Unsupported),
            other => unreachable!("{other:?} was begun elsewhere"),
        }
    }

    pub(super) fn resume_plan9(
        &mut self,
        slot: usize,
        ask: &Ask,
        step: OwnStep,
        answer: Result<&Rmessage<'_>, Error>,
    ) -> Outcome {
        match (step, ask, answer) {
            (OwnStep::Child(_), Ask::Create { dir, .. }, Err(Error::NotFound)) => {
                self.copy(slot, *dir)
            }
            (OwnStep::Child(fid), ask, Ok(Rmessage::Walk { qids })) => {
                let [qid] = qids.as_slice() else { return self.wrong() };
                self.pending[slot].bound(fid);
                self.with_child(slot, ask, fid, words::kind(*qid))
            }
            (OwnStep::Clone(fid), ask, Ok(_)) => {
                self.pending[slot].bound(fid);
                self.with_copy(slot, ask, fid)
            }
            (OwnStep::Last, Ask::Stat { node }, Ok(Rmessage::Stat { stat })) => {
                self.learn(*node, stat.qid);
                Ok(Next::Reply(Reply::Stat(words::stat_of_wire(stat, self.config.device))))
            }
            (OwnStep::Last, Ask::MakeDir { .. }, Ok(Rmessage::Create { qid, .. })) => {
                Ok(Next::Reply(Reply::Stat(self.made(ask, *qid))))
            }
            (OwnStep::Child(_), _, Ok(_))
            | (OwnStep::Last, Ask::Stat { .. } | Ask::MakeDir { .. }, Ok(_)) => self.wrong(),
            (OwnStep::Last, ask, Ok(_)) => {
                self.moved(ask);
                Ok(Next::Reply(Reply::Done))
            }
            (OwnStep::Child(_) | OwnStep::Clone(_) | OwnStep::Last, _, Err(error)) => Err(error),
            (OwnStep::Free(_) | OwnStep::AttrSize(_) | OwnStep::AttrRoom(_), ..) => {
                unreachable!("9P2000 does not support {step:?}")
            }
        }
    }

    /// Continues with a fid of the entry.
    fn with_child(&mut self, slot: usize, ask: &Ask, fid: u32, kind: Kind) -> Outcome {
        match ask {
            Ask::Create { .. } if kind == Kind::Directory => Err(Error::IsDirectory),
            Ask::Create { access, .. } => open(fid, *access),
            Ask::Rename { new_name, .. } => rename(fid, new_name),
            Ask::Remove { directory: Some(true), .. } if kind != Kind::Directory => {
                Err(Error::NotDirectory)
            }
            Ask::Remove { directory: Some(false), .. } if kind == Kind::Directory => {
                Err(Error::IsDirectory)
            }
            _remove => self.remove_by(slot, fid),
        }
    }

    /// Continues with a copy of a fid.
    fn with_copy(&mut self, slot: usize, ask: &Ask, fid: u32) -> Outcome {
        match ask {
            Ask::Create { name, access, mode, .. } => {
                let (name, perm, mode) =
                    (name.as_bytes(), mode & 0o777, words::plan9_mode(*access));
                let message = Tmessage::Create { fid, name, perm, mode };
                send(Step::Opening(fid), &message)
            }
            Ask::MakeDir { name, mode, .. } => {
                let (name, perm) = (name.as_bytes(), WireStat::DIR | mode & 0o777);
                last(&Tmessage::Create { fid, name, perm, mode: 0 })
            }
            Ask::RemoveNode { .. } => self.remove_by(slot, fid),
            Ask::Open { access, .. } => open(fid, *access),
            _fetch => open(fid, Access::READ),
        }
    }

    /// Returns the entries behind a cookie: those read last, or the next ones.
    pub(super) fn list_plan9(&mut self, open: OpenId, cookie: u64, bytes_max: u32) -> Outcome {
        let cursor = &mut self.opens[open.local()].cursor;
        if cookie == 0 || cookie < cursor.before {
            if self.pending.is_read(open) {
                return Ok(Next::Behind);
            }
            *cursor = super::open::Cursor::default();
        }
        self.entries_from(open, cookie, bytes_max, 0)
    }

    fn entries_from(&self, open: OpenId, cookie: u64, bytes_max: u32, round: u32) -> Outcome {
        let it = &self.opens[open.local()];
        let cursor = &it.cursor;
        let index = usize::try_from(cookie.saturating_sub(cursor.before)).unwrap_or(usize::MAX);
        let mut bytes = 0;
        let served: Vec<Entry> = cursor
            .entries
            .iter()
            .skip(index)
            .take_while(|entry| {
                let fits = bytes < bytes_max as usize;
                bytes += entry.name.as_bytes().len() + 24;
                fits
            })
            .cloned()
            .collect();
        if !served.is_empty() {
            return Ok(Next::Reply(Reply::Entries(served)));
        }
        // Another request advances the read position.
        if self.pending.is_read(open) {
            return Ok(Next::Behind);
        }
        let (fid, offset, count) = (it.fid, cursor.offset, self.piece_max(it.iounit));
        send(Step::Entries(round), &Tmessage::Read { fid, offset, count })
    }

    pub(super) fn plan9_entries(&mut self, slot: usize, round: u32, data: &[u8]) -> Outcome {
        let Ask::List { open, cookie, bytes_max, .. } = self.pending[slot].ask else {
            unreachable!("only lists come here")
        };
        if data.is_empty() || round >= ROUNDS_MAX {
            return Ok(Next::Reply(Reply::Entries(Vec::new())));
        }
        let data = whole_entries(data);
        let mut reader = Reader::new(data);
        let mut entries = Vec::new();
        let device = self.config.device;
        let cursor = &mut self.opens[open.local()].cursor;
        let before = cursor.before + cursor.entries.len() as u64;
        while !reader.is_empty() {
            let Ok(stat) = WireStat::get_entry(&mut reader) else {
                self.connection.blame("a directory that cannot be understood");
                return Err(Error::Io);
            };
            let Some(name) = Name::new(stat.name).ok().filter(Name::plain) else { continue };
            let known = words::stat_of_wire(&stat, device);
            let cookie = before + entries.len() as u64 + 1;
            let (inode, kind) = (known.inode, known.kind);
            let (stat, handle) = (Some(known), None);
            entries.push(Entry { cookie, inode, device: None, kind, name, stat, handle });
        }
        let cursor = &mut self.opens[open.local()].cursor;
        cursor.offset += data.len() as u64;
        (cursor.before, cursor.entries) = (before, entries);
        self.entries_from(open, cookie, bytes_max, round + 1)
    }
}

/// Cuts off an incomplete last entry, which some servers send (pyroute2, contrary to read(5)): it
/// is complete in the next reply.
fn whole_entries(data: &[u8]) -> &[u8] {
    let mut rest = data;
    while let Some((size, body)) = rest.split_first_chunk::<2>()
        && let Some(next) = body.get(usize::from(u16::from_le_bytes(*size))..)
    {
        rest = next;
    }
    let whole = &data[..data.len() - rest.len()];
    if whole.is_empty() { data } else { whole }
}

/// Renames a file within its directory; an existing file of that name is not replaced (stat(5)).
fn rename(fid: u32, name: &Name) -> Outcome {
    let stat = WireStat { name: name.as_bytes(), ..WireStat::unchanged() };
    last(&Tmessage::Wstat { fid, stat })
}

/// Builds the message that changes attributes. It cannot request the server's current time.
fn set_stat(fid: u32, set: &SetStat, kind: Kind) -> Outcome {
    let date = |date: Option<SetTime>| match date {
        Some(SetTime::At(time)) => u32::try_from(time.secs.max(0)).unwrap_or(u32::MAX - 1),
        Some(SetTime::Now) | None => u32::MAX,
    };
    if set.uid.is_some() {
        return Err(Error::NotPermitted);
    }
    let directory = if kind == Kind::Directory { WireStat::DIR } else { 0 };
    let gid = set.gid.map(|gid| gid.to_string()).unwrap_or_default();
    let stat = WireStat {
        mode: set.mode.map_or(u32::MAX, |mode| mode & 0o777 | directory),
        atime: date(set.accessed),
        mtime: date(set.modified),
        length: set.size.unwrap_or(u64::MAX),
        gid: gid.as_bytes(),
        ..WireStat::unchanged()
    };
    if stat == WireStat::unchanged() && *set != SetStat::default() {
        return Err(Error::Unsupported);
    }
    last(&Tmessage::Wstat { fid, stat })
}
