//! Log of a disk, written by QEMU's `blklogwrites`, and the disks that a power failure could have
//! left.
//!
//! ```text
//! | superblock | entry | data ... | entry | entry | data ... |     all in sectors of 512 bytes
//! superblock: magic u64, version u64, entries u64, sector size u32
//! entry:      sector u64, sectors u64, flags u64, length of data u64
//! ```
//! The format is that of the kernel's dm-log-writes. An entry is written when its operation has
//! completed and before the guest is notified, so operations that the guest waited for precede its
//! later ones.

use super::super::story::Random;
use anyhow::{Context, Result, ensure};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

const SECTOR: usize = 512;
const MAGIC: u64 = 0x006a_7366_7773_6872;
const FLUSH: u64 = 1;
const FUA: u64 = 2;
const DISCARD: u64 = 4;

/// One completed operation of the disk.
#[derive(Clone, Debug)]
pub(crate) enum Entry {
    /// A write at an offset; `durable` if it bypassed the write cache.
    Write { offset: u64, bytes: Vec<u8>, durable: bool },
    /// Makes all earlier writes durable.
    Flush,
}

/// Reads a log.
pub(crate) fn read(path: &Path) -> Result<Vec<Entry>> {
    let bytes = std::fs::read(path).context("read the log of writes")?;
    let word = |at: usize| -> Result<u64> {
        let field = bytes.get(at..at + 8).context("the log ends early")?;
        Ok(u64::from_le_bytes(field.try_into()?))
    };
    ensure!(word(0)? == MAGIC, "this is no log of writes: {:x}", word(0)?);
    let (count, sector) = (word(16)?, usize::try_from(word(24)? & 0xffff_ffff)?);
    ensure!(sector == SECTOR, "sectors of {sector} bytes");
    let (mut at, mut entries) = (SECTOR, Vec::new());
    for _ in 0..count {
        let (offset, flags) = (word(at)? * SECTOR as u64, word(at + 16)?);
        let length = usize::try_from(word(at + 8)?)? * SECTOR;
        at += SECTOR;
        if flags & DISCARD != 0 {
            // A discard carries no data, and nothing relies on the resulting contents.
            continue;
        }
        if length > 0 {
            let bytes = bytes.get(at..at + length).context("the log ends in an entry")?.to_vec();
            at += length;
            entries.push(Entry::Write { offset, bytes, durable: flags & FUA != 0 });
        }
        if flags & FLUSH != 0 {
            entries.push(Entry::Flush);
        }
    }
    Ok(entries)
}

/// A disk image that replays a log and constructs the possible results of a failure.
pub(crate) struct Replay {
    file: File,
    /// End of the volume and beginning of the marks.
    end: u64,
    /// Writes not yet flushed.
    pending: Vec<(u64, Vec<u8>)>,
    /// Whether the disk acknowledges flushes without performing them.
    lies: bool,
}

impl Replay {
    /// Replays onto `image`, the disk before the first entry, which is changed.
    pub(crate) fn new(image: &Path, end: u64, lies: bool) -> Result<Replay> {
        let file = File::options().read(true).write(true).open(image)?;
        Ok(Replay { file, end, pending: Vec::new(), lies })
    }

    /// Replays one operation.
    pub(crate) fn step(&mut self, entry: &Entry) -> Result<()> {
        match entry {
            Entry::Write { offset, .. } if *offset >= self.end => {}
            Entry::Write { offset, bytes, durable: true } => {
                self.file.write_all_at(bytes, *offset)?
            }
            Entry::Write { offset, bytes, durable: false } => {
                self.pending.push((*offset, bytes.clone()));
            }
            // Even such a disk writes old data eventually.
            Entry::Flush if self.lies => {
                let old = self.pending.len().saturating_sub(30);
                for (offset, bytes) in self.pending.drain(..old) {
                    self.file.write_all_at(&bytes, offset)?;
                }
            }
            Entry::Flush => {
                for (offset, bytes) in self.pending.drain(..) {
                    self.file.write_all_at(&bytes, offset)?;
                }
            }
        }
        Ok(())
    }

    /// Returns the number of unflushed writes.
    pub(crate) fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Applies to a copy of the disk a possible result of a failure now: of each unflushed write
    /// all sectors, none, the first ones, or any subset.
    pub(crate) fn fail(&self, copy: &File, random: &mut Random) -> Result<()> {
        for (offset, bytes) in &self.pending {
            let sectors = bytes.len() / SECTOR;
            let kept = match random.below(4) {
                0 => 0,
                1 => sectors,
                _ => random.below(sectors + 1),
            };
            let any = random.below(3) == 0;
            for (at, sector) in bytes.chunks(SECTOR).enumerate() {
                if if any { random.below(2) == 0 } else { at < kept } {
                    copy.write_all_at(sector, offset + (at * SECTOR) as u64)?;
                }
            }
        }
        Ok(())
    }
}
