//! Accounting of home's time spent on behalf of storelets, which are charged for it (ActiveStorage,
//! §3.3).
//!
//! The time of a turn is divided among its events: requests of storelets that arrived or were
//! answered in it are charged their parts. Large jobs of the pool report their own time with their
//! replies.

use std::collections::BTreeMap;
use std::time::Duration;
use tree::RequestId;

/// A storelet's request: worker node, and request id.
type Requested = (usize, RequestId);

/// Accounting of one turn and of outstanding charges.
#[derive(Debug, Default)]
pub(crate) struct Bill {
    /// Number of events in this turn, and requests to charge for it.
    happened: usize,
    bearers: Vec<Requested>,
    /// Time spent since a storelet's last reply, ns.
    owed: BTreeMap<Requested, u64>,
    /// Requests in flight; whether their storelets have ended, so that they are not charged.
    under_way: BTreeMap<Requested, bool>,
}

impl Bill {
    /// Begins a turn with this many events.
    pub(crate) fn begin(&mut self, events: usize) {
        self.happened = events;
        self.bearers.clear();
    }

    /// Moves an event to a later turn.
    pub(crate) fn defer(&mut self) {
        self.happened = self.happened.saturating_sub(1);
    }

    /// Adds events of earlier turns to this one.
    pub(crate) fn add(&mut self, count: usize) {
        self.happened += count;
    }

    /// Records the arrival of a storelet's request.
    pub(crate) fn requested(&mut self, node: usize, id: RequestId) {
        self.bearers.push((node, id));
        let before = self.under_way.insert((node, id), false);
        assert!(before.is_none(), "a request has a number of its own");
    }

    /// Records the end of a storelet with a request in flight.
    pub(crate) fn leave(&mut self, node: usize, id: RequestId) {
        // The reply may have been sent already.
        if let Some(left) = self.under_way.get_mut(&(node, id)) {
            *left = true;
        }
    }

    /// Ends a request and returns the time to charge with its reply, ns.
    pub(crate) fn settle(&mut self, node: usize, id: RequestId) -> u64 {
        let requested = (node, id);
        if self.under_way.remove(&requested) == Some(false) {
            self.bearers.push(requested);
        }
        self.owed.remove(&requested).unwrap_or(0)
    }

    /// Returns whether any request is charged for this turn.
    pub(crate) fn is_open(&self) -> bool {
        !self.bearers.is_empty()
    }

    /// Divides the time of the turn.
    pub(crate) fn share(&mut self, time: Duration) {
        let parts = self.happened.max(self.bearers.len()).max(1) as u128;
        let part = u64::try_from(time.as_nanos() / parts).unwrap_or(u64::MAX);
        for bearer in self.bearers.drain(..) {
            *self.owed.entry(bearer).or_insert(0) += part;
        }
    }

    /// Drops the charges of a storelet that has ended.
    pub(crate) fn close(&mut self, id: RequestId) {
        self.bearers.retain(|(_, other)| *other != id);
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
        bill.requested(7, one);
        bill.requested(7, two);
        bill.share(Duration::from_nanos(400));
        assert!(!bill.is_open(), "it is borne once");
        bill.begin(1);
        assert_eq!(bill.settle(7, one), 100);
        bill.requested(7, one);
        bill.share(Duration::from_nanos(30));
        assert_eq!((bill.settle(7, one), bill.settle(7, two)), (30, 100));
        bill.share(Duration::from_nanos(2));
        bill.close(one);
        bill.close(two);
        assert!(bill.owed.is_empty());
    }

    #[test]
    fn ended_storelets_are_charged_nothing() {
        let (mut bill, id) = (Bill::default(), RequestId(1));
        bill.begin(1);
        bill.requested(7, id);
        bill.leave(7, id);
        bill.close(id);
        bill.share(Duration::from_nanos(100));
        bill.begin(1);
        assert_eq!(bill.settle(7, id), 0);
        bill.share(Duration::from_nanos(100));
        assert!(bill.owed.is_empty() && bill.under_way.is_empty());
    }
}
