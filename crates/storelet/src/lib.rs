//! Storelets: programs of clients beside the data (ActiveStorage, §3).
//!
//! A storelet is any program for WASI preview 1. It sees files through [`tree::Ask`] only: the
//! requests that every client of the server makes, under the same permissions. Nothing of the host
//! is opened for it.
//!
//! A [`Guest`] is a coroutine: it runs for a slice of time, then it wants something ([`Want`]),
//! has had its slice, or has ended. Whoever drives it gives it what it wanted ([`Got`]).

mod abi;
mod budget;
mod client;
pub mod compile;
mod door;
mod engine;
mod guest;
mod host;
pub mod schedule;
mod wasi;

pub use budget::{Budget, Reason, Used};
pub use door::{Given, Got, Stream, Times, Want};
pub use engine::{Engine, Pace, Program};
pub use guest::{Ended, Guest, Pause, Start};

// What integration tests use is used by the tests within, under the same name.
#[cfg(test)]
extern crate self as storelet;
#[cfg(test)]
#[path = "../tests/support/mod.rs"]
mod support;
#[cfg(test)]
mod tests;
