//! Approximate count of distinct elements in little memory.

use xxhash_rust::xxh3::xxh3_64;

/// Bits of a hash that select a register.
const BITS: u32 = 12;

/// Estimator of the number of distinct blocks: HyperLogLog (Flajolet and others, 2007) with 4096
/// registers, with a standard error of 1.04 / √4096 = 1.6 %.
#[derive(Clone, Debug)]
pub struct Distinct {
    registers: Vec<u8>,
}

impl Default for Distinct {
    fn default() -> Distinct {
        Distinct::new()
    }
}

impl Distinct {
    /// Creates an empty estimator.
    pub fn new() -> Distinct {
        Distinct { registers: vec![0; 1 << BITS] }
    }

    /// Adds a block of a file.
    pub fn add(&mut self, file: u32, block: u64) {
        let mut key = [0; 12];
        key[..4].copy_from_slice(&file.to_le_bytes());
        key[4..].copy_from_slice(&block.to_le_bytes());
        let hash = xxh3_64(&key);
        let register = usize::try_from(hash >> (64 - BITS)).expect("it has few bits");
        let zeros = (hash << BITS).leading_zeros().min(64 - BITS);
        let rank = u8::try_from(zeros + 1).expect("a hash has 64 bits");
        self.registers[register] = self.registers[register].max(rank);
    }

    /// Returns the estimated number of distinct elements. Small numbers are counted by empty
    /// registers.
    pub fn count(&self) -> u64 {
        let many = self.registers.len() as f64;
        let sum: f64 = self.registers.iter().map(|rank| 0.5_f64.powi(i32::from(*rank))).sum();
        let raw = 0.7213 / (1.0 + 1.079 / many) * many * many / sum;
        let empty = self.registers.iter().filter(|rank| **rank == 0).count();
        let few = many * (many / (empty.max(1)) as f64).ln();
        let estimate = if empty > 0 && raw <= 2.5 * many { few } else { raw };
        estimate.round() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_estimate_is_near() {
        for many in [0_u64, 1, 100, 5_000, 1_000_000] {
            let mut distinct = Distinct::new();
            for block in (0..many).chain(0..many.min(1000)) {
                distinct.add(1, block * 3);
            }
            let error = distinct.count().abs_diff(many) as f64;
            assert!(error <= 0.04 * many as f64, "{many}: {}", distinct.count());
        }
    }
}
