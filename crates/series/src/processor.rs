//! Processors that are made as slow as those of the paper.
//!
//! Whoever is to need some time sleeps so long. What the machine adds to a sleep is taken off the
//! next one, as long as there is work in between, so that it does not add up; how late sleeps end
//! is measured.

use crate::bell::Bell;
use crate::spec::cost;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A processor, which one replica or several have.
#[derive(Debug)]
pub(crate) struct Processor {
    /// Until when it has work, and whose that is.
    busy: Mutex<(Instant, usize)>,
    /// To go over from one to another, microseconds.
    switch: u64,
}

impl Processor {
    /// One that has no work.
    pub(crate) fn new(now: Instant, switch: u64) -> Processor {
        Processor { busy: Mutex::new((now, usize::MAX)), switch }
    }

    /// Until when so much work takes that can begin then, behind whatever others have already
    /// begun.
    fn book(&self, me: usize, from: Instant, micros: u64) -> Instant {
        let mut busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        let (until, last) = *busy;
        let switch = if last == me || last == usize::MAX { 0 } else { self.switch };
        *busy = (until.max(from) + cost(micros + switch), me);
        busy.0
    }
}

/// What one part has of a processor.
#[derive(Debug)]
pub(crate) struct Share<'p> {
    processor: &'p Processor,
    me: usize,
    /// When its last work ended, if it has not waited for anything since.
    ended: Option<Instant>,
    /// How late sleeps ended, in all, and how many there were.
    late: (Duration, u32),
    late_max: Duration,
}

impl<'p> Share<'p> {
    /// The share of part `me`.
    pub(crate) fn new(processor: &'p Processor, me: usize) -> Share<'p> {
        let late = (Duration::ZERO, 0);
        Share { processor, me, ended: None, late, late_max: Duration::ZERO }
    }

    /// Needs so much time, microseconds; none after the bell.
    pub(crate) fn work(&mut self, micros: u64, bell: &Bell) {
        if micros == 0 || bell.has_rung() {
            return;
        }
        let from = self.ended.unwrap_or_else(Instant::now);
        let end = self.processor.book(self.me, from, micros);
        bell.sleep(end);
        if !bell.has_rung() {
            let late = Instant::now().saturating_duration_since(end);
            self.late = (self.late.0 + late, self.late.1 + 1);
            self.late_max = self.late_max.max(late);
        }
        self.ended = Some(end);
    }

    /// It has nothing to do.
    pub(crate) fn rest(&mut self) {
        self.ended = None;
    }

    /// How late sleeps ended: in all, how many, and at worst.
    pub(crate) fn lateness(&self) -> (Duration, u32, Duration) {
        (self.late.0, self.late.1, self.late_max)
    }
}
