//! Limits on memory and traffic.

use std::time::Duration;

/// Configuration of a replica.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Maximum delay of gossip, unless a strict operation waits.
    pub gossip: Duration,
    /// Limits on memory and traffic.
    pub limits: Limits,
}

/// Quantity of operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Number of operations.
    pub operations: usize,
    /// Size in bytes.
    pub bytes: usize,
}

impl Amount {
    /// Reports whether there is room for one more operation. Its own bytes do not count: into an
    /// empty queue one operation of any size fits.
    pub(super) fn is_below(self, most: Amount) -> bool {
        self.operations < most.operations && self.bytes < most.bytes
    }

    /// Adds an operation of this size.
    pub(super) fn add(&mut self, bytes: usize) {
        self.operations += 1;
        self.bytes += bytes;
    }

    /// Returns the difference, saturating at zero.
    pub(super) fn without(self, other: Amount) -> Amount {
        Amount {
            operations: self.operations.saturating_sub(other.operations),
            bytes: self.bytes.saturating_sub(other.bytes),
        }
    }

    /// Returns the minimum of both components.
    pub(super) fn min(self, other: Amount) -> Amount {
        Amount {
            operations: self.operations.min(other.operations),
            bytes: self.bytes.min(other.bytes),
        }
    }
}

/// Upper limits; bytes may exceed them by one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Operations retained for peers that lack them; beyond it, no client requests are accepted.
    pub kept: Amount,
    /// Operations in flight to one peer, which must acknowledge some before it gets more.
    pub window: Amount,
    /// Operations in one message.
    pub message: Amount,
    /// Operations of one origin waiting for predecessors; more are dropped and retransmitted later.
    pub early: Amount,
    /// Client requests waiting for predecessors; more are refused.
    pub blocked: Amount,
    /// Answers waiting for the journal; beyond it, requests are refused.
    pub pending_answers: Amount,
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
            pending_answers: of(1 << 20, 64 << 20),
        }
    }
}
