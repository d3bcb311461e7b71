//! Memory for blocks: aligned to its own size, and used again and again.
//!
//! A block that lay across two pages would be two pieces to the kernel and to the disk, so a piece
//! of memory is aligned to its size. General allocators pay for that with as much memory again.
//! This one takes memory from the system in regions of 2 MiB, cuts them into pieces of one size,
//! and keeps what is given back for the next block: memory that was a block's stays one's. Pieces
//! of a fresh region are given out in order, so what is read together often lies together, too.
#![allow(unsafe_code)]

use std::alloc::{self, Layout};
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

/// The smallest piece, bytes: what direct I/O wants at least.
pub(super) const PIECE_MIN: usize = 512;
/// The largest piece, bytes. The system's large pages are as large.
pub(super) const PIECE_MAX: usize = 2 << 20;

/// For each size (512 bytes, 1 KiB, …, 2 MiB): the pieces that nobody has.
static FREE: [Mutex<Vec<Free>>; 13] = [const { Mutex::new(Vec::new()) }; 13];

/// The beginning of a piece that nobody has.
struct Free(NonNull<u8>);

// SAFETY: whoever takes it from the list is the only one who knows it.
unsafe impl Send for Free {}

/// A piece of memory that one owner has.
pub(super) struct Piece {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the memory belongs to the piece alone, and is reached through its references only.
unsafe impl Send for Piece {}
// SAFETY: the same.
unsafe impl Sync for Piece {}

impl Piece {
    /// A piece of `len` bytes, which were somebody's before.
    ///
    /// # Panics
    /// If there are no such pieces: they have 512 bytes to 2 MiB.
    pub(super) fn new(len: usize) -> Piece {
        let class = class(len);
        let mut free = FREE[class].lock().unwrap_or_else(PoisonError::into_inner);
        if free.is_empty() {
            add_region(&mut free, PIECE_MIN << class);
        }
        let Free(start) = free.pop().expect("a region has pieces");
        Piece { start, len }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: a piece has at least `len` bytes, which were written once, by `add_region`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and nobody else has a reference.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Clone for Piece {
    fn clone(&self) -> Piece {
        let mut copy = Piece::new(self.len);
        copy.bytes_mut().copy_from_slice(self.bytes());
        copy
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        let mut free = FREE[class(self.len)].lock().unwrap_or_else(PoisonError::into_inner);
        free.push(Free(self.start));
    }
}

/// Which list has pieces of this length.
fn class(len: usize) -> usize {
    assert!(len <= PIECE_MAX, "a block of {len} bytes");
    (len.max(PIECE_MIN).next_power_of_two() / PIECE_MIN).trailing_zeros() as usize
}

/// Takes a region from the system, and cuts it up. It is never given back.
fn add_region(free: &mut Vec<Free>, size: usize) {
    let layout = Layout::from_size_align(PIECE_MAX, PIECE_MAX).expect("2 MiB are a power of two");
    // SAFETY: the layout is not empty.
    let start = unsafe { alloc::alloc_zeroed(layout) };
    let Some(start) = NonNull::new(start) else { alloc::handle_alloc_error(layout) };
    // SAFETY: all pieces are within the region.
    free.extend((0..PIECE_MAX / size).rev().map(|at| Free(unsafe { start.add(at * size) })));
}
