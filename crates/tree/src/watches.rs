//! Change notification: `/.upcall/watch`, a file to which paths are written, and from which a line
//! is read for each change.
//!
//! The node passes every change of a tree to [`Watches::publish`]. An open of the file is a watch:
//! of [paths], which reports changes by path as its user can see them, or of all files,
//! which reports them by number, for clients that cache files. Both are bounded by what there is to
//! watch, not by the number of changes: a slow reader of paths gets the present state, and one of
//! all files learns that it has lost some.

mod beneath;
mod doing;
mod line;
mod log;
mod paths;
mod place;
#[cfg(test)]
mod tests;
mod text;

use crate::change::Change;
use crate::request::{AsClient, NodeId, Reply, RequestId, StreamOutput};
use base::op::ClientKey;
use base::{Buf, Caller, Error, Instant};
pub(crate) use log::BYTES_MAX;
use log::Log;
use paths::Paths;
use slab::Slab;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::mem;
use std::time::Duration;

/// Maximum number of watches.
pub(crate) const WATCHES_MAX: usize = 1024;

/// Maximum number of open watches of a client, and of those that are closed, while their entries
/// are removed.
const WATCHES_OF_CLIENT_MAX: usize = 64;

/// Maximum number of directories and entries of a watch.
const ENTRIES_MAX: usize = 65_536;

/// Size of unread lines at which a watch does not look at further changes, bytes.
const LINES_MAX: usize = 64 << 10;

/// Maximum length of a line written, bytes.
const WRITTEN_MAX: usize = 4096;

/// Maximum steps of all watches in a turn: a removed or listed entry is one, and a request or its
/// reply counts as this many.
const STEPS_MAX: usize = 64;
const REQUEST_STEPS: usize = 8;

/// Maximum number of waiting reads of a watch.
const READS_MAX: usize = 16;

/// Time without changes after which an empty line is sent: by a watch of all files, whose reader
/// caches them until it hears nothing; by one of paths.
const BEAT_ALL: Duration = Duration::from_secs(1);
const BEAT_PATHS: Duration = Duration::from_secs(15);

/// Minimum interval between replies of a watch of all files, and for each of these watches: a reply
/// takes some microseconds.
const PAUSE: Duration = Duration::from_millis(2);
const PAUSE_EACH: Duration = Duration::from_micros(50);

/// The line that makes a watch one of all files.
const ALL: &[u8] = b"*";

/// Outputs of watches and of other streams.
#[derive(Debug)]
pub(crate) enum Output {
    /// The reply to a read.
    Reply(RequestId, Result<Reply, Error>),
    /// A request of a stream, after which `answered` follows, or its releases.
    AsClient(AsClient),
}

/// Changes that are seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// Whether nothing but this server changes the files of the first tree.
    pub is_complete: bool,
    /// Whether entries of a directory may change with those of another one.
    pub has_unions: bool,
}

/// A read that waits for bytes of a stream.
#[derive(Debug)]
pub(crate) struct Read {
    pub(crate) id: RequestId,
    pub(crate) count: usize,
    pub(crate) headroom: usize,
}

impl Read {
    /// Returns the reply with these bytes; none: the end of the stream.
    pub(crate) fn reply(&self, bytes: &[u8]) -> Output {
        assert!(bytes.len() <= self.count, "no more than was requested");
        let mut data = Buf::with_room(self.headroom, bytes.len());
        data.extend(bytes);
        Output::Reply(self.id, Ok(Reply::Data(data)))
    }
}

/// A watch of all files.
#[derive(Debug)]
struct All {
    /// Number of the next change to be read.
    next: u64,
    /// Coverage last announced.
    announced: Option<Coverage>,
    /// Rendered lines that did not fit into a read.
    rest: Vec<u8>,
}

#[derive(Debug)]
enum Kind {
    Paths(Box<Paths>),
    All(All),
}

/// An open watch file.
#[derive(Debug)]
struct Watch {
    caller: Caller,
    /// Connection that opened it: a watch of all files reports the changes of others.
    origin: u32,
    client: ClientKey,
    /// Whether it may know the names of all files.
    may_name: bool,
    kind: Kind,
    /// The reply to its request, until its turn.
    answer: Option<Result<Reply, Error>>,
    /// The beginning of a line.
    written: Vec<u8>,
    reads: VecDeque<Read>,
    /// Time of the last reply to a read.
    replied: Instant,
    alarm: Option<Instant>,
    is_closed: bool,
}

/// All watches.
#[derive(Debug)]
pub(crate) struct Watches {
    root: NodeId,
    /// Device number of the first tree, for numbers of files.
    device: u64,
    log: Log,
    watches: Slab<Watch>,
    /// Numbers of open and of closed watches of each client.
    by_client: BTreeMap<ClientKey, (usize, usize)>,
    /// Those of all files.
    all: BTreeSet<usize>,
    reading: BTreeMap<RequestId, usize>,
    alarms: BTreeSet<(Instant, usize)>,
    /// Watches that may have work at the end of the turn.
    busy: BTreeSet<usize>,
    /// The first watch that may remove entries in the next turn.
    first: usize,
    /// Whether there were changes since the last turn.
    has_news: bool,
    coverage: Coverage,
    has_ended: bool,
}

impl Watches {
    /// Returns no watches of the namespace with this root, on this device.
    pub(crate) fn new(root: NodeId, device: u64) -> Watches {
        Watches {
            root,
            device,
            log: Log::default(),
            watches: Slab::new(),
            by_client: BTreeMap::new(),
            all: BTreeSet::new(),
            reading: BTreeMap::new(),
            alarms: BTreeSet::new(),
            busy: BTreeSet::new(),
            first: 0,
            has_news: false,
            coverage: Coverage::default(),
            has_ended: false,
        }
    }

    /// Sets which changes are seen.
    pub(crate) fn set_coverage(&mut self, coverage: Coverage) {
        if self.coverage != coverage {
            self.coverage = coverage;
            self.has_news = true;
        }
    }

    /// Returns the number of watches, and their memory in bytes.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.watches.len(), self.log.bytes())
    }

    /// Opens a watch, for a connection; `may_name` permits the names of all files.
    ///
    /// # Errors
    /// `TooManyOpen`.
    pub(crate) fn open(
        &mut self,
        now: Instant,
        caller: Caller,
        (client, origin): (ClientKey, u32),
        may_name: bool,
    ) -> Result<usize, Error> {
        let (open, closed) = self.by_client.get(&client).copied().unwrap_or_default();
        let is_full = open.max(closed) >= WATCHES_OF_CLIENT_MAX;
        if self.watches.len() >= WATCHES_MAX || is_full {
            return Err(Error::TooManyOpen);
        }
        self.by_client.insert(client, (open + 1, closed));
        let number = self.watches.vacant_key();
        Ok(self.watches.insert(Watch {
            caller,
            origin,
            may_name,
            client,
            kind: Kind::Paths(Box::new(Paths::new(number, client, self.root))),
            answer: None,
            written: Vec::new(),
            reads: VecDeque::new(),
            replied: now,
            alarm: None,
            is_closed: false,
        }))
    }

    /// Handles a write: each line is a path, or `*` for all files.
    ///
    /// # Errors
    /// `FileTooLarge` for a line of more than [`WRITTEN_MAX`] bytes.
    pub(crate) fn write(&mut self, number: usize, data: &[u8]) -> Result<(), Error> {
        let result = self.watches[number].write(data, &mut self.log);
        self.note_kind(number);
        result
    }

    /// Registers a watch that may have got something to do.
    fn note_kind(&mut self, number: usize) {
        if matches!(self.watches[number].kind, Kind::All(_)) {
            self.all.insert(number);
        }
        self.busy.insert(number);
    }

    /// Handles a read, which waits for changes.
    pub(crate) fn read(
        &mut self,
        number: usize,
        (id, count, headroom): (RequestId, u32, u32),
        out: &mut Vec<Output>,
    ) {
        let watch = &mut self.watches[number];
        if self.has_ended || count == 0 {
            return out.push(Output::Reply(id, Ok(Reply::Data(Buf::default()))));
        }
        if watch.reads.len() >= READS_MAX {
            return out.push(Output::Reply(id, Err(Error::Busy)));
        }
        // Its client has written what it wants, if without an end of the line.
        let line = mem::take(&mut watch.written);
        if !line.is_empty()
            && let Err(error) = watch.add(&line, &mut self.log)
        {
            return out.push(Output::Reply(id, Err(error)));
        }
        let (count, headroom) = (count as usize, headroom as usize);
        watch.reads.push_back(Read { id, count, headroom });
        self.reading.insert(id, number);
        self.note_kind(number);
    }

    /// Cancels a read that waits; returns whether there was one.
    pub(crate) fn cancel(&mut self, id: RequestId, out: &mut Vec<Output>) -> bool {
        let Some(number) = self.reading.remove(&id) else { return false };
        self.watches[number].reads.retain(|read| read.id != id);
        out.push(Output::Reply(id, Err(Error::Cancelled)));
        self.busy.insert(number);
        true
    }

    /// Closes a watch.
    pub(crate) fn close(&mut self, number: usize, out: &mut Vec<Output>) {
        let watch = &mut self.watches[number];
        watch.is_closed = true;
        let (open, closed) = self.by_client.get_mut(&watch.client).expect("it has one");
        (*open, *closed) = (*open - 1, *closed + 1);
        for read in watch.reads.drain(..) {
            self.reading.remove(&read.id);
            out.push(Output::Reply(read.id, Err(Error::Cancelled)));
        }
        if let Some(at) = watch.alarm.take() {
            self.alarms.remove(&(at, number));
        }
        if let Kind::Paths(paths) = &mut watch.kind {
            paths.close();
        }
        self.busy.insert(number);
        self.forget(number);
    }

    /// Removes a closed watch when nothing of it is left.
    fn forget(&mut self, number: usize) {
        let watch = &self.watches[number];
        let has_ended = match &watch.kind {
            Kind::Paths(paths) => paths.has_ended(),
            Kind::All(_) => true,
        };
        if watch.is_closed && has_ended {
            let Watch { client, .. } = self.watches.remove(number);
            let own = self.by_client.get_mut(&client).expect("it has one");
            own.1 -= 1;
            if *own == (0, 0) {
                self.by_client.remove(&client);
            }
            self.all.remove(&number);
            self.busy.remove(&number);
        }
    }

    /// Handles a change, made by a connection.
    pub(crate) fn publish(&mut self, origin: u32, change: Change) {
        if self.watches.is_empty() {
            return;
        }
        let (Change::Entry(key, _)
        | Change::Contents(key)
        | Change::Attributes(key)
        | Change::Moved(key)) = &change;
        for number in self.log.watches_of(*key) {
            if let Kind::Paths(paths) = &mut self.watches[number].kind {
                paths.note(&change);
            }
            self.busy.insert(number);
        }
        self.log.push(origin, change);
        self.has_news = true;
    }

    /// Handles changes that are not known one by one.
    pub(crate) fn lose(&mut self) {
        self.log.lose();
        self.has_news = true;
    }

    /// Takes the reply to a watch's request, which is handled in the watch's turn.
    pub(crate) fn answered(&mut self, number: usize, result: Result<Reply, Error>) {
        let before = self.watches[number].answer.replace(result);
        assert!(before.is_none(), "one request is in progress");
        self.busy.insert(number);
    }

    fn pass(&self, number: usize, outputs: Vec<StreamOutput>, out: &mut Vec<Output>) {
        let caller = &self.watches[number].caller;
        let outputs = outputs.into_iter().map(|output| output.numbered(number as u64, caller));
        out.extend(outputs.map(Output::AsClient));
    }

    /// Continues the watches with something new, and those whose time has come.
    pub(crate) fn tick(&mut self, now: Instant, out: &mut Vec<Output>) {
        while let Some(&(at, number)) = self.alarms.first().filter(|(at, _)| *at <= now) {
            self.alarms.remove(&(at, number));
            self.watches[number].alarm = None;
            self.busy.insert(number);
        }
        if mem::take(&mut self.has_news) {
            let reads = |number: &&usize| !self.watches[**number].reads.is_empty();
            self.busy.extend(self.all.iter().filter(reads));
        }
        // Those behind the one that used up the steps of the last turn come first.
        let mut before = mem::take(&mut self.busy);
        let behind = before.split_off(&self.first);
        let mut left = STEPS_MAX;
        for number in behind.into_iter().chain(before) {
            self.advance(number, &mut left, out);
            if self.watches[number].is_closed {
                self.forget(number);
            } else {
                self.reply(now, number, out);
                self.set_alarm(number);
            }
        }
    }

    /// Continues a watch of paths, by at most about `left` steps.
    fn advance(&mut self, number: usize, left: &mut usize, out: &mut Vec<Output>) {
        let Watch { kind: Kind::Paths(paths), answer, .. } = &mut self.watches[number] else {
            return;
        };
        if *left == 0 {
            self.busy.insert(number);
            return;
        }
        let mut outputs = Vec::new();
        if let Some(result) = answer.take() {
            let entries = match &result {
                Ok(Reply::Entries(entries)) => entries.len(),
                Ok(_) | Err(_) => 0,
            };
            *left = left.saturating_sub(REQUEST_STEPS + entries);
            paths.answered(result, &mut self.log, &mut outputs);
        }
        if paths.advance(left, &mut self.log, &mut outputs) {
            self.busy.insert(number);
        }
        let requests = outputs.iter().filter(|it| matches!(it, StreamOutput::Ask(_))).count();
        *left = left.saturating_sub(requests * REQUEST_STEPS);
        if *left == 0 {
            self.first = number + 1;
        }
        self.pass(number, outputs, out);
    }

    /// Replies to a read, if there is something to say.
    fn reply(&mut self, now: Instant, number: usize, out: &mut Vec<Output>) {
        let watch = &mut self.watches[number];
        let Some(read) = watch.reads.front() else { return };
        let is_new = match &watch.kind {
            Kind::Paths(paths) => paths.has_lines(),
            Kind::All(all) => all.is_behind(&self.log, self.coverage),
        };
        if watch.next_reply(is_new, self.all.len()) > now {
            return;
        }
        let mut bytes = match &mut watch.kind {
            Kind::Paths(paths) => paths.take(read.count),
            Kind::All(all) => {
                if all.announced != Some(self.coverage) {
                    all.announced = Some(self.coverage);
                    line::coverage(self.coverage, watch.may_name, &mut all.rest);
                }
                let known = (watch.origin, self.device, watch.may_name);
                all.take(&self.log, known, read.count)
            }
        };
        if bytes.is_empty() {
            if is_new && watch.replied + BEAT_ALL > now {
                // Only changes of its own client.
                return;
            }
            bytes = line::BEAT.to_vec();
        }
        let read = watch.reads.pop_front().expect("it is the first");
        watch.replied = now;
        self.reading.remove(&read.id);
        out.push(read.reply(&bytes));
        if let Kind::Paths(_) = watch.kind {
            // There may be room for further reports now.
            self.busy.insert(number);
        }
    }

    /// Sets the alarm of a watch to the time of its next reply.
    fn set_alarm(&mut self, number: usize) {
        let watch = &mut self.watches[number];
        let is_new = match &watch.kind {
            Kind::Paths(paths) => paths.has_lines(),
            Kind::All(all) => all.is_behind(&self.log, self.coverage),
        };
        let wanted = (!watch.reads.is_empty()).then(|| watch.next_reply(is_new, self.all.len()));
        if watch.alarm != wanted {
            let old = mem::replace(&mut watch.alarm, wanted);
            old.map(|at| self.alarms.remove(&(at, number)));
            self.alarms.extend(wanted.map(|at| (at, number)));
        }
    }

    /// Returns the time of the next work.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        if self.has_news || !self.busy.is_empty() {
            return Some(Instant(0));
        }
        self.alarms.first().map(|(at, _)| *at)
    }

    /// Ends all streams, for a shutdown.
    pub(crate) fn end(&mut self, out: &mut Vec<Output>) {
        self.has_ended = true;
        self.reading.clear();
        for (number, watch) in &mut self.watches {
            for read in watch.reads.drain(..) {
                out.push(Output::Reply(read.id, Ok(Reply::Data(Buf::default()))));
            }
            if let Some(at) = watch.alarm.take() {
                self.alarms.remove(&(at, number));
            }
        }
    }

    pub(crate) fn check(&self) {
        assert!(self.watches.len() <= WATCHES_MAX);
        let counted: usize = self.by_client.values().map(|(open, closed)| open + closed).sum();
        assert_eq!(counted, self.watches.len());
        self.log.check();
        let reads: usize = self.watches.iter().map(|(_, watch)| watch.reads.len()).sum();
        assert_eq!(reads, self.reading.len(), "waiting reads are known by request");
        for (number, watch) in &self.watches {
            assert_eq!(self.all.contains(&number), matches!(watch.kind, Kind::All(_)));
            assert!(watch.alarm.is_none_or(|at| self.alarms.contains(&(at, number))));
            if let Kind::Paths(paths) = &watch.kind {
                paths.check();
            }
        }
    }
}

impl Watch {
    fn write(&mut self, data: &[u8], log: &mut Log) -> Result<(), Error> {
        for part in data.split_inclusive(|byte| *byte == b'\n') {
            if self.written.len() + part.len() > WRITTEN_MAX {
                self.written.clear();
                return Err(Error::FileTooLarge);
            }
            self.written.extend_from_slice(part);
            if self.written.ends_with(b"\n") {
                self.written.pop();
                let line = mem::take(&mut self.written);
                self.add(&line, log)?;
            }
        }
        Ok(())
    }

    /// Adds what a line says.
    fn add(&mut self, line: &[u8], log: &mut Log) -> Result<(), Error> {
        match &mut self.kind {
            Kind::Paths(paths) if line == ALL && paths.has_no_paths() => {
                let (next, announced, rest) = (log.end(), None, Vec::new());
                self.kind = Kind::All(All { next, announced, rest });
            }
            Kind::Paths(paths) => paths.add(line, log)?,
            Kind::All(_) => return Err(Error::Invalid),
        }
        Ok(())
    }

    /// Returns the time of the next reply to a read; there are this many watches of all files.
    fn next_reply(&self, is_new: bool, all: usize) -> Instant {
        let pause = PAUSE.max(PAUSE_EACH * u32::try_from(all).expect("a thousand"));
        match (&self.kind, is_new) {
            (Kind::Paths(_), true) => Instant(0),
            (Kind::Paths(_), false) => self.replied + BEAT_PATHS,
            (Kind::All(_), true) => self.replied + pause,
            (Kind::All(_), false) => self.replied + BEAT_ALL,
        }
    }
}

impl All {
    /// Returns whether there is something to tell.
    fn is_behind(&self, log: &Log, coverage: Coverage) -> bool {
        !self.rest.is_empty() || self.next < log.end() || self.announced != Some(coverage)
    }

    /// Takes what a read gets: changes of others, each once.
    fn take(
        &mut self,
        log: &Log,
        (origin, device, may_name): (u32, u64, bool),
        most: usize,
    ) -> Vec<u8> {
        let mut reported = BTreeSet::new();
        match log.since(self.next) {
            None => {
                self.rest.extend_from_slice(line::LOST);
                self.next = log.end();
            }
            Some(changes) => {
                for (by, change) in changes {
                    if self.rest.len() >= most {
                        break;
                    }
                    self.next += 1;
                    if *by != origin && reported.insert(change) {
                        line::of_file(change, device, may_name, &mut self.rest);
                    }
                }
            }
        }
        let rest = self.rest.split_off(self.rest.len().min(most));
        mem::replace(&mut self.rest, rest)
    }
}
