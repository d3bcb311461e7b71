//! One file of a server, opened by a client: connect, version, attach, walk, open; then writes and
//! reads.

use crate::client::{Io, whole_messages};
use base::op::Listener;
use wire::ninep::{Data, NO_FID, NO_TAG, Names, Rmessage, Tmessage};

const ROOT: u32 = 0;
const FILE: u32 = 1;

const TAG: u16 = 1;
const READ_TAG: u16 = 2;
/// First tag of writes.
const WRITE_TAGS: u16 = 100;

const MSIZE: u32 = 1 << 17;
/// Bytes of one read.
const COUNT: u32 = 1 << 16;

/// Access mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Read = 0,
    ReadWrite = 2,
}

/// State of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Waiting for a connect.
    Closed,
    /// Waiting for the reply to Tversion.
    Greeting,
    /// Waiting for the root.
    Attaching,
    /// Waiting for the walk to the file.
    Walking,
    /// Waiting for the open.
    Opening,
    /// Open for reads and writes.
    Open,
}

/// An event of the stream.
#[derive(Debug)]
pub(super) enum StreamEvent {
    /// The file is open.
    Opened,
    /// Data was read; empty at the end.
    Data(Vec<u8>),
    /// A write was completed.
    Written,
    /// The server refused a request.
    Refused,
}

/// The file.
#[derive(Debug)]
pub(super) struct Stream {
    path: Vec<String>,
    access: Access,
    state: State,
    input: Vec<u8>,
    /// Numbers of bytes written and read.
    written: u64,
    read: u64,
    writes: u16,
}

impl Stream {
    /// Returns a file that is not open.
    pub(super) fn new(path: &[&str], access: Access) -> Stream {
        let path = path.iter().map(|name| name.to_string()).collect();
        let input = Vec::new();
        Stream { path, access, state: State::Closed, input, written: 0, read: 0, writes: 0 }
    }

    /// Returns whether it is open for reads and writes.
    pub(super) fn is_open(&self) -> bool {
        self.state == State::Open
    }

    fn send(&self, io: &mut Io<'_>, tag: u16, message: &Tmessage<'_>) {
        let mut bytes = Vec::new();
        message.encode(tag, &mut bytes);
        io.send(&bytes);
    }

    /// Begins to open it; returns false if the connection is refused, which is reported later.
    pub(super) fn open(&mut self, io: &mut Io<'_>, at: Listener) -> bool {
        self.close();
        if !io.connect(at) {
            return false;
        }
        self.state = State::Greeting;
        self.send(io, NO_TAG, &Tmessage::Version { msize: MSIZE, version: b"9P2000.L" });
        true
    }

    /// Resets the state after the end of the connection.
    pub(super) fn close(&mut self) {
        self.state = State::Closed;
        self.input.clear();
        (self.written, self.read) = (0, 0);
    }

    /// Writes bytes in one message.
    pub(super) fn write(&mut self, io: &mut Io<'_>, bytes: &[u8]) {
        assert!(bytes.len() + 100 < MSIZE as usize, "it fits into one message");
        self.writes = (self.writes + 1) % 1000;
        let message = Tmessage::Write { fid: FILE, offset: self.written, data: Data(bytes) };
        self.send(io, WRITE_TAGS + self.writes, &message);
        self.written += bytes.len() as u64;
    }

    /// Sets the offsets of the next write and read.
    pub(super) fn seek(&mut self, written: u64, read: u64) {
        (self.written, self.read) = (written, read);
    }

    /// Reads from the present offset.
    pub(super) fn read(&mut self, io: &mut Io<'_>) {
        let message = Tmessage::Read { fid: FILE, offset: self.read, count: COUNT };
        self.send(io, READ_TAG, &message);
    }

    /// Handles received bytes; returns the events.
    pub(super) fn received(&mut self, io: &mut Io<'_>, bytes: &[u8]) -> Vec<StreamEvent> {
        let messages = whole_messages(&mut self.input, bytes);
        messages.iter().filter_map(|message| self.message(io, message)).collect()
    }

    fn message(&mut self, io: &mut Io<'_>, bytes: &[u8]) -> Option<StreamEvent> {
        let (tag, reply) = Rmessage::decode(bytes).expect("answers can be decoded");
        match (self.state, tag, reply) {
            (State::Greeting, NO_TAG, Rmessage::Version { version, .. }) => {
                assert_eq!(version, b"9P2000.L", "another agreement");
                let (uname, aname): (&[u8], &[u8]) = (b"nobody", b"/");
                let attach =
                    Tmessage::Attach { fid: ROOT, afid: NO_FID, uname, aname, uid: Some(65_534) };
                self.send(io, TAG, &attach);
                self.state = State::Attaching;
                None
            }
            (State::Attaching, TAG, Rmessage::Attach { .. }) => {
                let names: Vec<&[u8]> = self.path.iter().map(|name| name.as_bytes()).collect();
                let names = Names::new(&names).expect("few names");
                self.send(io, TAG, &Tmessage::Walk { fid: ROOT, newfid: FILE, names });
                self.state = State::Walking;
                None
            }
            (State::Walking, TAG, Rmessage::Walk { .. }) => {
                let flags = self.access as u32;
                self.send(io, TAG, &Tmessage::Lopen { fid: FILE, flags });
                self.state = State::Opening;
                None
            }
            (State::Opening, TAG, Rmessage::Lopen { .. }) => {
                self.state = State::Open;
                Some(StreamEvent::Opened)
            }
            (State::Open, READ_TAG, Rmessage::Read { data }) => {
                self.read += data.0.len() as u64;
                Some(StreamEvent::Data(data.0.to_vec()))
            }
            (State::Open, tag, Rmessage::Write { .. }) if tag >= WRITE_TAGS => {
                Some(StreamEvent::Written)
            }
            (State::Open, _, Rmessage::Lerror { .. }) => Some(StreamEvent::Refused),
            // Replies after the connection was abandoned are ignored.
            (State::Closed, ..) => None,
            (state, tag, reply) => panic!("tag {tag}: {reply:?} while {state:?}"),
        }
    }
}
