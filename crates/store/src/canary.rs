//! A mistake that can be planted, for the simulation, which must find it; and what only a store can
//! make, for the fuzzers.

use crate::Superblock;
use crate::journal::batch;
use std::cell::Cell;

thread_local! {
    static BELIEVE: Cell<bool> = const { Cell::new(false) };
}

/// From now on this thread takes every page and every block for what was wanted, or no longer.
pub fn believe_everything(believe: bool) {
    BELIEVE.set(believe);
}

pub(crate) fn believes() -> bool {
    BELIEVE.get()
}

/// Puts checksums that fit under the batches of a journal ring, however its bytes were changed, as
/// far as batches can be told from their numbers.
pub fn seal_journal(superblock: &Superblock, ring: &mut [u8]) {
    let mut place = superblock.tail;
    // Each batch has a number of its own, so this ends with the ring.
    while let Some(next) = batch::seal_again(superblock.layout.block, ring, place) {
        place = next;
    }
}
