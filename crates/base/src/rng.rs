//! Seeded randomness, the only kind there is below the binary.

pub use fastrand::Rng;

/// A generator that gives the same numbers for the same seed, on every machine.
pub fn seeded(seed: u64) -> Rng {
    Rng::with_seed(seed)
}
