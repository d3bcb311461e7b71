//! Canaries: mistakes that the store could have made itself, which the model must find.

use super::{Params, run};
use crate::run::attempt;

/// A mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// Nothing is ever flushed.
    SkipFlush,
    /// Checksums are computed and not looked at.
    SkipChecksum,
}

impl Mistake {
    /// Every mistake.
    pub const ALL: [Mistake; 2] = [Mistake::SkipFlush, Mistake::SkipChecksum];
}

/// Looks for a seed that finds the mistake; gives it with what was said.
pub fn hunt(mistake: Mistake, seeds: u64) -> Option<(u64, String)> {
    store::canary::believe_everything(mistake == Mistake::SkipChecksum);
    let found = (1..=seeds).find_map(|seed| {
        let params = Params { mistake: Some(mistake), ..Params::draw(seed) };
        attempt(|| run(&params)).err().map(|what| (seed, what))
    });
    store::canary::believe_everything(false);
    found
}
