//! A part of a file that was read ahead for a guest.
//!
//! Small reads one behind the other are answered from here, without a switch to whoever has the
//! file. What was read ahead is believed for a moment, and not after the guest itself has changed
//! something.

use crate::listings::Seen;
use base::Buf;

/// How much is read ahead at first and at most, bytes.
const FIRST: u32 = 64 << 10;
const MOST: u32 = 256 << 10;

/// A part of a file.
#[derive(Debug, Default)]
pub(crate) struct Window {
    from: u64,
    pieces: Vec<Buf>,
    /// The file ends behind it, as far as is known.
    is_last: bool,
    seen: Seen,
    /// Where a reader goes on who reads one piece behind the other.
    next: u64,
    /// How much is read ahead then.
    ahead: u32,
}

impl Window {
    /// The first part of a file of this size.
    pub(crate) fn first(data: Buf, size: u64, seen: Seen) -> Window {
        let mut window = Window { next: 0, ahead: FIRST, ..Window::default() };
        window.fill(0, vec![data], Some(size), seen);
        window
    }

    /// How much of the host's memory it takes, bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.pieces.iter().map(|piece| piece.len()).sum()
    }

    fn end(&self) -> u64 {
        self.from + self.bytes() as u64
    }

    /// Whether it answers a read from here.
    pub(crate) fn has(&self, offset: u64, now: Seen) -> bool {
        let inside = (self.from..self.end()).contains(&offset);
        (inside || (self.is_last && offset >= self.end())) && self.seen.is_fresh(now)
    }

    /// The bytes from an offset on, in pieces.
    pub(crate) fn behind(&self, offset: u64) -> impl Iterator<Item = &[u8]> {
        assert!(offset >= self.from, "what is before it was not read");
        let mut skip = usize::try_from(offset - self.from).unwrap_or(usize::MAX);
        self.pieces.iter().map(move |piece| {
            let start = skip.min(piece.len());
            skip -= start;
            &piece[start..]
        })
    }

    /// How much to read where so much is wanted from here.
    pub(crate) fn wanted(&mut self, offset: u64, count: u32) -> u32 {
        if offset != self.next {
            self.ahead = 0;
            return count;
        }
        self.ahead = (self.ahead * 2).clamp(FIRST, MOST);
        count.max(self.ahead)
    }

    /// Takes what was read, of a file of this size if that is known.
    pub(crate) fn fill(&mut self, from: u64, pieces: Vec<Buf>, size: Option<u64>, seen: Seen) {
        (self.from, self.pieces, self.seen) = (from, pieces, seen);
        self.is_last = size.is_some_and(|size| size <= self.end());
    }

    /// So much was taken from here.
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
        assert!(!window.has(7, Seen { changes: 1, ..seen }));
    }

    #[test]
    fn who_reads_here_and_there_gets_what_he_asks_for() {
        let mut window = Window::default();
        assert_eq!(window.wanted(500, 7), 7);
        window.moved(500, 7);
        assert_eq!(window.wanted(507, 7), FIRST);
    }
}
