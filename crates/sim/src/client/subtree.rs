//! A client that reads streams of subtrees while others change them, and leaves some of them early.
//! Records must be well-formed; a directory that nobody changes must be whole.

use super::{Client, Io, whole_messages};
use base::Instant;
use base::op::Listener;
use std::collections::BTreeMap;
use std::time::Duration;
use wire::ninep::{Data, NO_FID, NO_TAG, Names, Rmessage, Tmessage};
use wire::subtree::{CONTENT_MAX, Record, decode};

/// Fids of the root and of the stream.
const ROOT: u32 = 1;
const STREAM: u32 = 2;

/// Requests of streams.
const REQUESTS: [&str; 8] = [
    "contents /shared",
    "contents /shared",
    "attributes /busy",
    "attributes /",
    "contents /",
    "contents /missing",
    "contents /shared/small",
    "nonsense",
];

/// Maximum number of outstanding reads.
const READS_MAX: usize = 3;

/// The client.
#[derive(Debug)]
pub struct SubtreeReader {
    listener: Listener,
    /// Files of `/shared`.
    shared: Vec<(String, Vec<u8>)>,
    phase: Phase,
    input: Vec<u8>,
    /// Number of streams left.
    left: u32,
    next_tag: u16,
    outstanding: BTreeMap<u16, Requested>,
    stream: Stream,
    begun: Instant,
}

/// State of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Waiting to connect.
    Away,
    /// Waiting for replies.
    Working,
    /// Waiting for the connection to close.
    Leaving,
    /// Done.
    Done,
}

/// A message sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Requested {
    Version,
    Attach,
    Walk,
    Open,
    Write,
    Read,
    /// A read of a stream that is closed.
    ReadLeft,
    Clunk,
}

/// The records of a stream.
#[derive(Debug, Default)]
struct Stream {
    request: &'static str,
    /// Bytes received and not decoded.
    bytes: Vec<u8>,
    /// Whether a directory has begun and not ended, and the number of those that have begun.
    is_within: bool,
    directories: usize,
    /// Sizes of the entries of the first directory, by name; contents of its files.
    entries: BTreeMap<String, Option<u64>>,
    contents: BTreeMap<String, Vec<u8>>,
    errno: Option<u32>,
    is_over: bool,
}

impl SubtreeReader {
    /// Returns a client that reads this number of streams; the files in `/shared` do not change.
    pub fn new(listener: Listener, shared: Vec<(String, Vec<u8>)>, times: u32) -> SubtreeReader {
        SubtreeReader {
            listener,
            shared,
            phase: Phase::Away,
            input: Vec::new(),
            left: times,
            next_tag: 0,
            outstanding: BTreeMap::new(),
            stream: Stream::default(),
            begun: Instant(0),
        }
    }

    fn ask(&mut self, io: &mut Io<'_>, requested: Requested) {
        let count = io.rng().u32(1..8000);
        let message = match requested {
            Requested::Version => Tmessage::Version { msize: 8192, version: b"9P2000.L" },
            Requested::Attach => {
                let (uname, aname, uid): (&[u8], &[u8], _) = (b"", b"/", Some(0));
                Tmessage::Attach { fid: ROOT, afid: NO_FID, uname, aname, uid }
            }
            Requested::Walk => {
                let names = Names::new(&[b".upcall", b"subtree"]).expect("two");
                Tmessage::Walk { fid: ROOT, newfid: STREAM, names }
            }
            Requested::Open => Tmessage::Lopen { fid: STREAM, flags: 2 },
            Requested::Write => {
                let data = Data(self.stream.request.as_bytes());
                Tmessage::Write { fid: STREAM, offset: 0, data }
            }
            Requested::Read | Requested::ReadLeft => {
                Tmessage::Read { fid: STREAM, offset: 0, count }
            }
            Requested::Clunk => Tmessage::Clunk { fid: STREAM },
        };
        let tag = if requested == Requested::Version { NO_TAG } else { self.next_tag };
        self.next_tag = (self.next_tag + 1) % 1000;
        let before = self.outstanding.insert(tag, requested);
        assert_eq!(before, None, "few messages are outstanding");
        let mut bytes = Vec::new();
        message.encode(tag, &mut bytes);
        io.send(&bytes);
    }

    fn begin_stream(&mut self, io: &mut Io<'_>) {
        if self.left == 0 || io.is_stopped() {
            return self.leave(io);
        }
        self.left -= 1;
        self.begun = io.now();
        let request = REQUESTS[io.rng().usize(..REQUESTS.len())];
        self.stream = Stream { request, ..Stream::default() };
        self.ask(io, Requested::Walk);
    }

    fn message(&mut self, io: &mut Io<'_>, tag: u16, reply: &Rmessage<'_>) {
        io.judged();
        let requested = self.outstanding.remove(&tag).expect("a message was sent");
        if self.phase != Phase::Working {
            return;
        }
        match (requested, reply) {
            (Requested::Version, Rmessage::Version { .. }) => self.ask(io, Requested::Attach),
            (Requested::Attach, Rmessage::Attach { .. }) => self.begin_stream(io),
            (Requested::Walk, Rmessage::Walk { qids }) => {
                assert_eq!(qids.as_slice().len(), 2, "the file is there");
                self.ask(io, Requested::Open);
            }
            (Requested::Open, Rmessage::Lopen { .. }) => self.ask(io, Requested::Write),
            (Requested::Write, Rmessage::Write { count }) => {
                assert_eq!(*count as usize, self.stream.request.len());
                assert_ne!(self.stream.request, "nonsense", "it was taken");
                self.read_on(io);
            }
            (Requested::Write, Rmessage::Lerror { ecode: 22 })
                if self.stream.request == "nonsense" =>
            {
                self.ask(io, Requested::Clunk);
            }
            // It may have been answered before the stream was closed.
            (Requested::ReadLeft, Rmessage::Read { .. } | Rmessage::Lerror { ecode: 4 }) => {}
            (Requested::Read, Rmessage::Read { data }) => {
                self.stream.take(data.0);
                self.read_on(io);
            }
            (Requested::Clunk, Rmessage::Clunk {}) => self.begin_stream(io),
            (requested, reply) => {
                // Of streams that were left, requests may be in progress.
                let is_full =
                    requested == Requested::Open && *reply == Rmessage::Lerror { ecode: 24 };
                let is_expected = is_full || io.is_stopped() || io.was_injected(self.begun, None);
                assert!(is_expected, "{requested:?}: {reply:?}");
                self.leave(io);
            }
        }
    }

    /// Sends reads, up to the end of the stream or before.
    fn read_on(&mut self, io: &mut Io<'_>) {
        if self.stream.is_over {
            if !self.outstanding.values().any(|requested| *requested == Requested::Read) {
                self.judge(io);
                self.ask(io, Requested::Clunk);
            }
            return;
        }
        match io.rng().u32(..80) {
            0 => {
                self.outstanding
                    .values_mut()
                    .for_each(|requested| *requested = Requested::ReadLeft);
                self.ask(io, Requested::Clunk);
            }
            1 => {
                self.phase = Phase::Leaving;
                io.reset();
            }
            2 => self.leave(io),
            _ => {
                let reads = io.rng().usize(1..=READS_MAX);
                let is_read = |requested: &&Requested| **requested == Requested::Read;
                while self.outstanding.values().filter(is_read).count() < reads {
                    self.ask(io, Requested::Read);
                }
            }
        }
    }

    /// Checks a stream that was read to its end.
    fn judge(&self, io: &Io<'_>) {
        let Stream { request, bytes, is_within, entries, contents, errno, .. } = &self.stream;
        if io.is_stopped() || io.was_injected(self.begun, None) {
            return;
        }
        assert!(bytes.is_empty() && !is_within, "{request}: the stream breaks off");
        match *request {
            "contents /shared" => {
                let sizes = self.shared.iter().map(|(name, data)| (name, Some(data.len() as u64)));
                assert!(entries.iter().map(|(name, size)| (name, *size)).eq(sorted(sizes)));
                let small =
                    |(_, data): &&(String, Vec<u8>)| (1..=CONTENT_MAX).contains(&data.len());
                let files = self.shared.iter().filter(small).map(|(name, data)| (name, data));
                assert!(contents.iter().eq(sorted(files)), "{:?}", contents.keys());
            }
            "contents /missing" => assert_eq!((entries.len(), *errno), (0, Some(2))),
            "contents /shared/small" => assert_eq!((entries.len(), *errno), (0, Some(20))),
            "attributes /busy" => {
                let constant = entries.keys().filter(|name| name.starts_with("keep-")).count();
                assert_eq!((constant, *errno), (io.env.params.entries, None));
            }
            _whole => assert!(entries.contains_key("shared"), "{entries:?}"),
        }
    }

    fn leave(&mut self, io: &mut Io<'_>) {
        self.phase = Phase::Leaving;
        io.finish();
    }
}

fn sorted<K: Ord, V>(pairs: impl Iterator<Item = (K, V)>) -> impl Iterator<Item = (K, V)> {
    pairs.collect::<BTreeMap<K, V>>().into_iter()
}

impl Stream {
    /// Decodes what was read; nothing is the end.
    fn take(&mut self, data: &[u8]) {
        assert!(!self.is_over || data.is_empty(), "the end is the end");
        self.is_over = data.is_empty();
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.extend_from_slice(data);
        let mut taken = 0;
        while let Some((record, size)) = decode(&bytes[taken..]).expect("records are valid") {
            self.add(&record);
            taken += size;
        }
        bytes.drain(..taken);
        self.bytes = bytes;
    }

    fn add(&mut self, record: &Record<'_>) {
        let string = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let is_first = self.directories == 1;
        match record {
            Record::Directory { path, .. } => {
                assert!(!self.is_within, "directories come one after the other");
                assert_eq!(path.is_empty(), self.directories == 0, "the first is the top");
                (self.is_within, self.directories) = (true, self.directories + 1);
            }
            Record::Entry { qid, name, attributes, .. } => {
                assert!(self.is_within, "an entry outside of directories");
                let size = attributes.as_ref().map(|attributes| match attributes {
                    Rmessage::Getattr { qid: of, size, .. } => {
                        assert_eq!(qid.path, of.path, "attributes of another file");
                        *size
                    }
                    other => panic!("{other:?}"),
                });
                if is_first {
                    let before = self.entries.insert(string(name), size);
                    assert_eq!(before, None, "{} is listed twice", string(name));
                }
            }
            Record::End => assert!(std::mem::take(&mut self.is_within), "nothing has begun"),
            Record::Failed { errno } => {
                assert!(std::mem::take(&mut self.is_within), "nothing has begun");
                self.errno = self.errno.or(is_first.then_some(*errno));
            }
            Record::Content { name, data, .. } => {
                assert!(!self.is_within && data.len() <= CONTENT_MAX, "{} bytes", data.len());
                assert!(self.request.starts_with("contents"), "{} has contents", string(name));
                if is_first {
                    self.contents.insert(string(name), data.to_vec());
                }
            }
        }
    }
}

impl Client for SubtreeReader {
    fn wake(&mut self, io: &mut Io<'_>) {
        if self.phase != Phase::Away {
            return;
        }
        if self.left == 0 || io.is_stopped() {
            self.phase = Phase::Done;
            return;
        }
        self.input.clear();
        self.outstanding.clear();
        self.begun = io.now();
        self.phase = Phase::Leaving;
        if io.connect(self.listener) {
            self.phase = Phase::Working;
            self.ask(io, Requested::Version);
        }
    }

    fn received(&mut self, io: &mut Io<'_>, bytes: &[u8]) {
        for message in whole_messages(&mut self.input, bytes) {
            let (tag, reply) = Rmessage::decode(&message).expect("answers can be decoded");
            self.message(io, tag, &reply);
        }
    }

    fn ended(&mut self, io: &mut Io<'_>) {
        let expected = self.phase == Phase::Leaving || io.may_be_cut();
        assert!(expected, "the server hung up while {:?}", self.outstanding);
        self.phase = Phase::Leaving;
    }

    fn closed(&mut self, io: &mut Io<'_>) {
        self.phase = Phase::Away;
        io.wake_in(Duration::from_millis(5));
    }

    fn finish(&mut self, _io: &mut Io<'_>) {
        assert!(matches!(self.phase, Phase::Away | Phase::Done), "never came to rest: {self:?}");
    }

    fn is_done(&self) -> bool {
        self.phase == Phase::Done
    }
}
