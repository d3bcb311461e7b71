//! What was counted of a run, and what follows from it.

use super::{
    Distances, Drift, Extent, Late, Queue, Series, Spans, Statistics, Times, Within, Witness, drift,
};
use crate::io::{Cause, Kind};
use std::collections::BTreeMap;

impl Statistics {
    /// The times of each kind of which there is an I/O.
    pub fn kinds(&self) -> impl Iterator<Item = (Kind, &Times)> {
        let times = self.kinds.iter().map(Option::as_deref);
        Kind::ALL.into_iter().zip(times).filter_map(|(kind, times)| Some((kind, times?)))
    }

    /// The times of one kind.
    pub fn kind(&self, kind: Kind) -> Option<&Times> {
        self.kinds[kind as usize].as_deref()
    }

    /// The times of all kinds together.
    pub fn together(&self) -> Times {
        let mut all = Times::default();
        self.kinds().for_each(|(_, times)| all.merge(times));
        all
    }

    /// Bytes that came from the target.
    pub fn bytes_read(&self) -> u64 {
        self.kind(Kind::Read).map_or(0, |times| times.bytes)
    }

    /// Bytes that went to the target.
    pub fn bytes_written(&self) -> u64 {
        let kinds = [self.kind(Kind::Write), self.kind(Kind::Create)];
        kinds.into_iter().flatten().map(|times| times.bytes).sum()
    }

    /// I/Os that were issued: done or refused.
    pub fn issued_count(&self) -> u64 {
        self.causes.iter().map(|late| late.count).sum()
    }

    /// I/Os that were to be issued.
    pub fn scheduled_count(&self) -> u64 {
        self.issued_count() + self.skipped
    }

    /// I/Os that were not issued: late ones that were skipped, or left over when the run ended.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// I/Os that the target refused.
    pub fn failed(&self) -> u64 {
        self.errors.values().sum()
    }

    /// How many by each error number.
    pub fn errors(&self) -> &BTreeMap<u16, u64> {
        &self.errors
    }

    /// How many were issued within 1, 10, 100 and 1000 µs of their time.
    pub fn within(&self) -> &Within {
        &self.within
    }

    /// The share of the issued I/Os that were issued within a limit of [`Within::LIMITS_NS`];
    /// 1 of none.
    pub fn within_share(&self, limit: usize) -> f64 {
        let issued = self.issued_count();
        if issued == 0 { 1.0 } else { self.within.counts()[limit] as f64 / issued as f64 }
    }

    /// What was late for each cause.
    pub fn causes(&self) -> impl Iterator<Item = (Cause, &Late)> {
        Cause::ALL.into_iter().zip(&self.causes)
    }

    /// I/Os that were later than [`super::LATE_NS`].
    pub fn late(&self) -> u64 {
        self.causes.iter().map(|late| late.late).sum()
    }

    /// The first and the last time at which an I/O was to be issued.
    pub fn scheduled(&self) -> Extent {
        self.scheduled
    }

    /// The first and the last time at which one was.
    pub fn issued(&self) -> Extent {
        self.issued
    }

    /// The first and the last completion.
    pub fn completed(&self) -> Extent {
        self.completed
    }

    /// From the first issue to the last completion, ns.
    pub fn run_ns(&self) -> u64 {
        self.completed.last_ns.saturating_sub(self.issued.first_ns)
    }

    /// I/Os issued in a second: intervals between the first and the last issue, by their length.
    pub fn rate(&self) -> f64 {
        let intervals = self.issued_count().saturating_sub(1) as f64;
        intervals * 1e9 / self.issued.len_ns().max(1) as f64
    }

    /// I/Os that were to be issued in a second.
    pub fn scheduled_rate(&self) -> f64 {
        let intervals = self.scheduled_count().saturating_sub(1) as f64;
        intervals * 1e9 / self.scheduled.len_ns().max(1) as f64
    }

    /// Counts of short intervals.
    pub fn series(&self) -> &Series {
        &self.series
    }

    /// Distributions of longer ones.
    pub fn spans(&self) -> &Spans {
        &self.spans
    }

    /// How far apart consecutive I/Os were.
    pub fn distances(&self) -> &Distances {
        &self.distances
    }

    /// What the kernel's trace says, if it was asked.
    pub fn witness(&self) -> Option<&Witness> {
        self.witness.as_deref()
    }

    /// Whether the generator fell behind; unknown for a run too short to tell.
    pub fn drift(&self) -> Option<Drift> {
        let stretch = drift::signed_difference(self.issued.len_ns(), self.scheduled.len_ns());
        Drift::of(&self.spans, stretch)
    }

    /// The length of the queue in each interval of the series.
    pub fn queue(&self) -> Vec<Queue> {
        self.noted().queue()
    }

    /// The series with every length of the queue that is known.
    pub(super) fn noted(&self) -> Series {
        let mut series = self.series.clone();
        self.peak.note_rest(&mut series);
        series
    }

    /// The mean length of the queue from the first issue to the last completion, exact.
    pub fn queue_mean(&self) -> f64 {
        let width = self.series.width_ns() as f64;
        let area: f64 = self.series.queue().iter().map(|queue| queue.mean * width).sum();
        area / self.run_ns().max(1) as f64
    }

    /// The longest the queue is known to have been: it may have been longer within 16 µs, or while
    /// I/Os that took more than a quarter of a second were in it.
    pub fn queue_max(&self) -> u64 {
        let in_ticks = self.series.queue().iter().map(|queue| queue.max).max();
        self.peak.max().max(in_ticks.unwrap_or(0))
    }
}
