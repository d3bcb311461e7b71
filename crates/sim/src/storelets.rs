//! Storelets: home, the workers that run them, and the compiler, in one world.
//!
//! Guests run by fuel on the same thread, so a run is reproducible to the byte. Messages between
//! nodes have latencies, and arrive in order for each pair; the disk and the compiler have
//! latencies too, and fail. Clients ([`run_client`]) are a front of home's without sessions: they
//! begin storelets, write run requests and modules in pieces, read in odd sizes or not at all,
//! leave at any moment, and kill.
//!
//! The checks know the output of each program ([`programs`]), and hence the expected output of each
//! storelet, its possible ends, and its possible usage ([`job`]). In every case nothing is
//! leaked at the end: no file is held, no storelet runs, no request lacks a reply.
//!
//! Installed storelets have a world of their own ([`install_world`]): with a disk, and crashes.

pub mod canary;
mod compiler;
mod environment;
mod files;
pub mod hunt;
mod install_world;
mod job;
pub mod params;
mod programs;
mod run_client;
mod run_world;
#[cfg(test)]
mod tests;

pub use params::Params;

use crate::run::Outcome;
use crate::trace::Show;

/// Runs a seed; panics on any failure.
pub fn run(params: &Params, show: Show) -> Outcome {
    let mut outcome = run_world::run(params, show, None);
    let (judged, sum) = install_world::run(params.seed, None);
    outcome.totals.requests += judged;
    outcome.hash ^= sum;
    outcome
}
