//! Message reader: receives each message directly into its own buffer.

use crate::message::{Message, Pool};
use crate::socket::Socket;
use session::{Violation, message_size};
use std::io::{self, IoSliceMut};
use std::sync::Arc;

/// Bytes received beyond the current message: the beginning of the next one, which is copied.
const AHEAD: usize = 8192;

/// Receive buffer of a connection.
#[derive(Debug)]
pub(crate) struct Reader {
    /// Bytes `start..end` precede everything still to be received.
    ahead: Box<[u8]>,
    start: usize,
    end: usize,
    /// Partial message, and its bytes received. `ahead` is empty then.
    body: Option<(Message, usize)>,
    pool: Arc<Pool>,
    /// Maximum message size, in bytes.
    pub(crate) size_max: usize,
}

impl Reader {
    pub(crate) fn new(size_max: usize) -> Reader {
        let ahead = vec![0; AHEAD].into_boxed_slice();
        Reader { ahead, start: 0, end: 0, body: None, pool: Arc::default(), size_max }
    }

    /// Receives once; returns 0 at the end of the connection.
    pub(crate) fn receive(&mut self, socket: &Socket) -> io::Result<usize> {
        match &mut self.body {
            Some((message, have)) => {
                assert!(self.start == self.end, "nothing is ahead of a message in flight");
                assert!(*have < message.bytes().len(), "a whole message is taken at once");
                let rest = &mut message.bytes_mut()[*have..];
                let missing = rest.len();
                let parts = &mut [IoSliceMut::new(rest), IoSliceMut::new(&mut self.ahead)];
                let count = socket.read(parts)?;
                *have += count.min(missing);
                (self.start, self.end) = (0, count.saturating_sub(missing));
                Ok(count)
            }
            None => {
                self.ahead.copy_within(self.start..self.end, 0);
                (self.start, self.end) = (0, self.end - self.start);
                let count = socket.read(&mut [IoSliceMut::new(&mut self.ahead[self.end..])])?;
                self.end += count;
                Ok(count)
            }
        }
    }

    /// Takes the next message, if it is complete.
    ///
    /// # Errors
    /// An invalid message size.
    pub(crate) fn take(&mut self) -> Result<Option<Message>, Violation> {
        if self.body.is_none() {
            self.body = self.begin()?;
        }
        match self.body.take() {
            Some((message, have)) if have == message.bytes().len() => Ok(Some(message)),
            unfinished => {
                self.body = unfinished;
                Ok(None)
            }
        }
    }

    fn begin(&mut self) -> Result<Option<(Message, usize)>, Violation> {
        let bytes = &self.ahead[self.start..self.end];
        let Some(size) = message_size(bytes, self.size_max)? else { return Ok(None) };
        let mut message = Message::new(&self.pool, size);
        let have = size.min(bytes.len());
        message.bytes_mut()[..have].copy_from_slice(&bytes[..have]);
        self.start += have;
        Ok(Some((message, have)))
    }
}
