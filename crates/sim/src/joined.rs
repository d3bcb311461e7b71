//! The whole mux: a node whose name space joins several other nodes, in one world.
//!
//! Servers die and begin anew, are cut off, stand still, lose their connections, and lie, each on
//! its own. Clients of the mux know the joined tree ([`space`]) and what happened to whom
//! ([`chart`]), and judge every answer: which file each name leads to, what is listed, every byte,
//! which errors are due to what, and how long it took. Requests that touch no server in trouble are
//! answered as promptly as ever.

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

/// Runs a seed; panics with whatever is wrong.
pub fn run(params: &Params, show: Show) -> Outcome {
    town::run(params, show, None)
}
