//! Messages common to both dialects: attach, walk, read, write, clunk, remove.

#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "each function takes its share of the messages and answers and hands on the rest"
)]

use super::call::{self, Await, Next, encode};
use super::fid::{Fid, Openness};
use super::{Dialect, Session, State};
use crate::{Identity, Output};
use base::op::Who;
use base::{Buf, Caller, Error, Kind, Name, User};
use std::sync::Arc;
use tree::{Ask, NodeId, Reply};
use wire::ninep::{
    IO_HEADER_SIZE, NO_FID, NO_UID, Names, READ_HEADER_SIZE, Rmessage, Tmessage, read_header,
};

/// Result of starting or resuming a call.
pub(super) type Started = Result<Next, Error>;

/// Directory to attach to for administrative access: that of the service files.
const COMMANDS: &[u8] = b".upcall";

/// Maximum length of a path to attach to, bytes, as in Linux, and maximum number of names. It is
/// walked at once.
const PATH_MAX: usize = 4096;
const PATH_NAMES_MAX: usize = 256;

const READ_HEADROOM: u32 = READ_HEADER_SIZE as u32;

impl Session {
    /// Starts a call for a message (any except `Tversion` and `Tflush`).
    pub(super) fn start(
        &mut self,
        dialect: Dialect,
        tag: u16,
        message: Tmessage<'_>,
        out: &mut Vec<Output>,
    ) -> Started {
        match message {
            Tmessage::Attach { fid, afid, uname, aname, uid } => {
                self.attach(fid, afid, uname, aname, uid)
            }
            Tmessage::Auth { .. } => Ok(Next::Respond(refuse_auth(dialect, tag))),
            Tmessage::Walk { fid, newfid, names } => self.walk(fid, newfid, &names),
            Tmessage::Read { fid, offset, count } => self.read(tag, fid, offset, count),
            Tmessage::Write { fid, offset, data } => {
                self.write(tag, fid, offset, Buf::from(data.0))
            }
            Tmessage::Clunk { fid } => self.clunk(tag, fid, out),
            Tmessage::Remove { fid } => self.remove(fid, out),
            message => match dialect {
                Dialect::Linux => self.start_linux(tag, message),
                Dialect::Plan9 => self.start_plan9(tag, message),
            },
        }
    }

    /// Resumes a call with the reply that it waited for.
    pub(super) fn resume(
        &mut self,
        tag: u16,
        awaits: Await,
        reply: Result<Reply, Error>,
        out: &mut Vec<Output>,
    ) -> Started {
        match (awaits, reply) {
            (Await::Identify { fid, path }, Ok(Reply::User(user))) => {
                Ok(self.attach_as(fid, Caller::User(Arc::new(user)), path))
            }
            (Await::Attach { fid, caller }, Ok(Reply::Walked(stats, node))) => {
                let (Some(stat), Some(node)) = (stats.last(), node) else {
                    return Err(Error::NotFound);
                };
                let (kind, name, openness) = (stat.kind, b"/".to_vec(), Openness::Closed);
                self.fids.bind(fid, Fid { node, caller, kind, name, openness }, out)?;
                Ok(Next::Respond(encode(tag, &Rmessage::Attach { qid: self.qid(stat) })))
            }
            (Await::Walk { fid, newfid, wanted, last }, Ok(Reply::Walked(stats, node))) => {
                let qids = stats.iter().map(|stat| self.qid(stat)).collect();
                match node {
                    Some(node) if stats.len() == wanted => {
                        let kind = stats.last().map(|stat| stat.kind);
                        self.walked(fid, newfid, node, last, kind, out)?;
                    }
                    node => out.extend(node.map(Output::Release)),
                }
                Ok(Next::Respond(encode(tag, &Rmessage::Walk { qids })))
            }
            (Await::Read | Await::ReadStream, Ok(Reply::Data(mut data))) => {
                data.prepend(&read_header(tag, data.len()));
                Ok(Next::Respond(data))
            }
            (Await::Read, Ok(Reply::Pieces(pieces))) => {
                let count = pieces.iter().map(|piece| piece.len()).sum();
                Ok(Next::SayPieces(Buf::from(&read_header(tag, count)[..]), pieces))
            }
            (Await::Write, Ok(Reply::Written(count))) => {
                Ok(Next::Respond(encode(tag, &Rmessage::Write { count })))
            }
            (Await::AttrSet { file }, Ok(_)) => {
                file.forget(out);
                Ok(Next::Respond(encode(tag, &Rmessage::Clunk {})))
            }
            (Await::Remove { code, file }, result) => {
                file.forget(out);
                removed(tag, code, result)
            }
            (awaits, Err(error)) => {
                awaits.end(&mut self.fids, out);
                Err(error)
            }
            (awaits, Ok(reply)) => match self.state {
                State::Ready(Dialect::Plan9) | State::Parting(Dialect::Plan9) => {
                    self.resume_plan9(tag, awaits, reply, out)
                }
                State::Ready(Dialect::Linux)
                | State::Parting(Dialect::Linux)
                | State::New
                | State::Closing => self.resume_linux(tag, awaits, reply, out),
            },
        }
    }

    /// Starts an attach (attach(5)). The path is relative to the tree, or begins with the served
    /// directory's path on the host, as in diod's clients.
    fn attach(&self, fid: u32, afid: u32, uname: &[u8], aname: &[u8], uid: Option<u32>) -> Started {
        self.fids.expect_free(fid)?;
        if afid != NO_FID {
            return Err(Error::Unsupported);
        }
        let (inner, here) = (self.inner(aname), &b"."[..]);
        if inner.len() > PATH_MAX {
            return Err(Error::NameTooLong);
        }
        let components =
            inner.split(|b| *b == b'/').filter(|part| !part.is_empty() && *part != here);
        let path = std::iter::once(here).chain(components);
        let path = path.map(Name::new).collect::<Result<Vec<Name>, Error>>()?;
        if path.len() > PATH_NAMES_MAX {
            return Err(Error::NameTooLong);
        }
        let caller = match (&self.identity, uid) {
            (Identity::Fixed(caller), _) => caller.clone(),
            (Identity::Claimed(_), Some(uid)) if uid != NO_UID => {
                return Ok(identify(fid, path, Who::Uid(uid)));
            }
            (Identity::Claimed(Some(caller)), _) if uname.is_empty() => caller.clone(),
            (Identity::Claimed(_), _) => {
                let who = uid_of(uname).map_or_else(|| Who::Name(uname.to_vec()), Who::Uid);
                return Ok(identify(fid, path, who));
            }
        };
        Ok(self.attach_as(fid, caller, path))
    }

    /// Walks to the directory to attach to. A client with a verified identity that attaches to the
    /// service files gets administrative access.
    fn attach_as(&self, fid: u32, caller: Caller, path: Vec<Name>) -> Next {
        let asks = path.iter().find(|name| name.plain()).is_some_and(|n| n.as_bytes() == COMMANDS);
        let caller = match caller {
            Caller::User(user) if asks && self.may_command => {
                Caller::User(Arc::new(User { commands: true, ..(*user).clone() }))
            }
            caller @ (Caller::Server | Caller::User(_)) => caller,
        };
        let ask = Ask::Walk { from: self.export.root, names: path };
        Next::Ask(Await::Attach { fid, caller: caller.clone() }, caller, ask)
    }

    /// Returns the path within the tree.
    fn inner<'a>(&self, aname: &'a [u8]) -> &'a [u8] {
        let path = &self.export.path[..];
        let served = path.strip_suffix(b"/").unwrap_or(path);
        match aname.strip_prefix(served) {
            Some(rest) if rest.is_empty() || rest.starts_with(b"/") => rest,
            Some(_) | None => aname,
        }
    }

    fn walk(&mut self, fid: u32, newfid: u32, names: &Names<'_>) -> Started {
        let file = self.fids.get(fid)?;
        file.expect_no_attr()?;
        // An open fid cannot be moved; walking from one is an error, too (walk(5)), which no server
        // checks.
        match newfid == fid {
            true if file.open().is_some() => return Err(Error::Invalid),
            true => self.fids.expect_walk()?,
            false => self.fids.expect_free(newfid)?,
        }
        // An invalid name ends the walk before it.
        let good = names.as_slice().iter().map_while(|name| Name::new(name).ok());
        let good: Vec<Name> = good.collect();
        if let (true, Some(first)) = (good.is_empty(), names.as_slice().first()) {
            return Err(Name::new(first).err().unwrap_or(Error::NotFound));
        }
        let (from, caller) = (file.node, file.caller.clone());
        let (wanted, last) = (names.as_slice().len(), good.last().cloned());
        let awaits = Await::Walk { fid, newfid, wanted, last };
        Ok(Next::Ask(awaits, caller, Ask::Walk { from, names: good }))
    }

    /// Binds the end of a complete walk.
    fn walked(
        &mut self,
        fid: u32,
        newfid: u32,
        node: NodeId,
        last: Option<Name>,
        kind: Option<Kind>,
        out: &mut Vec<Output>,
    ) -> Result<(), Error> {
        let Ok(from) = self.fids.get(fid) else {
            out.push(Output::Release(node));
            return Err(Error::Invalid);
        };
        let name = self.fid_name(last.as_ref().map_or(&from.name, |name| name.as_bytes()));
        let (caller, kind) = (from.caller.clone(), kind.unwrap_or(from.kind));
        if newfid == fid {
            self.fids.remove(fid)?.forget(out);
        }
        self.fids.bind(newfid, Fid { node, caller, kind, name, openness: Openness::Closed }, out)
    }

    fn read(&mut self, tag: u16, fid: u32, offset: u64, count: u32) -> Started {
        let count = count.min(self.msize - IO_HEADER_SIZE);
        let caller = self.caller(fid)?;
        match &self.fids.get(fid)?.openness {
            Openness::File { open, is_stream, .. } => {
                let ask = Ask::Read { open: *open, offset, count, headroom: READ_HEADROOM };
                let awaits = if *is_stream { Await::ReadStream } else { Await::Read };
                Ok(Next::Ask(awaits, caller, ask))
            }
            Openness::AttrRead { value } => {
                let start = usize::try_from(offset).unwrap_or(usize::MAX).min(value.len());
                let end = start.saturating_add(count as usize).min(value.len());
                let data = wire::ninep::Data(&value[start..end]);
                Ok(Next::Respond(encode(tag, &Rmessage::Read { data })))
            }
            Openness::Directory { .. } if self.state == State::Ready(Dialect::Plan9) => {
                self.read_entries(tag, fid, offset, count)
            }
            Openness::Directory { .. } => Err(Error::IsDirectory),
            Openness::Closed | Openness::Opening { .. } | Openness::AttrWrite { .. } => {
                Err(Error::Invalid)
            }
        }
    }

    pub(super) fn write(&mut self, tag: u16, fid: u32, offset: u64, data: Buf) -> Started {
        let caller = self.caller(fid)?;
        match &mut self.fids.get_mut(fid)?.openness {
            Openness::File { open, access, .. } if access.write => {
                Ok(Next::Ask(Await::Write, caller, Ask::Write { open: *open, offset, data }))
            }
            Openness::AttrWrite { value, size, .. } => {
                if offset != value.len() as u64 || value.len() + data.len() > *size {
                    return Err(Error::Invalid);
                }
                value.extend_from_slice(&data);
                let count = u32::try_from(data.len()).expect("messages are below 4 GiB");
                Ok(Next::Respond(encode(tag, &Rmessage::Write { count })))
            }
            Openness::Directory { .. } => Err(Error::IsDirectory),
            Openness::File { .. }
            | Openness::Closed
            | Openness::Opening { .. }
            | Openness::AttrRead { .. } => Err(Error::Invalid),
        }
    }

    /// Clunks a fid, which is gone in any case (clunk(5)).
    fn clunk(&mut self, tag: u16, fid: u32, out: &mut Vec<Output>) -> Started {
        let mut file = self.fids.remove(fid)?;
        match std::mem::replace(&mut file.openness, Openness::Closed) {
            Openness::AttrWrite { name, value, size, create } if value.len() == size => {
                let (node, caller) = (file.node, file.caller.clone());
                let ask = set_attr(node, name, value, create);
                Ok(Next::Ask(Await::AttrSet { file }, caller, ask))
            }
            Openness::AttrWrite { .. } => {
                file.forget(out);
                Err(Error::Invalid)
            }
            openness => {
                file.openness = openness;
                self.clunk_open(tag, file, out)
            }
        }
    }

    fn clunk_open(&mut self, tag: u16, file: Fid, out: &mut Vec<Output>) -> Started {
        match &file.openness {
            Openness::File { remove: true, .. } | Openness::Directory { remove: true, .. } => {
                let (node, caller) = (file.node, file.caller.clone());
                let awaits = Await::Remove { code: CLUNK, file };
                Ok(Next::Ask(awaits, caller, Ask::RemoveNode { node }))
            }
            _other => {
                file.forget(out);
                Ok(Next::Respond(encode(tag, &Rmessage::Clunk {})))
            }
        }
    }

    /// Removes the file of a fid, which is gone in any case (remove(5)). A fid of an attribute has
    /// no file.
    fn remove(&mut self, fid: u32, out: &mut Vec<Output>) -> Started {
        let file = self.fids.remove(fid)?;
        if let Err(error) = file.expect_no_attr() {
            file.forget(out);
            return Err(error);
        }
        let (node, caller) = (file.node, file.caller.clone());
        Ok(Next::Ask(Await::Remove { code: REMOVE, file }, caller, Ask::RemoveNode { node }))
    }

    /// Returns the name to keep in a fid: 9P2000.L never needs it.
    pub(super) fn fid_name(&self, name: &[u8]) -> Vec<u8> {
        match self.state {
            State::Ready(Dialect::Plan9) | State::Parting(Dialect::Plan9) => name.to_vec(),
            State::Ready(Dialect::Linux)
            | State::Parting(Dialect::Linux)
            | State::New
            | State::Closing => Vec::new(),
        }
    }

    pub(super) fn qid(&self, stat: &base::Stat) -> wire::ninep::Qid {
        wire::ninep::qid(stat, self.export.device)
    }

    /// Returns the maximum data size of a message.
    pub(super) fn iounit(&self) -> u32 {
        assert!(self.msize > IO_HEADER_SIZE, "a message holds data");
        self.msize - IO_HEADER_SIZE
    }
}

const CLUNK: u8 = 121;
const REMOVE: u8 = 123;

/// Returns the number of a user whose name is numeric: clients without a name for their user send
/// that.
fn uid_of(uname: &[u8]) -> Option<u32> {
    let digits = uname.iter().all(u8::is_ascii_digit).then_some(uname)?;
    let uid = str::from_utf8(digits).ok()?.parse().ok()?;
    (uid != NO_UID).then_some(uid)
}

fn identify(fid: u32, path: Vec<Name>, who: Who) -> Next {
    Next::Ask(Await::Identify { fid, path }, Caller::Server, Ask::Identify { who })
}

/// Refuses authentication, which is unsupported. Clients that offer it continue without after this
/// text (9P2000) or this number, `ENOENT` (diod's clients).
fn refuse_auth(dialect: Dialect, tag: u16) -> Buf {
    let ename = b"authentication not required";
    match dialect {
        Dialect::Linux => {
            encode(tag, &Rmessage::Lerror { ecode: wire::ninep::errno(Error::NotFound) })
        }
        Dialect::Plan9 => encode(tag, &Rmessage::Error { ename }),
    }
}

/// Sets an attribute. An empty value that must replace an existing one means a removal by Linux's
/// client.
fn set_attr(node: NodeId, name: Vec<u8>, value: Vec<u8>, create: Option<bool>) -> Ask {
    match create {
        Some(false) if value.is_empty() => Ask::RemoveAttr { node, name },
        create => Ask::SetAttr { node, name, value, create },
    }
}

fn removed(tag: u16, code: u8, result: Result<Reply, Error>) -> Started {
    match (code, result) {
        (CLUNK, _) => Ok(Next::Respond(encode(tag, &Rmessage::Clunk {}))),
        (_, Ok(_)) => Ok(Next::Respond(encode(tag, &Rmessage::Remove {}))),
        (_, Err(error)) => Err(error),
    }
}

/// Returns responses that carry only success, or one qid, by their type.
pub(super) fn bare(code: u8) -> Rmessage<'static> {
    match code {
        21 => Rmessage::Rename {},
        27 => Rmessage::Setattr {},
        51 => Rmessage::Fsync {},
        71 => Rmessage::Link {},
        75 => Rmessage::Renameat {},
        77 => Rmessage::Unlinkat {},
        127 => Rmessage::Wstat {},
        other => unreachable!("{other} carries more than success"),
    }
}

pub(super) use call::opened;
