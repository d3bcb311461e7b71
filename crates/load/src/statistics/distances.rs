//! How far apart consecutive I/Os of a file are.

use super::buckets::Buckets;
use crate::io::{Io, Kind};
use std::collections::BTreeMap;

/// Files with numbers below this are looked up in an array.
const NEAR: usize = 1 << 12;

/// The distance from the end of one I/O of a file to the beginning of the next, in the order in
/// which they are handed over. Syncs and the making and removing of files have no place.
///
/// The memory is that of a table of files: 16 bytes for each file that was touched.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Distances {
    /// Distances in bytes, either way, of those that are not sequential.
    pub apart: Buckets,
    /// I/Os that begin where the one before ended.
    pub sequential: u64,
    /// Where the last I/O of each file ended.
    near: Vec<Option<u64>>,
    far: BTreeMap<u32, Option<u64>>,
}

impl Distances {
    /// Takes up the next I/O.
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

    /// How many distances there are.
    pub fn count(&self) -> u64 {
        self.apart.count() + self.sequential
    }

    /// The share of I/Os that begin where the one before ended; 0 of none.
    pub fn sequential_share(&self) -> f64 {
        self.sequential as f64 / self.count().max(1) as f64
    }

    /// The distance, bytes, that a share `q` of all does not exceed.
    pub fn quantile(&self, q: f64) -> u64 {
        let rank = q * self.count() as f64 - self.sequential as f64;
        if rank <= 0.0 {
            return 0;
        }
        self.apart.quantile(rank / self.apart.count() as f64)
    }

    /// Takes up the distances of another part of the run.
    pub(super) fn merge(&mut self, other: &Distances) {
        self.apart.merge(&other.apart);
        self.sequential += other.sequential;
    }
}
