//! Checksums: XXH3 with 64 bits, of pages, data blocks, journal batches and superblocks.

use xxhash_rust::xxh3::xxh3_64;

/// Returns the checksum of some bytes.
pub(crate) fn sum(bytes: &[u8]) -> u64 {
    xxh3_64(bytes)
}

/// Returns whether some bytes have this checksum.
#[cfg(not(feature = "canary"))]
pub(crate) fn is_sum(bytes: &[u8], wanted: u64) -> bool {
    sum(bytes) == wanted
}

/// Like the above, unless disabled by the simulation to see whether it would notice.
#[cfg(feature = "canary")]
pub(crate) fn is_sum(bytes: &[u8], wanted: u64) -> bool {
    sum(bytes) == wanted || BELIEVE.get()
}

#[cfg(feature = "canary")]
thread_local! {
    static BELIEVE: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Disables or enables the checks of pages and blocks in this thread.
#[cfg(feature = "canary")]
pub fn believe_everything(believe: bool) {
    BELIEVE.set(believe);
}
