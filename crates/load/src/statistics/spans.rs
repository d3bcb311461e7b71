//! Distributions of times in each second of a run.
//!
//! Spans are initially 100 ms wide; at [`SPANS_MAX`] spans, ten are merged into one. So every run
//! longer than six seconds has between 60 and 600 points to plot.

use super::buckets::Buckets;
use super::series::{COARSEN, TIME_MAX};

/// Initial span width, in ns.
pub(super) const SPAN_NS: u64 = 100_000_000;
/// Maximum number of spans: about 10 MiB.
pub(super) const SPANS_MAX: usize = 600;

/// I/Os of one span.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Span {
    /// Response times of I/Os completed in it, in ns.
    pub response: Buckets,
    /// Lateness of I/Os scheduled in it, in ns.
    pub lateness: Buckets,
}

/// All spans of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Spans {
    width_ns: u64,
    spans: Vec<Span>,
    /// Start and index of the last span used.
    last: (u64, usize),
}

impl Default for Spans {
    fn default() -> Spans {
        Spans { width_ns: SPAN_NS, spans: Vec::new(), last: (0, 0) }
    }
}

impl Spans {
    /// Returns the span width, in ns.
    pub fn width_ns(&self) -> u64 {
        self.width_ns
    }

    /// Returns the spans, from the start of the run.
    pub fn all(&self) -> &[Span] {
        &self.spans
    }

    /// Returns the span at a time, and creates missing ones.
    #[inline]
    pub(super) fn at(&mut self, time_ns: u64) -> &mut Span {
        let (start, index) = self.last;
        if time_ns.wrapping_sub(start) < self.width_ns && index < self.spans.len() {
            return &mut self.spans[index];
        }
        self.look_up(time_ns.min(TIME_MAX))
    }

    #[cold]
    fn look_up(&mut self, time_ns: u64) -> &mut Span {
        while time_ns / self.width_ns >= SPANS_MAX as u64 {
            self.coarsen();
        }
        let index = (time_ns / self.width_ns) as usize;
        if index >= self.spans.len() {
            self.spans.resize(index + 1, Span::default());
        }
        self.last = (index as u64 * self.width_ns, index);
        &mut self.spans[index]
    }

    fn coarsen(&mut self) {
        let coarse = self.spans.chunks(COARSEN).map(|spans| {
            let mut sum = Span::default();
            spans.iter().for_each(|span| sum.merge(span));
            sum
        });
        self.spans = coarse.collect();
        self.width_ns *= COARSEN as u64;
        self.last = (0, 0);
    }

    /// Merges other spans of the same run.
    pub(super) fn merge(&mut self, other: &Spans) {
        let mut other = other.clone();
        while self.width_ns < other.width_ns {
            self.coarsen();
        }
        while other.width_ns < self.width_ns {
            other.coarsen();
        }
        if self.spans.len() < other.spans.len() {
            self.spans.resize(other.spans.len(), Span::default());
        }
        for (mine, theirs) in self.spans.iter_mut().zip(&other.spans) {
            mine.merge(theirs);
        }
    }
}

impl Span {
    fn merge(&mut self, other: &Span) {
        self.response.merge(&other.response);
        self.lateness.merge(&other.lateness);
    }
}
