//! Search for planted errors in simulations of replicated services.

use super::canary::Mistake;
use super::cluster;
use super::params::{Params, Trouble};
use crate::run::attempt;
use crate::trace::Show;
use replica::data::Kind;

impl Mistake {
    /// Returns the parameters of a run in which it can show.
    fn params(self, seed: u64) -> Params {
        let mut params = Params { mistake: Some(self), ..Params::light(seed) };
        let only = |trouble: &mut Trouble| {
            (trouble.power, trouble.cut) = (5, 2);
            (trouble.kill, trouble.freeze, trouble.reset) = (0, 0, 0);
        };
        match self {
            Mistake::EarlyDurable | Mistake::OlderCopy => only(&mut params.trouble),
            Mistake::LostToken => (params.wander, params.looks) = (100, 40),
            Mistake::SentAsNew => {
                (params.kind, params.plain, params.timeout_ms) = (Kind::Log, 0, 300)
            }
            Mistake::EarlyFinal => (params.kind, params.strict) = (Kind::Log, 100),
            Mistake::StaysCut => params.trouble.cut = 10,
            Mistake::OneThread => {
                (params.unit_ns, params.work, params.world.net_us) = (300_000, 1 << 16, 50);
            }
        }
        if matches!(self, Mistake::SentAsNew | Mistake::EarlyFinal) {
            (params.trouble.power, params.trouble.cut) = (5, 5);
            (params.op_clients, params.operations) = (5, 20);
        }
        params
    }
}

/// Searches for a planted error; returns the number of seeds it took and the failure found.
pub fn hunt(mistake: Mistake, seeds: u64) -> Option<(u64, String)> {
    for seed in 1..=seeds {
        let params = mistake.params(seed);
        if let Err(found) = attempt(|| cluster::run(&params, Show::Hash)) {
            return Some((seed, found));
        }
    }
    None
}
