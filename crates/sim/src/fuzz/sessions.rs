//! Fuzzers of whole sessions: bytes in, a stub tree behind, and the contract of every session.
//!
//! Each request gets one reply; every reference is released; requested and unsent bytes stay
//! bounded; and at the end, with the connection lost and all replies delivered, nothing is left.

use super::streams;
use super::stub::Stub;
use base::op::{ClientKey, ReceiveBuf};
use base::rng::Rng;
use base::{Automaton, Caller, Error, Instant, Time};
use front::nfs::Replays;
use front::{CallId, Export, Identity, Input, Limits, Nfs, Output, Protocol, Session, Web, webdav};
use std::collections::VecDeque;
use std::time::Duration;
use tree::{Ask, NodeId};

/// Bytes that a session may have requested and unsent beyond its limit: one request's worth.
const BEYOND: usize = 4 << 20;

/// Memory of the duplicate request cache, bytes.
const REPLAYS_MAX: usize = 2000;

struct Rig<'a> {
    rng: &'a mut Rng,
    session: Session,
    stub: Stub,
    replays: Replays<()>,
    now: Instant,
    requested: Vec<(CallId, Ask)>,
    locks: webdav::Locks,
    lock_replies: VecDeque<webdav::Reply>,
    unsent: VecDeque<usize>,
    /// A receive in flight, perhaps into the session's own buffer.
    receiving: Option<ReceiveBuf>,
    hung_up: bool,
    limits: Limits,
}

pub(super) fn ninep(rng: &mut Rng) {
    let mut stream = Vec::new();
    let version: &[u8] = if rng.bool() { b"9P2000.L" } else { b"9P2000" };
    let greeting = wire::ninep::Tmessage::Version { msize: 65_536, version };
    greeting.encode(!0, &mut stream);
    let attach =
        wire::ninep::Tmessage::Attach { fid: 0, afid: !0, uname: b"me", aname: b"", uid: None };
    attach.encode(0, &mut stream);
    for tag in 1..rng.u16(2..60) {
        let tag = if rng.u8(..30) == 0 { rng.u16(..10) } else { tag };
        let mut message = streams::request(rng, tag);
        if rng.u8(..25) == 0 {
            streams::spoil(rng, &mut message);
        }
        stream.extend(message);
    }
    drive(rng, Protocol::NineP, &stream);
}

pub(super) fn nfs(rng: &mut Rng) {
    let mut stream = Vec::new();
    for xid in 1..rng.u32(2..60) {
        let mut record = super::nfs::record(rng, xid);
        if rng.u8(..25) == 0 {
            streams::spoil(rng, &mut record);
        }
        stream.extend(record);
    }
    drive(rng, Protocol::Nfs, &stream);
}

pub(super) fn http(rng: &mut Rng) {
    let mut stream = Vec::new();
    for _ in 0..rng.usize(1..12) {
        let mut request = streams::http_request(rng);
        if rng.u8(..8) == 0 {
            streams::spoil(rng, &mut request);
        }
        stream.extend(request);
    }
    drive(rng, Protocol::Http, &stream);
}

fn drive(rng: &mut Rng, protocol: Protocol, stream: &[u8]) {
    let small = rng.bool();
    let limits = match small {
        true => Limits { msize: 4096, fids: 4, handles: 100, calls: 2, bytes: 5000 },
        false => Limits { msize: 65_536, ..Limits::default() },
    };
    let export = Export {
        root: NodeId::new(0, 0),
        device: 1,
        path: b"/srv".to_vec(),
        wall: Time::from_secs(1_800_000_000),
        limits,
        web: Web { write: true, ..Web::default() },
        nfs: Nfs::default(),
        services: [base::Name::new(b"hits").expect("a name")].into(),
    };
    let claimed = protocol != Protocol::Http && rng.bool();
    let identity = if claimed { Identity::Claimed(None) } else { Identity::Fixed(Caller::Server) };
    let session = Session::new(protocol, export, identity, true);
    let mut rig = Rig {
        rng,
        session,
        stub: Stub::default(),
        replays: Replays::new(REPLAYS_MAX),
        now: Instant(1),
        requested: Vec::new(),
        locks: webdav::Locks::default(),
        lock_replies: VecDeque::new(),
        unsent: VecDeque::new(),
        receiving: None,
        hung_up: false,
        limits,
    };
    let mut rest = stream;
    let cut = rig.rng.usize(..=stream.len());
    if rig.rng.bool() {
        rest = &stream[..cut];
    }
    let mut idle = 0;
    while !rig.hung_up && idle < 100 && rig.has_more(rest) {
        idle = if rig.turn(&mut rest) { 0 } else { idle + 1 };
    }
    rig.end();
}

impl Rig<'_> {
    /// Returns whether something is still to be sent or answered.
    fn has_more(&self, rest: &[u8]) -> bool {
        !rest.is_empty() || !self.requested.is_empty() || !self.lock_replies.is_empty()
    }

    /// Performs a random event; returns whether there was progress.
    fn turn(&mut self, rest: &mut &[u8]) -> bool {
        if self.receiving.is_none() && self.session.is_hungry() {
            self.receiving = Some(self.session.receive_into());
        }
        match self.rng.u8(..8) {
            0..=3 if self.receiving.is_some() && !rest.is_empty() => {
                let into = self.receiving.take().expect("it was there above");
                let (mut buf, room) = into.into_buf(65_536);
                let most = rest.len().min(room);
                let count = if self.rng.bool() { most } else { self.rng.usize(1..=most) };
                buf.spare()[..count].copy_from_slice(&rest[..count]);
                buf.grow(count);
                *rest = &rest[count..];
                self.step(Input::Received(buf));
                true
            }
            4 | 5 if !self.requested.is_empty() => {
                let index = self.rng.usize(..self.requested.len());
                self.answer(index);
                true
            }
            4..=6 if !self.lock_replies.is_empty() => {
                self.answer_locks();
                true
            }
            6 if !self.unsent.is_empty() => {
                self.sent();
                true
            }
            7 => {
                let seldom = self.rng.u8(..40) == 0;
                let most = if seldom { 40_000 } else { 10 };
                self.now = self.now + Duration::from_millis(self.rng.u64(..most));
                let late = self.session.deadline().is_some_and(|at| at <= self.now);
                if late || self.rng.bool() {
                    self.step(Input::Tick);
                }
                if self.rng.u16(..400) == 0 {
                    self.step(Input::Drain);
                }
                false
            }
            _ => false,
        }
    }

    fn answer(&mut self, index: usize) {
        let (call, ask) = self.requested.swap_remove(index);
        let cancelled = self.rng.u8(..10) == 0;
        let reply = match cancelled {
            true => Err(Error::Cancelled),
            false => self.stub.answer(self.rng, &ask),
        };
        self.step(Input::Answered(call, reply));
    }

    fn answer_locks(&mut self) {
        let reply = self.lock_replies.pop_front().expect("there is one");
        self.step(Input::Locks(reply));
        self.locks.check();
    }

    fn sent(&mut self) {
        let count = self.rng.usize(1..=self.unsent.len());
        let bytes = self.unsent.drain(..count).sum();
        self.step(Input::Sent(bytes));
    }

    fn step(&mut self, input: Input) {
        let mut out = Vec::new();
        self.session.step(self.now, input, &mut out);
        let mut claims = Vec::new();
        for output in out {
            match output {
                Output::Ask(call, request) => {
                    assert!(
                        self.requested.iter().all(|(known, _)| *known != call),
                        "{call:?} twice"
                    );
                    self.requested.push((call, request.ask));
                }
                Output::Cancel(_) => {}
                Output::Release(node) => self.stub.release(node),
                Output::Close(open) | Output::Abandon(open) => self.stub.close(open),
                Output::Send(buf) => self.unsent.push_back(buf.len()),
                Output::Finish => {}
                Output::Replied(kind) => {
                    assert!(wire::ninep::Rmessage::name_of(kind).is_some(), "type {kind}");
                }
                Output::Called(name, _) => assert!(!name.is_empty()),
                Output::Claim(call, key) => claims.push((call, self.replays.claim(&(), key))),
                Output::Settle(key, reply) => self.replays.settle(&(), key, reply),
                Output::Locks(caller, request) => {
                    let client = (ClientKey(1), &caller);
                    self.lock_replies.extend(self.locks.handle(self.now, client, request));
                }
                Output::Account(account) => assert!((200..600).contains(&account.status)),
                Output::Hangup(_) => self.hung_up = true,
            }
        }
        claims.into_iter().for_each(|(call, claim)| self.step(Input::Claimed(call, claim)));
        self.session.check();
        self.replays.check();
        let bytes = self.session.bytes();
        assert!(bytes <= self.limits.bytes + BEYOND, "{bytes} bytes are requested or unsent");
    }

    /// Ends the connection: all requests get replies, and nothing may be left.
    fn end(mut self) {
        if !self.hung_up && self.rng.bool() {
            self.step(Input::Ended);
        }
        while self.rng.u8(..6) > 0 && !self.requested.is_empty() {
            self.answer(0);
        }
        self.step(Input::Lost);
        while !self.requested.is_empty() || !self.lock_replies.is_empty() {
            match self.requested.is_empty() {
                true => self.answer_locks(),
                false => self.answer(0),
            }
        }
        while !self.unsent.is_empty() {
            self.sent();
        }
        assert!(self.session.is_over(), "not over: {:?}", self.session);
        assert!(self.replays.is_settled(), "each claim is settled");
        assert_eq!(self.locks.changes(), 0, "each change ends");
        self.stub.expect_nothing_left();
    }
}
