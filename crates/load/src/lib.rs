//! The instrument: load and replay, accurate to microseconds, with a verdict.
//!
//! It is the toolkit of *Buttress: A toolkit for flexible and high fidelity I/O benchmarking*
//! (FAST 2004) with today's means.

pub mod compare;
pub mod core;
pub mod driver;
pub mod filament;
pub mod io;
pub mod measure;
pub mod records;
pub mod replay;
pub mod report;
pub mod script;
pub mod simulated;
pub mod statistics;
pub mod trace;
pub mod verdict;
pub mod witness;
pub mod workload;

pub use filament::{Ended, Event, Filament, FilamentId, Request};
pub use io::{Cause, Io, Kind, Outcome, Record};
