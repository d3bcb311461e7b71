//! Memory for blocks: aligned to its own size, and used again and again.
//!
//! A block across two pages would be two segments to the kernel and to the disk, so a piece of
//! memory is aligned to its size. General allocators need twice the memory for such an alignment.
//! This allocator takes regions of 2 MiB from the system, cuts them into pieces of one size, and
//! keeps freed pieces for later blocks: memory of a block is never used for anything else. Pieces
//! of a fresh region are allocated in address order, so blocks read together are often adjacent,
//! too.
#![allow(unsafe_code)]

use std::alloc::{self, Layout};
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

/// Size of the smallest piece, bytes: the minimum alignment of direct I/O.
pub(super) const PIECE_MIN: usize = 512;
/// Size of the largest piece, bytes: that of a huge page.
pub(super) const PIECE_MAX: usize = 2 << 20;

/// Free pieces by size class (512 bytes, 1 KiB, …, 2 MiB).
static FREE: [Mutex<Vec<Free>>; 13] = [const { Mutex::new(Vec::new()) }; 13];

/// Start of a free piece.
struct Free(NonNull<u8>);

// SAFETY: the thread that removes the pointer from the list has the only reference to the piece.
unsafe impl Send for Free {}

/// An allocated piece with one owner.
pub(super) struct Piece {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the memory belongs to the piece alone, and is reached through its references only.
unsafe impl Send for Piece {}
// SAFETY: the same.
unsafe impl Sync for Piece {}

impl Piece {
    /// Returns a piece of `len` bytes with the contents of its previous use.
    ///
    /// # Panics
    /// If `len` is more than 2 MiB.
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
        // SAFETY: as above, and `&mut self` excludes other references.
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

/// Returns the index of the free list for pieces of this length.
fn class(len: usize) -> usize {
    assert!(len <= PIECE_MAX, "a block of {len} bytes");
    (len.max(PIECE_MIN).next_power_of_two() / PIECE_MIN).trailing_zeros() as usize
}

/// Takes a region from the system and cuts it into pieces. Regions are never freed.
fn add_region(free: &mut Vec<Free>, size: usize) {
    let layout = Layout::from_size_align(PIECE_MAX, PIECE_MAX).expect("2 MiB are a power of two");
    // SAFETY: the layout is not empty.
    let start = unsafe { alloc::alloc_zeroed(layout) };
    let Some(start) = NonNull::new(start) else { alloc::handle_alloc_error(layout) };
    // SAFETY: all pieces are within the region.
    free.extend((0..PIECE_MAX / size).rev().map(|at| Free(unsafe { start.add(at * size) })));
}
