//! CloudPhysics' VSCSI: SCSI commands of virtual machines, records of 32 or 40 bytes.
//!
//! ```text
//!   version 1   0        4        8        12     14     16         24         32
//!               ├────────┼────────┼────────┼──────┼──────┼──────────┼──────────┤
//!               │ serial │ bytes  │  n SG  │ cmd  │ 1<<8 │  block   │ time, µs │
//!               └────────┴────────┴────────┴──────┴──────┴──────────┴──────────┘
//!   version 2   0      2      4        8        12       16         24         32         40
//!               ├──────┼──────┼────────┼────────┼────────┼──────────┼──────────┼──────────┤
//!               │ cmd  │ 2<<8 │ serial │ bytes  │  n SG  │  block   │ time, µs │ took, µs │
//!               └──────┴──────┴────────┴────────┴────────┴──────────┴──────────┴──────────┘
//! ```
//!
//! Little-endian; blocks are of 512 B; `cmd` is the SCSI operation code. Commands other than I/Os
//! are skipped. Source: `vscsi.h` of libCacheSim, "Created by CloudPhysics". The unit of version
//! 2's last field is undocumented and assumed to be that of the time.

use super::bytes::{Bytes, Endian};
use super::lines::Source;
use super::parse::{Known, Parse};
use super::{Error, Format, Traced};
use crate::{Io, Kind};

const BLOCK: u64 = 512;
const MICRO: u64 = 1000;
const LITTLE: Endian = Endian::Little;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

impl Version {
    /// Returns the record length, the offset of the version mark, and its value.
    fn shape(self) -> (usize, usize, u16) {
        match self {
            Version::One => (32, 14, 1 << 8),
            Version::Two => (40, 2, 2 << 8),
        }
    }

    /// Returns the version that all records in `head` have (at most four, at least one).
    fn of(head: &[u8]) -> Option<Version> {
        [Version::Two, Version::One].into_iter().find(|version| {
            let (len, at, mark) = version.shape();
            let mut records = head.chunks_exact(len).take(4).peekable();
            records.peek().is_some() && records.all(|record| LITTLE.u16(record, at) == mark)
        })
    }
}

/// Reports whether a file starts like this format.
pub(super) fn fits(head: &[u8]) -> bool {
    Version::of(head).is_some()
}

/// Parser of records.
pub(super) struct Parser {
    bytes: Bytes,
    version: Version,
}

impl Parser {
    pub(super) fn new(mut source: Source, file: &str) -> Result<Parser, Error> {
        let head = source.fill_buf().map_err(|error| Error::system(file, &error))?;
        let version = Version::of(head);
        let bytes = Bytes::new(source, file, Format::Vscsi);
        match version {
            Some(version) => Ok(Parser { bytes, version }),
            None => Err(bytes.bad(0, "no record of version 1 or 2 begins here")),
        }
    }

    fn record(&mut self) -> Result<Option<[u8; 40]>, Error> {
        let mut record = [0; 40];
        match self.version {
            Version::One => {
                let Some(short) = self.bytes.take::<32>()? else { return Ok(None) };
                record[..32].copy_from_slice(&short);
            }
            Version::Two => {
                let Some(long) = self.bytes.take()? else { return Ok(None) };
                record = long;
            }
        }
        let (len, at, mark) = self.version.shape();
        let found = LITTLE.u16(&record, at);
        if found != mark {
            let found = format!("the record has version {found:#06x}, those before {mark:#06x}");
            return Err(self.bytes.bad(len, found));
        }
        Ok(Some(record))
    }

    fn decode(&self, record: &[u8; 40]) -> Result<Option<Traced>, Error> {
        let (command, bytes) = match self.version {
            Version::One => (LITTLE.u16(record, 12), LITTLE.u32(record, 4)),
            Version::Two => (LITTLE.u16(record, 0), LITTLE.u32(record, 8)),
        };
        let Some(kind) = kind(command) else { return Ok(None) };
        let (size, ..) = self.version.shape();
        let times = |at, unit, what| {
            let number = LITTLE.u64(record, at);
            let bad = || self.bytes.bad(size, format!("{number} is not {what}"));
            number.checked_mul(unit).ok_or_else(bad)
        };
        let offset = times(16, BLOCK, "the address of a block")?;
        let at_ns = times(24, MICRO, "a time in microseconds")?;
        let took_ns = match self.version {
            Version::One => None,
            Version::Two => Some(times(32, MICRO, "a time in microseconds")?),
        };
        let len = if kind == Kind::Sync { 0 } else { bytes };
        Ok(Some(Traced { at_ns, took_ns, io: Io { kind, file: 0, offset, len }, stream: 0 }))
    }
}

impl Parse for Parser {
    fn next(&mut self, known: &mut Known) -> Result<Option<Traced>, Error> {
        while let Some(record) = self.record()? {
            if let Some(mut traced) = self.decode(&record)? {
                let file = known.names.numbered(0, || "disk".to_string());
                traced.io.file = file.expect("there is one file");
                return Ok(Some(traced));
            }
            known.notes.skipped += 1;
        }
        Ok(None)
    }
}

/// Maps a SCSI operation code: READ, WRITE (also AND VERIFY, SAME) of 6, 10, 12 and 16 bytes,
/// SYNCHRONIZE CACHE, UNMAP.
fn kind(command: u16) -> Option<Kind> {
    match command {
        0x08 | 0x28 | 0xa8 | 0x88 => Some(Kind::Read),
        0x0a | 0x2a | 0xaa | 0x8a | 0x2e | 0xae | 0x8e | 0x41 | 0x93 => Some(Kind::Write),
        0x35 | 0x91 => Some(Kind::Sync),
        0x42 => Some(Kind::Trim),
        _ => None,
    }
}
