//! Invariants across the parts of a replica.

use super::Replica;
use crate::data::DataType;

impl<D: DataType> Replica<D> {
    /// Asserts that pending records continue what is durable in the journal.
    pub(super) fn check_journal(&self) {
        let (mut number, mut has) = (self.written - self.unwritten.len() as u64, &self.has);
        for record in &self.unwritten {
            number += 1;
            assert_eq!(record.number, number, "records are numbered without gaps");
            assert!(record.done.covers(has), "done operations stay done");
            has = &record.done;
        }
        assert!(self.origins.done().covers(has), "written operations were done");
        let news = self.unwritten.iter().rev().find_map(|record| record.member_state.as_ref());
        let last = news.unwrap_or(self.members.announced());
        assert_eq!(last, self.members.member_state(), "its state was reported, or will be");
    }

    /// Asserts that the order has the operations done and not final, and agrees with the members.
    pub(super) fn check_order(&self) {
        for entry in self.order.suffix() {
            assert!(self.clock >= entry.label.counter, "later labels are greater");
            let done = self.origins.done().get(entry.label.origin);
            assert!(entry.number <= done, "placed operations are done");
        }
        assert!(self.clock >= self.order.commit_point().map_or(0, |label| label.counter));
        let peers = self.peers.iter().map(|(id, _)| id);
        assert!(peers.eq(self.members.peers()), "the peers are the other members");
        assert!(self.members.origins().all(|id| self.origins.knows(id)), "origins are admitted");
    }
}
