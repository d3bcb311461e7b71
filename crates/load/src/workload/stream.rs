//! Open loop: I/Os are issued at their times, whatever the state of earlier ones.

use super::arrival::Arrivals;
use super::{Arrival, Draw, Drawer, Mix};
use crate::{Event, Request};
use base::{Automaton, Instant};
use std::time::Duration;

/// Lead time of requests, and the call interval: the filament is never called when an I/O is due.
const AHEAD_NS: u64 = 20_000_000;
const EVERY: Duration = Duration::from_millis(10);

/// Maximum I/Os requested per call; at high rates the filament is called more often.
const ONCE_MAX: usize = 4096;

/// Stream of I/Os.
#[derive(Clone, Debug)]
pub struct Stream<D = Drawer> {
    arrivals: Arrivals,
    drawer: D,
    /// Time drawn but not yet requested.
    next: Option<u64>,
    begin: u64,
    end: u64,
    left: u64,
}

impl Stream {
    /// Creates a stream of `count` I/Os that starts at `begin`.
    pub fn new(arrival: Arrival, mix: Mix, seed: u64, begin: Duration, count: u64) -> Stream {
        Stream::of(arrival, Drawer::new(mix, seed), begin, count)
    }
}

impl<D: Draw> Stream<D> {
    /// Creates a stream with I/Os of another source.
    pub fn of(arrival: Arrival, drawer: D, begin: Duration, count: u64) -> Stream<D> {
        let begin = u64::try_from(begin.as_nanos()).unwrap_or(u64::MAX);
        let arrivals = Arrivals::new(arrival);
        Stream { arrivals, drawer, next: None, begin, end: u64::MAX, left: count }
    }

    /// Ends the stream at `end`.
    pub fn until(mut self, end: Duration) -> Stream<D> {
        self.end = u64::try_from(end.as_nanos()).unwrap_or(u64::MAX);
        self
    }
}

impl<D: Draw> Automaton for Stream<D> {
    type Input = Event;
    type Output = Request;

    fn step(&mut self, now: Instant, _: Event, out: &mut Vec<Request>) {
        for _ in 0..ONCE_MAX {
            if self.left == 0 {
                return;
            }
            let drawn = match self.next.take() {
                Some(drawn) => drawn,
                None => self.begin.saturating_add(self.arrivals.draw(self.drawer.random())),
            };
            if drawn >= self.end {
                self.left = 0;
                return;
            }
            if drawn > now.0 + AHEAD_NS {
                self.next = Some(drawn);
                let wake = Instant(drawn - AHEAD_NS).max(now + EVERY);
                return out.push(Request::Timer { at: wake, tag: 0 });
            }
            self.left -= 1;
            out.push(Request::io(Instant(drawn), self.drawer.draw()));
        }
        // Half of the requested I/Os are past by then.
        let last = out.last().map_or(now, Request::at);
        let at = Instant(now.0 + last.0.saturating_sub(now.0) / 2);
        out.push(Request::Timer { at, tag: 0 });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulated::{Queueing, run, run_until};

    fn stream(rate: f64, count: u64) -> Vec<Box<dyn crate::Filament>> {
        let arrival = Arrival::Uniform { rate };
        vec![Box::new(Stream::new(arrival, Mix::default(), 1, Duration::ZERO, count))]
    }

    #[test]
    fn its_times_are_its_own_however_slow_the_target_is() {
        let mut slow = Queueing::new(1, Duration::from_millis(3), Duration::ZERO);
        let run = run(stream(1000.0, 50), &mut slow);
        let times: Vec<u64> = run.records.iter().map(|r| r.scheduled_ns).collect();
        assert!(times.iter().enumerate().all(|(i, at)| *at == (i as u64 + 1) * 1_000_000));
        assert_eq!(run.records[49].completed_ns, 151_000_000);
    }

    #[test]
    fn high_rates_and_low_ones_lose_nothing() {
        for (rate, count) in [(2_000_000.0, 1_000_000), (3.0, 15)] {
            let end = Instant((count as f64 / rate * 1e9) as u64 + 1);
            let mut quick = crate::simulated::Instantly;
            let run = run_until(stream(rate, u64::MAX), &mut quick, end);
            assert_eq!(run.records.len(), count);
        }
    }
}
