//! How much there may be of what could be too much.

use std::time::Duration;

/// How a replica behaves.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// How long operations gather before others are told of them, unless a strict one waits.
    pub gossip: Duration,
    /// How much there may be of what could be too much.
    pub limits: Limits,
}

/// Some operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// How many.
    pub operations: usize,
    /// How many bytes they take.
    pub bytes: usize,
}

impl Amount {
    /// Whether there is room for one more. Of bytes it may take any number: where there is nothing
    /// else, one operation always fits.
    pub(super) fn is_below(self, most: Amount) -> bool {
        self.operations < most.operations && self.bytes < most.bytes
    }

    /// One more operation.
    pub(super) fn add(&mut self, bytes: usize) {
        self.operations += 1;
        self.bytes += bytes;
    }

    /// What is left.
    pub(super) fn without(self, other: Amount) -> Amount {
        Amount {
            operations: self.operations.saturating_sub(other.operations),
            bytes: self.bytes.saturating_sub(other.bytes),
        }
    }

    /// The lesser number of each.
    pub(super) fn min(self, other: Amount) -> Amount {
        Amount {
            operations: self.operations.min(other.operations),
            bytes: self.bytes.min(other.bytes),
        }
    }
}

/// How much there may be, at most; of bytes, one operation more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Kept for those who do not have them yet; then no more are taken from clients.
    pub kept: Amount,
    /// On their way to one peer, which must say that it has some before it is sent more.
    pub window: Amount,
    /// In one message.
    pub message: Amount,
    /// Of one origin that wait for others to come before them; more are dropped, and come again.
    pub early: Amount,
    /// Of clients, that wait for others to come before them; more are refused.
    pub blocked: Amount,
    /// Answers that wait for the journal; who asks then is refused.
    pub unsaid: Amount,
}

impl Default for Limits {
    fn default() -> Limits {
        let of = |operations, bytes| Amount { operations, bytes };
        Limits {
            kept: of(1 << 20, 256 << 20),
            window: of(4096, 4 << 20),
            message: of(256, 256 << 10),
            early: of(4096, 8 << 20),
            blocked: of(4096, 64 << 20),
            unsaid: of(1 << 20, 64 << 20),
        }
    }
}
