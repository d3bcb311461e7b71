//! When the next one comes.

use std::time::Duration;

/// The times between one I/O and the next.
#[derive(Clone, Debug, PartialEq)]
pub enum Arrival {
    /// Equal times.
    Uniform {
        /// I/Os a second.
        rate: f64,
    },
    /// Exponential times: nobody knows of the others.
    Poisson {
        /// I/Os a second.
        rate: f64,
    },
    /// Times of two exponential kinds, short and long: what traces of storage look like (Wajahat
    /// et al. 2020 fit 250 of them).
    Hyper {
        /// I/Os a second, on average.
        rate: f64,
        /// The share of short times.
        share: f64,
        /// How many times shorter they are than the others.
        factor: f64,
    },
    /// Poisson for a while, then nothing for a while; both while's are exponential.
    OnOff {
        /// I/Os a second, on average over both.
        rate: f64,
        /// How long it is on, on average.
        on: Duration,
        /// How long it is off, on average.
        off: Duration,
    },
}

impl Arrival {
    /// I/Os a second, on average.
    pub fn rate(&self) -> f64 {
        match self {
            Arrival::Uniform { rate }
            | Arrival::Poisson { rate }
            | Arrival::Hyper { rate, .. }
            | Arrival::OnOff { rate, .. } => *rate,
        }
    }

    /// The same, so many times as often.
    #[must_use]
    pub fn scaled(mut self, factor: f64) -> Arrival {
        match &mut self {
            Arrival::Uniform { rate }
            | Arrival::Poisson { rate }
            | Arrival::Hyper { rate, .. }
            | Arrival::OnOff { rate, .. } => *rate *= factor,
        }
        self
    }
}

/// Draws the times, one after the other, without drift: equal times are multiples.
#[derive(Clone, Debug)]
pub struct Arrivals {
    arrival: Arrival,
    count: u64,
    /// The last one, s, and until when it is on.
    last: f64,
    on_until: f64,
}

impl Arrivals {
    /// From time zero on.
    pub fn new(arrival: Arrival) -> Arrivals {
        Arrivals { arrival, count: 0, last: 0.0, on_until: 0.0 }
    }

    /// When the next one comes, ns since the beginning.
    pub fn draw(&mut self, random: &mut fastrand::Rng) -> u64 {
        self.count += 1;
        match self.arrival {
            Arrival::Uniform { rate } => self.last = self.count as f64 / rate,
            Arrival::Poisson { rate } => self.last += exponential(1.0 / rate, random),
            Arrival::Hyper { rate, share, factor } => {
                // share·short + (1-share)·factor·short = 1/rate
                let short = 1.0 / (rate * (share + (1.0 - share) * factor));
                let mean = if random.f64() < share { short } else { short * factor };
                self.last += exponential(mean, random);
            }
            Arrival::OnOff { rate, on, off } => {
                let (on, off) = (on.as_secs_f64(), off.as_secs_f64());
                self.last += exponential(on / (rate * (on + off)), random);
                while self.last > self.on_until {
                    let pause = exponential(off, random);
                    let on = exponential(on, random);
                    // What is left of the time to the next one passes while it is on.
                    self.last += pause;
                    self.on_until += pause + on;
                }
            }
        }
        (self.last * 1e9) as u64
    }
}

/// An exponential time with this mean.
pub fn exponential(mean: f64, random: &mut fastrand::Rng) -> f64 {
    -mean * (1.0 - random.f64()).ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mean rate, and the coefficient of variation of the times between.
    fn measure(arrival: Arrival) -> (f64, f64) {
        let (mut arrivals, mut random) = (Arrivals::new(arrival), fastrand::Rng::with_seed(7));
        let mut last = 0;
        let gaps: Vec<f64> = (0..200_000)
            .map(|_| {
                let at = arrivals.draw(&mut random);
                assert!(at >= last, "time goes on");
                (at - std::mem::replace(&mut last, at)) as f64 / 1e9
            })
            .collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let square = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        (1.0 / mean, square.sqrt() / mean)
    }

    #[test]
    fn each_has_the_rate_that_it_says_and_its_own_variation() {
        let (rate, variation) = measure(Arrival::Uniform { rate: 3000.0 });
        assert!((rate - 3000.0).abs() < 0.1 && variation < 0.001, "{rate} {variation}");
        let (rate, variation) = measure(Arrival::Poisson { rate: 3000.0 });
        assert!((rate / 3000.0 - 1.0).abs() < 0.02, "{rate}");
        assert!((variation - 1.0).abs() < 0.02, "{variation}");
        let (rate, variation) = measure(Arrival::Hyper { rate: 3000.0, share: 0.9, factor: 20.0 });
        assert!((rate / 3000.0 - 1.0).abs() < 0.05 && variation > 1.5, "{rate} {variation}");
        let (on, off) = (Duration::from_millis(1), Duration::from_millis(4));
        let (rate, variation) = measure(Arrival::OnOff { rate: 3000.0, on, off });
        assert!((rate / 3000.0 - 1.0).abs() < 0.05 && variation > 1.5, "{rate} {variation}");
    }

    #[test]
    fn equal_times_do_not_drift() {
        let mut arrivals = Arrivals::new(Arrival::Uniform { rate: 7.0 });
        let mut random = fastrand::Rng::with_seed(1);
        let last = (0..7_000_000).map(|_| arrivals.draw(&mut random)).last();
        assert_eq!(last, Some(1_000_000_000_000_000));
    }
}
