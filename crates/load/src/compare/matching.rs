//! Which I/O of one run is which of the other, and how far apart they were issued.

use crate::io::{Kind, Record};
use crate::statistics::{Within, times};
use hdrhistogram::Histogram;
use std::collections::{BTreeMap, VecDeque};

/// So many I/Os are kept on each side until the same one comes on the other: 6 MiB.
const PENDING_MAX: usize = 1 << 16;

/// What is done where: the same I/O has the same.
type Key = (Kind, u32, u64, u32);

fn key(record: &Record) -> Key {
    (record.io.kind, record.io.file, record.io.offset, record.io.len)
}

/// The starts of the two runs are aligned by the median of so many matched I/Os: the very first
/// one may have been late for a reason of its own.
const ALIGNING: usize = 4096;

/// How far apart matched I/Os were issued, after the starts are aligned.
#[derive(Clone, Debug)]
pub(super) struct Errors {
    /// Either way, ns.
    pub(super) apart: Histogram<u64>,
    /// How many so far apart at most.
    pub(super) within: Within,
    /// Those that the second run issued earlier.
    pub(super) early: u64,
    /// How much later than in the first the first I/Os were in the second, ns, until aligned.
    first: Vec<i64>,
    /// What is taken off, ns.
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

    /// Aligns the starts by what there is.
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

/// I/Os of one side that are not matched yet.
#[derive(Clone, Debug, Default)]
struct Pending {
    by_key: BTreeMap<Key, VecDeque<u64>>,
    /// The latest of this side, matched or not.
    latest: VecDeque<(Key, u64)>,
}

impl Pending {
    /// Keeps an I/O; the one of [`PENDING_MAX`] I/Os ago is given up if it is still there.
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

/// Matches I/Os in two ways at once: by what is done where, and by their number.
#[derive(Clone, Debug, Default)]
pub(super) struct Matching {
    a: Pending,
    b: Pending,
    /// Of I/Os that do the same at the same place.
    pub(super) by_place: Errors,
    /// Of the k-th of one and the k-th of the other.
    pub(super) by_number: Errors,
    /// Of the latter those that do the same to as many bytes, wherever.
    pub(super) alike: u64,
}

impl Matching {
    /// The next I/O of each run, if there is one, with the time of its issue.
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
