//! A send under way: several buffers, gathered, continued where a short send stopped.
#![allow(unsafe_code)]

use crate::memory::Memory;
use base::Buf;
use base::op::OpId;

/// Most buffers in one system call (Linux `IOV_MAX`).
const GATHER_MAX: usize = 1024;

/// Maximum number of bytes that operations move of those that could be divided among calls or
/// waits, unless one operation has more: everything else waits meanwhile.
pub(crate) const BATCH_BYTES: usize = 256 << 10;

/// Operations of fewer bytes do not wait for others.
pub(crate) const BULK_MIN: usize = 32 << 10;

/// What is being sent. Boxed and reused by both forms; the kernel refers to `message` and
/// `slices` until the call completes, so neither is touched before.
pub(crate) struct Sending {
    /// Of which operation.
    pub(crate) id: OpId,
    data: Vec<Buf>,
    /// The first buffer that is not sent yet, and how much of it is.
    next: usize,
    sent: usize,
    slices: Vec<libc::iovec>,
    message: libc::msghdr,
}

impl Sending {
    /// An idle one.
    pub(crate) fn new() -> Sending {
        // SAFETY: all zero is a valid message header: no name, no slices, no control data.
        let message = unsafe { std::mem::zeroed() };
        Sending { id: OpId(0), data: Vec::new(), next: 0, sent: 0, slices: Vec::new(), message }
    }

    /// Begins to send `data`.
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

    /// Whether all is sent.
    pub(crate) fn is_done(&self) -> bool {
        self.next == self.data.len()
    }

    /// Bytes that are not sent yet.
    pub(crate) fn left(&self) -> usize {
        let all: usize = self.data[self.next..].iter().map(|buf| buf.len()).sum();
        assert!(all > self.sent || self.is_done(), "a buffer that was sent is passed");
        all - self.sent
    }

    /// What to send next if it is in one piece.
    pub(crate) fn single(&self) -> Option<&[u8]> {
        let last = self.next + 1 == self.data.len();
        last.then(|| &self.data[self.next][self.sent..])
    }

    /// What to send next, as the kernel wants it. Valid until the next call of any method.
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

    /// Ends: the memory goes back.
    pub(crate) fn end(&mut self, memory: &mut Memory) {
        for buf in self.data.drain(..) {
            memory.give(buf);
        }
    }
}
