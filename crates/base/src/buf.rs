//! Owned bytes with room in front, so that a header can be put before data without a copy.

use crate::Block;
use std::fmt;
use std::ops::{Deref, DerefMut, Range};

/// Bytes in one allocation: `[room | contents | room]`.
///
/// A read lands behind the headroom, the session writes its header into the headroom, and the
/// whole goes to the socket as it is. The memory is always initialised; what is outside of the
/// contents is never shown.
///
/// The contents may also be a part of a [`Block`] that others hold too. Then there is no room
/// around them, and they are copied before anything but their length is changed.
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
    /// An empty buffer with room for `headroom` bytes before and `capacity` bytes behind what it is
    /// going to hold.
    pub fn with_room(headroom: usize, capacity: usize) -> Buf {
        Buf(Inner::Own(Own::with_room(headroom, capacity)))
    }

    /// Takes used memory for a new buffer: same as `with_room`, without the allocation.
    pub fn reuse(mut bytes: Vec<u8>, headroom: usize, capacity: usize) -> Buf {
        if bytes.len() < headroom + capacity {
            bytes.resize(headroom + capacity, 0);
        }
        Buf(Inner::Own(Own { bytes, start: headroom, end: headroom }))
    }

    /// A part of a block, which is not copied.
    pub fn shared(block: Block, range: Range<usize>) -> Buf {
        assert!(range.start <= range.end && range.end <= block.len());
        Buf(Inner::Shared(block, range))
    }

    /// Whether the contents are a part of a block, so that changing them costs a copy.
    pub fn is_shared(&self) -> bool {
        matches!(self.0, Inner::Shared(..))
    }

    /// Gives the memory back for reuse, if it is the buffer's own; the contents are gone.
    pub fn into_memory(self) -> Vec<u8> {
        match self.0 {
            Inner::Own(own) => own.bytes,
            Inner::Shared(..) => Vec::new(),
        }
    }

    /// How many bytes fit in front of the contents.
    pub fn headroom(&self) -> usize {
        match &self.0 {
            Inner::Own(own) => own.start,
            Inner::Shared(..) => 0,
        }
    }

    /// How many bytes fit behind the contents without growing.
    pub fn tailroom(&self) -> usize {
        match &self.0 {
            Inner::Own(own) => own.bytes.len() - own.end,
            Inner::Shared(..) => 0,
        }
    }

    /// How much memory of its own the buffer holds, bytes.
    pub fn capacity(&self) -> usize {
        match &self.0 {
            Inner::Own(own) => own.bytes.len(),
            Inner::Shared(..) => 0,
        }
    }

    /// The room behind the contents, to be filled by a read and then claimed by [`Buf::grow`].
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

    /// Makes sure that `n` bytes fit behind the contents.
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

    /// Puts a header in front of the contents; moves them only if the headroom is too small.
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

    /// Gives memory back if most of it has been consumed. Who appends at one end and consumes at
    /// the other calls this: what was consumed stays in front of the contents as headroom.
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

    /// The buffer's own memory; what is shared is copied there first, behind so much headroom.
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
    fn what_was_consumed_is_given_back() {
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
