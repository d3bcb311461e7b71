//! A watch: runs a storelet for each new file beneath a directory.
//!
//! The directory is scanned periodically, one request at a time; the interval grows with the
//! duration of a scan. A file is eligible after two consecutive scans have found it unchanged, so
//! that files still being written are skipped; a file that has changed after its run is eligible
//! again. The set of processed files is stored, at intervals that grow with its size: a crash can
//! only repeat runs in progress or just finished. Files are processed one after the other. After
//! failures a file is retried, and finally given up.
//!
#![doc = include_str!("watch/states.md")]

mod files;
#[cfg(test)]
mod tests;

use base::op::{Detail, Entry};
use base::{Automaton, Error, Instant, Kind, Name, Time};
pub(crate) use files::Files;
use files::Mark;
use std::collections::BTreeMap;
use std::mem;
use std::time::Duration;
use tree::{Ask, OpenId, Reply};

/// Minimum interval between scans; minimum ratio of interval and scan duration.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_LOOKS: u32 = 10;

/// Interval after a failed scan.
const PAUSE_FAILED: Duration = Duration::from_secs(10);

/// Maximum number of files, and maximum depth.
pub(crate) const FILES_MAX: usize = 20_000;
const DEPTH_MAX: usize = 32;

/// Maximum number of directories in a scan.
const DIRS_MAX: usize = 10_000;

/// Size of a listing request, bytes.
const LIST: u32 = 64 << 10;

/// Number of attempts for a file, and delay after a failure.
pub(crate) const TRIES_MAX: u32 = 4;
const TRY_AGAIN: Duration = Duration::from_secs(5);

/// Minimum interval between writes of the processed files, per byte: a second for 2 MB, about the
/// size of the largest set.
const KEEP_TIME: Duration = Duration::from_nanos(500);

/// Names from the root.
type Path = Vec<Name>;

/// Inputs of a watch.
#[derive(Debug)]
pub(crate) enum Input {
    /// Time has passed.
    Tick,
    /// Reply to its request.
    Answered(Result<Reply, Error>),
    /// End of the run for a file, with its success; `None`: the run could not start.
    Ran(Option<bool>),
    /// The processed files were stored, or could not be.
    Kept,
    /// Stop the watch.
    Leave,
}

/// Outputs of a watch.
#[derive(Debug)]
pub(crate) enum Output {
    /// Send a request to the namespace; [`Input::Answered`] follows.
    Ask(Ask),
    /// Cancel the request; its reply comes nevertheless.
    Cancel,
    /// Close this open directory.
    Close(OpenId),
    /// Run the storelet for this file; [`Input::Ran`] follows.
    Run(Path),
    /// Store the processed files; [`Input::Kept`] follows.
    Keep(Vec<u8>),
}

/// A scan in progress.
#[derive(Debug, Default)]
struct Scan {
    since: Instant,
    /// Directories still to be scanned.
    todo: Vec<Path>,
    dirs: usize,
    found: BTreeMap<Path, (Mark, Time)>,
}

/// State of a watch.
#[derive(Debug)]
enum State {
    /// Waiting for the time of the next scan.
    Waiting(Instant),
    /// Waiting for the open of this directory.
    Opening(Scan, Path),
    /// Waiting for entries of this directory.
    Listing(Scan, Path, OpenId),
    /// Waiting for a reply to discard, after the stop.
    Leaving(Option<OpenId>),
    /// Finished.
    Over,
}

/// The watch automaton.
#[derive(Debug)]
pub(crate) struct Watch {
    state: State,
    dir: Path,
    files: Files,
    /// Whether the program may change files: changes during its run are attributed to it.
    writes: bool,
    /// File being processed.
    running: Option<Path>,
    /// Time before which no run starts.
    held_until: Instant,
    /// Start of the outstanding write of the processed files, and earliest time of the next one.
    keeping: Option<Instant>,
    keep_from: Instant,
    /// Reason why the last scan failed.
    trouble: Option<String>,
}

impl Watch {
    /// Creates a watch of a directory, with whether its program may change files, and the stored
    /// processed files.
    pub(crate) fn new(now: Instant, (dir, writes): (Path, bool), files: Files) -> Watch {
        let state = State::Waiting(now);
        Watch {
            state,
            dir,
            files,
            writes,
            running: None,
            held_until: Instant(0),
            keeping: None,
            keep_from: Instant(0),
            trouble: None,
        }
    }

    /// Returns the directory.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns whether the program may change files.
    pub(crate) fn writes(&self) -> bool {
        self.writes
    }

    /// Encodes the processed files for the state store.
    pub(crate) fn kept(&self) -> Vec<u8> {
        self.files.bytes()
    }

    /// Returns whether it can be dropped.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.state, State::Over)
    }

    /// Returns the numbers of files processed, pending and given up; and the reason if the
    /// directory cannot be scanned.
    pub(crate) fn counts(&self) -> ([usize; 3], Option<&str>) {
        (self.files.counts(), self.trouble.as_deref())
    }

    /// Returns files that were given up.
    pub(crate) fn failed(&self) -> Vec<String> {
        self.files.failed()
    }

    /// Opens the next directory; at the end of a scan, waits for the next one.
    fn go_on(&mut self, now: Instant, mut look: Scan, out: &mut Vec<Output>) -> State {
        let Some(dir) = look.todo.pop() else {
            let own = self.running.as_deref().filter(|_| self.writes);
            self.files.seen(look.since, mem::take(&mut look.found), own);
            self.trouble = None;
            return State::Waiting(now + PAUSE.max(now.since(look.since) * PAUSE_LOOKS));
        };
        look.dirs += 1;
        let ask = Ask::Fetch { root: None, path: dir.clone(), read_max: 0, headroom: 0 };
        out.push(Output::Ask(ask));
        State::Opening(look, dir)
    }

    fn fail(&mut self, now: Instant, why: String) -> State {
        self.trouble = Some(why);
        State::Waiting(now + PAUSE_FAILED)
    }

    /// Handles the reply to an open.
    fn opened(
        &mut self,
        now: Instant,
        look: Scan,
        dir: Path,
        reply: Result<Reply, Error>,
        out: &mut Vec<Output>,
    ) -> State {
        let is_first = dir == self.dir;
        match reply {
            Ok(Reply::Fetched(stat, _, Some(open))) if stat.kind == Kind::Directory => {
                list(open, 0, out);
                State::Listing(look, dir, open)
            }
            Ok(Reply::Fetched(_, _, open)) => {
                out.extend(open.map(Output::Close));
                match is_first {
                    true => self.fail(now, "it is no directory".to_string()),
                    false => self.go_on(now, look, out),
                }
            }
            Ok(other) => unreachable!("{other:?} answers no fetch"),
            // A directory below was removed meanwhile, or the user lacks permission.
            Err(_) if !is_first => self.go_on(now, look, out),
            Err(error) => self.fail(now, error.to_string()),
        }
    }

    /// Handles entries of a directory.
    fn listed(
        &mut self,
        now: Instant,
        (mut look, dir, open): (Scan, Path, OpenId),
        reply: Result<Reply, Error>,
        out: &mut Vec<Output>,
    ) -> State {
        match reply {
            Ok(Reply::Entries(entries)) if entries.is_empty() => {
                out.push(Output::Close(open));
                self.go_on(now, look, out)
            }
            Ok(Reply::Entries(entries)) => {
                let cookie = entries.last().expect("there are some").cookie;
                entries.into_iter().for_each(|entry| look.take(&dir, entry));
                if look.found.len() > FILES_MAX || look.dirs + look.todo.len() > DIRS_MAX {
                    out.push(Output::Close(open));
                    let most = format!("{FILES_MAX} files or {DIRS_MAX} directories");
                    return self.fail(now, format!("more than {most} are beneath it"));
                }
                list(open, cookie, out);
                State::Listing(look, dir, open)
            }
            Ok(other) => unreachable!("{other:?} answers no list"),
            Err(error) => {
                out.push(Output::Close(open));
                match dir == self.dir {
                    true => self.fail(now, error.to_string()),
                    false => self.go_on(now, look, out),
                }
            }
        }
    }

    /// Starts the next run and the next write that are due; on a tick only, since the end of the
    /// last run may arrive while its start is still being processed.
    fn act(&mut self, now: Instant, out: &mut Vec<Output>) {
        if matches!(self.state, State::Leaving(_) | State::Over) {
            return;
        }
        if self.running.is_none()
            && self.held_until <= now
            && let Some(path) = self.files.next(now)
        {
            out.push(Output::Run(path.clone()));
            self.running = Some(path);
        }
        if self.keeping.is_none() && self.keep_from <= now && self.files.take_changed() {
            let bytes = self.files.bytes();
            self.keeping = Some(now);
            self.keep_from = now + KEEP_TIME * u32::try_from(bytes.len()).unwrap_or(u32::MAX);
            out.push(Output::Keep(bytes));
        }
    }

    fn ran(&mut self, now: Instant, well: Option<bool>) {
        // The end of the last run arrives after the stop, too.
        let Some(path) = self.running.take() else { return };
        match well {
            Some(well) => self.files.ran(&path, well, self.writes, now, now + TRY_AGAIN),
            None => self.held_until = now + TRY_AGAIN,
        }
    }

    fn leave(state: State, out: &mut Vec<Output>) -> State {
        match state {
            State::Waiting(_) => State::Over,
            State::Opening(..) => {
                out.push(Output::Cancel);
                State::Leaving(None)
            }
            State::Listing(_, _, open) => {
                out.push(Output::Cancel);
                State::Leaving(Some(open))
            }
            state @ (State::Leaving(_) | State::Over) => state,
        }
    }
}

impl Scan {
    /// Records an entry of a directory.
    fn take(&mut self, dir: &Path, entry: Entry) {
        let Entry { kind, name, stat, .. } = entry;
        let path = || dir.iter().cloned().chain([name.clone()]).collect::<Path>();
        match (kind, stat) {
            // An upload in progress: it gets another name when it is complete.
            (Kind::File, _) if base::is_temporary(name.as_bytes()) => {}
            (Kind::Directory, _) if dir.len() < DEPTH_MAX => self.todo.push(path()),
            (Kind::File, Some(stat)) => {
                self.found.insert(path(), (Mark::of(&stat), stat.changed));
            }
            // Files without attributes are left to the next scan.
            (
                Kind::Directory
                | Kind::File
                | Kind::Symlink
                | Kind::Fifo
                | Kind::Socket
                | Kind::CharDevice
                | Kind::BlockDevice,
                _,
            ) => {}
        }
    }
}

/// Lists an open directory from a cookie on.
fn list(open: OpenId, cookie: u64, out: &mut Vec<Output>) {
    out.push(Output::Ask(Ask::List { open, cookie, bytes_max: LIST, detail: Detail::Stat }));
}

impl Automaton for Watch {
    type Input = Input;
    type Output = Output;

    fn step(&mut self, now: Instant, input: Input, out: &mut Vec<Output>) {
        let state = mem::replace(&mut self.state, State::Over);
        let is_time = matches!(input, Input::Tick);
        self.state = match (state, input) {
            (State::Waiting(at), Input::Tick) if at <= now => {
                let todo = vec![self.dir.clone()];
                self.go_on(now, Scan { since: now, todo, ..Scan::default() }, out)
            }
            (state, Input::Tick) => state,
            (State::Opening(look, dir), Input::Answered(reply)) => {
                self.opened(now, look, dir, reply, out)
            }
            (State::Listing(look, dir, open), Input::Answered(reply)) => {
                self.listed(now, (look, dir, open), reply, out)
            }
            (State::Leaving(open), Input::Answered(reply)) => {
                if let Ok(Reply::Fetched(_, _, Some(open))) = reply {
                    out.push(Output::Close(open));
                }
                out.extend(open.map(Output::Close));
                State::Over
            }
            (state, Input::Ran(well)) => {
                self.ran(now, well);
                state
            }
            (state, Input::Kept) => {
                if let Some(since) = self.keeping.take() {
                    self.keep_from = self.keep_from.max(now + now.since(since) * PAUSE_LOOKS);
                }
                state
            }
            (state, Input::Leave) => Watch::leave(state, out),
            // Replies follow requests.
            (state @ (State::Waiting(_) | State::Over), Input::Answered(reply)) => {
                unreachable!("{reply:?} in {state:?}")
            }
        };
        if is_time {
            self.act(now, out);
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let look = match self.state {
            State::Waiting(at) => Some(at),
            State::Opening(..) | State::Listing(..) => None,
            State::Leaving(_) | State::Over => return None,
        };
        let file = self.files.due().filter(|_| self.running.is_none());
        let file = file.map(|at| at.max(self.held_until));
        let keep = (self.keeping.is_none() && self.files.has_changed()).then_some(self.keep_from);
        look.into_iter().chain(file).chain(keep).min()
    }

    fn check(&self) {
        if let State::Opening(look, dir) | State::Listing(look, dir, _) = &self.state {
            assert!(dir.starts_with(&self.dir), "a look is beneath the directory");
            assert!(look.found.len() <= FILES_MAX, "a look ends that finds too much");
            assert!(look.dirs > 0 && look.dirs + look.todo.len() <= DIRS_MAX);
        }
        self.files.check();
    }
}

/// Formats a path from the root.
pub(crate) fn shown(path: &[Name]) -> Vec<u8> {
    let mut text = Vec::new();
    for name in path {
        text.push(b'/');
        text.extend_from_slice(name.as_bytes());
    }
    text
}

/// Formats a path as the input of an order: without the leading slash.
pub(crate) fn stdin(path: &[Name]) -> Vec<u8> {
    shown(path).split_off(1)
}
