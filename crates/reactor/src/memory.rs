//! Reuse of freed memory for buffers: 4 KiB, 64 KiB and 1 MiB reads neither allocate nor zero.

use base::Buf;

/// Size reserved for a header beside a payload that is itself a power of two, bytes.
const SLACK: usize = 512;

/// Size classes, bytes, with the maximum number of pieces kept.
const CLASSES: [(usize, usize); 6] = [
    ((4 << 10) + SLACK, 1024),
    ((16 << 10) + SLACK, 1024),
    ((64 << 10) + SLACK, 256),
    ((128 << 10) + SLACK, 128),
    ((256 << 10) + SLACK, 64),
    ((1 << 20) + SLACK, 32),
];

/// Freed memory by size class. Bounded: about 100 MiB if every class is full.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    kept: [Vec<Vec<u8>>; CLASSES.len()],
}

impl Memory {
    /// Returns an empty buffer with this room in front and behind, in reused memory if there is
    /// any.
    pub(crate) fn take(&mut self, headroom: usize, capacity: usize) -> Buf {
        let size = headroom + capacity;
        let Some(class) = CLASSES.iter().position(|&(class, _)| size <= class) else {
            return Buf::with_room(headroom, capacity);
        };
        match self.kept[class].pop() {
            Some(memory) => Buf::reuse(memory, headroom, capacity),
            None => Buf::with_room(headroom, CLASSES[class].0 - headroom),
        }
    }

    /// Takes a buffer's memory back. Pieces that are too small or too many are freed.
    pub(crate) fn give(&mut self, buf: Buf) {
        let size = buf.capacity();
        let Some(class) = CLASSES.iter().rposition(|&(class, _)| class <= size) else {
            return;
        };
        // A much larger piece would be kept for requests that need a fraction of it.
        if self.kept[class].len() < CLASSES[class].1 && size <= 2 * CLASSES[class].0 {
            self.kept[class].push(buf.into_memory());
        }
    }
}

/// Returns free memory of the allocator to the system; takes a few milliseconds.
#[allow(unsafe_code)]
pub(crate) fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: takes a number, and is safe to call at any time from any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_comes_back_for_the_next_buffer_of_its_class() {
        let mut memory = Memory::default();
        let buf = memory.take(32, 4096);
        let address = buf.as_ptr() as usize - buf.headroom();
        memory.give(buf);
        let again = memory.take(0, 4096);
        assert_eq!((again.as_ptr() as usize, again.len()), (address, 0));
        assert!(memory.take(0, 16384).tailroom() >= 16384);
    }

    #[test]
    fn small_and_huge_memory_is_not_kept() {
        let mut memory = Memory::default();
        memory.give(Buf::from(&b"small"[..]));
        memory.give(Buf::with_room(0, 64 << 20));
        assert!(memory.kept.iter().all(Vec::is_empty));
    }
}
