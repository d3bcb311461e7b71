//! Where the next one goes.

/// How places are chosen.
#[derive(Clone, Debug, PartialEq)]
pub enum Place {
    /// Each as likely as any other.
    Uniform,
    /// A few are chosen most of the time: the k-th most popular with a likelihood proportional to
    /// k to the power of -theta. The popular ones are spread over the whole.
    Zipf {
        /// 0: uniform; 0.99: as web caches and key-value stores see it. Not 1.
        theta: f64,
    },
    /// One behind the other; from the beginning again at the end.
    Sequential,
    /// Each so many bytes behind the beginning of the last.
    Strided {
        /// Bytes.
        stride: u64,
    },
    /// One of these, by weight, each time.
    Mixed(Vec<(Place, f64)>),
}

/// Draws places: multiples of an alignment.
#[derive(Clone, Debug)]
pub struct Placer {
    way: Way,
    /// So many places there are.
    places: u64,
    align: u64,
}

#[derive(Clone, Debug)]
enum Way {
    Uniform,
    Zipf(Zipf),
    Sequential(u64),
    Strided { stride: u64, next: u64 },
    Mixed(Vec<(Placer, f64)>),
}

impl Placer {
    /// Draws among so many places, `align` bytes apart.
    pub fn new(place: &Place, places: u64, align: u64) -> Placer {
        let places = places.max(1);
        let way = match place {
            Place::Uniform => Way::Uniform,
            Place::Zipf { theta } => Way::Zipf(Zipf::new(places, *theta)),
            Place::Sequential => Way::Sequential(0),
            Place::Strided { stride } => Way::Strided { stride: *stride, next: 0 },
            Place::Mixed(among) => {
                let inner =
                    |(place, weight): &(Place, f64)| (Placer::new(place, places, align), *weight);
                Way::Mixed(among.iter().map(inner).collect())
            }
        };
        Placer { way, places, align }
    }

    /// The offset of the next one, bytes; it has `len` bytes.
    pub fn draw(&mut self, len: u64, random: &mut fastrand::Rng) -> u64 {
        let end = self.places * self.align;
        match &mut self.way {
            Way::Uniform => random.u64(..self.places) * self.align,
            Way::Zipf(zipf) => spread(zipf.draw(random), self.places) * self.align,
            Way::Sequential(next) => {
                let here = if *next >= end { 0 } else { *next };
                *next = here + len.max(1).next_multiple_of(self.align);
                here
            }
            Way::Strided { stride, next } => {
                let here = *next / self.align * self.align;
                *next = (*next + *stride) % end;
                here
            }
            Way::Mixed(among) => {
                let total: f64 = among.iter().map(|(_, weight)| weight).sum();
                let mut left = random.f64() * total;
                let last = among.len() - 1;
                let chosen = among.iter().position(|(_, weight)| {
                    left -= weight;
                    left < 0.0
                });
                among[chosen.unwrap_or(last)].0.draw(len, random)
            }
        }
    }
}

/// A permutation of the places, so that neighbours in popularity are not neighbours in place.
fn spread(rank: u64, places: u64) -> u64 {
    // Multiplying by a number that shares no factor with the modulus permutes; if it does share
    // one, a few places are met twice, which for a workload is as good.
    const PRIME: u64 = 2_654_435_761;
    ((u128::from(rank) * u128::from(PRIME)) % u128::from(places)) as u64
}

/// Zipf's distribution by rejection and inversion (Hörmann and Derflinger 1996): no table, a
/// constant time for a draw, whatever the number of places.
#[derive(Clone, Copy, Debug)]
struct Zipf {
    count: f64,
    exponent: f64,
    integral_first: f64,
    integral_last: f64,
    squeeze: f64,
}

impl Zipf {
    fn new(count: u64, theta: f64) -> Zipf {
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

    /// A rank, 0 the most popular.
    fn draw(&self, random: &mut fastrand::Rng) -> u64 {
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

    fn draw(place: &Place, places: u64, count: usize) -> Vec<u64> {
        let mut placer = Placer::new(place, places, 4096);
        let mut random = fastrand::Rng::with_seed(3);
        (0..count).map(|_| placer.draw(4096, &mut random) / 4096).collect()
    }

    #[test]
    fn sequential_and_strided_places_come_round() {
        assert_eq!(draw(&Place::Sequential, 3, 7), [0, 1, 2, 0, 1, 2, 0]);
        assert_eq!(draw(&Place::Strided { stride: 3 * 4096 }, 8, 6), [0, 3, 6, 1, 4, 7]);
    }

    #[test]
    fn zipf_ranks_have_the_likelihoods_of_its_formula() {
        for theta in [0.5, 0.99, 1.2] {
            let (zipf, mut random) = (Zipf::new(1000, theta), fastrand::Rng::with_seed(1));
            let mut counts = vec![0_u32; 1000];
            (0..400_000).for_each(|_| counts[zipf.draw(&mut random) as usize] += 1);
            let total: f64 = (1..=1000).map(|k| f64::from(k).powf(-theta)).sum();
            for rank in [0, 1, 4, 50] {
                let expected = f64::from(rank + 1).powf(-theta) / total * 400_000.0;
                let found = f64::from(counts[rank as usize]);
                let slack = 5.0 * expected.sqrt();
                assert!((found - expected).abs() < slack, "{theta} {rank}: {found} {expected}");
            }
        }
    }

    #[test]
    fn mixtures_stay_within_the_places() {
        let mixed = Place::Mixed(vec![
            (Place::Uniform, 1.0),
            (Place::Zipf { theta: 0.9 }, 1.0),
            (Place::Sequential, 1.0),
        ]);
        let drawn = draw(&mixed, 100, 10_000);
        assert!(drawn.iter().all(|place| *place < 100));
        assert!((0..100).all(|place| drawn.contains(&place)));
    }
}
