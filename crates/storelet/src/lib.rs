//! Storelets: programs of clients beside the data (ActiveStorage, §3).
//!
//! A storelet is any program for WASI preview 1 (crate `wasi`), in a domain with budgets. Home
//! admits, compiles and lists them ([`Storelets`]); workers run them in slices ([`Worker`]).
//! Installed ones run when files change, or by the clock ([`standing`]).

mod account;
mod admission;
mod ceiling;
pub mod compile;
mod crossing;
mod domain;
mod execution;
mod maxima;
mod prefetch;
mod report;
pub mod run_spec;
pub mod schedule;
pub mod standing;
mod storelets;
pub mod worker;

pub use account::Account;
pub use crossing::{AskId, Begin, Crossing, DomainId, ToHome, ToWorker};
pub use maxima::Maxima;
pub use report::Report;
pub use storelets::{DOMAINS_MAX, OPENS_MAX, OVERHEAD, Settings, Storelets, Totals};
pub use worker::{Ran, Slice, Worker};
