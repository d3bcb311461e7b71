//! One open file `events`: operations, as they become final.

use crate::{Operator, Value};
use replica::data::once::Call;
use replica::service::{Entry, ReplicaId};
use serde::Serialize;
use serde_json::value::RawValue;

/// How much may wait to be read, bytes. Who does not read is told later how much was missed.
const WAITING_MAX: usize = 1 << 20;

/// An operation that is final.
#[derive(Serialize)]
struct Event<'a> {
    replica: ReplicaId,
    number: u64,
    op: Box<RawValue>,
    value: &'a Value,
    /// The session, and the number in it, of what is done once: it may become final several times,
    /// and was done the first time.
    #[serde(skip_serializing_if = "Option::is_none")]
    once: Option<Call>,
}

/// The open file.
#[derive(Debug, Default)]
pub(crate) struct Events {
    waiting: Vec<u8>,
    missed: u64,
}

impl Events {
    /// An operation and its value, in a line of JSON.
    pub(crate) fn line(entry: &Entry<Operator>, value: &Value) -> Vec<u8> {
        let (replica, number) = (entry.label.origin, entry.number);
        let op = RawValue::from_string(entry.operator.operator.to_json()).expect("it is JSON");
        let once = entry.operator.once;
        let event = Event { replica, number, op, value, once };
        let mut line = serde_json::to_vec(&event).expect("operations and values are JSON");
        line.push(b'\n');
        line
    }

    /// One more.
    pub(crate) fn add(&mut self, line: &[u8]) {
        match self.waiting.len() + line.len() <= WAITING_MAX && self.missed == 0 {
            true => self.waiting.extend_from_slice(line),
            false => self.missed += 1,
        }
    }

    /// What there is, at most so many bytes; `None`: wait.
    pub(crate) fn read(&mut self, count: usize) -> Option<Vec<u8>> {
        if self.waiting.is_empty() && self.missed > 0 {
            self.waiting = format!("{{\"missed\":{}}}\n", std::mem::take(&mut self.missed)).into();
        }
        if self.waiting.is_empty() {
            return None;
        }
        let rest = self.waiting.split_off(self.waiting.len().min(count));
        Some(std::mem::replace(&mut self.waiting, rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_does_not_read_is_told_how_much_was_missed() {
        let mut events = Events::default();
        assert_eq!(events.read(10), None);
        events.add(b"abc\n");
        assert_eq!(events.read(2), Some(b"ab".to_vec()));
        events.add(&vec![b'x'; WAITING_MAX]);
        events.add(b"later\n");
        assert_eq!(events.read(100), Some(b"c\n".to_vec()));
        assert_eq!(events.read(100), Some(b"{\"missed\":2}\n".to_vec()));
        events.add(b"again\n");
        assert_eq!(events.read(100), Some(b"again\n".to_vec()));
    }
}
