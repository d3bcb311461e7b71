//! State of a connection on epoll.
#![allow(unsafe_code)]

use crate::descriptor;
use crate::sending::Sending;
use base::op::{OpId, ReceiveBuf, Socket};
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

/// A connection with its waiting operations.
#[derive(Default)]
pub(super) struct Connection {
    /// Whether there may be data to receive.
    pub(super) readable: bool,
    /// Whether there may be room to send.
    pub(super) writable: bool,
    /// Whether the peer has shut down, or the connection broke: it stays readable.
    pub(super) ended: bool,
    /// The connect that waits for its establishment.
    pub(super) connecting: Option<OpId>,
    pub(super) receiving: Option<Receiving>,
    pub(super) sending: Option<Box<Sending>>,
    /// Whether its send can continue, and waits for its turn.
    pub(super) has_turn: bool,
}

/// A receive that waits for data.
pub(super) struct Receiving {
    pub(super) id: OpId,
    pub(super) into: ReceiveBuf,
}

impl Connection {
    /// Records an edge.
    pub(super) fn note(&mut self, flags: EventFlags) {
        let broken = flags.intersects(EventFlags::HUP | EventFlags::ERR);
        self.ended |= broken || flags.contains(EventFlags::RDHUP);
        self.readable |= self.ended || flags.contains(EventFlags::IN);
        self.writable |= broken || flags.contains(EventFlags::OUT);
    }
}

/// Receives available data.
pub(super) fn receive(socket: Socket, room: &mut [u8]) -> Result<usize, Errno> {
    let fd = descriptor::socket(socket).map_err(|_| Errno::BADF)?;
    loop {
        match rustix::net::recv(fd, &mut *room, RecvFlags::DONTWAIT) {
            Err(Errno::INTR) => {}
            other => return other.map(|(n, _)| n),
        }
    }
}

/// Sends as much as there is room for.
pub(super) fn send(socket: Socket, sending: &mut Sending) -> Result<usize, Errno> {
    let fd = descriptor::socket(socket).map_err(|_| Errno::BADF)?;
    if let Some(bytes) = sending.single() {
        return rustix::net::send(fd, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }
    let raw = rustix::fd::AsRawFd::as_raw_fd(&fd);
    // SAFETY: the message refers to buffers that `sending` owns, and is not used after the call.
    let sent =
        unsafe { libc::sendmsg(raw, sending.message(), libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) };
    usize::try_from(sent)
        .map_err(|_| Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
}
