//! Buffers that the kernel takes when data arrives, so that idle connections hold none.
//!
//! A buffer ring of fixed size (`IORING_REGISTER_PBUF_RING`). A large amount of data is returned
//! with its memory, which is replaced; a small amount is copied.
#![allow(unsafe_code)]

use super::ring::Ring;
use crate::memory::Memory;
use base::Buf;
use io_uring::types::BufRingEntry;
use rustix::mm::{MapFlags, ProtFlags};
use std::io;
use std::ptr;
use std::sync::atomic::{AtomicU16, Ordering};

/// The ring's only group of buffers.
pub(super) const GROUP: u16 = 0;

/// Number of buffers, a power of two. With few, the memory of a request is still in the processor's
/// cache when the request is handled.
pub(super) const COUNT: u16 = 64;
const _: () = assert!(COUNT.is_power_of_two() && COUNT <= 1 << 15);

/// Size of a buffer, bytes.
const SIZE: usize = 16 << 10;

/// The buffers, and the ring of them that the kernel reads.
pub(super) struct BufferRing {
    entries: *mut BufRingEntry,
    /// Memory of buffer `i`.
    buffers: Vec<Buf>,
    tail: u16,
    /// Tail published to the kernel.
    published: u16,
}

impl BufferRing {
    /// Registers the buffers, all of them free.
    pub(super) fn new(ring: &Ring, memory: &mut Memory) -> io::Result<BufferRing> {
        let length = usize::from(COUNT) * size_of::<BufRingEntry>();
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: new anonymous memory at no particular address.
        let entries =
            unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), length, access, flags)? };
        let entries = entries.cast::<BufRingEntry>();
        let buffers = (0..COUNT).map(|_| memory.take(0, SIZE)).collect();
        let mut buffer_ring = BufferRing { entries, buffers, tail: 0, published: 0 };
        // SAFETY: the memory is page-aligned and holds COUNT entries; it is unmapped only when
        // the buffer ring is dropped, which is after the ring was closed.
        unsafe { ring.submitter().register_buf_ring_with_flags(entries as u64, COUNT, GROUP, 0)? };
        for index in 0..COUNT {
            buffer_ring.put(index);
        }
        buffer_ring.publish();
        Ok(buffer_ring)
    }

    /// Makes buffer `index` available to the kernel again, after the next `publish`.
    fn put(&mut self, index: u16) {
        assert!(index < COUNT, "there is such a buffer");
        assert!(
            self.buffers[usize::from(index)].tailroom() >= SIZE,
            "the kernel may fill all of it"
        );
        let buf = self.buffers[usize::from(index)].spare();
        let place = usize::from(self.tail & (COUNT - 1));
        // SAFETY: `place` is below COUNT, and the kernel does not read beyond the published tail.
        let entry = unsafe { &mut *self.entries.add(place) };
        entry.set_addr(buf.as_mut_ptr() as u64);
        entry.set_len(u32::try_from(SIZE).expect("small"));
        entry.set_bid(index);
        self.tail = self.tail.wrapping_add(1);
    }

    /// Publishes the buffers put back; returns their number.
    pub(super) fn publish(&mut self) -> usize {
        // SAFETY: the tail lies in the mapped memory, is aligned, and is shared with the kernel,
        // which reads it atomically.
        unsafe {
            let tail = BufRingEntry::tail(self.entries).cast_mut();
            AtomicU16::from_ptr(tail).store(self.tail, Ordering::Release);
        }
        let more = self.tail.wrapping_sub(std::mem::replace(&mut self.published, self.tail));
        assert!(more <= COUNT, "no buffer is put back twice");
        usize::from(more)
    }

    /// Returns the data with its memory, which is replaced.
    pub(super) fn take(&mut self, index: u16, length: usize, memory: &mut Memory) -> Buf {
        let other = memory.take(0, SIZE);
        let mut buf = std::mem::replace(&mut self.buffers[usize::from(index)], other);
        assert!(length <= SIZE, "the kernel knows how large it is");
        buf.grow(length);
        self.put(index);
        buf
    }

    /// Leaves the buffers to the kernel for ever.
    pub(super) fn abandon(&mut self) {
        std::mem::forget(std::mem::take(&mut self.buffers));
    }

    /// Returns a copy of the data.
    pub(super) fn copy(&mut self, index: u16, length: usize) -> Buf {
        let buf = Buf::from(&self.buffers[usize::from(index)].spare()[..length]);
        self.put(index);
        buf
    }
}

impl Drop for BufferRing {
    fn drop(&mut self) {
        let length = usize::from(COUNT) * size_of::<BufRingEntry>();
        // SAFETY: mapped by `new` with this length; the ring that uses it is closed, because it is
        // declared before the buffer ring in `Uring`.
        let _ = unsafe { rustix::mm::munmap(self.entries.cast(), length) };
    }
}
