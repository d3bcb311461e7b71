//! Registration of NFS and MOUNT with this host's portmapper (RFC 1833), so that clients need no
//! port numbers.
//!
//! The portmapper believes local changes from ports that only root may use. The server gives root's
//! privileges up before it listens, and leaves the portmapper at its end, so the socket is opened
//! first and kept. It is a UDP socket: the portmapper closes idle connections.

use crate::listening::patiently;
use crate::log;
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::time::{Duration, Instant};
use wire::nfs;
use wire::portmap::{self, DUMP, Mapping, SET, TCP, UDP, UNSET};
use wire::rpc::{self, Call, Credential, Outcome};
use wire::xdr::{Reader, Xdr};

/// Ports that only root may use.
const RESERVED: std::ops::Range<u16> = 512..1024;

/// Timeout of a reply, after which the call is sent again: each may be repeated.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Maximum time of all calls at the start of the server, and at its end.
const TIME_MAX: Duration = Duration::from_secs(6);
const TIME_MAX_AT_END: Duration = Duration::from_secs(1);

/// Abstract name of the socket of a server that registers itself or leaves: one at a time, because
/// the portmapper has no procedure that replaces a registration.
const ALONE: &[u8] = b"upcall-portmapper";

/// Maximum size of a reply, bytes.
const REPLY_MAX: usize = 64 << 10;

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
        let _alone = alone();
        registration.portmapper.begin(TIME_MAX);
        for (program, version, name) in PROGRAMS {
            // A registration of which no reply came is removed again, too.
            registration.count += 1;
            let other = registration.portmapper.register(program, version, port, own);
            if let Some(other) = other.map_err(|error| explain(&error))? {
                return Err(format!(
                    "cannot register {name} with the portmapper: port {other} is registered, and \
                     a program listens there; stop it, remove the registration ('rpcinfo -d \
                     {program} {version}'), or omit --nfs-portmapper"
                ));
            }
        }
        Ok(registration)
    }

    fn remove(&mut self) -> io::Result<()> {
        let _alone = alone();
        self.portmapper.begin(TIME_MAX_AT_END);
        for (program, version, _) in &PROGRAMS[..self.count] {
            // Another server may have replaced it.
            if self.portmapper.port(*program, *version, TCP)? == Some(self.port) {
                self.portmapper.unset(*program, *version)?;
            }
        }
        Ok(())
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if let Err(error) = self.remove() {
            let next = "remove it with 'rpcinfo -d 100003 3' and 'rpcinfo -d 100005 3'";
            log::warn("nfs", format!("cannot remove NFS from the portmapper: {error}; {next}"));
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
    /// End of the time for calls.
    until: Instant,
}

impl Portmapper {
    /// Opens the socket; only root may.
    ///
    /// # Errors
    /// For people.
    #[allow(clippy::disallowed_methods, reason = "before and after it serves")]
    pub(crate) fn open() -> Result<Portmapper, String> {
        let socket = reserved()?;
        let connected = socket.connect((Ipv4Addr::LOCALHOST, portmap::PORT));
        connected.map_err(|error| explain(&error))?;
        Ok(Portmapper { socket, xid: std::process::id(), until: Instant::now() })
    }

    /// Begins calls, which have this time together.
    #[allow(clippy::disallowed_methods, reason = "before and after it serves")]
    fn begin(&mut self, time: Duration) {
        self.until = Instant::now() + time;
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
        for _ in 0..2 {
            if self.set(program, version, TCP, port)? {
                return Ok(None);
            }
            match self.port(program, version, TCP)? {
                // Perhaps by this call, of which the first reply was lost.
                Some(present) if present == port => return Ok(None),
                Some(present) if !own.contains(&present) && is_served(present)? => {
                    return Ok(Some(present));
                }
                Some(_) => self.unset(program, version)?,
                None => {}
            }
        }
        Err(io::Error::other("the portmapper refuses the registration"))
    }

    /// Returns the port of a program, if it is registered.
    fn port(&mut self, program: u32, version: u32, protocol: u32) -> io::Result<Option<u16>> {
        let all: Vec<Mapping> = self.call(DUMP, None)?;
        let wanted = (program, version, protocol);
        let found = all.iter().find(|it| (it.program, it.version, it.protocol) == wanted);
        Ok(found.and_then(|it| u16::try_from(it.port).ok()))
    }

    /// Registers a program; returns whether it was not registered yet.
    fn set(&mut self, program: u32, version: u32, protocol: u32, port: u16) -> io::Result<bool> {
        self.call(SET, Some(&Mapping { program, version, protocol, port: port.into() }))
    }

    /// Removes a program over TCP. The procedure removes all protocols, so another server's port of
    /// UDP is registered again.
    fn unset(&mut self, program: u32, version: u32) -> io::Result<()> {
        let udp = self.port(program, version, UDP)?;
        self.call::<bool>(UNSET, Some(&Mapping { program, version, protocol: TCP, port: 0 }))?;
        if let Some(udp) = udp {
            self.set(program, version, UDP, udp)?;
        }
        Ok(())
    }

    /// Sends a call until it has a reply.
    fn call<T: for<'a> Xdr<'a>>(
        &mut self,
        procedure: u32,
        mapping: Option<&Mapping>,
    ) -> io::Result<T> {
        self.xid = self.xid.wrapping_add(1);
        let (program, version, credential) = (portmap::PROGRAM, portmap::VERSION, Credential::None);
        let mut out = Vec::new();
        Call { xid: self.xid, program, version, procedure, credential }.put(&mut out);
        if let Some(mapping) = mapping {
            mapping.put(&mut out);
        }
        loop {
            self.socket.send(&out)?;
            if let Some(record) = self.receive()? {
                return results(&record);
            }
            if left(self.until).is_zero() {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "no reply in time"));
            }
        }
    }

    /// Returns the reply to the last call; `None` if there is none in time.
    #[allow(clippy::disallowed_methods, reason = "before and after it serves")]
    fn receive(&self) -> io::Result<Option<Vec<u8>>> {
        let mut record = vec![0; REPLY_MAX];
        let until = self.until.min(Instant::now() + TIMEOUT);
        loop {
            let time = left(until);
            if time.is_zero() {
                return Ok(None);
            }
            self.socket.set_read_timeout(Some(time))?;
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

/// Returns the remaining time.
#[allow(clippy::disallowed_methods, reason = "before and after it serves")]
fn left(until: Instant) -> Duration {
    until.saturating_duration_since(Instant::now())
}

/// Waits until no other server registers itself; it may when the result is dropped. Every user may
/// take the name, so this waits for a second at most, and goes on.
fn alone() -> Option<UnixListener> {
    let name = SocketAddr::from_abstract_name(ALONE).ok()?;
    patiently(|| UnixListener::bind_addr(&name)).ok()
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

/// Returns whether a program of this host listens on a TCP port, at any address: not one that was
/// killed just now.
fn is_served(port: u16) -> io::Result<bool> {
    let free = patiently(|| match has_listener(port)? {
        true => Err(io::ErrorKind::AddrInUse.into()),
        false => Ok(()),
    });
    match free {
        Err(error) if error.kind() != io::ErrorKind::AddrInUse => Err(error),
        free => Ok(free.is_err()),
    }
}

/// Returns whether a TCP port has a listener. Binding it would tell less: ports below 1024 are for
/// root, and a client may have any other one.
fn has_listener(port: u16) -> io::Result<bool> {
    let mut tables = ["/proc/net/tcp", "/proc/net/tcp6"].into_iter().map(|table| {
        let text = match std::fs::read_to_string(table) {
            // IPv6 is disabled.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            text => text?,
        };
        Ok(text.lines().any(|line| listener(line) == Some(port)))
    });
    tables.try_fold(false, |is_found, table: io::Result<bool>| Ok(is_found || table?))
}

/// Returns the port of a line of `/proc/net/tcp`, if it is a listener's (proc_pid_net(5)).
fn listener(line: &str) -> Option<u16> {
    const LISTEN: &str = "0A";
    let mut fields = line.split_ascii_whitespace().skip(1);
    let (local, _remote, state) = (fields.next()?, fields.next()?, fields.next()?);
    let (_address, port) = local.rsplit_once(':')?;
    (state == LISTEN).then(|| u16::from_str_radix(port, 16).ok()).flatten()
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn listeners_are_found_and_connections_are_not() {
        const LINE: &str = "0: 0100007F:0016 00000000:0000 0A 00000000:00000000 00:00000000 0 0";
        assert_eq!(listener(LINE), Some(22));
        assert_eq!(listener(&LINE.replace("0A", "01")), None);
        assert_eq!(listener("  sl  local_address rem_address   st tx_queue rx_queue tr"), None);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(has_listener(port).unwrap());
    }
}
