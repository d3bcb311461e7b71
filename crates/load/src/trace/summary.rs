//! What a trace is like, found by reading it once.

use super::{Error, Traced};
use crate::Kind;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

mod distinct;

pub use distinct::Distinct;

/// How large a block is whose touching is counted, bytes.
pub const BLOCK: u64 = 4096;

/// How many blocks of one I/O are counted: the first 64 MiB.
const BLOCKS_MAX: u64 = 16_384;

/// How many streams are told from each other.
pub const STREAMS_MAX: usize = 65_536;

/// Gaps shorter than this are counted, ns.
pub const SHORT_NS: u64 = 100_000;

const SECOND: u64 = 1_000_000_000;

/// The most I/Os that were issued within a span of time. Spans begin at its multiples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peak {
    /// How long the span is, ns.
    pub span_ns: u64,
    /// How many were issued in the fullest one.
    pub count: u64,
    /// When that one began, ns since the first record.
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

    /// The peak as a rate, I/Os a second.
    pub fn rate(&self) -> u64 {
        let rate = u128::from(self.count) * u128::from(SECOND) / u128::from(self.span_ns);
        u64::try_from(rate).unwrap_or(u64::MAX)
    }
}

/// What was done to one file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OfFile {
    /// How many I/Os.
    pub count: u64,
    /// How many bytes, of reads and writes.
    pub bytes: u64,
    /// The highest offset that an I/O ended at, bytes: how large the target has to be.
    pub end: u64,
}

/// What a trace is like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// How many I/Os, by [`Kind`] in its order.
    pub counts: [u64; Kind::ALL.len()],
    /// How many bytes, by [`Kind`] in its order.
    pub bytes: [u64; Kind::ALL.len()],
    /// From the first issue to the last, ns.
    pub duration_ns: u64,
    /// The most within 1 ms, 10 ms and 1 s.
    pub peaks: [Peak; 3],
    /// How many reads and writes there are of lengths from 2ⁿ up to 2ⁿ⁺¹, by n; of length 0 are
    /// with those of 1.
    pub lens: [u64; 32],
    /// The length of the longest I/O, bytes.
    pub len_max: u32,
    /// How many gaps between issues are shorter than [`SHORT_NS`].
    pub short_gaps: u64,
    /// How many I/Os say how long they took.
    pub completed: u64,
    /// The sum of how long they took, ns.
    pub took_ns: u128,
    /// The files, by number.
    pub files: BTreeMap<u32, OfFile>,
    /// How many streams there are, at most [`STREAMS_MAX`].
    pub streams: usize,
    /// How many different blocks of [`BLOCK`] bytes reads and writes touch, within about 2 %.
    pub blocks: u64,
}

impl Summary {
    /// Reads records, all of them.
    pub fn of(records: impl IntoIterator<Item = Result<Traced, Error>>) -> Result<Summary, Error> {
        let mut count = Count::new();
        for record in records {
            count.add(&record?);
        }
        Ok(count.end())
    }

    /// How many I/Os there are.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Whether anything in it changes what a target holds.
    pub fn changes(&self) -> bool {
        Kind::ALL.iter().zip(&self.counts).any(|(kind, count)| kind.changes() && *count > 0)
    }

    /// How many bytes were read and written.
    pub fn moved(&self) -> u64 {
        self.bytes[Kind::Read as usize].saturating_add(self.bytes[Kind::Write as usize])
    }

    /// I/Os a second, on average; 0 if all were issued at once.
    pub fn rate(&self) -> f64 {
        ratio(self.count(), self.duration_ns) * SECOND as f64
    }

    /// The share of gaps shorter than [`SHORT_NS`], from 0 to 1.
    pub fn short_share(&self) -> f64 {
        ratio(self.short_gaps, self.count().saturating_sub(1))
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// A summary that is being made.
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
