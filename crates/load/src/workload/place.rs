//! Distributions of offsets.

use super::Weighted;

/// Distribution of offsets.
#[derive(Clone, Debug, PartialEq)]
pub enum OffsetDistribution {
    /// Uniform distribution.
    Uniform,
    /// Zipf distribution: the probability of the k-th most popular position is proportional to k to
    /// the power of -theta. Popular positions are spread over the whole range.
    Zipf {
        /// Exponent. 0 is uniform; 0.99 is typical of web caches and key-value stores. Not 1.
        theta: f64,
    },
    /// Consecutive positions, wrapping at the end.
    Sequential,
    /// Positions at a fixed stride.
    Strided {
        /// Stride, in bytes.
        stride: u64,
    },
    /// Weighted random choice among distributions.
    Mixed(Vec<(OffsetDistribution, f64)>),
}

/// Range of offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffsetRange {
    /// Length of the range, in bytes.
    pub span: u64,
    /// Maximum I/O size, in bytes.
    pub longest: u64,
    /// Alignment of offsets, in bytes.
    pub align: u64,
    /// Alignment of sequential offsets in bytes: a common divisor of all sizes, so that I/Os are
    /// contiguous.
    pub grain: u64,
}

impl OffsetRange {
    /// Number of positions with room for the largest I/O.
    fn places(&self) -> u64 {
        (self.span.saturating_sub(self.longest) / self.align.max(1)).saturating_add(1)
    }
}

/// Generator of offsets: an I/O ends within the range, if it fits into it at all.
#[derive(Clone, Debug)]
pub struct Placer {
    way: PlacerKind,
    places: u64,
    range: OffsetRange,
}

#[derive(Clone, Debug)]
enum PlacerKind {
    Uniform,
    Zipf(Zipf),
    /// End of the last I/O.
    Sequential(u64),
    Strided {
        stride: u64,
        next: u64,
    },
    Mixed(Weighted<Placer>),
}

impl Placer {
    /// Creates a generator for this range.
    pub fn new(place: &OffsetDistribution, range: OffsetRange) -> Placer {
        let range = OffsetRange { align: range.align.max(1), grain: range.grain.max(1), ..range };
        let places = range.places();
        let way = match place {
            OffsetDistribution::Uniform => PlacerKind::Uniform,
            OffsetDistribution::Zipf { theta } => PlacerKind::Zipf(Zipf::new(places, *theta)),
            OffsetDistribution::Sequential => PlacerKind::Sequential(0),
            OffsetDistribution::Strided { stride } => {
                PlacerKind::Strided { stride: *stride, next: 0 }
            }
            OffsetDistribution::Mixed(among) => {
                let inner = |(place, weight): &(OffsetDistribution, f64)| {
                    (Placer::new(place, range), *weight)
                };
                PlacerKind::Mixed(Weighted::new(among.iter().map(inner).collect()))
            }
        };
        Placer { way, places, range }
    }

    /// Draws the offset of the next I/O of `len` bytes.
    pub fn draw(&mut self, len: u64, random: &mut fastrand::Rng) -> u64 {
        let OffsetRange { span, align, grain, .. } = self.range;
        match &mut self.way {
            PlacerKind::Uniform => random.u64(..self.places) * align,
            PlacerKind::Zipf(zipf) => spread(zipf.draw(random), self.places) * align,
            PlacerKind::Sequential(next) => {
                let fits = next.checked_add(len).is_some_and(|end| end <= span);
                let here = if fits { *next } else { 0 };
                let taken = len.max(1).checked_next_multiple_of(grain).unwrap_or(u64::MAX);
                *next = here.saturating_add(taken);
                here
            }
            PlacerKind::Strided { stride, next } => {
                let here = *next / align * align;
                let round = u128::from(self.places) * u128::from(align);
                *next = ((u128::from(*next) + u128::from(*stride)) % round) as u64;
                here
            }
            PlacerKind::Mixed(among) => among.draw_mut(random).draw(len, random),
        }
    }
}

/// Permutes the positions, so that popular ones are not adjacent.
fn spread(rank: u64, places: u64) -> u64 {
    // Multiplication by a number coprime to the modulus is a permutation; otherwise a few positions
    // repeat, which is harmless for a workload.
    const PRIME: u64 = 2_654_435_761;
    ((u128::from(rank) * u128::from(PRIME)) % u128::from(places)) as u64
}

/// Zipf distribution by rejection-inversion (Hörmann and Derflinger 1996): no table, and a constant
/// time per draw for any number of positions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Zipf {
    count: f64,
    exponent: f64,
    integral_first: f64,
    integral_last: f64,
    squeeze: f64,
}

impl Zipf {
    /// Creates a distribution over ranks below `count`.
    pub(super) fn new(count: u64, theta: f64) -> Zipf {
        let exponent = if (theta - 1.0).abs() < 1e-6 { 1.0 + 1e-6 } else { theta };
        let mut zipf = Zipf {
            count: count as f64,
            exponent,
            integral_first: 0.0,
            integral_last: 0.0,
            squeeze: 0.0,
        };
        zipf.integral_first = zipf.integral(1.5) - 1.0;
        zipf.integral_last = zipf.integral(count as f64 + 0.5);
        zipf.squeeze = 2.0 - zipf.inverse(zipf.integral(2.5) - 2.0_f64.powf(-exponent));
        zipf
    }

    fn integral(&self, x: f64) -> f64 {
        (x.powf(1.0 - self.exponent) - 1.0) / (1.0 - self.exponent)
    }

    fn inverse(&self, y: f64) -> f64 {
        (1.0 + y * (1.0 - self.exponent)).powf(1.0 / (1.0 - self.exponent))
    }

    /// Draws a rank; 0 is the most popular.
    pub(super) fn draw(&self, random: &mut fastrand::Rng) -> u64 {
        loop {
            let u = self.integral_last + random.f64() * (self.integral_first - self.integral_last);
            let x = self.inverse(u);
            let k = (x + 0.5).floor().clamp(1.0, self.count);
            if k - x <= self.squeeze || u >= self.integral(k + 0.5) - k.powf(-self.exponent) {
                return k as u64 - 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draw(place: &OffsetDistribution, places: u64, count: usize) -> Vec<u64> {
        let range = OffsetRange { span: places * 4096, longest: 4096, align: 4096, grain: 4096 };
        let mut placer = Placer::new(place, range);
        let mut random = fastrand::Rng::with_seed(3);
        (0..count).map(|_| placer.draw(4096, &mut random) / 4096).collect()
    }

    #[test]
    fn sequential_and_strided_places_come_round() {
        assert_eq!(draw(&OffsetDistribution::Sequential, 3, 7), [0, 1, 2, 0, 1, 2, 0]);
        assert_eq!(
            draw(&OffsetDistribution::Strided { stride: 3 * 4096 }, 8, 6),
            [0, 3, 6, 1, 4, 7]
        );
    }

    #[test]
    fn sequential_places_of_several_sizes_touch_and_end_within_the_span() {
        let range = OffsetRange { span: 1_000_000, longest: 65536, align: 65536, grain: 4096 };
        let mut placer = Placer::new(&OffsetDistribution::Sequential, range);
        let mut random = fastrand::Rng::with_seed(3);
        let mut expected = 0;
        for _ in 0..10_000 {
            let len = 4096 * random.u64(1..=16);
            let here = placer.draw(len, &mut random);
            let rounds = expected + len > range.span;
            assert_eq!(here, if rounds { 0 } else { expected });
            expected = here + len;
            assert!(expected <= range.span);
        }
    }

    #[test]
    fn zipf_ranks_have_the_likelihoods_of_its_formula() {
        for theta in [0.5, 0.99, 1.0, 1.2] {
            let (zipf, mut random) = (Zipf::new(1000, theta), fastrand::Rng::with_seed(1));
            let mut counts = vec![0_u32; 1000];
            (0..400_000).for_each(|_| counts[zipf.draw(&mut random) as usize] += 1);
            let total: f64 = (1..=1000).map(|k| f64::from(k).powf(-theta)).sum();
            for rank in [0, 1, 4, 50, 999] {
                let expected = f64::from(rank + 1).powf(-theta) / total * 400_000.0;
                let found = f64::from(counts[rank as usize]);
                let slack = 5.0 * expected.sqrt();
                assert!((found - expected).abs() < slack, "{theta} {rank}: {found} {expected}");
            }
        }
    }

    #[test]
    fn mixtures_stay_within_the_places() {
        let mixed = OffsetDistribution::Mixed(vec![
            (OffsetDistribution::Uniform, 1.0),
            (OffsetDistribution::Zipf { theta: 0.9 }, 1.0),
            (OffsetDistribution::Sequential, 1.0),
        ]);
        let drawn = draw(&mixed, 100, 10_000);
        assert!(drawn.iter().all(|place| *place < 100));
        assert!((0..100).all(|place| drawn.contains(&place)));
    }
}
