//! Storelets: programs of clients beside the data (ActiveStorage, §3).
//!
//! A storelet is any program for WASI preview 1. It sees files through [`tree::Ask`] only: the
//! requests that every client of the server makes, under the same permissions. Nothing of the host
//! is opened for it.
//!
//! A [`Guest`] is a coroutine: it runs for a slice of time, then it wants something ([`Want`]),
//! has had its slice, or has ended. Whoever drives it gives it what it wanted ([`Got`]).

mod abi;
mod artifact;
mod budget;
mod client;
pub mod compile;
mod door;
mod engine;
mod guest;
mod host;
pub mod module;
pub mod schedule;
mod wasi;

pub use artifact::{Artifact, Broken, Key};
pub use budget::{Budget, Reason, Used};
pub use door::{Given, Got, Stream, Times, Want};
pub use engine::{Engine, GUESTS_MAX, Pace, Program};
pub use guest::{Ended, Guest, Pause, Start};

#[cfg(test)]
mod tests;
