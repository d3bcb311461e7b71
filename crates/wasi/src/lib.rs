//! WebAssembly programs for WASI preview 1 beside the data (ActiveStorage, §3): loading, the calls
//! of the interface, budgets.
//!
//! A program sees files through [`tree::Ask`] only: the requests that every client of the server
//! makes, under the same permissions. Nothing of the host is opened for it.
//!
//! A [`Guest`] is a coroutine: it runs for a slice of time, until it waits for an event ([`Want`]),
//! its slice is over, or it has ended. Its driver delivers the result of the event ([`Got`]).

mod abi;
mod artifact;
mod budget;
mod calls;
mod client;
mod compiled;
mod contents;
mod engine;
mod guest;
mod host;
mod host_channel;
mod listings;
pub mod module;
mod prefetcher;
mod window;

pub use artifact::{Artifact, Broken, Key};
pub use budget::{Budget, Pace, Reason, Used};
pub use calls::handed_out;
pub use client::DEVICE;
pub use compiled::{Code, Hash, NoHash, Refused};
pub use engine::{Engine, Engines, GUESTS_MAX, Program, WeakProgram};
pub use guest::{Ended, Guest, Pause};
pub use host::Start;
pub use host_channel::{Given, Got, Stream, Times, Want};

// Integration tests and unit tests share the support module, under the same crate name.
#[cfg(test)]
extern crate self as wasi;
#[cfg(test)]
#[path = "../tests/support/mod.rs"]
mod support;
#[cfg(test)]
mod tests;
