//! A 9P client, of either dialect.
//!
//! It works in a directory of its own, so that it can predict every reply. Its model is a disk of
//! its own, the *shadow*: a completed request is performed there too, and the results are compared:
//! contents, attributes, errors, and the file of each fid. Concurrent requests do not conflict, so
//! that their order does not matter ([`Keys`]). After an injected fault, a flush, or a lost
//! connection, a request may have been performed or not (or partly, if it has parts): the client
//! inspects the real disk, which must show one of these outcomes, and continues from it.

mod draw;
mod expect;
mod judge;
mod keys;
mod request;

use super::{Client, Io, whole_messages};
use crate::disk::Disk;
use base::op::{File, Listener};
use base::{Access, Error, Instant, Kind, Name};
use keys::Keys;
use request::Request;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use wire::ninep::{NO_FID, NO_TAG, Rmessage, Tmessage};

/// Fid of the client's directory.
const HOME: u32 = 0;
/// Tag of the attach.
const ATTACH: u16 = 0;
/// Timeout of a reply, virtual time.
const TIMEOUT: Duration = Duration::from_secs(1500);

/// Configuration of a 9P client.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Listener to connect to.
    pub listener: Listener,
    /// Whether it speaks 9P2000.L.
    pub linux: bool,
    /// Name of its directory in the root.
    pub home: String,
    /// Inode of that directory.
    pub inode: u64,
    /// Files read by all clients: inode of their directory, and name, inode and contents of each.
    pub shared: (u64, Vec<(String, u64, Vec<u8>)>),
}

/// State of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Waiting for a wake-up to connect.
    Away,
    /// Waiting for `Rversion`.
    Greeting,
    /// Waiting for `Rattach`.
    Attaching,
    /// Waiting for replies.
    Working,
    /// Waiting for the connection to end, which the client has broken or provoked.
    Leaving,
    /// Waiting for requests in flight to complete.
    Settling,
    /// Done.
    Done,
}

/// An outstanding request.
#[derive(Debug)]
struct Outstanding {
    request: Request,
    since: Instant,
    keys: Vec<(keys::Key, bool)>,
    flushed: bool,
}

/// State of a fid, as known to the client.
#[derive(Debug)]
struct Fid {
    /// Handle on the shadow.
    handle: File,
    kind: Kind,
    name: Vec<u8>,
    state: FidState,
}

#[derive(Debug)]
enum FidState {
    Closed,
    Open { file: File, access: Access, remove: bool, listing: Option<Listing> },
    AttrRead { value: Vec<u8> },
    AttrWrite { name: Vec<u8>, value: Vec<u8>, size: usize, flags: u32 },
}

/// A directory being read.
#[derive(Debug)]
struct Listing {
    /// Offset of the next read.
    offset: u64,
    /// Names present since the beginning, with an identity of each entry.
    constant: BTreeMap<Name, u64>,
    seen: BTreeSet<Name>,
}

/// The client.
#[derive(Debug)]
pub struct Ninep {
    setup: Setup,
    phase: Phase,
    shadow: Disk,
    /// Root of the served tree.
    root: File,
    home: File,
    fids: BTreeMap<u32, Fid>,
    outstanding: BTreeMap<u16, Outstanding>,
    /// Tags of flushes, with the tags they cancel and their send times.
    flushes: BTreeMap<u16, (u16, Instant, bool)>,
    keys: Keys,
    locks: judge::Locks,
    input: Vec<u8>,
    msize: u32,
    left: u32,
    next_tag: u16,
    /// Time of the last receive or start.
    since: Instant,
    /// Whether the client did something for which the server may end the connection.
    misbehaved: bool,
}

impl Ninep {
    /// Returns an unconnected client.
    pub fn new(setup: Setup, requests: u32) -> Ninep {
        let now = expect::UNKNOWN;
        let mut shadow = Disk::new(now);
        shadow.choose_inode(setup.inode);
        shadow.plant(now, crate::disk::ROOT, setup.home.as_bytes(), Kind::Directory, b"");
        let (dir, files) = &setup.shared;
        shadow.choose_inode(*dir);
        shadow.plant(now, crate::disk::ROOT, b"shared", Kind::Directory, b"");
        for (name, inode, contents) in files {
            shadow.choose_inode(*inode);
            shadow.plant(now, *dir, name.as_bytes(), Kind::File, contents);
        }
        let root = shadow.open_root();
        let names = vec![Name::new(setup.home.as_bytes()).expect("a plain name")];
        let walk = base::op::PathOp::Walk { root, from: root, names };
        let Ok(base::op::PathDone::Walked(_, Ok(home))) = shadow.perform(now, &walk) else {
            unreachable!("it was planted above");
        };
        Ninep {
            setup,
            phase: Phase::Away,
            shadow,
            root,
            home,
            fids: BTreeMap::new(),
            outstanding: BTreeMap::new(),
            flushes: BTreeMap::new(),
            keys: Keys::default(),
            locks: judge::Locks::default(),
            input: Vec::new(),
            msize: 0,
            left: requests,
            next_tag: 1,
            since: Instant(0),
            misbehaved: false,
        }
    }

    fn send(&self, io: &mut Io<'_>, tag: u16, message: &Tmessage<'_>) {
        let mut bytes = Vec::new();
        message.encode(tag, &mut bytes);
        io.send(&bytes);
    }

    fn greet(&mut self, io: &mut Io<'_>) {
        let version: &[u8] = if self.setup.linux { b"9P2000.L" } else { b"9P2000" };
        self.phase = Phase::Greeting;
        self.since = io.now();
        let msize = [4096, 8192, 1 << 21][io.rng().usize(..3)];
        self.msize = msize;
        self.send(io, NO_TAG, &Tmessage::Version { msize, version });
    }

    fn free_tag(&mut self) -> u16 {
        loop {
            self.next_tag = if self.next_tag > 60_000 { 1 } else { self.next_tag + 1 };
            let tag = self.next_tag;
            if !self.outstanding.contains_key(&tag) && !self.flushes.contains_key(&tag) {
                return tag;
            }
        }
    }

    fn message(&mut self, io: &mut Io<'_>, bytes: &[u8]) {
        assert!(bytes.len() <= self.msize as usize, "an answer larger than was agreed");
        let (tag, reply) = Rmessage::decode(bytes).expect("answers can be decoded");
        self.since = io.now();
        match (self.phase, tag, reply) {
            (Phase::Greeting, NO_TAG, Rmessage::Version { msize, version }) => {
                let wanted: &[u8] = if self.setup.linux { b"9P2000.L" } else { b"9P2000" };
                assert_eq!(version, wanted);
                assert!(msize <= self.msize, "a larger message size than was offered");
                self.msize = msize;
                self.phase = Phase::Attaching;
                let aname = format!("/{}", self.setup.home);
                let uid = self.setup.linux.then_some(0);
                let (uname, aname): (&[u8], _) = (b"sim", aname.as_bytes());
                let attach = Tmessage::Attach { fid: HOME, afid: NO_FID, uname, aname, uid };
                self.send(io, ATTACH, &attach);
            }
            (Phase::Attaching, ATTACH, Rmessage::Attach { qid }) => {
                assert_eq!(qid.path, self.setup.inode, "attached elsewhere");
                let handle = self.shadow.duplicate(self.home);
                let (kind, name) = (Kind::Directory, b"/".to_vec());
                self.fids.insert(HOME, Fid { handle, kind, name, state: FidState::Closed });
                self.phase = Phase::Working;
                self.work(io);
            }
            (Phase::Attaching, ATTACH, Rmessage::Lerror { .. } | Rmessage::Error { .. }) => {
                assert!(io.was_injected(Instant(0), None), "the attach failed");
                self.leave(io);
            }
            (Phase::Working, tag, reply) => {
                if let Rmessage::Flush {} = reply {
                    self.flushed(io, tag);
                } else {
                    self.answered(io, tag, &reply);
                }
                self.work(io);
            }
            // Messages after the disconnect are ignored.
            (Phase::Leaving, ..) => {}
            (phase, tag, reply) => panic!("tag {tag}: {reply:?} while {phase:?}"),
        }
    }

    fn answered(&mut self, io: &mut Io<'_>, tag: u16, reply: &Rmessage<'_>) {
        let found = self.outstanding.remove(&tag);
        let out = found.unwrap_or_else(|| panic!("an answer to no request: tag {tag}, {reply:?}"));
        io.trace(format_args!("{tag} {:?} answered", out.request.name()));
        io.judged();
        self.keys.give(&out.keys);
        self.judge(io, &out, reply);
        self.note_changes();
    }

    fn flushed(&mut self, io: &mut Io<'_>, tag: u16) {
        let found = self.flushes.remove(&tag);
        let (old, since, prompt) = found.unwrap_or_else(|| panic!("an Rflush of tag {tag}"));
        let took = io.now().since(since);
        assert!(!prompt || took < Duration::from_millis(900), "a flush of a read took {took:?}");
        io.judged();
        let Some(out) = self.outstanding.remove(&old) else { return };
        io.trace(format_args!("{old} {:?} flushed", out.request.name()));
        self.keys.give(&out.keys);
        self.settle(io, &out.request);
        self.note_changes();
    }

    /// Sends requests until enough are outstanding.
    fn work(&mut self, io: &mut Io<'_>) {
        let most = io.env.params.outstanding;
        while self.phase == Phase::Working && self.outstanding.len() < most {
            if self.left == 0 {
                self.give_up_waiting(io, 0);
                if self.outstanding.is_empty() && self.flushes.is_empty() {
                    self.compare(io);
                    self.leave(io);
                }
                return;
            }
            self.left -= 1;
            if io.one_in(io.env.params.disconnect) {
                return self.leave(io);
            }
            if io.one_in(io.env.params.malformed) {
                self.misbehave(io);
                continue;
            }
            if io.one_in(15) && !self.outstanding.is_empty() && self.flushes.len() < 5 {
                let index = io.rng().usize(..self.outstanding.len());
                let oldtag = *self.outstanding.keys().nth(index).expect("so many");
                self.flush(io, oldtag);
                continue;
            }
            let Some(request) = self.draw(io) else {
                if self.outstanding.is_empty() {
                    continue;
                }
                return self.give_up_waiting(io, 0);
            };
            self.ask(io, request);
        }
        self.give_up_waiting(io, most);
    }

    fn ask(&mut self, io: &mut Io<'_>, request: Request) {
        let keys = self.keys_of(&request);
        if !self.keys.take(&keys) {
            return;
        }
        let tag = self.free_tag();
        io.trace(format_args!("{tag} {request:?}"));
        let bytes = self.encode(tag, &request);
        io.send(&bytes);
        let since = io.now();
        self.outstanding.insert(tag, Outstanding { request, since, keys, flushed: false });
    }

    /// Flushes a blocked lock request, if nothing else could end the wait.
    fn give_up_waiting(&mut self, io: &mut Io<'_>, most: usize) {
        let waits = |out: &Outstanding| matches!(out.request, Request::Lock { wait: true, .. });
        let stuck = self.outstanding.values().all(waits) && self.outstanding.len() >= most;
        if stuck && self.phase == Phase::Working {
            let first = self.outstanding.iter().find(|(_, out)| !out.flushed);
            if let Some(oldtag) = first.map(|(tag, _)| *tag) {
                self.flush(io, oldtag);
            }
        }
    }

    fn flush(&mut self, io: &mut Io<'_>, oldtag: u16) {
        let tag = self.free_tag();
        let params = &io.env.params;
        let unhindered = params.calls >= 1024
            && params.faults.stall == 0
            && params.piece_max >= 5000
            && params.net_us <= 1000
            && params.window >= 1 << 18;
        let out = self.outstanding.get_mut(&oldtag).expect("chosen above");
        out.flushed = true;
        let prompt = unhindered && out.request.only_looks();
        self.flushes.insert(tag, (oldtag, io.now(), prompt));
        io.trace(format_args!("{tag} flushes {oldtag}"));
        self.send(io, tag, &Tmessage::Flush { oldtag });
    }

    /// Sends something that violates the protocol.
    fn misbehave(&mut self, io: &mut Io<'_>) {
        self.misbehaved = true;
        io.trace(format_args!("misbehaves"));
        match io.rng().u8(..4) {
            0 => io.send(&[3, 0, 0, 0, 1, 2, 3]),
            1 => io.send(&[0xff; 9]),
            2 => {
                // The first of these tags may have a reply by now; then the second is invalid.
                self.send(io, 0, &Tmessage::Clunk { fid: 7777 });
                let tag = self.outstanding.keys().next().copied().unwrap_or(1);
                self.send(io, tag, &Tmessage::Clunk { fid: 7777 });
                io.finish();
            }
            _ => {
                // A truncated message: the rest never follows.
                io.send(&[200, 0, 0, 0, 110, 1, 0]);
                io.finish();
            }
        }
        self.phase = Phase::Leaving;
    }

    fn leave(&mut self, io: &mut Io<'_>) {
        self.phase = Phase::Leaving;
        if io.rng().bool() {
            io.reset();
        } else {
            io.finish();
        }
    }

    /// Settles all requests after the connection has ended: each was performed, or was not.
    fn settle_all(&mut self, io: &mut Io<'_>) {
        let outstanding = std::mem::take(&mut self.outstanding);
        for out in outstanding.values() {
            self.settle(io, &out.request);
        }
        self.flushes.clear();
        self.keys = Keys::default();
        self.locks = judge::Locks::default();
        for (_, fid) in std::mem::take(&mut self.fids) {
            self.forget(fid);
        }
        self.compare(io);
    }

    fn forget(&mut self, fid: Fid) {
        if let FidState::Open { file, .. } = fid.state {
            self.shadow.close(file);
        }
        self.shadow.close(fid.handle);
    }

    /// Compares everything beneath the client's directory with the real disk.
    fn compare(&self, io: &Io<'_>) {
        let Some(disk) = io.disk() else { return };
        let mut todo = vec![self.setup.inode];
        while let Some(inode) = todo.pop() {
            if let Some(difference) = self.shadow.difference(disk, inode) {
                panic!("file {inode} is not what was acknowledged: {difference}");
            }
            let node = self.shadow.inode(inode).expect("entries lead to files");
            if node.kind == Kind::Directory {
                todo.extend(node.entries.values().map(|place| place.inode));
            }
        }
    }
}

impl Client for Ninep {
    fn wake(&mut self, io: &mut Io<'_>) {
        match self.phase {
            Phase::Away if self.left == 0 || io.is_stopped() => self.phase = Phase::Done,
            Phase::Away => {
                self.input.clear();
                self.misbehaved = false;
                self.phase = Phase::Settling;
                if io.connect(self.setup.listener) {
                    self.greet(io);
                    io.wake_in(TIMEOUT);
                }
            }
            Phase::Done | Phase::Settling => {}
            Phase::Greeting | Phase::Attaching | Phase::Working | Phase::Leaving => {
                let waited = io.now().since(self.since);
                let waiting = &self.outstanding;
                assert!(waited < TIMEOUT, "no answer for {waited:?}: {:?} {waiting:?}", self.phase);
                io.wake_in(TIMEOUT);
            }
        }
    }

    fn received(&mut self, io: &mut Io<'_>, bytes: &[u8]) {
        for message in whole_messages(&mut self.input, bytes) {
            self.message(io, &message);
        }
    }

    fn ended(&mut self, io: &mut Io<'_>) {
        let expected = self.phase == Phase::Leaving
            || self.phase == Phase::Settling
            || self.misbehaved
            || io.may_be_cut();
        assert!(expected, "the server hung up while {:?}", self.phase);
        self.phase = Phase::Settling;
    }

    fn closed(&mut self, io: &mut Io<'_>) {
        self.settle_all(io);
        self.phase = Phase::Away;
        let pause = io.rng().u64(1..200);
        io.wake_in(Duration::from_millis(pause));
    }

    fn finish(&mut self, io: &mut Io<'_>) {
        assert!(matches!(self.phase, Phase::Away | Phase::Done), "never came to rest: {self:?}");
        self.compare(io);
    }

    fn is_done(&self) -> bool {
        self.phase == Phase::Done
    }
}

/// Returns whether the world injects an error that the server never returns by itself.
fn is_injectable(error: Error) -> bool {
    matches!(error, Error::Io | Error::NoSpace | Error::TooManyOpen | Error::Cancelled)
}

/// Draws contents to write.
pub(super) fn contents(io: &mut Io<'_>, most: usize) -> Vec<u8> {
    let length = io.rng().usize(..=most);
    let mut data = vec![0; length];
    io.rng().fill(&mut data);
    data
}
