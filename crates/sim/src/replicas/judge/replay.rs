//! Replay of a counter's final operations, in the order that a listener received.
//!
//! A listener receives every final operation from some moment on. The sum at that moment is known
//! from the first operation that returns a sum; every later sum follows from the additions. Added
//! numbers are large, so no two sums are equal by chance.
//!
//! A retransmitted addition may be listed again, with its first reply, without being applied again.
//! Where its first place may be before the listener's first operation, and its reply does not
//! decide it, the replay begins anew behind it.

use super::super::ledger::Ledger;
use serde_json::Value;
use std::collections::BTreeSet;
use std::mem;

/// Checks that the sums in final replies are those after exactly the operations before them: in
/// the events of each listener, and in the replies to clients of the same stretch of the order.
///
/// Returns the number of replies to clients that were compared.
pub(super) fn expect_sums(ledger: &Ledger) -> usize {
    let sent_again = ledger.questions.iter().filter(|it| it.times.0 != 1 || it.answer.is_none());
    let sent_again: BTreeSet<String> = sent_again.map(|it| it.op.to_string()).collect();
    let mut compared = 0;
    for order in &ledger.orders {
        let events = order.iter().map(|place| &ledger.finals[place]);
        for sums in stretches(events, &sent_again) {
            compared += compare(ledger, &sums);
        }
    }
    compared
}

/// Checks that every final reply to a client with a sum between the first and the last of these
/// consecutive ones is one of them; returns the number of such replies.
fn compare(ledger: &Ledger, sums: &BTreeSet<i64>) -> usize {
    let (Some(least), Some(most)) = (sums.first(), sums.last()) else { return 0 };
    let mut compared = 0;
    for op_request in &ledger.questions {
        let answer = op_request.answer.as_ref().filter(|answer| answer.is_final);
        let Some(sum) = answer.and_then(|answer| answer.value.as_i64()) else { continue };
        if (least..=most).contains(&&sum) {
            compared += 1;
            assert!(
                sums.contains(&sum),
                "{} was answered {sum}, which was never the sum",
                op_request.op
            );
        }
    }
    compared
}

/// Consecutive operations.
#[derive(Debug)]
struct Segment {
    /// Sum before the first one, if an operation has returned a sum.
    before: Option<i64>,
    /// Sums after each operation, relative to that.
    offsets: BTreeSet<i64>,
}

impl Segment {
    fn new() -> Segment {
        Segment { before: None, offsets: BTreeSet::from([0]) }
    }

    /// Returns the sum after the last operation, relative to the beginning.
    fn added(&self) -> i64 {
        self.offsets.last().copied().expect("the beginning is one")
    }

    /// Adds an applied operation and its reply.
    fn apply(&mut self, op: &Value, number: i64, value: &Value) {
        let added = self.added() + number;
        self.offsets.insert(added);
        if let Some(sum) = value.as_i64() {
            let before = *self.before.get_or_insert(sum - added);
            assert_eq!(sum, before + added, "{op} became final with another sum than the order's");
        }
    }

    /// Returns whether an addition that may have been applied before this stretch is applied here;
    /// `None` if its reply does not decide it.
    fn applies(&self, number: i64, value: &Value) -> Option<bool> {
        let (before, sum) = (self.before?, value.as_i64()?);
        let here = before + self.added() + number;
        assert!(sum == here || sum <= before, "an addition of {number} became final with {sum}");
        Some(sum == here)
    }

    /// Returns all sums; none if no operation has returned one.
    fn sums(&self) -> BTreeSet<i64> {
        let sums = |before| self.offsets.iter().map(move |offset| before + offset);
        self.before.into_iter().flat_map(sums).collect()
    }
}

/// Replays the operations of a listener; returns the sums of each stretch.
fn stretches<'a>(
    events: impl Iterator<Item = &'a (Value, Value)>,
    sent_again: &BTreeSet<String>,
) -> Vec<BTreeSet<i64>> {
    let (mut done, mut segment, mut applied) = (Vec::new(), Segment::new(), BTreeSet::new());
    for (op, value) in events.filter(|(_, value)| value.get("repeated").is_none()) {
        let number = op.get("add").or_else(|| op.get("add-blind"));
        let Some(number) = number.and_then(Value::as_i64) else {
            segment.apply(op, 0, value);
            continue;
        };
        let key = op.to_string();
        let may_repeat = sent_again.contains(&key);
        if !applied.insert(key) {
            continue;
        }
        match if may_repeat { segment.applies(number, value) } else { Some(true) } {
            Some(true) => segment.apply(op, number, value),
            Some(false) => {}
            None => done.push(mem::replace(&mut segment, Segment::new()).sums()),
        }
    }
    done.push(segment.sums());
    done
}
