//! Changes that the server reports, by which the kernel's caches are kept right.
//!
//! A server that reports every change (`/.upcall/watch`) lets names, attributes and pages be cached
//! until they change. The reports come in order, on the connection of all other requests, and at
//! least every second; without one for [`SILENCE`] everything is invalidated, and cached for
//! [`Settings::attr_timeout`](crate::options::Settings) again.
//!
//! **Races.** A reply of the server may be older than a report that has already been handled. So a
//! request remembers at its start how many reports there were ([`Mark`]); after its reply to the
//! kernel, the reports since then about its files are handled once more.

use crate::lock;
use std::collections::{BTreeSet, VecDeque};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time for which names and attributes are cached if changes are reported.
pub(crate) const VALID: Duration = Duration::from_secs(3600);

/// Time without a report after which nothing is known any more.
pub(crate) const SILENCE: Duration = Duration::from_secs(3);

/// Bit of the numbers of files that are not of the server's first tree: changes of those are not
/// reported, or others can make them.
pub(crate) const OTHER_TREES: u64 = 1 << 63;

/// Maximum number of reports that are kept.
const RECENT_MAX: usize = 4096;

/// Maximum length of a report, in bytes.
const LINE_MAX: usize = 64 << 10;

/// Kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// An entry of a directory: the name, or any one if it is unknown.
    Entry,
    /// The contents of a file.
    Contents,
    /// Attributes of a file.
    Attributes,
    /// The name of a file.
    Moved,
}

/// Report of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) what: What,
    /// Number of the file: the path of its qid.
    pub(crate) file: u64,
    pub(crate) name: Option<Vec<u8>>,
}

/// Line of the server.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// Whether all changes are reported, whether there are unions, and names of entries.
    Begin {
        complete: bool,
        unions: bool,
        names: bool,
    },
    Report(Report),
    /// Some reports are lost.
    Lost,
    /// Nothing has changed.
    Beat,
}

impl Line {
    /// Decodes a line without its end; `None` if it has none of the known forms.
    pub(crate) fn decode(line: &[u8]) -> Option<Line> {
        if line.is_empty() {
            return Some(Line::Beat);
        }
        let value: serde_json::Value = serde_json::from_slice(line).ok()?;
        let is = |key: &str| value[key].as_bool().unwrap_or(false);
        let what = match value["change"].as_str()? {
            "watching" => {
                let [complete, unions, names] = ["complete", "unions", "names"].map(is);
                return Some(Line::Begin { complete, unions, names });
            }
            "lost" => return Some(Line::Lost),
            "entry" => What::Entry,
            "written" => What::Contents,
            "attributes" => What::Attributes,
            "moved" => What::Moved,
            _unknown => return None,
        };
        let name = value["name"].as_str().map(|name| name.as_bytes().to_vec());
        Some(Line::Report(Report { what, file: value["file"].as_u64()?, name }))
    }
}

/// Splits what is read into lines.
#[derive(Debug, Default)]
pub(crate) struct Lines(Vec<u8>);

impl Lines {
    /// Adds bytes; returns the lines that are complete, or `None` if the server sends none.
    pub(crate) fn add(&mut self, bytes: &[u8]) -> Option<Vec<Vec<u8>>> {
        self.0.extend_from_slice(bytes);
        let end = self.0.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let rest = self.0.split_off(end);
        let lines = std::mem::replace(&mut self.0, rest);
        if self.0.len() > LINE_MAX {
            return None;
        }
        let lines = lines.split_inclusive(|byte| *byte == b'\n');
        Some(lines.map(|line| line[..line.len() - 1].to_vec()).collect())
    }
}

/// Number of reports at the start of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    number: u64,
    generation: u64,
}

/// Reports about some files.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Since {
    These(Vec<Report>),
    /// Any change is possible.
    Unknown,
}

#[derive(Debug, Default)]
struct State {
    /// Whether all changes are reported now.
    is_active: bool,
    has_names: bool,
    /// Number of times that reports were lost.
    generation: u64,
    /// Number of the next report.
    number: u64,
    recent: VecDeque<Report>,
    received: Option<Instant>,
}

/// Reports of a server.
#[derive(Debug, Default)]
pub(crate) struct Changes(Mutex<State>);

impl Changes {
    /// Returns whether names and attributes may be cached until they change.
    pub(crate) fn is_active(&self) -> bool {
        lock(&self.0).is_active
    }

    /// Returns whether names that do not exist may be cached until they do.
    pub(crate) fn has_names(&self) -> bool {
        let state = lock(&self.0);
        state.is_active && state.has_names
    }

    /// Returns the mark of a request that starts.
    pub(crate) fn mark(&self) -> Mark {
        let State { number, generation, .. } = *lock(&self.0);
        Mark { number, generation }
    }

    /// Records a reply of the server.
    pub(crate) fn hear(&self, now: Instant) {
        lock(&self.0).received = Some(now);
    }

    /// Begins or ends to rely on reports. Returns whether all that was cached is to be invalidated.
    pub(crate) fn rely(&self, complete: bool, names: bool) -> bool {
        let mut state = lock(&self.0);
        let was_active = state.is_active;
        (state.is_active, state.has_names) = (complete, names);
        if was_active != complete {
            // Requests of before do not know of all changes.
            state.generation += 1;
        }
        was_active && !complete
    }

    /// Records that reports were lost.
    pub(crate) fn lose(&self) {
        let mut state = lock(&self.0);
        state.generation += 1;
        state.recent.clear();
    }

    /// Returns whether the server has been silent for too long, while it was relied on.
    pub(crate) fn is_silent(&self, now: Instant) -> bool {
        let state = lock(&self.0);
        let received = state.received.filter(|_| state.is_active);
        received.is_some_and(|received| now.saturating_duration_since(received) > SILENCE)
    }

    /// Records a report, before it is handled.
    pub(crate) fn add(&self, report: Report) {
        let mut state = lock(&self.0);
        if state.recent.len() == RECENT_MAX {
            state.recent.pop_front();
        }
        state.recent.push_back(report);
        state.number += 1;
    }

    /// Returns the reports since a mark about these files.
    pub(crate) fn since(&self, mark: Mark, is_about: impl Fn(u64) -> bool) -> Since {
        let state = lock(&self.0);
        if state.generation != mark.generation {
            return Since::Unknown;
        }
        let count = usize::try_from(state.number - mark.number).unwrap_or(usize::MAX);
        let Some(skipped) = state.recent.len().checked_sub(count) else { return Since::Unknown };
        let recent = state.recent.iter().skip(skipped);
        Since::These(recent.filter(|report| is_about(report.file)).cloned().collect())
    }
}

/// Maximum number of queued invalidations; beyond it everything is invalidated.
const QUEUE_MAX: usize = 8192;

/// Part of the kernel's caches to invalidate.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outdated {
    /// The files of a report.
    Report(Report),
    /// Attributes and pages of a node.
    Node(u64),
    /// A name in a directory.
    Entry(u64, Vec<u8>),
    /// All names and attributes.
    Names,
    /// Everything.
    All,
}

#[derive(Debug, Default)]
struct Queued {
    outdated: VecDeque<Outdated>,
    is_over: bool,
}

/// Invalidations for the one thread that performs them: each may wait for locks of the kernel whose
/// holders wait for replies.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    state: Mutex<Queued>,
    changed: Condvar,
}

impl Queue {
    pub(crate) fn push(&self, outdated: Outdated) {
        let mut state = lock(&self.state);
        if state.outdated.len() >= QUEUE_MAX {
            state.outdated.clear();
            state.outdated.push_back(Outdated::All);
        } else {
            state.outdated.push_back(outdated);
        }
        self.changed.notify_all();
    }

    /// Waits for the next one, until the end of the session.
    pub(crate) fn next(&self) -> Option<Outdated> {
        let state = lock(&self.state);
        let waits = |state: &mut Queued| state.outdated.is_empty() && !state.is_over;
        let waited = self.changed.wait_while(state, waits);
        waited.unwrap_or_else(PoisonError::into_inner).outdated.pop_front()
    }

    /// Ends the wait.
    pub(crate) fn close(&self) {
        let mut state = lock(&self.state);
        state.is_over = true;
        state.outdated.clear();
        self.changed.notify_all();
    }
}

/// Maximum number of names that the kernel knows not to exist.
const ABSENT_MAX: usize = 16_384;

/// A directory's node and a name.
type EntryKey = (u64, Vec<u8>);

#[derive(Debug, Default)]
struct Known {
    names: BTreeSet<EntryKey>,
    /// The same in the order of arrival, with some that were removed.
    order: VecDeque<EntryKey>,
}

/// Names that the kernel knows not to exist: it does not tell when it has forgotten one.
#[derive(Debug, Default)]
pub(crate) struct Absent(Mutex<Known>);

impl Absent {
    /// Adds a name; returns one that is to be invalidated in its place, if there are too many.
    pub(crate) fn add(&self, dir: u64, name: &[u8]) -> Option<EntryKey> {
        let mut state = lock(&self.0);
        let Known { names, order } = &mut *state;
        if names.insert((dir, name.to_vec())) {
            order.push_back((dir, name.to_vec()));
        }
        let oldest = if order.len() > ABSENT_MAX { order.pop_front() } else { None };
        oldest.filter(|oldest| names.remove(oldest))
    }

    /// Removes a name that is looked up again.
    pub(crate) fn remove(&self, dir: u64, name: &[u8]) {
        lock(&self.0).names.remove(&(dir, name.to_vec()));
    }

    /// Removes all names, and returns them.
    pub(crate) fn take(&self) -> BTreeSet<EntryKey> {
        let mut state = lock(&self.0);
        state.order.clear();
        std::mem::take(&mut state.names)
    }

    /// Returns the names in a directory.
    pub(crate) fn of(&self, dir: u64) -> Vec<Vec<u8>> {
        let state = lock(&self.0);
        let from = state.names.range((dir, Vec::new())..);
        from.take_while(|(of, _)| *of == dir).map(|(_, name)| name.clone()).collect()
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "a start for the arithmetic")]
mod tests {
    use super::*;

    fn report(file: u64) -> Report {
        Report { what: What::Contents, file, name: None }
    }

    #[test]
    fn lines_are_decoded_and_others_are_none() {
        let begin = br#"{"change":"watching","complete":true,"unions":false,"names":false}"#;
        let (complete, unions, names) = (true, false, false);
        assert_eq!(Line::decode(begin), Some(Line::Begin { complete, unions, names }));
        assert_eq!(Line::decode(b""), Some(Line::Beat));
        assert_eq!(Line::decode(br#"{"change":"lost"}"#), Some(Line::Lost));
        let entry = br#"{"change":"entry","file":18446744073709551615,"name":"a\"b"}"#;
        let name = Some(b"a\"b".to_vec());
        let decoded = Line::Report(Report { what: What::Entry, file: u64::MAX, name });
        assert_eq!(Line::decode(entry), Some(decoded));
        for bad in [&b"x"[..], b"{}", br#"{"change":"written"}"#, br#"{"change":"eaten"}"#] {
            assert_eq!(Line::decode(bad), None);
        }
        let mut lines = Lines::default();
        assert_eq!(lines.add(b"a\n\nb"), Some(vec![b"a".to_vec(), Vec::new()]));
        assert_eq!(lines.add(b"c\n"), Some(vec![b"bc".to_vec()]));
        assert_eq!(lines.add(&[b'x'; LINE_MAX + 1]), None);
    }

    #[test]
    fn reports_since_a_mark_are_found_or_unknown() {
        let changes = Changes::default();
        changes.add(report(1));
        let mark = changes.mark();
        assert_eq!(changes.since(mark, |_| true), Since::These(Vec::new()));
        changes.add(report(1));
        changes.add(report(2));
        assert_eq!(changes.since(mark, |file| file == 2), Since::These(vec![report(2)]));
        (0..RECENT_MAX).for_each(|_| changes.add(report(3)));
        assert_eq!(changes.since(mark, |_| true), Since::Unknown);
        let mark = changes.mark();
        changes.lose();
        assert_eq!(changes.since(mark, |_| true), Since::Unknown);
    }

    #[test]
    fn too_many_invalidations_are_one_of_all() {
        let queue = Queue::default();
        (0..QUEUE_MAX as u64).for_each(|node| queue.push(Outdated::Node(node)));
        assert_eq!(queue.next(), Some(Outdated::Node(0)));
        queue.push(Outdated::Node(1));
        queue.push(Outdated::Node(2));
        assert_eq!(queue.next(), Some(Outdated::All));
        queue.close();
        assert_eq!(queue.next(), None);
    }

    #[test]
    fn names_that_do_not_exist_are_limited() {
        let absent = Absent::default();
        for number in 0..ABSENT_MAX as u64 {
            assert_eq!(absent.add(number, b"x"), None);
            assert_eq!(absent.add(number, b"x"), None);
        }
        absent.remove(0, b"x");
        // The first one is not there any more.
        assert_eq!(absent.add(7, b"y"), None);
        assert_eq!(absent.of(7), [b"x".to_vec(), b"y".to_vec()]);
        assert_eq!(absent.add(8, b"y"), Some((1, b"x".to_vec())));
        assert_eq!(absent.take().len(), ABSENT_MAX);
        assert!(absent.take().is_empty());
    }

    #[test]
    fn a_silent_server_is_not_relied_on() {
        let (changes, now) = (Changes::default(), Instant::now());
        changes.hear(now);
        assert!(!changes.is_silent(now + 2 * SILENCE), "it was not relied on");
        assert!(!changes.rely(true, true));
        assert!(!changes.is_silent(now + SILENCE) && changes.is_silent(now + 2 * SILENCE));
        let mark = changes.mark();
        assert!(changes.rely(false, false), "cached blocks may be stale");
        assert_eq!(changes.since(mark, |_| true), Since::Unknown);
        assert!(!changes.is_active() && !changes.has_names());
    }
}
