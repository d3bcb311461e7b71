//! A volume's file as a disk.

use crate::Error;
use crate::clock;
use base::Block;
use reactor::{VolumeFile, error_of};
use std::path::Path;
use std::sync::Arc;
use store::drive::{self, Disk};
use store::{Config, Geometry, HEAD_BYTES, Superblock};

/// Unit of reading the head before the block size is known, bytes.
const HEAD_UNIT: usize = 4096;

/// A volume's file. Clones are the same file.
#[derive(Clone, Debug)]
pub struct FileDisk {
    file: Arc<VolumeFile>,
    block: usize,
}

impl FileDisk {
    /// Creates a file with an empty volume of this many bytes.
    ///
    /// # Errors
    /// Those of the file; `TooLarge` if the size is invalid.
    pub fn create(path: &Path, bytes: u64) -> Result<FileDisk, Error> {
        let geometry = Geometry::for_bytes(bytes);
        geometry.layout().map_err(Error::volume(path))?;
        let file = VolumeFile::create(path).map_err(Error::file("create", path))?;
        let made = FileDisk::fill(file, &geometry, path);
        if made.is_err() {
            // A file without a volume is useless; if it cannot be removed, it stays.
            let _ = std::fs::remove_file(path);
        }
        made
    }

    fn fill(file: VolumeFile, geometry: &Geometry, path: &Path) -> Result<FileDisk, Error> {
        let bytes = geometry.blocks * geometry.block as u64;
        file.allocate(bytes).map_err(Error::file("allocate", path))?;
        let mut disk = FileDisk { file: Arc::new(file), block: geometry.block };
        let volume = clock::random().map_err(Error::file("draw a number for", path))?;
        drive::create(&mut disk, geometry, volume, clock::wall()).map_err(Error::volume(path))?;
        Ok(disk)
    }

    /// Opens the file of a volume; returns the disk, and its configuration for this much memory,
    /// bytes.
    ///
    /// # Errors
    /// Those of the file; `NotAVolume`, or `Damaged`.
    pub fn open(path: &Path, writable: bool, memory: usize) -> Result<(FileDisk, Config), Error> {
        let file = VolumeFile::open_patiently(path, writable);
        let file = file.map_err(Error::file("open", path))?;
        let mut disk = FileDisk { file: Arc::new(file), block: HEAD_UNIT };
        let head = disk.head().map_err(|_| Error::volume(path)(store::Error::NotAVolume))?;
        let superblock = Superblock::newest(&head).map_err(Error::volume(path))?;
        if !superblock.fits(disk.file.size().map_err(Error::file("measure", path))?) {
            return Err(Error::volume(path)(store::Error::Damaged));
        }
        let layout = superblock.layout;
        disk.block = layout.block;
        let config = Config { read_only: !writable, ..Config::for_memory(memory, &layout) };
        Ok((disk, config))
    }

    fn offset(&self, at: u64) -> u64 {
        at * self.block as u64
    }
}

impl Disk for FileDisk {
    fn head(&mut self) -> Result<Vec<u8>, base::Error> {
        let blocks = self.file.read_blocks(0, HEAD_BYTES / HEAD_UNIT, HEAD_UNIT);
        Ok(blocks.map_err(error_of)?.iter().flat_map(|block| block.iter().copied()).collect())
    }

    fn read(&mut self, at: u64, count: u32) -> Result<Vec<Block>, base::Error> {
        self.file.read_blocks(self.offset(at), count as usize, self.block).map_err(error_of)
    }

    fn write(&mut self, at: u64, blocks: &[Block], durable: bool) -> Result<(), base::Error> {
        self.file.write_blocks(self.offset(at), blocks, durable).map_err(error_of)
    }

    fn flush(&mut self) -> Result<(), base::Error> {
        self.file.sync().map_err(error_of)
    }
}
