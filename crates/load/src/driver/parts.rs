//! I/Os that are split into several messages, and end with the last one.

use crate::Outcome;
use slab::Slab;

/// I/O with its outstanding messages.
struct Whole {
    name: u64,
    parts: u32,
    bytes: u32,
    failed: Option<u16>,
}

/// Outstanding I/Os of a connection.
pub(super) struct Wholes(Slab<Whole>);

impl Wholes {
    /// Returns an empty set.
    pub(super) fn new() -> Wholes {
        Wholes(Slab::new())
    }

    /// Adds an I/O without messages; returns its place.
    pub(super) fn begin(&mut self, name: u64) -> usize {
        self.0.insert(Whole { name, parts: 0, bytes: 0, failed: None })
    }

    /// Adds a message of an I/O.
    pub(super) fn add_part(&mut self, place: usize) {
        self.0[place].parts += 1;
    }

    /// Makes an I/O fail with this errno at its end.
    pub(super) fn fail(&mut self, place: usize, number: u16) {
        self.0[place].failed = Some(number);
    }

    /// Ends a message that has moved this number of bytes, or failed with this errno. Returns the
    /// I/O that it completes.
    pub(super) fn end_part(
        &mut self,
        place: usize,
        result: Result<u32, u16>,
    ) -> Option<(u64, Outcome)> {
        let whole = &mut self.0[place];
        assert!(whole.parts > 0, "each message ends once");
        whole.parts -= 1;
        match result {
            Ok(bytes) => whole.bytes = whole.bytes.saturating_add(bytes),
            Err(number) => whole.failed = Some(number),
        }
        if whole.parts > 0 {
            return None;
        }
        let whole = self.0.remove(place);
        let outcome = match whole.failed {
            Some(number) => Outcome::Failed(number),
            None => Outcome::Done(whole.bytes),
        };
        Some((whole.name, outcome))
    }

    /// Ends all I/Os with this outcome.
    pub(super) fn give_up(&mut self, ended: &mut Vec<(u64, Outcome)>, outcome: Outcome) {
        ended.extend(self.0.drain().map(|whole| (whole.name, outcome)));
    }
}
