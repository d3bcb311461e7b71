//! Small histogram with 64 buckets per octave, for each second of a run.
//!
//! The error of a value is at most 1.6 % (1/64); values below 128 are exact, as are the count, the
//! sum and the maximum. The size grows with the maximum: 8 KiB for times up to a second.

/// Buckets per octave, as a power of two.
const BITS: u32 = 6;
const OCTAVE: u64 = 1 << BITS;

/// Counts of values by size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Buckets {
    counts: Vec<u32>,
    total: u64,
    sum: u128,
    max: u64,
}

impl Buckets {
    /// Adds a value.
    #[inline]
    pub fn add(&mut self, value: u64) {
        let index = index(value);
        if index >= self.counts.len() {
            self.counts.resize(index + 1, 0);
        }
        self.counts[index] = self.counts[index].saturating_add(1);
        self.total += 1;
        self.sum += u128::from(value);
        self.max = self.max.max(value);
    }

    /// Merges another histogram.
    pub fn merge(&mut self, other: &Buckets) {
        if self.counts.len() < other.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine = mine.saturating_add(*theirs);
        }
        self.total += other.total;
        self.sum += other.sum;
        self.max = self.max.max(other.max);
    }

    /// Number of values.
    pub fn count(&self) -> u64 {
        self.total
    }

    /// Exact maximum; 0 without values.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// Exact mean; 0 without values.
    pub fn mean(&self) -> f64 {
        if self.total == 0 { 0.0 } else { self.sum as f64 / self.total as f64 }
    }

    /// Returns the `q`-quantile; 0 without values.
    pub fn quantile(&self, q: f64) -> u64 {
        let wanted = ((self.total as f64 * q).ceil() as u64).clamp(1, self.total.max(1));
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += u64::from(*count);
            if seen >= wanted {
                return highest(index).min(self.max);
            }
        }
        self.max
    }

    /// Returns the nonempty buckets: the greatest value of each, and its count.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        let counts = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        counts.map(|(index, count)| (highest(index).min(self.max), u64::from(*count)))
    }
}

fn index(value: u64) -> usize {
    if value < OCTAVE {
        return value as usize;
    }
    let shift = value.ilog2() - BITS;
    ((u64::from(shift) << BITS) + (value >> shift)) as usize
}

/// Returns the greatest value of a bucket.
fn highest(index: usize) -> u64 {
    let index = index as u64;
    if index < OCTAVE {
        return index;
    }
    let shift = (index >> BITS) - 1;
    let first = (OCTAVE + (index & (OCTAVE - 1))) << shift;
    first + ((1 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_holds_the_values_up_to_its_highest() {
        for exponent in 0..64 {
            for around in [-1i128, 0, 1] {
                let value = (1i128 << exponent) + around;
                let value = u64::try_from(value.max(0)).unwrap();
                let at = index(value);
                assert!(highest(at) >= value);
                assert!(highest(at) - value <= value / 64, "{value} within 1.6 %");
                assert!(at == 0 || highest(at - 1) < value);
            }
        }
        assert_eq!(highest(index(u64::MAX)), u64::MAX);
    }

    #[test]
    fn quantiles_of_a_merged_pair_are_those_of_all_values() {
        let (mut low, mut high) = (Buckets::default(), Buckets::default());
        (1..=50).for_each(|value| low.add(value));
        (51..=100).for_each(|value| high.add(value));
        low.merge(&high);
        assert_eq!((low.quantile(0.5), low.quantile(0.99), low.quantile(1.0)), (50, 99, 100));
        assert_eq!((low.count(), low.mean(), low.max()), (100, 50.5, 100));
        assert_eq!(Buckets::default().quantile(0.5), 0);
    }
}
