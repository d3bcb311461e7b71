//! Reader of binary formats.

use super::lines::Source;
use super::{Error, Format, Position};
use std::io::{ErrorKind, Read};

/// File read in pieces of known size, with the context for errors.
pub(super) struct Bytes {
    source: Source,
    file: String,
    format: Format,
    offset: u64,
}

impl Bytes {
    pub(super) fn new(source: Source, file: &str, format: Format) -> Bytes {
        Bytes { source, file: file.to_string(), format, offset: 0 }
    }

    /// Fills `into` as far as possible. Returns the number of bytes.
    pub(super) fn fill(&mut self, into: &mut [u8]) -> Result<usize, Error> {
        let mut filled = 0;
        while filled < into.len() {
            match self.source.read(&mut into[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::system(&self.file, &error)),
            }
        }
        self.offset += filled as u64;
        Ok(filled)
    }

    /// Returns the next `N` bytes, or `None` at the end of the file. An end within them is an
    /// error.
    pub(super) fn take<const N: usize>(&mut self) -> Result<Option<[u8; N]>, Error> {
        let mut record = [0; N];
        match self.fill(&mut record)? {
            0 => Ok(None),
            count if count == N => Ok(Some(record)),
            count => Err(self.cut(count, N)),
        }
    }

    /// Skips bytes.
    pub(super) fn skip(&mut self, count: usize) -> Result<(), Error> {
        let mut part = [0; 256];
        let mut left = count;
        while left > 0 {
            let want = left.min(part.len());
            let read = self.fill(&mut part[..want])?;
            if read < want {
                return Err(self.cut(count - left + read, count));
            }
            left -= want;
        }
        Ok(())
    }

    /// Creates an error about the record that started `back` bytes ago.
    pub(super) fn bad(&self, back: usize, found: impl Into<String>) -> Error {
        let place = Position::Byte(self.offset.saturating_sub(back as u64));
        let (file, format) = (self.file.clone(), self.format);
        Error::Malformed { file, place, found: found.into(), format }
    }

    fn cut(&self, count: usize, whole: usize) -> Error {
        self.bad(count, format!("the file ends after {count} of {whole} bytes of a record"))
    }
}

/// Byte order of a record's fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Endian {
    Little,
    Big,
}

impl Endian {
    pub(super) fn u16(self, record: &[u8], at: usize) -> u16 {
        let bytes = [record[at], record[at + 1]];
        match self {
            Endian::Little => u16::from_le_bytes(bytes),
            Endian::Big => u16::from_be_bytes(bytes),
        }
    }

    pub(super) fn u32(self, record: &[u8], at: usize) -> u32 {
        let (low, high) = (self.u16(record, at), self.u16(record, at + 2));
        match self {
            Endian::Little => u32::from(high) << 16 | u32::from(low),
            Endian::Big => u32::from(low) << 16 | u32::from(high),
        }
    }

    pub(super) fn u64(self, record: &[u8], at: usize) -> u64 {
        let (low, high) = (self.u32(record, at), self.u32(record, at + 4));
        match self {
            Endian::Little => u64::from(high) << 32 | u64::from(low),
            Endian::Big => u64::from(low) << 32 | u64::from(high),
        }
    }
}
