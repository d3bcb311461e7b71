//! Load generator and trace replayer, accurate to microseconds, with a verdict on its own results.
//!
//! Based on *Buttress: A toolkit for flexible and high fidelity I/O benchmarking* (FAST 2004), with
//! current kernel interfaces.
//!
//! ```text
//!  trace ──▶ replay ──┐                          ┌──▶ statistics ──▶ verdict ──▶ report
//!  workload ──────────┼─▶ filaments ─▶ core ─────┤
//!  script ────────────┘                │         └──▶ records ──▶ compare
//!                                   driver ─▶ null, files, volumes, 9P, HTTP
//! ```
//!
//! - A *filament* defines I/Os and their times ([`filament`]). The library's filaments are in
//!   [`workload`], those of traces in [`replay`]; a [`script`](mod@script) is an `async` one.
//! - The *core* calls filaments and issues their I/Os at their times ([`core`]); virtual time runs
//!   the same filaments in simulation ([`simulated`]).
//! - A *driver* connects to a target ([`driver`]).
//! - Completed I/Os become [`statistics`], and these a [`verdict`] and a [`report`]; [`measure`]
//!   combines everything.
//!
//! Invariants: only `core`, `driver` and `witness` read a clock, wait, or touch the kernel. No byte
//! of a trace, a workload file or a server can cause a panic. All randomness comes from a seed.
//!
//! ```no_run
//! use load::measure::{Plan, measure};
//! use load::workload::{Arrival, Mix, stream::Stream};
//! use std::time::Duration;
//!
//! let arrival = Arrival::Poisson { rate: 10_000.0 };
//! let stream = Stream::new(arrival, Mix::default(), 1, Duration::ZERO, 100_000);
//! let plan = Plan {
//!     title: load::report::Title::default(),
//!     options: load::core::Options::default(),
//!     thresholds: load::verdict::Thresholds::default(),
//!     warm_up_ns: 0,
//!     witness: None,
//!     records: None,
//!     progress: &mut |_, _| {},
//! };
//! let measured = measure(&load::driver::Null, vec![Box::new(stream)], plan)?;
//! print!("{}", load::report::text::report(&measured.run()));
//! # Ok::<(), std::io::Error>(())
//! ```

pub mod baseline;
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
