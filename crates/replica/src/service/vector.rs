//! Version vectors: the known prefix of each replica's operations.

use serde::{Deserialize, Serialize};
use std::cmp::Reverse;

/// Identifier of a replica, never reused within a service.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct ReplicaId(pub u16);

/// For each replica, the number of its operations in a set that has all of them up to that number.
/// A *multipart timestamp* in the terms of the paper (001, 6.1).
///
/// Stored as a sorted array, because replicas are few and vectors are many.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "Vec<(ReplicaId, u64)>")]
pub struct Vector(Vec<(ReplicaId, u64)>);

impl Vector {
    /// Creates an empty vector.
    pub fn new() -> Vector {
        Vector::default()
    }

    /// Returns the index of a replica, or its insertion point.
    fn place(&self, of: ReplicaId) -> Result<usize, usize> {
        self.0.binary_search_by_key(&of, |(id, _)| *id)
    }

    /// Number of operations of this replica.
    pub fn get(&self, of: ReplicaId) -> u64 {
        self.place(of).map_or(0, |at| self.0[at].1)
    }

    /// Raises the number of a replica to `to`, if it is smaller.
    pub fn raise(&mut self, of: ReplicaId, to: u64) {
        match self.place(of) {
            Ok(at) => self.0[at].1 = to.max(self.0[at].1),
            Err(at) if to > 0 => self.0.insert(at, (of, to)),
            Err(_) => {}
        }
    }

    /// Caps the number of a replica at `most`.
    pub fn up_to(mut self, of: ReplicaId, most: u64) -> Vector {
        match self.place(of) {
            Ok(at) if most == 0 => drop(self.0.remove(at)),
            Ok(at) => self.0[at].1 = most.min(self.0[at].1),
            Err(_) => {}
        }
        self
    }

    /// Merges another vector.
    pub fn join(&mut self, other: &Vector) {
        other.iter().for_each(|(of, to)| self.raise(of, to));
    }

    /// Reports whether it includes all of another vector.
    pub fn covers(&self, other: &Vector) -> bool {
        other.iter().all(|(of, to)| self.get(of) >= to)
    }

    /// Returns the replicas of which `other` has more, with their numbers there.
    pub fn lacks(&self, other: &Vector) -> impl Iterator<Item = (ReplicaId, u64)> {
        other.iter().filter(|(of, to)| self.get(*of) < *to)
    }

    /// Heap size, in bytes.
    pub(super) fn size(&self) -> usize {
        size_of_val(self.0.as_slice())
    }

    /// Returns the replicas with at least one operation, with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (ReplicaId, u64)> {
        self.0.iter().copied()
    }
}

impl FromIterator<(ReplicaId, u64)> for Vector {
    fn from_iter<I: IntoIterator<Item = (ReplicaId, u64)>>(parts: I) -> Vector {
        let mut vector = Vector::new();
        parts.into_iter().for_each(|(of, to)| vector.raise(of, to));
        vector
    }
}

/// Decoded entries may be zero and in any order.
impl From<Vec<(ReplicaId, u64)>> for Vector {
    fn from(mut parts: Vec<(ReplicaId, u64)>) -> Vector {
        parts.retain(|(_, to)| *to > 0);
        parts.sort_unstable_by_key(|(of, to)| (*of, Reverse(*to)));
        parts.dedup_by_key(|(of, _)| *of);
        Vector(parts)
    }
}
