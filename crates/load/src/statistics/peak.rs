//! How long the queue became, from I/Os in the order of completion.
//!
//! Time is cut into slots of 16 µs. A ring of slots holds by how much the queue grows in each; when
//! the latest completion moves on, the oldest slots are summed up. So the length at each boundary
//! of slots is exact for I/Os that take up to a quarter of a second and come in any order within
//! it; a longer one is missing before. What happens within a slot is not seen. All in all the
//! greatest length was at least the one found here. It is noted in each interval of the series.

use super::series::Series;
use std::fmt;

/// The width of a slot as a power of two of nanoseconds.
const SLOT: u32 = 14;
/// Slots in the ring.
const SLOTS: u64 = 1 << 14;
/// So many slots, a millisecond, are noted in the series at once.
const GROUP: u64 = 64;

/// The greatest length of the queue, so far.
#[derive(Clone)]
pub(super) struct Peak {
    /// By how much the queue is longer after a slot than before it; the slot of the time `first`
    /// is at `first % SLOTS`.
    steps: Vec<i32>,
    first: u64,
    length: i64,
    max: i64,
}

impl Default for Peak {
    fn default() -> Peak {
        Peak { steps: vec![0; SLOTS as usize], first: 0, length: 0, max: 0 }
    }
}

impl fmt::Debug for Peak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peak").field("max", &self.max()).finish_non_exhaustive()
    }
}

impl Peak {
    /// Takes up an I/O; lengths that are final are noted in the series.
    pub(super) fn add(&mut self, issued_ns: u64, completed_ns: u64, series: &mut Series) {
        let (start, end) = (issued_ns >> SLOT, completed_ns >> SLOT);
        if end <= start {
            return;
        }
        if end - self.first.min(end) >= SLOTS {
            self.advance(end + 1 - SLOTS, series);
        }
        self.step(start, 1);
        self.step(end, -1);
    }

    fn step(&mut self, slot: u64, by: i32) {
        if slot < self.first {
            self.length += i64::from(by);
        } else {
            self.steps[(slot % SLOTS) as usize] += by;
        }
    }

    /// Sums up the slots before `to`.
    #[cold]
    fn advance(&mut self, to: u64, series: &mut Series) {
        // A few more, so that it is not done for each I/O; and whole groups.
        let to = to.saturating_add(SLOTS / 16) / GROUP * GROUP;
        let mut greatest = 0;
        for slot in self.first..to.min(self.first.saturating_add(SLOTS)) {
            self.length += i64::from(std::mem::take(&mut self.steps[(slot % SLOTS) as usize]));
            greatest = greatest.max(self.length);
            if slot % GROUP == GROUP - 1 {
                series.note_queue(after(slot), greatest);
                self.max = self.max.max(greatest);
                greatest = 0;
            }
        }
        self.first = to;
    }

    /// Notes the lengths that are not final yet.
    pub(super) fn note_rest(&self, series: &mut Series) {
        self.rest(|slot, length| series.note_queue(after(slot), length));
    }

    fn rest(&self, mut each: impl FnMut(u64, i64)) {
        let mut length = self.length;
        for slot in self.first..self.first.saturating_add(SLOTS) {
            length += i64::from(self.steps[(slot % SLOTS) as usize]);
            each(slot, length);
        }
    }

    /// The greatest length that is known.
    pub(super) fn max(&self) -> u64 {
        let mut max = self.max;
        self.rest(|_, length| max = max.max(length));
        u64::try_from(max).unwrap_or(0)
    }

    /// Of two parts of a run that were counted apart only the greater length is known.
    pub(super) fn merge(&mut self, other: &Peak) {
        let max = self.max().max(other.max());
        self.max = i64::try_from(max).unwrap_or(i64::MAX);
    }
}

/// The time at which a slot ends, ns.
fn after(slot: u64) -> u64 {
    slot.saturating_add(1).saturating_mul(1 << SLOT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_greatest_number_in_flight_at_a_boundary() {
        let mut rng = fastrand::Rng::with_seed(4);
        let mut spans: Vec<(u64, u64)> = Vec::new();
        let mut now = 0;
        for _ in 0..3_000 {
            now += rng.u64(..300_000) * u64::from(rng.u8(..4) == 0);
            spans.push((now, now + rng.u64(..20_000_000)));
        }
        spans.sort_by_key(|(_, end)| *end);
        let mut peak = Peak::default();
        let mut series = Series::default();
        spans.iter().for_each(|(start, end)| peak.add(*start, *end, &mut series));
        let across = |at: u64, (s, e): &(u64, u64)| *s >> SLOT < at && at <= *e >> SLOT;
        let last = spans.last().unwrap().1 >> SLOT;
        let greatest =
            (0..=last).map(|at| spans.iter().filter(|span| across(at, span)).count()).max();
        assert_eq!(peak.max(), greatest.unwrap() as u64);
    }

    #[test]
    fn nonsense_and_pauses_are_survived() {
        let mut peak = Peak::default();
        let mut series = Series::default();
        for (start, end) in [(0, u64::MAX), (5, 3), (u64::MAX - 1, u64::MAX)] {
            peak.add(start, end, &mut series);
        }
        assert!(peak.max() <= 1);
    }
}
