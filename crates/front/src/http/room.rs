//! The session as the node sees it, which shares out memory and connections.

use super::{Session, State};
use crate::Room;

/// Limit of the connection that may go on although nothing is left, bytes.
const FIRST_BYTES: usize = 1 << 20;

/// A request of so many bytes counts as two.
const LONG_REQUEST: usize = 1024;

impl Session {
    /// A request with a head of so many bytes is begun. Its path is looked up at once, however
    /// long it is, so a long one counts as several in its turn.
    pub(super) fn spend(&mut self, bytes: usize) {
        self.quota = self.quota.saturating_sub(1 + bytes / LONG_REQUEST);
    }

    /// Sets the memory that the node has left.
    pub fn set_room(&mut self, room: Room) {
        let first = if room.is_first { FIRST_BYTES } else { 0 };
        self.set_allowance(room.spare.max(first).min(self.export.limits.bytes));
        self.messages = room.messages.max(1);
        self.piece = room.piece;
        self.quota = self.quota.min(self.messages);
    }

    /// Whether a request waits for memory alone: never, because a response goes on in small pieces
    /// whatever is left.
    pub fn lacks_room(&self) -> bool {
        false
    }

    /// Whether the client has begun a request, or its body, and owes the rest.
    pub fn owes_bytes(&self) -> bool {
        let begun = matches!(self.state, State::Head { .. }) && !self.input.is_empty();
        (begun || matches!(self.state, State::Putting(_))) && self.is_hungry()
    }

    /// Whether no request has been begun and every response is sent.
    pub fn is_idle(&self) -> bool {
        matches!(self.state, State::Head { .. }) && self.input.is_empty() && self.unsent == 0
    }
}
