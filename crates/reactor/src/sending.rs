//! A send in progress: several buffers, gathered, continued after a short send.
#![allow(unsafe_code)]

use crate::memory::Memory;
use base::Buf;
use base::op::OpId;

/// Maximum number of buffers in one system call (Linux `IOV_MAX`).
const GATHER_MAX: usize = 1024;

/// Maximum number of bytes transferred in one call or wait by operations that can be divided among
/// several, unless a single operation is larger: everything else waits meanwhile.
pub(crate) const BATCH_BYTES: usize = 256 << 10;

/// Size, bytes, below which operations do not wait for others.
pub(crate) const BULK_MIN: usize = 32 << 10;

/// A send in progress. Boxed and reused by both forms; the kernel refers to `message` and `slices`
/// until the call completes, so neither is modified before.
pub(crate) struct Sending {
    /// The operation.
    pub(crate) id: OpId,
    data: Vec<Buf>,
    /// First buffer not completely sent, and the number of its bytes sent.
    next: usize,
    sent: usize,
    slices: Vec<libc::iovec>,
    message: libc::msghdr,
}

impl Sending {
    /// Returns an idle one.
    pub(crate) fn new() -> Sending {
        // SAFETY: all zero is a valid message header: no name, no slices, no control data.
        let message = unsafe { std::mem::zeroed() };
        Sending { id: OpId(0), data: Vec::new(), next: 0, sent: 0, slices: Vec::new(), message }
    }

    /// Starts a send of `data`.
    pub(crate) fn begin(&mut self, id: OpId, data: Vec<Buf>) {
        assert!(self.data.is_empty(), "one send at a time");
        self.id = id;
        self.data = data;
        self.next = 0;
        self.sent = 0;
        self.advance(0);
    }

    /// Counts `n` more bytes as sent.
    pub(crate) fn advance(&mut self, n: usize) {
        self.sent += n;
        while let Some(buf) = self.data.get(self.next) {
            if self.sent < buf.len() {
                return;
            }
            self.sent -= buf.len();
            self.next += 1;
        }
        assert_eq!(self.sent, 0, "no more is sent than there was");
    }

    /// Returns whether everything is sent.
    pub(crate) fn is_done(&self) -> bool {
        self.next == self.data.len()
    }

    /// Returns the number of bytes not yet sent.
    pub(crate) fn left(&self) -> usize {
        let all: usize = self.data[self.next..].iter().map(|buf| buf.len()).sum();
        assert!(all > self.sent || self.is_done(), "a buffer that was sent is passed");
        all - self.sent
    }

    /// Returns the rest to send if it is in one piece.
    pub(crate) fn single(&self) -> Option<&[u8]> {
        let last = self.next + 1 == self.data.len();
        last.then(|| &self.data[self.next][self.sent..])
    }

    /// Returns the rest to send as a message header. Valid until the next call of any method.
    pub(crate) fn message(&mut self) -> *const libc::msghdr {
        assert!(!self.is_done(), "there is something to send");
        self.slices.clear();
        let mut skip = self.sent;
        for buf in self.data[self.next..].iter().take(GATHER_MAX) {
            let bytes = &buf[skip..];
            skip = 0;
            let base = bytes.as_ptr().cast_mut().cast();
            self.slices.push(libc::iovec { iov_base: base, iov_len: bytes.len() });
        }
        self.message.msg_iov = self.slices.as_mut_ptr();
        self.message.msg_iovlen = self.slices.len() as _;
        &raw const self.message
    }

    /// Ends the send and frees its memory.
    pub(crate) fn end(&mut self, memory: &mut Memory) {
        for buf in self.data.drain(..) {
            memory.give(buf);
        }
    }
}
