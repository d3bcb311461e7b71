//! Byte ranges (RFC 9110 §14).

use std::ops::Range as Span;

/// Most ranges in one request; who asks for more gets everything.
const RANGES_MAX: usize = 64;

/// One range as asked for, before the length is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Range {
    /// From the first byte, at most to the last (inclusive).
    From(u64, Option<u64>),
    /// So many bytes at the end.
    Last(u64),
}

/// The ranges of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ranges(Vec<Range>);

/// What ranges mean for a file of a certain length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolved {
    /// All of it: the ranges ask for more than there is, all in all.
    Whole,
    /// These parts, none empty.
    Parts(Vec<Span<u64>>),
    /// Nothing that is there.
    Unsatisfiable,
}

impl Ranges {
    /// Reads a `Range` field. What is not understood is no range (§14.2).
    pub(super) fn parse(text: &str) -> Option<Ranges> {
        let list = text.strip_prefix("bytes=")?;
        let ranges: Option<Vec<Range>> =
            list.split(',').map(|item| one(super::trim(item))).collect();
        ranges.filter(|ranges| ranges.len() <= RANGES_MAX).map(Ranges)
    }

    /// What they mean for a file of this length.
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
