//! One connection as epoll sees it.
#![allow(unsafe_code)]

use crate::descriptor;
use crate::sending::Sending;
use base::op::{OpId, ReceiveBuf, Socket};
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

/// What is known of a connection, and what waits for it.
#[derive(Default)]
pub(super) struct Connection {
    /// There may be something to receive.
    pub(super) readable: bool,
    /// There may be room to send.
    pub(super) writable: bool,
    /// The peer has finished, or the connection broke: it stays readable.
    pub(super) ended: bool,
    /// Who waits for it to come about.
    pub(super) connecting: Option<OpId>,
    pub(super) receiving: Option<Receiving>,
    pub(super) sending: Option<Box<Sending>>,
    /// Whether its send has got room, and waits for its turn.
    pub(super) has_turn: bool,
}

/// A receive that waits for data.
pub(super) struct Receiving {
    pub(super) id: OpId,
    pub(super) into: ReceiveBuf,
}

impl Connection {
    /// Something has changed.
    pub(super) fn note(&mut self, flags: EventFlags) {
        let broken = flags.intersects(EventFlags::HUP | EventFlags::ERR);
        self.ended |= broken || flags.contains(EventFlags::RDHUP);
        self.readable |= self.ended || flags.contains(EventFlags::IN);
        self.writable |= broken || flags.contains(EventFlags::OUT);
    }
}

/// Receives what is there.
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
