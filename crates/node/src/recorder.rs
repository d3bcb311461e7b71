//! The recorder: captures the file I/O of clients.
//!
//! It observes the inputs and outputs of the namespace, which the requests of all sessions of all
//! nodes pass, and never changes anything. Records are handed out in batches, which the node's
//! driver passes to a writer that must not block it.
//!
//! ```text
//!   sessions ──asked──▶ names ──▶ trees         Books: which node has which path,
//!      ▲        │         │                            which open file is which file
//!      └────────┼─────────┴─answered
//!               ▼           ▼
//!            pending ───▶ done in this turn ──end of turn──▶ batch ──▶ the driver
//! ```
//!
//! **Contents.** Records describe completed I/O: a read that met the end of the file has the length
//! of its data; empty reads and failures are not recorded. Requests on directories, attributes and
//! the server's own files are no file I/O. A length is at most `u32::MAX`.
//!
//! **Times.** An I/O begins with the turn that received it, and ends with the turn that answered
//! it, when all responses are sent. For another node's requests these are the turns of the node
//! that has the files.
//!
//! **Files** are identified by paths: a renamed file is another one when it is looked up again, and
//! I/O on existing open files still counts for the old one. A file that was not used for long gets
//! a new number: the path identifies it.

mod books;
#[cfg(test)]
mod tests;

use base::{Error, Instant, Stat};
use books::{Books, File, Open};
use std::collections::BTreeMap;
use std::mem;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tree::{Ask, NodeId, OpenId, Reply, RequestId};

/// Approximate maximum number of I/Os in a batch: a turn with more completions may exceed it.
pub const BATCH: usize = 1024;

/// Maximum time that an I/O waits for others of its batch.
pub const BATCH_TIME: Duration = Duration::from_millis(100);

/// Kind of an I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Read.
    Read,
    /// Write.
    Write,
    /// Sync: earlier writes are durable.
    Sync,
    /// Truncation.
    Trim,
    /// Creation.
    Create,
    /// Removal.
    Remove,
}

/// A completed I/O of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// Time of the request.
    pub at: Instant,
    /// Time of the response.
    pub until: Instant,
    /// Kind.
    pub act: Act,
    /// Number of the file; it may be reused after 2³² others.
    pub file: u32,
    /// The file's path in the namespace.
    pub path: Arc<str>,
    /// Offset, bytes.
    pub offset: u64,
    /// Length, bytes.
    pub len: u32,
    /// Slot of the connection, which may be reused after its end.
    pub stream: u32,
}

/// Fate of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// Accepted for writing.
    Taken,
    /// Dropped, for lack of room.
    Lost,
    /// The recording has ended: nothing can be written any more.
    Ended,
}

/// Counters of recorded I/Os.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// I/Os accepted for writing.
    pub taken: u64,
    /// I/Os dropped, for lack of room.
    pub lost: u64,
}

/// Properties of a request in flight.
#[derive(Debug)]
enum Requested {
    /// Walk to this path.
    Walk(Arc<str>),
    /// Open of the file at this path, perhaps with truncation.
    Open(Arc<str>, base::Access),
    /// Open of the file at this path, perhaps with truncation, or its creation.
    Create(Arc<str>, base::Access),
    /// New file under this path, which replaces any existing one.
    CreateAnew(Arc<str>, base::Access),
    /// Creation of a plain file.
    Make(Arc<str>),
    /// Fetch of the file at this path, with its first bytes.
    Fetch(Arc<str>),
    /// Read at this offset.
    Read(Rc<File>, u64),
    /// Write at this offset.
    Write(Open, u64),
    Sync(Rc<File>),
    /// Change of the size to this value, bytes.
    Size(Rc<File>, u64),
    Remove(Rc<File>),
}

/// The recorder.
#[derive(Debug)]
pub(crate) struct Recorder {
    books: Books,
    /// Requests that may become I/O, with their times. Bounded by the node's admission control.
    pending: BTreeMap<RequestId, (Instant, Requested)>,
    /// Records not yet handed out; those from `fresh` on were answered in this turn.
    batch: Vec<Recorded>,
    fresh: usize,
    /// Whether the batch is due.
    ripe: bool,
    tally: Tally,
    ended: bool,
}

impl Recorder {
    /// Creates a recorder for the namespace with this root; with `service`, it contains the
    /// server's own files.
    pub(crate) fn new(root: NodeId, service: bool) -> Recorder {
        Recorder {
            books: Books::new(root, service),
            pending: BTreeMap::new(),
            batch: Vec::new(),
            fresh: 0,
            ripe: false,
            tally: Tally::default(),
            ended: false,
        }
    }

    /// Observes an input of the namespace.
    pub(crate) fn see(&mut self, now: Instant, input: &names::Input) {
        use names::Input;
        if self.ended {
            // The recording has ended; releases of handles need no tracking either.
            return;
        }
        match input {
            Input::Ask(id, request) => self.requested(now, *id, &request.ask),
            Input::Release(node) => self.books.release(*node),
            Input::Close(open) | Input::Abandon(open) => self.books.close(*open),
            Input::Cancel(_) | Input::Answered(..) | Input::Change(..) => {}
        }
    }

    /// Records a request.
    fn requested(&mut self, now: Instant, id: RequestId, ask: &Ask) {
        if let Some(requested) = self.books.understand(ask) {
            self.pending.insert(id, (now, requested));
        }
    }

    /// Records a reply.
    pub(crate) fn answered(&mut self, id: RequestId, reply: &Result<Reply, Error>) {
        let Some((at, requested)) = self.pending.remove(&id) else { return };
        if let Ok(reply) = reply {
            let stream = (id.0 >> 32) as u32;
            self.done(RequestOrigin { at, stream }, requested, reply);
        }
    }

    fn done(&mut self, whose: RequestOrigin, requested: Requested, reply: &Reply) {
        match (requested, reply) {
            (Requested::Walk(path), Reply::Walked(stats, Some(node))) => {
                self.books.hold(*node, path, stats.last());
            }
            (Requested::Open(path, access), Reply::Opened(open, stat)) => {
                self.opened(whose, path, access, *open, stat);
            }
            (Requested::Create(path, access), Reply::Created(node, open, stat)) => {
                if stat.size == 0 && self.books.known(&path).is_none_or(|file| file.size() == 0) {
                    self.made(whose, path.clone());
                }
                self.opened(whose, path.clone(), access, *open, stat);
                self.books.hold(*node, path, None);
            }
            (Requested::CreateAnew(path, access), Reply::Created(node, open, stat)) => {
                self.books.known(&path).iter().for_each(|file| file.set_size(0));
                self.made(whose, path.clone());
                self.opened(whose, path.clone(), access, *open, stat);
                self.books.hold(*node, path, None);
            }
            (Requested::Make(path), _made) => self.made(whose, path),
            (Requested::Fetch(path), Reply::Fetched(stat, data, open)) => {
                if let Some(file) = self.books.file(path, stat) {
                    self.note(whose, Act::Read, &file, 0, data.len());
                    if let Some(open) = open {
                        self.books.open(*open, Open { file, append: false });
                    }
                }
            }
            (Requested::Read(file, offset), Reply::Data(data)) => {
                self.note(whose, Act::Read, &file, offset, data.len());
            }
            (Requested::Read(file, offset), Reply::Pieces(pieces)) => {
                let len = pieces.iter().map(|piece| piece.len()).sum();
                self.note(whose, Act::Read, &file, offset, len);
            }
            (Requested::Write(Open { file, append }, offset), Reply::Written(len)) => {
                let offset = if append { file.size() } else { offset };
                file.set_size(file.size().max(offset.saturating_add(u64::from(*len))));
                self.note(whose, Act::Write, &file, offset, *len as usize);
            }
            (Requested::Sync(file), _done) => self.push(whose, Act::Sync, &file, 0, 0),
            (Requested::Size(file, size), _done) => self.cut(whose, &file, size),
            (Requested::Remove(file), _done) => {
                self.push(whose, Act::Remove, &file, 0, 0);
                self.books.forget(&file);
            }
            // An incomplete walk. Other replies do not occur.
            (_asked, _reply) => {}
        }
    }

    fn opened(
        &mut self,
        whose: RequestOrigin,
        path: Arc<str>,
        access: base::Access,
        open: OpenId,
        stat: &Stat,
    ) {
        let before = self.books.known(&path).map_or(0, |file| file.size());
        let Some(file) = self.books.file(path, stat) else { return };
        if access.truncate {
            file.set_size(before);
            self.cut(whose, &file, 0);
        }
        self.books.open(open, Open { file, append: access.append });
    }

    fn made(&mut self, whose: RequestOrigin, path: Arc<str>) {
        let stat = Stat { kind: base::Kind::File, ..Stat::default() };
        if let Some(file) = self.books.file(path, &stat) {
            self.push(whose, Act::Create, &file, 0, 0);
        }
    }

    /// Records a change of a file's size.
    fn cut(&mut self, whose: RequestOrigin, file: &Rc<File>, size: u64) {
        let gone = file.size().saturating_sub(size);
        file.set_size(size);
        self.note(whose, Act::Trim, file, size, usize::try_from(gone).unwrap_or(usize::MAX));
    }

    /// Records a transfer, if it was not empty.
    fn note(&mut self, whose: RequestOrigin, act: Act, file: &Rc<File>, offset: u64, len: usize) {
        if len > 0 {
            self.push(whose, act, file, offset, u32::try_from(len).unwrap_or(u32::MAX));
        }
    }

    fn push(&mut self, whose: RequestOrigin, act: Act, file: &Rc<File>, offset: u64, len: u32) {
        let RequestOrigin { at, stream } = whose;
        let (number, path) = (file.number, file.path.clone());
        let until = at;
        self.batch.push(Recorded { at, until, act, file: number, path, offset, len, stream });
    }

    /// Ends a turn, which is the time of its responses.
    pub(crate) fn end_turn(&mut self, now: Instant) {
        for recorded in &mut self.batch[self.fresh..] {
            recorded.until = now;
        }
        self.fresh = self.batch.len();
        let due = self.deadline().is_some_and(|at| at <= now);
        self.ripe = due || self.fresh >= BATCH;
    }

    /// Returns the time at which an incomplete batch is due.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.batch.first().map(|first| first.until + BATCH_TIME)
    }

    /// Takes the batch that is due; with `all`, whatever there is.
    pub(crate) fn take(&mut self, all: bool) -> Option<Vec<Recorded>> {
        if self.batch.is_empty() || !(all || self.ripe) {
            return None;
        }
        (self.ripe, self.fresh) = (false, 0);
        Some(mem::take(&mut self.batch))
    }

    /// Counts I/Os by the fate of their batch.
    pub(crate) fn kept(&mut self, count: usize, kept: Kept) {
        match kept {
            Kept::Taken => self.tally.taken += count as u64,
            Kept::Lost => self.tally.lost += count as u64,
            Kept::Ended => {
                self.ended = true;
                self.books.clear();
                self.pending.clear();
                self.batch.clear();
                self.fresh = 0;
            }
        }
    }

    /// Returns the counters.
    pub(crate) fn tally(&self) -> Tally {
        self.tally
    }

    /// Returns the state as one word.
    pub(crate) fn state_name(&self) -> &'static str {
        if self.ended { "Ended" } else { "Recording" }
    }

    /// Returns whether no node or open file is tracked, as after the end of all sessions.
    pub(crate) fn is_idle(&self) -> bool {
        self.ended || (self.pending.is_empty() && self.books.is_idle())
    }

    pub(crate) fn check(&self) {
        assert!(self.fresh <= self.batch.len());
        assert!(!self.ended || self.pending.is_empty() && self.batch.is_empty());
        self.books.check();
    }
}

/// Time and originator of a request.
#[derive(Clone, Copy, Debug)]
struct RequestOrigin {
    at: Instant,
    stream: u32,
}
