//! A ring with explicit submission, and completions that are polled without a system call.
//!
//! Reads and writes of files use memory of the lane: data that is read is ignored, and data that is
//! written is random. So they own nothing, and cost little. Sends and receives own their buffer,
//! and return it.
#![allow(unsafe_code)]

use crate::uring::ring::Ring;
use io_uring::{opcode, squeue, types};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsRawFd, BorrowedFd, OwnedFd};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use slab::Slab;
use std::ffi::c_void;
use std::io;
use std::ptr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Maximum memory of one lane for reads, and as much again for writes, bytes.
const MEMORY_MAX: usize = 16 << 20;

/// Maximum number of pieces of the memory.
const PIECES_MAX: usize = 1024;

/// Bit in the name of operations with a buffer of their own, beside the index of the buffer.
const OWNED: u64 = 1 << 63;

/// Name of the wake-up read.
const WAKE: u64 = (1 << 63) - 1;

/// Maximum number of completions taken at once.
const TAKE_MAX: usize = 1024;

/// Maximum time that the end of a lane waits for operations in flight.
const FAREWELL: Duration = Duration::from_secs(5);

/// A completion.
#[derive(Debug)]
pub struct Finished {
    /// Name of the operation, chosen by the caller.
    pub name: u64,
    /// Number of bytes, or an errno of Linux.
    pub result: Result<u32, u16>,
    /// Buffer of a send or receive; received bytes are behind its contents.
    pub buffer: Option<Vec<u8>>,
}

/// Wakes a lane that waits, from any thread.
#[derive(Clone, Debug)]
pub struct Waker(Arc<OwnedFd>);

impl Waker {
    /// Returns a waker for a lane to be created.
    ///
    /// # Errors
    /// If there are too many open files.
    pub fn new() -> io::Result<Waker> {
        Ok(Waker(Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?)))
    }

    /// Ends the present wait, or the next.
    pub fn wake(&self) {
        // It fails only after 2⁶⁴ unanswered calls.
        let _ = rustix::io::write(&*self.0, &1_u64.to_ne_bytes());
    }
}

/// A buffer that the kernel reads from or writes to.
struct Owned {
    name: u64,
    buffer: Vec<u8>,
    /// Whether this is a receive, which appends to the buffer.
    receives: bool,
}

/// An io_uring of one thread.
pub struct Lane {
    ring: Ring,
    region: Region,
    waker: Waker,
    /// Destination of the wake-up read.
    woken: Box<[u8; 8]>,
    owned: Slab<Owned>,
    in_flight: usize,
    taken: Vec<io_uring::cqueue::Entry>,
    /// Whether files are registered with the ring, which spares the kernel a lookup.
    registered: bool,
    files: Vec<i32>,
}

impl Lane {
    /// Returns a lane for the current thread, for I/Os of at most `io_max` bytes to these files,
    /// which must stay open as long as it lives.
    ///
    /// # Errors
    /// If the kernel refuses a ring, or there is no memory.
    pub fn new(files: &[BorrowedFd<'_>], io_max: usize, waker: Waker) -> io::Result<Lane> {
        let ring = Ring::new()?;
        let files: Vec<i32> = files.iter().map(AsRawFd::as_raw_fd).collect();
        let registered = !files.is_empty() && ring.submitter().register_files(&files).is_ok();
        let mut region = Region::new(io_max)?;
        region.register(&ring);
        spread(&ring);
        let mut lane = Lane {
            ring,
            region,
            waker,
            woken: Box::new([0; 8]),
            owned: Slab::new(),
            in_flight: 0,
            taken: Vec::with_capacity(TAKE_MAX),
            registered,
            files,
        };
        lane.listen();
        Ok(lane)
    }

    /// Queues a read of `len` bytes; `aside`: on a kernel thread, so that this thread does not
    /// block if the device's queue is full.
    ///
    /// # Panics
    /// If the file does not exist, or the I/O is larger than `io_max`.
    pub fn read(&mut self, name: u64, file: usize, offset: u64, len: u32, aside: bool) {
        let memory = self.region.piece(len, false);
        let entry = match (self.registered, self.region.registered) {
            (true, true) => {
                let read = opcode::ReadFixed::new(types::Fixed(file as u32), memory, len, 0);
                read.offset(offset).build()
            }
            (true, false) => {
                opcode::Read::new(types::Fixed(file as u32), memory, len).offset(offset).build()
            }
            (false, _) => {
                opcode::Read::new(types::Fd(self.files[file]), memory, len).offset(offset).build()
            }
        };
        self.start(name, entry, aside);
    }

    /// Queues a write of `len` random bytes, like [`Lane::read`].
    ///
    /// # Panics
    /// As [`Lane::read`].
    pub fn write(&mut self, name: u64, file: usize, offset: u64, len: u32, aside: bool) {
        let memory = self.region.piece(len, true).cast_const();
        let entry = match (self.registered, self.region.registered) {
            (true, true) => {
                let write = opcode::WriteFixed::new(types::Fixed(file as u32), memory, len, 0);
                write.offset(offset).build()
            }
            (true, false) => {
                opcode::Write::new(types::Fixed(file as u32), memory, len).offset(offset).build()
            }
            (false, _) => {
                opcode::Write::new(types::Fd(self.files[file]), memory, len).offset(offset).build()
            }
        };
        self.start(name, entry, aside);
    }

    /// Queues a flush of completed writes.
    ///
    /// # Panics
    /// If the file does not exist.
    pub fn sync(&mut self, name: u64, file: usize) {
        let fd = types::Fd(self.files[file]);
        let entry = opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build();
        self.start(name, entry, false);
    }

    /// Queues a discard of bytes.
    ///
    /// # Panics
    /// If the file does not exist.
    pub fn trim(&mut self, name: u64, file: usize, offset: u64, len: u32) {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        let fd = types::Fd(self.files[file]);
        let trim = opcode::Fallocate::new(fd, u64::from(len)).offset(offset).mode(mode);
        self.start(name, trim.build(), false);
    }

    /// Queues a send of the buffer, which may be partial.
    pub fn send(&mut self, name: u64, socket: BorrowedFd<'_>, buffer: Vec<u8>) {
        assert!(u32::try_from(buffer.len()).is_ok(), "one call sends no more than that");
        let (memory, len) = (buffer.as_ptr(), buffer.len() as u32);
        let send = opcode::Send::new(types::Fd(socket.as_raw_fd()), memory, len);
        self.own(send.flags(libc::MSG_NOSIGNAL).build(), Owned { name, buffer, receives: false });
    }

    /// Queues a receive of the next bytes, behind the contents of this buffer.
    pub fn receive(&mut self, name: u64, socket: BorrowedFd<'_>, mut buffer: Vec<u8>) {
        let room = buffer.spare_capacity_mut();
        let (memory, len) = (room.as_mut_ptr().cast(), room.len() as u32);
        let receive = opcode::Recv::new(types::Fd(socket.as_raw_fd()), memory, len);
        self.own(receive.build(), Owned { name, buffer, receives: true });
    }

    fn own(&mut self, entry: squeue::Entry, owned: Owned) {
        let place = self.owned.insert(owned);
        self.start(OWNED | place as u64, entry, false);
    }

    fn start(&mut self, name: u64, entry: squeue::Entry, aside: bool) {
        assert!(name != WAKE && name != crate::uring::ring::IGNORED, "that name is taken");
        let entry = if aside { entry.flags(squeue::Flags::ASYNC) } else { entry };
        self.in_flight += 1;
        self.ring.push(&entry.user_data(name));
    }

    fn listen(&mut self) {
        let fd = types::Fd(self.waker.0.as_raw_fd());
        let entry = opcode::Read::new(fd, self.woken.as_mut_ptr(), 8).build().user_data(WAKE);
        self.ring.push(&entry);
    }

    /// Submits all queued operations.
    pub fn flush(&mut self) {
        if self.ring.any_queued() {
            self.ring.enter(0, None);
        }
    }

    /// Returns whether [`Lane::take`] would return completions. Costs two memory reads.
    pub fn any_work(&mut self) -> bool {
        self.ring.any_work()
    }

    /// Returns the number of operations whose completions were not taken.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Takes completions; enters the kernel only if it has work to do.
    pub fn take(&mut self, into: &mut Vec<Finished>) {
        self.ring.look();
        let mut taken = std::mem::take(&mut self.taken);
        self.ring.take(&mut taken, TAKE_MAX);
        let mut woken = false;
        for entry in taken.drain(..) {
            let (name, result) = (entry.user_data(), result_of(entry.result()));
            if name == WAKE {
                woken = true;
                continue;
            }
            if name == crate::uring::ring::IGNORED {
                continue;
            }
            assert!(self.in_flight > 0, "an operation ends once");
            self.in_flight -= 1;
            into.push(self.finish(name, result));
        }
        self.taken = taken;
        if woken {
            self.listen();
        }
    }

    fn finish(&mut self, name: u64, result: Result<u32, u16>) -> Finished {
        if name & OWNED == 0 {
            return Finished { name, result, buffer: None };
        }
        let Owned { name, mut buffer, receives } = self.owned.remove((name & !OWNED) as usize);
        if let (true, Ok(count)) = (receives, result) {
            let len = buffer.len() + count as usize;
            assert!(len <= buffer.capacity(), "the kernel knows how much room there is");
            // SAFETY: there is room for it, and the kernel has written these bytes.
            unsafe { buffer.set_len(len) };
        }
        Finished { name, result, buffer: Some(buffer) }
    }

    /// Waits for a completion, a wake-up, or the timeout.
    pub fn wait(&mut self, timeout: Duration) {
        if !self.ring.any_completion() {
            self.ring.enter(1, Some(timeout));
        }
    }
}

impl Drop for Lane {
    /// Waits for operations in flight: the kernel writes into memory that is about to be freed.
    #[allow(clippy::disallowed_methods, reason = "an end that must come")]
    fn drop(&mut self) {
        self.ring.push(&crate::uring::ring::cancel_all());
        let (end, mut finished) = (Instant::now() + FAREWELL, Vec::new());
        self.flush();
        while self.in_flight > 0 && Instant::now() < end {
            self.wait(Duration::from_millis(10));
            self.take(&mut finished);
        }
        if self.in_flight > 0 {
            // The memory is never freed then.
            self.region.memory = ptr::null_mut();
            std::mem::forget(std::mem::take(&mut self.owned));
        }
        // The wake-up read is cancelled too; without its completion the kernel may still write.
        std::mem::forget(std::mem::replace(&mut self.woken, Box::new([0; 8])));
    }
}

/// Lets the kernel's threads of this ring run on all processors of the process: otherwise they
/// would share the processor that this thread is pinned to, and wait for it as long as it spins.
fn spread(ring: &Ring) {
    let mut words = [0_u64; 16];
    // The first thread of the process is not pinned.
    for cpu in super::thread::processors_of(Some(rustix::process::getpid())) {
        words[cpu / 64] |= 1 << (cpu % 64);
    }
    // SAFETY: a set of processors is an array of 1,024 bits, in the same order.
    let set = unsafe { &*(&raw const words).cast::<libc::cpu_set_t>() };
    // Kernels without support have slower I/Os of this kind, which is measured.
    let _ = ring.submitter().register_iowq_aff(set);
}

fn result_of(result: i32) -> Result<u32, u16> {
    u32::try_from(result).map_err(|_| result.unsigned_abs() as u16)
}

/// Memory for reads and writes, whose contents do not matter.
struct Region {
    memory: *mut c_void,
    /// Size of one half, bytes.
    half: usize,
    /// Size of one piece, bytes.
    piece: usize,
    next: usize,
    registered: bool,
}

impl Region {
    fn new(io_max: usize) -> io::Result<Region> {
        let piece = io_max.max(1).next_multiple_of(4096);
        let pieces = (MEMORY_MAX / piece).clamp(1, PIECES_MAX);
        let half = piece * pieces;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: fresh memory at an address of the kernel's choice.
        let memory =
            unsafe { mmap_anonymous(ptr::null_mut(), 2 * half, protection, MapFlags::PRIVATE)? };
        let region = Region { memory, half, piece, next: 0, registered: false };
        region.fill();
        Ok(region)
    }

    /// Fills it with random bytes, so that writes cannot be compressed or merged; this also
    /// allocates every page.
    fn fill(&self) {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        for place in (0..2 * self.half).step_by(8) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            // SAFETY: within the mapping, aligned to 8, and no operation is in flight yet.
            unsafe { self.memory.byte_add(place).cast::<u64>().write(state) };
        }
    }

    /// Pins the memory, which spares the kernel doing so for each I/O. Without permission (the
    /// limit of locked memory) it works nevertheless.
    fn register(&mut self, ring: &Ring) {
        let slice = libc::iovec { iov_base: self.memory, iov_len: 2 * self.half };
        // SAFETY: the mapping lives as long as the ring.
        self.registered = unsafe { ring.submitter().register_buffers(&[slice]) }.is_ok();
    }

    fn piece(&mut self, len: u32, written: bool) -> *mut u8 {
        assert!(len as usize <= self.piece, "an I/O of {len} bytes was not announced");
        let place = self.next;
        assert!(place + self.piece <= self.half, "pieces are within their half");
        self.next += self.piece;
        if self.next == self.half {
            self.next = 0;
        }
        let half = if written { self.half } else { 0 };
        // SAFETY: within the mapping: `next` is below `half`, of which there are two.
        unsafe { self.memory.byte_add(half + place).cast() }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if !self.memory.is_null() {
            // SAFETY: mapped by `new` with this size, and nothing is in flight.
            let _ = unsafe { munmap(self.memory, 2 * self.half) };
        }
    }
}

#[cfg(test)]
mod tests;
