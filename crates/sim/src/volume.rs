//! A volume on a disk with every kind of failure.
//!
//! The whole store runs on a simulated disk with random transactions, snapshots, and crashes
//! between any two operations. A model records every transaction in order. After a crash the volume
//! must hold the state after some transaction, not before the last one acknowledged as durable; all
//! data read must be correct; and after a close, a check of the disk must find no error.
//!
//! If the disk itself loses or corrupts data (a lost flush, bit rot, misdirected writes) the
//! guarantee is weaker: every result is correct, or an error.

pub mod canary;
mod disk;
mod model;
mod params;
mod rig;

pub use params::Params;

/// Statistics of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Transactions committed.
    pub commits: u64,
    /// Growths that were awaited.
    pub growths: u64,
    /// Rollbacks that were awaited.
    pub rollbacks: u64,
    /// Crashes survived.
    pub crashes: u64,
    /// Faults of the disk.
    pub faults: u64,
    /// Number of times the volume could not be opened any more, which only a corrupting disk may
    /// cause.
    pub lost: u64,
    /// Hash of the run.
    pub hash: u64,
}

/// Runs one seed.
///
/// # Panics
/// If the store breaks its contract.
pub fn run(params: &Params) -> Outcome {
    rig::Rig::new(params.clone()).run()
}
