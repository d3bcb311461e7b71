//! Deliberate distortion of a trace's times, to study the effect of issue errors on measurements
//! (*Buttress*, §6.4 and Figure 9).
//!
//! *Quantized* times are rounded down to multiples of a span, as if a scheduler ran only then
//! (`Q-X`). *Delayed* times increase by a random time, uniform from 0 to twice the mean (`UD-X`);
//! I/Os may overtake each other and are sorted again in a window of at most [`WINDOW_MAX`] I/Os.
//!
//! The distorted times are the new schedule: lateness and response are measured from them, **not**
//! from the original times. The results show the target's reaction to such a load; the error of the
//! distortion itself is known.

use super::{Error, Traced};
use base::rng::{Rng, seeded};
use std::collections::BTreeMap;

/// Maximum I/Os buffered for sorting.
pub const WINDOW_MAX: usize = 1 << 20;

/// Changes to times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Distortion {
    /// Quantum in ns; 0 for none.
    pub quantum_ns: u64,
    /// Mean delay in ns; 0 for none. Delays are applied before quantization.
    pub delay_ns_mean: u64,
    /// Random seed of the delays.
    pub seed: u64,
}

impl Distortion {
    /// Applies the distortion to records.
    pub fn of<I>(self, inner: I) -> Distorted<I>
    where
        I: Iterator<Item = Result<Traced, Error>>,
    {
        let rng = seeded(self.seed);
        Distorted {
            inner,
            distortion: self,
            rng,
            held: BTreeMap::new(),
            number: 0,
            seen: Seen::Ns(0),
        }
    }

    fn time(&self, at_ns: u64, rng: &mut Rng) -> u64 {
        let delay_ns = match self.delay_ns_mean {
            0 => 0,
            mean => rng.u64(0..=mean.saturating_mul(2)),
        };
        let at_ns = at_ns.saturating_add(delay_ns);
        at_ns - at_ns.checked_rem(self.quantum_ns).unwrap_or(0)
    }
}

/// Progress in the original trace.
#[derive(Debug)]
enum Seen {
    /// Read up to this time: nothing earlier follows.
    Ns(u64),
    /// Read to the end, or to an error that follows the buffered records.
    End(Option<Error>),
}

/// Records at distorted times, in order.
#[derive(Debug)]
pub struct Distorted<I> {
    inner: I,
    distortion: Distortion,
    rng: Rng,
    /// Buffered records, by time and number in the original.
    held: BTreeMap<(u64, u64), Traced>,
    number: u64,
    seen: Seen,
}

impl<I: Iterator<Item = Result<Traced, Error>>> Distorted<I> {
    /// Reports whether the first buffered record is final.
    fn is_settled(&self) -> bool {
        let quantum_ns = self.distortion.quantum_ns;
        match (&self.seen, self.held.first_key_value()) {
            (Seen::End(_), _) => true,
            (Seen::Ns(seen_ns), Some(((at_ns, _), _))) => {
                let least_ns = seen_ns - seen_ns.checked_rem(quantum_ns).unwrap_or(0);
                *at_ns <= least_ns || self.held.len() > WINDOW_MAX
            }
            (Seen::Ns(_), None) => false,
        }
    }

    fn read(&mut self) {
        match self.inner.next() {
            Some(Ok(record)) => {
                self.seen = Seen::Ns(record.at_ns);
                let at_ns = self.distortion.time(record.at_ns, &mut self.rng);
                self.held.insert((at_ns, self.number), Traced { at_ns, ..record });
                self.number += 1;
            }
            Some(Err(error)) => self.seen = Seen::End(Some(error)),
            None => self.seen = Seen::End(None),
        }
    }
}

impl<I: Iterator<Item = Result<Traced, Error>>> Iterator for Distorted<I> {
    type Item = Result<Traced, Error>;

    fn next(&mut self) -> Option<Result<Traced, Error>> {
        while !self.is_settled() {
            self.read();
        }
        if let Some((_, record)) = self.held.pop_first() {
            return Some(Ok(record));
        }
        match &mut self.seen {
            Seen::End(error) => error.take().map(Err),
            Seen::Ns(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Io;

    fn distorted(distortion: Distortion, times: &[u64]) -> Vec<(u64, u64)> {
        let record = |(number, at_ns): (usize, &u64)| {
            let io = Io { offset: number as u64, ..Io::default() };
            Ok(Traced { at_ns: *at_ns, io, ..Traced::default() })
        };
        let records = times.iter().enumerate().map(record).collect::<Vec<_>>();
        let out = distortion.of(records.into_iter());
        out.map(|record| record.map(|r| (r.at_ns, r.io.offset)).expect("no error")).collect()
    }

    #[test]
    fn quantized_times_are_multiples_and_keep_their_order() {
        let distortion = Distortion { quantum_ns: 10, ..Distortion::default() };
        let out = distorted(distortion, &[0, 9, 10, 19, 25]);
        assert_eq!(out, [(0, 0), (0, 1), (10, 2), (10, 3), (20, 4)]);
    }

    #[test]
    fn delayed_ones_are_all_there_in_order_and_late_by_the_mean() {
        let times: Vec<u64> = (0..20_000).map(|number| number * 10).collect();
        let distortion = Distortion { delay_ns_mean: 1000, seed: 7, ..Distortion::default() };
        let out = distorted(distortion, &times);
        assert!(out.is_sorted() && out.len() == times.len());
        let delays: Vec<u64> = out.iter().map(|(at, number)| at - number * 10).collect();
        assert!(delays.iter().all(|delay| *delay <= 2000));
        let mean = delays.iter().sum::<u64>() as f64 / delays.len() as f64;
        assert!((950.0..1050.0).contains(&mean), "{mean}");
        let mut numbers: Vec<u64> = out.iter().map(|(_, number)| *number).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (0..20_000).collect::<Vec<u64>>());
    }

    #[test]
    fn without_a_distortion_and_before_an_error_nothing_changes() {
        assert_eq!(distorted(Distortion::default(), &[0, 5, 5]), [(0, 0), (5, 1), (5, 2)]);
        let error = || Error::Lacking { what: "an end".to_string() };
        let records = vec![Ok(Traced::default()), Err(error())];
        let distortion = Distortion { delay_ns_mean: 50, ..Distortion::default() };
        let mut out = distortion.of(records.into_iter());
        assert!(out.next().is_some_and(|record| record.is_ok()));
        assert_eq!((out.next(), out.next()), (Some(Err(error())), None));
    }
}
