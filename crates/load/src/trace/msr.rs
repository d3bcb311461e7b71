//! CSV format of the MSR Cambridge traces: a week of 36 volumes of 13 servers.
//!
//! ```text
//!   128166372003061629,hm,0,Read,383496192,32768,413
//!   │                  │  │ │    │         │     └ response time, 100 ns
//!   │                  │  │ │    │         └ length, bytes
//!   │                  │  │ │    └ offset, bytes
//!   │                  │  │ └ Read or Write
//!   │                  │  └ number of the disk
//!   │                  └ host
//!   └ issue time: Windows' FILETIME, 100 ns since 1601
//! ```
//!
//! Source: *Write Off-Loading* (FAST 2008) and the `README` of the traces at SNIA's IOTTA. A file
//! is named `host_disk`; the host is the stream. A heading that starts with `Timestamp` is skipped.

use super::lines::{Lines, fields, whole};
use super::names::Names;
use super::parse::{Known, Parse};
use super::{Error, Traced, Write};
use crate::{Io, Kind};
use std::io::Write as _;

const FORM: &str = "TIMESTAMP,HOST,DISK,Read|Write,OFFSET,LENGTH,RESPONSE TIME";
const TICK: u64 = 100;

/// Start time of a written trace: the hour in which the Cambridge traces start.
const START: u64 = 128_166_372_000_000_000;

/// Reports whether a line has this format.
pub(super) fn fits(line: &[u8]) -> bool {
    let (fields, count) = fields::<4>(line);
    count == 7 && whole(fields[0]).is_some() && kind(fields[3]).is_some()
}

fn kind(field: &[u8]) -> Option<Kind> {
    match () {
        () if field.eq_ignore_ascii_case(b"read") => Some(Kind::Read),
        () if field.eq_ignore_ascii_case(b"write") => Some(Kind::Write),
        () => None,
    }
}

/// Parser of lines.
pub(super) struct Parser {
    lines: Lines,
    hosts: Names,
    name: Vec<u8>,
}

impl Parser {
    pub(super) fn new(lines: Lines) -> Parser {
        Parser { lines, hosts: Names::default(), name: Vec::new() }
    }

    fn record(&mut self, known: &mut Known) -> Result<Traced, Error> {
        let lines = &self.lines;
        let ([time, host, disk, action, offset, len, took], count) = fields(lines.text());
        if count != 7 {
            return Err(lines.not_like(FORM));
        }
        let kind = kind(action).ok_or_else(|| lines.not(action, "`Read` or `Write`"))?;
        self.name.clear();
        self.name.extend_from_slice(host);
        self.name.push(b'_');
        self.name.extend_from_slice(disk);
        let file = known.names.named(&self.name).ok_or_else(|| lines.too_many_files())?;
        let stream = self.hosts.named(host).ok_or_else(|| lines.too_many_files())?;
        let offset = lines.whole(offset, "an offset in bytes")?;
        let io = Io { kind, file, offset, len: lines.len(len)? };
        let at_ns = lines.times(time, TICK, "a time in 100 ns")?;
        let took_ns = Some(lines.times(took, TICK, "a response time in 100 ns")?);
        Ok(Traced { at_ns, took_ns, io, stream })
    }
}

impl Parse for Parser {
    fn next(&mut self, known: &mut Known) -> Result<Option<Traced>, Error> {
        while self.lines.advance()? {
            if !self.lines.text().starts_with(b"Timestamp") {
                return self.record(known).map(Some);
            }
        }
        Ok(None)
    }
}

/// Writer of lines. Only reads and writes can be represented; an unknown duration is written as 0.
#[derive(Debug, Default)]
pub struct Writer {}

impl Writer {
    /// Creates a writer of a new trace.
    pub fn new() -> Writer {
        Writer {}
    }
}

impl Write for Writer {
    fn write(&mut self, record: &Traced, name: &str, out: &mut Vec<u8>) -> bool {
        let io = record.io;
        let action = match io.kind {
            Kind::Read => "Read",
            Kind::Write => "Write",
            Kind::Sync | Kind::Trim | Kind::Create | Kind::Remove => return false,
        };
        let of_disk = name.rsplit_once('_').and_then(|(host, disk)| {
            let disk = whole(disk.as_bytes()).and_then(|disk| u32::try_from(disk).ok())?;
            Some((host, disk))
        });
        let (host, disk) = of_disk.unwrap_or((name, io.file));
        let host = host.replace([',', '\n', '\r'], "_");
        let time = START + record.at_ns / TICK;
        let took = record.took_ns.unwrap_or(0) / TICK;
        writeln!(out, "{time},{host},{disk},{action},{},{},{took}", io.offset, io.len)
            .expect("memory takes all that is written");
        true
    }
}
