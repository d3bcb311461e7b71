//! Requests in 9P2000.L.

use super::message::{Message, walk};
use super::step::{Next, Outcome, OwnStep, Step, last, send};
use super::{Remote, words};
use crate::request::{Ask, Lock, LockKind, NodeId, Owner, Reply};
use base::{Access, Buf, Error, Kind, Name};
use session::Dialect;
use std::time::Duration;
use wire::ninep::{Qid, Rmessage, Tmessage};

/// Maximum size of an extended attribute (Linux `XATTR_SIZE_MAX`), bytes.
const ATTR_SIZE_MAX: u64 = 65_536;

/// `AT_REMOVEDIR`.
const REMOVE_DIR: u32 = 0x200;

/// Pause between attempts to take a lock that is held by another client.
const LOCK_PAUSE: Duration = Duration::from_millis(100);

fn group(gid: Option<u32>) -> u32 {
    gid.unwrap_or(u32::MAX)
}

fn open(fid: u32, access: Access) -> Outcome {
    let message = words::open(Dialect::Linux, fid, access);
    send(Step::Opening(fid), &message)
}

impl Remote {
    pub(super) fn start_linux(&mut self, slot: usize, ask: &Ask) -> Outcome {
        let user = self.pending[slot].user;
        match ask {
            Ask::Stat { node } => last(&words::stat(Dialect::Linux, self.stat_fid(slot, *node)?)),
            Ask::SetStat { node, open, set } => {
                let fid = match open.filter(|_| set.size.is_some()) {
                    Some(open) => self.open_fid(open),
                    None => self.fid_of(*node, user)?,
                };
                last(&words::setattr(fid, set))
            }
            Ask::Open { node, .. }
            | Ask::Create { dir: node, .. }
            | Ask::SetAttr { node, .. }
            | Ask::RemoveAttr { node, .. }
            | Ask::RemoveNode { node } => self.copy(slot, *node),
            Ask::Sync { open, data_only } => {
                let (fid, data_only) = (self.open_fid(*open), Some(u32::from(*data_only)));
                self.sync(slot, &Tmessage::Fsync { fid, data_only })
            }
            Ask::ReadLink { node } => last(&Tmessage::Readlink { fid: self.fid_of(*node, user)? }),
            Ask::StatFs { node } => last(&Tmessage::Statfs { fid: self.fid_of(*node, user)? }),
            Ask::GetAttr { node, name } => self.look_at_attr(slot, *node, name),
            Ask::ListAttrs { node } => self.look_at_attr(slot, *node, b""),
            Ask::Lock { open, lock, wait } => {
                self.expect_locks(open.local())?;
                last(&lock_message(self.open_fid(*open), lock, *wait))
            }
            Ask::GetLock { open, lock } => {
                self.expect_locks(open.local())?;
                let (start, length) = (lock.start, lock.length());
                last(&Tmessage::Getlock {
                    fid: self.open_fid(*open),
                    kind: words::lock_type(lock.kind),
                    start,
                    length,
                    proc_id: lock.owner.process,
                    client_id: &lock.owner.client,
                })
            }
            ask => self.start_entry(slot, ask),
        }
    }

    /// Starts a request that creates, renames or removes entries.
    fn start_entry(&mut self, slot: usize, ask: &Ask) -> Outcome {
        let user = self.pending[slot].user;
        let fid = |node: &NodeId| self.fid_of(*node, user);
        match ask {
            Ask::MakeDir { dir, name, mode, gid } => {
                let (name, gid) = (name.as_bytes(), group(*gid));
                last(&Tmessage::Mkdir { dfid: fid(dir)?, name, mode: *mode, gid })
            }
            Ask::Symlink { dir, name, target, gid } => {
                let (name, gid) = (name.as_bytes(), group(*gid));
                last(&Tmessage::Symlink { dfid: fid(dir)?, name, target, gid })
            }
            Ask::MakeNode { dir, name, kind, mode, device, gid } => {
                let (major, minor) = words::device_halves(*device);
                let (name, mode) = (name.as_bytes(), kind.mode_bits() | mode);
                let (dfid, gid) = (fid(dir)?, group(*gid));
                last(&Tmessage::Mknod { dfid, name, mode, major, minor, gid })
            }
            Ask::Link { node, dir, name } => {
                let (fid, dfid) = (fid(node)?, fid(dir)?);
                last(&Tmessage::Link { dfid, fid, name: name.as_bytes() })
            }
            Ask::Rename { to, new_name, replace: false, .. } => {
                self.look_for(slot, *to, new_name, OwnStep::Free)
            }
            Ask::RenameNode { node, to, new_name, replace: false } => {
                let to = to.unwrap_or(self.parent(*node));
                self.look_for(slot, to, new_name, OwnStep::Free)
            }
            Ask::Rename { .. } | Ask::RenameNode { .. } => self.rename(slot, ask),
            Ask::Remove { dir, name, directory } => {
                let flags = if *directory == Some(true) { REMOVE_DIR } else { 0 };
                last(&Tmessage::Unlinkat { dfid: fid(dir)?, name: name.as_bytes(), flags })
            }
            other => unreachable!("{other:?} was begun elsewhere"),
        }
    }

    pub(super) fn parent(&self, node: NodeId) -> NodeId {
        NodeId::new(self.index, self.inodes.parent(node.local()))
    }

    /// Requests a copy of a node's fid, to be modified or handed out.
    pub(super) fn copy(&mut self, slot: usize, node: NodeId) -> Outcome {
        let from = self.fid_of(node, self.pending[slot].user)?;
        let fid = self.new_fid(slot);
        send(OwnStep::Clone(fid), &walk(from, fid, &[]))
    }

    /// Requests a fid of an entry.
    pub(super) fn look_for<S: Into<Step>>(
        &mut self,
        slot: usize,
        dir: NodeId,
        name: &Name,
        step: fn(u32) -> S,
    ) -> Outcome {
        let from = self.fid_of(dir, self.pending[slot].user)?;
        let fid = self.new_fid(slot);
        send(step(fid), &walk(from, fid, std::slice::from_ref(name)))
    }

    fn rename(&mut self, slot: usize, ask: &Ask) -> Outcome {
        let user = self.pending[slot].user;
        match ask {
            Ask::Rename { from, name, to, new_name, .. } => last(&Tmessage::Renameat {
                olddirfid: self.fid_of(*from, user)?,
                oldname: name.as_bytes(),
                newdirfid: self.fid_of(*to, user)?,
                newname: new_name.as_bytes(),
            }),
            Ask::RenameNode { node, to, new_name, .. } => last(&Tmessage::Rename {
                fid: self.fid_of(*node, user)?,
                dfid: self.fid_of(to.unwrap_or(self.parent(*node)), user)?,
                name: new_name.as_bytes(),
            }),
            other => unreachable!("{other:?} renames nothing"),
        }
    }

    fn look_at_attr(&mut self, slot: usize, node: NodeId, name: &[u8]) -> Outcome {
        let fid = self.fid_of(node, self.pending[slot].user)?;
        let newfid = self.new_fid(slot);
        send(OwnStep::AttrSize(newfid), &Tmessage::Xattrwalk { fid, newfid, name })
    }

    fn expect_locks(&self, open: usize) -> Result<(), Error> {
        if self.opens[open].locks_lost { Err(Error::Stale) } else { Ok(()) }
    }

    pub(super) fn resume_linux(
        &mut self,
        slot: usize,
        ask: &Ask,
        step: OwnStep,
        answer: Result<&Rmessage<'_>, Error>,
    ) -> Outcome {
        match (step, answer) {
            (OwnStep::Clone(fid), Ok(_)) => {
                self.pending[slot].bound(fid);
                self.copied(slot, ask, fid)
            }
            (OwnStep::Free(fid), Ok(Rmessage::Walk { qids })) if qids.as_slice().len() == 1 => {
                self.pending[slot].bound(fid);
                Err(Error::Exists)
            }
            (OwnStep::Free(_), Err(Error::NotFound)) => self.rename(slot, ask),
            (OwnStep::Child(fid), Ok(Rmessage::Walk { qids })) if qids.as_slice().len() == 1 => {
                self.pending[slot].bound(fid);
                self.by_child(slot, ask, fid)
            }
            (OwnStep::AttrSize(fid), Ok(Rmessage::Xattrwalk { size })) => {
                self.pending[slot].bound(fid);
                match u32::try_from(*size) {
                    Ok(0) => Ok(Next::Reply(Reply::Bytes(Vec::new()))),
                    Ok(count) if *size <= ATTR_SIZE_MAX => Ok(self.read(fid, 0, 0, count, 0)),
                    _ => Err(Error::AttributeTooLarge),
                }
            }
            (OwnStep::AttrRoom(fid), Ok(_)) => self.write_attr(slot, ask, fid),
            (OwnStep::Last, Err(error)) => self.otherwise(slot, ask, error),
            (OwnStep::Last, Ok(message)) => self.finish_linux(ask, message),
            (
                OwnStep::Clone(_)
                | OwnStep::Free(_)
                | OwnStep::Child(_)
                | OwnStep::AttrSize(_)
                | OwnStep::AttrRoom(_),
                Err(error),
            ) => Err(error),
            (OwnStep::Free(_) | OwnStep::Child(_) | OwnStep::AttrSize(_), Ok(_)) => self.wrong(),
        }
    }

    /// Continues with a copy of a fid.
    fn copied(&mut self, slot: usize, ask: &Ask, fid: u32) -> Outcome {
        let message = match ask {
            Ask::Open { access, .. } => return open(fid, *access),
            Ask::Fetch { .. } => return open(fid, Access::READ),
            Ask::Create { name, access, exclusive, mode, gid, .. } => {
                const CREATE: u32 = 0o100;
                const EXCLUSIVE: u32 = 0o200;
                let exclusive = if *exclusive { EXCLUSIVE } else { 0 };
                let flags = words::linux_flags(*access) | CREATE | exclusive;
                let (name, gid) = (name.as_bytes(), group(*gid));
                let message = Tmessage::Lcreate { fid, name, flags, mode: *mode, gid };
                return send(Step::Opening(fid), &message);
            }
            Ask::SetAttr { name, value, create, .. } => {
                let flags = match create {
                    None => 0,
                    Some(true) => 1,
                    Some(false) => 2,
                };
                Tmessage::Xattrcreate { fid, name, size: value.len() as u64, flags }
            }
            Ask::RemoveAttr { name, .. } => Tmessage::Xattrcreate { fid, name, size: 0, flags: 2 },
            // The fid is freed whatever the result (remove(5)).
            Ask::RemoveNode { .. } => return self.remove_by(slot, fid),
            other => unreachable!("{other:?} needs no copy"),
        };
        send(OwnStep::AttrRoom(fid), &message)
    }

    pub(super) fn remove_by(&mut self, slot: usize, fid: u32) -> Outcome {
        self.pending[slot].keep_fid(fid);
        self.pending[slot].removing = Some(fid);
        last(&Tmessage::Remove { fid })
    }

    fn write_attr(&mut self, slot: usize, ask: &Ask, fid: u32) -> Outcome {
        let Ask::SetAttr { value, .. } = ask else { return self.attr_clunk(slot, fid) };
        if value.is_empty() {
            return self.attr_clunk(slot, fid);
        }
        let most = self.piece_max(0) as usize;
        let pieces: Vec<&[u8]> = value.chunks(most).collect();
        let mut messages = Vec::new();
        for (index, piece) in pieces.iter().enumerate() {
            messages.push(Message::write(fid, (index * most) as u64, Buf::from(*piece)));
        }
        let count = |piece: &&[u8]| u32::try_from(piece.len()).expect("less than a message");
        let parts = pieces.iter().map(|piece| (count(piece), None)).collect();
        Ok(Next::Send(Step::Writing(parts), messages))
    }

    pub(super) fn attr_written(&mut self, slot: usize, total: u32) -> Outcome {
        let Ask::SetAttr { value, .. } = &self.pending[slot].ask else { return Err(Error::Io) };
        if (total as usize) < value.len() {
            return Err(Error::Io);
        }
        let fid = self.pending[slot].fids.last().map(|(fid, _)| *fid);
        self.attr_clunk(slot, fid.ok_or(Error::Io)?)
    }

    /// Clunks a fid, which sets its attribute.
    fn attr_clunk(&mut self, slot: usize, fid: u32) -> Outcome {
        self.pending[slot].keep_fid(fid);
        self.pending[slot].removing = Some(fid);
        last(&Tmessage::Clunk { fid })
    }

    /// Tries the fallback after an error of the last message.
    fn otherwise(&mut self, slot: usize, ask: &Ask, error: Error) -> Outcome {
        let is_unknown = error == Error::Unsupported;
        match ask {
            Ask::Remove { dir, name, directory: None } if error == Error::IsDirectory => {
                let dfid = self.fid_of(*dir, self.pending[slot].user)?;
                self.pending[slot].ask =
                    Ask::Remove { dir: *dir, name: name.clone(), directory: Some(true) };
                last(&Tmessage::Unlinkat { dfid, name: name.as_bytes(), flags: REMOVE_DIR })
            }
            Ask::Rename { from, name, .. } if is_unknown && !self.pending[slot].second => {
                self.pending[slot].second = true;
                self.look_for(slot, *from, name, OwnStep::Child)
            }
            Ask::Remove { dir, name, .. } if is_unknown && !self.pending[slot].second => {
                self.pending[slot].second = true;
                self.look_for(slot, *dir, name, OwnStep::Child)
            }
            Ask::RenameNode { node, .. } | Ask::RemoveNode { node }
                if is_unknown && !self.pending[slot].second =>
            {
                let (from, name) = self.inodes.at(node.local()).ok_or(error)?;
                self.pending[slot].second = true;
                self.pending[slot].ask = self.by_name(ask, from, name);
                Ok(Next::Again)
            }
            _ => Err(error),
        }
    }

    /// Returns the same request by the name of a node, whose place records its directory.
    fn by_name(&self, ask: &Ask, dir: usize, name: Name) -> Ask {
        let dir = NodeId::new(self.index, dir);
        match ask.clone() {
            Ask::RenameNode { to, new_name, .. } => {
                let to = to.unwrap_or(dir);
                Ask::Rename { from: dir, name, to, new_name, replace: true }
            }
            Ask::RemoveNode { node } => {
                let kind = words::kind(self.inodes.qid(node.local()));
                Ask::Remove { dir, name, directory: Some(kind == Kind::Directory) }
            }
            other => other,
        }
    }

    /// Performs a request by a fid of the entry itself, for older servers.
    fn by_child(&mut self, slot: usize, ask: &Ask, fid: u32) -> Outcome {
        match ask {
            Ask::Rename { to, new_name, .. } => {
                let dfid = self.fid_of(*to, self.pending[slot].user)?;
                last(&Tmessage::Rename { fid, dfid, name: new_name.as_bytes() })
            }
            _remove => self.remove_by(slot, fid),
        }
    }

    fn finish_linux(&mut self, ask: &Ask, message: &Rmessage<'_>) -> Outcome {
        let reply = match (ask, message) {
            (Ask::Stat { node }, message) => {
                let known = words::stat_of_getattr(message, self.config.device);
                let Some((qid, stat)) = known else { return self.wrong() };
                self.learn(*node, qid);
                Reply::Stat(stat)
            }
            (_, Rmessage::Mkdir { qid } | Rmessage::Symlink { qid } | Rmessage::Mknod { qid }) => {
                Reply::Stat(self.made(ask, *qid))
            }
            (_, Rmessage::Readlink { target }) => Reply::Bytes(target.to_vec()),
            (_, message @ Rmessage::Statfs { .. }) => {
                Reply::StatFs(words::statfs(message).ok_or(Error::Io)?)
            }
            (Ask::Lock { open, lock, wait }, Rmessage::Lock { status }) => {
                return self.locked(open.local(), lock, *wait, *status);
            }
            (_, Rmessage::Getlock { kind, start, length, proc_id, client_id }) => {
                Reply::Conflict(conflict(*kind, *start, *length, *proc_id, client_id))
            }
            (ask, _) => {
                self.moved(ask);
                Reply::Done
            }
        };
        Ok(Next::Reply(reply))
    }

    /// Records a node's newest qid.
    pub(super) fn learn(&mut self, node: NodeId, qid: Qid) {
        if words::is_same(self.inodes.qid(node.local()), qid) {
            self.inodes.set_qid(node.local(), qid);
        }
    }

    /// Records a new entry: the place formerly known under its name is gone.
    pub(super) fn made(&mut self, ask: &Ask, qid: Qid) -> base::Stat {
        if let [Some((dir, name)), _] = ask.entries() {
            self.inodes.gone(dir.local(), name);
        }
        words::stat_of_qid(qid, self.config.device)
    }

    /// Records the rename or removal of an entry.
    pub(super) fn moved(&mut self, ask: &Ask) {
        match ask {
            Ask::Rename { from, name, to, new_name, .. } => {
                let (from, to) = (from.local(), to.local());
                self.inodes.moved((from, name.clone()), (to, new_name.clone()));
            }
            Ask::RenameNode { node, to, new_name, .. } => {
                let to = to.unwrap_or(self.parent(*node)).local();
                self.inodes.moved_inode(node.local(), (to, new_name.clone()));
            }
            Ask::Remove { dir, name, .. } => self.inodes.gone(dir.local(), name),
            Ask::RemoveNode { node } => self.inodes.gone_inode(node.local()),
            _ => {}
        }
    }

    fn locked(&mut self, open: usize, lock: &Lock, wait: bool, status: u8) -> Outcome {
        match status {
            0 => {
                self.opens[open].locked |= lock.kind != LockKind::None;
                Ok(Next::Reply(Reply::Locked))
            }
            1 if wait => Ok(Next::Pause(self.now + LOCK_PAUSE)),
            1 => Ok(Next::Reply(Reply::Blocked)),
            // The server is in its grace period: former owners recover their locks first.
            3 => Err(Error::WouldBlock),
            _ => Err(Error::Io),
        }
    }
}

fn lock_message(fid: u32, lock: &Lock, wait: bool) -> Tmessage<'_> {
    const BLOCK: u32 = 1;
    Tmessage::Lock {
        fid,
        kind: words::lock_type(lock.kind),
        flags: if wait { BLOCK } else { 0 },
        start: lock.start,
        length: lock.length(),
        proc_id: lock.owner.process,
        client_id: &lock.owner.client,
    }
}

fn conflict(kind: u8, start: u64, length: u64, process: u32, client: &[u8]) -> Option<Lock> {
    let kind = match kind {
        0 => LockKind::Shared,
        1 => LockKind::Exclusive,
        _unlocked => return None,
    };
    Lock::new(kind, start, length, Owner { client: client.to_vec(), process }).ok()
}
