//! Final operations as a stream, for every reader of the file `events`.
//!
//! The latest lines are stored once for all listeners, each of which has a position. A slow
//! listener is informed of the number of lines missed; one that stopped inside a dropped line gets
//! the end of the file.

use crate::{Operator, Value};
use replica::data::once::Call;
use replica::service::{Entry, ReplicaId};
use serde::Serialize;
use serde_json::value::RawValue;
use std::collections::VecDeque;

/// Bytes of lines retained for listeners. The last line is retained whatever its length.
pub(crate) const KEPT_MAX: usize = 4 << 20;

/// Final operation as a line of JSON.
#[derive(Serialize)]
struct Event<'a> {
    replica: ReplicaId,
    number: u64,
    op: Box<RawValue>,
    value: &'a Value,
    /// Session and number of an exactly-once operation. It may become final several times; only the
    /// first occurrence executed.
    #[serde(skip_serializing_if = "Option::is_none")]
    once: Option<Call>,
}

/// Retained lines.
#[derive(Debug, Default)]
pub(crate) struct Events {
    lines: VecDeque<Vec<u8>>,
    bytes: usize,
    /// Number of the first retained line.
    first: u64,
}

/// Position of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Listener {
    /// Number of the next line.
    next: u64,
    /// Bytes of it already read.
    offset: usize,
    /// Count of missed lines, and bytes read of the line that reports them.
    missed: Option<(u64, usize)>,
}

impl Events {
    /// Appends an operation and its value as a line of JSON.
    pub(crate) fn add(&mut self, entry: &Entry<Operator>, value: &Value) {
        let (replica, number) = (entry.label.origin, entry.number);
        let op = RawValue::from_string(entry.operator.operator.to_json()).expect("it is JSON");
        let once = entry.operator.once;
        let event = Event { replica, number, op, value, once };
        let mut line = serde_json::to_vec(&event).expect("operations and values are JSON");
        line.push(b'\n');
        self.push(line);
    }

    fn push(&mut self, line: Vec<u8>) {
        self.bytes += line.len();
        self.lines.push_back(line);
        while self.bytes > KEPT_MAX && self.lines.len() > 1 {
            let dropped = self.lines.pop_front().expect("there are several");
            self.bytes -= dropped.len();
            self.first += 1;
        }
    }

    /// Drops all lines, when there are no listeners.
    pub(crate) fn clear(&mut self) {
        self.first += self.lines.len() as u64;
        (self.lines, self.bytes) = (VecDeque::new(), 0);
    }

    /// Bytes retained.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns a listener that starts after the last line.
    pub(crate) fn listener(&self) -> Listener {
        Listener { next: self.first + self.lines.len() as u64, offset: 0, missed: None }
    }

    /// Reads up to `count` bytes for a listener; `None` if none are available yet, empty at the
    /// end.
    pub(crate) fn read(&self, listener: &mut Listener, count: usize) -> Option<Vec<u8>> {
        let end = self.first + self.lines.len() as u64;
        assert!(listener.next <= end, "bytes read were in the buffer");
        if listener.missed.is_none() && listener.next < self.first {
            if listener.offset > 0 {
                return Some(Vec::new());
            }
            listener.missed = Some((self.first - listener.next, 0));
            listener.next = self.first;
        }
        if let Some((missed, offset)) = listener.missed {
            let line = format!("{{\"missed\":{missed}}}\n").into_bytes();
            let end = line.len().min(offset.saturating_add(count));
            listener.missed = Some((missed, end)).filter(|_| end < line.len());
            return Some(line[offset..end].to_vec());
        }
        let mut outputs = Vec::new();
        let behind = usize::try_from(listener.next - self.first).unwrap_or(usize::MAX);
        for line in self.lines.range(behind.min(self.lines.len())..) {
            let rest = &line[listener.offset..];
            let some = &rest[..rest.len().min(count - outputs.len())];
            outputs.extend_from_slice(some);
            listener.offset += some.len();
            if listener.offset < line.len() {
                break;
            }
            (listener.next, listener.offset) = (listener.next + 1, 0);
        }
        (!outputs.is_empty()).then_some(outputs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_listeners_receive_the_number_of_missed_events() {
        let mut events = Events::default();
        let (mut quick, mut slow, mut stuck) =
            (events.listener(), events.listener(), events.listener());
        assert_eq!(events.read(&mut quick, 10), None);
        events.push(b"abc\n".to_vec());
        assert_eq!(events.read(&mut quick, 2), Some(b"ab".to_vec()));
        assert_eq!(events.read(&mut quick, 100), Some(b"c\n".to_vec()));
        assert_eq!(events.read(&mut stuck, 1), Some(b"a".to_vec()));
        events.push(vec![b'x'; KEPT_MAX]);
        events.push(b"later\n".to_vec());
        assert_eq!(events.bytes(), 6, "the last ones are kept");
        assert_eq!(events.read(&mut slow, 5), Some(b"{\"mis".to_vec()));
        assert_eq!(events.read(&mut slow, 100), Some(b"sed\":2}\n".to_vec()));
        assert_eq!(events.read(&mut slow, 100), Some(b"later\n".to_vec()));
        assert_eq!(events.read(&mut slow, 100), None);
        assert_eq!(events.read(&mut stuck, 100), Some(Vec::new()), "the end");
        events.clear();
        assert_eq!((events.bytes(), events.read(&mut slow, 100)), (0, None));
    }
}
