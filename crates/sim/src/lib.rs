//! The simulated world, and checkers that find the server's errors.
//!
//! [`world::World`] is the third reactor: virtual time, a disk and a network in memory, faults
//! drawn from a seed. The whole node runs in it with simulated [`client`]s that predict every
//! reply. The same seed gives the same run to the byte.
//!
//! - [`params`]: all parameters of a run, drawn from its seed.
//! - [`run`]: one run from beginning to end.
//! - [`canary`]: planted errors, which must be detected.
//! - [`fuzz`]: fuzzers of every decoder, and of whole sessions.
//! - [`joined`]: a namespace of several servers, each with troubles of its own.
//! - [`replicas`]: servers with replicas of one service, and untrusted clients.
//! - [`storelets`]: programs of clients beside the data: home, workers, and the compiler.
//! - [`volume`]: a store on a failing disk, with crashes between any two operations.

#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "judges name the answers they accept; every other answer is wrong alike"
)]

pub mod canary;
pub mod client;
pub mod disk;
mod event_queue;
pub mod fuzz;
mod host;
pub mod joined;
pub mod params;
pub mod remote;
pub mod replicas;
pub mod run;
mod stage;
pub mod storelets;
pub mod trace;
pub mod volume;
pub mod world;

#[cfg(test)]
mod tests;
