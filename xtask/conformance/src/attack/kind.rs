//! Parameters of an attack, and connections that several attacks use.

use super::Target;
use anyhow::Result;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

/// One kind of attack.
pub(super) struct Kind {
    pub(super) name: &'static str,
    /// Description, behind "100 clients".
    pub(super) does: &'static str,
    /// Whether the server has a volume at `vol`, and another server at `far`.
    pub(super) has_space: bool,
    /// Whether it needs a hanging mount.
    pub(super) mounts: bool,
    /// Threads of the server.
    pub(super) threads: usize,
    /// Memory accounted separately from that of connections, KiB.
    pub(super) memory_kib: u64,
    /// Number of connections, if not one for each attacker.
    pub(super) connections: u64,
    /// One attempt of one attacker; repeated until the attack is over.
    pub(super) attack: fn(&Target, usize) -> Result<()>,
}

pub(super) const PLAIN: Kind = Kind {
    name: "",
    does: "",
    has_space: false,
    mounts: false,
    threads: 1,
    memory_kib: 0,
    connections: 0,
    attack: |_, _| Ok(()),
};

/// Idle connections held by each attacker, and by all attackers.
pub(super) const IDLE_EACH: usize = 95;
pub(super) const IDLE_ALL: u64 = 20_000;

// Types of 9P messages.
pub(super) const TLOPEN: u8 = 12;
pub(super) const TLCREATE: u8 = 14;
pub(super) const TXATTRCREATE: u8 = 32;
pub(super) const TREADDIR: u8 = 40;
pub(super) const TLOCK: u8 = 52;
pub(super) const TVERSION: u8 = 100;
pub(super) const TATTACH: u8 = 104;
pub(super) const TREMOVE: u8 = 122;
pub(super) const TWALK: u8 = 110;
pub(super) const TREAD: u8 = 116;
pub(super) const TWRITE: u8 = 118;
pub(super) const TCLUNK: u8 = 120;

/// A connection that is written to and never read.
pub(super) struct Mute(TcpStream);

impl Mute {
    pub(super) fn connect(port: u16) -> Result<Mute> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nonblocking(true)?;
        Ok(Mute(stream))
    }

    /// Stops reading from a nonblocking connection.
    pub(super) fn of(stream: TcpStream) -> Mute {
        Mute(stream)
    }

    /// Sends as much as the socket accepts now; returns the rest.
    pub(super) fn push<'a>(&mut self, mut bytes: &'a [u8]) -> Result<&'a [u8]> {
        while !bytes.is_empty() {
            match self.0.write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(bytes)
    }

    /// Sends bytes as the server takes them, and keeps the connection until the attack is over.
    pub(super) fn send_and_keep(mut self, target: &Target, bytes: &[u8]) -> Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() && !target.over() {
            rest = self.push(rest)?;
            target.hold(Duration::from_millis(5));
        }
        target.keep(|| self.lives());
        Ok(())
    }

    /// Receives available bytes; returns whether the connection is still open.
    pub(super) fn take(&mut self, printed: &mut Vec<u8>) -> bool {
        match self.0.read_to_end(printed) {
            Ok(_) => false,
            Err(error) => error.kind() == ErrorKind::WouldBlock,
        }
    }

    /// Returns whether the connection is still open.
    pub(super) fn lives(&self) -> bool {
        let mut byte = [0];
        match self.0.peek(&mut byte) {
            Ok(count) => count > 0,
            Err(error) => error.kind() == ErrorKind::WouldBlock,
        }
    }
}

/// Sends a request over HTTP and never reads the response.
pub(super) fn unread(target: &Target, request: &[u8]) -> Result<()> {
    let mut mute = Mute::connect(target.http)?;
    mute.push(request)?;
    target.keep(|| mute.lives());
    Ok(())
}
