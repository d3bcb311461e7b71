//! Memory that goes to a disk and comes from it as it is.

use bytemuck::{Pod, Zeroable};
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// What direct I/O wants memory to be aligned to, bytes: a logical sector. More would cost memory,
/// because the counters of a shared block take one such unit.
const ALIGN: usize = 512;

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(512))]
struct Unit([u8; ALIGN]);

/// One block of a volume: shared, aligned for direct I/O, copied only when somebody changes it
/// while somebody else still holds it.
///
/// So a cache may hand its blocks to the disk or to a socket and go on working with them.
#[derive(Clone)]
pub struct Block {
    memory: Arc<[Unit]>,
    len: usize,
}

impl Block {
    /// A block of zeros of `len` bytes.
    pub fn zeroed(len: usize) -> Block {
        let units = len.div_ceil(ALIGN);
        Block { memory: std::iter::repeat_n(Unit::zeroed(), units).collect(), len }
    }

    /// A block of `len` bytes that begins with `bytes`, the rest zeros.
    ///
    /// # Panics
    /// If they do not fit.
    pub fn from_bytes(bytes: &[u8], len: usize) -> Block {
        assert!(bytes.len() <= len);
        let unit = |index: usize| {
            let mut unit = Unit::zeroed();
            let part = bytes.get(index * ALIGN..).unwrap_or_default();
            let part = &part[..part.len().min(ALIGN)];
            unit.0[..part.len()].copy_from_slice(part);
            unit
        };
        Block { memory: (0..len.div_ceil(ALIGN)).map(unit).collect(), len }
    }

    /// The contents to be changed; copied first if somebody else holds the block too.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let units = Arc::make_mut(&mut self.memory);
        &mut bytemuck::cast_slice_mut(units)[..self.len]
    }

    /// Whether nobody else holds it.
    pub fn is_unshared(&self) -> bool {
        Arc::strong_count(&self.memory) == 1
    }
}

impl Deref for Block {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.memory)[..self.len]
    }
}

impl PartialEq for Block {
    fn eq(&self, other: &Block) -> bool {
        **self == **other
    }
}

impl Eq for Block {}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Block({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_block_is_copied_when_it_is_changed() {
        let mut ours = Block::from_bytes(b"old", 512);
        let theirs = ours.clone();
        ours.bytes_mut()[..3].copy_from_slice(b"new");
        assert_eq!((&ours[..3], &theirs[..3], ours.len()), (&b"new"[..], &b"old"[..], 512));
        assert!(ours.is_unshared() && ours.as_ptr().addr().is_multiple_of(ALIGN));
    }
}
