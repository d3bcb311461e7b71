//! Byte-range locks and flock, at the server.
//!
//! The kernel's lock owners are numbers of this host; at the server an owner is a client's name and
//! a process. Locks of flock cover the whole file, as those of the kernel's 9P client do. So the
//! two kinds exclude each other, which they do not in a local file system.

use crate::answer::Answer;
use crate::errno;
use crate::handles::Handle;
use crate::link::{Connection, Failure, only};
use crate::lock;
use crate::options::Cache;
use crate::owners::Kind;
use crate::session::{Caller, Session};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use wire::fuse::{FileLock, lock_reply};
use wire::ninep::{Rmessage, Tmessage};

/// Pause between attempts at a server that does not wait itself, as diod.
const RETRY: Duration = Duration::from_millis(100);

const F_RDLCK: u32 = 0;
const F_WRLCK: u32 = 1;
const F_UNLCK: u32 = 2;

const BLOCK: u32 = 1;
const SUCCESS: u8 = 0;
const BLOCKED: u8 = 1;
const GRACE_PERIOD: u8 = 3;

/// Returns start and length at the server; a length of 0 reaches to the end.
fn range(it: &FileLock) -> (u64, u64) {
    let length = if it.end >= i64::MAX as u64 { 0 } else { (it.end + 1).saturating_sub(it.start) };
    (it.start, length)
}

impl Session {
    fn client_id(&self, kind: Kind, owner: u64) -> String {
        let kind = match kind {
            Kind::Posix => "p",
            Kind::Flock => "f",
        };
        format!("{}:{kind}{owner:x}", self.settings.host)
    }

    /// Looks for a conflicting lock.
    pub(crate) fn get_lock(
        &self,
        caller: &Caller<'_>,
        handle: &Handle,
        owner: u64,
        wanted: FileLock,
    ) -> Result<Answer, Failure> {
        let fid = self.open_fid(caller, handle)?;
        let connection = &fid.connection;
        self.linux_only(connection)?;
        let process = self.owners.process(handle.node, Kind::Posix, owner, wanted.pid);
        let (start, length) = range(&wanted);
        let client = self.client_id(Kind::Posix, owner);
        let message = Tmessage::Getlock {
            fid: fid.number,
            kind: wanted.kind as u8,
            start,
            length,
            proc_id: process,
            client_id: client.as_bytes(),
        };
        let found = connection.call(caller.interrupt, &message, |reply| {
            let Rmessage::Getlock { kind, start, length, proc_id, .. } = reply else { return None };
            let end = if length == 0 { i64::MAX as u64 } else { start.checked_add(length - 1)? };
            Some(FileLock { start, end, kind: kind.into(), pid: proc_id })
        })?;
        Ok(Answer::bytes(lock_reply(&found)))
    }

    /// Sets or removes a lock.
    pub(crate) fn set_lock(
        &self,
        caller: &Caller<'_>,
        handle: &Arc<Handle>,
        (kind, owner, wait): (Kind, u64, bool),
        wanted: FileLock,
    ) -> Result<Answer, Failure> {
        let pid = if wanted.pid == 0 { caller.pid } else { wanted.pid };
        let process = self.owners.process(handle.node, kind, owner, pid);
        loop {
            let fid = self.open_fid(caller, handle)?;
            self.linux_only(&fid.connection)?;
            let status = self.lock_once(
                caller,
                fid.number,
                &fid.connection,
                &wanted,
                (self.client_id(kind, owner), process, wait),
            )?;
            match status {
                SUCCESS => {
                    if wanted.kind != F_UNLCK {
                        handle.locked.store(true, Ordering::SeqCst);
                        self.outdate(handle);
                        // What the last holder has written must be seen. Other threads serve the
                        // reads and writes that the kernel waits for meanwhile.
                        self.invalidate(handle.node, self.settings.cache != Cache::None);
                    }
                    return Ok(Answer::empty());
                }
                BLOCKED | GRACE_PERIOD if wait => self.pause(caller)?,
                BLOCKED => return Err(Failure::Errno(errno::EAGAIN)),
                _error => return Err(Failure::Errno(errno::ENOLCK)),
            }
        }
    }

    fn lock_once(
        &self,
        caller: &Caller<'_>,
        fid: u32,
        connection: &Connection,
        wanted: &FileLock,
        (client, proc_id, wait): (String, u32, bool),
    ) -> Result<u8, Failure> {
        let kind = match wanted.kind {
            F_RDLCK | F_WRLCK | F_UNLCK => wanted.kind as u8,
            _unknown => return Err(Failure::Errno(errno::EINVAL)),
        };
        let (start, length) = range(wanted);
        let flags = if wait { BLOCK } else { 0 };
        let client_id = client.as_bytes();
        let message = Tmessage::Lock { fid, kind, flags, start, length, proc_id, client_id };
        connection.call(caller.interrupt, &message, only!(Rmessage::Lock { status } => status))
    }

    fn pause(&self, caller: &Caller<'_>) -> Result<(), Failure> {
        if caller.interrupt.is_set() {
            return Err(Failure::Interrupted);
        }
        let (mutex, condition) = &self.owners.pause;
        let waited = condition.wait_timeout(lock(mutex), RETRY);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
        Ok(())
    }

    /// Removes all locks of an owner, who has closed the file.
    pub(crate) fn unlock_all(
        &self,
        caller: &Caller<'_>,
        handle: &Arc<Handle>,
        (kind, owner): (Kind, u64),
    ) -> Result<(), Failure> {
        let Some(process) = self.owners.take(handle.node, kind, owner) else { return Ok(()) };
        if !handle.locked.load(Ordering::SeqCst) && kind == Kind::Flock {
            return Ok(());
        }
        // A lock is taken through an open fid.
        let Some(fid) = lock(&handle.fid).clone() else { return Ok(()) };
        let all = FileLock { start: 0, end: i64::MAX as u64, kind: F_UNLCK, pid: process };
        let client = (self.client_id(kind, owner), process, false);
        match self.lock_once(caller, fid.number, &fid.connection, &all, client) {
            // The locks were lost with their connection.
            Ok(_) | Err(Failure::Lost(_) | Failure::Errno(_)) => Ok(()),
            Err(Failure::Interrupted) => Err(Failure::Interrupted),
        }
    }
}
