//! A volume on a disk that fails in every way disks do.
//!
//! The whole store runs on a simulated disk with random transactions, snapshots, and crashes
//! between any two operations. A model knows every transaction in order. After a crash the volume
//! must hold the state after some transaction, not before the last that was acknowledged as
//! durable; whatever can be read must be right; and when it is closed, a check of the disk must
//! find nothing.
//!
//! Where the disk itself loses or spoils something (a flush that was none, rot, blocks written to
//! the wrong place) less can be promised: then every answer is right, or an error.

pub mod canary;
mod disk;
mod model;
mod params;
mod rig;

pub use params::Params;

/// What a run did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Transactions committed.
    pub commits: u64,
    /// Growths that somebody waited for.
    pub growths: u64,
    /// The same of rollbacks.
    pub rollbacks: u64,
    /// Crashes survived.
    pub crashes: u64,
    /// Faults of the disk.
    pub faults: u64,
    /// Times the volume could not be opened any more, which only a spoilt disk may cause.
    pub lost: u64,
    /// A number that is the same for the same run.
    pub hash: u64,
}

/// Runs one seed.
///
/// # Panics
/// If the store breaks a promise.
pub fn run(params: &Params) -> Outcome {
    rig::Rig::new(params.clone()).run()
}
