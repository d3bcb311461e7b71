//! Streams of subtrees that the server sends ahead, and the decision what to ask for.
//!
//! A stream begins at the first directory that is listed, or looked into twice, and goes on to the
//! directories beneath it, depth first. How far it may be ahead grows with what was used of it: a
//! program that reads a whole tree waits for a few round trips at the beginning, one that looks at
//! a single directory gets little more than that. A file that is not here, and does not come next,
//! is requested by itself.

use crate::attr::Attr;
use crate::changes::{OTHER_TREES, Report, What};
use crate::linux;
use crate::listing::Item;
use crate::lock;
use crate::store::{Content, Known, Store, Used};
use client::Interrupt;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use wire::ninep::Qid;
use wire::subtree::{self, Record};

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "a start for the arithmetic")]
mod tests;

/// Maximum number of streams.
const STREAMS_MAX: usize = 4;

/// Bytes that a stream may be ahead of its use: at the beginning, and at most.
const WINDOW: (u64, u64) = (64 << 10, 16 << 20);

/// Bytes of an entry in a stream, about.
const ENTRY_BYTES: u64 = 200;

/// Number of entries of a directory that a lookup waits for.
const LOOKUP_MAX: usize = 1024;

/// Number of files whose contents come before a directory that still counts as the next.
const FEW: usize = 16;

/// Maximum number of entries of a directory.
const ENTRIES_MAX: usize = 65_536;

/// Maximum number of directories that are known to be larger, and how long they are.
const LARGE_MAX: usize = 1024;
const LARGE: Duration = Duration::from_secs(60);

/// Time after which a stream without use ends.
pub(crate) const IDLE: Duration = Duration::from_secs(10);

/// Number of directories at which a stream began that are remembered, and the time in which none
/// begins again for a lookup: others may change the directory all the time.
const BEGUN_MAX: usize = 64;
const REPEATED: Duration = Duration::from_secs(1);

/// Time without streams after the server has refused one.
const REFUSED: Duration = Duration::from_secs(10);

/// Directory that arrives.
#[derive(Debug)]
struct Current {
    number: u64,
    items: Vec<Item>,
    /// Index of each file in these, once all are here and if contents follow.
    by_file: BTreeMap<u64, usize>,
    /// Whether all entries are here.
    is_listed: bool,
    /// Number of entries whose contents do not follow any more.
    passed: usize,
}

impl Current {
    fn new(number: u64) -> Current {
        let (items, by_file) = (Vec::new(), BTreeMap::new());
        Current { number, items, by_file, is_listed: false, passed: 0 }
    }
}

/// Stream of a subtree.
#[derive(Debug)]
struct Stream {
    has_contents: bool,
    /// Beginning of a record.
    rest: Vec<u8>,
    current: Option<Current>,
    /// Directories that lead to the one to begin with, and that one.
    way: Vec<u64>,
    /// Directories that follow, the next one last.
    following: Vec<u64>,
    arrived: u64,
    used: u64,
    /// Bytes that it may be ahead.
    window: u64,
    /// Number of requests that wait for a directory of it.
    waiting: usize,
    /// Files that have changed since it began, and directories with changed entries: what it says
    /// of them may be outdated.
    changed: BTreeSet<u64>,
    relisted: BTreeSet<u64>,
    /// Files that have another name since.
    moved: BTreeSet<u64>,
    used_at: u64,
}

/// Reason to end a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Another one took its place, or it has become useless.
    Dropped,
    /// The server has sent something that is no record.
    Broken,
}

/// Request that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// All entries of a directory, however many.
    Listing(u64),
    /// A name in a directory.
    Name(u64),
    /// Contents of the file in a directory.
    Contents(u64, u64),
}

impl Wanted {
    fn directory(self) -> u64 {
        let (Wanted::Listing(dir) | Wanted::Name(dir) | Wanted::Contents(dir, _)) = self;
        dir
    }
}

/// Prospect of a request, by a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outlook {
    /// It is about to send it.
    Coming,
    /// It will send it, but not soon.
    Later,
    /// It does not.
    No,
}

impl Stream {
    fn new(way: &[u64], has_contents: bool, used_at: u64) -> Stream {
        Stream {
            has_contents,
            rest: Vec::new(),
            current: None,
            way: way.to_vec(),
            following: way.first().copied().into_iter().collect(),
            arrived: 0,
            used: 0,
            window: WINDOW.0,
            waiting: 0,
            changed: BTreeSet::new(),
            relisted: BTreeSet::new(),
            moved: BTreeSet::new(),
            used_at,
        }
    }

    /// Returns the number of bytes that may be requested now.
    fn room(&self) -> u64 {
        let room = (self.used + self.window).saturating_sub(self.arrived);
        if self.waiting > 0 { room.max(WINDOW.0) } else { room }
    }

    /// Records a use of what it has sent.
    fn note_used(&mut self, used: Used, at: u64) {
        self.used += used.entries as u64 * ENTRY_BYTES + used.bytes as u64;
        self.window = (WINDOW.0 + 2 * self.used).clamp(self.window, WINDOW.1);
        self.used_at = at;
    }

    /// Returns whether the directory comes after what arrives now.
    fn is_next(&self, dir: u64) -> bool {
        if self.way.last() == Some(&dir) {
            return true;
        }
        // Contents that come before it may be many.
        let has_little = |it: &Current| !self.has_contents || it.items.len() - it.passed <= FEW;
        let is_between = self.current.as_ref().is_none_or(|it| it.is_listed && has_little(it));
        is_between && self.following.last() == Some(&dir)
    }

    fn outlook(&self, wanted: Wanted) -> Outlook {
        let current = self.current.as_ref().filter(|it| it.number == wanted.directory());
        let is_coming = match (wanted, current) {
            (Wanted::Listing(_), Some(current)) => !current.is_listed,
            (Wanted::Name(_), Some(current)) => {
                !current.is_listed && current.items.len() < LOOKUP_MAX
            }
            (Wanted::Contents(_, file), Some(current)) => {
                let index = current.by_file.get(&file);
                let is_ahead = !current.is_listed || index.is_some_and(|it| *it >= current.passed);
                self.has_contents && is_ahead && self.room() > 0
            }
            (Wanted::Listing(dir) | Wanted::Name(dir), None) => self.is_next(dir),
            (Wanted::Contents(dir, _), None) => {
                self.has_contents && self.is_next(dir) && self.room() > 0
            }
        };
        let has_it = self.has_contents || !matches!(wanted, Wanted::Contents(..));
        match is_coming {
            true => Outlook::Coming,
            false if has_it && self.following.contains(&wanted.directory()) => Outlook::Later,
            false => Outlook::No,
        }
    }
}

#[derive(Debug)]
struct State {
    store: Store,
    streams: BTreeMap<u64, Stream>,
    /// Number of the last stream or use.
    last: u64,
    /// Directories with too many entries, and when they had.
    large: BTreeMap<u64, Instant>,
    /// Directories of the last lookup and the last file that were not here.
    looked: Option<u64>,
    opened: Option<u64>,
    /// Path from the root to the first directory of the last stream: without and with contents.
    ways: [Vec<u64>; 2],
    /// Whether contents of the last stream with some were used.
    has_used_contents: bool,
    /// The last directories at which a stream began, and when.
    begun: VecDeque<(u64, Instant)>,
    refused: Option<Instant>,
    is_over: bool,
}

/// Stream to begin, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Begin {
    pub(crate) number: u64,
    pub(crate) has_contents: bool,
    /// Number of levels above the directory to begin with, of the one in which the stream goes on.
    pub(crate) above: usize,
}

/// Directories and contents that were sent ahead, and the streams that bring them.
#[derive(Debug)]
pub(crate) struct Prefetch {
    state: Mutex<State>,
    changed: Condvar,
}

impl Prefetch {
    /// Creates it without streams. Attributes of files with several names are valid for this time.
    pub(crate) fn new(linked_valid: Duration) -> Prefetch {
        let state = State {
            store: Store::new(linked_valid),
            streams: BTreeMap::new(),
            last: 0,
            large: BTreeMap::new(),
            looked: None,
            opened: None,
            ways: [Vec::new(), Vec::new()],
            has_used_contents: false,
            begun: VecDeque::new(),
            refused: None,
            is_over: false,
        };
        Prefetch { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn with_used<T>(&self, state: &mut State, (found, used): (T, Option<Used>)) -> T {
        if let Some(used) = used
            && let Some(stream) = state.streams.get_mut(&used.stream)
        {
            state.last += 1;
            state.has_used_contents |= used.bytes > 0;
            stream.note_used(used, state.last);
            if used.entries + used.bytes > 0 {
                // It may read on.
                self.changed.notify_all();
            }
        }
        found
    }

    /// Returns the entries of a directory.
    pub(crate) fn list(&self, dir: u64) -> Option<Vec<Item>> {
        let mut state = lock(&self.state);
        let (items, used) = state.store.list(dir)?;
        Some(self.with_used(&mut state, (items, Some(used))))
    }

    /// Returns what is known of a name in a directory.
    pub(crate) fn find(&self, dir: u64, name: &[u8], now: Instant) -> Known {
        let mut state = lock(&self.state);
        let found = state.store.find(dir, name, now);
        self.with_used(&mut state, found)
    }

    /// Returns whether all entries of a directory are here.
    pub(crate) fn has_entries(&self, dir: u64) -> bool {
        lock(&self.state).store.has_entries(dir)
    }

    /// Returns the attributes of a file.
    pub(crate) fn attr(&self, file: u64, now: Instant) -> Option<Attr> {
        lock(&self.state).store.attr(file, now)
    }

    /// Returns the contents of a file with these attributes.
    pub(crate) fn content(&self, attr: &Attr) -> Option<Arc<Content>> {
        let mut state = lock(&self.state);
        let (content, used) = state.store.content(attr)?;
        Some(self.with_used(&mut state, (content, Some(used))))
    }

    /// Returns the stream to begin at a directory for a request that finds nothing here; `None` if
    /// there is one that brings it, or none is worth while. `way` are the directories from the root
    /// to this one; `eager` begins at the first request.
    pub(crate) fn begin(
        &self,
        wanted: Wanted,
        way: &[u64],
        eager: bool,
        now: Instant,
    ) -> Option<Begin> {
        let mut state = lock(&self.state);
        let dir = wanted.directory();
        let is_recent = |at: &Instant| now.saturating_duration_since(*at) < LARGE;
        if state.is_over || state.large.get(&dir).is_some_and(is_recent) {
            return None;
        }
        if state.refused.is_some_and(|at| now.saturating_duration_since(at) < REFUSED) {
            return None;
        }
        let mut outlooks = state.streams.values().map(|it| it.outlook(wanted));
        if outlooks.any(|it| it == Outlook::Coming) {
            return None;
        }
        for stream in state.streams.values_mut() {
            if stream.outlook(wanted) == Outlook::Later {
                // It is worth while, in another order than expected.
                stream.window = (2 * stream.window).min(WINDOW.1);
                self.changed.notify_all();
            }
        }
        if !state.is_due(wanted, eager, now) || !state.make_place() {
            return None;
        }
        if state.begun.len() == BEGUN_MAX {
            state.begun.pop_front();
        }
        state.begun.push_back((dir, now));
        let has_contents = matches!(wanted, Wanted::Contents(..));
        state.has_used_contents &= !has_contents;
        let above = state.levels_above(way, has_contents);
        state.ways[usize::from(has_contents)] = way.to_vec();
        state.last += 1;
        let number = state.last;
        let way = &way[way.len() - 1 - above..];
        state.streams.insert(number, Stream::new(way, has_contents, number));
        self.changed.notify_all();
        Some(Begin { number, has_contents, above })
    }

    /// Waits for something that is about to come. Returns when it is here, or does not come.
    pub(crate) fn wait(&self, wanted: Wanted, interrupt: &Interrupt) {
        // Contents wait for room, so that a single file does not bring all others.
        let counts = !matches!(wanted, Wanted::Contents(..));
        let mut state = lock(&self.state);
        let mut counted = None;
        loop {
            let is_coming = |(_, it): &(&u64, &Stream)| it.outlook(wanted) == Outlook::Coming;
            let coming = state.streams.iter().find(is_coming).map(|(number, _)| *number);
            let coming = coming.filter(|_| !interrupt.is_set());
            if counts && coming != counted {
                state.count_waiting(counted, coming);
                counted = coming;
                // It may read on.
                self.changed.notify_all();
            }
            if coming.is_none() {
                return;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Wakes requests that wait, because one was interrupted.
    pub(crate) fn wake(&self) {
        drop(lock(&self.state));
        self.changed.notify_all();
    }

    /// Waits until a stream may read, and returns how many bytes; `None` if it is to end.
    pub(crate) fn wait_for_room(&self, number: u64) -> Option<u64> {
        let is_full =
            |state: &mut State| state.streams.get(&number).is_some_and(|stream| stream.room() == 0);
        let state = lock(&self.state);
        let waited = self.changed.wait_timeout_while(state, IDLE, is_full);
        let state = waited.unwrap_or_else(PoisonError::into_inner).0;
        state.streams.get(&number).map(Stream::room).filter(|room| *room > 0)
    }

    /// Returns how many bytes a stream may read now; `None` if it is to end.
    pub(crate) fn room(&self, number: u64) -> Option<u64> {
        lock(&self.state).streams.get(&number).map(Stream::room)
    }

    /// Adds bytes of a stream.
    ///
    /// # Errors
    /// The reason why it is to end.
    pub(crate) fn add(&self, number: u64, bytes: &[u8], now: Instant) -> Result<(), Ended> {
        let mut state = lock(&self.state);
        let added = state.add(number, bytes, now);
        self.changed.notify_all();
        added
    }

    /// Ends a stream; with `refused` the server does not offer any for now.
    pub(crate) fn end(&self, number: u64, refused: Option<Instant>) {
        let mut state = lock(&self.state);
        state.streams.remove(&number);
        state.refused = refused.or(state.refused);
        self.changed.notify_all();
    }

    /// Removes what a change makes outdated.
    pub(crate) fn changed(&self, report: &Report) {
        let mut state = lock(&self.state);
        if state.is_idle() {
            return;
        }
        let State { store, streams, .. } = &mut *state;
        let file = report.file;
        match report.what {
            What::Entry => store.entry_changed(file, report.name.as_deref()),
            What::Contents => store.contents_changed(file),
            What::Attributes => store.attributes_changed(file),
            What::Moved => store.file_moved(file),
        }
        for stream in streams.values_mut() {
            stream.changed.insert(file);
            match report.what {
                What::Entry => drop(stream.relisted.insert(file)),
                What::Moved => drop(stream.moved.insert(file)),
                What::Contents | What::Attributes => {}
            }
        }
        // Remembering all of them would be dearer than beginning anew.
        streams.retain(|_, stream| stream.changed.len() < ENTRIES_MAX);
    }

    /// Removes everything: changes are not reported any more, or were lost.
    pub(crate) fn clear(&self) {
        self.reset(|_| {});
    }

    /// Ends all streams, for good.
    pub(crate) fn close(&self) {
        self.reset(|state| state.is_over = true);
    }

    fn reset(&self, also: impl FnOnce(&mut State)) {
        let mut state = lock(&self.state);
        state.store.clear();
        state.streams.clear();
        state.large.clear();
        (state.looked, state.opened) = (None, None);
        state.ways = [Vec::new(), Vec::new()];
        also(&mut state);
        self.changed.notify_all();
    }
}

impl State {
    fn is_idle(&self) -> bool {
        self.streams.is_empty() && self.store.is_empty()
    }

    /// Counts a request that waits for another stream than before.
    fn count_waiting(&mut self, before: Option<u64>, now: Option<u64>) {
        if let Some(stream) = before.and_then(|number| self.streams.get_mut(&number)) {
            stream.waiting -= 1;
        }
        if let Some(stream) = now.and_then(|number| self.streams.get_mut(&number)) {
            stream.waiting += 1;
        }
    }

    /// Returns whether a stream is worth while for a request that finds nothing.
    fn is_due(&mut self, wanted: Wanted, eager: bool, now: Instant) -> bool {
        let dir = wanted.directory();
        match wanted {
            Wanted::Listing(_) => !self.store.has_entries(dir),
            Wanted::Name(_) => {
                let is_second = self.looked.replace(dir) == Some(dir);
                let is_recent = |(it, at): &(u64, Instant)| {
                    *it == dir && now.saturating_duration_since(*at) < REPEATED
                };
                let is_new = !self.begun.iter().any(is_recent);
                (eager || is_second) && is_new && !self.store.has_names(dir)
            }
            Wanted::Contents(..) => {
                // One that has passed is not repeated for a file that it has left out.
                let has_passed = self.streams.values().any(|it| {
                    let current = it.current.as_ref().filter(|_| it.has_contents);
                    current.is_some_and(|current| current.number == dir)
                });
                let is_second = self.opened.replace(dir) == Some(dir);
                (self.has_used_contents || is_second) && !has_passed
            }
        }
    }

    /// Returns the number of levels above a directory from which a stream goes on: to the one that
    /// it has in common with the last, so that it brings what is between them and what follows. All
    /// entries of these are sent again, so they must be few.
    fn levels_above(&self, way: &[u64], has_contents: bool) -> usize {
        let last = &self.ways[usize::from(has_contents)];
        let common = way.iter().zip(last).take_while(|(one, other)| one == other).count();
        if common == 0 || common == way.len() {
            return 0;
        }
        let between = &way[common - 1..way.len() - 1];
        let entries = between.iter().map(|dir| self.store.entries(*dir));
        let entries: Option<usize> = entries.sum();
        if entries.is_some_and(|entries| entries <= LOOKUP_MAX) { between.len() } else { 0 }
    }

    /// Makes place for a stream. Returns whether there is some.
    fn make_place(&mut self) -> bool {
        if self.streams.len() < STREAMS_MAX {
            return true;
        }
        let unwanted = self.streams.iter().filter(|(_, stream)| stream.waiting == 0);
        let oldest = unwanted.min_by_key(|(_, stream)| stream.used_at).map(|(number, _)| *number);
        oldest.is_some_and(|number| self.streams.remove(&number).is_some())
    }

    fn add(&mut self, number: u64, bytes: &[u8], now: Instant) -> Result<(), Ended> {
        let stream = self.streams.get_mut(&number).ok_or(Ended::Dropped)?;
        stream.arrived += bytes.len() as u64;
        let mut rest = std::mem::take(&mut stream.rest);
        rest.extend_from_slice(bytes);
        let mut at = 0;
        while let Some((record, size)) = subtree::decode(&rest[at..]).map_err(|_| Ended::Broken)? {
            self.add_record(number, record, now)?;
            at += size;
        }
        rest.drain(..at);
        let stream = self.streams.get_mut(&number).expect("it is not removed meanwhile");
        stream.rest = rest;
        Ok(())
    }

    fn add_record(&mut self, number: u64, record: Record<'_>, now: Instant) -> Result<(), Ended> {
        let State { store, streams, large, .. } = self;
        let stream = streams.get_mut(&number).expect("the caller has found it");
        match record {
            Record::Directory { qid, .. } => {
                while stream.following.pop().is_some_and(|dir| dir != qid.path) {}
                match stream.way.first() == Some(&qid.path) {
                    true => drop(stream.way.remove(0)),
                    // The directory to begin with is gone.
                    false => stream.way.clear(),
                }
                stream.current = Some(Current::new(qid.path));
            }
            Record::Entry { qid, cookie, kind, name, attributes } => {
                let current = stream.current.as_mut().filter(|it| !it.is_listed);
                // The first entry has one, too: zero is the beginning.
                let current = current.filter(|_| cookie != 0).ok_or(Ended::Broken)?;
                let attr = attributes.and_then(linux::attributes).filter(|attr| {
                    attr.qid.path & OTHER_TREES == 0 && !stream.changed.contains(&attr.qid.path)
                });
                let item = Item { qid, cookie, kind, name: name.to_vec(), attr };
                current.items.push(item.checked());
                if current.items.len() > ENTRIES_MAX {
                    if large.len() >= LARGE_MAX {
                        large.clear();
                    }
                    large.insert(current.number, now);
                    streams.remove(&number);
                    return Err(Ended::Dropped);
                }
            }
            Record::End => {
                let current = stream.current.as_mut().filter(|it| !it.is_listed);
                let current = current.ok_or(Ended::Broken)?;
                current.is_listed = true;
                // Files may have changed since their entries arrived.
                for item in &mut current.items {
                    item.attr = item.attr.filter(|_| !stream.changed.contains(&item.qid.path));
                }
                if stream.has_contents {
                    let files = current.items.iter().enumerate();
                    current.by_file = files.map(|(index, it)| (it.qid.path, index)).collect();
                }
                let is_below = |item: &&Item| {
                    item.qid.kind & Qid::DIR != 0 && item.qid.path & OTHER_TREES == 0
                };
                let below = current.items.iter().rev().filter(is_below).map(|it| it.qid.path);
                stream.following.extend(below);
                let is_moved = |item: &Item| stream.moved.contains(&item.qid.path);
                let is_outdated = stream.relisted.contains(&current.number)
                    || !stream.moved.is_empty() && current.items.iter().any(is_moved);
                // They are looked up again if contents follow.
                let items = match stream.has_contents {
                    true => current.items.clone(),
                    false => std::mem::take(&mut current.items),
                };
                if !is_outdated {
                    store.add_directory(current.number, items, now, number);
                }
            }
            Record::Failed { .. } => stream.current = None,
            Record::Content { qid, name, data } => {
                stream.add_content(number, qid, (name, data), store)?;
            }
        }
        Ok(())
    }
}

impl Stream {
    fn add_content(
        &mut self,
        number: u64,
        qid: Qid,
        (name, data): (&[u8], &[u8]),
        store: &mut Store,
    ) -> Result<(), Ended> {
        let current = self.current.as_mut().filter(|it| it.is_listed).ok_or(Ended::Broken)?;
        let mut rest = current.items.iter().skip(current.passed);
        let skipped = rest.position(|item| item.name == name).ok_or(Ended::Broken)?;
        let index = current.passed + skipped;
        current.passed = index + 1;
        // Without attributes the file has changed, before or after its contents were read.
        let attr = current.items[index].attr;
        let attr = attr.filter(|it| it.qid == qid && !self.changed.contains(&qid.path));
        if let Some(attr) = attr.filter(|it| it.shown.size == data.len() as u64) {
            store.add_content(attr, data.to_vec(), number);
        }
        Ok(())
    }
}
