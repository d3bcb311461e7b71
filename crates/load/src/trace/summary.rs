//! Characteristics of a trace, computed in one pass.

use super::{Error, Traced};
use crate::Kind;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

mod distinct;

pub use distinct::Distinct;

/// Size of the blocks counted as touched, in bytes.
pub const BLOCK: u64 = 4096;

/// Maximum blocks counted per I/O: the first 64 MiB.
const BLOCKS_MAX: u64 = 16_384;

/// Maximum distinct streams.
pub const STREAMS_MAX: usize = 65_536;

/// Upper bound of short gaps, in ns.
pub const SHORT_NS: u64 = 100_000;

const SECOND: u64 = 1_000_000_000;

/// Maximum I/Os issued in a span of time. Spans start at multiples of their length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peak {
    /// Length of the span, in ns.
    pub span_ns: u64,
    /// I/Os issued in the fullest span.
    pub count: u64,
    /// Start of that span, in ns since the first record.
    pub at_ns: u64,
    now: (u64, u64),
}

impl Peak {
    fn new(span_ns: u64) -> Peak {
        Peak { span_ns, count: 0, at_ns: 0, now: (0, 0) }
    }

    fn add(&mut self, at_ns: u64) {
        let begin = at_ns - at_ns % self.span_ns;
        let count = if self.now.0 == begin { self.now.1 + 1 } else { 1 };
        self.now = (begin, count);
        if count > self.count {
            (self.count, self.at_ns) = (count, begin);
        }
    }

    /// Returns the peak rate, in I/Os per second.
    pub fn rate(&self) -> u64 {
        let rate = u128::from(self.count) * u128::from(SECOND) / u128::from(self.span_ns);
        u64::try_from(rate).unwrap_or(u64::MAX)
    }
}

/// Usage of one file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OfFile {
    /// Number of I/Os.
    pub count: u64,
    /// Bytes read and written.
    pub bytes: u64,
    /// Highest end offset of an I/O in bytes: the required size of the target.
    pub end: u64,
}

/// Characteristics of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Number of I/Os, by [`Kind`] in its order.
    pub counts: [u64; Kind::ALL.len()],
    /// Bytes, by [`Kind`] in its order.
    pub bytes: [u64; Kind::ALL.len()],
    /// Time from the first issue to the last, in ns.
    pub duration_ns: u64,
    /// Peaks within 1 ms, 10 ms and 1 s.
    pub peaks: [Peak; 3],
    /// Number of reads and writes with lengths from 2ⁿ up to 2ⁿ⁺¹, by n; length 0 counts as 1.
    pub lens: [u64; 32],
    /// Maximum length of an I/O, in bytes.
    pub len_max: u32,
    /// Number of gaps between issues shorter than [`SHORT_NS`].
    pub short_gaps: u64,
    /// Number of I/Os with a duration.
    pub completed: u64,
    /// Sum of their durations, in ns.
    pub took_ns: u128,
    /// Files, by number.
    pub files: BTreeMap<u32, OfFile>,
    /// Number of streams, at most [`STREAMS_MAX`].
    pub streams: usize,
    /// Number of distinct blocks of [`BLOCK`] bytes touched by reads and writes, within about 2 %.
    pub blocks: u64,
}

impl Summary {
    /// Summarizes all records.
    pub fn of(records: impl IntoIterator<Item = Result<Traced, Error>>) -> Result<Summary, Error> {
        let mut count = Count::new();
        for record in records {
            count.add(&record?);
        }
        Ok(count.end())
    }

    /// Number of I/Os.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Reports whether any I/O changes the target's contents.
    pub fn changes(&self) -> bool {
        Kind::ALL.iter().zip(&self.counts).any(|(kind, count)| kind.changes() && *count > 0)
    }

    /// Bytes read and written.
    pub fn moved(&self) -> u64 {
        self.bytes[Kind::Read as usize].saturating_add(self.bytes[Kind::Write as usize])
    }

    /// Mean rate in I/Os per second; 0 if all were issued at once.
    pub fn rate(&self) -> f64 {
        ratio(self.count(), self.duration_ns) * SECOND as f64
    }

    /// Share of gaps shorter than [`SHORT_NS`], from 0 to 1.
    pub fn short_share(&self) -> f64 {
        ratio(self.short_gaps, self.count().saturating_sub(1))
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Summary under construction.
struct Count {
    summary: Summary,
    streams: BTreeSet<u32>,
    last_stream: Option<u32>,
    blocks: Distinct,
    last_ns: Option<u64>,
}

impl Count {
    fn new() -> Count {
        let summary = Summary {
            counts: [0; Kind::ALL.len()],
            bytes: [0; Kind::ALL.len()],
            duration_ns: 0,
            peaks: [SECOND / 1000, SECOND / 100, SECOND].map(Peak::new),
            lens: [0; 32],
            len_max: 0,
            short_gaps: 0,
            completed: 0,
            took_ns: 0,
            files: BTreeMap::new(),
            streams: 0,
            blocks: 0,
        };
        let (streams, blocks) = (BTreeSet::new(), Distinct::new());
        Count { summary, streams, last_stream: None, blocks, last_ns: None }
    }

    fn add(&mut self, record: &Traced) {
        let (io, sum) = (record.io, &mut self.summary);
        sum.counts[io.kind as usize] += 1;
        let bytes = &mut sum.bytes[io.kind as usize];
        *bytes = bytes.saturating_add(io.len.into());
        sum.len_max = sum.len_max.max(io.len);
        sum.duration_ns = record.at_ns;
        for peak in &mut sum.peaks {
            peak.add(record.at_ns);
        }
        let gap_ns = self.last_ns.map(|last_ns| record.at_ns.saturating_sub(last_ns));
        sum.short_gaps += u64::from(gap_ns.is_some_and(|gap_ns| gap_ns < SHORT_NS));
        self.last_ns = Some(record.at_ns);
        sum.completed += u64::from(record.took_ns.is_some());
        sum.took_ns += u128::from(record.took_ns.unwrap_or(0));
        let file = sum.files.entry(io.file).or_default();
        file.count += 1;
        file.end = file.end.max(io.offset.saturating_add(io.len.into()));
        if self.last_stream != Some(record.stream) && self.streams.len() < STREAMS_MAX {
            self.streams.insert(record.stream);
            self.last_stream = Some(record.stream);
        }
        if matches!(io.kind, Kind::Read | Kind::Write) {
            file.bytes = file.bytes.saturating_add(io.len.into());
            sum.lens[usize::try_from(io.len.max(1).ilog2()).expect("it is below 32")] += 1;
            self.touch(record);
        }
    }

    fn touch(&mut self, record: &Traced) {
        let io = record.io;
        if io.len == 0 {
            return;
        }
        let first = io.offset / BLOCK;
        let last = io.offset.saturating_add(u64::from(io.len) - 1) / BLOCK;
        for block in (first..=last).take(BLOCKS_MAX as usize) {
            self.blocks.add(io.file, block);
        }
    }

    fn end(self) -> Summary {
        Summary { streams: self.streams.len(), blocks: self.blocks.count(), ..self.summary }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let duration = self.duration_ns as f64 / SECOND as f64;
        writeln!(f, "{} I/Os in {duration:.6} s: {:.1} a second", self.count(), self.rate())?;
        for (kind, (count, bytes)) in Kind::ALL.iter().zip(self.counts.iter().zip(&self.bytes)) {
            if *count > 0 {
                let share = 100.0 * ratio(*count, self.count());
                let mean = ratio(*bytes, *count);
                writeln!(f, "  {kind:<7}{count:>12} {share:5.1} %{bytes:>20} B, mean {mean:.0} B")?;
            }
        }
        for peak in &self.peaks {
            let (span, at) = (peak.span_ns as f64 / 1e6, peak.at_ns as f64 / SECOND as f64);
            let (count, rate) = (peak.count, peak.rate());
            writeln!(f, "peak in {span} ms: {count}, {rate} a second, at {at:.3} s")?;
        }
        writeln!(f, "gaps below 100 µs: {:.1} %", 100.0 * self.short_share())?;
        let known = 100.0 * ratio(self.completed, self.count());
        let took = self.took_ns as f64 / self.completed.max(1) as f64 / 1000.0;
        writeln!(f, "completions known: {known:.1} %, mean {took:.1} µs")?;
        let touched = self.blocks.saturating_mul(BLOCK);
        writeln!(f, "touched: about {touched} B in blocks of {BLOCK} B")?;
        writeln!(f, "streams: {}, files: {}", self.streams, self.files.len())?;
        write!(f, "lengths:")?;
        for (n, count) in self.lens.iter().enumerate().filter(|(_, count)| **count > 0) {
            write!(f, " {}+:{count}", 1_u64 << n)?;
        }
        writeln!(f)
    }
}
