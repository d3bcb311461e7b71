//! Durations of the stages of a request (the BUDS paper's micro-benchmark, §5.2.2).
//!
//! Stages within the node are measured in turns: anything that waits for its thread waits for the
//! next turn. Stages within the reactor are measured there ([`base::op::Span`]).

use base::Instant;
use base::histogram::Histogram;
use base::op::Span;
use std::time::Duration;

/// A stage of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// From the arrival of its bytes until the request is made.
    Made,
    /// From the submission of an operation until its start.
    Started,
    /// From the start until the end of the work.
    Finished,
    /// From the end of the work until the node processes the completion.
    Posted,
    /// From the creation of a request until its reply, with everything between.
    Answered,
    /// From the start of a response's send until the client's host has received it.
    Sent,
}

/// A histogram for each stage, and counters since the start.
#[derive(Clone, Debug, Default)]
pub struct Stages {
    made: Histogram,
    started: Histogram,
    finished: Histogram,
    posted: Histogram,
    answered: Histogram,
    sent: Histogram,
    /// Number of accepted connections.
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

    /// Counts the stages of an operation whose span is reported now.
    pub fn record_span(&mut self, now: Instant, span: Span) {
        self.record(Stage::Started, span.started.since(span.submitted));
        self.record(Stage::Finished, span.finished.since(span.started));
        self.record(Stage::Posted, now.since(span.finished));
    }

    /// Adds the histograms of another node.
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

    /// Returns each stage with its name and histogram, in the order of a request's life.
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
