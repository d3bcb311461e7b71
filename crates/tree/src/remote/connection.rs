//! The socket of a remote tree: operations in flight on it, and received bytes.

use base::Buf;
use base::op::ReceiveBuf;
use std::mem;
use wire::ninep::frame_size;

/// Size from which on a message is received into a buffer of its own, bytes.
const RECEIVE_INTO_MIN: usize = 32 << 10;

/// Operations and bytes of one socket at a time.
#[derive(Debug, Default)]
pub(super) struct Connection {
    is_receiving: bool,
    is_sending: bool,
    /// Received bytes of an incomplete message.
    input: Buf,
    /// Protocol error found while handling a message.
    blame: Option<&'static str>,
}

impl Connection {
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

    pub(super) fn begin_send(&mut self) {
        assert!(!self.is_sending, "one send at a time");
        self.is_sending = true;
    }

    pub(super) fn end_send(&mut self) {
        assert!(self.is_sending, "a send ends once");
        self.is_sending = false;
    }

    /// Begins a receive, of a large message directly behind its beginning; `None` if one is in
    /// flight.
    pub(super) fn begin_receive(&mut self) -> Option<ReceiveBuf> {
        if mem::replace(&mut self.is_receiving, true) {
            return None;
        }
        Some(match frame_size(&self.input).filter(|size| *size >= RECEIVE_INTO_MIN) {
            Some(size) => {
                let mut buf = mem::take(&mut self.input);
                buf.reserve(size - buf.len());
                ReceiveBuf::Append(buf)
            }
            None => ReceiveBuf::Default,
        })
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

    /// Asserts all invariants; `has_socket`: whether there is one.
    pub(super) fn check(&self, has_socket: bool) {
        assert!(has_socket || self.is_idle(), "no operation is in flight without a socket");
        assert!(self.blame.is_none(), "a protocol error ends the connection");
    }
}
