//! Version vectors: how far each replica's operations are known.

use serde::{Deserialize, Serialize};
use std::cmp::Reverse;

/// Names a replica of a service. Never given to another one.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct ReplicaId(pub u16);

/// For each replica, how many of the operations that it was given: all up to that number. A
/// *multipart timestamp* in the words of the paper (001, 6.1).
///
/// Replicas are few and vectors are many: it is a row in the order of replicas.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "Vec<(ReplicaId, u64)>")]
pub struct Vector(Vec<(ReplicaId, u64)>);

impl Vector {
    /// Nothing is known.
    pub fn new() -> Vector {
        Vector::default()
    }

    /// Where in the row this replica is, or would be.
    fn place(&self, of: ReplicaId) -> Result<usize, usize> {
        self.0.binary_search_by_key(&of, |(id, _)| *id)
    }

    /// How many of the operations of this replica.
    pub fn get(&self, of: ReplicaId) -> u64 {
        self.place(of).map_or(0, |at| self.0[at].1)
    }

    /// All up to this number, if it was not more.
    pub fn raise(&mut self, of: ReplicaId, to: u64) {
        match self.place(of) {
            Ok(at) => self.0[at].1 = to.max(self.0[at].1),
            Err(at) if to > 0 => self.0.insert(at, (of, to)),
            Err(_) => {}
        }
    }

    /// The same, but of this replica no more than so many.
    pub fn up_to(mut self, of: ReplicaId, most: u64) -> Vector {
        match self.place(of) {
            Ok(at) if most == 0 => drop(self.0.remove(at)),
            Ok(at) => self.0[at].1 = most.min(self.0[at].1),
            Err(_) => {}
        }
        self
    }

    /// All that either knows.
    pub fn join(&mut self, other: &Vector) {
        other.iter().for_each(|(of, to)| self.raise(of, to));
    }

    /// Whether all that the other knows is known.
    pub fn covers(&self, other: &Vector) -> bool {
        other.iter().all(|(of, to)| self.get(of) >= to)
    }

    /// The replicas of which the other knows more, with how much.
    pub fn lacks(&self, other: &Vector) -> impl Iterator<Item = (ReplicaId, u64)> {
        other.iter().filter(|(of, to)| self.get(*of) < *to)
    }

    /// How many bytes it takes beside itself.
    pub(super) fn size(&self) -> usize {
        size_of_val(self.0.as_slice())
    }

    /// Every replica of which anything is known.
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

/// What is read from bytes may name replicas of which nothing is known, in any order.
impl From<Vec<(ReplicaId, u64)>> for Vector {
    fn from(mut parts: Vec<(ReplicaId, u64)>) -> Vector {
        parts.retain(|(_, to)| *to > 0);
        parts.sort_unstable_by_key(|(of, to)| (*of, Reverse(*to)));
        parts.dedup_by_key(|(of, _)| *of);
        Vector(parts)
    }
}
