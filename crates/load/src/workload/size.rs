//! Distributions of I/O sizes.

use super::Weighted;

/// Distribution of I/O sizes, in bytes.
#[derive(Clone, Debug, PartialEq)]
pub enum Size {
    /// Fixed size.
    Fixed(u32),
    /// Weighted choice.
    Choice(Vec<(u32, f64)>),
    /// Uniform choice from an inclusive range, in steps.
    Range {
        /// Minimum.
        min: u32,
        /// Maximum.
        max: u32,
        /// Step above the minimum.
        step: u32,
    },
}

impl Size {
    /// Returns the maximum size.
    pub fn max(&self) -> u32 {
        match self {
            Size::Fixed(size) | Size::Range { max: size, .. } => *size,
            Size::Choice(among) => among.iter().map(|(size, _)| *size).max().unwrap_or(0),
        }
    }

    /// Returns the greatest common divisor of all sizes.
    pub fn grain(&self) -> u32 {
        match self {
            Size::Fixed(size) => *size,
            Size::Choice(among) => among.iter().fold(0, |grain, (size, _)| common(grain, *size)),
            Size::Range { min, max, step } if max > min => common(*min, *step),
            Size::Range { min, .. } => *min,
        }
    }
}

/// Returns the greatest common divisor.
fn common(mut a: u32, mut b: u32) -> u32 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Generator of sizes.
#[derive(Clone, Debug)]
pub struct Sizer(SizerKind);

#[derive(Clone, Debug)]
enum SizerKind {
    Fixed(u32),
    Choice(Weighted<u32>),
    /// Minimum, step, and maximum number of steps.
    Range(u32, u32, u32),
}

impl Sizer {
    /// Creates a generator.
    ///
    /// # Panics
    /// If it is a choice among none.
    pub fn new(size: &Size) -> Sizer {
        Sizer(match size {
            Size::Fixed(size) => SizerKind::Fixed(*size),
            Size::Choice(among) => SizerKind::Choice(Weighted::new(among.clone())),
            Size::Range { min, max, step } => {
                let step = (*step).max(1);
                SizerKind::Range(*min, step, max.saturating_sub(*min) / step)
            }
        })
    }

    /// Draws the next size.
    pub fn draw(&self, random: &mut fastrand::Rng) -> u32 {
        match &self.0 {
            SizerKind::Fixed(size) => *size,
            SizerKind::Choice(among) => *among.draw(random),
            SizerKind::Range(min, step, steps) => min + random.u32(..=*steps) * step,
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
        let sizer = Sizer::new(&choice);
        let drawn: Vec<u32> = (0..10_000).map(|_| sizer.draw(&mut random)).collect();
        let large = drawn.iter().filter(|size| **size == 4096).count();
        assert!((7300..7700).contains(&large), "{large}");
        assert_eq!(choice.max(), 4096);
        let range = Size::Range { min: 1024, max: 3000, step: 1024 };
        let sizer = Sizer::new(&range);
        assert_eq!((choice.grain(), range.grain()), (512, 1024));
        assert!((0..1000).all(|_| matches!(sizer.draw(&mut random), 1024 | 2048)));
    }
}
