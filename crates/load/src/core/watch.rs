//! Clock watching and detection of gaps in processor time.

use crate::statistics::Gap;

/// Minimum length of a gap between two looks at the clock, in ns.
pub(super) const GAP_NS: u64 = 5_000;

/// Minimum length of individually recorded gaps, in ns...
const KEPT_NS: u64 = 10_000;

/// ...and their maximum number; all gaps are counted.
const KEPT_MAX: usize = 100_000;

/// Observations of one worker.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// Time watched, in ns.
    pub(super) watched_ns: u64,
    /// Part of it lost in gaps, in ns.
    pub(super) stolen_ns: u64,
    pub(super) count: u64,
    pub(super) gaps: Vec<Gap>,
    last: u64,
    /// Values last returned by [`Watch::news`].
    reported: (u64, u64),
}

impl Watch {
    pub(super) fn new() -> Watch {
        Watch { gaps: Vec::with_capacity(4096), ..Watch::default() }
    }

    /// Starts to watch.
    pub(super) fn begin(&mut self, now: u64) {
        self.last = now;
    }

    /// Looks at the clock. Returns a gap before it, if there was one.
    #[inline]
    pub(super) fn look(&mut self, now: u64) -> Option<(u64, u64)> {
        let (last, passed) = (self.last, now.saturating_sub(self.last));
        self.last = now;
        self.watched_ns += passed;
        (passed > GAP_NS).then_some((last, now))
    }

    /// Records a sleep that should have ended at `due` and ended at `now`.
    pub(super) fn overslept(&mut self, due: u64, now: u64) {
        self.watched_ns += now.saturating_sub(due);
        self.last = now;
    }

    /// Returns the time watched and lost since the last call, in ns.
    pub(super) fn news(&mut self) -> (u64, u64) {
        let (watched, stolen) =
            std::mem::replace(&mut self.reported, (self.watched_ns, self.stolen_ns));
        (self.watched_ns - watched, self.stolen_ns - stolen)
    }

    /// Records a gap.
    pub(super) fn note(&mut self, start_ns: u64, end: u64) {
        let len_ns = end.saturating_sub(start_ns);
        self.stolen_ns += len_ns;
        self.count += 1;
        if len_ns > KEPT_NS && self.gaps.len() < KEPT_MAX {
            self.gaps.push(Gap { start_ns, len_ns });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_that_comes_late_is_a_gap() {
        let mut watch = Watch::new();
        watch.begin(100);
        assert_eq!(watch.look(200), None);
        assert_eq!(watch.look(20_300), Some((200, 20_300)));
        watch.note(200, 20_300);
        assert_eq!(watch.look(20_400), None);
        watch.overslept(30_000, 36_000);
        watch.note(30_000, 36_000);
        assert_eq!((watch.watched_ns, watch.stolen_ns, watch.count), (26_300, 26_100, 2));
        assert_eq!(watch.gaps, [Gap { start_ns: 200, len_ns: 20_100 }]);
    }
}
