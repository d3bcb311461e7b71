//! ASCII format of MQSim, a simulator of flash disks.
//!
//! ```text
//!   938513000 4 264719034 16 0
//!   │         │ │         │  └ 1 read, 0 write
//!   │         │ │         └ length, sectors of 512 B
//!   │         │ └ address, sectors
//!   │         └ device
//!   └ issue time, ns
//! ```
//!
//! Source: the `README` of CMU-SAFARI/MQSim, *ASCII trace*, and its sample traces.

use super::lines::{Lines, whole, words};
use super::parse::{Known, Parse};
use super::{Error, Traced};
use crate::{Io, Kind};

const FORM: &str = "NANOSECONDS DEVICE SECTOR SECTORS 0|1";
const SECTOR: u64 = 512;

/// Reports whether a line has this format.
pub(super) fn fits(line: &[u8]) -> bool {
    let (words, count) = words::<5>(line);
    count == 5 && words.iter().all(|word| whole(word).is_some()) && matches!(words[4], b"0" | b"1")
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
        let ([time, device, sector, sectors, kind], count) = words(lines.text());
        if count != 5 {
            return Err(lines.not_like(FORM));
        }
        let kind = match kind {
            b"1" => Kind::Read,
            b"0" => Kind::Write,
            _ => return Err(lines.not(kind, "1 (read) or 0 (write)")),
        };
        let device = lines.whole(device, "the number of a device")?;
        let file = known.names.numbered(device, || format!("device{device}"));
        let file = file.ok_or_else(|| lines.too_many_files())?;
        let offset = lines.times(sector, SECTOR, "the number of a sector")?;
        let len = lines.times(sectors, SECTOR, "a number of sectors")?;
        let len = u32::try_from(len).map_err(|_| lines.not(sectors, "less than 4 GiB"))?;
        let at_ns = lines.whole(time, "a time in ns")?;
        let io = Io { kind, file, offset, len };
        Ok(Some(Traced { at_ns, took_ns: None, io, stream: 0 }))
    }
}
