//! The recorder: notes every I/O that clients ask of files, for whoever writes it down.
//!
//! It looks at what goes into the name space and what comes out, where the requests of all
//! sessions of all nodes pass, and never changes anything. What it notes it hands out in batches,
//! which the node's driver gives to whoever writes them down and must not keep it waiting.
//!
//! ```text
//!   sessions ──asked──▶ names ──▶ trees         Books: which node has which path,
//!      ▲        │         │                            which open file is which file
//!      └────────┼─────────┴─answered
//!               ▼           ▼
//!            pending ───▶ done in this turn ──end of turn──▶ batch ──▶ the driver
//! ```
//!
//! **What is noted** is what was done: a read that met the end of the file is as long as what it
//! got, and one that got nothing is not noted, nor is what failed. What is asked of directories,
//! attributes and the server's own files is no I/O of files. A length is at most `u32::MAX`.
//!
//! **Times**: an I/O begins with the turn that brought it, and takes until the end of the turn
//! that answered it, when all answers leave. Of another node's requests these are the turns of the
//! node that has the files.
//!
//! **Files** are paths: a file that is renamed is another one when it is found again, and who has
//! it open still does I/O to the first. Its number is new when it was not used for long: the path
//! says which it is.

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

/// About how many I/Os a batch has at most: as many as are answered in one turn may be more.
pub const BATCH: usize = 1024;

/// How long an I/O waits for others of its batch.
pub const BATCH_TIME: Duration = Duration::from_millis(100);

/// What was done to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Bytes were read.
    Read,
    /// Bytes were written.
    Write,
    /// What was written was made durable.
    Sync,
    /// Bytes were cut off its end.
    Trim,
    /// It was made.
    Create,
    /// It was removed.
    Remove,
}

/// One I/O that a client asked for, and that was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// When it was asked for.
    pub at: Instant,
    /// When it was answered.
    pub until: Instant,
    /// What.
    pub act: Act,
    /// The number of the file; another file may get it after 2³² others.
    pub file: u32,
    /// The file's path in the name space.
    pub path: Arc<str>,
    /// Where, bytes.
    pub offset: u64,
    /// How much, bytes.
    pub len: u32,
    /// Whose it is: the place of a connection, which another one may take when it has ended.
    pub stream: u32,
}

/// What became of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// It is going to be written down.
    Taken,
    /// It is lost: there was no room for it.
    Lost,
    /// Nothing can be written down any more: the recording has ended.
    Ended,
}

/// How many I/Os became what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Given to be written down.
    pub taken: u64,
    /// Lost, because there was no room.
    pub lost: u64,
}

/// What is known of a request that is under way.
#[derive(Debug)]
enum Asked {
    /// A walk to this path.
    Walk(Arc<str>),
    /// An open of what has this path, which may cut all of it off.
    Open(Arc<str>, base::Access),
    /// The same, and it is made if it is not there.
    Create(Arc<str>, base::Access),
    /// A file that will take this name, whatever bears it now.
    CreateAnew(Arc<str>, base::Access),
    /// A plain file is made here.
    Make(Arc<str>),
    /// What has this path is found and opened, and its first bytes are read.
    Fetch(Arc<str>),
    /// A read from here.
    Read(Rc<File>, u64),
    /// A write to here.
    Write(Open, u64),
    Sync(Rc<File>),
    /// It becomes so long.
    Size(Rc<File>, u64),
    Remove(Rc<File>),
}

/// The recorder.
#[derive(Debug)]
pub(crate) struct Recorder {
    books: Books,
    /// Requests that may become I/O, and when they were asked. Bounded: the node admits so many.
    pending: BTreeMap<RequestId, (Instant, Asked)>,
    /// Noted and not yet handed out; those from `fresh` on were answered in this turn.
    batch: Vec<Recorded>,
    fresh: usize,
    /// Whether the batch is to be handed out.
    ripe: bool,
    tally: Tally,
    ended: bool,
}

impl Recorder {
    /// Knows the root of the name space; with `service`, the server's own files are in it.
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

    /// Something goes into the name space.
    pub(crate) fn see(&mut self, now: Instant, input: &names::Input) {
        use names::Input;
        if self.ended {
            // The books are closed, also for what is given back that stood in them.
            return;
        }
        match input {
            Input::Ask(id, request) => self.asked(now, *id, &request.ask),
            Input::Release(node) => self.books.release(*node),
            Input::Close(open) | Input::Abandon(open) => self.books.close(*open),
            Input::Cancel(_) | Input::Answered(..) | Input::Change(..) => {}
        }
    }

    /// A client asks.
    fn asked(&mut self, now: Instant, id: RequestId, ask: &Ask) {
        if let Some(asked) = self.books.understand(ask) {
            self.pending.insert(id, (now, asked));
        }
    }

    /// It is answered.
    pub(crate) fn answered(&mut self, id: RequestId, reply: &Result<Reply, Error>) {
        let Some((at, asked)) = self.pending.remove(&id) else { return };
        if let Ok(reply) = reply {
            let stream = (id.0 >> 32) as u32;
            self.done(Whose { at, stream }, asked, reply);
        }
    }

    fn done(&mut self, whose: Whose, asked: Asked, reply: &Reply) {
        match (asked, reply) {
            (Asked::Walk(path), Reply::Walked(stats, Some(node))) => {
                self.books.hold(*node, path, stats.last());
            }
            (Asked::Open(path, access), Reply::Opened(open, stat)) => {
                self.opened(whose, path, access, *open, stat);
            }
            (Asked::Create(path, access), Reply::Created(node, open, stat)) => {
                if stat.size == 0 && self.books.known(&path).is_none_or(|file| file.size() == 0) {
                    self.made(whose, path.clone());
                }
                self.opened(whose, path.clone(), access, *open, stat);
                self.books.hold(*node, path, None);
            }
            (Asked::CreateAnew(path, access), Reply::Created(node, open, stat)) => {
                self.books.known(&path).iter().for_each(|file| file.set_size(0));
                self.made(whose, path.clone());
                self.opened(whose, path.clone(), access, *open, stat);
                self.books.hold(*node, path, None);
            }
            (Asked::Make(path), _made) => self.made(whose, path),
            (Asked::Fetch(path), Reply::Fetched(stat, data, open)) => {
                if let Some(file) = self.books.file(path, stat) {
                    self.note(whose, Act::Read, &file, 0, data.len());
                    if let Some(open) = open {
                        self.books.open(*open, Open { file, append: false });
                    }
                }
            }
            (Asked::Read(file, offset), Reply::Data(data)) => {
                self.note(whose, Act::Read, &file, offset, data.len());
            }
            (Asked::Read(file, offset), Reply::Pieces(pieces)) => {
                let len = pieces.iter().map(|piece| piece.len()).sum();
                self.note(whose, Act::Read, &file, offset, len);
            }
            (Asked::Write(Open { file, append }, offset), Reply::Written(len)) => {
                let offset = if append { file.size() } else { offset };
                file.set_size(file.size().max(offset.saturating_add(u64::from(*len))));
                self.note(whose, Act::Write, &file, offset, *len as usize);
            }
            (Asked::Sync(file), _done) => self.push(whose, Act::Sync, &file, 0, 0),
            (Asked::Size(file, size), _done) => self.cut(whose, &file, size),
            (Asked::Remove(file), _done) => {
                self.push(whose, Act::Remove, &file, 0, 0);
                self.books.forget(&file);
            }
            // A walk that did not come to its end. No tree gives another answer.
            (_asked, _reply) => {}
        }
    }

    fn opened(
        &mut self,
        whose: Whose,
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

    fn made(&mut self, whose: Whose, path: Arc<str>) {
        let stat = Stat { kind: base::Kind::File, ..Stat::default() };
        if let Some(file) = self.books.file(path, &stat) {
            self.push(whose, Act::Create, &file, 0, 0);
        }
    }

    /// The file becomes so long.
    fn cut(&mut self, whose: Whose, file: &Rc<File>, size: u64) {
        let gone = file.size().saturating_sub(size);
        file.set_size(size);
        self.note(whose, Act::Trim, file, size, usize::try_from(gone).unwrap_or(usize::MAX));
    }

    /// Notes what went over, if anything did.
    fn note(&mut self, whose: Whose, act: Act, file: &Rc<File>, offset: u64, len: usize) {
        if len > 0 {
            self.push(whose, act, file, offset, u32::try_from(len).unwrap_or(u32::MAX));
        }
    }

    fn push(&mut self, whose: Whose, act: Act, file: &Rc<File>, offset: u64, len: u32) {
        let Whose { at, stream } = whose;
        let (number, path) = (file.number, file.path.clone());
        let until = at;
        self.batch.push(Recorded { at, until, act, file: number, path, offset, len, stream });
    }

    /// A turn ends now: what was answered in it is.
    pub(crate) fn end_turn(&mut self, now: Instant) {
        for recorded in &mut self.batch[self.fresh..] {
            recorded.until = now;
        }
        self.fresh = self.batch.len();
        let due = self.deadline().is_some_and(|at| at <= now);
        self.ripe = due || self.fresh >= BATCH;
    }

    /// When the batch is to be handed out although it is not full.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.batch.first().map(|first| first.until + BATCH_TIME)
    }

    /// What is to be handed out now; with `all`, whatever there is.
    pub(crate) fn take(&mut self, all: bool) -> Option<Vec<Recorded>> {
        if self.batch.is_empty() || !(all || self.ripe) {
            return None;
        }
        (self.ripe, self.fresh) = (false, 0);
        Some(mem::take(&mut self.batch))
    }

    /// So many I/Os that were handed out became this.
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

    /// How many I/Os became what.
    pub(crate) fn tally(&self) -> Tally {
        self.tally
    }

    /// What it is doing, for those who look.
    pub(crate) fn state_name(&self) -> &'static str {
        if self.ended { "Ended" } else { "Recording" }
    }

    /// Whether nobody has anything of what it knows, as is so when all sessions have ended.
    pub(crate) fn is_idle(&self) -> bool {
        self.ended || (self.pending.is_empty() && self.books.is_idle())
    }

    pub(crate) fn check(&self) {
        assert!(self.fresh <= self.batch.len());
        assert!(!self.ended || self.pending.is_empty() && self.batch.is_empty());
        self.books.check();
    }
}

/// When something was asked, and by whom.
#[derive(Clone, Copy, Debug)]
struct Whose {
    at: Instant,
    stream: u32,
}
