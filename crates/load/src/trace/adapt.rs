//! Adaptation of a trace to a target: rate, size, offsets and selection.
//!
//! A [`Plan`] defines the changes; [`Adapted`] applies them to each record, always in this order,
//! each step with the result of the previous one:
//!
//! 1. *selection*: skip and take by count, from and until by time, a sample, reads only;
//! 2. *kind and length*: writes as reads, lengths clamped;
//! 3. *address*: files merged, offsets scaled, then folded into the target's size;
//! 4. *time*: the first remaining record is at 0, and time is scaled.
//!
//! Every step is a pure function of the record and its number, so a plan is reproducible.
//! Dependencies must be inferred before, from the original.

use super::{Error, Traced};
use crate::{Io, Kind};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Exact factor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ratio {
    num: u64,
    den: u64,
}

impl Ratio {
    /// Identity.
    pub const ONE: Ratio = Ratio { num: 1, den: 1 };

    /// Returns `num / den` in lowest terms, or `None` if `den` is 0.
    pub fn new(num: u64, den: u64) -> Option<Ratio> {
        let (mut a, mut b) = (num, den);
        while b != 0 {
            (a, b) = (b, a % b);
        }
        (den != 0).then(|| Ratio { num: num / a, den: den / a })
    }

    /// Returns the product, rounded down and saturated.
    pub fn of(self, number: u64) -> u64 {
        let product = u128::from(number) * u128::from(self.num) / u128::from(self.den);
        u64::try_from(product).unwrap_or(u64::MAX)
    }
}

/// Folding of addresses into the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fold {
    /// Size of the target, in bytes.
    pub size: u64,
    /// Block size in bytes: an address keeps its offset within a block.
    pub block: u64,
}

impl Fold {
    /// Maps a block to its number modulo the number of blocks. The length is limited to the size,
    /// and an I/O across the end is moved before it by whole blocks.
    pub fn apply(self, offset: u64, len: u32) -> (u64, u32) {
        let block = self.block.max(1);
        let len = u32::try_from(self.size).map_or(len, |size| len.min(size));
        let blocks = (self.size / block).max(1);
        let folded = (offset / block % blocks) * block + offset % block;
        let room = self.size - u64::from(len);
        if folded <= room {
            return (folded, len);
        }
        let back = (folded - room).div_ceil(block).saturating_mul(block);
        (folded.checked_sub(back).unwrap_or(room), len)
    }
}

/// Random selection of records, reproducible by its seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sample {
    /// One of `one_in` records.
    Records {
        /// Sampling ratio.
        one_in: u64,
        /// Random seed.
        seed: u64,
    },
    /// All records of one of `one_in` streams.
    Streams {
        /// Sampling ratio.
        one_in: u64,
        /// Random seed.
        seed: u64,
    },
}

impl Sample {
    fn keeps(self, number: u64, stream: u32) -> bool {
        let (key, one_in, seed) = match self {
            Sample::Records { one_in, seed } => (number, one_in, seed),
            Sample::Streams { one_in, seed } => (u64::from(stream), one_in, seed),
        };
        xxh3_64_with_seed(&key.to_le_bytes(), seed).is_multiple_of(one_in.max(1))
    }
}

/// Mapping of the trace's files to those of the target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Files {
    /// Same file numbers.
    #[default]
    Keep,
    /// All to one file, at increasing offsets; with 0 they overlap.
    One {
        /// File number of the target.
        file: u32,
        /// Distance between the files' starts, in bytes.
        apart: u64,
    },
}

/// Changes to a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Records to skip at the start.
    pub skip: u64,
    /// Maximum records to keep after these.
    pub take: Option<u64>,
    /// Start of the kept time range, in ns of the trace.
    pub from_ns: u64,
    /// Exclusive end of the kept time range, in ns of the trace.
    pub until_ns: Option<u64>,
    /// Random sample of records.
    pub sample: Option<Sample>,
    /// Whether only reads are kept.
    pub only_reads: bool,
    /// Whether writes become reads, and trims, creates and removes are dropped.
    pub read_only: bool,
    /// Maximum length of an I/O in bytes; longer ones are truncated.
    pub len_max: Option<u32>,
    /// Mapping of files.
    pub files: Files,
    /// Factor of offsets, applied before folding.
    pub scale: Ratio,
    /// Folding of offsets.
    pub fold: Option<Fold>,
    /// Factor of times: 1/2 is twice as fast. Recorded durations stay.
    pub time: Ratio,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan {
            skip: 0,
            take: None,
            from_ns: 0,
            until_ns: None,
            sample: None,
            only_reads: false,
            read_only: false,
            len_max: None,
            files: Files::Keep,
            scale: Ratio::ONE,
            fold: None,
            time: Ratio::ONE,
        }
    }
}

impl Plan {
    /// Applies the plan to records.
    pub fn of<I>(self, inner: I) -> Adapted<I>
    where
        I: Iterator<Item = Result<Traced, Error>>,
    {
        Adapted { inner, plan: self, number: 0, first_ns: None, ended: false }
    }

    /// Reports whether record `number` is after all kept records.
    fn is_over(&self, number: u64, record: &Traced) -> bool {
        let taken = self.take.is_some_and(|take| number >= self.skip.saturating_add(take));
        taken || self.until_ns.is_some_and(|until_ns| record.at_ns >= until_ns)
    }

    fn keeps(&self, number: u64, record: &Traced) -> bool {
        let kind = record.io.kind;
        let is_gone = matches!(kind, Kind::Trim | Kind::Create | Kind::Remove);
        number >= self.skip
            && record.at_ns >= self.from_ns
            && self.sample.is_none_or(|sample| sample.keeps(number, record.stream))
            && (!self.only_reads || kind == Kind::Read)
            && (!self.read_only || !is_gone)
    }

    fn changed(&self, io: Io) -> Io {
        let is_turned = self.read_only && io.kind == Kind::Write;
        let kind = if is_turned { Kind::Read } else { io.kind };
        let len = self.len_max.map_or(io.len, |max| io.len.min(max));
        let (file, offset) = match self.files {
            Files::Keep => (io.file, io.offset),
            Files::One { file, apart } => {
                let begin = u64::from(io.file).saturating_mul(apart);
                (file, io.offset.saturating_add(begin))
            }
        };
        if kind == Kind::Sync {
            return Io { kind, file, offset: 0, len: 0 };
        }
        let offset = self.scale.of(offset);
        let (offset, len) = self.fold.map_or((offset, len), |fold| fold.apply(offset, len));
        Io { kind, file, offset, len }
    }
}

/// Records changed by a plan.
#[derive(Debug)]
pub struct Adapted<I> {
    inner: I,
    plan: Plan,
    number: u64,
    first_ns: Option<u64>,
    ended: bool,
}

impl<I> Adapted<I> {
    /// Returns the source of the records.
    pub fn inner(&self) -> &I {
        &self.inner
    }

    /// Returns the plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }
}

impl<I: Iterator<Item = Result<Traced, Error>>> Iterator for Adapted<I> {
    type Item = Result<Traced, Error>;

    fn next(&mut self) -> Option<Result<Traced, Error>> {
        while !self.ended {
            // A completed take does not wait for another record.
            let end = self.plan.take.map(|take| self.plan.skip.saturating_add(take));
            if end.is_some_and(|end| self.number >= end) {
                break;
            }
            let record = match self.inner.next()? {
                Ok(record) => record,
                Err(error) => return Some(Err(error)),
            };
            let number = self.number;
            self.number += 1;
            if self.plan.is_over(number, &record) {
                break;
            }
            if self.plan.keeps(number, &record) {
                let first_ns = *self.first_ns.get_or_insert(record.at_ns);
                let at_ns = self.plan.time.of(record.at_ns - first_ns);
                return Some(Ok(Traced { at_ns, io: self.plan.changed(record.io), ..record }));
            }
        }
        self.ended = true;
        None
    }
}
