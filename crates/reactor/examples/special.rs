//! `special pread|uring PATH SECONDS [DEPTH]`: reads of 4 KiB at the maximum rate of a
//! special-purpose program. It knows its work beforehand, reads no clock between I/Os and keeps no
//! statistics: the difference to a general load generator is the price of generality (*Buttress*,
//! §6.3). It prints the number of reads per second. Used by `cargo xtask paper load`.
#![allow(unsafe_code)]

use io_uring::{IoUring, cqueue, opcode, types};
use reactor::precise::Ticks;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

const LEN: u32 = 4096;

/// Number of I/Os between two reads of the clock.
const STRIDE: u64 = 4096;

fn main() -> io::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let usage = || io::Error::other("special pread|uring PATH SECONDS [DEPTH]");
    let [how, path, seconds, depth @ ..] = words.as_slice() else { return Err(usage()) };
    let seconds: f64 = seconds.parse().map_err(|_| usage())?;
    let depth: u32 = depth.first().map_or(Ok(32), |depth| depth.parse()).map_err(|_| usage())?;
    let file = File::open(path)?;
    let blocks = (file.metadata()?.len() / u64::from(LEN)).max(1);
    let work = Work { file, places: Places { state: 1, blocks }, seconds };
    let rate = match how.as_str() {
        "pread" => work.pread()?,
        "uring" => work.uring(depth.max(1))?,
        _ => return Err(usage()),
    };
    println!("{rate:.0}");
    Ok(())
}

/// Random blocks.
struct Places {
    state: u64,
    blocks: u64,
}

impl Places {
    fn next(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        ((u128::from(self.state) * u128::from(self.blocks)) >> 64) as u64 * u64::from(LEN)
    }
}

struct Work {
    file: File,
    places: Places,
    seconds: f64,
}

impl Work {
    /// Calls `pread` in a loop; returns the rate, calls per second.
    fn pread(mut self) -> io::Result<f64> {
        let clock = Ticks::start();
        let (start_ns, mut count) = (clock.now_ns(), 0);
        let mut buffer = vec![0; LEN as usize];
        loop {
            for _ in 0..STRIDE {
                self.file.read_at(&mut buffer, self.places.next())?;
            }
            count += STRIDE;
            let seconds = (clock.now_ns() - start_ns) as f64 / 1e9;
            if seconds >= self.seconds {
                return Ok(count as f64 / seconds);
            }
        }
    }

    /// Keeps `depth` reads in flight on one ring, with registered file and memory.
    fn uring(mut self, depth: u32) -> io::Result<f64> {
        let mut ring = IoUring::builder()
            .setup_single_issuer()
            .setup_coop_taskrun()
            .build(depth.next_power_of_two())?;
        ring.submitter().register_files(&[self.file.as_raw_fd()])?;
        let memory = vec![0_u8; depth as usize * LEN as usize].leak();
        let pieces = libc::iovec { iov_base: memory.as_mut_ptr().cast(), iov_len: memory.len() };
        // SAFETY: the memory is never freed.
        unsafe { ring.submitter().register_buffers(&[pieces])? };
        let clock = Ticks::start();
        let (start_ns, mut count, mut looked) = (clock.now_ns(), 0_u64, 0);
        let mut free: Vec<u64> = (0..u64::from(depth)).collect();
        loop {
            for piece in free.drain(..) {
                let at = memory[piece as usize * LEN as usize..].as_mut_ptr();
                let read = opcode::ReadFixed::new(types::Fixed(0), at, LEN, 0);
                let read = read.offset(self.places.next()).build().user_data(piece);
                // SAFETY: no other read uses the piece, and the memory stays; the ring has as many
                // entries as there are pieces.
                unsafe { ring.submission().push(&read).map_err(io::Error::other)? };
            }
            ring.submit_and_wait(1)?;
            free.extend(ring.completion().map(|done: cqueue::Entry| done.user_data()));
            count += free.len() as u64;
            if count >= looked + STRIDE {
                looked = count;
                let seconds = (clock.now_ns() - start_ns) as f64 / 1e9;
                if seconds >= self.seconds {
                    return Ok(count as f64 / seconds);
                }
            }
        }
    }
}
