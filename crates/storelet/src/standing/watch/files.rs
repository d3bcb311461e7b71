//! The files of a directory: which are new, which were run for, and what is kept of that.

use super::{FILES_MAX, Path, TRIES_MAX, shown};
use base::{Instant, Name, Stat, Time};
use percent_encoding::{NON_ALPHANUMERIC, percent_decode, percent_encode};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Most files for which it was given up that are named.
const NAMED_MAX: usize = 20;

/// What tells a file from what was in its place before.
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

/// How far a file is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Fate {
    /// It was found once.
    Found,
    /// It is to be run for, for so many times in vain, not before this time.
    Due(u32, Instant),
    /// It was run for.
    Done,
    /// The same, at this time, and what it is like at the first look from then on is its program's
    /// doing.
    Taken(Instant),
    /// It was given up.
    Failed,
}

/// What is kept of a file that was run for.
#[derive(Debug, Serialize, Deserialize)]
struct Line {
    path: String,
    mark: Mark,
    failed: bool,
}

/// What is kept.
#[derive(Debug, Serialize, Deserialize)]
struct Sheet {
    /// The directory, and since when it is looked after, ns since 1970.
    dir: String,
    since: i64,
    all: Vec<Line>,
}

/// The files.
#[derive(Debug)]
pub(crate) struct Files {
    dir: String,
    /// What has not changed since then, ns since 1970, is not new.
    since: i64,
    all: BTreeMap<Path, (Mark, Fate)>,
    /// Those that are due, by their times.
    due: BTreeSet<(Instant, Path)>,
    /// What is to be kept is other than what is.
    changed: bool,
}

impl Files {
    /// The files of a directory that is looked after since this time.
    pub(crate) fn new(dir: &[Name], since: i64) -> Files {
        let dir = String::from_utf8_lossy(&shown(dir)).into_owned();
        Files { dir, since, all: BTreeMap::new(), due: BTreeSet::new(), changed: true }
    }

    /// The same, with what was kept of it; that of another directory does not count.
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

    /// What is to be kept.
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

    /// Whether something is to be kept.
    pub(crate) fn has_changed(&self) -> bool {
        self.changed
    }

    /// Whether something is to be kept since the last call.
    pub(crate) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// A look that began then has found these, and no others. What has changed of its `own` file is
    /// what the program that runs does to it.
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
                // It has changed: as one that was found now.
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

    /// The next that is to be run for.
    pub(crate) fn next(&self, now: Instant) -> Option<Path> {
        let next = self.due.first().filter(|(at, _)| *at <= now);
        next.map(|(_, path)| path.clone())
    }

    /// When the next is to be run for.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    /// It was run for a file, well or not; if not, it is tried again then.
    pub(crate) fn ran(
        &mut self,
        path: &[Name],
        well: bool,
        takes: bool,
        now: Instant,
        again: Instant,
    ) {
        // It may be gone, or another one, meanwhile.
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

    /// How many were run for, are to come, and were given up.
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

    /// Those that were given up.
    pub(crate) fn failed(&self) -> Vec<String> {
        let failed = self.all.iter().filter(|(_, (_, fate))| *fate == Fate::Failed);
        let text = |path: &Path| String::from_utf8_lossy(&shown(path)).into_owned();
        failed.take(NAMED_MAX).map(|(path, _)| text(path)).collect()
    }

    pub(crate) fn check(&self) {
        assert!(self.all.len() <= FILES_MAX + 1 && self.due.len() <= self.all.len());
    }
}
