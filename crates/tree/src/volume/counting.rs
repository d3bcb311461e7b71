//! The counting machine: counts existing files for a quota.
//!
//! For a user it visits all inodes in order, and stores its position in the quota: changes of files
//! before that position are counted at once, those behind it when it arrives there. For a directory
//! it visits everything beneath, and gives each inode the number of the project, with which it
//! counts. New files have the number of their directory, and a rename between projects counts the
//! file for its new one (`quota.rs`), so visited directories stay complete. Both use small
//! transactions, in idle turns of the node, and continue after a crash: for a user at the stored
//! position, for a directory from the beginning, without counting twice.
//!
//! After a failure, a quota is retried behind the others, after a pause that grows.
//!
#![doc = include_str!("counting/states.md")]

use super::read_view::Stop;
use super::record::{ENTRIES, Entry, Holder, INODES, Inode, Quota, key, of_key};
use super::usage::Usage;
use super::write_set::WriteSet;
use base::{Automaton, Error, Instant, Kind};
use std::collections::VecDeque;
use std::mem;
use std::ops::ControlFlow;
use std::time::Duration;
use store::Change;

#[cfg(test)]
mod tests;

/// Maximum number of inodes visited in one transaction, and of those that it changes: few, so that
/// it need not wait for space while smaller transactions take it.
const LOOK_MAX: usize = 256;
const MARK_MAX: usize = 16;

/// Maximum number of directories being visited or waiting for it.
const PATH_MAX: usize = 1 << 20;

/// Pause after the first failure, doubled after each, and its maximum.
const REST: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(30));

/// Directories of a project being visited, the current one last, each with the next cookie.
pub(super) type Path = Vec<(u64, u64)>;

/// Pending work for one quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Task {
    pub(super) holder: Holder,
    /// Empty for everything beneath the project's directory.
    pub(super) path: Path,
}

/// State of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// Waiting for a quota.
    Idle,
    /// Waiting for its turn.
    Working(Task),
    /// Waiting for blocks.
    Waiting(Task),
    /// Waiting for the end of the pause after a failure.
    Resting(Instant),
    /// Ended: no changes are possible.
    Over,
}

/// Input of the machine.
#[derive(Debug)]
pub(super) enum Input {
    /// Files beneath this directory are to be counted for this quota; all files for a user's.
    Due(Holder, u64),
    /// Blocks have been requested.
    Missing,
    /// The blocks are in memory.
    Fetched,
    /// A part was counted; the path to continue with, unless it was the last part.
    Counted(Option<Path>),
    /// A transient failure.
    Failed(Error),
    /// No changes are possible.
    Ended,
    /// Time has passed.
    Tick,
}

/// Output of the machine.
#[derive(Debug)]
pub(super) enum Output {
    /// A quota was not counted; reported for the first failure after a success.
    Failed(Holder, Error),
}

/// The counting machine.
#[derive(Debug)]
pub(super) struct Counting {
    state: State,
    /// Tasks for later turns.
    queue: VecDeque<Task>,
    /// Number of failures since the last success.
    failures: u32,
}

impl Counting {
    pub(super) fn new(read_only: bool) -> Counting {
        let state = if read_only { State::Over } else { State::Idle };
        Counting { state, queue: VecDeque::new(), failures: 0 }
    }

    /// Returns the task to continue now, if it has its turn.
    pub(super) fn task(&self) -> Option<&Task> {
        match &self.state {
            State::Working(task) => Some(task),
            State::Idle | State::Waiting(_) | State::Resting(_) | State::Over => None,
        }
    }

    pub(super) fn name(&self) -> &'static str {
        match self.state {
            State::Idle => "idle",
            State::Working(_) => "counting",
            State::Waiting(_) => "count waits",
            State::Resting(_) => "resting",
            State::Over => "over",
        }
    }

    fn next(&mut self) -> State {
        self.queue.pop_front().map_or(State::Idle, State::Working)
    }

    /// Adds a directory to the task of a quota, or creates the task.
    fn due(&mut self, mut state: State, holder: Holder, directory: u64) -> State {
        let is_of_user = matches!(holder, Holder::User(_));
        assert_eq!(is_of_user, directory == 0, "a project has a directory");
        let current = match &mut state {
            State::Working(task) | State::Waiting(task) => Some(task),
            State::Idle | State::Resting(_) | State::Over => None,
        };
        let mut pending = current.into_iter().chain(&mut self.queue);
        match pending.find(|task| task.holder == holder) {
            // Everything is still to be counted.
            Some(task) if task.path.is_empty() => {}
            // Last, or else renames could keep it from finishing the others.
            Some(task) => task.path.insert(0, (directory, 0)),
            None => {
                let path = match holder {
                    Holder::User(_) => Vec::new(),
                    Holder::Project(_) => vec![(directory, 0)],
                };
                self.queue.push_back(Task { holder, path });
            }
        }
        if state == State::Idle { self.next() } else { state }
    }

    /// Queues a failed task behind all others.
    fn put_off(&mut self, now: Instant, task: Task, error: Error, out: &mut Vec<Output>) -> State {
        if self.failures == 0 {
            out.push(Output::Failed(task.holder, error));
        }
        self.queue.push_back(task);
        let rest = REST.0 * 2_u32.pow(self.failures.min(16));
        self.failures = self.failures.saturating_add(1);
        State::Resting(now + rest.min(REST.1))
    }
}

impl Automaton for Counting {
    type Input = Input;
    type Output = Output;

    fn step(&mut self, now: Instant, input: Input, out: &mut Vec<Output>) {
        self.state = match (mem::replace(&mut self.state, State::Idle), input) {
            (State::Over, Input::Due(..)) => State::Over,
            (state, Input::Due(holder, directory)) => self.due(state, holder, directory),
            (State::Working(task), Input::Missing) => State::Waiting(task),
            (State::Waiting(task), Input::Fetched) => State::Working(task),
            (State::Working(task), Input::Counted(path)) => {
                self.failures = 0;
                match path {
                    Some(path) => State::Working(Task { path, ..task }),
                    None => self.next(),
                }
            }
            (State::Working(task) | State::Waiting(task), Input::Failed(error)) => {
                self.put_off(now, task, error, out)
            }
            (State::Working(_) | State::Waiting(_), Input::Ended) => {
                self.queue.clear();
                State::Over
            }
            (State::Resting(until), Input::Tick) if until <= now => self.next(),
            (state, Input::Tick) => state,
            // Each request of its own is completed once, and nothing else arrives.
            (
                state @ (State::Idle | State::Resting(_) | State::Over),
                input @ (Input::Missing
                | Input::Fetched
                | Input::Counted(_)
                | Input::Failed(_)
                | Input::Ended),
            )
            | (state @ State::Working(_), input @ Input::Fetched)
            | (state @ State::Waiting(_), input @ (Input::Missing | Input::Counted(_))) => {
                unreachable!("{input:?} in {state:?}")
            }
        };
    }

    fn deadline(&self) -> Option<Instant> {
        match self.state {
            State::Working(_) => Some(Instant(0)),
            State::Resting(until) => Some(until),
            State::Idle | State::Waiting(_) | State::Over => None,
        }
    }

    fn check(&self) {
        let rests = matches!(self.state, State::Idle | State::Over);
        assert!(!rests || self.queue.is_empty(), "no quota waits while nothing is done");
        let twice = |(at, task): (usize, &Task)| {
            self.queue.iter().skip(at + 1).any(|other| other.holder == task.holder)
        };
        assert!(!self.queue.iter().enumerate().any(twice), "a quota waits once");
    }
}

/// Result of one step of a task.
pub(super) struct Counted {
    pub(super) changes: Vec<Change>,
    /// Path to continue with, unless this was the last step.
    pub(super) path: Option<Path>,
}

/// Counts the next files for a quota; `path` is that of the task.
pub(super) fn count(
    mut write_set: WriteSet<'_>,
    holder: Holder,
    mut path: Path,
) -> Result<Counted, Stop> {
    let Some(quota) = write_set.quota(holder).filter(|quota| !quota.is_counted()) else {
        // The quota was removed.
        return Ok(Counted { changes: write_set.finish(), path: None });
    };
    match holder {
        Holder::User(uid) => look(&mut write_set, uid, quota)?,
        Holder::Project(project) => {
            if path.is_empty() {
                path.push((quota.directory, 0));
            }
            let before = path.len();
            mark(&mut write_set, project, &mut path)?;
            assert!(path.len() <= before + 1, "one directory is gone into at once");
            if path.is_empty() {
                let counted = |quota| Quota { counted: u64::MAX, ..quota };
                let counted = write_set.quota(holder).map(counted);
                write_set.set_quota(holder, counted);
            }
        }
    }
    let is_counted = write_set.quota(holder).is_none_or(|quota| quota.is_counted());
    Ok(Counted { changes: write_set.finish(), path: (!is_counted).then_some(path) })
}

/// Counts the next inodes for a user.
fn look(write_set: &mut WriteSet<'_>, uid: u32, mut quota: Quota) -> Result<(), Stop> {
    let (mut seen, mut damaged, mut usage) = (0, false, Usage::default());
    let mut last = None;
    write_set.read_view.reader.scan(INODES, &key(quota.counted), &mut |key, value| {
        last = of_key(key);
        match (last, Inode::decode(&value.bytes())) {
            (Some(_), Some(inode)) if inode.uid == uid => {
                usage.blocks = usage.blocks.saturating_add(inode.blocks);
                usage.inodes += 1;
            }
            (Some(_), Some(_)) => {}
            (None, _) | (_, None) => damaged = true,
        }
        seen += 1;
        if seen < LOOK_MAX && !damaged { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    if damaged {
        return Err(Error::Io.into());
    }
    quota.add(usage);
    let next = last.filter(|_| seen >= LOOK_MAX).and_then(|last| last.checked_add(1));
    assert!(next.is_none_or(|next| next > quota.counted), "it goes on");
    quota.counted = next.unwrap_or(u64::MAX);
    write_set.set_quota(Holder::User(uid), Some(quota));
    Ok(())
}

/// Counts the next entries of a project's directories, and descends into the first directory.
fn mark(write_set: &mut WriteSet<'_>, project: u64, path: &mut Path) -> Result<(), Stop> {
    let Some((dir, from)) = path.last_mut() else { return Ok(()) };
    // It may have been removed, or moved to another project.
    let is_counted = match write_set.look(*dir) {
        Ok(inode) => inode.project == project,
        Err(Stop::Failed(Error::Stale)) => false,
        Err(stop) => return Err(stop),
    };
    if !is_counted {
        path.pop();
        return Ok(());
    }
    let mut entries = Vec::new();
    let mut damaged = false;
    write_set.read_view.scan(ENTRIES, *dir, *from, &mut |cookie, value| {
        match Entry::decode(&value.bytes()) {
            Some(entry) => entries.push((cookie, entry)),
            None => damaged = true,
        }
        let below = entries.last().is_some_and(|(_, entry)| entry.kind == Kind::Directory);
        let enough = damaged || below || entries.len() >= MARK_MAX;
        if enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    if damaged {
        return Err(Error::Io.into());
    }
    assert!(entries.len() <= MARK_MAX, "a transaction stays small");
    let Some((cookie, last)) = entries.last() else {
        path.pop();
        return Ok(());
    };
    *from = cookie.saturating_add(1);
    let below = (last.kind == Kind::Directory).then_some(last.ino);
    for (_, entry) in entries {
        let inode = write_set.look(entry.ino)?;
        if write_set.project(&inode) == 0 {
            let holder = Holder::Project(project);
            write_set.inode(entry.ino)?.project = project;
            let quota = write_set.quota(holder).map(|mut quota| {
                quota.add(Usage { blocks: inode.blocks, inodes: 1 });
                quota
            });
            write_set.set_quota(holder, quota);
        }
    }
    // A directory with a quota of its own counts for that one only.
    if let Some(below) = below
        && write_set.look(below)?.project == project
    {
        if path.len() >= PATH_MAX {
            // A cycle, caused by damage.
            return Err(Error::Io.into());
        }
        path.push((below, 0));
    }
    Ok(())
}
