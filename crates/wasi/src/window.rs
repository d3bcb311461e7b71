//! Read-ahead window of a file.
//!
//! Small sequential reads are served from here, without a switch to the owner of the file. Data is
//! valid for a moment, and not after a change by the guest itself.

use crate::listings::Seen;
use base::Buf;

/// Initial and maximum amount of read-ahead, bytes.
const FIRST: u32 = 64 << 10;
const MOST: u32 = 256 << 10;

/// A part of a file.
#[derive(Debug, Default)]
pub(crate) struct Window {
    from: u64,
    pieces: Vec<Buf>,
    /// Whether the file ends behind it, as far as known.
    is_last: bool,
    seen: Seen,
    /// Offset at which a sequential reader continues.
    next: u64,
    /// Amount of read-ahead, bytes.
    prefetch: u32,
}

impl Window {
    /// Creates the first window of a file of this size.
    pub(crate) fn first(data: Buf, size: u64, seen: Seen) -> Window {
        let mut window = Window { next: 0, prefetch: FIRST, ..Window::default() };
        window.fill(0, vec![data], Some(size), seen);
        window
    }

    /// Returns the size in host memory, bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.pieces.iter().map(|piece| piece.len()).sum()
    }

    fn end(&self) -> u64 {
        self.from + self.bytes() as u64
    }

    /// Returns whether it can serve a read at this offset.
    pub(crate) fn has(&self, offset: u64, now: Seen) -> bool {
        let inside = (self.from..self.end()).contains(&offset);
        (inside || (self.is_last && offset >= self.end())) && self.seen.is_fresh(now)
    }

    /// Returns the bytes from an offset on, in pieces.
    pub(crate) fn behind(&self, offset: u64) -> impl Iterator<Item = &[u8]> {
        assert!(offset >= self.from, "earlier bytes were not read");
        let mut skip = usize::try_from(offset - self.from).unwrap_or(usize::MAX);
        self.pieces.iter().map(move |piece| {
            let start = skip.min(piece.len());
            skip -= start;
            &piece[start..]
        })
    }

    /// Returns the number of bytes to read for a request of `count` bytes.
    pub(crate) fn wanted(&mut self, offset: u64, count: u32) -> u32 {
        if offset != self.next {
            self.prefetch = 0;
            return count;
        }
        self.prefetch = (self.prefetch * 2).clamp(FIRST, MOST);
        count.max(self.prefetch)
    }

    /// Returns the part of the file to prefetch for a sequential reader: offset and size.
    pub(crate) fn following(&self) -> Option<(u64, u32)> {
        let is_sequential = self.prefetch > FIRST && !self.is_last && self.bytes() > 0;
        is_sequential.then(|| (self.end(), (self.prefetch * 2).min(MOST)))
    }

    /// Stores data, of a file of this size if known.
    pub(crate) fn fill(&mut self, from: u64, pieces: Vec<Buf>, size: Option<u64>, seen: Seen) {
        (self.from, self.pieces, self.seen) = (from, pieces, seen);
        self.is_last = size.is_some_and(|size| size <= self.end());
    }

    /// Records a read.
    pub(crate) fn moved(&mut self, offset: u64, count: u32) {
        self.next = offset + u64::from(count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rest(window: &Window, offset: u64) -> Vec<u8> {
        window.behind(offset).collect::<Vec<_>>().concat()
    }

    #[test]
    fn small_reads_one_behind_the_other_are_answered_from_it() {
        let seen = Seen::default();
        let mut window = Window::first(Buf::from(&b"abcdef"[..]), 9, seen);
        assert!(window.has(2, seen) && !window.has(6, seen));
        assert_eq!(rest(&window, 2), b"cdef");
        window.moved(0, 6);
        assert_eq!(window.wanted(6, 1), 2 * FIRST);
        window.fill(6, vec![Buf::from(&b"g"[..]), Buf::from(&b"hi"[..])], Some(9), seen);
        assert_eq!((rest(&window, 7), rest(&window, 20)), (b"hi".to_vec(), Vec::new()));
        assert!(window.has(9, seen), "the end is known");
        assert_eq!(window.following(), None);
        assert!(!window.has(7, Seen { changes: 1, ..seen }));
    }

    #[test]
    fn random_reads_return_the_requested_bytes() {
        let mut window = Window::default();
        assert_eq!(window.wanted(500, 7), 7);
        window.moved(500, 7);
        assert_eq!(window.wanted(507, 7), FIRST);
        window.fill(507, vec![Buf::from(&[7; 9][..])], None, Seen::default());
        assert_eq!(window.following(), None, "a second read may be the last one");
        window.moved(507, 9);
        assert_eq!(window.wanted(516, 9), 2 * FIRST);
        window.fill(516, vec![Buf::from(&[7; 9][..])], None, Seen::default());
        assert_eq!(window.following(), Some((525, MOST)));
    }
}
