//! A 9P2000.L client that appends to, overwrites, cuts and reads one file together with others.
//!
//! Editors pipeline requests in groups. When every request of a group is answered, cancelled, or
//! lost with its connection, one editor reads the file back, and some serial order of the group
//! must explain what it has and what reads have returned ([`base::serial`]). A request is one
//! message: what does not fit a message is split by the client, and nobody promises more of it.

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
/// The fid that is open to append.
const APPEND: u32 = 1;
/// The fid that is open to read and write.
const WRITE: u32 = 2;
/// The flags of the two, as those of Linux's `open(2)`.
const FLAGS: [u32; 2] = [0o2001, 2];
/// The tag of requests that come one at a time.
const SINGLE: u16 = 1;
/// Tags of edits begin here, and those of the flushes of them.
const EDITS: u16 = 10;
const FLUSHES: u16 = 30_000;
/// How long a reply may take, virtual time.
const PATIENCE: Duration = Duration::from_secs(1500);

/// The parts of an editor that are chosen.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Where to connect.
    pub listener: Listener,
    /// The names from the root to the file.
    pub names: Vec<String>,
    /// The file's inode on the simulated disk, if that is where it is.
    pub inode: Option<u64>,
    /// The requests of all editors of the file.
    pub group: Rc<RefCell<Group>>,
    /// Size of messages to offer, bytes.
    pub msize: u32,
    /// One in so many bursts of requests is followed by a disconnect; zero: never.
    pub breaks: u32,
}

/// State of an editor: the event it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// To be woken and connect.
    Away,
    /// For the reply to one of the messages that open the file, by its number.
    Opening(usize),
    /// For its turn, or for replies to edits.
    Working,
    /// For a piece of the file, to be compared.
    Reading,
    /// For the connection to end.
    Leaving,
    /// For nothing.
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
    /// When something was received or sent last.
    since: Instant,
    /// When what the editor waits for alone was asked: a step of opening, or a piece of the file.
    asked: Instant,
    /// When it looks again whether a reply is late.
    next_look: Instant,
}

impl Editor {
    /// An editor that has not connected yet.
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
            asked: Instant(0),
            next_look: Instant(0),
        }
    }

    fn say(&mut self, io: &mut Io<'_>, tag: u16, message: &Tmessage<'_>) {
        let mut bytes = Vec::new();
        message.encode(tag, &mut bytes);
        self.since = io.now();
        if matches!(tag, NO_TAG | SINGLE) {
            self.asked = io.now();
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
        self.say(io, if step == 0 { NO_TAG } else { SINGLE }, &message);
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

    /// Takes part in the group if there is something to do.
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
            let payload_max = (self.msize as usize - 24).min(io.scene.params.payload_max());
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
            self.say(io, FLUSHES + oldtag, &Tmessage::Flush { oldtag });
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
        self.say(io, tag, &message);
    }

    fn message(&mut self, io: &mut Io<'_>, bytes: &[u8]) {
        let (tag, reply) = Rmessage::decode(bytes).expect("answers can be decoded");
        self.since = io.now();
        let excused = self.setup.group.borrow().is_excused(io, self.asked);
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
            // What comes after the client has left is not read.
            (Phase::Leaving, _) => {}
            (phase, reply) => panic!("tag {tag}: {reply:?} while {phase:?}"),
        }
    }

    /// After the last reply of a burst the next one may begin, or the group is over.
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
                assert!(whole, "{count} of {length} bytes are said to be written");
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

    /// Nobody knows what became of an edit.
    fn lose(&mut self, io: &mut Io<'_>, out: Outstanding) {
        let (begun, edit) = (out.begun, out.edit);
        let fate = match &edit {
            Edit::Append(_) | Edit::Write(..) => Fate::Torn(io.scene.torn_since(begun)),
            Edit::Resize(_) | Edit::Read(_) | Edit::ReadAt(..) => Fate::Unknown,
        };
        let changes = !matches!(edit, Edit::ReadAt(..));
        let call = changes.then(|| Call { edit, fate, span: (begun.0, io.now().0) });
        self.setup.group.borrow_mut().end(io, call);
    }

    fn read_on(&mut self, io: &mut Io<'_>) {
        let (offset, count) = (self.seen.len() as u64, self.msize - 24);
        self.say(io, SINGLE, &Tmessage::Read { fid: WRITE, offset, count });
    }

    /// A piece of the file has come; all of it is judged.
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

    /// A directory's file has on the disk what it shows.
    fn expect_stored(&self, io: &Io<'_>) {
        let Some(stored) = self.stored(io) else { return };
        assert!(stored == self.seen, "a file shows what it does not have on the disk");
    }

    /// The contents of the file on the simulated disk, if it is there.
    fn stored(&self, io: &Io<'_>) -> Option<Vec<u8>> {
        let node = io.disk()?.inode(self.setup.inode?)?;
        let length = usize::try_from(node.data.len()).expect("a small file");
        Some(node.data.read(0, length))
    }

    /// Leaves it to another editor to read the file back.
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

/// Sets the length of the file.
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
                    self.next_look = io.now() + PATIENCE;
                    io.wake_in(PATIENCE);
                }
            }
            Phase::Leaving | Phase::Done => {}
            Phase::Opening(_) | Phase::Working | Phase::Reading => {
                let waited = io.now().since(self.since);
                let waits = self.phase != Phase::Working || !self.outstanding.is_empty();
                assert!(!waits || waited < PATIENCE, "no reply for {waited:?}: {self:?}");
                if io.now() >= self.next_look {
                    self.next_look = io.now() + PATIENCE;
                    io.wake_in(PATIENCE);
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
        let faults = &io.scene.params.faults;
        let expected = self.phase == Phase::Leaving
            || io.is_stopped()
            || io.scene.params.may_cut()
            || faults.reset > 0
            || faults.stall > 0;
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
