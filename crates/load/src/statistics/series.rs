//! Time series of a run: counts, bytes and queue length in short intervals.
//!
//! Intervals are initially 10 ms wide. Beyond [`TICKS_MAX`] intervals, ten are merged into one, so
//! memory is bounded (1 MiB) for runs of any length, and widths stay round.
//!
//! The queue is the set of issued but uncompleted I/Os. The integral of its length over an interval
//! is the sum of the times that I/Os spend in it. It is computed exactly and without sorting: an
//! I/O adds partial times to the intervals of its start and its end, and a difference array counts
//! the intervals in between. The prefix sum of that array is the exact queue length at each
//! interval boundary.

use crate::io::{Outcome, Record};

/// Initial interval width, in ns.
pub(super) const TICK_NS: u64 = 10_000_000;
/// Maximum number of intervals.
pub(super) const TICKS_MAX: usize = 12_000;
/// Number of intervals merged into one.
pub(super) const COARSEN: usize = 10;
/// Upper bound of external times (146 years), in ns.
pub(super) const TIME_MAX: u64 = u64::MAX >> 2;

/// Interval of the series.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tick {
    /// Scheduled I/Os.
    pub scheduled: u64,
    /// Issued I/Os.
    pub issued: u64,
    /// Completed I/Os.
    pub completed: u64,
    /// Those of them that failed.
    pub failed: u64,
    /// Bytes transferred by the completed I/Os.
    pub bytes: u64,
    /// Sum of the response times of successful I/Os completed in it, in ns.
    pub response_sum_ns: u64,
    /// Maximum of these response times, in ns.
    pub response_ns_max: u64,
    /// Maximum lateness of the I/Os issued in it, in ns.
    pub lateness_ns_max: u64,
    /// Time spent in the interval by I/Os that start or end in it, minus the whole widths that the
    /// prefix sum overcounts, in ns.
    partial_ns: i128,
    /// Difference of the queue length at the start of this interval to that at the start of the
    /// previous one.
    step: i64,
    /// Maximum queue length known from other sources: from within the interval, or from before it
    /// was merged.
    queue_max: u64,
}

/// Queue in one interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Queue {
    /// Exact mean length.
    pub mean: f64,
    /// Exact length at the start of the interval.
    pub at_start: u64,
    /// Lower bound of the maximum length.
    pub max: u64,
}

/// All intervals of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    width_ns: u64,
    ticks: Vec<Tick>,
    /// Start and index of the last interval used. Consecutive times of a batch mostly fall into the
    /// same one, which saves the division.
    last: (u64, usize),
}

impl Default for Series {
    fn default() -> Series {
        Series { width_ns: TICK_NS, ticks: Vec::new(), last: (0, 0) }
    }
}

impl Series {
    /// Returns the interval width, in ns.
    pub fn width_ns(&self) -> u64 {
        self.width_ns
    }

    /// Returns the intervals, from the start of the run.
    pub fn ticks(&self) -> &[Tick] {
        &self.ticks
    }

    /// Returns the queue length in each interval.
    pub(super) fn queue(&self) -> Vec<Queue> {
        let mut in_flight = 0i64;
        let widths = self.width_ns as f64;
        let length = |tick: &Tick| {
            in_flight += tick.step;
            let at_start = u64::try_from(in_flight).unwrap_or(0);
            let area = tick.partial_ns + i128::from(in_flight) * i128::from(self.width_ns);
            let mean = area.max(0) as f64 / widths;
            let max = at_start.max(mean.ceil() as u64).max(tick.queue_max);
            Queue { mean, at_start, max }
        };
        self.ticks.iter().map(length).collect()
    }

    /// Adds a record.
    pub(super) fn add(&mut self, record: &Record) {
        if record.outcome == Outcome::Skipped {
            let scheduled = self.tick_of(record.scheduled_ns);
            self.ticks[scheduled].scheduled += 1;
            return;
        }
        // The latest time first: it may widen the intervals, which changes all indices.
        let latest_ns = record.completed_ns.max(record.issued_ns).max(record.scheduled_ns);
        if latest_ns / TICK_NS >= TICKS_MAX as u64 {
            self.tick_of(latest_ns);
        }
        let scheduled = self.tick_of(record.scheduled_ns);
        let start = self.tick_of(record.issued_ns);
        let end = self.tick_of(record.completed_ns);
        self.ticks[scheduled].scheduled += 1;
        let issued = &mut self.ticks[start];
        issued.issued += 1;
        issued.lateness_ns_max = issued.lateness_ns_max.max(record.lateness_ns());
        self.ticks[end].complete(record);
        self.occupy(start, end, record);
    }

    /// Records a queue length at a time within an existing interval.
    pub(super) fn note_queue(&mut self, time_ns: u64, length: i64) {
        let index = (time_ns / self.width_ns) as usize;
        if let (Some(tick), Ok(length)) = (self.ticks.get_mut(index), u64::try_from(length)) {
            tick.queue_max = tick.queue_max.max(length);
        }
    }

    /// Adds the time of an I/O in the queue, from one interval to another.
    fn occupy(&mut self, first: usize, last: usize, record: &Record) {
        let (from, to) = (record.issued_ns.min(TIME_MAX), record.completed_ns.min(TIME_MAX));
        if to <= from {
            return;
        }
        if first == last {
            self.ticks[first].partial_ns += i128::from(to - from);
            return;
        }
        let width = self.width_ns;
        self.ticks[first].partial_ns += i128::from((first as u64 + 1) * width - from);
        self.ticks[first + 1].step += 1;
        self.ticks[last].partial_ns += i128::from(to - last as u64 * width) - i128::from(width);
        if last + 1 == self.ticks.len() {
            self.ticks.push(Tick::default());
        }
        self.ticks[last + 1].step -= 1;
    }

    /// Returns the index of the interval at a time, and creates missing ones.
    #[inline]
    fn tick_of(&mut self, time_ns: u64) -> usize {
        let (start, index) = self.last;
        if time_ns.wrapping_sub(start) < self.width_ns && index < self.ticks.len() {
            return index;
        }
        self.look_up(time_ns.min(TIME_MAX))
    }

    #[cold]
    fn look_up(&mut self, time_ns: u64) -> usize {
        while time_ns / self.width_ns >= TICKS_MAX as u64 {
            self.coarsen();
        }
        let index = (time_ns / self.width_ns) as usize;
        if index >= self.ticks.len() {
            self.ticks.resize(index + 1, Tick::default());
        }
        self.last = (index as u64 * self.width_ns, index);
        index
    }

    /// Merges each ten intervals into one. Counts and integrals stay exact.
    fn coarsen(&mut self) {
        let queue = self.queue();
        let in_flight_at_end: i64 = self.ticks.iter().map(|tick| tick.step).sum();
        let mut at_start_before = 0;
        let ticks = self.ticks.chunks(COARSEN).zip(queue.chunks(COARSEN));
        let coarse = ticks.map(|(ticks, queue)| {
            let mut sum = ticks[0];
            ticks[1..].iter().for_each(|tick| sum.count(tick));
            let in_flight = queue[0].at_start as i64;
            let whole = |queue: &Queue| i128::from(queue.at_start) * i128::from(self.width_ns);
            let area: i128 = queue.iter().zip(ticks).map(|(q, t)| whole(q) + t.partial_ns).sum();
            let width = i128::from(self.width_ns) * COARSEN as i128;
            sum.partial_ns = area - i128::from(in_flight) * width;
            sum.step = in_flight - at_start_before;
            sum.queue_max = queue.iter().map(|queue| queue.max).max().unwrap_or(0);
            at_start_before = in_flight;
            sum
        });
        self.ticks = coarse.collect();
        // I/Os in flight at the start of the last interval must end there.
        self.ticks.push(Tick { step: in_flight_at_end - at_start_before, ..Tick::default() });
        self.width_ns *= COARSEN as u64;
        self.last = (0, 0);
    }

    /// Merges another series of the same run.
    pub(super) fn merge(&mut self, other: &Series) {
        let mut other = other.clone();
        while self.width_ns < other.width_ns {
            self.coarsen();
        }
        while other.width_ns < self.width_ns {
            other.coarsen();
        }
        if self.ticks.len() < other.ticks.len() {
            self.ticks.resize(other.ticks.len(), Tick::default());
        }
        for (mine, theirs) in self.ticks.iter_mut().zip(&other.ticks) {
            mine.count(theirs);
            mine.partial_ns += theirs.partial_ns;
            mine.step += theirs.step;
            mine.queue_max = mine.queue_max.max(theirs.queue_max);
        }
    }
}

impl Tick {
    fn complete(&mut self, record: &Record) {
        self.completed += 1;
        let Outcome::Done(_) = record.outcome else {
            self.failed += 1;
            return;
        };
        let response_ns = record.response_ns();
        self.bytes += super::moved(record);
        self.response_sum_ns = self.response_sum_ns.saturating_add(response_ns);
        self.response_ns_max = self.response_ns_max.max(response_ns);
    }

    /// Adds the counts of another interval without its queue.
    fn count(&mut self, other: &Tick) {
        self.scheduled += other.scheduled;
        self.issued += other.issued;
        self.completed += other.completed;
        self.failed += other.failed;
        self.bytes += other.bytes;
        self.response_sum_ns = self.response_sum_ns.saturating_add(other.response_sum_ns);
        self.response_ns_max = self.response_ns_max.max(other.response_ns_max);
        self.lateness_ns_max = self.lateness_ns_max.max(other.lateness_ns_max);
    }

    /// Mean response time of successful I/Os in ns; 0 without any.
    pub fn response_ns_mean(&self) -> f64 {
        self.response_sum_ns as f64 / (self.completed - self.failed).max(1) as f64
    }
}
