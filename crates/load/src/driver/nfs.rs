//! Files of an NFS server, version 3: many calls on each of many connections.

mod calls;
mod files;

use super::parts::Wholes;
use super::server::{Server, numbered};
use super::socket::{Session, Sockets};
use super::{Driver, Target, Troubles};
use crate::{Io, Kind, Outcome};
use calls::{CALLS_MAX, Calls, DATA_MAX, Reply, joined, record_size};
use files::Sizes;
use rustix::fd::OwnedFd;
use std::io;
use std::sync::Arc;
use wire::nfs::{Call, Handle, Results, Stable};

pub use files::{NfsFile, NfsFiles};

/// Maximum outstanding I/Os on one connection.
const UNDER_WAY_MAX: usize = 1024;

/// Maximum calls of one I/O. With those of other outstanding I/Os, they are as many as can be in
/// flight.
const PARTS_MAX: u32 = (CALLS_MAX - UNDER_WAY_MAX + 1) as u32;

/// Linux errno values of I/Os that NFS cannot express.
const ENOTSUP: u16 = 95;
const EFBIG: u16 = 27;

/// Files of a server as a target.
#[derive(Clone, Debug)]
pub struct Nfs {
    /// Address of the server.
    pub server: Server,
    /// Port of the MOUNT protocol, if it is not that of NFS.
    pub mount_port: Option<u16>,
    /// Directory to mount; empty for the file's own.
    pub export: String,
    /// File path, below `export`; `{}` stands for the file number.
    pub path: String,
    /// Number of files.
    pub files: u32,
    /// Total connections of all workers.
    pub connections: usize,
    /// Whether files are written, too.
    pub writes: bool,
    /// Problems with its connections.
    pub troubles: Troubles,
}

impl Nfs {
    /// Connects for calls before a run.
    ///
    /// # Errors
    /// If the server is unreachable.
    pub fn connect(&self) -> io::Result<NfsFiles> {
        NfsFiles::connect(self)
    }

    /// Returns the address of the MOUNT protocol.
    fn mount_server(&self) -> Server {
        match (&self.server, self.mount_port) {
            (Server::Tcp(host, _), Some(port)) => Server::Tcp(host.clone(), port),
            (server, _) => server.clone(),
        }
    }

    /// Establishes a connection with the handles of all files.
    fn dial(&self, pattern: &Arc<[u8]>) -> io::Result<(OwnedFd, NfsSession)> {
        let mut connection = self.connect()?;
        let mut handles = Vec::new();
        for file in 0..self.files.max(1) {
            let path = numbered(&self.path, file);
            let missing = || io::Error::other(format!("{path} does not exist on the server"));
            handles.push(connection.lookup(&path)?.ok_or_else(missing)?);
        }
        let sizes = connection.sizes()?;
        let (stream, calls) = connection.into_parts();
        let session = NfsSession::new(calls, handles, sizes, pattern.clone());
        Ok((stream.into_socket()?, session))
    }
}

impl Target for Nfs {
    fn driver(&self, worker: usize, workers: usize) -> io::Result<Box<dyn Driver>> {
        let own = self.clone();
        // Without writes, no pattern is needed.
        let pattern = super::pattern(if self.writes { DATA_MAX as usize } else { 0 });
        let dial = Box::new(move || own.dial(&pattern));
        let place = (worker, workers);
        Ok(Box::new(Sockets::connect(self.connections, place, dial, &self.troubles)?))
    }

    fn name(&self) -> String {
        format!("nfs {}{}", self.server, self.path)
    }

    fn troubles(&self) -> Vec<String> {
        self.troubles.lines()
    }
}

/// Session with the handles of all files.
struct NfsSession {
    /// The calls, with the index of their whole I/O.
    calls: Calls<usize>,
    handles: Vec<Handle>,
    sizes: Sizes,
    wholes: Wholes,
    pattern: Arc<[u8]>,
    /// Reply of several fragments.
    buffer: Vec<u8>,
}

impl NfsSession {
    fn new(
        calls: Calls<usize>,
        handles: Vec<Handle>,
        sizes: Sizes,
        pattern: Arc<[u8]>,
    ) -> NfsSession {
        assert!(!handles.is_empty(), "a target has a file");
        NfsSession { calls, handles, sizes, wholes: Wholes::new(), pattern, buffer: Vec::new() }
    }

    fn send(&mut self, whole: usize, call: &Call<'_>, out: &mut Vec<u8>) {
        self.wholes.add_part(whole);
        self.calls.send(call, whole, out);
    }

    /// Sends a call without effect for an I/O that fails.
    fn fail(&mut self, whole: usize, number: u16, out: &mut Vec<u8>) {
        self.wholes.fail(whole, number);
        self.send(whole, &Call::Null {}, out);
    }

    /// Sends the calls of a transfer, each within the server's limit.
    fn transfer(&mut self, whole: usize, io: &Io, out: &mut Vec<u8>) {
        let file = self.handles[io.file as usize % self.handles.len()];
        let reads = io.kind == Kind::Read;
        let data_max = if reads { self.sizes.read } else { self.sizes.write };
        if io.len.div_ceil(data_max) > PARTS_MAX {
            return self.fail(whole, EFBIG, out);
        }
        let mut done = 0;
        while done < io.len || done == 0 {
            let count = (io.len - done).min(data_max);
            let offset = io.offset + u64::from(done);
            if reads {
                self.send(whole, &Call::Read { file, offset, count }, out);
            } else {
                let (pattern, stable) = (self.pattern.clone(), Stable::Unstable);
                let data = &pattern[..count as usize];
                self.send(whole, &Call::Write { file, offset, count, stable, data }, out);
            }
            done += count.max(1);
        }
    }
}

/// Returns the bytes moved by a call.
#[allow(clippy::wildcard_enum_match_arm, reason = "all others carry nothing that is counted")]
fn moved(reply: Reply<'_>) -> Result<u32, u16> {
    reply.map(|results| match results {
        Results::Read { data, .. } => data.len() as u32,
        Results::Write { count, .. } => count,
        _other => 0,
    })
}

impl Session for NfsSession {
    fn has_room(&self) -> bool {
        self.calls.outstanding() < UNDER_WAY_MAX
    }

    fn ask(&mut self, name: u64, io: &Io, out: &mut Vec<u8>) {
        let whole = self.wholes.begin(name);
        match io.kind {
            Kind::Read | Kind::Write | Kind::Create => self.transfer(whole, io, out),
            Kind::Sync => {
                let file = self.handles[io.file as usize % self.handles.len()];
                self.send(whole, &Call::Commit { file, offset: 0, count: 0 }, out);
            }
            Kind::Trim | Kind::Remove => self.fail(whole, ENOTSUP, out),
        }
    }

    fn handle(
        &mut self,
        bytes: &[u8],
        ended: &mut Vec<(u64, Outcome)>,
    ) -> Result<usize, &'static str> {
        let mut arrived = 0;
        while let Some(size) = record_size(&bytes[arrived..])? {
            let record = joined(&bytes[arrived..arrived + size], &mut self.buffer);
            let (whole, reply) = self.calls.receive(record)?;
            ended.extend(self.wholes.end_part(whole, moved(reply)));
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
