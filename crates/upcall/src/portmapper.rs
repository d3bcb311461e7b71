//! Registration of NFS and MOUNT with this host's portmapper (RFC 1833), so that clients need no
//! port numbers.
//!
//! The portmapper believes local changes from ports that only root may use. The server gives root's
//! privileges up before it listens, and leaves the portmapper at its end, so the socket is opened
//! first and kept. It is a UDP socket: the portmapper closes idle connections.

use crate::log;
use std::io;
use std::net::{Ipv4Addr, TcpStream, UdpSocket};
use std::time::Duration;
use wire::nfs;
use wire::portmap::{self, GETPORT, Mapping, SET, TCP, UNSET};
use wire::rpc::{self, Call, Credential, Outcome};
use wire::xdr::{Reader, Xdr};

/// Ports that only root may use.
const RESERVED: std::ops::Range<u16> = 512..1024;

/// Timeout of a reply, after which the call is sent again: each may be repeated.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Number of times that a call is sent.
const SENT_MAX: usize = 3;

/// The same for calls at the end of the server, which wait for nobody.
const SENT_MAX_AT_END: usize = 1;

/// Maximum size of a reply, bytes.
const REPLY_MAX: usize = 1024;

/// Programs of the NFS port, with their versions.
const PROGRAMS: [(u32, u32, &str); 2] =
    [(nfs::PROGRAM, nfs::VERSION, "NFS"), (nfs::mount::PROGRAM, nfs::mount::VERSION, "MOUNT")];

/// Registered programs. Dropping it removes them from the portmapper.
#[derive(Debug)]
pub(crate) struct Registration {
    portmapper: Portmapper,
    port: u16,
    /// Number of programs registered so far.
    count: usize,
}

impl Registration {
    /// Registers the programs at a port.
    ///
    /// # Errors
    /// For people: there is no portmapper, or it refuses.
    pub(crate) fn new(portmapper: Portmapper, port: u16) -> Result<Registration, String> {
        let mut registration = Registration { portmapper, port, count: 0 };
        for (program, version, name) in PROGRAMS {
            let other = registration.portmapper.register(program, version, port);
            if let Some(other) = other.map_err(|error| explain(&error))? {
                return Err(format!(
                    "cannot register {name} with the portmapper: port {other} is registered; stop \
                     the other NFS server, or omit --nfs-portmapper"
                ));
            }
            registration.count += 1;
        }
        Ok(registration)
    }

    fn remove(&mut self) -> io::Result<()> {
        self.portmapper.sent_max = SENT_MAX_AT_END;
        for (program, version, _) in &PROGRAMS[..self.count] {
            // Another server may have replaced it.
            if self.portmapper.port(*program, *version)? == u32::from(self.port) {
                let mapping = mapping(*program, *version, self.port);
                self.portmapper.call::<bool>(UNSET, &mapping)?;
            }
        }
        Ok(())
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if let Err(error) = self.remove() {
            log::warn("nfs", format!("cannot remove NFS from the portmapper: {error}"));
        }
    }
}

fn mapping(program: u32, version: u32, port: u16) -> Mapping {
    Mapping { program, version, protocol: TCP, port: port.into() }
}

/// Explains an error of the portmapper, with the next step.
fn explain(error: &io::Error) -> String {
    let next = if error.kind() == io::ErrorKind::ConnectionRefused {
        "start rpcbind"
    } else if error.kind() == io::ErrorKind::PermissionDenied {
        "start the server as root"
    } else {
        "check rpcbind"
    };
    format!(
        "cannot register NFS with the portmapper at 127.0.0.1:{}: {error}; {next}, or omit \
         --nfs-portmapper",
        portmap::PORT
    )
}

/// A socket to the portmapper, from a port that only root may use.
#[derive(Debug)]
pub(crate) struct Portmapper {
    socket: UdpSocket,
    xid: u32,
    /// Number of times that a call is sent.
    sent_max: usize,
}

impl Portmapper {
    /// Opens the socket; only root may.
    ///
    /// # Errors
    /// For people.
    pub(crate) fn open() -> Result<Portmapper, String> {
        Portmapper::bound().map_err(|error| explain(&error))
    }

    fn bound() -> io::Result<Portmapper> {
        let is_taken = |bound: &io::Result<_>| {
            bound.as_ref().is_err_and(|error: &io::Error| error.kind() == io::ErrorKind::AddrInUse)
        };
        let mut all = RESERVED.rev().map(|port| UdpSocket::bind((Ipv4Addr::LOCALHOST, port)));
        let free = all.find(|bound| !is_taken(bound));
        let socket = free.unwrap_or_else(|| Err(io::ErrorKind::AddrInUse.into()))?;
        socket.connect((Ipv4Addr::LOCALHOST, portmap::PORT))?;
        socket.set_read_timeout(Some(TIMEOUT))?;
        Ok(Portmapper { socket, xid: std::process::id(), sent_max: SENT_MAX })
    }

    /// Registers a program; returns the port of another server that has done so, if any.
    ///
    /// A server that was killed leaves its registration behind: one for this port, or for one where
    /// nobody listens any more, is replaced.
    fn register(&mut self, program: u32, version: u32, port: u16) -> io::Result<Option<u32>> {
        if self.call(SET, &mapping(program, version, port))? {
            return Ok(None);
        }
        let present = self.port(program, version)?;
        if present == u32::from(port) {
            return Ok(None);
        }
        if u16::try_from(present).is_ok_and(is_served) {
            return Ok(Some(present));
        }
        self.call::<bool>(UNSET, &mapping(program, version, port))?;
        let is_done: bool = self.call(SET, &mapping(program, version, port))?;
        Ok((!is_done).then_some(present))
    }

    /// Returns the port of a program; 0 if it is not registered.
    fn port(&mut self, program: u32, version: u32) -> io::Result<u32> {
        self.call(GETPORT, &mapping(program, version, 0))
    }

    /// Sends a call until it has a reply.
    fn call<T: for<'a> Xdr<'a>>(&mut self, procedure: u32, mapping: &Mapping) -> io::Result<T> {
        self.xid = self.xid.wrapping_add(1);
        let (program, version, credential) = (portmap::PROGRAM, portmap::VERSION, Credential::None);
        let mut out = Vec::new();
        Call { xid: self.xid, program, version, procedure, credential }.put(&mut out);
        mapping.put(&mut out);
        for _ in 0..self.sent_max {
            self.socket.send(&out)?;
            if let Some(record) = self.receive()? {
                return results(&record);
            }
        }
        Err(io::Error::new(io::ErrorKind::TimedOut, "no reply"))
    }

    /// Returns the reply to the last call; `None` if there is none in time.
    fn receive(&self) -> io::Result<Option<Vec<u8>>> {
        let mut record = vec![0; REPLY_MAX];
        loop {
            match self.socket.recv(&mut record) {
                Ok(size) if record[..size].starts_with(&self.xid.to_be_bytes()) => {
                    record.truncate(size);
                    return Ok(Some(record));
                }
                // A second reply to an earlier call.
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Returns whether a server of this host listens on a port.
fn is_served(port: u16) -> bool {
    TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok()
}

/// Decodes the results of a successful call.
fn results<T: for<'a> Xdr<'a>>(record: &[u8]) -> io::Result<T> {
    let malformed = |_| io::Error::new(io::ErrorKind::InvalidData, "malformed reply");
    let (_xid, outcome, results) = rpc::decode_reply(record).map_err(malformed)?;
    if outcome != Outcome::Success {
        return Err(io::Error::other("the portmapper refuses the call"));
    }
    Reader::new(results).get().map_err(malformed)
}
