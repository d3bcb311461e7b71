//! What happened in each short interval of a run: counts, bytes, and the length of the queue.
//!
//! Intervals are 10 ms wide at first. When a run outgrows [`TICKS_MAX`] of them, ten are made into
//! one, so the memory is bounded (a mebibyte) however long a run is, and widths stay round.
//!
//! The queue is the set of I/Os that are issued and not completed. Its length integrated over an
//! interval is the sum of the time each I/O spends in the interval, and that is exact, without
//! sorting: an I/O adds the parts of the two intervals in which it begins and ends, and a
//! difference array counts those it covers from end to end. The prefix sum of that array is the
//! exact length of the queue at each boundary of two intervals.

use crate::io::{Outcome, Record};

/// The width of an interval at first, ns.
pub(super) const TICK_NS: u64 = 10_000_000;
/// No more intervals than this are kept.
pub(super) const TICKS_MAX: usize = 12_000;
/// So many intervals become one.
pub(super) const COARSEN: usize = 10;
/// Times from outside beyond this (146 years) are taken as this.
pub(super) const TIME_MAX: u64 = u64::MAX >> 2;

/// One interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tick {
    /// I/Os that were to be issued in it.
    pub scheduled: u64,
    /// I/Os that were.
    pub issued: u64,
    /// I/Os that completed in it.
    pub completed: u64,
    /// Those of them that the target refused.
    pub failed: u64,
    /// Bytes that went over, of the I/Os that completed in it.
    pub bytes: u64,
    /// The sum of the response times of the I/Os that were done in it, ns.
    pub response_sum_ns: u64,
    /// The longest of them, ns.
    pub response_ns_max: u64,
    /// The greatest lateness of the I/Os issued in it, ns.
    pub lateness_ns_max: u64,
    /// Time spent in the interval by I/Os that begin or end in it, less the whole widths that the
    /// prefix sum counts too much, ns.
    partial_ns: i128,
    /// The difference of the number in flight at the beginning of this interval and of the one
    /// before.
    step: i64,
    /// The longest queue that is known otherwise: from within the interval, or from before it
    /// became part of a wider one.
    queue_max: u64,
}

/// The queue in one interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Queue {
    /// Its mean length, exact.
    pub mean: f64,
    /// How long it was at the beginning of the interval, exact.
    pub at_start: u64,
    /// At least so long it became.
    pub max: u64,
}

/// All intervals of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    width_ns: u64,
    ticks: Vec<Tick>,
    /// The interval looked up last: its start and its number. Times of neighbours in a batch
    /// mostly fall into the same one, which saves the division.
    last: (u64, usize),
}

impl Default for Series {
    fn default() -> Series {
        Series { width_ns: TICK_NS, ticks: Vec::new(), last: (0, 0) }
    }
}

impl Series {
    /// How wide the intervals are, ns.
    pub fn width_ns(&self) -> u64 {
        self.width_ns
    }

    /// The intervals, from the start of the run.
    pub fn ticks(&self) -> &[Tick] {
        &self.ticks
    }

    /// The length of the queue in each interval.
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

    /// Takes up what is known about one I/O.
    pub(super) fn add(&mut self, record: &Record) {
        if record.outcome == Outcome::Skipped {
            let scheduled = self.tick_of(record.scheduled_ns);
            self.ticks[scheduled].scheduled += 1;
            return;
        }
        // The latest time first: it may make the intervals wider, which changes all numbers.
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

    /// The queue is known to have had a length at a time in an interval that is there already.
    pub(super) fn note_queue(&mut self, time_ns: u64, length: i64) {
        let index = (time_ns / self.width_ns) as usize;
        if let (Some(tick), Ok(length)) = (self.ticks.get_mut(index), u64::try_from(length)) {
            tick.queue_max = tick.queue_max.max(length);
        }
    }

    /// The I/O is in the queue from one interval to another.
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

    /// The number of the interval that a time falls into; it is made if it is not there yet.
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

    /// Makes one interval of each ten. Every count and integral stays exact.
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
        // What was in flight at the beginning of the last one is not for ever.
        self.ticks.push(Tick { step: in_flight_at_end - at_start_before, ..Tick::default() });
        self.width_ns *= COARSEN as u64;
        self.last = (0, 0);
    }

    /// Takes up another series of the same run.
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

    /// Adds the counts of another interval, not its queue.
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

    /// The mean response time of the I/Os that were done in it, ns; 0 of none.
    pub fn response_ns_mean(&self) -> f64 {
        self.response_sum_ns as f64 / (self.completed - self.failed).max(1) as f64
    }
}
