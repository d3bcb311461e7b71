//! The records of `upcall load`, and interference of the machine.

use super::kernel::Seen;
use crate::instrument::number;
use anyhow::{Context, Result};
use serde_json::Value;
use std::path::Path;

/// Bytes of a block of a file of records; its layout is in `crates/load/src/records.rs`.
const BLOCK: usize = 64;
const END: u8 = 255;
const SKIPPED: u8 = 2;

/// The relevant fields of an I/O; times are ns since the start of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) scheduled: u64,
    pub(super) issued: u64,
    pub(super) completed: u64,
    /// Issue time, from the kernel's tracing.
    pub(super) witnessed: Option<u64>,
    pub(super) place: Seen,
}

/// Returns the share of time lost by a spin loop, averaged over just before and just after a run.
pub(super) fn bare(printed: &Value) -> f64 {
    let share = |when: &str| {
        let of = |what: &str| number(printed, &format!("/machine/spin_{when}/{what}"));
        of("lost_ns") / of("watched_ns")
    };
    f64::midpoint(share("before"), share("after"))
}

/// Returns the I/Os of a run in order of time.
pub(super) fn records(path: &Path) -> Result<Vec<Record>> {
    let bytes = std::fs::read(path).with_context(|| path.display().to_string())?;
    let mut records: Vec<_> = bytes.chunks_exact(BLOCK).skip(1).filter_map(record).collect();
    records.sort_by_key(|record| (record.scheduled, record.issued));
    Ok(records)
}

/// Parses an I/O that was issued; returns `None` for other blocks.
fn record(block: &[u8]) -> Option<Record> {
    let long = |index: usize| {
        u64::from_le_bytes(block[index * 8..][..8].try_into().expect("it has eight bytes"))
    };
    let word = u32::from_le_bytes(block[40..44].try_into().expect("it has four bytes"));
    let issued = block[56] != END && block[57] != SKIPPED;
    issued.then(|| Record {
        scheduled: long(0),
        issued: long(1),
        completed: long(2),
        witnessed: Some(long(3)).filter(|time| *time != u64::MAX),
        place: Seen { offset: long(4), len: word.into() },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn issued_ios_are_identified_by_their_block() {
        let mut block = [0; BLOCK];
        for (index, value) in [10_u64, 12, 30, u64::MAX, 4096].iter().enumerate() {
            block[index * 8..][..8].copy_from_slice(&value.to_le_bytes());
        }
        block[40..44].copy_from_slice(&512_u32.to_le_bytes());
        let read = record(&block).expect("it was issued");
        assert_eq!((read.scheduled, read.issued, read.completed), (10, 12, 30));
        assert_eq!((read.witnessed, read.place), (None, Seen { offset: 4096, len: 512 }));
        block[57] = SKIPPED;
        assert_eq!(record(&block), None);
    }
}
