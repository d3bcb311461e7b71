//! Files of a watched directory: new ones, processed ones, and the stored state.

use super::{FILES_MAX, Path, TRIES_MAX, shown};
use base::{Instant, Name, Stat, Time};
use percent_encoding::{NON_ALPHANUMERIC, percent_decode, percent_encode};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of given-up files that are listed.
const NAMED_MAX: usize = 20;

/// Identity of a file version: distinguishes it from earlier contents of the same path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mark {
    inode: u64,
    size: u64,
    secs: i64,
    nanos: u32,
}

impl Mark {
    pub(crate) fn of(stat: &Stat) -> Mark {
        let Time { secs, nanos } = stat.modified;
        Mark { inode: stat.inode, size: stat.size, secs, nanos }
    }
}

/// Progress of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Fate {
    /// Found by one scan.
    Found,
    /// Eligible from this time on, after this number of failures.
    Due(u32, Instant),
    /// Processed.
    Done,
    /// Processed at this time; the state found by the first scan begun after it is attributed to
    /// the program.
    Taken(Instant),
    /// Given up.
    Failed,
}

/// A processed file, as stored.
#[derive(Debug, Serialize, Deserialize)]
struct Line {
    path: String,
    mark: Mark,
    failed: bool,
}

/// Stored state of a watch.
#[derive(Debug, Serialize, Deserialize)]
struct Sheet {
    /// The directory, and the start of the watch, ns since 1970.
    dir: String,
    since: i64,
    all: Vec<Line>,
}

/// Files of a watched directory.
#[derive(Debug)]
pub(crate) struct Files {
    dir: String,
    /// Start of the watch, ns since 1970: files unchanged since then are not new.
    since: i64,
    all: BTreeMap<Path, (Mark, Fate)>,
    /// Eligible files by time.
    due: BTreeSet<(Instant, Path)>,
    /// Whether the stored state is out of date.
    changed: bool,
}

impl Files {
    /// Creates an empty set for a directory that is watched since this time.
    pub(crate) fn new(dir: &[Name], since: i64) -> Files {
        let dir = String::from_utf8_lossy(&shown(dir)).into_owned();
        Files { dir, since, all: BTreeMap::new(), due: BTreeSet::new(), changed: true }
    }

    /// Decodes the stored state; that of another directory is ignored.
    pub(crate) fn read(dir: &[Name], since: i64, bytes: &[u8]) -> Files {
        let mut files = Files::new(dir, since);
        let Ok(sheet) = serde_json::from_slice::<Sheet>(bytes) else { return files };
        if sheet.dir != files.dir {
            return files;
        }
        files.since = sheet.since;
        files.changed = false;
        for Line { path, mark, failed } in sheet.all.into_iter().take(FILES_MAX) {
            let bytes: Vec<u8> = percent_decode(path.as_bytes()).collect();
            let names = bytes.split(|byte| *byte == b'/').map(Name::new);
            if let Ok(path) = names.collect::<Result<Path, _>>() {
                let fate = if failed { Fate::Failed } else { Fate::Done };
                files.all.insert(path, (mark, fate));
            }
        }
        files
    }

    /// Encodes the state.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let all = self.all.iter().filter_map(|(path, (mark, fate))| {
            let failed = match fate {
                Fate::Found | Fate::Due(..) => return None,
                Fate::Done | Fate::Taken(_) => false,
                Fate::Failed => true,
            };
            let names = path.iter().map(|name| percent_encode(name.as_bytes(), NON_ALPHANUMERIC));
            let path = names.map(|name| name.to_string()).collect::<Vec<String>>().join("/");
            Some(Line { path, mark: *mark, failed })
        });
        let sheet = Sheet { dir: self.dir.clone(), since: self.since, all: all.collect() };
        serde_json::to_vec(&sheet).expect("texts and numbers")
    }

    /// Returns whether the stored state is out of date.
    pub(crate) fn has_changed(&self) -> bool {
        self.changed
    }

    /// Returns whether the state has changed since the last call.
    pub(crate) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// Records the result of a scan that began at this time and was complete. Changes of the `own`
    /// file are attributed to the running program.
    pub(crate) fn seen(
        &mut self,
        began: Instant,
        found: BTreeMap<Path, (Mark, Time)>,
        own: Option<&[Name]>,
    ) {
        let before = self.all.len();
        self.all.retain(|path, _| found.contains_key(path));
        self.changed |= self.all.len() != before;
        for (path, (mark, changed)) in found {
            let fate = match self.all.remove(&path) {
                None if self.is_old(changed) => {
                    self.changed = true;
                    Fate::Done
                }
                None => Fate::Found,
                Some((last, Fate::Found)) if last == mark => Fate::Due(0, Instant(0)),
                Some((_, Fate::Taken(at))) if at <= began => {
                    self.changed = true;
                    Fate::Done
                }
                Some((_, taken @ Fate::Taken(_))) => taken,
                Some((last, fate)) if last == mark || own == Some(&path[..]) => fate,
                // A changed file counts as newly found.
                Some((_, Fate::Found | Fate::Due(..) | Fate::Done | Fate::Failed)) => Fate::Found,
            };
            self.all.insert(path, (mark, fate));
        }
        let due = self.all.iter().filter_map(|(path, (_, fate))| match fate {
            Fate::Due(_, at) => Some((*at, path.clone())),
            Fate::Found | Fate::Done | Fate::Taken(_) | Fate::Failed => None,
        });
        self.due = due.collect();
    }

    fn is_old(&self, changed: Time) -> bool {
        changed.as_nanos() < self.since
    }

    /// Returns the next eligible file.
    pub(crate) fn next(&self, now: Instant) -> Option<Path> {
        let next = self.due.first().filter(|(at, _)| *at <= now);
        next.map(|(_, path)| path.clone())
    }

    /// Returns the time at which the next file is eligible.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Records a run for a file; after a failure it is retried at `again`.
    pub(crate) fn ran(
        &mut self,
        path: &[Name],
        well: bool,
        takes: bool,
        now: Instant,
        again: Instant,
    ) {
        // The file may have been removed or replaced meanwhile.
        let Some((_, fate)) = self.all.get_mut(path) else { return };
        let Fate::Due(tries, at) = fate else { return };
        self.due.remove(&(*at, path.to_vec()));
        *fate = match (well, *tries + 1) {
            (true, _) if takes => Fate::Taken(now),
            (true, _) => Fate::Done,
            (false, TRIES_MAX..) => Fate::Failed,
            (false, tries) => {
                self.due.insert((again, path.to_vec()));
                return *fate = Fate::Due(tries, again);
            }
        };
        self.changed = true;
    }

    /// Returns the numbers of files processed, pending and given up.
    pub(crate) fn counts(&self) -> [usize; 3] {
        let mut counts = [0; 3];
        for (_, fate) in self.all.values() {
            let which = match fate {
                Fate::Done | Fate::Taken(_) => 0,
                Fate::Found | Fate::Due(..) => 1,
                Fate::Failed => 2,
            };
            counts[which] += 1;
        }
        counts
    }

    /// Returns files that were given up.
    pub(crate) fn failed(&self) -> Vec<String> {
        let failed = self.all.iter().filter(|(_, (_, fate))| *fate == Fate::Failed);
        let text = |path: &Path| String::from_utf8_lossy(&shown(path)).into_owned();
        failed.take(NAMED_MAX).map(|(path, _)| text(path)).collect()
    }

    pub(crate) fn check(&self) {
        assert!(self.all.len() <= FILES_MAX + 1 && self.due.len() <= self.all.len());
    }
}
