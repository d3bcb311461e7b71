//! Seek distances between consecutive I/Os of a file.

use super::buckets::Buckets;
use crate::io::{Io, Kind};
use std::collections::BTreeMap;

/// Files with numbers below this are stored in an array.
const NEAR: usize = 1 << 12;

/// Distances from the end of one I/O of a file to the start of the next, in issue order. Syncs,
/// creates and removes have no offset.
///
/// Memory is proportional to the number of files used: 16 bytes each.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Distances {
    /// Absolute distances in bytes of nonsequential I/Os.
    pub apart: Buckets,
    /// I/Os that start at the end of the previous one.
    pub sequential: u64,
    /// End of the last I/O of each file.
    near: Vec<Option<u64>>,
    far: BTreeMap<u32, Option<u64>>,
}

impl Distances {
    /// Adds the next I/O.
    pub fn add(&mut self, io: &Io) {
        match io.kind {
            Kind::Read | Kind::Write | Kind::Trim => {}
            Kind::Sync | Kind::Create | Kind::Remove => return,
        }
        let end = self.end_of(io.file);
        let before = end.replace(io.offset.saturating_add(u64::from(io.len)));
        match before.map(|before| before.abs_diff(io.offset)) {
            None => {}
            Some(0) => self.sequential += 1,
            Some(distance) => self.apart.add(distance),
        }
    }

    fn end_of(&mut self, file: u32) -> &mut Option<u64> {
        let index = file as usize;
        if index >= NEAR {
            return self.far.entry(file).or_default();
        }
        if index >= self.near.len() {
            self.near.resize(index + 1, None);
        }
        &mut self.near[index]
    }

    /// Number of distances.
    pub fn count(&self) -> u64 {
        self.apart.count() + self.sequential
    }

    /// Share of sequential I/Os; 0 without distances.
    pub fn sequential_share(&self) -> f64 {
        self.sequential as f64 / self.count().max(1) as f64
    }

    /// Returns the `q`-quantile of the distances, in bytes.
    pub fn quantile(&self, q: f64) -> u64 {
        let rank = q * self.count() as f64 - self.sequential as f64;
        if rank <= 0.0 {
            return 0;
        }
        self.apart.quantile(rank / self.apart.count() as f64)
    }

    /// Merges the distances of another part of the run.
    pub(super) fn merge(&mut self, other: &Distances) {
        self.apart.merge(&other.apart);
        self.sequential += other.sequential;
    }
}
