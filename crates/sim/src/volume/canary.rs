//! Canaries: errors that the store itself could have made, which the model must detect.

use super::{Params, run};
use crate::run::attempt;

/// A planted error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// Nothing is ever flushed.
    SkipFlush,
    /// Checksums are computed and not verified.
    SkipChecksum,
}

impl Mistake {
    /// All planted errors.
    pub const ALL: [Mistake; 2] = [Mistake::SkipFlush, Mistake::SkipChecksum];
}

/// Searches for a seed that detects the error; returns it with the failure message.
pub fn hunt(mistake: Mistake, seeds: u64) -> Option<(u64, String)> {
    store::canary::believe_everything(mistake == Mistake::SkipChecksum);
    let found = (1..=seeds).find_map(|seed| {
        let params = Params { mistake: Some(mistake), ..Params::draw(seed) };
        attempt(|| run(&params)).err().map(|what| (seed, what))
    });
    store::canary::believe_everything(false);
    found
}
