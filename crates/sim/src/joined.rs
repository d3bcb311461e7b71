//! The whole mux: a node whose namespace joins several other nodes, in one world.
//!
//! Servers crash and restart, are partitioned, freeze, lose their connections, and lie, each on its
//! own. Clients of the mux know the joined tree ([`space`]) and the troubles of each server
//! ([`fault_log`]), and check every reply: the file of each name, listings, every byte, the cause
//! of each error, and response times. Requests that touch no server in trouble get their replies as
//! promptly as ever.

mod build;
pub mod canary;
mod fault_log;
pub mod hunt;
mod liar;
mod mux_client;
mod mux_world;
pub mod params;
mod space;
#[cfg(test)]
mod tests;

pub use params::Params;

use crate::run::Outcome;
use crate::trace::Show;

/// Runs a seed; panics on any failure.
pub fn run(params: &Params, show: Show) -> Outcome {
    mux_world::run(params, show, None)
}
