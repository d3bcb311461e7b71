//! Byte ranges (RFC 9110 §14).

use std::ops::Range as Span;

/// Maximum number of ranges in one request; a request for more gets the whole representation.
const RANGES_MAX: usize = 64;

/// One requested range, before the length is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Range {
    /// From the first byte, at most to the last (inclusive).
    From(u64, Option<u64>),
    /// This number of bytes at the end.
    Last(u64),
}

/// The requested ranges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ranges(Vec<Range>);

/// The requested ranges, resolved for a file of a certain length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolved {
    /// The whole file: the ranges add up to more than its length.
    Whole,
    /// These parts, none of them empty.
    Parts(Vec<Span<u64>>),
    /// No range overlaps the file.
    Unsatisfiable,
}

impl Ranges {
    /// Parses a `Range` field; `None` if it is invalid, in which case it is ignored (§14.2).
    pub(super) fn parse(text: &str) -> Option<Ranges> {
        let list = text.strip_prefix("bytes=")?;
        let ranges: Option<Vec<Range>> =
            list.split(',').map(|item| one(super::trim(item))).collect();
        ranges.filter(|ranges| ranges.len() <= RANGES_MAX).map(Ranges)
    }

    /// Resolves the ranges for a file of this length, bytes.
    pub fn resolve(&self, length: u64) -> Resolved {
        assert!(self.0.len() <= RANGES_MAX, "more are no ranges");
        let parts: Vec<Span<u64>> =
            self.0.iter().filter_map(|range| span(*range, length)).collect();
        let total = parts.iter().fold(0u64, |sum, part| sum.saturating_add(part.end - part.start));
        if parts.is_empty() {
            Resolved::Unsatisfiable
        } else if parts.len() > 1 && total > length {
            Resolved::Whole
        } else {
            Resolved::Parts(parts)
        }
    }
}

fn one(item: &str) -> Option<Range> {
    let number = |text: &str| {
        let plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        plain.then(|| text.parse().ok()).flatten()
    };
    let (first, last) = item.split_once('-')?;
    match (first, last) {
        ("", last) => Some(Range::Last(number(last)?)),
        (first, "") => Some(Range::From(number(first)?, None)),
        (first, last) => {
            let (first, last) = (number(first)?, number(last)?);
            (first <= last).then_some(Range::From(first, Some(last)))
        }
    }
}

fn span(range: Range, length: u64) -> Option<Span<u64>> {
    let span = match range {
        Range::From(first, last) => {
            first..last.map_or(length, |last| last.saturating_add(1).min(length))
        }
        Range::Last(count) => length.saturating_sub(count)..length,
    };
    assert!(span.end <= length, "a range is of the file");
    (span.start < span.end).then_some(span)
}
