//! Watching the clock, and noticing when somebody else had the processor meanwhile.

use crate::statistics::Gap;

/// Between two looks at the clock passes less than this, ns, unless the machine was elsewhere.
pub(super) const GAP_NS: u64 = 5_000;

/// Gaps that are remembered one by one are longer than this, ns...
const KEPT_NS: u64 = 10_000;

/// ...and at most so many; all are counted.
const KEPT_MAX: usize = 100_000;

/// What one worker has seen.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// How long it has watched, ns.
    pub(super) watched_ns: u64,
    /// Of that in gaps, ns.
    pub(super) stolen_ns: u64,
    pub(super) count: u64,
    pub(super) gaps: Vec<Gap>,
    last: u64,
    /// What [`Watch::news`] has told.
    told: (u64, u64),
}

impl Watch {
    pub(super) fn new() -> Watch {
        Watch { gaps: Vec::with_capacity(4096), ..Watch::default() }
    }

    /// Begins to watch.
    pub(super) fn begin(&mut self, now: u64) {
        self.last = now;
    }

    /// A look; whether there was a gap before it.
    #[inline]
    pub(super) fn look(&mut self, now: u64) -> Option<(u64, u64)> {
        let (last, passed) = (self.last, now.saturating_sub(self.last));
        self.last = now;
        self.watched_ns += passed;
        (passed > GAP_NS).then_some((last, now))
    }

    /// A sleep that was to end at `due` ended at `now`.
    pub(super) fn overslept(&mut self, due: u64, now: u64) {
        self.watched_ns += now.saturating_sub(due);
        self.last = now;
    }

    /// How long was watched and how much of it lost since the last call, ns.
    pub(super) fn news(&mut self) -> (u64, u64) {
        let (watched, stolen) =
            std::mem::replace(&mut self.told, (self.watched_ns, self.stolen_ns));
        (self.watched_ns - watched, self.stolen_ns - stolen)
    }

    /// Notes a gap.
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
