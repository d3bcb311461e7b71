//! Search for planted errors in simulations of storelets.

use super::canary::Mistake;
use super::params::Params;
use super::{install_world, run_world};
use crate::run::attempt;
use crate::trace::Show;

/// Searches for a planted error; returns the number of seeds it took and the failure found.
pub fn hunt(mistake: Mistake, seeds: u64) -> Option<(u64, String)> {
    for seed in 1..=seeds {
        let params = Params::calm(seed);
        let found = match mistake {
            Mistake::LoseKept | Mistake::ForgetFile => {
                attempt(|| install_world::run(seed, Some(mistake))).err()
            }
            Mistake::LeakNode
            | Mistake::LeakFile
            | Mistake::GiveTwice
            | Mistake::LoseAnswer
            | Mistake::SayTwice
            | Mistake::LoseOutput
            | Mistake::OtherByte
            | Mistake::OtherBudget
            | Mistake::LoseEnd
            | Mistake::OtherEnd
            | Mistake::LoseCharge
            | Mistake::OverMaximum => {
                attempt(|| run_world::run(&params, Show::Hash, Some(mistake))).err()
            }
        };
        if let Some(found) = found {
            return Some((seed, found));
        }
    }
    None
}
