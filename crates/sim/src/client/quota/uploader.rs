//! An HTTP client that replaces, removes and reads a file of its own in a directory with a quota.
//!
//! A response to a PUT comes when the file is durable, as everything before it. An upload needs
//! space for a file more until it is complete, and after a refusal with status 507 the old file is
//! unchanged.

use super::ledger::{Key, Ledger};
use super::usage::{Contents, Entry, History, Usages};
use super::{DIRS, SIZES};
use crate::client::http::parse::{Response, take_response};
use crate::client::{Client, Io};
use base::Instant;
use base::op::Listener;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

/// Timeout of a response, virtual time.
const TIMEOUT: Duration = Duration::from_secs(1500);

/// A request in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pending {
    /// A comparison of the file.
    Get,
    /// An upload, since this time.
    Put(Key, Instant),
    /// A removal.
    Delete(Key),
}

/// State of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Waiting for a wake-up to connect.
    Away,
    /// Waiting for a response.
    Working,
    /// Waiting for the connection to end.
    Leaving,
}

/// Configuration of an uploader.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Listener to connect to.
    pub listener: Listener,
    /// Number of the client.
    pub number: usize,
    /// Number of requests.
    pub requests: u32,
    /// The ledger of all clients.
    pub ledger: Rc<RefCell<Ledger>>,
}

/// The uploader.
#[derive(Debug)]
pub struct Uploader {
    setup: Setup,
    phase: Phase,
    pending: Option<Pending>,
    /// A request that was lost, and the end of its connection.
    lost: Option<(Key, Instant)>,
    history: History<Option<Entry>>,
    input: Vec<u8>,
    left: u32,
    /// Time of the last receive or send.
    since: Instant,
    salt: u8,
    /// Number of power failures that it knows.
    failures: u32,
    /// Whether the file is not found again since a power failure.
    is_failed: bool,
    /// Whether the file was compared after the last change.
    is_known: bool,
    is_done: bool,
}

impl Uploader {
    /// Returns an unconnected uploader.
    pub fn new(setup: Setup) -> Uploader {
        Uploader {
            phase: Phase::Away,
            pending: None,
            lost: None,
            history: History::new(None),
            input: Vec::new(),
            left: setup.requests,
            since: Instant(0),
            salt: setup.number as u8 * 50,
            failures: 0,
            is_failed: false,
            is_known: true,
            is_done: false,
            setup,
        }
    }

    fn dir(&self) -> usize {
        self.setup.number % DIRS.len()
    }

    fn send(&mut self, io: &mut Io<'_>, pending: Pending, method: &str, body: Option<&[u8]>) {
        let (dir, number) = (DIRS[self.dir()], self.setup.number);
        let head = format!("{method} /{dir}/u{number} HTTP/1.1\r\nHost: localhost\r\n");
        let length = body.map(|body| format!("Content-Length: {}\r\n", body.len()));
        let head = head + &length.unwrap_or_default() + "\r\n";
        io.trace(format_args!("{pending:?}"));
        io.send(&[head.as_bytes(), body.unwrap_or_default()].concat());
        (self.pending, self.since) = (Some(pending), io.now());
    }

    /// Begins the next request; disconnects if there is none now.
    fn next(&mut self, io: &mut Io<'_>) {
        if self.phase != Phase::Working || self.pending.is_some() {
            return;
        }
        if !self.is_known || self.is_failed || self.lost.is_some() {
            return self.send(io, Pending::Get, "GET", None);
        }
        let may_begin = self.setup.ledger.borrow().is_open();
        if self.left == 0 || !may_begin {
            if self.left == 0 && !std::mem::replace(&mut self.is_done, true) {
                self.setup.ledger.borrow_mut().complete(io);
            }
            return self.leave(io);
        }
        self.left -= 1;
        // The last request is followed by a comparison.
        self.is_known = self.left > 0;
        self.change(io);
    }

    fn change(&mut self, io: &mut Io<'_>) {
        let (now, last) = (io.now(), self.history.last());
        let old = Usages::change((*last).as_ref(), None);
        if last.is_some() && io.one_in(4) {
            self.history.begin(now.0, None);
            let key = self.setup.ledger.borrow_mut().begin(now, old);
            return self.send(io, Pending::Delete(key), "DELETE", None);
        }
        let data = self.data(io);
        let file = Contents::default().written(0, &data);
        let after = Some(Entry { dir: self.dir(), owner: self.dir(), file: Some(file) });
        let new = Usages::change(None, after.as_ref());
        self.history.begin(now.0, after);
        let key = self.setup.ledger.borrow_mut().begin_upload(now, new, old);
        self.send(io, Pending::Put(key, now), "PUT", Some(&data));
    }

    fn data(&mut self, io: &mut Io<'_>) -> Vec<u8> {
        let (least, longest) = SIZES[io.rng().usize(..SIZES.len())];
        let count = io.rng().usize(least..=longest).min(io.env.params.payload_max()).max(1);
        self.salt = self.salt.wrapping_add(1);
        (0..count).map(|at| (self.salt ^ super::pattern(at)).max(1)).collect()
    }

    fn replied(&mut self, io: &mut Io<'_>, pending: Pending, response: &Response) {
        io.judged();
        let status = response.status;
        io.trace(format_args!("{status} for {pending:?}"));
        let late = status == 408 && io.env.params.faults.stall > 0;
        if response.field("connection") == Some("close") {
            self.leave(io);
        }
        let ledger = Rc::clone(&self.setup.ledger);
        match (pending, status) {
            (_, 408) if late => self.lose(io.now()),
            (Pending::Put(key, _), 507) => {
                self.history.undo();
                ledger.borrow_mut().refuse(io, key);
                self.is_known = false;
            }
            (Pending::Put(key, begun), 201 | 204) => {
                self.history.end(io.now().0, 0);
                self.history.forget();
                ledger.borrow_mut().synced(begun);
                ledger.borrow_mut().succeed(io, key, false);
            }
            (Pending::Delete(key), 204) => {
                self.history.end(io.now().0, ledger.borrow().durable());
                ledger.borrow_mut().succeed(io, key, false);
            }
            (Pending::Get, 200) => self.found(io, Some(&response.body)),
            (Pending::Get, 404) => self.found(io, None),
            (pending, status) => panic!("{status} for {pending:?}"),
        }
    }

    fn leave(&mut self, io: &mut Io<'_>) {
        self.phase = Phase::Leaving;
        io.finish();
    }

    /// Compares the file with those that its requests may have left.
    fn found(&mut self, io: &mut Io<'_>, found: Option<&Vec<u8>>) {
        let is_like = |known: &Option<Entry>| {
            let data = known.iter().flat_map(|entry| &entry.file).map(|file| &file.data).next();
            data == found
        };
        let mut ledger = self.setup.ledger.borrow_mut();
        self.is_known = true;
        let (number, length) = (self.setup.number, found.map(Vec::len));
        if std::mem::take(&mut self.is_failed) {
            let (spans, mut states): (Vec<_>, Vec<_>) =
                self.history.admissible(is_like).into_iter().unzip();
            let state = states.pop();
            let state = state.unwrap_or_else(|| panic!("u{number} has {length:?} bytes"));
            let usages = state.as_ref().as_ref().map(Entry::usage);
            self.history = History::new((*state).clone());
            return ledger.found(io, spans, usages);
        }
        if let Some((key, closed)) = self.lost.take() {
            let is_last = is_like(&self.history.last());
            match is_last {
                true => self.history.end(closed.0, ledger.durable()),
                false => self.history.undo(),
            }
            ledger.resolve(io, key, is_last.then_some(closed), false);
        }
        assert!(is_like(&self.history.last()), "u{number} has {length:?} bytes");
    }

    /// Records that a request in flight has an unknown outcome.
    fn lose(&mut self, now: Instant) {
        match self.pending.take() {
            Some(Pending::Put(key, _) | Pending::Delete(key)) => {
                self.setup.ledger.borrow_mut().lose(key);
                self.lost = Some((key, now));
            }
            Some(Pending::Get) => self.is_known = false,
            None => {}
        }
    }

    /// Notes power failures: the file must be found again.
    fn note_failures(&mut self, io: &mut Io<'_>) {
        if self.failures == io.env.power_failures() {
            return;
        }
        self.failures = io.env.power_failures();
        self.setup.ledger.borrow_mut().note_failures(io);
        (self.pending, self.lost, self.is_failed) = (None, None, true);
        if self.phase == Phase::Working {
            self.phase = Phase::Leaving;
        }
    }
}

impl Client for Uploader {
    fn wake(&mut self, io: &mut Io<'_>) {
        self.setup.ledger.borrow_mut().join(io.index);
        self.note_failures(io);
        let waited = io.now().since(self.since);
        let is_late = self.pending.is_some() && waited >= TIMEOUT;
        assert!(!is_late, "no response for {waited:?}: {:?}", self.pending);
        let may_begin = self.setup.ledger.borrow().is_open() && !self.is_done;
        let is_unknown = self.is_failed || self.lost.is_some();
        if self.phase == Phase::Away && (may_begin || is_unknown) {
            self.input.clear();
            self.phase = Phase::Leaving;
            if io.connect(self.setup.listener) {
                self.phase = Phase::Working;
                io.wake_in(TIMEOUT);
                self.next(io);
            }
        }
    }

    fn received(&mut self, io: &mut Io<'_>, bytes: &[u8]) {
        self.note_failures(io);
        self.input.extend_from_slice(bytes);
        while self.phase == Phase::Working
            && let Some(response) = take_response(&mut self.input, false)
        {
            let pending = self.pending.expect("a response to a request");
            if response.status != 408 {
                self.pending = None;
            }
            self.replied(io, pending, &response);
            self.next(io);
        }
    }

    fn ended(&mut self, io: &mut Io<'_>) {
        self.note_failures(io);
        let expected = self.phase == Phase::Leaving || io.may_be_cut();
        assert!(expected, "the server hung up on {:?}", self.pending);
        self.phase = Phase::Leaving;
    }

    fn closed(&mut self, io: &mut Io<'_>) {
        self.note_failures(io);
        self.lose(io.now());
        self.phase = Phase::Away;
        let pause = io.rng().u64(1..200);
        io.wake_in(Duration::from_millis(pause));
    }

    fn finish(&mut self, _io: &mut Io<'_>) {
        assert!(self.is_done(), "never came to rest: {self:?}");
    }

    fn is_done(&self) -> bool {
        self.is_done && !self.is_failed
    }
}
