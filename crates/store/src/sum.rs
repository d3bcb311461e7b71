//! Checksums: XXH3 with 64 bits, of pages, data blocks, journal batches and superblocks.

use xxhash_rust::xxh3::xxh3_64;

/// The checksum of some bytes.
pub(crate) fn sum(bytes: &[u8]) -> u64 {
    xxh3_64(bytes)
}

/// Whether some bytes have this checksum.
#[cfg(not(feature = "canary"))]
pub(crate) fn is_sum(bytes: &[u8], wanted: u64) -> bool {
    sum(bytes) == wanted
}

/// The same, unless the simulation wants to know whether it would notice.
#[cfg(feature = "canary")]
pub(crate) fn is_sum(bytes: &[u8], wanted: u64) -> bool {
    sum(bytes) == wanted || crate::canary::believes()
}
