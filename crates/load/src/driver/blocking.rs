//! Files through blocking system calls, as in the paper: each worker has one I/O outstanding.

use super::one::{OneByOne, Perform};
use super::{Driver, Opened, Target};
use crate::{Io, Kind, Outcome};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use std::fs::File;
use std::io;

/// Open files with `pread`, `pwrite` and `fdatasync`.
#[derive(Debug)]
pub struct Blocking(pub Opened);

impl Target for Blocking {
    fn driver(&self, _worker: usize, _workers: usize) -> io::Result<Box<dyn Driver>> {
        let files = self.0.files.iter().map(File::try_clone).collect::<io::Result<Vec<File>>>()?;
        let buffer = Aligned::new(self.0.io_max);
        Ok(Box::new(OneByOne::new(Calls { files, buffer })))
    }

    fn name(&self) -> String {
        self.0.name.clone()
    }

    /// A device blocks threads, so several are needed; the page cache hardly does.
    fn workers(&self) -> usize {
        if self.0.aside_from.is_some() { 16 } else { 2 }
    }
}

struct Calls {
    files: Vec<File>,
    buffer: Aligned,
}

impl Outcome {
    /// Converts the result of a system call.
    pub(super) fn of(result: Result<usize, Errno>) -> Outcome {
        match result {
            Ok(bytes) => Outcome::Done(bytes as u32),
            Err(error) => Outcome::Failed(error.raw_os_error() as u16),
        }
    }
}

impl Calls {
    fn call(&mut self, io: &Io) -> Result<usize, Errno> {
        let file = &self.files[io.file as usize % self.files.len()];
        let buffer = self.buffer.piece(io.len as usize);
        match io.kind {
            Kind::Read => rustix::io::pread(file, buffer, io.offset),
            Kind::Write | Kind::Create => rustix::io::pwrite(file, buffer, io.offset),
            Kind::Sync => rustix::fs::fdatasync(file).map(|()| 0),
            Kind::Trim | Kind::Remove => {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                rustix::fs::fallocate(file, flags, io.offset, u64::from(io.len)).map(|()| 0)
            }
        }
    }
}

impl Perform for Calls {
    fn perform(&mut self, io: &Io) -> Outcome {
        Outcome::of(self.call(io))
    }
}

/// Alignment of memory for direct I/O, in bytes.
const ALIGNMENT: usize = 4096;

/// Buffer of random bytes aligned to [`ALIGNMENT`].
pub(super) struct Aligned {
    bytes: Vec<u8>,
    begin: usize,
}

impl Aligned {
    pub(super) fn new(size: usize) -> Aligned {
        let mut bytes = vec![0; size.max(1) + ALIGNMENT];
        fastrand::Rng::with_seed(1).fill(&mut bytes);
        let begin = bytes.as_ptr().align_offset(ALIGNMENT);
        Aligned { bytes, begin }
    }

    pub(super) fn piece(&mut self, len: usize) -> &mut [u8] {
        &mut self.bytes[self.begin..self.begin + len]
    }
}
