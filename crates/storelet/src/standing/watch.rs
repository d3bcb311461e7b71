//! A watch: a storelet runs for each new file beneath a directory.
//!
//! The directory is looked through now and again, a request at a time, and the longer that takes
//! the more seldom. A file counts once two looks in a row have found it the same, so that one that
//! is still being written does not; if it has changed after its run, it counts again. For which
//! files it has run is kept, the more seldom the more they are, so a crash can only bring a run
//! twice that was under way or had just ended. One file comes after the other. One for which it
//! fails is tried again, and given up after some time.
//!
#![doc = include_str!("watch/states.md")]

mod files;
#[cfg(test)]
mod tests;

use base::op::Entry;
use base::{Automaton, Error, Instant, Kind, Name, Time};
pub(crate) use files::Files;
use files::Mark;
use std::collections::BTreeMap;
use std::mem;
use std::time::Duration;
use tree::{Ask, OpenId, Reply};

/// How long after a look the next one begins, at least; and in looks. So for what is kept.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_LOOKS: u32 = 10;

/// How long after a look that failed.
const PAUSE_FAILED: Duration = Duration::from_secs(10);

/// Most files, and how deep they may lie.
pub(crate) const FILES_MAX: usize = 20_000;
const DEPTH_MAX: usize = 32;

/// Most directories of one look.
const DIRS_MAX: usize = 10_000;

/// How much of a directory is listed at once, bytes.
const LIST: u32 = 64 << 10;

/// How often a file is tried, and how long after it failed.
pub(crate) const TRIES_MAX: u32 = 4;
const TRY_AGAIN: Duration = Duration::from_secs(5);

/// How long after something was kept the next is, for each of its bytes: a second for 2 MB, which
/// most files that there may be take.
const KEEP_TIME: Duration = Duration::from_nanos(500);

/// Names from the root.
type Path = Vec<Name>;

/// What can happen to a watch.
#[derive(Debug)]
pub(crate) enum Input {
    /// Time has passed.
    Tick,
    /// The answer to what it asked.
    Answered(Result<Reply, Error>),
    /// The run for the file has ended, well or not; or it could not be begun now.
    Ran(Option<bool>),
    /// What it wanted kept is, or not.
    Kept,
    /// It is not wanted any more.
    Leave,
}

/// What a watch can ask for.
#[derive(Debug)]
pub(crate) enum Output {
    /// Ask the name space; [`Input::Answered`] follows.
    Ask(Ask),
    /// The answer is not wanted any more; it comes all the same.
    Cancel,
    /// Give this open directory back.
    Close(OpenId),
    /// Run for this file; [`Input::Ran`] follows.
    Run(Path),
    /// Keep for which files it has run; [`Input::Kept`] follows.
    Keep(Vec<u8>),
}

/// A look under way.
#[derive(Debug, Default)]
struct Look {
    since: Instant,
    /// Directories that are still to be looked at.
    todo: Vec<Path>,
    dirs: usize,
    found: BTreeMap<Path, (Mark, Time)>,
}

/// What it waits for.
#[derive(Debug)]
enum State {
    /// For the time of the next look.
    Waiting(Instant),
    /// For this directory to be opened.
    Opening(Look, Path),
    /// For more of what is in it.
    Listing(Look, Path, OpenId),
    /// For an answer that nobody wants any more.
    Leaving(Option<OpenId>),
    /// For nothing.
    Over,
}

/// The watch automaton.
#[derive(Debug)]
pub(crate) struct Watch {
    state: State,
    dir: Path,
    files: Files,
    /// The program may change files: what changes while it runs is its own doing.
    writes: bool,
    /// The file for which it runs.
    running: Option<Path>,
    /// No file is run for before then.
    held_until: Instant,
    /// Since when something is being kept; it is kept again then.
    keeping: Option<Instant>,
    keep_from: Instant,
    /// Why the last look failed.
    trouble: Option<String>,
}

impl Watch {
    /// A watch over a directory, by a program that may change files or not, with what was kept of
    /// that directory.
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

    /// Its directory.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Whether its program may change files.
    pub(crate) fn writes(&self) -> bool {
        self.writes
    }

    /// For which files it has run, to be kept.
    pub(crate) fn kept(&self) -> Vec<u8> {
        self.files.bytes()
    }

    /// Whether it can be forgotten.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.state, State::Over)
    }

    /// How many files it has run for, how many are to come, for how many it was given up; and why
    /// the directory cannot be looked through.
    pub(crate) fn counts(&self) -> ([usize; 3], Option<&str>) {
        (self.files.counts(), self.trouble.as_deref())
    }

    /// Files for which it was given up.
    pub(crate) fn failed(&self) -> Vec<String> {
        self.files.failed()
    }

    /// Asks for the next directory; at the end of a look, waits for the next one.
    fn go_on(&mut self, now: Instant, mut look: Look, out: &mut Vec<Output>) -> State {
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

    /// A directory is open, or not.
    fn opened(
        &mut self,
        now: Instant,
        look: Look,
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
            // One beneath it is gone meanwhile, or not for the user it runs as.
            Err(_) if !is_first => self.go_on(now, look, out),
            Err(error) => self.fail(now, error.to_string()),
        }
    }

    /// Some of what is in a directory.
    fn listed(
        &mut self,
        now: Instant,
        (mut look, dir, open): (Look, Path, OpenId),
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

    /// Runs for the next file, and has kept what is to be: when it is time, and not as soon as
    /// the last run has ended, for that may be within this one's beginning.
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
        // Who is not wanted any more is told of its last run as well.
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

impl Look {
    /// Takes what stands in a directory.
    fn take(&mut self, dir: &Path, entry: Entry) {
        let Entry { kind, name, stat, .. } = entry;
        let path = || dir.iter().cloned().chain([name.clone()]).collect::<Path>();
        match (kind, stat) {
            (Kind::Directory, _) if dir.len() < DEPTH_MAX => self.todo.push(path()),
            (Kind::File, Some(stat)) => {
                self.found.insert(path(), (Mark::of(&stat), stat.changed));
            }
            // What has no attributes is looked at the next time.
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

/// Asks for what is in an open directory, behind a cookie.
fn list(open: OpenId, cookie: u64, out: &mut Vec<Output>) {
    out.push(Output::Ask(Ask::List { open, cookie, bytes_max: LIST, with_stat: true }));
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
                self.go_on(now, Look { since: now, todo, ..Look::default() }, out)
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
            // Who has asked for nothing gets no answer.
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

/// What stands for a path, from the root.
pub(crate) fn shown(path: &[Name]) -> Vec<u8> {
    let mut text = Vec::new();
    for name in path {
        text.push(b'/');
        text.extend_from_slice(name.as_bytes());
    }
    text
}

/// For those who know only that a file was read.
pub(crate) fn stdin(path: &[Name]) -> Vec<u8> {
    shown(path).split_off(1)
}
