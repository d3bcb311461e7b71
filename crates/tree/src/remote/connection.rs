//! The socket of a remote tree: operations in flight on it, and received bytes.

use base::Buf;
use base::op::{ReceiveBuf, Socket};
use std::mem;
use wire::ninep::frame_size;

/// Size from which on a message is received into a buffer of its own, bytes.
const RECEIVE_INTO_MIN: usize = 32 << 10;

/// One socket at a time.
#[derive(Debug, Default)]
pub(super) struct Connection {
    socket: Option<Socket>,
    is_receiving: bool,
    is_sending: bool,
    /// Received bytes of an incomplete message.
    input: Buf,
    /// Protocol error found while handling a message.
    blame: Option<&'static str>,
}

impl Connection {
    /// Uses a socket, perhaps the present one.
    pub(super) fn open(&mut self, socket: Socket) {
        let other = self.socket.is_some_and(|known| known != socket);
        assert!(!other, "one connection at a time");
        self.socket = Some(socket);
    }

    /// Gives up a socket; one that was connected after a cancellation was never used.
    pub(super) fn release(&mut self, socket: Socket) {
        let is_it = self.socket.is_none_or(|it| it == socket);
        assert!(is_it && self.is_idle(), "no operation is in flight on it");
        self.socket = None;
    }

    /// Forgets what was received, after the loss of the connection.
    pub(super) fn lose(&mut self) {
        (self.input, self.blame) = (Buf::default(), None);
    }

    /// Returns whether no operation is in flight.
    pub(super) fn is_idle(&self) -> bool {
        !self.is_receiving && !self.is_sending
    }

    /// Returns whether a send is in flight.
    pub(super) fn is_sending(&self) -> bool {
        self.is_sending
    }

    /// Begins a send, unless one is in flight.
    pub(super) fn begin_send(&mut self) -> Option<Socket> {
        let socket = self.socket.filter(|_| !self.is_sending)?;
        self.is_sending = true;
        Some(socket)
    }

    pub(super) fn end_send(&mut self) {
        assert!(self.is_sending, "a send ends once");
        self.is_sending = false;
    }

    /// Begins a receive, unless one is in flight: of a large message directly behind its beginning.
    pub(super) fn begin_receive(&mut self) -> Option<(Socket, ReceiveBuf)> {
        let socket = self.socket.filter(|_| !self.is_receiving)?;
        self.is_receiving = true;
        let wanted = frame_size(&self.input).filter(|size| *size >= RECEIVE_INTO_MIN);
        let into = wanted.map_or(ReceiveBuf::Default, |size| {
            let mut buf = mem::take(&mut self.input);
            buf.reserve(size - buf.len());
            ReceiveBuf::Append(buf)
        });
        Some((socket, into))
    }

    pub(super) fn end_receive(&mut self) {
        assert!(self.is_receiving, "a receive ends once");
        self.is_receiving = false;
    }

    /// Returns all received bytes.
    pub(super) fn take_input(&mut self, received: Buf) -> Buf {
        let mut input = mem::take(&mut self.input);
        if input.is_empty() {
            return received;
        }
        input.extend(&received);
        input
    }

    /// Keeps the beginning of a message. A small one is copied, and the received buffer freed.
    pub(super) fn keep_input(&mut self, input: Buf) {
        let large = frame_size(&input).is_some_and(|size| size >= RECEIVE_INTO_MIN);
        self.input = match input.is_empty() {
            true => Buf::default(),
            false if large => input,
            false => Buf::from(&*input),
        };
    }

    /// Records a protocol error; the first one counts.
    pub(super) fn blame(&mut self, why: &'static str) {
        self.blame.get_or_insert(why);
    }

    pub(super) fn is_blamed(&self) -> bool {
        self.blame.is_some()
    }

    pub(super) fn take_blame(&mut self) -> Option<&'static str> {
        self.blame.take()
    }

    /// Asserts that there is a socket if the link has one.
    pub(super) fn check(&self, is_connected: bool) {
        assert_eq!(self.socket.is_some(), is_connected, "a connection has a socket");
        assert!(is_connected || self.is_idle(), "no operation is in flight without a socket");
        assert!(self.blame.is_none(), "a protocol error ends the connection");
    }
}
