//! ASCII format of the Storage Performance Council: the Financial and WebSearch traces of UMass.
//!
//! ```text
//!   0,20941264,8192,W,0.551706,…
//!   │ │        │    │ │        └ any number of other fields, ignored
//!   │ │        │    │ └ issue time, seconds since the start; never decreases
//!   │ │        │    └ R or W, of either case
//!   │ │        └ length, bytes
//!   │ └ logical block address, blocks of 512 B
//!   └ application specific unit (ASU): a file
//! ```
//!
//! Source: *SPC Trace File Format Specification*, revision 1.0.1 (2002). Fields may be padded with
//! spaces. An ASU is also a stream.

use super::lines::{Lines, fields, whole};
use super::parse::{Known, Parse};
use super::{Error, Traced};
use crate::{Io, Kind};

const FORM: &str = "ASU,LBA,LENGTH,R|W,SECONDS[,…]";
const BLOCK: u64 = 512;
const SECOND: u64 = 1_000_000_000;

/// Reports whether a line has this format.
pub(super) fn fits(line: &[u8]) -> bool {
    let (fields, count) = fields::<4>(line);
    count >= 5
        && fields[..3].iter().all(|field| whole(field).is_some())
        && kind(fields[3]).is_some()
}

fn kind(field: &[u8]) -> Option<Kind> {
    match field {
        b"R" | b"r" => Some(Kind::Read),
        b"W" | b"w" => Some(Kind::Write),
        _ => None,
    }
}

/// Parser of lines.
pub(super) struct Parser {
    lines: Lines,
}

impl Parser {
    pub(super) fn new(lines: Lines) -> Parser {
        Parser { lines }
    }
}

impl Parse for Parser {
    fn next(&mut self, known: &mut Known) -> Result<Option<Traced>, Error> {
        if !self.lines.advance()? {
            return Ok(None);
        }
        let lines = &self.lines;
        let ([unit, block, len, action, time], count) = fields(lines.text());
        if count < 5 {
            return Err(lines.not_like(FORM));
        }
        let unit_number = lines.whole(unit, "the number of a unit")?;
        let stream = u32::try_from(unit_number)
            .map_err(|_| lines.not(unit, "the number of a unit below 2^32"))?;
        let kind = kind(action).ok_or_else(|| lines.not(action, "`R` or `W`"))?;
        let file = known.names.numbered(unit_number, || format!("asu{unit_number}"));
        let file = file.ok_or_else(|| lines.too_many_files())?;
        let offset = lines.times(block, BLOCK, "the address of a block")?;
        let io = Io { kind, file, offset, len: lines.len(len)? };
        let at_ns = lines.time(time, SECOND, "a time in seconds")?;
        Ok(Some(Traced { at_ns, took_ns: None, io, stream }))
    }
}
