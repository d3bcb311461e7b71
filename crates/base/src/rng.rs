//! Seeded randomness, the only kind there is below the binary.
//!
//! A generator draws its numbers from a seed, or from chosen bytes: with the latter, a fuzzer
//! guided by coverage controls everything that a simulation draws.

use std::ops::{Bound, RangeBounds};

/// A random number generator.
#[derive(Clone, Debug)]
pub struct Rng {
    /// Chosen bytes, used before the seeded numbers, and the number of bytes used up.
    chosen: Option<(Vec<u8>, usize)>,
    seeded: fastrand::Rng,
}

/// Returns a generator that draws the same numbers for the same seed on every machine.
pub fn seeded(seed: u64) -> Rng {
    Rng { chosen: None, seeded: fastrand::Rng::with_seed(seed) }
}

/// Returns a generator that draws its numbers from these bytes, as few for each as its range needs,
/// and continues with a fixed seed when they are used up.
pub fn chosen(bytes: &[u8]) -> Rng {
    Rng { chosen: Some((bytes.to_vec(), 0)), ..seeded(0) }
}

/// Defines one draw for each type.
macro_rules! draws {
    ($($name:ident),*) => {$(
        #[doc = concat!("Draws a `", stringify!($name), "` of a range.")]
        ///
        /// # Panics
        ///
        /// If the range is empty.
        pub fn $name(&mut self, range: impl RangeBounds<$name>) -> $name {
            if self.chosen.is_none() {
                return self.seeded.$name(range);
            }
            let low = match range.start_bound() {
                Bound::Included(low) => *low,
                Bound::Excluded(low) => low.checked_add(1).expect("the range is not empty"),
                Bound::Unbounded => $name::MIN,
            };
            let high = match range.end_bound() {
                Bound::Included(high) => *high,
                Bound::Excluded(high) => high.checked_sub(1).expect("the range is not empty"),
                Bound::Unbounded => $name::MAX,
            };
            assert!(low <= high, "an empty range");
            // Signed numbers included: the difference is right modulo 2^128.
            let span = (high as u128).wrapping_sub(low as u128);
            (low as u128).wrapping_add(self.up_to(span)) as $name
        }
    )*};
}

impl Rng {
    draws!(u8, u16, u32, u64, u128, usize, i8, i64);

    /// Draws a boolean.
    pub fn bool(&mut self) -> bool {
        match self.chosen {
            None => self.seeded.bool(),
            Some(_) => self.up_to(1) == 1,
        }
    }

    /// Draws a number from 0 inclusive to 1 exclusive.
    pub fn f64(&mut self) -> f64 {
        match self.chosen {
            None => self.seeded.f64(),
            Some(_) => self.up_to(u128::from(u32::MAX)) as f64 / (f64::from(u32::MAX) + 1.0),
        }
    }

    /// Draws an item; `None` if there are none.
    pub fn choice<I>(&mut self, items: I) -> Option<I::Item>
    where
        I: IntoIterator,
        I::IntoIter: ExactSizeIterator,
    {
        let mut items = items.into_iter();
        match items.len() {
            0 => None,
            len => items.nth(self.usize(..len)),
        }
    }

    /// Shuffles items.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for index in 1..items.len() {
            items.swap(index, self.usize(..=index));
        }
    }

    /// Fills the slice with random bytes.
    pub fn fill(&mut self, into: &mut [u8]) {
        match self.chosen {
            None => self.seeded.fill(into),
            Some(_) => into.iter_mut().for_each(|byte| *byte = self.u8(..)),
        }
    }

    /// Returns a number from 0 to `most`, drawn from the chosen bytes.
    fn up_to(&mut self, most: u128) -> u128 {
        let Some((bytes, used)) = &mut self.chosen else { return self.seeded.u128(..=most) };
        let width = (u128::BITS - most.leading_zeros()).div_ceil(8) as usize;
        let Some(next) = bytes.get(*used..*used + width) else {
            return self.seeded.u128(..=most);
        };
        *used += width;
        let number = next.iter().rev().fold(0, |sum, byte| sum << 8 | u128::from(*byte));
        most.checked_add(1).map_or(number, |count| number % count)
    }
}

#[cfg(test)]
mod tests {
    use super::{chosen, seeded};

    #[test]
    fn a_seed_gives_the_numbers_that_it_always_gave() {
        let (mut ours, mut theirs) = (seeded(7), fastrand::Rng::with_seed(7));
        for _ in 0..100 {
            assert_eq!(ours.usize(..31), theirs.usize(..31));
            assert_eq!(ours.i64(-5..=5), theirs.i64(-5..=5));
            assert_eq!(ours.bool(), theirs.bool());
            assert_eq!(ours.choice([1, 2, 3]), theirs.choice([1, 2, 3]));
            let (mut one, mut two) = ([1, 2, 3, 4, 5], [1, 2, 3, 4, 5]);
            ours.shuffle(&mut one);
            theirs.shuffle(&mut two);
            assert_eq!(one, two);
        }
    }

    #[test]
    fn chosen_bytes_are_the_numbers() {
        let mut rng = chosen(&[1, 9, 0x34, 0x12, 150, 3]);
        assert!(rng.bool());
        assert_eq!(rng.usize(..10), 9);
        assert_eq!(rng.u16(..), 0x1234);
        assert_eq!(rng.i8(-100..=100), 50);
        assert_eq!(rng.u8(5..6), 5, "a range of one takes no byte");
        assert_eq!(rng.choice(["a", "b", "c"]), Some("a"), "3 modulo 3");
        let mut rest = seeded(0);
        assert_eq!(rng.u128(..=99), rest.u128(..=99), "and then the seed's");
        assert!((-3..3).contains(&rng.i64(-3..3)));
    }

    #[test]
    #[should_panic = "not empty"]
    fn an_empty_range_is_a_mistake() {
        chosen(&[1, 2, 3]).u64(..0);
    }
}
