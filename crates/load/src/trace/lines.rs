//! Reader of text formats, and parsers of numbers.

use super::error::shown;
use super::{Error, FILES_MAX, Format, Position};
use std::io::{BufRead, Read};

/// Maximum length of a line, in bytes.
pub const LINE_MAX: usize = 1 << 16;

/// Source of a text format.
pub(super) type Source = Box<dyn BufRead + Send>;

/// File read line by line, with the context for errors.
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

    /// Advances to the next nonblank line, which [`Lines::text`] then returns. Returns false at the
    /// end.
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

    /// Returns the trimmed line.
    pub(super) fn text(&self) -> &[u8] {
        self.line.trim_ascii()
    }

    /// Creates an error about this line.
    pub(super) fn bad(&self, found: impl Into<String>) -> Error {
        let place = Position::Line(self.number.max(1));
        let (file, format) = (self.file.clone(), self.format);
        Error::Malformed { file, place, found: found.into(), format }
    }

    /// Creates an error about a field with an unexpected value.
    pub(super) fn not(&self, field: &[u8], what: &str) -> Error {
        self.bad(format!("{} is not {what}", shown(field)))
    }

    /// Creates an error about a line with an unexpected form.
    pub(super) fn not_like(&self, form: &str) -> Error {
        self.bad(format!("{} is not of the form `{form}`", shown(self.text())))
    }

    /// Creates the error for too many file names.
    pub(super) fn too_many_files(&self) -> Error {
        self.bad(format!("there are more than {FILES_MAX} files"))
    }

    /// Parses an integer field.
    pub(super) fn whole(&self, field: &[u8], what: &str) -> Result<u64, Error> {
        whole(field).ok_or_else(|| self.not(field, what))
    }

    /// Parses a length in bytes, below 4 GiB.
    pub(super) fn len(&self, field: &[u8]) -> Result<u32, Error> {
        let len = self.whole(field, "a length in bytes")?;
        u32::try_from(len).map_err(|_| self.not(field, "a length below 4 GiB"))
    }

    /// Parses an integer field and multiplies it by a unit, such as a sector.
    pub(super) fn times(&self, field: &[u8], unit: u64, what: &str) -> Result<u64, Error> {
        let number = whole(field).and_then(|number| number.checked_mul(unit));
        number.ok_or_else(|| self.not(field, what))
    }

    /// Parses a decimal time field whose unit is `unit` ns.
    pub(super) fn time(&self, field: &[u8], unit: u64, what: &str) -> Result<u64, Error> {
        decimal(field, unit).ok_or_else(|| self.not(field, what))
    }
}

/// Parses an integer of ASCII digits.
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

/// Parses a decimal number times a power of ten, exactly, truncated to an integer.
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

/// Returns the first `N` trimmed fields of a comma-separated line, and the number of fields.
/// Missing fields are empty.
pub(super) fn fields<const N: usize>(line: &[u8]) -> ([&[u8]; N], usize) {
    collect(line.split(|byte| *byte == b',').map(<[u8]>::trim_ascii))
}

/// Returns the first `N` words of a line, and the number of words. Missing words are empty.
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
