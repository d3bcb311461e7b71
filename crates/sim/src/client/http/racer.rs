//! An HTTP client that changes one file conditionally, in competition with others.
//!
//! All racers share one ledger: of the changes with one entity tag exactly one succeeds, and a tag
//! identifies one content.

use super::super::{Client, Io};
use super::parse::{Response, take_response};
use base::Instant;
use base::op::Listener;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

/// State shared by all racers.
#[derive(Debug, Default)]
pub struct Ledger {
    /// Contents by tag, as put or read.
    contents: BTreeMap<String, Vec<u8>>,
    /// Tags whose file was replaced or removed.
    spent: BTreeMap<String, &'static str>,
    next: u64,
}

/// A pending request.
#[derive(Clone, Debug)]
enum Ask {
    Get,
    Put { tag: Option<String>, data: Vec<u8> },
    Delete { tag: String },
}

/// State of the racer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Waiting for a wake-up to connect.
    Away,
    /// Waiting for the response.
    Working,
    /// Waiting for the connection to close.
    Leaving,
    /// Done.
    Done,
}

/// The racer.
#[derive(Debug)]
pub struct Racer {
    listener: Listener,
    ledger: Rc<RefCell<Ledger>>,
    phase: Phase,
    ask: Option<Ask>,
    input: Vec<u8>,
    left: u32,
    begun: Instant,
}

impl Racer {
    /// Returns a racer for `/race/f` with this number of rounds.
    pub fn new(listener: Listener, ledger: Rc<RefCell<Ledger>>, rounds: u32) -> Racer {
        let (phase, begun) = (Phase::Away, Instant(0));
        Racer { listener, ledger, phase, ask: None, input: Vec::new(), left: rounds, begun }
    }

    fn send(&mut self, io: &mut Io<'_>, ask: Ask) {
        let head = |method: &str, fields: &str| {
            format!("{method} /race/f HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n").into_bytes()
        };
        let bytes = match &ask {
            Ask::Get => head("GET", ""),
            Ask::Delete { tag } => head("DELETE", &format!("If-Match: {tag}\r\n")),
            Ask::Put { tag, data } => {
                let condition = match tag {
                    Some(tag) => format!("If-Match: {tag}"),
                    None => "If-None-Match: *".to_string(),
                };
                let fields = format!("{condition}\r\nContent-Length: {}\r\n", data.len());
                [head("PUT", &fields), data.clone()].concat()
            }
        };
        io.trace(format_args!("{ask:?}"));
        io.send(&bytes);
        self.ask = Some(ask);
    }

    /// Begins the next round: changes the content it has just read.
    fn change(&mut self, io: &mut Io<'_>, tag: Option<String>) {
        let number = self.ledger.borrow().next;
        self.ledger.borrow_mut().next += 1;
        // All of one length, so that tags differ in more than the length.
        let data = format!("content {number:08}").into_bytes();
        let ask = match tag {
            Some(tag) if io.one_in(3) => Ask::Delete { tag },
            tag => Ask::Put { tag, data },
        };
        self.send(io, ask);
    }

    fn answered(&mut self, io: &mut Io<'_>, ask: Ask, response: &Response) {
        io.judged();
        let status = response.status;
        io.trace(format_args!("{status} for {ask:?}"));
        let late = status == 408 && io.env.params.faults.stall > 0;
        let failed = late || io.was_injected(self.begun, None);
        let tag = response.field("etag").map(str::to_string);
        match (ask, status) {
            (Ask::Get, 200) => {
                let tag = tag.expect("a file has a tag");
                let known = self.ledger.borrow().contents.get(&tag).cloned();
                let body = &response.body;
                assert!(known.is_none_or(|known| known == *body), "{tag} is of another content");
                self.ledger.borrow_mut().contents.insert(tag.clone(), body.clone());
                return self.change(io, Some(tag));
            }
            (Ask::Get, 404) => return self.change(io, None),
            (Ask::Put { tag: with, data }, 201 | 204) => {
                self.spend(with, "replaced");
                let tag = tag.expect("a PUT gives a tag");
                let known = self.ledger.borrow_mut().contents.insert(tag.clone(), data.clone());
                assert!(
                    known.is_none_or(|known| known == data),
                    "{tag} already named other contents"
                );
            }
            (Ask::Delete { tag: with }, 204) => self.spend(Some(with), "removed"),
            (Ask::Put { .. } | Ask::Delete { .. }, 412) => {}
            (ask, status) => assert!(failed, "{status} for {ask:?}"),
        }
        self.next(io, response.field("connection") == Some("close"));
    }

    fn spend(&mut self, tag: Option<String>, how: &'static str) {
        let Some(tag) = tag else { return };
        let before = self.ledger.borrow_mut().spent.insert(tag.clone(), how);
        assert!(before.is_none(), "{how} with {tag}, with which it was {before:?} already");
    }

    fn next(&mut self, io: &mut Io<'_>, last: bool) {
        if last || self.left == 0 || io.is_stopped() {
            self.phase = Phase::Leaving;
            return io.finish();
        }
        self.left -= 1;
        self.send(io, Ask::Get);
    }
}

impl Client for Racer {
    fn wake(&mut self, io: &mut Io<'_>) {
        if self.phase != Phase::Away {
            return;
        }
        if self.left == 0 || io.is_stopped() {
            self.phase = Phase::Done;
            return;
        }
        self.input.clear();
        self.begun = io.now();
        self.phase = Phase::Leaving;
        if io.connect(self.listener) {
            self.phase = Phase::Working;
            self.next(io, false);
        }
    }

    fn received(&mut self, io: &mut Io<'_>, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
        while self.phase == Phase::Working
            && let Some(response) = take_response(&mut self.input, false)
        {
            let ask = self.ask.take().expect("an answer to a request");
            self.answered(io, ask, &response);
        }
    }

    fn ended(&mut self, io: &mut Io<'_>) {
        let expected =
            self.phase == Phase::Leaving || io.may_be_cut() || io.was_injected(self.begun, None);
        assert!(expected, "the server hung up on {:?}", self.ask);
        self.phase = Phase::Leaving;
    }

    fn closed(&mut self, io: &mut Io<'_>) {
        self.ask = None;
        self.phase = Phase::Away;
        let pause = io.rng().u64(1..100);
        io.wake_in(Duration::from_millis(pause));
    }

    fn finish(&mut self, io: &mut Io<'_>) {
        assert!(matches!(self.phase, Phase::Away | Phase::Done), "never came to rest: {self:?}");
        let Some(disk) = io.disk() else { return };
        let dir = disk.lookup(crate::disk::ROOT, b"race").expect("it was planted");
        let names = disk.names(dir);
        let left = names.keys().find(|name| name.as_bytes() != b"f");
        assert!(left.is_none(), "{left:?} was left behind");
    }

    fn is_done(&self) -> bool {
        self.phase == Phase::Done
    }
}
