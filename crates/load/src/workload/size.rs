//! How much the next one moves.

use super::choose;

/// Sizes of I/Os, bytes.
#[derive(Clone, Debug, PartialEq)]
pub enum Size {
    /// All the same.
    Fixed(u32),
    /// One of these, by weight.
    Choice(Vec<(u32, f64)>),
    /// Anything between, both included, in steps.
    Range {
        /// At least.
        min: u32,
        /// At most.
        max: u32,
        /// A multiple of this above the least.
        step: u32,
    },
}

impl Size {
    /// The largest.
    pub fn max(&self) -> u32 {
        match self {
            Size::Fixed(size) | Size::Range { max: size, .. } => *size,
            Size::Choice(among) => among.iter().map(|(size, _)| *size).max().unwrap_or(0),
        }
    }

    /// The next one.
    pub fn draw(&self, random: &mut fastrand::Rng) -> u32 {
        match self {
            Size::Fixed(size) => *size,
            Size::Choice(among) => *choose(among, random),
            Size::Range { min, max, step } => {
                let steps = max.saturating_sub(*min) / (*step).max(1);
                min + random.u32(..=steps) * step
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_that_were_named() {
        let mut random = fastrand::Rng::with_seed(5);
        let choice = Size::Choice(vec![(512, 1.0), (4096, 3.0)]);
        let drawn: Vec<u32> = (0..10_000).map(|_| choice.draw(&mut random)).collect();
        let large = drawn.iter().filter(|size| **size == 4096).count();
        assert!((7300..7700).contains(&large), "{large}");
        assert_eq!(choice.max(), 4096);
        let range = Size::Range { min: 1024, max: 3000, step: 1024 };
        assert!((0..1000).all(|_| matches!(range.draw(&mut random), 1024 | 2048)));
    }
}
