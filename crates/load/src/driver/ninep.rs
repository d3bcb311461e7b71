//! Files of a 9P server: many requests on each of many connections.

mod greeting;

use super::parts::Wholes;
use super::server::Server;
use super::socket::{Session, Sockets};
use super::{Driver, Target, Troubles};
use crate::{Io, Kind, Outcome};
use rustix::fd::OwnedFd;
use session::{Answer, CALLS_MAX, Dialect, Session as Calls, message_size};
use std::io;
use std::sync::Arc;
use wire::ninep::{Data, Rmessage, Tmessage};

use greeting::AttachedConnection;

/// Maximum outstanding requests on one connection.
const UNDER_WAY_MAX: usize = 1024;

/// Linux errno values: for errors reported only as text (9P2000), and for operations without a
/// message.
const EIO: u16 = 5;
const ENOTSUP: u16 = 95;
const EFBIG: u16 = 27;

/// Maximum messages of one I/O. With those of other outstanding I/Os, they are as many as a session
/// can have outstanding.
const PARTS_MAX: u32 = (CALLS_MAX - UNDER_WAY_MAX + 1) as u32;

/// Maximum overhead of a message beside its data, in bytes.
const OVERHEAD: u32 = 24;

/// Files of a server as a target.
#[derive(Clone, Debug)]
pub struct NineP {
    /// Address of the server.
    pub server: Server,
    /// Tree to attach to; empty for the server's default.
    pub aname: String,
    /// File path; `{}` stands for the file number.
    pub path: String,
    /// Number of files.
    pub files: u32,
    /// Total connections of all workers.
    pub connections: usize,
    /// Whether files are opened for writing, too.
    pub writes: bool,
    /// Problems with its connections.
    pub troubles: Troubles,
}

impl NineP {
    /// Establishes a connection with all files open.
    fn dial(&self, pattern: &Arc<[u8]>) -> io::Result<(OwnedFd, NinepSession)> {
        let mut greeted = AttachedConnection::greet(&self.server, &self.aname)?;
        greeted.open(&self.path, self.files, self.writes)?;
        let (stream, calls) = greeted.into_parts();
        let session = NinepSession::new(calls, self.files, pattern.clone());
        Ok((stream.into_socket()?, session))
    }
}

impl Target for NineP {
    fn driver(&self, worker: usize, workers: usize) -> io::Result<Box<dyn Driver>> {
        let own = self.clone();
        // Without writes, no pattern is needed.
        let pattern = super::pattern(if self.writes { greeting::SIZE as usize } else { 0 });
        let dial = Box::new(move || own.dial(&pattern));
        let place = (worker, workers);
        Ok(Box::new(Sockets::connect(self.connections, place, dial, &self.troubles)?))
    }

    fn name(&self) -> String {
        format!("9p {}{}", self.server, self.path)
    }

    fn troubles(&self) -> Vec<String> {
        self.troubles.lines()
    }
}

/// Returns the fid of a file.
fn fid_of(file: u32) -> u32 {
    file + 1
}

/// Session after all files are open.
pub(super) struct NinepSession {
    /// The messages, with the index of their whole I/O.
    calls: Calls<usize>,
    files: u32,
    wholes: Wholes,
    pattern: Arc<[u8]>,
}

impl NinepSession {
    fn new(calls: Calls<usize>, files: u32, pattern: Arc<[u8]>) -> NinepSession {
        NinepSession { calls, files: files.max(1), wholes: Wholes::new(), pattern }
    }

    fn send(&mut self, whole: usize, message: &Tmessage<'_>, out: &mut Vec<u8>) {
        self.wholes.add_part(whole);
        self.calls.send(message, whole, out).expect("there are fewer parts than calls");
    }

    /// Processes a reply to a part. Returns the I/O that it completes.
    #[allow(clippy::wildcard_enum_match_arm, reason = "all others carry nothing that is counted")]
    fn answer(&mut self, place: usize, reply: &Rmessage<'_>) -> Option<(u64, Outcome)> {
        let result = match reply {
            Rmessage::Read { data } => Ok(data.0.len() as u32),
            Rmessage::Write { count } => Ok(*count),
            Rmessage::Lerror { ecode } => Err(*ecode as u16),
            Rmessage::Error { .. } => Err(EIO),
            // The reply to an fsync or to its substitute in 9P2000.
            _other => Ok(0),
        };
        self.wholes.end_part(place, result)
    }
}

impl Session for NinepSession {
    fn has_room(&self) -> bool {
        self.calls.outstanding() < UNDER_WAY_MAX
    }

    fn ask(&mut self, name: u64, io: &Io, out: &mut Vec<u8>) {
        let whole = self.wholes.begin(name);
        let fid = fid_of(io.file % self.files);
        let data_max = self.calls.msize() - OVERHEAD;
        if io.len.div_ceil(data_max) > PARTS_MAX {
            self.wholes.fail(whole, EFBIG);
            return self.send(whole, &Tmessage::Read { fid, offset: 0, count: 0 }, out);
        }
        match io.kind {
            Kind::Read | Kind::Write | Kind::Create => {
                let mut done = 0;
                while done < io.len || done == 0 {
                    let count = (io.len - done).min(data_max);
                    let offset = io.offset + u64::from(done);
                    if io.kind == Kind::Read {
                        self.send(whole, &Tmessage::Read { fid, offset, count }, out);
                    } else {
                        let pattern = self.pattern.clone();
                        let data = Data(&pattern[..count as usize]);
                        self.send(whole, &Tmessage::Write { fid, offset, data }, out);
                    }
                    done += count.max(1);
                }
            }
            Kind::Sync if self.calls.dialect() == Dialect::Linux => {
                self.send(whole, &Tmessage::Fsync { fid, data_only: Some(1) }, out);
            }
            Kind::Sync | Kind::Trim | Kind::Remove => {
                // 9P has no such message; an empty read is sent, and the I/O fails.
                self.wholes.fail(whole, ENOTSUP);
                self.send(whole, &Tmessage::Read { fid, offset: 0, count: 0 }, out);
            }
        }
    }

    fn handle(
        &mut self,
        bytes: &[u8],
        ended: &mut Vec<(u64, Outcome)>,
    ) -> Result<usize, &'static str> {
        let size_max = self.calls.size_max();
        let mut arrived = 0;
        while let Some(size) =
            message_size(&bytes[arrived..], size_max).map_err(|violation| violation.text())?
            && let Some(message) = bytes.get(arrived..arrived + size)
        {
            let received = self.calls.receive(message).map_err(|violation| violation.text())?;
            let (Answer::Reply(place), reply) = received else {
                unreachable!("nothing is flushed or clunked")
            };
            ended.extend(self.answer(place, &reply));
            arrived += size;
        }
        Ok(arrived)
    }

    fn give_up(&mut self, ended: &mut Vec<(u64, Outcome)>, outcome: Outcome) {
        self.calls.close();
        self.wholes.give_up(ended, outcome);
    }
}

#[cfg(test)]
mod tests;
