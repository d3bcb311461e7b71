//! Limits of the replicas of a node.

/// Work units of all replicas of a node in one turn.
const TURN: u64 = 1 << 16;

/// Bytes held by the open files of all replicas of a node.
const HELD: usize = 256 << 20;

/// Limits of one replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Work units started in one turn.
    pub work: u64,
    /// Bytes held by its open files.
    pub held: usize,
}

impl Limits {
    /// Returns the limits for each of `count` replicas of a node.
    pub fn shared_by(count: usize) -> Limits {
        let count = count.max(1);
        Limits { work: (TURN / count as u64).max(1), held: HELD / count }
    }
}
