//! A client that listens to the final operations of one replica, as long as it is reachable.

use super::ledger::Ledger;
use super::site::SERVICE;
use super::stream::{Access, Stream, StreamEvent};
use super::surveyor::TICK;
use crate::client::{Client, Io};
use base::op::Listener;
use serde_json::Value;
use std::cell::RefCell;
use std::rc::Rc;

/// State of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Waiting for the time to connect.
    Away,
    /// Waiting for a final operation.
    Listening,
    /// Done.
    Done,
}

/// The client.
#[derive(Debug)]
pub(super) struct Witness {
    listener: Listener,
    ledger: Rc<RefCell<Ledger>>,
    phase: Phase,
    stream: Stream,
    /// Received bytes of an incomplete line.
    input: Vec<u8>,
    /// Index of its order in the ledger.
    order: usize,
}

impl Witness {
    /// Returns a client for the replica behind this listener.
    pub(super) fn new(listener: Listener, ledger: Rc<RefCell<Ledger>>) -> Witness {
        let stream = Stream::new(&["services", SERVICE, "events"], Access::Read);
        Witness { listener, ledger, phase: Phase::Away, stream, input: Vec::new(), order: 0 }
    }

    fn note(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
        while let Some(end) = self.input.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.input.drain(..=end).collect();
            let event: Value = serde_json::from_slice(&line).expect("a line is JSON");
            let place = (event["replica"].as_u64(), event["number"].as_u64());
            let (Some(replica), Some(number)) = place else {
                assert!(event["missed"].is_u64(), "{event} has become final");
                self.order = self.ledger.borrow_mut().begin_order();
                continue;
            };
            let (op, value) = (event["op"].clone(), event["value"].clone());
            self.ledger.borrow_mut().note_final(self.order, (replica, number), op, value);
        }
    }
}

impl Client for Witness {
    fn wake(&mut self, io: &mut Io<'_>) {
        if self.ledger.borrow().is_quiet {
            self.phase = Phase::Done;
            return io.abandon();
        }
        if self.phase == Phase::Away {
            self.phase = Phase::Listening;
            self.stream.open(io, self.listener);
        }
        io.wake_in(TICK);
    }

    fn received(&mut self, io: &mut Io<'_>, bytes: &[u8]) {
        for arrived in self.stream.received(io, bytes) {
            match arrived {
                StreamEvent::Opened => self.order = self.ledger.borrow_mut().begin_order(),
                // A listener that stopped inside of a dropped line gets the end of the file.
                StreamEvent::Data(data) if data.is_empty() => return self.ended(io),
                StreamEvent::Data(data) => self.note(&data),
                StreamEvent::Written | StreamEvent::Refused => {
                    panic!("final operations are reported")
                }
            }
            self.stream.read(io);
        }
    }

    fn ended(&mut self, io: &mut Io<'_>) {
        io.abandon();
        self.stream.close();
        self.input.clear();
        self.phase = Phase::Away;
    }

    fn closed(&mut self, _io: &mut Io<'_>) {}

    fn finish(&mut self, _io: &mut Io<'_>) {}

    fn is_done(&self) -> bool {
        self.phase == Phase::Done
    }
}
