//! Storelets: home, the workers that run them, and whoever compiles, in one world.
//!
//! Guests run by fuel on the same thread, so a seed is a run to the byte. What nodes say to each
//! other takes its time, in order for each pair; the disk and whoever compiles take theirs, and
//! fail. Clients ([`patron`]) are a front of home's without sessions: they begin storelets, say
//! orders and modules in pieces, read in odd sizes or not at all, leave at any moment, and kill.
//!
//! The judges know what each program says ([`programs`]), and so what each storelet must have
//! said, how it may have ended, and what it may have used ([`errand`]). In the end, however
//! that comes, nothing is left: no file is held, no storelet runs, no request is unanswered.
//!
//! What is installed has a world of its own ([`shop`]): a disk, and crashes.

pub mod canary;
mod compiler;
mod errand;
mod files;
pub mod params;
mod patron;
mod programs;
mod shop;
mod sky;
#[cfg(test)]
mod tests;
mod yard;

pub use params::Params;

use crate::run::Outcome;
use crate::trace::Show;

/// Runs a seed; panics with whatever is wrong.
pub fn run(params: &Params, show: Show) -> Outcome {
    let mut outcome = yard::run(params, show, None);
    let (judged, sum) = shop::run(params.seed, None);
    outcome.totals.requests += judged;
    outcome.hash ^= sum;
    outcome
}
