//! fio's I/O logs, versions 2 and 3.
//!
//! ```text
//!   log      = "fio version 2 iolog" line*            | "fio version 3 iolog" timed*
//!   line     = name ("add" | "open" | "close")
//!            | name action offset length
//!            | name "wait" time 0                     only in version 2
//!   timed    = microseconds line                      since the start of the run
//!   action   = "read" | "write" | "sync" | "datasync" | "trim"
//! ```
//!
//! Sources: fio's `HOWTO`, *Trace file format v2* and *v3*. The manual omits the unit of version 3;
//! `log_io_u` of fio's `iolog.c` writes `utime_since_now`, in microseconds. The manual and the
//! program disagree on the meaning of `wait` ([`Wait`]). Version 2 without waits has no times:
//! everything is at 0. `sync` and `datasync` are both a sync; adding, opening and closing a file is
//! not an I/O here. Names with spaces are accepted (the action is located from the end of the
//! line), and written with `%20`, since fio would not understand them. fio 3.33 reports
//! `bad ddir: 2` for a trim and continues without it.

use super::lines::Lines;
use super::parse::{Known, Parse, Wait};
use super::{Error, Traced, Write};
use crate::{Io, Kind};
use std::collections::BTreeSet;
use std::io::Write as _;

pub(super) const VERSION_2: &[u8] = b"fio version 2 iolog";
pub(super) const VERSION_3: &[u8] = b"fio version 3 iolog";

const MICRO: u64 = 1000;
const MILLI: u64 = 1_000_000;

/// Parser of a log.
pub(super) struct Parser {
    lines: Lines,
    /// Meaning of `wait`; `None` in version 3.
    wait: Option<Wait>,
    now_ns: u64,
}

impl Parser {
    pub(super) fn version2(lines: Lines, wait: Wait) -> Parser {
        Parser { lines, wait: Some(wait), now_ns: 0 }
    }

    pub(super) fn version3(lines: Lines) -> Parser {
        Parser { lines, wait: None, now_ns: 0 }
    }

    fn line(&mut self, known: &mut Known) -> Result<Option<Traced>, Error> {
        let lines = &self.lines;
        let (mut text, wait) = (lines.text(), self.wait);
        if text == VERSION_2 || text == VERSION_3 {
            return Ok(None);
        }
        if wait.is_none() {
            let (time, rest) = first_word(text);
            self.now_ns = lines.times(time, MICRO, "a time in microseconds")?;
            text = rest;
        }
        let (rest, last) = last_word(text);
        if matches!(last, b"add" | b"open" | b"close") && !rest.is_empty() {
            known.notes.skipped += 1;
            return Ok(None);
        }
        let (rest, offset) = last_word(rest);
        let (name, action) = last_word(rest);
        if name.is_empty() {
            return Err(lines.not_like(self.form()));
        }
        let Some(kind) = kind(action) else {
            self.now_ns = waited(lines, wait, self.now_ns, action, offset)?;
            return Ok(None);
        };
        let offset = lines.whole(offset, "an offset in bytes")?;
        let len = if kind == Kind::Sync { 0 } else { lines.len(last)? };
        let file = known.names.named(name).ok_or_else(|| lines.too_many_files())?;
        let io = Io { kind, file, offset, len };
        Ok(Some(Traced { at_ns: self.now_ns, took_ns: None, io, stream: 0 }))
    }

    fn form(&self) -> &'static str {
        match self.wait {
            Some(_) => "NAME ACTION [OFFSET LENGTH]",
            None => "MICROSECONDS NAME ACTION [OFFSET LENGTH]",
        }
    }
}

impl Parse for Parser {
    fn next(&mut self, known: &mut Known) -> Result<Option<Traced>, Error> {
        while self.lines.advance()? {
            if let Some(record) = self.line(known)? {
                return Ok(Some(record));
            }
        }
        Ok(None)
    }
}

/// Returns the time after a `wait`.
fn waited(
    lines: &Lines,
    wait: Option<Wait>,
    now_ns: u64,
    action: &[u8],
    time: &[u8],
) -> Result<u64, Error> {
    const WHAT: &str = "a time to wait";
    match wait {
        Some(Wait::Micros) if action == b"wait" => {
            let after_ns = now_ns.checked_add(lines.times(time, MICRO, WHAT)?);
            after_ns.ok_or_else(|| lines.not(time, WHAT))
        }
        Some(Wait::Millis) if action == b"wait" => Ok(now_ns.max(lines.times(time, MILLI, WHAT)?)),
        Some(_) | None => Err(lines.not(action, "an action of this version")),
    }
}

fn kind(action: &[u8]) -> Option<Kind> {
    match action {
        b"read" => Some(Kind::Read),
        b"write" => Some(Kind::Write),
        b"sync" | b"datasync" => Some(Kind::Sync),
        b"trim" => Some(Kind::Trim),
        _ => None,
    }
}

fn first_word(text: &[u8]) -> (&[u8], &[u8]) {
    let end = text.iter().position(u8::is_ascii_whitespace).unwrap_or(text.len());
    (&text[..end], text[end..].trim_ascii())
}

fn last_word(text: &[u8]) -> (&[u8], &[u8]) {
    let begin = text.iter().rposition(u8::is_ascii_whitespace).map_or(0, |at| at + 1);
    (text[..begin].trim_ascii(), &text[begin..])
}

/// Writer of version 3, which cannot represent creates and removes.
#[derive(Debug, Default)]
pub struct Writer {
    begun: bool,
    opened: BTreeSet<u32>,
}

impl Writer {
    /// Creates a writer of a new log.
    pub fn new() -> Writer {
        Writer::default()
    }

    fn begin(&mut self, out: &mut Vec<u8>) {
        if !self.begun {
            out.extend_from_slice(VERSION_3);
            out.push(b'\n');
            self.begun = true;
        }
    }
}

impl Write for Writer {
    fn write(&mut self, record: &Traced, name: &str, out: &mut Vec<u8>) -> bool {
        self.begin(out);
        let io = record.io;
        if matches!(io.kind, Kind::Create | Kind::Remove) {
            return false;
        }
        let name = name.split(char::is_whitespace).collect::<Vec<_>>().join("%20");
        let at = record.at_ns / MICRO;
        let wrote = if self.opened.insert(io.file) {
            write!(out, "{at} {name} add\n{at} {name} open\n")
        } else {
            Ok(())
        };
        wrote
            .and_then(|()| writeln!(out, "{at} {name} {} {} {}", io.kind, io.offset, io.len))
            .expect("memory takes all that is written");
        true
    }

    fn finish(&mut self, out: &mut Vec<u8>) {
        self.begin(out);
    }
}
