//! File with a record of every I/O of a run.
//!
//! All numbers are little-endian. The file is a header, records in any order, and an end block with
//! their count, so that a truncated file is detected.
//!
//! ```text
//! header, 64 bytes                        record, 64 bytes
//!  0  8  magic "upcallrc"                  0  8  scheduled, ns since the start of the run
//!  8  2  version, 1                        8  8  issued
//! 10  2  bytes of a record, 64            16  8  completed
//! 12  4  zero                             24  8  witnessed; all bits set: not known
//! 16  8  start, ns since 1970, UTC        32  8  offset, bytes
//! 24 36  zero                             40  4  length, bytes
//! 60  4  check                            44  4  file
//!                                         48  4  filament
//! end, 64 bytes                           52  4  bytes done, or number of the error
//!  0  8  how many records                 56  1  kind, 0..=5 in the order of `Kind::ALL`
//!  8 48  zero                             57  1  outcome: 0 done, 1 failed, 2 skipped
//! 56  1  255                              58  1  cause, 0..=4 in the order of `Cause::ALL`
//! 57  3  zero                             59  1  zero
//! 60  4  check                            60  4  check
//! ```
//!
//! A check is the low half of XXH3 of the 60 bytes before it, with the block's index in the file
//! (in blocks of 64 bytes) as the seed: a misplaced block is detected as damaged, too.

#[cfg(test)]
mod tests;

use crate::io::{Cause, Io, Kind, Outcome, Record};
use std::fmt;
use std::io::{self, Read, Write};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Size of a header, a record and an end block, in bytes.
pub const BLOCK: usize = 64;
const MAGIC: &[u8; 8] = b"upcallrc";
const VERSION: u16 = 1;
const END: u8 = 255;
/// Offset of the kind in a record.
const KIND: usize = 56;
/// Offset of the check in a block.
const CHECK: usize = 60;
/// Blocks read or written at a time.
const BATCH: usize = 1024;

/// Error while reading a file of records.
#[derive(Debug)]
pub enum Error {
    /// Read error.
    Io(io::Error),
    /// The file does not start like a file of records.
    NotRecords,
    /// Unknown version.
    Version(u16),
    /// Damaged block.
    Damaged {
        /// Offset from the start of the file, in bytes.
        offset: u64,
    },
    /// The end block is missing; all complete records before `offset` were returned.
    Truncated {
        /// Offset from the start of the file, in bytes.
        offset: u64,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Io(error) => write!(f, "{error}"),
            Error::NotRecords => f.write_str("this is not a file of records"),
            Error::Version(version) => write!(f, "version {version} of records is not known"),
            Error::Damaged { offset } => write!(f, "the record at byte {offset} is damaged"),
            Error::Truncated { offset } => write!(f, "the file was cut off at byte {offset}"),
        }
    }
}

impl std::error::Error for Error {}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Error {
        Error::Io(error)
    }
}

/// Buffered writer of records. Without [`Writer::finish`] up to 1024 of them are lost, and the file
/// reads as truncated.
#[derive(Debug)]
pub struct Writer<W: Write> {
    to: W,
    batch: Vec<u8>,
    /// Blocks so far, including the header.
    blocks: u64,
}

impl<W: Write> Writer<W> {
    /// Starts the file of a run that began at `start_unix_ns`, in ns since 1970, UTC.
    pub fn new(to: W, start_unix_ns: u64) -> io::Result<Writer<W>> {
        let mut writer = Writer { to, batch: Vec::with_capacity(BATCH * BLOCK), blocks: 0 };
        let mut header = [0; BLOCK];
        header[..8].copy_from_slice(MAGIC);
        header[8..10].copy_from_slice(&VERSION.to_le_bytes());
        header[10..12].copy_from_slice(&(BLOCK as u16).to_le_bytes());
        header[16..24].copy_from_slice(&start_unix_ns.to_le_bytes());
        writer.put(header)?;
        Ok(writer)
    }

    /// Adds records.
    pub fn add(&mut self, records: &[Record]) -> io::Result<()> {
        records.iter().try_for_each(|record| self.put(encode(record)))
    }

    /// Completes the file, and returns the destination.
    pub fn finish(mut self) -> io::Result<W> {
        let mut end = [0; BLOCK];
        end[..8].copy_from_slice(&(self.blocks - 1).to_le_bytes());
        end[KIND] = END;
        self.put(end)?;
        self.to.write_all(&self.batch)?;
        self.to.flush()?;
        Ok(self.to)
    }

    fn put(&mut self, mut block: [u8; BLOCK]) -> io::Result<()> {
        let check = check(&block, self.blocks);
        block[CHECK..].copy_from_slice(&check);
        self.blocks += 1;
        self.batch.extend_from_slice(&block);
        if self.batch.len() == BATCH * BLOCK {
            self.to.write_all(&self.batch)?;
            self.batch.clear();
        }
        Ok(())
    }
}

/// Iterator over records, with a buffer of 64 KiB.
#[derive(Debug)]
pub struct Reader<R: Read> {
    from: R,
    batch: Vec<u8>,
    /// Offset of the next block in the buffer, and below the end of its data.
    next: usize,
    filled: usize,
    /// Blocks so far, including the header.
    blocks: u64,
    start_unix_ns: u64,
    done: bool,
}

impl<R: Read> Reader<R> {
    /// Reads the header.
    pub fn new(from: R) -> Result<Reader<R>, Error> {
        let batch = vec![0; BATCH * BLOCK];
        let (next, filled, blocks) = (0, 0, 0);
        let mut reader =
            Reader { from, batch, next, filled, blocks, start_unix_ns: 0, done: false };
        let header = match reader.block() {
            Err(Error::Truncated { .. }) => return Err(Error::NotRecords),
            header => header?,
        };
        if header[..8] != *MAGIC {
            return Err(Error::NotRecords);
        }
        let version = u16::from_le_bytes(bytes(&header, 8));
        if version != VERSION {
            return Err(Error::Version(version));
        }
        if !sound(&header, 0) {
            return Err(Error::Damaged { offset: 0 });
        }
        reader.start_unix_ns = u64::from_le_bytes(bytes(&header, 16));
        Ok(reader)
    }

    /// Start of the run, in ns since 1970, UTC.
    pub fn start_unix_ns(&self) -> u64 {
        self.start_unix_ns
    }

    /// Returns the next record, or `None` after the end.
    fn step(&mut self) -> Result<Option<Record>, Error> {
        let number = self.blocks;
        let damaged = Error::Damaged { offset: number * BLOCK as u64 };
        let block = self.block()?;
        if !sound(&block, number) {
            return Err(damaged);
        }
        if block[KIND] != END {
            return decode(&block).map(Some).ok_or(damaged);
        }
        let counted = u64::from_le_bytes(bytes(&block, 0));
        if counted == number - 1 { Ok(None) } else { Err(damaged) }
    }

    /// Returns the next block of the file.
    fn block(&mut self) -> Result<[u8; BLOCK], Error> {
        if self.next + BLOCK > self.filled {
            self.fill()?;
        }
        let block = bytes(&self.batch, self.next);
        self.next += BLOCK;
        self.blocks += 1;
        Ok(block)
    }

    /// Fills the buffer; a partial block means a truncated file.
    fn fill(&mut self) -> Result<(), Error> {
        self.batch.copy_within(self.next..self.filled, 0);
        let mut filled = self.filled - self.next;
        while filled < self.batch.len() {
            match self.from.read(&mut self.batch[filled..]) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        (self.next, self.filled) = (0, filled);
        if filled < BLOCK {
            return Err(Error::Truncated { offset: self.blocks * BLOCK as u64 + filled as u64 });
        }
        Ok(())
    }
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Result<Record, Error>;

    /// Returns the next record; `None` after an error.
    fn next(&mut self) -> Option<Result<Record, Error>> {
        if self.done {
            return None;
        }
        let record = self.step().transpose();
        self.done = !matches!(record, Some(Ok(_)));
        record
    }
}

fn check(block: &[u8; BLOCK], number: u64) -> [u8; 4] {
    (xxh3_64_with_seed(&block[..CHECK], number) as u32).to_le_bytes()
}

fn sound(block: &[u8; BLOCK], number: u64) -> bool {
    block[CHECK..] == check(block, number)
}

/// Returns `N` bytes at an offset known to be inside.
fn bytes<const N: usize>(from: &[u8], at: usize) -> [u8; N] {
    from[at..at + N].try_into().expect("the range has this length")
}

fn encode(record: &Record) -> [u8; BLOCK] {
    let Record { scheduled_ns, issued_ns, completed_ns, witnessed_ns, io, .. } = *record;
    let witnessed_ns = witnessed_ns.unwrap_or(u64::MAX);
    let mut block = [0; BLOCK];
    let longs = [scheduled_ns, issued_ns, completed_ns, witnessed_ns, io.offset];
    for (index, long) in longs.into_iter().enumerate() {
        block[index * 8..][..8].copy_from_slice(&long.to_le_bytes());
    }
    let (outcome, number) = match record.outcome {
        Outcome::Done(bytes) => (0, bytes),
        Outcome::Failed(number) => (1, u32::from(number)),
        Outcome::Skipped => (2, 0),
    };
    for (index, word) in [io.len, io.file, record.filament, number].into_iter().enumerate() {
        block[40 + index * 4..][..4].copy_from_slice(&word.to_le_bytes());
    }
    block[KIND..CHECK].copy_from_slice(&[io.kind as u8, outcome, record.cause as u8, 0]);
    block
}

/// Decodes a record; `None` if a field has an invalid value.
fn decode(block: &[u8; BLOCK]) -> Option<Record> {
    let long = |index: usize| u64::from_le_bytes(bytes(block, index * 8));
    let word = |index: usize| u32::from_le_bytes(bytes(block, 40 + index * 4));
    let kind = *Kind::ALL.get(usize::from(block[KIND]))?;
    let outcome = match block[KIND + 1] {
        0 => Outcome::Done(word(3)),
        1 => Outcome::Failed(u16::try_from(word(3)).ok()?),
        2 => Outcome::Skipped,
        _ => return None,
    };
    Some(Record {
        scheduled_ns: long(0),
        issued_ns: long(1),
        completed_ns: long(2),
        witnessed_ns: Some(long(3)).filter(|witnessed_ns| *witnessed_ns != u64::MAX),
        io: Io { kind, file: word(1), offset: long(4), len: word(0) },
        outcome,
        cause: *Cause::ALL.get(usize::from(block[KIND + 2]))?,
        filament: word(2),
    })
}
