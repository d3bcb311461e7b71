//! What home spends on behalf of storelets: they are charged for it (ActiveStorage, §3.3).
//!
//! A turn's time is shared by what happened in it: the requests of storelets that came and were
//! answered bear their parts of it. What threads of the pool do is not known here.

use std::collections::BTreeMap;
use std::time::Duration;
use tree::RequestId;

/// Most debts that are kept.
const OWED_MAX: usize = 4096;

/// Who bears what.
#[derive(Debug, Default)]
pub(crate) struct Bill {
    /// How much happened in this turn, and on whose behalf.
    happened: usize,
    bearers: Vec<(usize, RequestId)>,
    /// What was spent since a storelet's last answer, ns.
    owed: BTreeMap<(usize, RequestId), u64>,
}

impl Bill {
    /// A turn begins, in which so many events are looked at.
    pub(crate) fn begin(&mut self, events: usize) {
        self.happened = events;
        self.bearers.clear();
    }

    /// Something was done in this turn for a request of another node.
    pub(crate) fn note(&mut self, node: usize, id: RequestId) {
        self.bearers.push((node, id));
    }

    /// What has been spent on a storelet's behalf and it has not heard of, as it is answered.
    pub(crate) fn settle(&mut self, node: usize, id: RequestId) -> u64 {
        self.note(node, id);
        self.owed.remove(&(node, id)).unwrap_or(0)
    }

    /// Whether somebody bears a part of this turn.
    pub(crate) fn is_open(&self) -> bool {
        !self.bearers.is_empty()
    }

    /// The turn has taken so long.
    pub(crate) fn share(&mut self, time: Duration) {
        // Those that were told of their end before their last answer owe nothing more.
        if self.owed.len() > OWED_MAX {
            self.owed.clear();
        }
        let parts = self.happened.max(self.bearers.len()).max(1) as u128;
        let part = u64::try_from(time.as_nanos() / parts).unwrap_or(u64::MAX);
        for bearer in self.bearers.drain(..) {
            *self.owed.entry(bearer).or_insert(0) += part;
        }
    }

    /// A storelet has ended: nobody bears what was spent last.
    pub(crate) fn close(&mut self, id: RequestId) {
        self.owed.retain(|(_, other), _| *other != id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_shared_by_what_happened_in_it() {
        let (mut bill, one, two) = (Bill::default(), RequestId(1), RequestId(2));
        bill.begin(4);
        assert!(!bill.is_open());
        bill.note(7, one);
        bill.note(7, two);
        bill.share(Duration::from_nanos(400));
        assert!(!bill.is_open(), "it is borne once");
        bill.begin(1);
        assert_eq!(bill.settle(7, one), 100);
        bill.share(Duration::from_nanos(30));
        assert_eq!((bill.settle(7, one), bill.settle(7, two)), (30, 100));
        bill.share(Duration::from_nanos(2));
        bill.close(one);
        bill.close(two);
        assert!(bill.owed.is_empty());
    }
}
