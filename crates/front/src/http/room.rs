//! Memory accounting of a session, as used by the node, which shares out memory and connections.

use super::{Exchange, Session, State};
use crate::Room;
use wire::http::{Method, Request};

/// Limit of the connection that may proceed although no memory is left, bytes.
const FIRST_BYTES: usize = 1 << 20;

/// Maximum number of nodes and open files of one request.
pub(super) const HANDLES: usize = 4;

/// Size of a request head that counts as an additional request, bytes.
const LONG_REQUEST: usize = 1024;

impl Session {
    /// Counts a request with a head of this size. Its path is resolved at once, however long it is,
    /// so a long one counts as several requests of the turn.
    pub(super) fn spend(&mut self, bytes: usize) {
        self.quota = self.quota.saturating_sub(1 + bytes / LONG_REQUEST);
    }

    /// Sets the limits according to the memory that the node has left.
    pub fn set_room(&mut self, room: Room) {
        let first = if room.is_first { FIRST_BYTES } else { 0 };
        self.set_allowance(room.spare.max(first).min(self.export.limits.bytes));
        self.handles_max = room.handles_max(self.handles());
        self.messages = room.messages.max(1);
        self.piece = room.piece;
        self.quota = self.quota.min(self.messages);
    }

    /// Returns whether the client may have the nodes and open files that a request needs. Only
    /// uploads, which last as long as the client likes, and copies are limited; others may use
    /// those that are reserved for requests in progress.
    pub(super) fn lets_hold(&self, request: &Request) -> bool {
        !matches!(request.method, Method::Put | Method::Copy | Method::Move)
            || self.handles() + HANDLES <= self.handles_max
    }

    /// Returns whether a request waits for memory alone: never, because a response proceeds in
    /// small pieces in any case.
    pub fn lacks_room(&self) -> bool {
        false
    }

    /// Returns whether the client owes the rest of a request or its body.
    pub fn owes_bytes(&self) -> bool {
        let begun = matches!(self.state, State::Head { .. }) && !self.input.is_empty();
        let is_upload = self.exchange().is_some_and(Exchange::is_upload);
        (begun || is_upload) && self.is_hungry()
    }

    /// Returns whether no request has begun and every response is sent.
    pub fn is_idle(&self) -> bool {
        matches!(self.state, State::Head { .. }) && self.input.is_empty() && self.unsent == 0
    }
}
