//! The file or block device of a volume.
//!
//! Opened for direct I/O where possible, because a volume has a cache of its own, and locked,
//! because two servers on one volume would destroy it.

use crate::blocks::BlockTransfer;
use crate::clock;
use base::Block;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{FallocateFlags, FileType, FlockOperation, Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

/// Number of attempts to open a volume in use, and the pause between them.
const TRIES_MAX: u32 = 41;
const PAUSE: Duration = Duration::from_millis(50);

/// An open volume, for straight-line code; [`crate::World::adopt_volume`] passes it to a reactor.
///
/// The lock is exclusive and is released with the descriptor.
#[derive(Debug)]
pub struct VolumeFile {
    fd: OwnedFd,
}

impl VolumeFile {
    /// Opens a plain file or a block device.
    ///
    /// # Errors
    /// `WouldBlock` if it is in use already, or the device is mounted; `InvalidInput` if it is
    /// neither file nor device; otherwise those of `open(2)`.
    pub fn open(path: &Path, writable: bool) -> io::Result<VolumeFile> {
        // Checked first: opening a pipe would block.
        let mut access = if writable { OFlags::RDWR } else { OFlags::RDONLY };
        // The kernel's own lock on devices, which includes mounts.
        access.set(OFlags::EXCL, is_device(path)?);
        VolumeFile::new(path, access)
    }

    /// Like [`VolumeFile::open`], retried for 2 s while it is in use: the ring of a killed process
    /// holds its files for a moment after its death.
    ///
    /// # Errors
    /// As [`VolumeFile::open`].
    pub fn open_patiently(path: &Path, writable: bool) -> io::Result<VolumeFile> {
        for _ in 1..TRIES_MAX {
            match VolumeFile::open(path, writable) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => clock::pause(PAUSE),
                result => return result,
            }
        }
        VolumeFile::open(path, writable)
    }

    /// Opens a plain file or a block device for reading although another process uses it: its
    /// contents may change at any time.
    ///
    /// # Errors
    /// `InvalidInput` if it is neither file nor device; otherwise those of `open(2)`.
    pub fn open_unlocked(path: &Path) -> io::Result<VolumeFile> {
        is_device(path)?;
        let access = OFlags::RDONLY | OFlags::CLOEXEC;
        VolumeFile::direct(rustix::fs::open(path, access, Mode::empty())?)
    }

    /// Creates an empty file accessible to its owner only, and opens it for writing.
    ///
    /// # Errors
    /// `AlreadyExists` if the name exists; otherwise those of `open(2)`.
    pub fn create(path: &Path) -> io::Result<VolumeFile> {
        VolumeFile::new(path, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)
    }

    fn new(path: &Path, access: OFlags) -> io::Result<VolumeFile> {
        let mode = Mode::RUSR | Mode::WUSR;
        let fd = match rustix::fs::open(path, access | OFlags::CLOEXEC, mode) {
            Err(Errno::BUSY) => return Err(io::ErrorKind::WouldBlock.into()),
            other => other?,
        };
        rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive)?;
        VolumeFile::direct(fd)
    }

    /// Bypasses the kernel's cache, where the file system supports it.
    fn direct(fd: OwnedFd) -> io::Result<VolumeFile> {
        match rustix::fs::fcntl_setfl(&fd, rustix::fs::fcntl_getfl(&fd)? | OFlags::DIRECT) {
            // A file system without direct I/O.
            Ok(()) | Err(Errno::INVAL) => Ok(VolumeFile { fd }),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Returns the size, bytes; also of a device.
    ///
    /// # Errors
    /// Those of `lseek(2)`.
    pub fn size(&self) -> io::Result<u64> {
        Ok(rustix::fs::seek(&self.fd, SeekFrom::End(0))?)
    }

    /// Ensures that there is storage for `len` bytes; a smaller file grows to that size, a smaller
    /// device is an error.
    ///
    /// # Errors
    /// `StorageFull`, or those of `fallocate(2)`.
    pub fn allocate(&self, len: u64) -> io::Result<()> {
        if FileType::from_raw_mode(rustix::fs::fstat(&self.fd)?.st_mode) == FileType::BlockDevice {
            let fits = self.size()? >= len;
            return if fits { Ok(()) } else { Err(io::ErrorKind::StorageFull.into()) };
        }
        match rustix::fs::fallocate(&self.fd, FallocateFlags::empty(), 0, len) {
            // This file system cannot reserve storage: a hole instead.
            Err(Errno::OPNOTSUPP) if self.size()? < len => {
                Ok(rustix::fs::ftruncate(&self.fd, len)?)
            }
            Err(Errno::OPNOTSUPP) => Ok(()),
            other => Ok(other?),
        }
    }

    /// Returns whether it is a block device.
    ///
    /// # Errors
    /// Those of `fstat(2)`.
    pub fn is_device(&self) -> io::Result<bool> {
        let mode = rustix::fs::fstat(&self.fd)?.st_mode;
        Ok(FileType::from_raw_mode(mode) == FileType::BlockDevice)
    }

    /// Extends a plain file of `from` bytes to `to` bytes, with storage for the bytes `taken`.
    /// After an error it is unchanged.
    ///
    /// # Errors
    /// `StorageFull`, or those of `fallocate(2)` and `ftruncate(2)`.
    pub fn extend(&self, from: u64, to: u64, taken: Range<u64>) -> io::Result<()> {
        assert!(from < to && taken.end <= to, "a file becomes longer");
        rustix::fs::ftruncate(&self.fd, to)?;
        if taken.is_empty() {
            return Ok(());
        }
        let len = taken.end - taken.start;
        match rustix::fs::fallocate(&self.fd, FallocateFlags::empty(), taken.start, len) {
            // A hole where the file system cannot reserve storage.
            Ok(()) | Err(Errno::OPNOTSUPP) => Ok(()),
            Err(errno) => {
                rustix::fs::ftruncate(&self.fd, from)?;
                Err(errno.into())
            }
        }
    }

    /// Extends a plain file in use by another process to at least `to` bytes, durably, with storage
    /// for the bytes `taken`. It never becomes shorter, even if others extend it meanwhile.
    ///
    /// # Errors
    /// `StorageFull`, without an attempt if there is visibly too little space; `Unsupported` on a
    /// file system without `fallocate(2)`; or those of that, `open(2)` and `fsync(2)`. After an
    /// error of `fallocate(2)` the file may have some of the storage.
    pub fn extend_in_use(path: &Path, to: u64, taken: Range<u64>) -> io::Result<()> {
        assert!(to > 0 && taken.end <= to, "a file becomes longer");
        is_device(path)?;
        let fd = rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        let host = rustix::fs::fstatvfs(&fd)?;
        if host.f_bavail.saturating_mul(host.f_frsize) < taken.end.saturating_sub(taken.start) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        // Allocating a block at the new end extends the file, and never shortens it.
        for part in [taken, to - 1..to].into_iter().filter(|part| !part.is_empty()) {
            let len = part.end - part.start;
            match rustix::fs::fallocate(&fd, FallocateFlags::empty(), part.start, len) {
                Err(Errno::OPNOTSUPP) => return Err(io::ErrorKind::Unsupported.into()),
                other => other?,
            }
        }
        Ok(rustix::fs::fsync(&fd)?)
    }

    /// Reads `count` blocks of `size` bytes; a power of two, at least 512. `offset` is in bytes,
    /// a multiple of `size`.
    ///
    /// # Errors
    /// Those of `preadv2(2)`; `EIO` if the file ends before.
    pub fn read_blocks(&self, offset: u64, count: usize, size: usize) -> io::Result<Vec<Block>> {
        let mut block_transfer = BlockTransfer::read(offset, count, size);
        block_transfer.run(self.fd.as_fd())?;
        Ok(block_transfer.into_blocks())
    }

    /// Writes consecutive blocks of one size. `offset` is in bytes, a multiple of that size.
    /// `durable`: they are on the disk when this returns.
    ///
    /// # Errors
    /// Those of `pwritev2(2)` and `fdatasync(2)`.
    pub fn write_blocks(&self, offset: u64, blocks: &[Block], durable: bool) -> io::Result<()> {
        Ok(BlockTransfer::write(offset, blocks.to_vec(), durable).run(self.fd.as_fd())?)
    }

    /// Makes completed writes durable, and the file's size with them.
    ///
    /// # Errors
    /// Those of `fsync(2)`; the state of the disk is unknown then.
    pub fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(&self.fd)?)
    }

    /// Returns the descriptor, with the lock.
    pub(crate) fn into_fd(self) -> OwnedFd {
        self.fd
    }
}

/// Returns whether a path leads to a block device; `InvalidInput` if it leads to no plain file
/// either.
fn is_device(path: &Path) -> io::Result<bool> {
    match FileType::from_raw_mode(rustix::fs::stat(path)?.st_mode) {
        FileType::RegularFile => Ok(false),
        FileType::BlockDevice => Ok(true),
        FileType::Directory
        | FileType::Symlink
        | FileType::Fifo
        | FileType::Socket
        | FileType::CharacterDevice
        | FileType::Unknown => Err(io::ErrorKind::InvalidInput.into()),
    }
}
