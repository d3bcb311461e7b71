//! Accessors and derived values of statistics.

use super::{
    Distances, Drift, Extent, Late, Queue, Series, Spans, Statistics, Times, Within, Witness, drift,
};
use crate::io::{Cause, Kind};
use std::collections::BTreeMap;

impl Statistics {
    /// Returns the times of each kind with I/Os.
    pub fn kinds(&self) -> impl Iterator<Item = (Kind, &Times)> {
        let times = self.kinds.iter().map(Option::as_deref);
        Kind::ALL.into_iter().zip(times).filter_map(|(kind, times)| Some((kind, times?)))
    }

    /// Returns the times of one kind.
    pub fn kind(&self, kind: Kind) -> Option<&Times> {
        self.kinds[kind as usize].as_deref()
    }

    /// Returns the times of all kinds together.
    pub fn together(&self) -> Times {
        let mut all = Times::default();
        self.kinds().for_each(|(_, times)| all.merge(times));
        all
    }

    /// Bytes read from the target.
    pub fn bytes_read(&self) -> u64 {
        self.kind(Kind::Read).map_or(0, |times| times.bytes)
    }

    /// Bytes written to the target.
    pub fn bytes_written(&self) -> u64 {
        let kinds = [self.kind(Kind::Write), self.kind(Kind::Create)];
        kinds.into_iter().flatten().map(|times| times.bytes).sum()
    }

    /// Number of issued I/Os, successful or failed.
    pub fn issued_count(&self) -> u64 {
        self.causes.iter().map(|late| late.count).sum()
    }

    /// Number of scheduled I/Os.
    pub fn scheduled_count(&self) -> u64 {
        self.issued_count() + self.skipped
    }

    /// Number of skipped I/Os: late ones, or those left at the end of the run.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Number of I/Os that failed on the target.
    pub fn failed(&self) -> u64 {
        self.errors.values().sum()
    }

    /// Returns the number of failures by error number.
    pub fn errors(&self) -> &BTreeMap<u16, u64> {
        &self.errors
    }

    /// Returns the counts of I/Os issued within 1, 10, 100 and 1000 µs of their times.
    pub fn within(&self) -> &Within {
        &self.within
    }

    /// Returns the share of issued I/Os within a bound of [`Within::LIMITS_NS`], by index; 1
    /// without I/Os.
    pub fn within_share(&self, limit: usize) -> f64 {
        let issued = self.issued_count();
        if issued == 0 { 1.0 } else { self.within.counts()[limit] as f64 / issued as f64 }
    }

    /// Returns the late I/Os of each cause.
    pub fn causes(&self) -> impl Iterator<Item = (Cause, &Late)> {
        Cause::ALL.into_iter().zip(&self.causes)
    }

    /// Number of I/Os later than [`super::LATE_NS`].
    pub fn late(&self) -> u64 {
        self.causes.iter().map(|late| late.late).sum()
    }

    /// Range of scheduled times.
    pub fn scheduled(&self) -> Extent {
        self.scheduled
    }

    /// Range of issue times.
    pub fn issued(&self) -> Extent {
        self.issued
    }

    /// Range of completion times.
    pub fn completed(&self) -> Extent {
        self.completed
    }

    /// Time from the first issue to the last completion, in ns.
    pub fn run_ns(&self) -> u64 {
        self.completed.last_ns.saturating_sub(self.issued.first_ns)
    }

    /// Issue rate in I/Os per second: intervals between the first and the last issue over their
    /// length.
    pub fn rate(&self) -> f64 {
        let intervals = self.issued_count().saturating_sub(1) as f64;
        intervals * 1e9 / self.issued.len_ns().max(1) as f64
    }

    /// Scheduled rate, in I/Os per second.
    pub fn scheduled_rate(&self) -> f64 {
        let intervals = self.scheduled_count().saturating_sub(1) as f64;
        intervals * 1e9 / self.scheduled.len_ns().max(1) as f64
    }

    /// Returns the counts in short intervals.
    pub fn series(&self) -> &Series {
        &self.series
    }

    /// Returns the distributions in longer intervals.
    pub fn spans(&self) -> &Spans {
        &self.spans
    }

    /// Returns the seek distances between consecutive I/Os.
    pub fn distances(&self) -> &Distances {
        &self.distances
    }

    /// Returns the data of the kernel's trace, if it was used.
    pub fn witness(&self) -> Option<&Witness> {
        self.witness.as_deref()
    }

    /// Returns the drift of the generator; `None` if the run is too short.
    pub fn drift(&self) -> Option<Drift> {
        let segment = drift::signed_difference(self.issued.len_ns(), self.scheduled.len_ns());
        Drift::of(&self.spans, segment)
    }

    /// Returns the queue length in each interval of the series.
    pub fn queue(&self) -> Vec<Queue> {
        self.noted().queue()
    }

    /// Returns the series with all known queue lengths.
    pub(super) fn noted(&self) -> Series {
        let mut series = self.series.clone();
        self.peak.note_rest(&mut series);
        series
    }

    /// Exact mean queue length from the first issue to the last completion.
    pub fn queue_mean(&self) -> f64 {
        let width = self.series.width_ns() as f64;
        let means = self.series.queue();
        // `sum` of nothing is -0.
        let area = means.iter().fold(0.0, |sum, queue| sum + queue.mean * width);
        area / self.run_ns().max(1) as f64
    }

    /// Lower bound of the maximum queue length: it may have been exceeded within 16 µs, or while
    /// I/Os longer than a quarter of a second were in the queue.
    pub fn queue_max(&self) -> u64 {
        let in_ticks = self.series.queue().iter().map(|queue| queue.max).max();
        self.peak.max().max(in_ticks.unwrap_or(0))
    }
}
