//! The simulated twin of the real world, and judges who find what the server does wrong.
//!
//! [`world::World`] is the third reactor: virtual time, a disk and a network in memory, faults
//! drawn from a seed. In it the whole node runs with simulated [`client`]s, who know what each
//! answer must be. The same seed gives the same run to the byte.
//!
//! - [`params`]: everything a run is made of, drawn from its seed.
//! - [`run`]: one run from beginning to end.
//! - [`canary`]: planted mistakes, which must be found.
//! - [`fuzz`]: fuzzers of every decoder, and of whole sessions.
//! - [`joined`]: a name space of several servers, each with troubles of its own.
//! - [`replicas`]: servers with replicas of one service, and clients whom those do not trust.
//! - [`storelets`]: programs of clients beside the data: home, workers, and whoever compiles.
//! - [`volume`]: a store on a disk that fails in every way, with crashes between all operations.

#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "judges name the answers they accept; every other answer is wrong alike"
)]

pub mod canary;
pub mod client;
pub mod disk;
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
