//! HFPlayer's CSV: the log of a storage array, with a header of typed names.
//!
//! ```text
//!   #…,ELAPSED_USECS.D,…,CMD.S,…,LUN_SSID.I,…,LBA.I,NBLKS.I,…,HOST_ID.I,…,LATENCY_USECS.D
//!   …,81442951.096,…,WR_IN,…,1,…,2254431928,8,…,6,…,56.910
//! ```
//!
//! `.I` is an integer, `.D` a decimal number, `.S` a word. Columns are identified by name, in any
//! order, and others are ignored: `ELAPSED_USECS` is the issue time, `LATENCY_USECS` the duration
//! (optional), `CMD` starts with `RD` or `WR` (others are skipped), `LBA` and `NBLKS` are blocks of
//! 512 B, `LUN_SSID` is the device and `HOST_ID` the stream (both optional).
//!
//! Source: *On the Accuracy and Scalability of Intensive I/O Workload Replay* (FAST 2017), and the
//! sample traces and `depAnalyser.cc` of umn-cris/hfplayer.

use super::lines::Lines;
use super::parse::{Known, Parse};
use super::{Error, Traced};
use crate::{Io, Kind};

const BLOCK: u64 = 512;
const MICRO: u64 = 1000;

/// Maximum columns of a line.
const COLUMNS_MAX: usize = 64;

/// Reports whether a line is the header of this format.
pub(super) fn fits(line: &[u8]) -> bool {
    line.starts_with(b"#") && Columns::of(line).is_ok()
}

/// Column indices.
#[derive(Clone, Copy, Debug)]
struct Columns {
    time: usize,
    command: usize,
    block: usize,
    blocks: usize,
    latency: Option<usize>,
    device: Option<usize>,
    host: Option<usize>,
}

impl Columns {
    /// Parses a header. The error is the name of a missing column.
    fn of(header: &[u8]) -> Result<Columns, &'static str> {
        let header = header.strip_prefix(b"#").unwrap_or(header);
        let untyped = |name: &[u8]| {
            let end = name.iter().rposition(|byte| *byte == b'.').unwrap_or(name.len());
            name[..end].trim_ascii().to_ascii_uppercase()
        };
        let names: Vec<_> =
            header.split(|byte| *byte == b',').take(COLUMNS_MAX).map(untyped).collect();
        let find = |name: &str| names.iter().position(|known| known == name.as_bytes());
        let need = |name: &'static str| find(name).ok_or(name);
        Ok(Columns {
            time: need("ELAPSED_USECS")?,
            command: need("CMD")?,
            block: need("LBA")?,
            blocks: need("NBLKS")?,
            latency: find("LATENCY_USECS"),
            device: find("LUN_SSID"),
            host: find("HOST_ID"),
        })
    }
}

/// Parser of the lines after a header.
pub(super) struct Parser {
    lines: Lines,
    columns: Columns,
}

impl Parser {
    pub(super) fn new(mut lines: Lines) -> Result<Parser, Error> {
        lines.advance()?;
        let columns = Columns::of(lines.text()).map_err(|missing| {
            lines.bad(format!("the first line does not name a column {missing}"))
        })?;
        Ok(Parser { lines, columns })
    }

    fn record(&self, known: &mut Known) -> Result<Option<Traced>, Error> {
        let (lines, columns) = (&self.lines, self.columns);
        let mut fields = [&b""[..]; COLUMNS_MAX];
        for (place, field) in fields.iter_mut().zip(lines.text().split(|byte| *byte == b',')) {
            *place = field.trim_ascii();
        }
        let Some(kind) = kind(fields[columns.command]) else {
            known.notes.skipped += 1;
            return Ok(None);
        };
        let number = |column: Option<usize>, what| {
            column.map_or(Ok(0), |column| {
                let number = lines.whole(fields[column], what)?;
                u32::try_from(number).map_err(|_| lines.not(fields[column], what))
            })
        };
        let device = number(columns.device, "the number of a device")?;
        let stream = number(columns.host, "the number of a host")?;
        let file = known.names.numbered(device.into(), || format!("lun{device}"));
        let file = file.ok_or_else(|| lines.too_many_files())?;
        let offset = lines.times(fields[columns.block], BLOCK, "the address of a block")?;
        let len = lines.times(fields[columns.blocks], BLOCK, "a number of blocks")?;
        let len =
            u32::try_from(len).map_err(|_| lines.not(fields[columns.blocks], "less than 4 GiB"))?;
        let time = |column: usize| lines.time(fields[column], MICRO, "a time in microseconds");
        let (at_ns, took_ns) = (time(columns.time)?, columns.latency.map(time).transpose()?);
        let io = Io { kind, file, offset, len };
        Ok(Some(Traced { at_ns, took_ns, io, stream }))
    }
}

impl Parse for Parser {
    fn next(&mut self, known: &mut Known) -> Result<Option<Traced>, Error> {
        while self.lines.advance()? {
            if let Some(record) = self.record(known)? {
                return Ok(Some(record));
            }
        }
        Ok(None)
    }
}

fn kind(command: &[u8]) -> Option<Kind> {
    match () {
        () if command.starts_with(b"RD") => Some(Kind::Read),
        () if command.starts_with(b"WR") => Some(Kind::Write),
        () => None,
    }
}
