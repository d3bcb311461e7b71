//! Matching of the I/Os of two runs, and the differences of their issue times.

use crate::io::{Kind, Record};
use crate::statistics::{Within, times};
use hdrhistogram::Histogram;
use std::collections::{BTreeMap, VecDeque};

/// Maximum unmatched I/Os retained on each side: 6 MiB.
const PENDING_MAX: usize = 1 << 16;

/// Identity of an I/O: kind, file, offset and length.
type Key = (Kind, u32, u64, u32);

fn key(record: &Record) -> Key {
    (record.io.kind, record.io.file, record.io.offset, record.io.len)
}

/// Number of matched I/Os whose median difference aligns the starts: the very first I/O may have
/// been late for a reason of its own.
const ALIGNING: usize = 4096;

/// Differences of issue times of matched I/Os, after alignment of the starts.
#[derive(Clone, Debug)]
pub(super) struct Errors {
    /// Absolute differences, in ns.
    pub(super) apart: Histogram<u64>,
    /// Counts by bound of the difference.
    pub(super) within: Within,
    /// I/Os issued earlier in the second run.
    pub(super) early: u64,
    /// Differences of the first I/Os until alignment, second minus first, in ns.
    first: Vec<i64>,
    /// Alignment offset to subtract, in ns.
    aligned_ns: Option<i64>,
}

impl Default for Errors {
    fn default() -> Errors {
        let (first, aligned_ns) = (Vec::new(), None);
        Errors { apart: times(), within: Within::default(), early: 0, first, aligned_ns }
    }
}

impl Errors {
    fn add(&mut self, a_ns: u64, b_ns: u64) {
        let later_ns = i64::try_from(i128::from(b_ns) - i128::from(a_ns)).unwrap_or(i64::MAX);
        match self.aligned_ns {
            Some(aligned_ns) => self.count(later_ns.saturating_sub(aligned_ns)),
            None => self.first.push(later_ns),
        }
        if self.first.len() == ALIGNING {
            self.align();
        }
    }

    /// Aligns the starts with the I/Os available.
    pub(super) fn align(&mut self) {
        let mut first = std::mem::take(&mut self.first);
        if first.is_empty() {
            return;
        }
        let middle = (first.len() - 1) / 2;
        let (_, &mut median_ns, _) = first.select_nth_unstable(middle);
        self.aligned_ns = Some(median_ns);
        first.into_iter().for_each(|later_ns| self.count(later_ns.saturating_sub(median_ns)));
    }

    fn count(&mut self, later_ns: i64) {
        self.apart.saturating_record(later_ns.unsigned_abs());
        self.within.add(later_ns.unsigned_abs());
        self.early += u64::from(later_ns < 0);
    }
}

/// Unmatched I/Os of one side.
#[derive(Clone, Debug, Default)]
struct Pending {
    by_key: BTreeMap<Key, VecDeque<u64>>,
    /// Latest I/Os of this side, matched or not.
    latest: VecDeque<(Key, u64)>,
}

impl Pending {
    /// Stores an I/O; the one [`PENDING_MAX`] I/Os ago is dropped if still unmatched.
    fn put(&mut self, key: Key, time_ns: u64) {
        self.by_key.entry(key).or_default().push_back(time_ns);
        self.latest.push_back((key, time_ns));
        if self.latest.len() <= PENDING_MAX {
            return;
        }
        if let Some((key, time_ns)) = self.latest.pop_front()
            && self.by_key.get(&key).and_then(VecDeque::front) == Some(&time_ns)
        {
            self.take(&key);
        }
    }

    fn take(&mut self, key: &Key) -> Option<u64> {
        let times = self.by_key.get_mut(key)?;
        let time_ns = times.pop_front();
        if times.is_empty() {
            self.by_key.remove(key);
        }
        time_ns
    }
}

/// Matches I/Os in two ways at once: by identity and by index.
#[derive(Clone, Debug, Default)]
pub(super) struct Matching {
    a: Pending,
    b: Pending,
    /// Differences of I/Os with equal identity.
    pub(super) by_place: Errors,
    /// Differences of I/Os with equal index.
    pub(super) by_number: Errors,
    /// Number of the latter with equal kind and length, at any offset.
    pub(super) alike: u64,
}

impl Matching {
    /// Adds the next I/O of each run, if there is one, with its issue time.
    pub(super) fn add(&mut self, a: Option<(&Record, u64)>, b: Option<(&Record, u64)>) {
        if let (Some((a, a_ns)), Some((b, b_ns))) = (a, b) {
            self.by_number.add(a_ns, b_ns);
            self.alike += u64::from((a.io.kind, a.io.len) == (b.io.kind, b.io.len));
        }
        if let Some((record, a_ns)) = a {
            match self.b.take(&key(record)) {
                Some(b_ns) => self.by_place.add(a_ns, b_ns),
                None => self.a.put(key(record), a_ns),
            }
        }
        if let Some((record, b_ns)) = b {
            match self.a.take(&key(record)) {
                Some(a_ns) => self.by_place.add(a_ns, b_ns),
                None => self.b.put(key(record), b_ns),
            }
        }
    }
}
