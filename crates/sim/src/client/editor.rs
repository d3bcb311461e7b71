//! A 9P2000.L client that appends to, overwrites, truncates and reads one file together with
//! others.
//!
//! Editors pipeline requests in groups. When every request of a group has a reply, is cancelled, or
//! is lost with its connection, one editor reads the file back, and some serial order of the group
//! must explain its contents and the results of reads ([`base::serial`]). Atomicity applies to
//! single messages: a client splits larger requests, without any guarantee across the pieces.

pub mod group;

use super::{Client, Io, whole_messages};
use base::op::Listener;
use base::serial::{Call, Edit, Fate};
use base::{Instant, serial};
use group::{Group, Turn};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use wire::ninep::{Data, NO_FID, NO_TAG, Names, Rmessage, Tmessage};

const ROOT: u32 = 0;
/// Fid open for appending.
const APPEND: u32 = 1;
/// Fid open for reading and writing.
const WRITE: u32 = 2;
/// Flags of the two, those of Linux's `open(2)`.
const FLAGS: [u32; 2] = [0o2001, 2];
/// Tag of requests sent one at a time.
const SINGLE: u16 = 1;
/// First tag of edits, and first tag of their flushes.
const EDITS: u16 = 10;
const FLUSHES: u16 = 30_000;
/// Timeout of a reply, virtual time.
const TIMEOUT: Duration = Duration::from_secs(1500);

/// Configuration of an editor.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Listener to connect to.
    pub listener: Listener,
    /// Names from the root to the file.
    pub names: Vec<String>,
    /// Inode of the file on the simulated disk, if it is there.
    pub inode: Option<u64>,
    /// Requests of all editors of the file.
    pub group: Rc<RefCell<Group>>,
    /// Proposed message size, bytes.
    pub msize: u32,
    /// One of this number of bursts of requests is followed by a disconnect; zero: never.
    pub breaks: u32,
}

/// State of an editor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Waiting for a wake-up to connect.
    Away,
    /// Waiting for the reply to one of the messages that open the file, by its number.
    Opening(usize),
    /// Waiting for its turn, or for replies to edits.
    Working,
    /// Waiting for a piece of the file to compare.
    Reading,
    /// Waiting for the connection to end.
    Leaving,
    /// Done.
    Done,
}

/// An edit without a reply.
#[derive(Debug)]
struct Outstanding {
    edit: Edit,
    begun: Instant,
    flushed: bool,
}

/// The client.
#[derive(Debug)]
pub struct Editor {
    setup: Setup,
    phase: Phase,
    outstanding: BTreeMap<u16, Outstanding>,
    /// Tags of flushes, with the tags that they cancel.
    flushes: BTreeMap<u16, u16>,
    input: Vec<u8>,
    /// Contents read back so far.
    seen: Vec<u8>,
    msize: u32,
    next_tag: u16,
    /// Time of the last receive or send.
    since: Instant,
    /// Time of the outstanding single request: a step of opening, or a read of the file.
    requested: Instant,
    /// Time of the next check for late replies.
    next_look: Instant,
}

impl Editor {
    /// Returns an unconnected editor.
    pub fn new(setup: Setup) -> Editor {
        Editor {
            setup,
            phase: Phase::Away,
            outstanding: BTreeMap::new(),
            flushes: BTreeMap::new(),
            input: Vec::new(),
            seen: Vec::new(),
            msize: 0,
            next_tag: EDITS,
            since: Instant(0),
            requested: Instant(0),
            next_look: Instant(0),
        }
    }

    fn send(&mut self, io: &mut Io<'_>, tag: u16, message: &Tmessage<'_>) {
        let mut bytes = Vec::new();
        message.encode(tag, &mut bytes);
        self.since = io.now();
        if matches!(tag, NO_TAG | SINGLE) {
            self.requested = io.now();
        }
        io.send(&bytes);
    }

    /// Sends one of the messages that open the file.
    fn open(&mut self, io: &mut Io<'_>, step: usize) {
        let names = self.setup.names.clone();
        let names: Vec<&[u8]> = names.iter().map(|name| name.as_bytes()).collect();
        let (uname, aname): (&[u8], &[u8]) = (b"", b"/");
        let fid = if step < 4 { APPEND } else { WRITE };
        let message = match step {
            0 => Tmessage::Version { msize: self.setup.msize, version: b"9P2000.L" },
            1 => Tmessage::Attach { fid: ROOT, afid: NO_FID, uname, aname, uid: Some(0) },
            2 | 4 => {
                let names = Names::new(&names).expect("few names");
                Tmessage::Walk { fid: ROOT, newfid: fid, names }
            }
            3 | 5 => Tmessage::Lopen { fid, flags: FLAGS[fid as usize - 1] },
            _ => {
                self.phase = Phase::Working;
                return self.work(io);
            }
        };
        self.phase = Phase::Opening(step);
        self.send(io, if step == 0 { NO_TAG } else { SINGLE }, &message);
    }

    fn opened(&mut self, io: &mut Io<'_>, step: usize, reply: &Rmessage<'_>, excused: bool) {
        let count = self.setup.names.len();
        match (step, reply) {
            (0, Rmessage::Version { msize, .. }) => {
                assert!(*msize <= self.setup.msize, "a larger message size than was offered");
                self.msize = *msize;
            }
            (1, Rmessage::Attach { .. }) | (3 | 5, Rmessage::Lopen { .. }) => {}
            (2 | 4, Rmessage::Walk { qids }) if qids.as_slice().len() == count => {}
            (step, reply) => {
                assert!(excused, "step {step} of opening: {reply:?}");
                return self.leave(io);
            }
        }
        self.open(io, step + 1);
    }

    /// Takes its turn in the group if there is one.
    fn work(&mut self, io: &mut Io<'_>) {
        if self.phase != Phase::Working || !self.outstanding.is_empty() {
            return;
        }
        let turn = self.setup.group.borrow_mut().take_turn(io);
        match turn {
            Turn::Edit(count) => self.burst(io, count),
            Turn::Read => {
                self.phase = Phase::Reading;
                self.seen.clear();
                self.read_on(io);
            }
            Turn::Wait => {}
            Turn::Over => self.leave(io),
        }
    }

    /// Pipelines some edits, and perhaps a flush of one, or a disconnect.
    fn burst(&mut self, io: &mut Io<'_>, count: usize) {
        for _ in 0..count {
            let payload_max = (self.msize as usize - 24).min(io.env.params.payload_max());
            let edit = self.setup.group.borrow_mut().draw(io, payload_max);
            self.next_tag = if self.next_tag < FLUSHES - 1 { self.next_tag + 1 } else { EDITS };
            let tag = self.next_tag;
            let begun = io.now();
            io.trace(format_args!("{tag} {}", edit));
            self.send_edit(io, tag, &edit);
            self.outstanding.insert(tag, Outstanding { edit, begun, flushed: false });
        }
        if io.one_in(4) {
            let at = io.rng().usize(..self.outstanding.len());
            let (oldtag, out) = self.outstanding.iter_mut().nth(at).expect("so many");
            let oldtag = *oldtag;
            out.flushed = true;
            io.trace(format_args!("flushes {oldtag}"));
            self.flushes.insert(FLUSHES + oldtag, oldtag);
            self.send(io, FLUSHES + oldtag, &Tmessage::Flush { oldtag });
        }
        if io.one_in(self.setup.breaks) {
            self.leave(io);
        }
    }

    fn send_edit(&mut self, io: &mut Io<'_>, tag: u16, edit: &Edit) {
        let message = match edit {
            Edit::Append(data) => Tmessage::Write { fid: APPEND, offset: 0, data: Data(data) },
            Edit::Write(offset, data) => {
                Tmessage::Write { fid: WRITE, offset: *offset, data: Data(data) }
            }
            Edit::Resize(size) => resize(*size),
            Edit::ReadAt(offset, count, _) => {
                let count = u32::try_from(*count).expect("less than a message");
                Tmessage::Read { fid: WRITE, offset: *offset, count }
            }
            Edit::Read(_) => unreachable!("reads of all are not drawn"),
        };
        self.send(io, tag, &message);
    }

    fn message(&mut self, io: &mut Io<'_>, bytes: &[u8]) {
        let (tag, reply) = Rmessage::decode(bytes).expect("answers can be decoded");
        self.since = io.now();
        let excused = self.setup.group.borrow().is_excused(io, self.requested);
        match (self.phase, reply) {
            (Phase::Opening(step), reply) => self.opened(io, step, &reply, excused),
            (Phase::Reading, reply) if tag == SINGLE => self.piece(io, &reply, excused),
            (Phase::Working | Phase::Reading, Rmessage::Flush {}) => {
                let oldtag = self.flushes.remove(&tag).expect("an Rflush of a flush");
                if let Some(out) = self.outstanding.remove(&oldtag) {
                    self.lose(io, out);
                }
                self.rest(io);
            }
            (Phase::Working, reply) => {
                let out = self.outstanding.remove(&tag);
                let out = out.unwrap_or_else(|| panic!("a reply to nothing: {tag} {reply:?}"));
                self.replied(io, out, &reply);
                self.rest(io);
            }
            // Messages after the disconnect are ignored.
            (Phase::Leaving, _) => {}
            (phase, reply) => panic!("tag {tag}: {reply:?} while {phase:?}"),
        }
    }

    /// Continues after the last reply of a burst: with the next burst, or the end of the group.
    fn rest(&mut self, io: &mut Io<'_>) {
        if self.outstanding.is_empty() && self.flushes.is_empty() {
            self.work(io);
        }
    }

    fn replied(&mut self, io: &mut Io<'_>, mut out: Outstanding, reply: &Rmessage<'_>) {
        io.judged();
        let excused = self.setup.group.borrow().is_excused(io, out.begun);
        match (&mut out.edit, reply) {
            (Edit::Append(data) | Edit::Write(_, data), Rmessage::Write { count }) => {
                let (length, count) = (data.len(), *count as usize);
                let whole = count == length || count < length && excused;
                assert!(whole, "{count} of {length} bytes were acknowledged");
                data.truncate(count);
            }
            (Edit::Resize(_), Rmessage::Setattr {}) => {}
            (Edit::ReadAt(.., seen), Rmessage::Read { data }) => *seen = data.0.to_vec(),
            (edit, Rmessage::Lerror { .. }) if excused || out.flushed => {
                io.trace(format_args!("{} failed", edit));
                return self.lose(io, out);
            }
            (edit, reply) => panic!("{} got {reply:?}", edit),
        }
        let span = (out.begun.0, io.now().0);
        self.setup
            .group
            .borrow_mut()
            .end(io, Some(Call { edit: out.edit, fate: Fate::Done, span }));
    }

    /// Records an edit with an unknown outcome.
    fn lose(&mut self, io: &mut Io<'_>, out: Outstanding) {
        let (begun, edit) = (out.begun, out.edit);
        let fate = match &edit {
            Edit::Append(_) | Edit::Write(..) => Fate::Torn(io.env.torn_since(begun)),
            Edit::Resize(_) | Edit::Read(_) | Edit::ReadAt(..) => Fate::Unknown,
        };
        let changes = !matches!(edit, Edit::ReadAt(..));
        let call = changes.then(|| Call { edit, fate, span: (begun.0, io.now().0) });
        self.setup.group.borrow_mut().end(io, call);
    }

    fn read_on(&mut self, io: &mut Io<'_>) {
        let (offset, count) = (self.seen.len() as u64, self.msize - 24);
        self.send(io, SINGLE, &Tmessage::Read { fid: WRITE, offset, count });
    }

    /// Handles a piece of the file, and checks the whole file after the last one.
    fn piece(&mut self, io: &mut Io<'_>, reply: &Rmessage<'_>, excused: bool) {
        match reply {
            Rmessage::Read { data } if data.0.is_empty() => {}
            Rmessage::Read { data } => {
                self.seen.extend_from_slice(data.0);
                return self.read_on(io);
            }
            reply => {
                assert!(excused, "the file cannot be read: {reply:?}");
                return self.leave(io);
            }
        }
        io.judged();
        self.expect_stored(io);
        self.phase = Phase::Working;
        let seen = std::mem::take(&mut self.seen);
        io.trace(format_args!("the file has {} bytes", seen.len()));
        self.setup.group.borrow_mut().judge(io, seen);
        self.work(io);
    }

    /// Checks that a directory's file has the same contents on the disk as over the protocol.
    fn expect_stored(&self, io: &Io<'_>) {
        let Some(stored) = self.stored(io) else { return };
        assert!(stored == self.seen, "a file shows what it does not have on the disk");
    }

    /// Returns the contents of the file on the simulated disk, if it is there.
    fn stored(&self, io: &Io<'_>) -> Option<Vec<u8>> {
        let node = io.disk()?.inode(self.setup.inode?)?;
        let length = usize::try_from(node.data.len()).expect("a small file");
        Some(node.data.read(0, length))
    }

    /// Leaves reading the file back to another editor.
    fn stop_reading(&mut self, io: &mut Io<'_>) {
        if self.phase == Phase::Reading {
            self.setup.group.borrow_mut().stop_reading(io);
        }
    }

    fn leave(&mut self, io: &mut Io<'_>) {
        self.stop_reading(io);
        self.phase = Phase::Leaving;
        if io.rng().bool() { io.reset() } else { io.finish() }
    }
}

/// Returns a message that sets the length of the file.
fn resize<'a>(size: u64) -> Tmessage<'a> {
    Tmessage::Setattr {
        fid: WRITE,
        valid: 8,
        mode: 0,
        uid: 0,
        gid: 0,
        size,
        atime_sec: 0,
        atime_nsec: 0,
        mtime_sec: 0,
        mtime_nsec: 0,
    }
}

impl Client for Editor {
    fn wake(&mut self, io: &mut Io<'_>) {
        match self.phase {
            Phase::Away if self.setup.group.borrow().is_over() || io.is_stopped() => {
                self.phase = Phase::Done;
            }
            Phase::Away if !self.setup.group.borrow().is_open() => {
                io.wake_in(Duration::from_millis(500));
            }
            Phase::Away => {
                self.input.clear();
                self.setup.group.borrow_mut().join(io.index);
                self.phase = Phase::Leaving;
                if io.connect(self.setup.listener) {
                    self.open(io, 0);
                    self.next_look = io.now() + TIMEOUT;
                    io.wake_in(TIMEOUT);
                }
            }
            Phase::Leaving | Phase::Done => {}
            Phase::Opening(_) | Phase::Working | Phase::Reading => {
                let waited = io.now().since(self.since);
                let waits = self.phase != Phase::Working || !self.outstanding.is_empty();
                assert!(!waits || waited < TIMEOUT, "no reply for {waited:?}: {self:?}");
                if io.now() >= self.next_look {
                    self.next_look = io.now() + TIMEOUT;
                    io.wake_in(TIMEOUT);
                }
                self.work(io);
            }
        }
    }

    fn received(&mut self, io: &mut Io<'_>, bytes: &[u8]) {
        for message in whole_messages(&mut self.input, bytes) {
            self.message(io, &message);
        }
    }

    fn ended(&mut self, io: &mut Io<'_>) {
        let expected = self.phase == Phase::Leaving || io.may_be_cut();
        assert!(expected, "the server hung up while {:?}", self.phase);
        self.stop_reading(io);
        self.phase = Phase::Leaving;
    }

    fn closed(&mut self, io: &mut Io<'_>) {
        self.flushes.clear();
        for out in std::mem::take(&mut self.outstanding).into_values() {
            self.lose(io, out);
        }
        self.phase = Phase::Away;
        let pause = io.rng().u64(1..200);
        io.wake_in(Duration::from_millis(pause));
    }

    fn finish(&mut self, io: &mut Io<'_>) {
        assert!(matches!(self.phase, Phase::Away | Phase::Done), "never came to rest: {self:?}");
        if let Some(stored) = self.stored(io) {
            self.setup.group.borrow_mut().judge_last(&stored);
        }
    }

    fn is_done(&self) -> bool {
        self.phase == Phase::Done
    }
}
