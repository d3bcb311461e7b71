//! Search for planted errors in simulations of the joined namespace.

use super::canary::Mistake;
use super::mux_world;
use super::params::Params;
use crate::run::attempt;
use crate::trace::Show;

/// Searches for a planted error; returns the number of seeds it took and the failure found.
pub fn hunt(mistake: Mistake, seeds: u64) -> Option<(u64, String)> {
    for seed in 1..=seeds {
        let params = Params::light(seed);
        if let Err(found) = attempt(|| mux_world::run(&params, Show::Hash, Some(mistake))) {
            return Some((seed, found));
        }
    }
    None
}
