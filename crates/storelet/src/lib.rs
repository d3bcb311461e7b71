//! Storelets: programs of clients beside the data (ActiveStorage, §3).
//!
//! A storelet is any program for WASI preview 1. It sees files through [`tree::Ask`] only: the
//! requests that every client of the server makes, under the same permissions. Nothing of the host
//! is opened for it.
//!
//! A [`Guest`] is a coroutine: it runs for a slice of time, until it waits for an event ([`Want`]),
//! its slice is over, or it has ended. Its driver delivers the result of the event ([`Got`]).

mod abi;
mod admission;
mod artifact;
mod budget;
mod ceiling;
mod client;
pub mod compile;
mod contents;
mod crossing;
mod domain;
mod engine;
mod execution;
mod guest;
mod host;
mod host_channel;
mod listings;
mod maxima;
pub mod module;
mod prefetch;
mod prefetcher;
mod report;
pub mod run_spec;
pub mod schedule;
pub mod standing;
mod storelets;
mod wasi;
mod window;
pub mod worker;

pub use artifact::{Artifact, Broken, Key};
pub use budget::{Budget, Reason, Used};
pub use crossing::{Account, AskId, Begin, Crossing, DomainId, ToHome, ToWorker};
pub use engine::{Engine, Engines, GUESTS_MAX, Pace, Program, WeakProgram};
pub use guest::{Ended, Guest, Pause, Start};
pub use host_channel::{Given, Got, Stream, Times, Want};
pub use maxima::Maxima;
pub use report::Report;
pub use storelets::{DOMAINS_MAX, OPENS_MAX, OVERHEAD, Settings, Storelets, Totals};
pub use worker::{Ran, Slice, Worker};

// Integration tests and unit tests share the support module, under the same crate name.
#[cfg(test)]
extern crate self as storelet;
#[cfg(test)]
#[path = "../tests/support/mod.rs"]
mod support;
#[cfg(test)]
mod tests;
