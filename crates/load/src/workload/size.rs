//! How much the next one moves.

use super::Weighted;

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

    /// What divides all of them.
    pub fn grain(&self) -> u32 {
        match self {
            Size::Fixed(size) => *size,
            Size::Choice(among) => among.iter().fold(0, |grain, (size, _)| common(grain, *size)),
            Size::Range { min, max, step } if max > min => common(*min, *step),
            Size::Range { min, .. } => *min,
        }
    }
}

/// The greatest common divisor.
fn common(mut a: u32, mut b: u32) -> u32 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Draws sizes.
#[derive(Clone, Debug)]
pub struct Sizer(Way);

#[derive(Clone, Debug)]
enum Way {
    Fixed(u32),
    Choice(Weighted<u32>),
    /// The least, the step, and how many steps there are at most.
    Range(u32, u32, u32),
}

impl Sizer {
    /// Draws these.
    ///
    /// # Panics
    /// If it is a choice among none.
    pub fn new(size: &Size) -> Sizer {
        Sizer(match size {
            Size::Fixed(size) => Way::Fixed(*size),
            Size::Choice(among) => Way::Choice(Weighted::new(among.clone())),
            Size::Range { min, max, step } => {
                let step = (*step).max(1);
                Way::Range(*min, step, max.saturating_sub(*min) / step)
            }
        })
    }

    /// The next one.
    pub fn draw(&self, random: &mut fastrand::Rng) -> u32 {
        match &self.0 {
            Way::Fixed(size) => *size,
            Way::Choice(among) => *among.draw(random),
            Way::Range(min, step, steps) => min + random.u32(..=*steps) * step,
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
