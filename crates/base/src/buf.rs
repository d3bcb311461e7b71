//! Owned bytes with headroom, so that a header can be prepended to data without a copy.

use crate::Block;
use std::fmt;
use std::ops::{Deref, DerefMut, Range};

/// Bytes in one allocation: `[room | contents | room]`.
///
/// A read fills the buffer behind the headroom, the session writes its header into the headroom,
/// and the whole goes to the socket as it is. The memory is always initialised; bytes outside of
/// the contents are never exposed.
///
/// The contents may also be a range of a [`Block`] with other owners. Then there is no room around
/// them, and any change but that of their length copies them first.
#[derive(Clone)]
pub struct Buf(Inner);

#[derive(Clone)]
enum Inner {
    Own(Own),
    Shared(Block, Range<usize>),
}

#[derive(Clone)]
struct Own {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Buf {
    /// Returns an empty buffer with `headroom` bytes in front of the contents and room for
    /// `capacity` bytes of contents.
    pub fn with_room(headroom: usize, capacity: usize) -> Buf {
        Buf(Inner::Own(Own::with_room(headroom, capacity)))
    }

    /// Like [`Buf::with_room`], but reuses this memory instead of an allocation.
    pub fn reuse(mut bytes: Vec<u8>, headroom: usize, capacity: usize) -> Buf {
        if bytes.len() < headroom + capacity {
            bytes.resize(headroom + capacity, 0);
        }
        Buf(Inner::Own(Own { bytes, start: headroom, end: headroom }))
    }

    /// Returns a buffer of a range of a block, without copying.
    pub fn shared(block: Block, range: Range<usize>) -> Buf {
        assert!(range.start <= range.end && range.end <= block.len());
        Buf(Inner::Shared(block, range))
    }

    /// Returns whether the contents are a range of a block, so that changing them costs a copy.
    pub fn is_shared(&self) -> bool {
        matches!(self.0, Inner::Shared(..))
    }

    /// Returns the buffer's own memory for reuse and drops the contents; empty for a shared buffer.
    pub fn into_memory(self) -> Vec<u8> {
        match self.0 {
            Inner::Own(own) => own.bytes,
            Inner::Shared(..) => Vec::new(),
        }
    }

    /// Returns the number of bytes that fit in front of the contents.
    pub fn headroom(&self) -> usize {
        match &self.0 {
            Inner::Own(own) => own.start,
            Inner::Shared(..) => 0,
        }
    }

    /// Returns the number of bytes that fit behind the contents without growing.
    pub fn tailroom(&self) -> usize {
        match &self.0 {
            Inner::Own(own) => own.bytes.len() - own.end,
            Inner::Shared(..) => 0,
        }
    }

    /// Returns the size of the buffer's own memory, bytes.
    pub fn capacity(&self) -> usize {
        match &self.0 {
            Inner::Own(own) => own.bytes.len(),
            Inner::Shared(..) => 0,
        }
    }

    /// Returns the room behind the contents, to be filled by a read and then claimed by
    /// [`Buf::grow`].
    pub fn spare(&mut self) -> &mut [u8] {
        let own = self.own(0);
        &mut own.bytes[own.end..]
    }

    /// Makes the first `n` bytes of [`Buf::spare`] part of the contents.
    pub fn grow(&mut self, n: usize) {
        let own = self.own(0);
        assert!(n <= own.bytes.len() - own.end);
        own.end += n;
    }

    /// Ensures that `n` bytes fit behind the contents.
    pub fn reserve(&mut self, n: usize) {
        if self.tailroom() < n {
            let own = self.own(0);
            own.bytes.resize(own.end + n, 0);
        }
    }

    /// Appends bytes, growing if needed.
    pub fn extend(&mut self, more: &[u8]) {
        self.reserve(more.len());
        self.spare()[..more.len()].copy_from_slice(more);
        self.grow(more.len());
    }

    /// Prepends a header to the contents; moves them only if the headroom is too small.
    pub fn prepend(&mut self, header: &[u8]) {
        let own = self.own(header.len());
        if own.start < header.len() {
            let missing = header.len() - own.start;
            own.bytes.splice(0..0, std::iter::repeat_n(0, missing));
            own.start += missing;
            own.end += missing;
        }
        own.start -= header.len();
        own.bytes[own.start..own.start + header.len()].copy_from_slice(header);
    }

    /// Drops the first `n` bytes of the contents.
    pub fn consume(&mut self, n: usize) {
        assert!(n <= self.len());
        match &mut self.0 {
            Inner::Own(own) => own.start += n,
            Inner::Shared(_, range) => range.start += n,
        }
    }

    /// Frees memory if the contents fill less than a quarter of it. Needed where bytes are appended
    /// at one end and consumed at the other: consumed bytes stay in front of the contents as
    /// headroom.
    pub fn shrink(&mut self) {
        if self.len() < self.capacity() / 4 {
            *self = Buf::from(&**self);
        }
    }

    /// Keeps only the first `n` bytes of the contents, or all if there are fewer.
    pub fn truncate(&mut self, n: usize) {
        let n = n.min(self.len());
        match &mut self.0 {
            Inner::Own(own) => own.end = own.start + n,
            Inner::Shared(_, range) => range.end = range.start + n,
        }
    }

    /// Returns the buffer's own memory; copies shared contents there first, behind `headroom`
    /// bytes.
    fn own(&mut self, headroom: usize) -> &mut Own {
        if let Inner::Shared(block, range) = &self.0 {
            let mut own = Own::with_room(headroom, range.len());
            own.bytes[headroom..].copy_from_slice(&block[range.clone()]);
            own.end = own.bytes.len();
            self.0 = Inner::Own(own);
        }
        match &mut self.0 {
            Inner::Own(own) => own,
            Inner::Shared(..) => unreachable!("it has just been copied"),
        }
    }
}

impl Own {
    fn with_room(headroom: usize, capacity: usize) -> Own {
        Own { bytes: vec![0; headroom + capacity], start: headroom, end: headroom }
    }
}

impl Default for Buf {
    fn default() -> Buf {
        Buf::from(Vec::new())
    }
}

impl From<Vec<u8>> for Buf {
    fn from(bytes: Vec<u8>) -> Buf {
        let end = bytes.len();
        Buf(Inner::Own(Own { bytes, start: 0, end }))
    }
}

impl From<&[u8]> for Buf {
    fn from(bytes: &[u8]) -> Buf {
        Buf::from(bytes.to_vec())
    }
}

impl Deref for Buf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Inner::Own(own) => &own.bytes[own.start..own.end],
            Inner::Shared(block, range) => &block[range.clone()],
        }
    }
}

impl DerefMut for Buf {
    fn deref_mut(&mut self) -> &mut [u8] {
        let own = self.own(0);
        &mut own.bytes[own.start..own.end]
    }
}

impl PartialEq for Buf {
    fn eq(&self, other: &Buf) -> bool {
        **self == **other
    }
}

impl Eq for Buf {}

impl fmt::Debug for Buf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buf({} bytes)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consumed_capacity_is_returned() {
        let mut queue = Buf::default();
        for _ in 0..1000 {
            queue.extend(b"0123456789");
            queue.consume(10 - usize::from(queue.len() == 10));
            queue.shrink();
        }
        assert_eq!(&*queue, b"9");
        assert!(queue.capacity() <= 44, "{}", queue.capacity());
    }

    #[test]
    fn a_header_goes_in_front_without_moving_the_contents() {
        let mut buf = Buf::with_room(4, 8);
        buf.extend(b"data");
        buf.prepend(b"head");
        assert_eq!((&*buf, buf.headroom(), buf.tailroom()), (&b"headdata"[..], 0, 4));
        buf.prepend(b"+");
        assert_eq!(&*buf, b"+headdata");
    }

    #[test]
    fn consumed_bytes_are_gone_and_reuse_shows_nothing_old() {
        let mut buf = Buf::from(&b"secret"[..]);
        buf.consume(3);
        assert_eq!(&*buf, b"ret");
        let again = Buf::reuse(buf.into_memory(), 2, 3);
        assert_eq!((again.len(), again.headroom(), again.tailroom()), (0, 2, 4));
    }

    #[test]
    fn a_part_of_a_block_is_shared_until_it_is_changed() {
        let block = Block::from_bytes(b"contents", 512);
        let mut buf = Buf::shared(block.clone(), 0..8);
        assert!(buf.is_shared() && buf.as_ptr() == block.as_ptr());
        assert_eq!((buf.headroom(), buf.tailroom(), buf.capacity()), (0, 0, 0));
        buf.consume(3);
        buf.truncate(usize::MAX);
        buf.truncate(4);
        assert!(!block.is_unshared() && buf == Buf::from(&b"tent"[..]));
        assert!(Buf::shared(block.clone(), 0..8).into_memory().is_empty());

        type Change = (fn(&mut Buf), &'static [u8]);
        let changes: [Change; 6] = [
            (|buf| buf[0] = b'T', b"Tent"),
            (|buf| buf.extend(b"s"), b"tents"),
            (|buf| buf.prepend(b"con"), b"content"),
            (|buf| buf.reserve(1), b"tent"),
            (|buf| assert!(buf.spare().is_empty()), b"tent"),
            (|buf| buf.grow(0), b"tent"),
        ];
        for (change, expected) in changes {
            let mut other = buf.clone();
            change(&mut other);
            assert_eq!((&*other, other.is_shared()), (expected, false));
            assert!(!other.into_memory().is_empty());
        }
        assert_eq!((&*buf, &block[..8]), (&b"tent"[..], &b"contents"[..]));
        drop(buf);
        assert!(block.is_unshared());
    }
}
