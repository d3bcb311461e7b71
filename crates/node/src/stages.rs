//! How long each stage of a request takes (the BUDS paper's micro-benchmark, §5.2.2).
//!
//! What happens in the node is timed by turns: whatever waits for its thread waits for the next
//! turn. What happens in the reactor is timed there ([`base::op::Span`]).

use base::Instant;
use base::histogram::Histogram;
use base::op::Span;
use std::time::Duration;

/// A stage of a request's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// From its bytes' arrival until the request is made.
    Made,
    /// From an operation's submission until the work on it begins.
    Started,
    /// From then until the work is done.
    Finished,
    /// From then until the node takes the completion.
    Posted,
    /// From the making of a request until its answer, whatever that takes.
    Answered,
    /// From the answer's sending until the client's host has it.
    Sent,
}

/// A histogram for each stage, and counts since the start.
#[derive(Clone, Debug, Default)]
pub struct Stages {
    made: Histogram,
    started: Histogram,
    finished: Histogram,
    posted: Histogram,
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
            Stage::Started => self.started.record(span),
            Stage::Finished => self.finished.record(span),
            Stage::Posted => self.posted.record(span),
            Stage::Answered => self.answered.record(span),
            Stage::Sent => self.sent.record(span),
        }
    }

    /// Counts the stages of an operation that the node learns of now.
    pub fn record_span(&mut self, now: Instant, span: Span) {
        self.record(Stage::Started, span.started.since(span.submitted));
        self.record(Stage::Finished, span.finished.since(span.started));
        self.record(Stage::Posted, now.since(span.finished));
    }

    /// Counts all that another node has counted.
    pub fn add(&mut self, other: &Stages) {
        let Stages { made, started, finished, posted, answered, sent, accepted } = other;
        self.made.add(made);
        self.started.add(started);
        self.finished.add(finished);
        self.posted.add(posted);
        self.answered.add(answered);
        self.sent.add(sent);
        self.accepted += accepted;
    }

    /// Each stage with its name and histogram, in the order of a request's life.
    pub fn all(&self) -> [(&'static str, &Histogram); 6] {
        [
            ("made", &self.made),
            ("started", &self.started),
            ("finished", &self.finished),
            ("posted", &self.posted),
            ("answered", &self.answered),
            ("sent", &self.sent),
        ]
    }
}
