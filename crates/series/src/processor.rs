//! Simulation of the slower processors of the paper.
//!
//! Work is simulated by sleeping. Oversleep is deducted from the next sleep, as long as work is
//! continuous, so that it does not accumulate; the lateness of sleeps is measured.

use crate::latch::Latch;
use crate::spec::cost;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Processor, used by one replica or several.
#[derive(Debug)]
pub(crate) struct Processor {
    /// End of its scheduled work, and the part that it belongs to.
    busy: Mutex<(Instant, usize)>,
    /// Cost of a context switch, in µs.
    switch: u64,
}

impl Processor {
    /// Creates an idle processor.
    pub(crate) fn new(now: Instant, switch: u64) -> Processor {
        Processor { busy: Mutex::new((now, usize::MAX)), switch }
    }

    /// Schedules work that may start at `from`, after all work already scheduled. Returns its end.
    fn book(&self, me: usize, from: Instant, micros: u64) -> Instant {
        let mut busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        let (until, last) = *busy;
        let switch = if last == me || last == usize::MAX { 0 } else { self.switch };
        *busy = (until.max(from) + cost(micros + switch), me);
        busy.0
    }
}

/// Use of a processor by one part.
#[derive(Debug)]
pub(crate) struct Share<'p> {
    processor: &'p Processor,
    me: usize,
    /// End of its last work, if it has not waited since.
    ended: Option<Instant>,
    /// Total lateness of sleeps, and their number.
    late: (Duration, u32),
    late_max: Duration,
}

impl<'p> Share<'p> {
    /// Creates the use of a processor by part `me`.
    pub(crate) fn new(processor: &'p Processor, me: usize) -> Share<'p> {
        let late = (Duration::ZERO, 0);
        Share { processor, me, ended: None, late, late_max: Duration::ZERO }
    }

    /// Performs work of this many µs; none once the latch is set.
    pub(crate) fn work(&mut self, micros: u64, latch: &Latch) {
        if micros == 0 || latch.has_rung() {
            return;
        }
        let from = self.ended.unwrap_or_else(Instant::now);
        let end = self.processor.book(self.me, from, micros);
        latch.sleep(end);
        if !latch.has_rung() {
            let late = Instant::now().saturating_duration_since(end);
            self.late = (self.late.0 + late, self.late.1 + 1);
            self.late_max = self.late_max.max(late);
        }
        self.ended = Some(end);
    }

    /// Marks the part as idle.
    pub(crate) fn rest(&mut self) {
        self.ended = None;
    }

    /// Returns the lateness of sleeps: total, number and maximum.
    pub(crate) fn lateness(&self) -> (Duration, u32, Duration) {
        (self.late.0, self.late.1, self.late_max)
    }
}
