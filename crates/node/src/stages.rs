//! How long each stage of a request takes (the BUDS paper's micro-benchmark, §5.2.2).
//!
//! Times are those of turns: what waits for the node's thread waits for its next turn.

use base::histogram::Histogram;
use std::time::Duration;

/// A stage of a request's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// From its bytes' arrival until the request is made.
    Made,
    /// From then until it is answered.
    Answered,
    /// From the answer's sending until the client's host has it.
    Sent,
}

/// A histogram for each stage, and counts since the start.
#[derive(Clone, Debug, Default)]
pub struct Stages {
    made: Histogram,
    answered: Histogram,
    sent: Histogram,
    /// Connections accepted.
    pub accepted: u64,
}

impl Stages {
    /// Counts one stage of one request.
    pub fn record(&mut self, stage: Stage, span: Duration) {
        match stage {
            Stage::Made => self.made.record(span),
            Stage::Answered => self.answered.record(span),
            Stage::Sent => self.sent.record(span),
        }
    }

    /// Each stage with its name and histogram, in the order of a request's life.
    pub fn all(&self) -> [(&'static str, &Histogram); 3] {
        [("made", &self.made), ("answered", &self.answered), ("sent", &self.sent)]
    }
}
