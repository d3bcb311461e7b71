//! Upcall's own trace format, recorded by a running server.
//!
//! The file is a sequence of slots of 40 bytes, little-endian; the first one is text.
//!
//! ```text
//!   header   "upcall recording 1\n", then spaces, then "\n" as byte 39
//!
//!            0          8          16         24     28     32      36   37  38    40
//!            ├──────────┼──────────┼──────────┼──────┼──────┼───────┼────┼───┼─────┤
//!   I/O      │  at, ns  │ took, ns │  offset  │ len  │ file │stream │kind│ 0 │check│  kind 0…5
//!            ├──────┬───┼───┬──────┴──────────┴──────┴──────┴───────┼────┼───┼─────┤
//!   name     │ file │part│len│   28 bytes of the name, then zeros    │0x80│ 0 │check│
//!            ├──────┴───┼───┴───────────────────────────────────────┼────┼───┼─────┤
//!   start    │ unix, ns │   zeros                                   │0x81│ 0 │check│
//!            └──────────┴───────────────────────────────────────────┴────┴───┴─────┘
//!            0          8                                           36   37  38    40
//!
//!   at     since the preceding start; without one, since any origin
//!   took   u64::MAX if unknown
//!   kind   read 0, write 1, sync 2, trim 3, create 4, remove 5
//!   file   its number; its name is in preceding slots, part 0 first
//!   part   u16, index of the 28 bytes of the name; len: u16, of the whole name
//!   check  the low 16 bits of XXH3 of the 38 bytes before
//! ```
//!
//! **Rationale**: slots of one size can be appended while a server runs, and read after any crash.
//! An incomplete last slot is counted in [`Notes::cut_bytes`](super::Notes). A slot that was never
//! written (zeros) or is torn has a wrong check and is counted in [`Notes::damaged`](super::Notes);
//! the position of the next slot is unaffected. To append, truncate the recording to whole slots
//! and write a start: file numbers are reset there, and the difference of the starts preserves the
//! time between. A record is written when its I/O completes, so issues are out of order and are
//! sorted by the reader's window.

use super::bytes::{Bytes, Endian};
use super::lines::Source;
use super::names::Names;
use super::parse::{Known, Parse};
use super::{Error, Format, Traced, Write};
use crate::{Io, Kind};
use std::collections::{BTreeMap, BTreeSet};
use xxhash_rust::xxh3::xxh3_64;

/// Size of a slot, in bytes.
pub const SLOT: usize = 40;

/// First slot.
pub const HEADER: &[u8; SLOT] = b"upcall recording 1\n                    \n";

/// Maximum length of a name in bytes; longer ones are truncated.
pub const NAME_MAX: usize = u16::MAX as usize;

const NAME: u8 = 0x80;
const START: u8 = 0x81;
const KIND: usize = 36;
const CHECK: usize = 38;
const PART: usize = 28;
const UNKNOWN: u64 = u64::MAX;

type Slot = [u8; SLOT];

/// Returns the length of the whole slots in a recording of `len` bytes: it is truncated to this
/// before appending. If the result is below [`SLOT`], the recording is to be started anew.
pub fn whole_len(len: u64) -> u64 {
    len - len % SLOT as u64
}

/// Reports whether a file starts like this format; the header may be truncated after its text.
pub(super) fn fits(head: &[u8]) -> bool {
    let (some, text) = (head.len().min(SLOT), b"upcall recording 1\n");
    head.starts_with(text) && HEADER.starts_with(&head[..some])
}

/// Encoder of slots; the caller writes them to a file.
#[derive(Debug, Default)]
pub struct Writer {
    begun: bool,
    named: BTreeSet<u32>,
}

impl Writer {
    /// Creates an encoder of a new recording; the header is written first.
    pub fn new() -> Writer {
        Writer::default()
    }

    /// Creates an encoder that appends to a recording of whole slots, including the header.
    pub fn append() -> Writer {
        Writer { begun: true, named: BTreeSet::new() }
    }

    /// Starts a section: times are relative to `unix_ns` (since 1970), and file names are reset.
    pub fn start(&mut self, unix_ns: u64, out: &mut Vec<u8>) {
        self.begin(out);
        self.named.clear();
        let mut slot = [0; SLOT];
        slot[..8].copy_from_slice(&unix_ns.to_le_bytes());
        seal(slot, START, out);
    }

    /// Names a file; required once, before its first record.
    pub fn name(&mut self, file: u32, name: &str, out: &mut Vec<u8>) {
        self.begin(out);
        self.named.insert(file);
        let name = &name.as_bytes()[..name.len().min(NAME_MAX)];
        let len = u16::try_from(name.len()).expect("it was cut to so many bytes");
        let parts = name.chunks(PART).chain(name.is_empty().then_some(&name[..0]));
        for (part, bytes) in (0_u16..).zip(parts) {
            let mut slot = [0; SLOT];
            slot[..4].copy_from_slice(&file.to_le_bytes());
            slot[4..6].copy_from_slice(&part.to_le_bytes());
            slot[6..8].copy_from_slice(&len.to_le_bytes());
            slot[8..8 + bytes.len()].copy_from_slice(bytes);
            seal(slot, NAME, out);
        }
    }

    /// Encodes an I/O of a named file.
    pub fn record(&mut self, record: &Traced, out: &mut Vec<u8>) {
        self.begin(out);
        let io = record.io;
        let mut slot = [0; SLOT];
        slot[..8].copy_from_slice(&record.at_ns.to_le_bytes());
        slot[8..16].copy_from_slice(&record.took_ns.unwrap_or(UNKNOWN).to_le_bytes());
        slot[16..24].copy_from_slice(&io.offset.to_le_bytes());
        slot[24..28].copy_from_slice(&io.len.to_le_bytes());
        slot[28..32].copy_from_slice(&io.file.to_le_bytes());
        slot[32..36].copy_from_slice(&record.stream.to_le_bytes());
        seal(slot, io.kind as u8, out);
    }

    fn begin(&mut self, out: &mut Vec<u8>) {
        if !self.begun {
            out.extend_from_slice(HEADER);
            self.begun = true;
        }
    }
}

impl Write for Writer {
    fn write(&mut self, record: &Traced, name: &str, out: &mut Vec<u8>) -> bool {
        if !self.named.contains(&record.io.file) {
            self.name(record.io.file, name, out);
        }
        self.record(record, out);
        true
    }

    fn finish(&mut self, out: &mut Vec<u8>) {
        self.begin(out);
    }
}

fn seal(mut slot: Slot, kind: u8, out: &mut Vec<u8>) {
    slot[KIND] = kind;
    let check = check(&slot);
    slot[CHECK..].copy_from_slice(&check);
    out.extend_from_slice(&slot);
}

fn check(slot: &Slot) -> [u8; 2] {
    let sum = xxh3_64(&slot[..CHECK]).to_le_bytes();
    [sum[0], sum[1]]
}

/// Parser of slots.
pub(super) struct Parser {
    bytes: Bytes,
    /// Bytes of an incomplete header.
    cut: usize,
    first_start_ns: Option<u64>,
    /// Offset of the times since the last start, in ns.
    base_ns: u64,
    /// Name being assembled: file, parts so far, total length.
    name: (u32, Vec<u8>, usize),
    /// File numbers here, by those of the recording.
    files: BTreeMap<u32, u32>,
}

impl Parser {
    pub(super) fn new(source: Source, file: &str) -> Result<Parser, Error> {
        let mut bytes = Bytes::new(source, file, Format::Recording);
        let mut header = [0; SLOT];
        let count = bytes.fill(&mut header)?;
        if !HEADER.starts_with(&header[..count]) {
            return Err(bytes.bad(count, "the header `upcall recording 1` is not here"));
        }
        let cut = if count < SLOT { count } else { 0 };
        let (name, files) = ((0, Vec::new(), 0), BTreeMap::new());
        Ok(Parser { bytes, cut, first_start_ns: None, base_ns: 0, name, files })
    }

    fn started(&mut self, unix_ns: u64) {
        let first_ns = *self.first_start_ns.get_or_insert(unix_ns);
        self.base_ns = unix_ns.saturating_sub(first_ns);
        self.files.clear();
        self.name = (0, Vec::new(), 0);
    }

    /// Processes a part of a name. A name with a missing part is never complete.
    fn named(&mut self, slot: &Slot, known: &mut Known) -> Result<(), Error> {
        let file = Endian::Little.u32(slot, 0);
        let part = usize::from(Endian::Little.u16(slot, 4));
        let len = usize::from(Endian::Little.u16(slot, 6));
        if part == 0 {
            self.name = (file, Vec::new(), len);
        }
        let (of, parts, whole) = &mut self.name;
        if *of != file || parts.len() != part * PART || *whole != len {
            return Ok(());
        }
        let end = len.saturating_sub(part * PART).min(PART);
        parts.extend_from_slice(&slot[8..8 + end]);
        if parts.len() == len {
            let name = std::mem::take(parts);
            let number = self.number(known, |names| names.named(&name))?;
            self.files.insert(file, number);
        }
        Ok(())
    }

    fn recorded(&mut self, slot: &Slot, kind: Kind, known: &mut Known) -> Result<Traced, Error> {
        let little = Endian::Little;
        let recorded = little.u32(slot, 28);
        let file = match self.files.get(&recorded) {
            Some(file) => *file,
            None => {
                let name = format!("file{recorded}");
                let number = self.number(known, |names| names.named(name.as_bytes()))?;
                self.files.insert(recorded, number);
                number
            }
        };
        let io = Io { kind, file, offset: little.u64(slot, 16), len: little.u32(slot, 24) };
        let at_ns = self.base_ns.saturating_add(little.u64(slot, 0));
        let took_ns = Some(little.u64(slot, 8)).filter(|took_ns| *took_ns != UNKNOWN);
        Ok(Traced { at_ns, took_ns, io, stream: little.u32(slot, 32) })
    }

    fn number(
        &self,
        known: &mut Known,
        number: impl FnOnce(&mut Names) -> Option<u32>,
    ) -> Result<u32, Error> {
        let many = || self.bytes.bad(SLOT, "there are too many files");
        number(&mut known.names).ok_or_else(many)
    }
}

impl Parse for Parser {
    fn next(&mut self, known: &mut Known) -> Result<Option<Traced>, Error> {
        let mut slot = [0; SLOT];
        loop {
            let count = self.bytes.fill(&mut slot)?;
            if count < SLOT {
                known.notes.cut_bytes = (self.cut + count) as u64;
                return Ok(None);
            }
            if slot[CHECK..] != check(&slot) {
                known.notes.damaged += 1;
                continue;
            }
            let kind = Kind::ALL.get(usize::from(slot[KIND])).copied();
            match (slot[KIND], kind) {
                (_, Some(kind)) => return self.recorded(&slot, kind, known).map(Some),
                (NAME, None) => self.named(&slot, known)?,
                (START, None) => self.started(Endian::Little.u64(&slot, 0)),
                (_, None) => known.notes.skipped += 1,
            }
        }
    }
}
