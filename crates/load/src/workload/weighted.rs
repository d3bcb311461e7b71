//! Weighted random choice.

/// Choices with their weights, which are summed once.
///
/// ```
/// use load::workload::Weighted;
///
/// let coins = Weighted::new(vec![("heads", 1.0), ("tails", 3.0)]);
/// let mut random = fastrand::Rng::with_seed(1);
/// let tails = (0..1000).filter(|_| *coins.draw(&mut random) == "tails").count();
/// assert!((700..800).contains(&tails));
/// ```
#[derive(Clone, Debug)]
pub struct Weighted<T> {
    /// Cumulative weights as shares of the total, each with its choice.
    among: Vec<(f64, T)>,
}

/// Number of choices up to which a linear search is faster than a binary one.
const FEW: usize = 8;

impl<T> Weighted<T> {
    /// Creates a choice. Weights that are not positive numbers count as 0; if all are 0, the choice
    /// is uniform.
    ///
    /// # Panics
    /// If there are none.
    pub fn new(among: Vec<(T, f64)>) -> Weighted<T> {
        assert!(!among.is_empty(), "there is something to choose from");
        let positive = |weight: f64| if weight.is_finite() { weight.max(0.0) } else { 0.0 };
        let total: f64 = among.iter().map(|(_, weight)| positive(*weight)).sum();
        let (each, total) =
            if total > 0.0 { (None, total) } else { (Some(1.0), among.len() as f64) };
        let mut sum = 0.0;
        let summed = among.into_iter().map(|(what, weight)| {
            sum += each.unwrap_or(positive(weight)) / total;
            (sum, what)
        });
        Weighted { among: summed.collect() }
    }

    /// Draws a choice.
    pub fn draw(&self, random: &mut fastrand::Rng) -> &T {
        let number = self.index(random);
        &self.among[number].1
    }

    /// Draws a choice for modification.
    pub fn draw_mut(&mut self, random: &mut fastrand::Rng) -> &mut T {
        let number = self.index(random);
        &mut self.among[number].1
    }

    fn index(&self, random: &mut fastrand::Rng) -> usize {
        let last = self.among.len() - 1;
        if last == 0 {
            return 0;
        }
        let drawn = random.f64();
        let found = if last < FEW {
            self.among.iter().position(|(sum, _)| drawn < *sum).unwrap_or(last)
        } else {
            self.among.partition_point(|(sum, _)| *sum <= drawn)
        };
        found.min(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_comes_as_often_as_its_weight_says() {
        for count in [1, 3, FEW, FEW + 1, 100] {
            let among = (0..count).map(|number| (number, number as f64)).collect();
            let weighted = Weighted::new(among);
            let mut random = fastrand::Rng::with_seed(5);
            let mut counts = vec![0.0; count];
            (0..100_000).for_each(|_| counts[*weighted.draw(&mut random)] += 1.0);
            let total = (count * (count - 1) / 2).max(1) as f64;
            for (number, found) in counts.iter().enumerate() {
                let share = if count == 1 { 1.0 } else { number as f64 / total };
                let slack = 5.0 * (share * 100_000.0_f64).sqrt();
                assert!((found - share * 100_000.0).abs() <= slack, "{count} {number}: {found}");
            }
        }
    }

    #[test]
    fn without_weights_all_are_alike() {
        let weighted = Weighted::new(vec![(0, 0.0), (1, f64::NAN)]);
        let mut random = fastrand::Rng::with_seed(5);
        let ones = (0..1000).filter(|_| *weighted.draw(&mut random) == 1).count();
        assert!((400..600).contains(&ones), "{ones}");
    }
}
