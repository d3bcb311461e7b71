//! The whole mux: a node whose name space joins several other nodes, in one world.
//!
//! Servers crash and restart, are partitioned, freeze, lose their connections, and lie, each on its
//! own. Clients of the mux know the joined tree ([`space`]) and the troubles of each server
//! ([`chart`]), and check every reply: the file of each name, listings, every byte, the cause of
//! each error, and response times. Requests that touch no server in trouble get their replies as
//! promptly as ever.

mod build;
pub mod canary;
mod chart;
mod liar;
pub mod params;
mod space;
#[cfg(test)]
mod tests;
mod town;
mod visitor;

pub use params::Params;

use crate::run::Outcome;
use crate::trace::Show;

/// Runs a seed; panics on any failure.
pub fn run(params: &Params, show: Show) -> Outcome {
    town::run(params, show, None)
}
