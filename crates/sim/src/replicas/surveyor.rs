//! A client that reads all files of one replica when the run is quiet.

use super::ledger::{Ledger, Survey};
use super::site::SERVICE;
use super::stream::{Access, Stream, StreamEvent};
use crate::client::{Client, Io};
use base::op::Listener;
use serde_json::Value;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

/// Polling interval of waiting clients.
pub(super) const TICK: Duration = Duration::from_millis(500);

/// The files.
const FILES: [&str; 3] = ["value", "stable", "status.json"];

/// The client.
#[derive(Debug)]
pub(super) struct Surveyor {
    listener: Listener,
    number: usize,
    ledger: Rc<RefCell<Ledger>>,
    /// The file being read.
    stream: Option<Stream>,
    /// Its contents so far.
    text: Vec<u8>,
    /// Contents of the files before it.
    texts: Vec<String>,
}

impl Surveyor {
    /// Returns a client for the replica of this number.
    pub(super) fn new(listener: Listener, number: usize, ledger: Rc<RefCell<Ledger>>) -> Surveyor {
        let (text, texts) = (Vec::new(), Vec::new());
        Surveyor { listener, number, ledger, stream: None, text, texts }
    }

    /// Handles the end of one file.
    fn finish_file(&mut self, io: &mut Io<'_>) {
        let text = String::from_utf8(std::mem::take(&mut self.text)).expect("they are UTF-8");
        self.texts.push(text);
        io.abandon();
        self.stream = None;
        if let [value, stable, status] = &self.texts[..] {
            let status: Value = serde_json::from_str(status).expect("status.json is JSON");
            io.trace(format_args!("replica {} says {status}", self.number));
            let survey = Survey { value: value.clone(), stable: stable.clone(), status };
            self.ledger.borrow_mut().surveys.insert(self.number, survey);
            io.judged();
        } else {
            io.wake_in(TICK);
        }
    }
}

impl Client for Surveyor {
    fn wake(&mut self, io: &mut Io<'_>) {
        if !self.ledger.borrow().is_quiet {
            return io.wake_in(TICK);
        }
        let file = FILES[self.texts.len()];
        let mut stream = Stream::new(&["services", SERVICE, file], Access::Read);
        assert!(stream.open(io, self.listener), "nobody is turned away");
        self.stream = Some(stream);
    }

    fn received(&mut self, io: &mut Io<'_>, bytes: &[u8]) {
        let Some(mut stream) = self.stream.take() else { return };
        for arrived in stream.received(io, bytes) {
            match arrived {
                StreamEvent::Opened => stream.read(io),
                StreamEvent::Data(data) if data.is_empty() => return self.finish_file(io),
                StreamEvent::Data(data) => {
                    self.text.extend(data);
                    stream.read(io);
                }
                StreamEvent::Written | StreamEvent::Refused => {
                    panic!("a file that can be read is not")
                }
            }
        }
        self.stream = Some(stream);
    }

    fn ended(&mut self, _io: &mut Io<'_>) {
        panic!("a server hangs up though all is well");
    }

    fn closed(&mut self, _io: &mut Io<'_>) {}

    fn finish(&mut self, _io: &mut Io<'_>) {}

    fn is_done(&self) -> bool {
        self.texts.len() == FILES.len()
    }
}
