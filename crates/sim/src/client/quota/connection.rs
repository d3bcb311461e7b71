//! A 9P2000.L connection of a client of quotas: sequences of messages, each with a tag.

use crate::client::quota::DIRS;
use crate::client::{Io, whole_messages};
use base::Instant;
use base::op::Listener;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use wire::ninep::{NO_FID, NO_TAG, Names, Rmessage, Tmessage};

/// Fid of the root; those of the directories follow.
pub(super) const ROOT: u32 = 0;
/// Fid of the first of the directories.
pub(super) const DIR: u32 = 1;
/// Tag of the messages at the beginning, after the first one.
const HELLO: u16 = 1;
/// Timeout of a reply, virtual time.
const TIMEOUT: Duration = Duration::from_secs(1500);

/// A reply, as far as it is checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// A success without any value.
    Done,
    Error(u32),
    Data(Vec<u8>),
    Written(u32),
    /// Size of an extended attribute.
    Attribute(u64),
    Stat {
        is_directory: bool,
        uid: u32,
        size: u64,
        blocks: u64,
    },
    Space {
        blocks: u64,
        free: u64,
        available: u64,
    },
}

impl Reply {
    fn of(message: &Rmessage<'_>) -> Reply {
        match message {
            Rmessage::Lerror { ecode } => Reply::Error(*ecode),
            Rmessage::Read { data } => Reply::Data(data.0.to_vec()),
            Rmessage::Write { count } => Reply::Written(*count),
            Rmessage::Xattrwalk { size } => Reply::Attribute(*size),
            Rmessage::Statfs { blocks, bfree, bavail, .. } => {
                Reply::Space { blocks: *blocks, free: *bfree, available: *bavail }
            }
            Rmessage::Getattr { mode, uid, size, blocks, .. } => Reply::Stat {
                is_directory: mode & 0o170_000 == 0o040_000,
                uid: *uid,
                size: *size,
                blocks: *blocks,
            },
            _without_value => Reply::Done,
        }
    }
}

/// Messages sent one after the other, up to the first error.
#[derive(Debug)]
struct Sequence {
    /// Encoded messages still to send.
    messages: VecDeque<Vec<u8>>,
    replies: Vec<Reply>,
    begin: Instant,
}

/// Replies to a sequence; the last one may be an error.
#[derive(Debug)]
pub(super) struct Replies {
    pub(super) tag: u16,
    pub(super) replies: Vec<Reply>,
    /// Time when the first message was sent.
    pub(super) begin: Instant,
}

/// State of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Not connected.
    Away,
    /// Waiting for the version.
    Version,
    /// Waiting for the fids of the directories.
    Hello,
    /// Waiting for messages in either direction.
    Open,
    /// Waiting for the connection to end.
    Leaving,
}

/// The connection.
#[derive(Debug)]
pub(super) struct Connection {
    listener: Listener,
    phase: Phase,
    /// Maximum size of a message, bytes.
    msize: u32,
    input: Vec<u8>,
    sequences: BTreeMap<u16, Sequence>,
    /// Time of the last receive or send.
    since: Instant,
}

impl Connection {
    /// Returns a connection that is not connected.
    pub(super) fn new(listener: Listener) -> Connection {
        let (sequences, since) = (BTreeMap::new(), Instant(0));
        Connection { listener, phase: Phase::Away, msize: 0, input: Vec::new(), sequences, since }
    }

    /// Returns whether requests can be sent.
    pub(super) fn is_open(&self) -> bool {
        self.phase == Phase::Open
    }

    /// Returns whether it is not connected.
    fn is_away(&self) -> bool {
        self.phase == Phase::Away
    }

    /// Returns the maximum number of bytes of a read or a write.
    pub(super) fn payload_max(&self) -> usize {
        self.msize as usize - 24
    }

    /// Checks the connection, and connects if it is needed.
    pub(super) fn keep(&mut self, io: &mut Io<'_>, is_needed: bool) {
        self.check(io);
        if self.is_away() && is_needed {
            self.connect(io);
        }
    }

    /// Connects.
    fn connect(&mut self, io: &mut Io<'_>) {
        assert!(self.is_away(), "it is connected");
        self.input.clear();
        self.phase = Phase::Leaving;
        if io.connect(self.listener) {
            self.phase = Phase::Version;
            self.since = io.now();
            let version = Tmessage::Version { msize: 1 << 20, version: b"9P2000.L" };
            self.send(io, NO_TAG, &[version]);
            io.wake_in(TIMEOUT);
        }
    }

    /// Sends these messages one after the other, each after the reply to the previous one.
    pub(super) fn send(&mut self, io: &mut Io<'_>, tag: u16, messages: &[Tmessage<'_>]) {
        let encoded = messages.iter().map(|message| {
            let mut bytes = Vec::new();
            message.encode(tag, &mut bytes);
            bytes
        });
        let mut messages: VecDeque<Vec<u8>> = encoded.collect();
        let first = messages.pop_front().expect("at least one message");
        let sequence = Sequence { messages, replies: Vec::new(), begin: io.now() };
        let before = self.sequences.insert(tag, sequence);
        assert!(before.is_none(), "tag {tag} is in use");
        self.since = io.now();
        io.send(&first);
    }

    /// Takes received bytes; returns the replies to the sequences that are complete.
    pub(super) fn received(&mut self, io: &mut Io<'_>, bytes: &[u8]) -> Vec<Replies> {
        let mut complete = Vec::new();
        self.since = io.now();
        for message in whole_messages(&mut self.input, bytes) {
            if self.phase == Phase::Leaving {
                continue;
            }
            let (tag, reply) = Rmessage::decode(&message).expect("replies can be decoded");
            if let Rmessage::Version { msize, .. } = reply {
                self.sequences.clear();
                self.msize = msize;
                self.hello(io);
                continue;
            }
            let sequence = self.sequences.get_mut(&tag);
            let sequence =
                sequence.unwrap_or_else(|| panic!("a reply to nothing: {tag} {reply:?}"));
            let failed = matches!(reply, Rmessage::Lerror { .. });
            sequence.replies.push(Reply::of(&reply));
            match sequence.messages.pop_front().filter(|_| !failed) {
                Some(next) => io.send(&next),
                None => {
                    let Sequence { replies, begin, .. } =
                        self.sequences.remove(&tag).expect("seen above");
                    complete.extend(self.completed(tag, replies, begin));
                }
            }
        }
        complete
    }

    fn hello(&mut self, io: &mut Io<'_>) {
        self.phase = Phase::Hello;
        let (uname, aname): (&[u8], &[u8]) = (b"", b"/");
        let attach = Tmessage::Attach { fid: ROOT, afid: NO_FID, uname, aname, uid: Some(0) };
        let mut messages = vec![attach];
        for (newfid, name) in (DIR..).zip(DIRS) {
            messages.push(walk(ROOT, newfid, &[name.as_bytes()]));
        }
        self.send(io, HELLO, &messages);
    }

    fn completed(&mut self, tag: u16, replies: Vec<Reply>, begin: Instant) -> Option<Replies> {
        if self.phase != Phase::Hello {
            return Some(Replies { tag, replies, begin });
        }
        assert!(replies.iter().all(|reply| *reply == Reply::Done), "cannot attach: {replies:?}");
        self.phase = Phase::Open;
        None
    }

    /// Checks that no reply is late; to be called when woken.
    fn check(&mut self, io: &mut Io<'_>) {
        let waited = io.now().since(self.since);
        let waits = !self.is_away() && !self.sequences.is_empty();
        assert!(!waits || waited < TIMEOUT, "no reply for {waited:?}: {self:?}");
    }

    /// Disconnects.
    pub(super) fn leave(&mut self, io: &mut Io<'_>) {
        self.phase = Phase::Leaving;
        if io.rng().bool() { io.reset() } else { io.finish() }
    }

    /// Ignores all replies from now on: the server is no more.
    pub(super) fn give_up(&mut self) {
        self.sequences.clear();
        if !self.is_away() {
            self.phase = Phase::Leaving;
        }
    }

    /// Handles the end of the connection.
    ///
    /// # Panics
    /// If nothing may have ended it.
    pub(super) fn ended(&mut self, io: &mut Io<'_>) {
        let expected = self.phase == Phase::Leaving || io.may_be_cut();
        assert!(expected, "the server hung up while {:?}", self.phase);
        self.phase = Phase::Leaving;
    }

    /// Handles the end of all requests after the end of the connection.
    pub(super) fn closed(&mut self) {
        self.sequences.clear();
        self.phase = Phase::Away;
    }
}

/// Returns a message that walks from a fid.
pub(super) fn walk<'a>(fid: u32, newfid: u32, names: &[&'a [u8]]) -> Tmessage<'a> {
    Tmessage::Walk { fid, newfid, names: Names::new(names).expect("few names") }
}

/// Returns a message that changes an owner or a length.
pub(super) fn set_stat<'a>(fid: u32, uid: Option<u32>, size: Option<u64>) -> Tmessage<'a> {
    let valid = u32::from(uid.is_some()) << 1 | u32::from(size.is_some()) << 3;
    Tmessage::Setattr {
        fid,
        valid,
        mode: 0,
        uid: uid.unwrap_or(0),
        gid: 0,
        size: size.unwrap_or(0),
        atime_sec: 0,
        atime_nsec: 0,
        mtime_sec: 0,
        mtime_nsec: 0,
    }
}
