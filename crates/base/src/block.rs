//! Memory for direct I/O, passed to and from the disk without copying.

mod memory;

use memory::Piece;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// One block of a volume: shared, aligned for direct I/O, and copied on write while it has other
/// owners.
///
/// A cache can therefore pass its blocks to the disk or to a socket and keep using them.
#[derive(Clone)]
pub struct Block(Arc<Piece>);

impl Block {
    /// Returns a block of `len` zero bytes, at most 2 MiB.
    pub fn zeroed(len: usize) -> Block {
        Block::from_bytes(&[], len)
    }

    /// Returns a block of `len` bytes that begins with `bytes`, padded with zeros.
    ///
    /// # Panics
    /// If `bytes` is longer than `len`.
    pub fn from_bytes(bytes: &[u8], len: usize) -> Block {
        let mut piece = Piece::new(len);
        let (start, rest) = piece.bytes_mut().split_at_mut(bytes.len());
        start.copy_from_slice(bytes);
        rest.fill(0);
        Block(Arc::new(piece))
    }

    /// Returns a block of `len` bytes for a read to fill; until then it has the contents of some
    /// earlier block.
    pub fn stale(len: usize) -> Block {
        Block(Arc::new(Piece::new(len)))
    }

    /// Returns the contents for modification, after a copy if the block has other owners.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        Arc::make_mut(&mut self.0).bytes_mut()
    }

    /// Returns whether the block has no other owner.
    pub fn is_unshared(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }
}

impl Deref for Block {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.0.bytes()
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
        write!(f, "Block({} bytes)", self.len())
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
        assert!(ours.is_unshared() && ours.as_ptr().addr().is_multiple_of(512));
    }

    #[test]
    fn memory_is_used_again_and_never_twice_at_once() {
        let mut rng = fastrand::Rng::with_seed(1);
        let mut blocks: Vec<(Block, u8, usize)> = Vec::new();
        for _ in 0..20_000 {
            if blocks.len() < 500 && rng.bool() {
                let (byte, len) = (rng.u8(..), 512 << rng.usize(..4));
                blocks.push((Block::from_bytes(&[byte; 512], len), byte, len));
            } else if !blocks.is_empty() {
                let (block, byte, len) = blocks.swap_remove(rng.usize(..blocks.len()));
                assert!(block.as_ptr().addr().is_multiple_of(len));
                assert!(block[..512].iter().all(|found| *found == byte));
                assert!(block.len() == len && block[512..].iter().all(|found| *found == 0));
            }
        }
    }
}
