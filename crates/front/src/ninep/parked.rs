//! Messages that came while the connection was at a limit, in order.

use base::Buf;
use std::collections::VecDeque;

/// Most messages that wait.
const MESSAGES_MAX: usize = 1024;

/// Most bytes that wait, if the largest message is smaller.
const BYTES_MAX: usize = 64 << 10;

/// Whole messages that wait to become calls.
#[derive(Debug, Default)]
pub(super) struct Parked {
    messages: VecDeque<Buf>,
    bytes: usize,
}

impl Parked {
    /// How much memory they hold, bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Whether there is room for a message of this size, where the largest has `msize`.
    pub(super) fn has_room(&self, size: usize, msize: usize) -> bool {
        let room = self.messages.len() < MESSAGES_MAX;
        self.is_empty() || room && self.bytes + size <= msize.max(BYTES_MAX)
    }

    pub(super) fn push(&mut self, message: Buf) {
        self.bytes += message.capacity();
        self.messages.push_back(message);
    }

    pub(super) fn pop(&mut self) -> Option<Buf> {
        let message = self.messages.pop_front()?;
        self.bytes -= message.capacity();
        Some(message)
    }

    pub(super) fn contains(&self, tag: u16) -> bool {
        self.position(tag).is_some()
    }

    /// Takes out the message of a tag.
    pub(super) fn remove(&mut self, tag: u16) -> Option<Buf> {
        let message = self.messages.remove(self.position(tag)?)?;
        self.bytes -= message.capacity();
        Some(message)
    }

    pub(super) fn check(&self) {
        assert!(self.messages.len() <= MESSAGES_MAX);
        assert_eq!(self.bytes, self.messages.iter().map(Buf::capacity).sum::<usize>());
    }

    fn position(&self, tag: u16) -> Option<usize> {
        self.messages.iter().position(|message| super::tag_of(message) == tag)
    }
}
