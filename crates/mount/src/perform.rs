//! Requests of the kernel, each to the function that performs it.

use crate::answer::Answer;
use crate::changes::Outdated;
use crate::errno::{self, Errno};
use crate::link::{Connection, Failure, Fid};
use crate::options::Cache;
use crate::owners::Kind;
use crate::session::{Caller, Session};
use crate::{attr, lock};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use wire::fuse::{InitReply, MINOR_MIN, ROOT, Request, VERSION, init};

/// Capabilities that are always requested. The server clears set-user-id bits when a user writes,
/// so the kernel need not look for them before each write (`HANDLE_KILLPRIV_V2`). Without
/// `ATOMIC_O_TRUNC` the kernel truncates a file that it has opened by a request of its own: with
/// it, an open that the kernel then refuses, because the file is a running program, has already
/// truncated it.
const CAPABILITIES: u64 = init::ASYNC_READ
    | init::POSIX_LOCKS
    | init::FLOCK_LOCKS
    | init::BIG_WRITES
    | init::AUTO_INVAL_DATA
    | init::DO_READDIRPLUS
    | init::READDIRPLUS_AUTO
    | init::ASYNC_DIO
    | init::PARALLEL_DIROPS
    | init::HANDLE_KILLPRIV
    | init::HANDLE_KILLPRIV_V2
    | init::MAX_PAGES
    | init::INIT_EXT
    | init::DIRECT_IO_ALLOW_MMAP;

/// Maximum read-ahead of the kernel, in bytes.
const READ_AHEAD: u32 = 4 << 20;

/// Minor number of the protocol from which on names can be expired.
const EXPIRE_MINOR: u32 = 38;

/// Maximum number of requests in the background: read-ahead and write-back.
const BACKGROUND_MAX: u16 = 64;

impl Session {
    /// Agrees on version and capabilities.
    pub(crate) fn init(
        &self,
        (major, minor): (u32, u32),
        max_readahead: u32,
        flags: u64,
    ) -> Result<Answer, Errno> {
        if major != VERSION.0 || minor < MINOR_MIN {
            self.refuse_version((major, minor));
            return Err(errno::EPROTO);
        }
        self.expires_names.store(minor >= EXPIRE_MINOR, Ordering::SeqCst);
        let write_back = match self.settings.cache {
            Cache::Write => init::WRITEBACK_CACHE,
            Cache::None | Cache::Open | Cache::Keep => 0,
        };
        let reply = InitReply {
            minor: minor.min(VERSION.1),
            max_readahead: max_readahead.max(READ_AHEAD),
            flags: flags & (CAPABILITIES | write_back),
            max_background: BACKGROUND_MAX,
            max_write: self.io_max,
            max_pages: u16::try_from(self.io_max / 4096).unwrap_or(u16::MAX),
        };
        Ok(Answer::bytes(reply.encode()))
    }

    /// Performs a request.
    #[allow(clippy::wildcard_enum_match_arm, reason = "the others are in the next table")]
    pub(crate) fn perform(
        &self,
        caller: &Caller<'_>,
        node: u64,
        request: &Request<'_>,
    ) -> Result<Answer, Failure> {
        match request {
            Request::Lookup { name } => self.lookup(caller, node, name),
            Request::GetAttr { handle } => self.getattr(caller, node, *handle),
            Request::SetAttr(set) => self.setattr(caller, node, set),
            Request::ReadLink => self.readlink(caller, node),
            Request::Symlink { name, target } => self.symlink(caller, node, name, target),
            Request::MkNod { name, mode, rdev } => {
                self.mknod(caller, node, name, (*mode, attr::device_parts(*rdev)))
            }
            Request::MkDir { name, mode } => self.mkdir(caller, node, name, *mode),
            Request::Unlink { name } => self.remove(caller, node, name, false),
            Request::RmDir { name } => self.remove(caller, node, name, true),
            Request::Rename { name, to_dir, to_name, flags } => {
                self.rename(caller, (node, name), (*to_dir, to_name), *flags)
            }
            Request::Link { node: file, name } => self.link(caller, *file, (node, name)),
            Request::Open { flags } => self.open_file(caller, node, *flags),
            Request::Create { name, flags, mode } => {
                self.create(caller, node, (name, *flags, *mode))
            }
            Request::StatFs => self.statfs(caller, node),
            Request::SetXattr { name, value, flags } => {
                self.set_xattr(caller, node, (name, value, *flags))
            }
            Request::GetXattr { name, size } => self.get_xattr(caller, node, (name, *size)),
            Request::ListXattr { size } => self.get_xattr(caller, node, (b"", *size)),
            Request::RemoveXattr { name } => self.remove_xattr(caller, node, name),
            Request::OpenDir { flags } => self.open_dir(caller, node, *flags),
            Request::Access { mask } => self.access(caller, node, *mask),
            other => self.perform_open(caller, other),
        }
    }

    /// Performs a request about an open file.
    #[allow(clippy::wildcard_enum_match_arm, reason = "new requests are optional")]
    fn perform_open(&self, caller: &Caller<'_>, request: &Request<'_>) -> Result<Answer, Failure> {
        let open = |handle: &u64| self.handles.get(*handle);
        match request {
            Request::Read { handle, offset, size } => {
                self.read(caller, &*open(handle)?, (*offset, *size))
            }
            Request::Write { handle, offset, data, .. } => {
                self.write(caller, &*open(handle)?, *offset, data)
            }
            Request::ReadDir { handle, offset, size } => {
                self.read_dir(caller, &*open(handle)?, (*offset, *size), false)
            }
            Request::ReadDirPlus { handle, offset, size } => {
                self.read_dir(caller, &*open(handle)?, (*offset, *size), true)
            }
            Request::Flush { handle, owner } => {
                self.unlock_all(caller, &open(handle)?, (Kind::Posix, *owner))?;
                Ok(Answer::empty())
            }
            Request::Release { handle, flock_owner } => {
                let handle = self.handles.remove(*handle).ok_or(errno::EBADF)?;
                if let Some(owner) = flock_owner {
                    self.unlock_all(caller, &handle, (Kind::Flock, *owner))?;
                }
                Ok(Answer::empty())
            }
            Request::ReleaseDir { handle } => {
                self.handles.remove(*handle);
                Ok(Answer::empty())
            }
            Request::FSync { handle, data_only } | Request::FSyncDir { handle, data_only } => {
                self.fsync(caller, &*open(handle)?, *data_only)
            }
            Request::GetLock { handle, owner, lock } => {
                self.get_lock(caller, &*open(handle)?, *owner, *lock)
            }
            Request::SetLock { handle, owner, lock, flock, wait } => {
                let kind = if *flock { Kind::Flock } else { Kind::Posix };
                self.set_lock(caller, &open(handle)?, (kind, *owner, *wait), *lock)
            }
            Request::Fallocate { .. } => Err(Failure::Errno(errno::EOPNOTSUPP)),
            Request::Destroy => Ok(Answer::empty()),
            _other => Err(Failure::Errno(errno::ENOSYS)),
        }
    }

    /// Returns the present connection. On a new one fids of earlier ones are dropped, and what the
    /// kernel knows of names and attributes may have been lost with changes that were not durable.
    pub(crate) fn connection(&self, caller: &Caller<'_>) -> Result<Arc<Connection>, Failure> {
        let connection = self.link.connection(caller.interrupt)?;
        if self.current.fetch_max(connection.number, Ordering::SeqCst) < connection.number {
            let mut nodes = lock(&self.nodes);
            nodes.connect(connection.number);
            if self.settings.cache == Cache::Write {
                let open = self.handles.nodes();
                nodes.renew(|node| open.contains(&node));
            }
            drop(nodes);
            self.outdated.push(Outdated::Names);
        }
        Ok(connection)
    }

    /// Returns the caller's fid of a node; walks to it if necessary.
    pub(crate) fn fid(&self, caller: &Caller<'_>, node: u64) -> Result<Arc<Fid>, Failure> {
        let connection = self.connection(caller)?;
        let is_present = |fid: &Arc<Fid>| fid.connection.number == connection.number;
        if let Some(fid) = lock(&self.nodes).fid(node, caller.user).filter(is_present) {
            return Ok(fid);
        }
        if node == ROOT {
            return self.root(caller, &connection);
        }
        let route = lock(&self.nodes).route(node, caller.user);
        let route = match route {
            Ok(route) => route,
            // A removed file that is open.
            Err(errno) => return self.fid_of_open(caller, node).ok_or(Failure::Errno(errno)),
        };
        let from = match route.from {
            Some(fid) if is_present(&fid) => fid,
            Some(fid) => {
                // Kept by a request that began before the connection was lost.
                lock(&self.nodes).drop_fids();
                return Err(Failure::Lost(fid.connection.number));
            }
            None => self.root(caller, &connection)?,
        };
        let walked = connection.walk(caller.interrupt, from.number, &route.names);
        let (fid, qid) = match walked {
            Ok(walked) => walked,
            // Another client has removed or renamed it.
            Err(Failure::Errno(errno::ENOENT)) => {
                return self.fid_of_open(caller, node).ok_or(Failure::Errno(errno::ESTALE));
            }
            Err(failure) => return Err(failure),
        };
        if qid.map(crate::nodes::key) != route.key {
            return self.fid_of_open(caller, node).ok_or(Failure::Errno(errno::ESTALE));
        }
        let fid = Arc::new(fid);
        lock(&self.nodes).keep(node, caller.user, fid.clone());
        Ok(fid)
    }

    /// Returns the root as the caller's user sees it.
    fn root(&self, caller: &Caller<'_>, connection: &Arc<Connection>) -> Result<Arc<Fid>, Failure> {
        match caller.user {
            user if user == self.settings.user => Ok(connection.own_root()),
            user => connection.root_of(caller.interrupt, user),
        }
    }

    /// Returns the open fid of a file that no name leads to.
    fn fid_of_open(&self, caller: &Caller<'_>, node: u64) -> Option<Arc<Fid>> {
        let present = self.current.load(Ordering::SeqCst);
        self.handles.fid_of(node, caller.user, present)
    }

    /// Returns a new fid of a node.
    pub(crate) fn clone_fid(
        &self,
        caller: &Caller<'_>,
        node: u64,
    ) -> Result<(Arc<Fid>, Fid), Failure> {
        let fid = self.fid(caller, node)?;
        let (copy, _) = fid.connection.walk(caller.interrupt, fid.number, &[])?;
        Ok((fid, copy))
    }
}
