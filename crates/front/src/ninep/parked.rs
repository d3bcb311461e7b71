//! Queue of messages that arrived while the connection was at a limit.

use base::Buf;
use std::collections::BTreeMap;

/// Maximum number of parked messages.
const MESSAGES_MAX: usize = 1024;

/// Maximum size of parked messages, bytes, unless the largest message is larger.
const BYTES_MAX: usize = 64 << 10;

/// Whole messages waiting to become calls.
#[derive(Debug, Default)]
pub(super) struct Parked {
    /// Messages by order of arrival.
    messages: BTreeMap<u64, Buf>,
    /// Order of arrival of the message of each tag.
    tags: BTreeMap<u16, u64>,
    next: u64,
    bytes: usize,
}

impl Parked {
    /// Returns the memory of the messages, bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Returns whether there is room for a message of this size, given the maximum message size.
    pub(super) fn has_room(&self, size: usize, msize: usize) -> bool {
        let room = self.messages.len() < MESSAGES_MAX;
        self.is_empty() || room && self.bytes + size <= msize.max(BYTES_MAX)
    }

    /// Adds a message, whose tag must be unique.
    pub(super) fn push(&mut self, message: Buf) {
        let before = self.tags.insert(super::tag_of(&message), self.next);
        assert!(before.is_none(), "one message of each tag");
        self.bytes += message.capacity();
        self.messages.insert(self.next, message);
        self.next += 1;
    }

    /// Returns the oldest message.
    pub(super) fn first(&self) -> Option<&[u8]> {
        self.messages.first_key_value().map(|(_, message)| &**message)
    }

    pub(super) fn pop(&mut self) -> Option<Buf> {
        let (_, message) = self.messages.pop_first()?;
        let known = self.tags.remove(&super::tag_of(&message));
        assert!(known.is_some(), "one message of each tag");
        self.bytes -= message.capacity();
        Some(message)
    }

    pub(super) fn contains(&self, tag: u16) -> bool {
        self.tags.contains_key(&tag)
    }

    /// Removes the message with a tag.
    pub(super) fn remove(&mut self, tag: u16) -> Option<Buf> {
        let number = self.tags.remove(&tag)?;
        let message = self.messages.remove(&number).expect("a tag's message is here");
        self.bytes -= message.capacity();
        Some(message)
    }

    pub(super) fn check(&self) {
        assert!(self.messages.len() <= MESSAGES_MAX);
        assert_eq!(self.bytes, self.messages.values().map(Buf::capacity).sum::<usize>());
        assert_eq!(self.tags.len(), self.messages.len());
        for (tag, number) in &self.tags {
            assert_eq!(super::tag_of(&self.messages[number]), *tag);
        }
        assert!(self.messages.keys().all(|number| *number < self.next), "arrivals are counted");
    }
}
