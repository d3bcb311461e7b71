//! Binary output of `blktrace`: events of the block layer, one file for each processor.
//!
//! A file is a sequence of records in the byte order of the traced machine (`struct blk_io_trace`
//! of Linux' `include/uapi/linux/blktrace_api.h`):
//!
//! ```text
//!   0       4        8               16               24
//!   ├───────┼────────┼────────────────┼────────────────┤
//!   │ magic │sequence│    time, ns    │sector, 512 B   │   magic = 0x656174 << 8 | version 7
//!   ├───────┼────────┼───────┬────────┼───────┬────┬───┤
//!   │ bytes │ action │  pid  │ device │  cpu  │err │pdu│   then pdu bytes of anything
//!   └───────┴────────┴───────┴────────┴───────┴────┴───┘
//!   24      28       32      36       40      44   46  48
//!
//!   action, bits 0-7: 1 Q queued, 7 D given to the driver, 8 C complete, others; bit 8: cgroup
//!           bits 16…: 1<<1 write, 1<<2 flush, 1<<9 SCSI command, 1<<10 notify, 1<<13 discard, …
//!   device: major << 20 | minor
//! ```
//!
//! Q is the issue, or D without any Q ([`Issue`](super::Issue)); C is the completion. Notes, SCSI
//! commands and all other events are skipped. A flush without data is a sync, a discard a trim.

use super::bytes::{Bytes, Endian};
use super::lines::Source;
use super::pair::{Action, Event};
use super::{Error, Format};
use crate::Kind;
use std::path::{Path, PathBuf};

const MAGIC: u32 = 0x6561_7400;
const VERSION: u32 = 7;
const RECORD: usize = 48;
const SECTOR: u64 = 512;

const WRITE: u32 = 1 << 17;
const FLUSH: u32 = 1 << 18;
const READ: u32 = 1 << 16;
const COMMAND: u32 = 1 << 25;
const NOTIFY: u32 = 1 << 26;
const DISCARD: u32 = 1 << 29;

/// Infix between the device name and the processor number.
const INFIX: &str = ".blktrace.";

/// Reports whether a file starts like this format.
pub(super) fn fits(head: &[u8]) -> bool {
    head.len() >= 4 && endian(head).is_some()
}

fn endian(record: &[u8]) -> Option<Endian> {
    let of = |endian: &Endian| endian.u32(record, 0) & !0xff == MAGIC;
    [Endian::Little, Endian::Big].into_iter().find(of)
}

/// Returns the device name, if the file is named like that of a processor.
fn base(name: &str) -> Option<&str> {
    let (base, number) = name.rsplit_once(INFIX)?;
    number.parse::<u32>().ok().map(|_| base)
}

/// Reports whether a file is named like that of a processor.
pub(super) fn is_part(path: &Path) -> bool {
    path.file_name().and_then(|name| name.to_str()).is_some_and(|name| base(name).is_some())
}

/// Returns the files of all processors in the order of their numbers, given one of them or the name
/// before [`INFIX`]. Empty without such files.
pub(super) fn parts(path: &Path) -> Vec<PathBuf> {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return Vec::new() };
    let base = base(name).unwrap_or(name);
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let Ok(list) = std::fs::read_dir(directory.unwrap_or(Path::new("."))) else {
        return Vec::new();
    };
    let number = |entry: &PathBuf| {
        let (of, number) = entry.file_name()?.to_str()?.rsplit_once(INFIX)?;
        if of == base { number.parse::<u32>().ok() } else { None }
    };
    let paths = list.filter_map(|entry| Some(entry.ok()?.path()));
    let mut parts: Vec<_> = paths.filter_map(|path| Some((number(&path)?, path))).collect();
    parts.sort();
    parts.into_iter().map(|(_, path)| path).collect()
}

/// Events of all processors by time.
pub(super) struct Events {
    files: Vec<Bytes>,
    /// Next event of each file.
    heads: Vec<Option<Event>>,
    begun: bool,
    /// Error to return after the preceding event.
    failed: Option<Error>,
}

impl Events {
    pub(super) fn new(sources: Vec<(String, Source)>) -> Events {
        let open =
            |(file, source): (String, Source)| Bytes::new(source, &file, Format::BlktraceBinary);
        let files: Vec<_> = sources.into_iter().map(open).collect();
        let heads = files.iter().map(|_| None).collect();
        Events { files, heads, begun: false, failed: None }
    }
}

impl super::pair::Events for Events {
    fn next(&mut self, skipped: &mut u64) -> Result<Option<Event>, Error> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        if !self.begun {
            for (file, head) in self.files.iter_mut().zip(&mut self.heads) {
                *head = event(file, skipped)?;
            }
            self.begun = true;
        }
        let times = self.heads.iter().enumerate();
        let times = times.filter_map(|(index, head)| Some((head.as_ref()?.at_ns, index)));
        let Some((_, index)) = times.min() else { return Ok(None) };
        let next = event(&mut self.files[index], skipped).unwrap_or_else(|error| {
            self.failed = Some(error);
            None
        });
        Ok(std::mem::replace(&mut self.heads[index], next))
    }
}

/// Returns the next relevant event of a file.
fn event(file: &mut Bytes, skipped: &mut u64) -> Result<Option<Event>, Error> {
    while let Some(record) = file.take::<RECORD>()? {
        let Some(endian) = endian(&record) else {
            let magic = &record[..4];
            return Err(file.bad(RECORD, format!("a record begins with {magic:02x?}, not `eat`")));
        };
        let version = endian.u32(&record, 0) & 0xff;
        if version != VERSION {
            let found = format!("the record has version {version}; only {VERSION} is known");
            return Err(file.bad(RECORD, found));
        }
        file.skip(usize::from(endian.u16(&record, 46)))?;
        match decode(endian, &record) {
            Some(event) => return Ok(Some(event)),
            None => *skipped += 1,
        }
    }
    Ok(None)
}

fn decode(endian: Endian, record: &[u8; RECORD]) -> Option<Event> {
    let u32 = |at| endian.u32(record, at);
    let bits = u32(28);
    if bits & (NOTIFY | COMMAND) != 0 {
        return None;
    }
    let action = match bits & 0xff {
        1 => Action::Queued,
        7 => Action::Driver,
        8 => Action::Completed,
        _ => return None,
    };
    let len = u32(24);
    let kind = match () {
        () if bits & DISCARD != 0 => Kind::Trim,
        () if bits & FLUSH != 0 && len == 0 => Kind::Sync,
        () if bits & WRITE != 0 && len > 0 => Kind::Write,
        () if bits & READ != 0 && len > 0 => Kind::Read,
        () => return None,
    };
    let offset = endian.u64(record, 16).checked_mul(SECTOR).or(if kind == Kind::Sync {
        Some(0)
    } else {
        None
    })?;
    let device = (u32(36) >> 20, u32(36) & 0xf_ffff);
    Some(Event {
        at_ns: endian.u64(record, 8),
        action,
        device,
        kind,
        offset,
        len,
        process: u32(32),
    })
}
