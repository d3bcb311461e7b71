//! Translation of requests to operations, with the handles that they keep open.

#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "each function takes its share of the requests and hands on the rest"
)]

use super::Host;
use super::pending::Awaits;
use crate::locks::Outcome;
use crate::request::{Ask, Id, Reply, Request, RequestId};
use base::op::{Op, OpId, PathOp, Replacement};
use base::{Buf, Caller, Error, Name};

/// Largest file offset in Linux.
const OFFSET_MAX: u64 = i64::MAX as u64;

/// Handling of a request.
pub(super) enum Plan {
    /// Immediate reply.
    Answer(Result<Reply, Error>),
    /// Wait for a lock.
    Wait,
    /// Operation of the reactor.
    Run { pins: [Option<Id>; 2], awaits: Awaits, op: Op },
}

/// Prefix of extended attributes that configure volumes, such as quotas. A host file system would
/// store them without effect, so they are refused here.
const OF_VOLUMES: &[u8] = b"trusted.upcall.";

impl Host {
    /// Returns the plan of a request; `id` is the id of its operation, if it has one.
    pub(super) fn plan(&mut self, request_id: RequestId, request: Request, id: OpId) -> Plan {
        let caller = request.caller;
        match request.ask {
            Ask::Walk { from, names } if names.is_empty() => {
                self.handle_mut(Id::Node(from)).users += 1;
                Plan::Answer(Ok(Reply::Walked(Vec::new(), Some(from))))
            }
            ask @ (Ask::Read { .. } | Ask::Write { .. } | Ask::Sync { .. }) => {
                self.plan_io(id, caller, ask)
            }
            Ask::NextData { .. } => Plan::Answer(Err(Error::Unsupported)),
            Ask::SetAttr { name, .. } if name.starts_with(OF_VOLUMES) => {
                Plan::Answer(Err(Error::Unsupported))
            }
            ask @ (Ask::Lock { .. } | Ask::GetLock { .. }) => self.lock(request_id, ask),
            ask => self.plan_path(request_id.requester(), id, caller, ask),
        }
    }

    fn plan_io(&mut self, id: OpId, caller: Caller, ask: Ask) -> Plan {
        let pins = ask.ids();
        let (awaits, op) = match ask {
            // The kernel interprets such an offset as the file's current position.
            Ask::Read { offset, headroom, .. } if offset > OFFSET_MAX => {
                let data = Buf::with_room(headroom as usize, 0);
                return Plan::Answer(Ok(Reply::Data(data)));
            }
            Ask::Write { offset, data, .. }
                if offset.saturating_add(data.len() as u64) > OFFSET_MAX =>
            {
                return Plan::Answer(Err(Error::FileTooLarge));
            }
            Ask::Read { open, offset, count, headroom } => {
                let file = self.open_file(open);
                (Awaits::Read, Op::Read { id, file, offset, count, headroom })
            }
            Ask::Write { open, offset, data } => {
                let file = self.open_file(open);
                (Awaits::Write, Op::Write { id, caller, file, offset, data })
            }
            Ask::Sync { open, data_only } => {
                (Awaits::Sync, Op::Sync { id, file: self.open_file(open), data_only })
            }
            other => unreachable!("{other:?} is no input or output"),
        };
        Plan::Run { pins, awaits, op }
    }

    fn lock(&mut self, id: RequestId, ask: Ask) -> Plan {
        match ask {
            Ask::Lock { open, lock, wait } => {
                let key = self.handle(Id::Open(open)).key;
                match self.locks.request(key, open, lock, wait.then_some(id), self.client) {
                    Ok(Outcome::Granted) => Plan::Answer(Ok(Reply::Locked)),
                    Ok(Outcome::Blocked) => Plan::Answer(Ok(Reply::Blocked)),
                    Ok(Outcome::Waits) => Plan::Wait,
                    Err(error) => Plan::Answer(Err(error)),
                }
            }
            Ask::GetLock { open, lock } => {
                let key = self.handle(Id::Open(open)).key;
                Plan::Answer(Ok(Reply::Conflict(self.locks.conflict(key, &lock))))
            }
            other => unreachable!("{other:?} is no lock"),
        }
    }

    fn plan_path(&self, requester: u32, id: OpId, caller: Caller, ask: Ask) -> Plan {
        let pins = ask.ids();
        let awaits = match ask {
            Ask::Walk { .. } | Ask::Resolve { .. } => Awaits::Walk,
            Ask::Fetch { .. } => Awaits::Fetch,
            Ask::Open { .. } => Awaits::Open,
            Ask::Create { .. } | Ask::CreateUnnamed { .. } => Awaits::Create,
            Ask::Remove { .. }
            | Ask::RemoveNode { .. }
            | Ask::Replace { .. }
            | Ask::Rename { .. }
            | Ask::RenameNode { .. } => Awaits::Remove,
            _ => Awaits::Path,
        };
        let special = |name: &Name| !name.plain();
        let refused = match &ask {
            Ask::Create { name, .. }
            | Ask::CreateUnnamed { name, .. }
            | Ask::MakeDir { name, .. }
            | Ask::Symlink { name, .. }
            | Ask::MakeNode { name, .. }
            | Ask::Link { name, .. } => special(name).then_some(Error::Exists),
            Ask::Rename { name, new_name, .. } => {
                (special(name) || special(new_name)).then_some(Error::Busy)
            }
            Ask::RenameNode { new_name, .. } => special(new_name).then_some(Error::Busy),
            Ask::Replace { by: Replacement::Entry(_, name), .. } if special(name) => {
                Some(Error::Invalid)
            }
            Ask::Replace { name, .. } | Ask::Remove { name, .. } => {
                special(name).then_some(Error::Invalid)
            }
            _ => None,
        };
        if let Some(error) = refused {
            return Plan::Answer(Err(error));
        }
        let within = Some(self.root_file());
        // A handle was given to a client that reached the file; who opens it is checked later.
        let caller = if let Ask::Resolve { .. } = ask { Caller::Server } else { caller };
        let op = Op::Path { id, caller, requester, within, op: self.path_op(ask) };
        Plan::Run { pins, awaits, op }
    }

    fn path_op(&self, ask: Ask) -> PathOp {
        let file = |node| self.file(node);
        let root = file(self.root());
        match ask {
            Ask::Walk { from, names } => PathOp::Walk { root, from: file(from), names },
            Ask::Fetch { root: from, path, read_max, headroom } => {
                let root = from.map_or(root, file);
                PathOp::Fetch { root, path: join(&path), read_max, headroom }
            }
            Ask::ListAll { from, paths, bytes_max } => {
                PathOp::ListAll { from: file(from), paths, bytes_max }
            }
            Ask::ReadAll { from, paths, size_max, bytes_max } => {
                PathOp::ReadAll { from: file(from), paths, size_max, bytes_max }
            }
            Ask::Stat { node } => PathOp::Stat { file: file(node) },
            Ask::FileHandle { node } => PathOp::FileHandle { root, file: file(node) },
            Ask::Resolve { handle } => PathOp::OpenHandle { root, handle },
            Ask::SetStat { node, open, set } => match open.filter(|_| set.size.is_some()) {
                Some(open) => PathOp::SetStat { file: self.open_file(open), open: true, set },
                None => PathOp::SetStat { file: file(node), open: false, set },
            },
            Ask::Open { node, access } => PathOp::Open { file: file(node), access },
            Ask::List { open, cookie, bytes_max, detail } => {
                PathOp::List { file: self.open_file(open), cookie, bytes_max, detail }
            }
            Ask::ReadLink { node } => PathOp::ReadLink { file: file(node) },
            Ask::StatFs { node } => PathOp::StatFs { file: file(node) },
            Ask::GetAttr { node, name } => PathOp::GetAttr { file: file(node), name },
            Ask::SetAttr { node, name, value, create } => {
                PathOp::SetAttr { file: file(node), name, value, create }
            }
            Ask::ListAttrs { node } => PathOp::ListAttrs { file: file(node) },
            Ask::RemoveAttr { node, name } => PathOp::RemoveAttr { file: file(node), name },
            Ask::Identify { who } => PathOp::Identify { who },
            ask => self.entry_op(ask),
        }
    }

    /// Returns the operation of a request that creates, renames or removes entries.
    fn entry_op(&self, ask: Ask) -> PathOp {
        let file = |node| self.file(node);
        let root = file(self.root());
        match ask {
            Ask::Create { dir, name, access, exclusive, mode, gid } => {
                PathOp::Create { dir: file(dir), name, access, exclusive, mode, gid }
            }
            Ask::CreateUnnamed { dir, name: _, access, mode } => {
                PathOp::CreateUnnamed { dir: file(dir), access, mode }
            }
            Ask::Replace { dir, name, by, expected } => {
                let by = match by {
                    Replacement::Nothing => Replacement::Nothing,
                    Replacement::Entry(from, name) => Replacement::Entry(file(from), name),
                    Replacement::Unnamed(node) => Replacement::Unnamed(file(node)),
                };
                PathOp::Replace { dir: file(dir), name, by, expected }
            }
            Ask::MakeDir { dir, name, mode, gid } => {
                PathOp::MakeDir { dir: file(dir), name, mode, gid }
            }
            Ask::Symlink { dir, name, target, gid } => {
                PathOp::Symlink { dir: file(dir), name, target, gid }
            }
            Ask::MakeNode { dir, name, kind, mode, device, gid } => {
                PathOp::MakeNode { dir: file(dir), name, kind, mode, device, gid }
            }
            Ask::Link { node, dir, name } => {
                PathOp::Link { file: file(node), dir: file(dir), name }
            }
            Ask::Rename { from, name, to, new_name, replace } => {
                PathOp::Rename { from: file(from), name, to: file(to), new_name, replace }
            }
            Ask::RenameNode { node, to, new_name, replace } => {
                PathOp::RenameFile { root, file: file(node), to: to.map(file), new_name, replace }
            }
            Ask::Remove { dir, name, directory } => {
                PathOp::Remove { dir: file(dir), name, directory }
            }
            Ask::RemoveNode { node } => PathOp::RemoveFile { root, file: file(node) },
            other => unreachable!("{other:?} makes, moves or removes nothing"),
        }
    }
}

fn join(path: &[Name]) -> Vec<u8> {
    path.iter().map(Name::as_bytes).collect::<Vec<_>>().join(&b'/')
}
