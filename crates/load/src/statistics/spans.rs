//! How long I/Os took in each second of a run, as distributions.
//!
//! Spans are 100 ms wide at first; when there are [`SPANS_MAX`] of them, ten are made into one. So
//! between 60 and 600 points are there to plot for every run that is longer than six seconds.

use super::buckets::Buckets;
use super::series::{COARSEN, TIME_MAX};

/// The width of a span at first, ns.
pub(super) const SPAN_NS: u64 = 100_000_000;
/// No more spans than this are kept: about 10 MiB.
pub(super) const SPANS_MAX: usize = 600;

/// The I/Os of one span.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Span {
    /// Response times of the I/Os that completed in it, ns.
    pub response: Buckets,
    /// Lateness of the I/Os that were to be issued in it, ns.
    pub lateness: Buckets,
}

/// All spans of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Spans {
    width_ns: u64,
    spans: Vec<Span>,
    /// The span looked up last: its start and its number.
    last: (u64, usize),
}

impl Default for Spans {
    fn default() -> Spans {
        Spans { width_ns: SPAN_NS, spans: Vec::new(), last: (0, 0) }
    }
}

impl Spans {
    /// How wide the spans are, ns.
    pub fn width_ns(&self) -> u64 {
        self.width_ns
    }

    /// The spans, from the start of the run.
    pub fn all(&self) -> &[Span] {
        &self.spans
    }

    /// The span that a time falls into; it is made if it is not there yet.
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

    /// Takes up other spans of the same run.
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
