//! Lines of text formats, and the numbers in them.

use super::error::shown;
use super::{Error, FILES_MAX, Format, Place};
use std::io::{BufRead, Read};

/// How long a line may be, bytes.
pub const LINE_MAX: usize = 1 << 16;

/// What a text format reads from.
pub(super) type Source = Box<dyn BufRead + Send>;

/// A file read line by line, with what an error needs to say.
pub(super) struct Lines {
    source: Source,
    file: String,
    format: Format,
    number: u64,
    line: Vec<u8>,
}

impl Lines {
    pub(super) fn new(source: Source, file: &str, format: Format) -> Lines {
        Lines { source, file: file.to_string(), format, number: 0, line: Vec::new() }
    }

    /// Goes to the next line that is not blank; its text is [`Lines::text`] then. False at the end.
    pub(super) fn advance(&mut self) -> Result<bool, Error> {
        loop {
            self.line.clear();
            let limit = LINE_MAX as u64 + 1;
            let read = self.source.by_ref().take(limit).read_until(b'\n', &mut self.line);
            let count = read.map_err(|error| Error::system(&self.file, &error))?;
            if count == 0 {
                return Ok(false);
            }
            self.number += 1;
            if count > LINE_MAX {
                return Err(self.bad(format!("the line is longer than {LINE_MAX} bytes")));
            }
            if !self.text().is_empty() {
                return Ok(true);
            }
        }
    }

    /// The line without the space around it.
    pub(super) fn text(&self) -> &[u8] {
        self.line.trim_ascii()
    }

    /// An error about this line.
    pub(super) fn bad(&self, found: impl Into<String>) -> Error {
        let place = Place::Line(self.number.max(1));
        let (file, format) = (self.file.clone(), self.format);
        Error::Malformed { file, place, found: found.into(), format }
    }

    /// An error about a field: it is not what it should be.
    pub(super) fn not(&self, field: &[u8], what: &str) -> Error {
        self.bad(format!("{} is not {what}", shown(field)))
    }

    /// An error about the whole line: it is not of this form.
    pub(super) fn not_like(&self, form: &str) -> Error {
        self.bad(format!("{} is not of the form `{form}`", shown(self.text())))
    }

    /// An error: the names do not fit into memory.
    pub(super) fn too_many_files(&self) -> Error {
        self.bad(format!("there are more than {FILES_MAX} files"))
    }

    /// A field that is a whole number.
    pub(super) fn whole(&self, field: &[u8], what: &str) -> Result<u64, Error> {
        whole(field).ok_or_else(|| self.not(field, what))
    }

    /// A field that is a length in bytes, below 4 GiB.
    pub(super) fn len(&self, field: &[u8]) -> Result<u32, Error> {
        let len = self.whole(field, "a length in bytes")?;
        u32::try_from(len).map_err(|_| self.not(field, "a length below 4 GiB"))
    }

    /// A field times a unit, as where a sector begins.
    pub(super) fn times(&self, field: &[u8], unit: u64, what: &str) -> Result<u64, Error> {
        let number = whole(field).and_then(|number| number.checked_mul(unit));
        number.ok_or_else(|| self.not(field, what))
    }

    /// A field that is a decimal number of something that has `unit` ns.
    pub(super) fn time(&self, field: &[u8], unit: u64, what: &str) -> Result<u64, Error> {
        decimal(field, unit).ok_or_else(|| self.not(field, what))
    }
}

/// A whole number in ASCII digits.
pub(super) fn whole(field: &[u8]) -> Option<u64> {
    if field.is_empty() {
        return None;
    }
    field.iter().try_fold(0_u64, |number, byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

/// A decimal number times a power of ten, exactly, without what is smaller than 1.
pub(super) fn decimal(field: &[u8], unit: u64) -> Option<u64> {
    let point = field.iter().position(|byte| *byte == b'.').unwrap_or(field.len());
    let mut number = whole(&field[..point])?.checked_mul(unit)?;
    let mut worth = unit;
    for byte in field.get(point + 1..).unwrap_or_default() {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        worth /= 10;
        number = number.checked_add(worth * u64::from(digit))?;
    }
    Some(number)
}

/// The first `N` fields of a line of comma-separated values, without the space around them, and
/// how many fields there are. Fields that are missing are empty.
pub(super) fn fields<const N: usize>(line: &[u8]) -> ([&[u8]; N], usize) {
    collect(line.split(|byte| *byte == b',').map(<[u8]>::trim_ascii))
}

/// The first `N` words of a line, and how many there are. Words that are missing are empty.
pub(super) fn words<const N: usize>(line: &[u8]) -> ([&[u8]; N], usize) {
    collect(line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()))
}

fn collect<'a, const N: usize>(parts: impl Iterator<Item = &'a [u8]>) -> ([&'a [u8]; N], usize) {
    let mut first = [&b""[..]; N];
    let mut count = 0;
    for part in parts {
        if let Some(place) = first.get_mut(count) {
            *place = part;
        }
        count += 1;
    }
    (first, count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decimal_is_exact_in_its_unit() {
        assert_eq!(decimal(b"1.5", 1_000_000_000), Some(1_500_000_000));
        assert_eq!(decimal(b"0.000000001", 1_000_000_000), Some(1));
        assert_eq!(decimal(b"56.9109", 1000), Some(56_910));
        assert_eq!(decimal(b"7", 1000), Some(7000));
        for wrong in [&b""[..], b".", b".5", b"1e3", b"-1", b"1.-", b"99999999999999999999"] {
            assert_eq!(decimal(wrong, 1000), None, "{wrong:?}");
        }
    }
}
