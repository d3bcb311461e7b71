//! Owned bytes with room in front, so that a header can be put before data without a copy.

use std::fmt;
use std::ops::{Deref, DerefMut};

/// Bytes in one allocation: `[room | contents | room]`.
///
/// A read lands behind the headroom, the session writes its header into the headroom, and the
/// whole goes to the socket as it is. The memory is always initialised; what is outside of the
/// contents is never shown.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Buf {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Buf {
    /// An empty buffer with room for `headroom` bytes before and `capacity` bytes behind what it is
    /// going to hold.
    pub fn with_room(headroom: usize, capacity: usize) -> Buf {
        Buf { bytes: vec![0; headroom + capacity], start: headroom, end: headroom }
    }

    /// Takes used memory for a new buffer: same as `with_room`, without the allocation.
    pub fn reuse(mut bytes: Vec<u8>, headroom: usize, capacity: usize) -> Buf {
        if bytes.len() < headroom + capacity {
            bytes.resize(headroom + capacity, 0);
        }
        Buf { bytes, start: headroom, end: headroom }
    }

    /// Gives the memory back for reuse; the contents are gone.
    pub fn into_memory(self) -> Vec<u8> {
        self.bytes
    }

    /// How many bytes fit in front of the contents.
    pub fn headroom(&self) -> usize {
        self.start
    }

    /// How many bytes fit behind the contents without growing.
    pub fn tailroom(&self) -> usize {
        self.bytes.len() - self.end
    }

    /// How much memory the buffer holds, bytes.
    pub fn capacity(&self) -> usize {
        self.bytes.len()
    }

    /// The room behind the contents, to be filled by a read and then claimed by [`Buf::grow`].
    pub fn spare(&mut self) -> &mut [u8] {
        &mut self.bytes[self.end..]
    }

    /// Makes the first `n` bytes of [`Buf::spare`] part of the contents.
    pub fn grow(&mut self, n: usize) {
        assert!(n <= self.tailroom());
        self.end += n;
    }

    /// Makes sure that `n` bytes fit behind the contents.
    pub fn reserve(&mut self, n: usize) {
        if self.tailroom() < n {
            self.bytes.resize(self.end + n, 0);
        }
    }

    /// Appends bytes, growing if needed.
    pub fn extend(&mut self, more: &[u8]) {
        self.reserve(more.len());
        self.bytes[self.end..self.end + more.len()].copy_from_slice(more);
        self.end += more.len();
    }

    /// Puts a header in front of the contents; moves them only if the headroom is too small.
    pub fn prepend(&mut self, header: &[u8]) {
        if self.start < header.len() {
            let missing = header.len() - self.start;
            self.bytes.splice(0..0, std::iter::repeat_n(0, missing));
            self.start += missing;
            self.end += missing;
        }
        self.start -= header.len();
        self.bytes[self.start..self.start + header.len()].copy_from_slice(header);
    }

    /// Drops the first `n` bytes of the contents.
    pub fn consume(&mut self, n: usize) {
        assert!(n <= self.len());
        self.start += n;
    }

    /// Keeps only the first `n` bytes of the contents.
    pub fn truncate(&mut self, n: usize) {
        self.end = self.end.min(self.start + n);
    }
}

impl From<Vec<u8>> for Buf {
    fn from(bytes: Vec<u8>) -> Buf {
        let end = bytes.len();
        Buf { bytes, start: 0, end }
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
        &self.bytes[self.start..self.end]
    }
}

impl DerefMut for Buf {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.end]
    }
}

impl fmt::Debug for Buf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buf({} bytes)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
