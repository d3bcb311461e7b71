//! Maximum queue length, from I/Os in completion order.
//!
//! Time is divided into slots of 16 µs. A ring of slots stores the change of the queue length in
//! each; as the latest completion advances, the oldest slots are summed. The length at each slot
//! boundary is exact for I/Os of up to a quarter of a second that arrive in any order within it; a
//! longer one is missing in the earlier slots. Changes within a slot are invisible. So the result
//! is a lower bound of the maximum length. It is recorded in each interval of the series.

use super::series::Series;
use std::fmt;

/// Slot width in ns, as a power of two.
const SLOT: u32 = 14;
/// Slots in the ring.
const SLOTS: u64 = 1 << 14;
/// Number of slots (1 ms) recorded in the series at a time.
const GROUP: u64 = 64;

/// Maximum queue length so far.
#[derive(Clone)]
pub(super) struct Peak {
    /// Change of the queue length in each slot; slot number `n` is at index `n % SLOTS`.
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
    /// Adds an I/O; final lengths are recorded in the series.
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

    /// Sums the slots before `to`.
    #[cold]
    fn advance(&mut self, to: u64, series: &mut Series) {
        // Rounded up to whole groups and a few more, so that this is not done for each I/O.
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

    /// Records the lengths that are not final yet.
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

    /// Returns the greatest known length.
    pub(super) fn max(&self) -> u64 {
        let mut max = self.max;
        self.rest(|_, length| max = max.max(length));
        u64::try_from(max).unwrap_or(0)
    }

    /// Merges another part of a run, of which only the greater maximum is known.
    pub(super) fn merge(&mut self, other: &Peak) {
        let max = self.max().max(other.max());
        self.max = i64::try_from(max).unwrap_or(i64::MAX);
    }
}

/// End of a slot, in ns.
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
