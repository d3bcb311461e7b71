//! Replicated services: whole servers, each with a replica of one service, in one world.
//!
//! Servers lose their power, die, stand still and are cut off from each other, one way or both;
//! their disks lose what was not flushed, and fail. In every third run one more becomes a member
//! meanwhile, and in every fourth one leaves. Clients, whom no replica trusts, write lines to
//! `/services/NAME/ops` and read
//! answers; they wander from one replica to another, and send again what was not answered. A ledger
//! knows everything that was asked and answered. When all troubles are over all replicas are looked
//! at: they are equal, what was answered is there exactly once, final answers are those of the
//! order that came out, and nothing is kept for anybody.

mod asker;
mod bystander;
pub mod canary;
mod cluster;
mod data;
mod judge;
mod ledger;
pub mod params;
mod site;
mod stream;
mod surveyor;
#[cfg(test)]
mod tests;
mod warden;
mod witness;

pub use params::Params;

use crate::run::Outcome;
use crate::trace::Show;

/// Runs a seed; panics with whatever is wrong.
pub fn run(params: &Params, show: Show) -> Outcome {
    cluster::run(params, show)
}
