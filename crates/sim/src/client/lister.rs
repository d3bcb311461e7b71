//! A client that lists a directory repeatedly while it changes on the host. Names present all the
//! time must be listed exactly once, regardless of the changes around them.

use super::{Client, Io};
use base::Instant;
use base::op::Listener;
use std::collections::BTreeMap;
use std::time::Duration;
use wire::ninep::{NO_FID, NO_TAG, Names, Rmessage, Tmessage, dirents, frame_size};

/// The lister.
#[derive(Debug)]
pub struct Lister {
    listener: Listener,
    /// Number of names `keep-N`.
    constant: usize,
    state: State,
    input: Vec<u8>,
    left: u32,
    cookie: u64,
    seen: BTreeMap<String, u32>,
    begun: Instant,
}

/// State of the lister.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Waiting to connect.
    Away,
    /// Waiting for the reply to this message.
    Requested(&'static str),
    /// Waiting for the connection to close.
    Leaving,
    /// Done.
    Done,
}

impl Lister {
    /// Returns a lister of `/busy`, with this number of listings.
    pub fn new(listener: Listener, constant: usize, times: u32) -> Lister {
        Lister {
            listener,
            constant,
            state: State::Away,
            input: Vec::new(),
            left: times,
            cookie: 0,
            seen: BTreeMap::new(),
            begun: Instant(0),
        }
    }

    fn ask(&mut self, io: &mut Io<'_>, what: &'static str) {
        self.state = State::Requested(what);
        let count = io.rng().u32(300..4072);
        let message = match what {
            "version" => Tmessage::Version { msize: 4096, version: b"9P2000.L" },
            "attach" => {
                let (uname, aname, uid): (&[u8], &[u8], _) = (b"", b"/", Some(0));
                Tmessage::Attach { fid: 1, afid: NO_FID, uname, aname, uid }
            }
            "walk" => {
                let names = Names::new(&[b"busy"]).expect("one");
                Tmessage::Walk { fid: 1, newfid: 2, names }
            }
            "open" => Tmessage::Lopen { fid: 2, flags: 0 },
            "readdir" => Tmessage::Readdir { fid: 2, offset: self.cookie, count },
            _clunk => Tmessage::Clunk { fid: 2 },
        };
        let mut bytes = Vec::new();
        message.encode(if what == "version" { NO_TAG } else { 9 }, &mut bytes);
        io.send(&bytes);
    }

    fn message(&mut self, io: &mut Io<'_>, reply: &Rmessage<'_>) {
        io.judged();
        let State::Requested(requested) = self.state else { return };
        match (requested, reply) {
            ("version", Rmessage::Version { .. }) => self.ask(io, "attach"),
            ("attach", Rmessage::Attach { .. }) => self.ask(io, "walk"),
            ("walk", Rmessage::Walk { qids }) if qids.as_slice().len() == 1 => self.ask(io, "open"),
            ("open", Rmessage::Lopen { .. }) => {
                (self.cookie, self.seen) = (0, BTreeMap::new());
                self.ask(io, "readdir");
            }
            ("readdir", Rmessage::Readdir { data }) => {
                let entries = dirents(data.0).expect("whole entries");
                for (_, cookie, _, name) in &entries {
                    self.cookie = *cookie;
                    *self.seen.entry(String::from_utf8_lossy(name).into_owned()).or_insert(0) += 1;
                }
                if !entries.is_empty() {
                    return self.ask(io, "readdir");
                }
                for number in 0..self.constant {
                    let times = self.seen.get(&format!("keep-{number}")).copied().unwrap_or(0);
                    assert_eq!(times, 1, "keep-{number} is listed so many times");
                }
                self.ask(io, "clunk");
            }
            ("clunk", Rmessage::Clunk {}) if self.left > 0 => {
                self.left -= 1;
                self.ask(io, "walk");
            }
            ("clunk", Rmessage::Clunk {}) => self.leave(io),
            (_, reply) => {
                assert!(io.was_injected(self.begun, None), "{requested}: {reply:?}");
                self.leave(io);
            }
        }
    }

    fn leave(&mut self, io: &mut Io<'_>) {
        self.state = State::Leaving;
        io.finish();
    }
}

impl Client for Lister {
    fn wake(&mut self, io: &mut Io<'_>) {
        if self.state != State::Away {
            return;
        }
        if self.left == 0 || io.is_stopped() {
            self.state = State::Done;
            return;
        }
        self.left -= 1;
        self.input.clear();
        self.begun = io.now();
        self.state = State::Leaving;
        if io.connect(self.listener) {
            self.ask(io, "version");
        }
    }

    fn received(&mut self, io: &mut Io<'_>, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
        while let Some(size) = frame_size(&self.input).filter(|size| *size <= self.input.len()) {
            let message: Vec<u8> = self.input.drain(..size).collect();
            let (_, reply) = Rmessage::decode(&message).expect("answers can be decoded");
            self.message(io, &reply);
        }
    }

    fn ended(&mut self, io: &mut Io<'_>) {
        let expected = self.state == State::Leaving || io.may_be_cut();
        assert!(expected, "the server hung up while {:?}", self.state);
        self.state = State::Leaving;
    }

    fn closed(&mut self, io: &mut Io<'_>) {
        self.state = State::Away;
        io.wake_in(Duration::from_millis(5));
    }

    fn finish(&mut self, _io: &mut Io<'_>) {
        assert!(matches!(self.state, State::Away | State::Done), "never came to rest: {self:?}");
    }

    fn is_done(&self) -> bool {
        self.state == State::Done
    }
}
