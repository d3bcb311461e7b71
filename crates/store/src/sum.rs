//! Checksums: XXH3 with 64 bits, of pages, data blocks, journal batches and superblocks.

use xxhash_rust::xxh3::xxh3_64;

/// The checksum of some bytes.
pub(crate) fn sum(bytes: &[u8]) -> u64 {
    xxh3_64(bytes)
}
