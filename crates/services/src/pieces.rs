//! Byte queue for unread answers, with known memory use that shrinks as it is read.

use std::collections::LinkedList;

/// Size of the smallest piece, in bytes.
pub(crate) const SIZE_MIN: usize = 256;

/// Memory overhead of a piece in bytes: a list node, and the headers of two allocations.
pub(crate) const OVERHEAD: usize = 2 * size_of::<usize>() + size_of::<Vec<u8>>() + 2 * 16;

/// Bytes in separate allocations, each freed once it has been read.
#[derive(Debug, Default)]
#[allow(clippy::linkedlist, reason = "a queue of pieces would take room for more of them")]
pub(crate) struct Pieces {
    pieces: LinkedList<Vec<u8>>,
    /// Bytes of the first piece that have been read.
    passed: usize,
    /// Unread bytes.
    len: usize,
}

impl Pieces {
    /// Appends bytes.
    pub(crate) fn extend(&mut self, mut bytes: &[u8]) {
        self.len += bytes.len();
        if let Some(last) = self.pieces.back_mut() {
            let room = last.capacity() - last.len();
            let (fits, rest) = bytes.split_at(room.min(bytes.len()));
            last.extend_from_slice(fits);
            bytes = rest;
        }
        if !bytes.is_empty() {
            let mut piece = Vec::with_capacity(bytes.len().max(SIZE_MIN));
            piece.extend_from_slice(bytes);
            self.pieces.push_back(piece);
        }
    }

    /// Removes and returns up to `count` bytes from the front.
    pub(crate) fn take(&mut self, count: usize) -> Vec<u8> {
        let count = count.min(self.len);
        let mut some = Vec::with_capacity(count);
        while let Some(first) = self.pieces.front()
            && some.len() < count
        {
            let end = first.len().min(self.passed + count - some.len());
            some.extend_from_slice(&first[self.passed..end]);
            self.passed = end;
            if end == first.len() {
                self.pieces.pop_front();
                self.passed = 0;
            }
        }
        self.len -= count;
        some
    }

    /// Returns the number of unread bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the memory used, in bytes. All pieces but the last are full.
    pub(crate) fn memory(&self) -> usize {
        let last = self.pieces.back().map_or(0, |last| last.capacity() - last.len());
        self.passed + self.len + last + self.pieces.len() * OVERHEAD
    }

    /// Returns the pieces.
    #[cfg(test)]
    pub(crate) fn each(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.pieces.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_freed_as_they_are_read() {
        let mut pieces = Pieces::default();
        let all: Vec<u8> = (0..100_000_u32).map(|number| (number % 251) as u8).collect();
        for part in all.chunks(1000) {
            pieces.extend(part);
        }
        let memory = |pieces: &Pieces| {
            let bytes = pieces.pieces.iter().map(Vec::capacity).sum::<usize>();
            bytes + pieces.pieces.len() * OVERHEAD
        };
        assert_eq!((pieces.len, pieces.memory()), (100_000, memory(&pieces)));
        let mut read = pieces.take(700);
        assert_eq!((pieces.len, pieces.memory()), (99_300, memory(&pieces)));
        while pieces.len > 0 {
            read.extend(pieces.take(1777));
            let most = pieces.len + 1000 + (pieces.len / 1000 + 1) * OVERHEAD;
            assert!(memory(&pieces) <= most, "{} of {most}", memory(&pieces));
        }
        assert_eq!(read, all);
        assert_eq!((pieces.memory(), pieces.take(1)), (0, vec![]));
        // Short ones share a piece.
        (0..100).for_each(|_| pieces.extend(b"short"));
        assert!(memory(&pieces) < 1024, "{}", memory(&pieces));
    }
}
