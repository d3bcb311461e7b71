//! Operations in the connection's dialect.

use crate::attr::Attr;
use crate::errno;
use crate::link::{Connection, Failure, Fid, only};
use crate::session::{Caller, Session};
use crate::{linux, plan9};
use client::{Call, Dialect, Interrupt};
use std::time::Duration;
use wire::fuse::{SetAttr, StatFs};
use wire::ninep::{Qid, Rmessage, Tmessage};

/// Interval of requests that find out whether a server still replies.
const PING: Duration = Duration::from_secs(15);

/// Sends a request that changes nothing.
fn ping(connection: &Connection, never: &Interrupt, fid: u32) -> Result<(), Failure> {
    let message = match connection.dialect {
        Dialect::Linux => linux::getattr_message(fid),
        Dialect::Plan9 => Tmessage::Stat { fid },
    };
    connection.request(never, &message, None).map(|_| ())
}

impl Session {
    /// Sends a request from time to time while others wait, so that a server that is alive but has
    /// nothing to say is distinguished from a dead one.
    pub(crate) fn ping(&self) {
        let never = Interrupt::default();
        while self.flights.pause(PING) {
            let Some(connection) = self.link.present().filter(|_| !self.flights.is_empty()) else {
                continue;
            };
            let root = connection.raw.root().0;
            if let Err(Failure::Lost(number)) = ping(&connection, &never, root) {
                self.link.lost(number);
            }
        }
    }

    /// Refuses what 9P2000 does not have.
    pub(crate) fn linux_only(&self, connection: &Connection) -> Result<(), Failure> {
        match connection.dialect {
            Dialect::Linux => Ok(()),
            Dialect::Plan9 => Err(Failure::Errno(errno::EOPNOTSUPP)),
        }
    }

    /// Returns the attributes of a fid's file.
    pub(crate) fn stat(&self, caller: &Caller<'_>, fid: &Fid) -> Result<Attr, Failure> {
        let (connection, interrupt) = (&fid.connection, caller.interrupt);
        match connection.dialect {
            Dialect::Linux => {
                let message = linux::getattr_message(fid.number);
                connection.call(interrupt, &message, linux::attributes)
            }
            Dialect::Plan9 => {
                plan9::getattr(connection, interrupt, fid.number, self.settings.owner)
            }
        }
    }

    /// Changes attributes of a fid's file.
    pub(crate) fn change(
        &self,
        caller: &Caller<'_>,
        fid: &Fid,
        set: &SetAttr,
    ) -> Result<(), Failure> {
        let (connection, interrupt) = (&fid.connection, caller.interrupt);
        match connection.dialect {
            Dialect::Linux => linux::setattr(connection, interrupt, fid.number, set),
            Dialect::Plan9 => {
                let is_dir = self.stat(caller, fid)?.is_dir();
                plan9::setattr(connection, interrupt, fid.number, set, is_dir)
            }
        }
    }

    /// Opens a fid. Also returns the attributes of the file from another fid of it, if there is
    /// one, requested at the same time.
    pub(crate) fn open(
        &self,
        caller: &Caller<'_>,
        (fid, flags): (&Fid, u32),
        other: Option<&Fid>,
    ) -> Result<Option<Attr>, Failure> {
        let connection = &fid.connection;
        let failed = |error| connection.failure(&error);
        let (open, attributes): (Call, Option<Call>) = match connection.dialect {
            Dialect::Linux => {
                let flags = linux::open_flags(flags);
                let open = Tmessage::Lopen { fid: fid.number, flags };
                let other = other.map(|it| linux::getattr_message(it.number));
                let attributes = other.map(|message| connection.raw.post(&message, None));
                let open = connection.raw.post(&open, None).map_err(failed)?;
                (open, attributes.transpose().map_err(failed)?)
            }
            Dialect::Plan9 => {
                let message = Tmessage::Open { fid: fid.number, mode: plan9::open_mode(flags) };
                (connection.raw.post(&message, None).map_err(failed)?, None)
            }
        };
        connection.raw.push().map_err(failed)?;
        open.wait(caller.interrupt).map_err(failed)?;
        match (attributes, other) {
            (Some(call), _) => {
                let reply = call.wait(caller.interrupt).map_err(failed)?;
                reply.read(linux::attributes).map(Some).map_err(failed)
            }
            (None, Some(other)) => self.stat(caller, other).map(Some),
            (None, None) => Ok(None),
        }
    }

    /// Creates and opens a file: the directory's fid becomes that of the file.
    pub(crate) fn create_open(
        &self,
        caller: &Caller<'_>,
        fid: &Fid,
        (name, flags, mode): (&[u8], u32, u32),
    ) -> Result<Qid, Failure> {
        let (connection, interrupt, fid) = (&fid.connection, caller.interrupt, fid.number);
        match connection.dialect {
            Dialect::Linux => {
                linux::create(connection, interrupt, fid, (name, flags, mode, caller.gid))
            }
            Dialect::Plan9 => plan9::create(connection, interrupt, fid, (name, flags, mode, false)),
        }
    }

    /// Creates a directory.
    pub(crate) fn make_dir(
        &self,
        caller: &Caller<'_>,
        dir: &Fid,
        (name, mode): (&[u8], u32),
    ) -> Result<(), Failure> {
        let (connection, interrupt) = (&dir.connection, caller.interrupt);
        match connection.dialect {
            Dialect::Linux => {
                let (mode, gid) = (mode & 0o7777, caller.gid);
                let message = Tmessage::Mkdir { dfid: dir.number, name, mode, gid };
                connection.call(interrupt, &message, only!(Rmessage::Mkdir { .. } => ()))
            }
            Dialect::Plan9 => {
                let (fid, _) = connection.walk(interrupt, dir.number, &[])?;
                plan9::create(connection, interrupt, fid.number, (name, 0, mode, true)).map(|_| ())
            }
        }
    }

    /// Removes a name.
    pub(crate) fn remove_name(
        &self,
        caller: &Caller<'_>,
        dir: &Fid,
        (name, is_dir): (&[u8], bool),
    ) -> Result<(), Failure> {
        let (connection, interrupt) = (&dir.connection, caller.interrupt);
        match connection.dialect {
            Dialect::Linux => linux::remove(dir, interrupt, (name, is_dir)),
            Dialect::Plan9 => {
                let (fid, qid) = connection.walk(interrupt, dir.number, &[name.to_vec()])?;
                match qid.is_some_and(|qid| qid.kind & Qid::DIR != 0) {
                    found if found == is_dir => linux::remove_fid(interrupt, fid),
                    true => Err(Failure::Errno(errno::EISDIR)),
                    false => Err(Failure::Errno(errno::ENOTDIR)),
                }
            }
        }
    }

    /// Renames a file.
    pub(crate) fn rename_name(
        &self,
        caller: &Caller<'_>,
        (from, name): (&Fid, &[u8]),
        (to, to_name): (&Fid, &[u8]),
        is_same_dir: bool,
    ) -> Result<(), Failure> {
        let (connection, interrupt) = (&from.connection, caller.interrupt);
        match connection.dialect {
            Dialect::Linux => linux::rename(interrupt, (from, name), (to, to_name)),
            Dialect::Plan9 if !is_same_dir => Err(Failure::Errno(errno::EXDEV)),
            Dialect::Plan9 => {
                let (fid, _) = connection.walk(interrupt, from.number, &[name.to_vec()])?;
                plan9::rename(connection, interrupt, fid.number, to_name)
            }
        }
    }

    /// Makes an open file durable.
    pub(crate) fn sync(
        &self,
        caller: &Caller<'_>,
        fid: &Fid,
        data_only: bool,
    ) -> Result<(), Failure> {
        let (connection, interrupt, fid) = (&fid.connection, caller.interrupt, fid.number);
        match connection.dialect {
            Dialect::Linux => {
                let message = Tmessage::Fsync { fid, data_only: Some(data_only.into()) };
                connection.call(interrupt, &message, only!(Rmessage::Fsync {} => ()))
            }
            Dialect::Plan9 => plan9::sync(connection, interrupt, fid),
        }
    }

    /// Returns the space of a file system.
    pub(crate) fn space(&self, caller: &Caller<'_>, fid: &Fid) -> Result<StatFs, Failure> {
        match fid.connection.dialect {
            Dialect::Linux => linux::statfs(&fid.connection, caller.interrupt, fid.number),
            // It has no message for it; a size of zero would be a full file system.
            Dialect::Plan9 => Ok(StatFs {
                blocks: 1 << 40,
                bfree: 1 << 40,
                bavail: 1 << 40,
                bsize: 4096,
                namelen: 255,
                ..StatFs::default()
            }),
        }
    }
}
