//! Registration of NFS and MOUNT with this host's portmapper (RFC 1833), so that clients need no
//! port numbers.
//!
//! The portmapper believes local changes from ports that only root may use. The server gives root's
//! privileges up before it listens, and leaves the portmapper at its end, so the socket is opened
//! first and kept. It is a UDP socket: the portmapper closes idle connections.

use crate::log;
use crate::serve::patiently;
use std::io;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::time::{Duration, Instant};
use wire::nfs;
use wire::portmap::{self, GETPORT, Mapping, SET, TCP, UDP, UNSET};
use wire::rpc::{self, Call, Credential, Outcome};
use wire::xdr::{Reader, Xdr};

/// Ports that only root may use.
const RESERVED: std::ops::Range<u16> = 512..1024;

/// Timeout of a reply, after which the call is sent again: each may be repeated.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Number of times that a call is sent.
const SENT_MAX: usize = 3;

/// Timeout of a reply at the end of the server. Calls are sent once then.
const TIMEOUT_AT_END: Duration = Duration::from_millis(500);

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
    /// Registers the programs at a port; `own` are all TCP ports of this server.
    ///
    /// # Errors
    /// For people: there is no portmapper, or it refuses.
    pub(crate) fn new(
        portmapper: Portmapper,
        port: u16,
        own: &[u16],
    ) -> Result<Registration, String> {
        let mut registration = Registration { portmapper, port, count: 0 };
        for (program, version, name) in PROGRAMS {
            let other = registration.portmapper.register(program, version, port, own);
            if let Some(other) = other.map_err(|error| explain(&error))? {
                return Err(format!(
                    "cannot register {name} with the portmapper: port {other} is registered, and \
                     a program listens there; stop it, remove the registration ('rpcinfo -d \
                     {program} {version}'), or omit --nfs-portmapper"
                ));
            }
            registration.count += 1;
        }
        Ok(registration)
    }

    fn remove(&mut self) -> io::Result<()> {
        (self.portmapper.sent_max, self.portmapper.timeout) = (1, TIMEOUT_AT_END);
        for (program, version, _) in &PROGRAMS[..self.count] {
            // Another server may have replaced it.
            if self.portmapper.port(*program, *version, TCP)? == u32::from(self.port) {
                self.portmapper.unset(*program, *version)?;
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
    /// Time for the reply to each.
    timeout: Duration,
}

impl Portmapper {
    /// Opens the socket; only root may.
    ///
    /// # Errors
    /// For people.
    pub(crate) fn open() -> Result<Portmapper, String> {
        let socket = reserved()?;
        let connected = socket.connect((Ipv4Addr::LOCALHOST, portmap::PORT));
        connected.map_err(|error| explain(&error))?;
        let (xid, sent_max, timeout) = (std::process::id(), SENT_MAX, TIMEOUT);
        Ok(Portmapper { socket, xid, sent_max, timeout })
    }

    /// Registers a program over TCP; returns the port of another server that has done so, if any.
    ///
    /// A server that was killed leaves its registration behind: one for a port of this server, or
    /// for one where nobody listens any more, is replaced.
    fn register(
        &mut self,
        program: u32,
        version: u32,
        port: u16,
        own: &[u16],
    ) -> io::Result<Option<u16>> {
        if self.set(program, version, TCP, port)? {
            return Ok(None);
        }
        let refused = || io::Error::other("the portmapper refuses the registration");
        let present = self.port(program, version, TCP)?;
        let present = u16::try_from(present).map_err(|_| refused())?;
        if present == port {
            return Ok(None);
        }
        if present != 0 && !own.contains(&present) && is_served(present) {
            return Ok(Some(present));
        }
        self.unset(program, version)?;
        if self.set(program, version, TCP, port)? { Ok(None) } else { Err(refused()) }
    }

    /// Returns the port of a program; 0 if it is not registered.
    fn port(&mut self, program: u32, version: u32, protocol: u32) -> io::Result<u32> {
        self.call(GETPORT, &Mapping { program, version, protocol, port: 0 })
    }

    /// Registers a program; returns whether it was not registered yet.
    fn set(&mut self, program: u32, version: u32, protocol: u32, port: u16) -> io::Result<bool> {
        self.call(SET, &Mapping { program, version, protocol, port: port.into() })
    }

    /// Removes a program over TCP. The procedure removes all protocols, so another server's port of
    /// UDP is registered again.
    fn unset(&mut self, program: u32, version: u32) -> io::Result<()> {
        let udp = self.port(program, version, UDP)?;
        self.call::<bool>(UNSET, &Mapping { program, version, protocol: TCP, port: 0 })?;
        if let Ok(udp @ 1..) = u16::try_from(udp) {
            self.set(program, version, UDP, udp)?;
        }
        Ok(())
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
    #[allow(clippy::disallowed_methods, reason = "before and after it serves")]
    fn receive(&self) -> io::Result<Option<Vec<u8>>> {
        let mut record = vec![0; REPLY_MAX];
        let until = Instant::now() + self.timeout;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            self.socket.set_read_timeout(Some(left))?;
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

/// Returns a UDP socket at a port that only root may use.
fn reserved() -> Result<UdpSocket, String> {
    let is_taken = |bound: &io::Result<_>| {
        bound.as_ref().is_err_and(|error: &io::Error| error.kind() == io::ErrorKind::AddrInUse)
    };
    let mut all = RESERVED.rev().map(|port| UdpSocket::bind((Ipv4Addr::LOCALHOST, port)));
    match all.find(|bound| !is_taken(bound)) {
        Some(bound) => bound.map_err(|error| explain(&error)),
        None => Err(format!(
            "cannot register NFS with the portmapper: all UDP ports from {} to {} are in use",
            RESERVED.start,
            RESERVED.end - 1
        )),
    }
}

/// Returns whether a server of this host listens on a port, at any address of IPv4.
fn is_served(port: u16) -> bool {
    patiently(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))).is_err()
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
