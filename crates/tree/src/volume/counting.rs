//! The counting machine: finds out what files that were there before take of a quota.
//!
//! For a user it looks at all inodes in their order, and notes how far it has come in the quota:
//! changes of files before that place count at once, those behind it are found when it comes
//! there. For a directory it goes through all that is beneath, and gives each inode the number of
//! the project, with which it counts. New files have the number of their directory, and names do
//! not cross from one project into another, so what it has passed stays complete. Both is done in
//! transactions of a few hundred records, in the node's spare turns, and goes on after a crash:
//! for a user where it was, for a directory from its beginning, without counting twice.
//!
#![doc = include_str!("counting/states.md")]

use super::draft::Draft;
use super::quota::Usage;
use super::record::{ENTRIES, Entry, Holder, INODES, Inode, Quota, key, of_key};
use super::sight::Stop;
use base::{Automaton, Error, Instant, Kind};
use std::collections::VecDeque;
use std::mem;
use std::ops::ControlFlow;
use std::time::Duration;
use store::Change;

#[cfg(test)]
mod tests;

/// Maximum number of inodes looked at in one transaction, and of those that it changes.
const LOOK_MAX: usize = 256;
const MARK_MAX: usize = 64;

/// Pause after a failure.
const REST: Duration = Duration::from_secs(1);

/// Pending work for one quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Task {
    pub(super) holder: Holder,
    /// Directories of a project, the one being gone through last, each with the next cookie. Empty
    /// at first.
    pub(super) path: Vec<(u64, u64)>,
}

/// State of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// Waits for a quota.
    Idle,
    /// Waits for its turn.
    Working(Task),
    /// Waits for blocks.
    Waiting(Task),
    /// Something failed: waits until then.
    Resting(Task, Instant),
    /// Nothing can be changed any more.
    Over,
}

/// Input of the machine.
#[derive(Debug)]
pub(super) enum Input {
    /// Files have to be counted for this quota.
    Due(Holder),
    /// Blocks were asked for.
    Missing,
    /// They are there.
    Fetched,
    /// A part was counted; the path, unless that was all.
    Counted(Option<Vec<(u64, u64)>>),
    /// It cannot be done now.
    Failed,
    /// Nothing can be changed any more.
    Ended,
    /// Time has passed.
    Tick,
}

/// The machine.
#[derive(Debug)]
pub(super) struct Counting {
    state: State,
    /// Quotas whose turn comes later.
    queue: VecDeque<Holder>,
}

impl State {
    fn task_mut(&mut self) -> Option<&mut Task> {
        match self {
            State::Working(task) | State::Waiting(task) | State::Resting(task, _) => Some(task),
            State::Idle | State::Over => None,
        }
    }
}

impl Counting {
    pub(super) fn new(read_only: bool) -> Counting {
        let state = if read_only { State::Over } else { State::Idle };
        Counting { state, queue: VecDeque::new() }
    }

    /// The work to be done now, if it is its turn.
    pub(super) fn task(&self) -> Option<&Task> {
        match &self.state {
            State::Working(task) => Some(task),
            State::Idle | State::Waiting(_) | State::Resting(..) | State::Over => None,
        }
    }

    pub(super) fn name(&self) -> &'static str {
        match self.state {
            State::Idle => "idle",
            State::Working(_) => "counting",
            State::Waiting(_) => "count waits",
            State::Resting(..) => "resting",
            State::Over => "over",
        }
    }

    fn next(&mut self) -> State {
        let task = |holder| State::Working(Task { holder, path: Vec::new() });
        self.queue.pop_front().map_or(State::Idle, task)
    }
}

impl Automaton for Counting {
    type Input = Input;
    type Output = ();

    fn step(&mut self, now: Instant, input: Input, _out: &mut Vec<()>) {
        self.state = match (mem::replace(&mut self.state, State::Idle), input) {
            (State::Over, Input::Due(_)) => State::Over,
            (mut state, Input::Due(holder)) => {
                match state.task_mut() {
                    // What it has passed may have to be counted again.
                    Some(task) if task.holder == holder => task.path.clear(),
                    _ if self.queue.contains(&holder) => {}
                    _ => self.queue.push_back(holder),
                }
                if state == State::Idle { self.next() } else { state }
            }
            (State::Working(task), Input::Missing) => State::Waiting(task),
            (State::Waiting(task), Input::Fetched) => State::Working(task),
            (State::Working(task), Input::Counted(Some(path))) => {
                State::Working(Task { path, ..task })
            }
            (State::Working(_), Input::Counted(None)) => self.next(),
            (State::Working(task) | State::Waiting(task), Input::Failed) => {
                State::Resting(task, now + REST)
            }
            (State::Working(_) | State::Waiting(_), Input::Ended) => {
                self.queue.clear();
                State::Over
            }
            (State::Resting(task, until), Input::Tick) if until <= now => State::Working(task),
            (state, Input::Tick) => state,
            // Only what it asked for comes back, and once.
            (
                state @ (State::Idle | State::Resting(..) | State::Over),
                input @ (Input::Missing
                | Input::Fetched
                | Input::Counted(_)
                | Input::Failed
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
            State::Resting(_, until) => Some(until),
            State::Idle | State::Waiting(_) | State::Over => None,
        }
    }

    fn check(&self) {
        let rests = matches!(self.state, State::Idle | State::Over);
        assert!(!rests || self.queue.is_empty(), "no quota waits while nothing is done");
        let twice = |(at, holder)| self.queue.iter().skip(at + 1).any(|other| other == holder);
        assert!(!self.queue.iter().enumerate().any(twice), "a quota waits once");
    }
}

/// The next part of a task.
pub(super) struct Counted {
    pub(super) changes: Vec<Change>,
    /// The path to go on with, unless that was all.
    pub(super) path: Option<Vec<(u64, u64)>>,
}

impl Counted {
    fn all(draft: Draft<'_>) -> Counted {
        Counted { changes: draft.finish(), path: None }
    }
}

/// Counts the next files of a quota.
pub(super) fn count(mut draft: Draft<'_>, task: &Task) -> Result<Counted, Stop> {
    let Some(quota) = draft.quota(task.holder).filter(|quota| !quota.is_counted()) else {
        // It was removed.
        return Ok(Counted::all(draft));
    };
    match task.holder {
        Holder::User(uid) => look(&mut draft, uid, quota)?,
        Holder::Project(project) => {
            let mut path = task.path.clone();
            if path.is_empty() {
                path.push((quota.directory, 0));
            }
            mark(&mut draft, project, &mut path)?;
            if !path.is_empty() {
                return Ok(Counted { changes: draft.finish(), path: Some(path) });
            }
            let counted =
                draft.quota(task.holder).map(|quota| Quota { counted: u64::MAX, ..quota });
            draft.set_quota(task.holder, counted);
        }
    }
    let is_counted = draft.quota(task.holder).is_none_or(|quota| quota.is_counted());
    let path = (!is_counted).then(Vec::new);
    Ok(Counted { changes: draft.finish(), path })
}

/// Counts the next inodes for a user.
fn look(draft: &mut Draft<'_>, uid: u32, mut quota: Quota) -> Result<(), Stop> {
    let (mut seen, mut damaged, mut usage) = (0, false, Usage::default());
    let mut last = None;
    draft.sight.reader.scan(INODES, &key(quota.counted), &mut |key, value| {
        last = of_key(key);
        match (last, Inode::decode(&value.bytes())) {
            (Some(_), Some(inode)) if inode.uid == uid => {
                usage.blocks = usage.blocks.saturating_add(inode.blocks);
                usage.inodes += 1;
            }
            (Some(_), Some(_)) => {}
            _ => damaged = true,
        }
        seen += 1;
        if seen < LOOK_MAX && !damaged { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    if damaged {
        return Err(Error::Io.into());
    }
    quota.add(usage);
    let next = last.filter(|_| seen >= LOOK_MAX).and_then(|last| last.checked_add(1));
    quota.counted = next.unwrap_or(u64::MAX);
    draft.set_quota(Holder::User(uid), Some(quota));
    Ok(())
}

/// Marks the next entries of a project's directories, and goes down into the first directory.
fn mark(draft: &mut Draft<'_>, project: u64, path: &mut Vec<(u64, u64)>) -> Result<(), Stop> {
    let Some((dir, from)) = path.last_mut() else { return Ok(()) };
    let mut entries = Vec::new();
    let mut damaged = false;
    draft.sight.scan(ENTRIES, *dir, *from, &mut |cookie, value| {
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
    match entries.last() {
        None => _ = path.pop(),
        Some((cookie, entry)) => {
            *from = cookie.saturating_add(1);
            if entry.kind == Kind::Directory {
                // One that has a quota of its own counts for that one alone.
                let has = draft.project(&draft.look(entry.ino)?);
                if has == 0 || has == project {
                    path.push((entry.ino, 0));
                }
            }
        }
    }
    for (_, entry) in entries {
        let inode = draft.look(entry.ino)?;
        if draft.project(&inode) == 0 {
            let holder = Holder::Project(project);
            draft.inode(entry.ino)?.project = project;
            let quota = draft.quota(holder).map(|mut quota| {
                quota.add(Usage { blocks: inode.blocks, inodes: 1 });
                quota
            });
            draft.set_quota(holder, quota);
        }
    }
    Ok(())
}
