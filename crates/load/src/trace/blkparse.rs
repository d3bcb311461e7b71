//! Text output of `blkparse`: one line for each event of the block layer.
//!
//! ```text
//!     8,0    3        1     0.000000000   697  Q   W 223490 + 8 [kjournald]
//!   device cpu sequence      seconds    process A  B  sector  sectors  command
//!
//!   A   Q queued, D given to the driver, C complete; others are skipped
//!   B   of: R read, W write, D discard, F flush (before W: first; after: FUA), N none,
//!       then S synchronous, A read ahead, M metadata: "WS", "FWS", "RAM", …
//! ```
//!
//! A line without `+ sectors` has length 0: a flush. This is blkparse's default format (its manual,
//! *Default Output*); output made with `-f` is not supported. The first line that does not start
//! with a device begins the summary, which is skipped.

use super::Error;
use super::lines::{Lines, whole, words};
use super::pair::{Action, Event};
use crate::Kind;

const FORM: &str = "MAJOR,MINOR CPU SEQUENCE SECONDS PROCESS ACTION RWBS [SECTOR + SECTORS]";
const SECTOR: u64 = 512;
const SECOND: u64 = 1_000_000_000;

/// Reports whether a line has this format.
pub(super) fn fits(line: &[u8]) -> bool {
    let (words, count) = words::<7>(line);
    count >= 6
        && device(words[0]).is_some()
        && whole(words[1]).is_some()
        && whole(words[2]).is_some()
        && words[3].contains(&b'.')
        && words[5].len() <= 2
}

/// Events of a file.
pub(super) struct Events {
    lines: Lines,
    begun: bool,
}

impl Events {
    pub(super) fn new(lines: Lines) -> Events {
        Events { lines, begun: false }
    }

    fn event(&self) -> Result<Option<Event>, Error> {
        let (words, count) = words::<10>(self.lines.text());
        let Some(device) = device(words[0]) else { return Ok(None) };
        if count < 6 {
            return Err(self.lines.not_like(FORM));
        }
        let Some(action) = action(words[5]) else { return Ok(None) };
        let at_ns = self.lines.time(words[3], SECOND, "a time in seconds")?;
        let (offset, len) = self.range(&words)?;
        let Some(kind) = kind(words[6], len) else { return Ok(None) };
        let process = self.lines.whole(words[4], "the number of a process")?;
        let process = u32::try_from(process)
            .map_err(|_| self.lines.not(words[4], "the number of a process"))?;
        Ok(Some(Event { at_ns, action, device, kind, offset, len, process }))
    }

    /// Returns the offset and length of an event; both 0 if the line has none.
    fn range(&self, words: &[&[u8]; 10]) -> Result<(u64, u32), Error> {
        if words[8] != b"+" {
            return Ok((0, 0));
        }
        let offset = self.lines.times(words[7], SECTOR, "the number of a sector")?;
        let len = self.lines.times(words[9], SECTOR, "a number of sectors")?;
        let len = u32::try_from(len).map_err(|_| self.lines.not(words[9], "less than 4 GiB"))?;
        Ok((offset, len))
    }
}

impl super::pair::Events for Events {
    fn next(&mut self, skipped: &mut u64) -> Result<Option<Event>, Error> {
        while self.lines.advance()? {
            if !self.begun && !fits(self.lines.text()) {
                return Err(self.lines.not_like(FORM));
            }
            self.begun = true;
            match self.event()? {
                Some(event) => return Ok(Some(event)),
                None => *skipped += 1,
            }
        }
        Ok(None)
    }
}

fn device(word: &[u8]) -> Option<(u32, u32)> {
    let comma = word.iter().position(|byte| *byte == b',')?;
    let part = |part: &[u8]| u32::try_from(whole(part)?).ok();
    Some((part(&word[..comma])?, part(&word[comma + 1..])?))
}

fn action(word: &[u8]) -> Option<Action> {
    match word {
        b"Q" => Some(Action::Queued),
        b"D" => Some(Action::Driver),
        b"C" => Some(Action::Completed),
        _ => None,
    }
}

fn kind(word: &[u8], len: u32) -> Option<Kind> {
    let has = |letter| word.contains(&letter);
    match () {
        () if has(b'D') => Some(Kind::Trim),
        () if has(b'F') && len == 0 => Some(Kind::Sync),
        () if has(b'W') && len > 0 => Some(Kind::Write),
        () if has(b'R') && len > 0 => Some(Kind::Read),
        () => None,
    }
}
