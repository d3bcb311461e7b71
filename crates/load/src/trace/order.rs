//! Sorting of slightly out-of-order records, within a window.
//!
//! The window is a number of records, filled before the first of them is returned. A record older
//! than one already returned is late: it is counted, and its time becomes that of the previous
//! record. Its duration is unchanged.

use super::Traced;
use std::collections::VecDeque;

/// Records sorted by time; records of equal times keep the order of the file.
#[derive(Debug)]
pub(super) struct Order {
    window: usize,
    held: VecDeque<Traced>,
    last_ns: u64,
    late: u64,
}

impl Order {
    pub(super) fn new(window: usize) -> Order {
        Order { window, held: VecDeque::new(), last_ns: 0, late: 0 }
    }

    /// Adds a record. Returns the earliest one if the window is full.
    pub(super) fn push(&mut self, record: Traced) -> Option<Traced> {
        match self.held.back() {
            Some(last) if last.at_ns > record.at_ns => {
                let place = self.held.partition_point(|held| held.at_ns <= record.at_ns);
                self.held.insert(place, record);
            }
            Some(_) | None => self.held.push_back(record),
        }
        if self.held.len() > self.window { self.pop() } else { None }
    }

    /// Returns the earliest record.
    pub(super) fn pop(&mut self) -> Option<Traced> {
        let mut record = self.held.pop_front()?;
        if record.at_ns < self.last_ns {
            self.late += 1;
            record.at_ns = self.last_ns;
        }
        self.last_ns = record.at_ns;
        Some(record)
    }

    /// Number of late records.
    pub(super) fn late(&self) -> u64 {
        self.late
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ordered(window: usize, times: &[u64]) -> (Vec<u64>, u64) {
        let mut order = Order::new(window);
        let mut out = Vec::new();
        for at_ns in times {
            out.extend(order.push(Traced { at_ns: *at_ns, ..Traced::default() }));
        }
        out.extend(std::iter::from_fn(|| order.pop()));
        (out.iter().map(|record| record.at_ns).collect(), order.late())
    }

    #[test]
    fn records_within_the_window_are_sorted_and_others_are_late() {
        assert_eq!(ordered(2, &[5, 3, 4, 9, 8]), (vec![3, 4, 5, 8, 9], 0));
        assert_eq!(ordered(1, &[5, 6, 7, 1, 8]), (vec![5, 6, 6, 7, 8], 1));
        assert_eq!(ordered(0, &[5, 3, 6]), (vec![5, 5, 6], 1));
    }
}
