//! Records of a run as a trace: see [`records`] for the layout.
//!
//! An I/O is replayed at its issue time in the run, not at its scheduled time; its duration is the
//! service time. Skipped I/Os are omitted. The stream is the filament.

use super::lines::Source;
use super::parse::{Known, Parse};
use super::{Error, Format, Position, Traced};
use crate::records::{self, BLOCK};
use crate::{Outcome, Record};

/// Magic number of the file.
const MAGIC: &[u8] = b"upcallrc";

/// Reports whether a file starts like this format.
pub(super) fn fits(head: &[u8]) -> bool {
    head.starts_with(MAGIC)
}

/// Parser of records.
pub(super) struct Parser {
    file: String,
    records: records::Reader<Source>,
}

impl Parser {
    pub(super) fn new(source: Source, file: &str) -> Result<Parser, Error> {
        let file = file.to_string();
        match records::Reader::new(source) {
            Ok(records) => Ok(Parser { file, records }),
            Err(error) => Err(of(file, error)),
        }
    }
}

impl Parse for Parser {
    fn next(&mut self, known: &mut Known) -> Result<Option<Traced>, Error> {
        loop {
            let record = match self.records.next() {
                None => return Ok(None),
                Some(Ok(record)) => record,
                Some(Err(error)) => return Err(of(self.file.clone(), error)),
            };
            if record.outcome == Outcome::Skipped {
                known.notes.skipped += 1;
                continue;
            }
            let Record { issued_ns, mut io, filament, .. } = record;
            let id = io.file;
            let file = known.names.numbered(id.into(), || format!("file{id}"));
            io.file = file.ok_or_else(|| {
                let what = format!("{}: there are too many files in it", self.file);
                Error::Lacking { what }
            })?;
            let took_ns = Some(record.service_ns());
            return Ok(Some(Traced { at_ns: issued_ns, took_ns, io, stream: filament }));
        }
    }
}

fn of(file: String, error: records::Error) -> Error {
    let offset = match error {
        records::Error::Io(error) => return Error::system(&file, &error),
        records::Error::NotRecords | records::Error::Version(_) => 0,
        records::Error::Damaged { offset } => offset,
        records::Error::Truncated { offset } => offset / BLOCK as u64 * BLOCK as u64,
    };
    let found = error.to_string();
    Error::Malformed { file, place: Position::Byte(offset), found, format: Format::Run }
}
