//! The instrument: load and replay, accurate to microseconds, with a verdict.
//!
//! It is the toolkit of *Buttress: A toolkit for flexible and high fidelity I/O benchmarking*
//! (FAST 2004) with today's means.

pub mod compare;
pub mod io;
pub mod records;
pub mod report;
pub mod statistics;
pub mod verdict;

pub use io::{Cause, Io, Kind, Outcome, Record};
