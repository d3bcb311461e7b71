//! Makes a trace fit a target: faster, smaller, elsewhere, less of it.
//!
//! A [`Plan`] says what is to change; [`Adapted`] does it to one record after another, always in
//! this order, each step seeing what the one before left:
//!
//! 1. *which*: skip and take by count, then from and until by time, then a sample, then reads only;
//! 2. *what*: writes as reads, the length clamped;
//! 3. *where*: files onto one, offsets scaled, then folded into the target's size;
//! 4. *when*: the first record that is left is at 0, and time is scaled.
//!
//! Every step is a pure function of the record (and of its number), so a plan does the same to the
//! same trace every time. Dependencies are to be inferred before: they are about the original.

use super::{Error, Traced};
use crate::{Io, Kind};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// A factor that is exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ratio {
    num: u64,
    den: u64,
}

impl Ratio {
    /// Changes nothing.
    pub const ONE: Ratio = Ratio { num: 1, den: 1 };

    /// `num / den`, in lowest terms; none if `den` is 0.
    pub fn new(num: u64, den: u64) -> Option<Ratio> {
        let (mut a, mut b) = (num, den);
        while b != 0 {
            (a, b) = (b, a % b);
        }
        (den != 0).then(|| Ratio { num: num / a, den: den / a })
    }

    /// The product, rounded down; the largest number there is if it is too large.
    pub fn of(self, number: u64) -> u64 {
        let product = u128::from(number) * u128::from(self.num) / u128::from(self.den);
        u64::try_from(product).unwrap_or(u64::MAX)
    }
}

/// How addresses come to lie within the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fold {
    /// How large the target is, bytes.
    pub size: u64,
    /// What is kept together, bytes: an address keeps its place within a block.
    pub block: u64,
}

impl Fold {
    /// The remainder of the block's number by the number of blocks. A length that does not fit is
    /// cut to the size; what would lie across the end is moved before it, by whole blocks.
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

/// Which records are kept of all, at random, the same ones for the same seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sample {
    /// One in so many records.
    Records {
        /// How many.
        one_in: u64,
        /// What to draw with.
        seed: u64,
    },
    /// All records of one in so many streams.
    Streams {
        /// How many.
        one_in: u64,
        /// What to draw with.
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

/// To which files of the target the trace's files go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Files {
    /// To those of the same numbers.
    #[default]
    Keep,
    /// All to one, each one so much further in: 0 lays them over each other.
    One {
        /// The number of the target's file.
        file: u32,
        /// How far apart they begin, bytes.
        apart: u64,
    },
}

/// What is to change in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// How many records are left out at the beginning.
    pub skip: u64,
    /// How many are kept of those that follow.
    pub take: Option<u64>,
    /// From when on records are kept, ns of the trace.
    pub from_ns: u64,
    /// Until when (not including it) they are kept, ns of the trace.
    pub until_ns: Option<u64>,
    /// Which ones are kept at random.
    pub sample: Option<Sample>,
    /// Whether only reads are kept.
    pub only_reads: bool,
    /// Whether writes become reads; trims, makings and removals are left out.
    pub read_only: bool,
    /// How long an I/O may be, bytes; what is longer is cut.
    pub len_max: Option<u32>,
    /// To which files.
    pub files: Files,
    /// By what offsets are multiplied, before they are folded.
    pub scale: Ratio,
    /// Into what offsets are folded.
    pub fold: Option<Fold>,
    /// By what times are multiplied: 1/2 is twice as fast. How long I/Os took stays.
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
    /// The records as they are to be.
    pub fn of<I>(self, inner: I) -> Adapted<I>
    where
        I: Iterator<Item = Result<Traced, Error>>,
    {
        Adapted { inner, plan: self, number: 0, first_ns: None, ended: false }
    }

    /// Whether record `number` is beyond all that are kept.
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

/// Records, changed by a plan.
#[derive(Debug)]
pub struct Adapted<I> {
    inner: I,
    plan: Plan,
    number: u64,
    first_ns: Option<u64>,
    ended: bool,
}

impl<I> Adapted<I> {
    /// What the records come from.
    pub fn inner(&self) -> &I {
        &self.inner
    }

    /// By what they are changed.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }
}

impl<I: Iterator<Item = Result<Traced, Error>>> Iterator for Adapted<I> {
    type Item = Result<Traced, Error>;

    fn next(&mut self) -> Option<Result<Traced, Error>> {
        while !self.ended {
            // A take that is complete does not wait for a record more.
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
