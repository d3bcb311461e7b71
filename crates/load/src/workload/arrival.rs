//! Arrival processes.

use std::time::Duration;

/// Distribution of interarrival times.
#[derive(Clone, Debug, PartialEq)]
pub enum Arrival {
    /// Constant interarrival times.
    Uniform {
        /// I/Os per second.
        rate: f64,
    },
    /// Exponential interarrival times: independent arrivals.
    Poisson {
        /// I/Os per second.
        rate: f64,
    },
    /// A mixture of short and long exponential times, as in storage traces (Wajahat et al. 2020 fit
    /// 250 of them).
    Hyperexponential {
        /// Mean I/Os per second.
        rate: f64,
        /// Share of short times.
        share: f64,
        /// Ratio of long to short mean times.
        factor: f64,
    },
    /// Poisson arrivals during exponential on-periods, and none during exponential off-periods.
    OnOff {
        /// Mean I/Os per second over both.
        rate: f64,
        /// Mean on-period.
        on: Duration,
        /// Mean off-period.
        off: Duration,
    },
}

impl Arrival {
    /// Mean I/Os per second.
    pub fn rate(&self) -> f64 {
        match self {
            Arrival::Uniform { rate }
            | Arrival::Poisson { rate }
            | Arrival::Hyperexponential { rate, .. }
            | Arrival::OnOff { rate, .. } => *rate,
        }
    }

    /// Scales the rate by a factor.
    #[must_use]
    pub fn scaled(mut self, factor: f64) -> Arrival {
        match &mut self {
            Arrival::Uniform { rate }
            | Arrival::Poisson { rate }
            | Arrival::Hyperexponential { rate, .. }
            | Arrival::OnOff { rate, .. } => *rate *= factor,
        }
        self
    }
}

/// Generator of arrival times without drift: constant intervals are exact multiples.
#[derive(Clone, Debug)]
pub struct Arrivals {
    arrival: Arrival,
    count: u64,
    /// Last arrival in s, and below the end of the current on-period.
    last: f64,
    on_until: f64,
}

impl Arrivals {
    /// Starts at time zero.
    pub fn new(arrival: Arrival) -> Arrivals {
        Arrivals { arrival, count: 0, last: 0.0, on_until: 0.0 }
    }

    /// Draws the next arrival time, in ns since the start.
    pub fn draw(&mut self, random: &mut fastrand::Rng) -> u64 {
        self.count += 1;
        match self.arrival {
            Arrival::Uniform { rate } => self.last = self.count as f64 / rate,
            Arrival::Poisson { rate } => self.last += exponential(1.0 / rate, random),
            Arrival::Hyperexponential { rate, share, factor } => {
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
                    // The rest of the interarrival time passes in the next on-period.
                    self.last += pause;
                    self.on_until += pause + on;
                }
            }
        }
        (self.last * 1e9) as u64
    }
}

/// Draws an exponential time with this mean.
pub fn exponential(mean: f64, random: &mut fastrand::Rng) -> f64 {
    -mean * (1.0 - random.f64()).ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the mean rate, and the coefficient of variation of interarrival times.
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
        let (rate, variation) =
            measure(Arrival::Hyperexponential { rate: 3000.0, share: 0.9, factor: 20.0 });
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
