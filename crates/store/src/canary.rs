//! A fault to be injected for the simulation, which must find it; and functions of the store for
//! fuzzers.

use crate::Superblock;
use crate::journal::batch;
pub use crate::sum::believe_everything;

/// Makes the batches of a journal ring valid by new checksums, however its bytes were modified, as
/// far as batches can be recognised by their numbers.
pub fn seal_journal(superblock: &Superblock, ring: &mut [u8]) {
    let mut place = superblock.tail;
    // Each batch has a number of its own, so this ends with the ring.
    while let Some(next) = batch::seal_again(superblock.layout.block, ring, place) {
        place = next;
    }
}
