//! The reaper: frees the storage of removed and truncated files, a bounded piece at a time.
//!
//! The request that removes a large file only unlinks it, and records that its storage must be
//! freed; the reaper does that in idle turns of the node, and continues after a crash. The machine
//! only does the scheduling; the work itself is planned like a request.
//!
//! After a failure, a task goes to the end of the queue, and the reaper pauses, longer after each
//! failure. If no further changes are possible, the rest is left for the next opening of the
//! volume.
//!
#![doc = include_str!("reaper/states.md")]

use super::data;
use super::read_view::{ReadView, Stop};
use super::record::{DATA, FreeReason, ORPHANS, Orphan, SIZE_MAX, key, of_key};
use super::remove::ATTRS_AT_ONCE;
use super::write_set::WriteSet;
use base::{Automaton, Error, Instant};
use std::collections::VecDeque;
use std::mem;
use std::ops::ControlFlow;
use std::time::Duration;
use store::Change;

#[cfg(test)]
mod tests;

/// Maximum number of blocks freed by one transaction.
const BLOCKS_MAX: u64 = 2048;

/// Maximum number of orphans read at once when scanning for those of an earlier opening.
const LOOK_MAX: usize = 1024;

/// Pause after the first failure, doubled after each, and its maximum.
const REST: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(30));

/// State of the reaper.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// Waiting for an orphan.
    Idle,
    /// Waiting for its turn to continue this task.
    Working(Task),
    /// Waiting for blocks, or for space, for this task.
    Waiting(Task),
    /// Waiting for the end of the pause after a failure, or for an urgent task.
    Resting(Instant),
    /// Ended: no changes are possible, for this reason.
    Over(Error),
}

/// An input of the reaper.
#[derive(Debug)]
pub(super) enum Input {
    /// The storage of this inode is to be freed.
    Due(u64),
    /// Like [`Input::Due`], and requests wait for it.
    Urgent(u64),
    /// Orphans found, and where to continue the scan, unless it is complete.
    Found(Vec<u64>, Option<u64>),
    /// Blocks have been requested.
    Missing,
    /// The blocks are in memory.
    Fetched,
    /// A part was freed, up to this byte.
    Freed(u64),
    /// Nothing is left to free (now).
    Done,
    /// A transient failure.
    Failed(Error),
    /// No changes are possible.
    Ended(Error),
    /// Time has passed.
    Tick,
}

/// An output of the reaper.
#[derive(Debug)]
pub(super) enum Output {
    /// Requests that wait for this inode can be retried.
    Over(u64),
    /// Requests that wait for this inode fail.
    Failed(u64, Error),
}

/// A task of the reaper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Task {
    /// Scan for orphans, from this inode on.
    Look(u64),
    /// Free a part of this inode, from this byte of its contents on.
    Cut(u64, u64),
}

/// The reaper.
#[derive(Debug)]
pub(super) struct Reaper {
    state: State,
    /// Tasks for later turns.
    queue: VecDeque<Task>,
    /// Number of consecutive failures.
    failures: u32,
}

impl Reaper {
    pub(super) fn new(read_only: bool) -> Reaper {
        let begin = State::Working(Task::Look(0));
        let state = if read_only { State::Over(Error::ReadOnly) } else { begin };
        Reaper { state, queue: VecDeque::new(), failures: 0 }
    }

    /// Returns the task to continue now, if it has its turn.
    pub(super) fn task(&self) -> Option<Task> {
        match self.state {
            State::Working(task) => Some(task),
            State::Idle | State::Waiting(_) | State::Resting(_) | State::Over(_) => None,
        }
    }

    /// Returns the number of waiting inodes.
    pub(super) fn waiting(&self) -> usize {
        self.queue.iter().filter(|task| matches!(task, Task::Cut(..))).count()
    }

    pub(super) fn name(&self) -> &'static str {
        match self.state {
            State::Idle => "idle",
            State::Working(Task::Look(_)) => "looking",
            State::Waiting(Task::Look(_)) => "look waits",
            State::Working(Task::Cut(..)) => "cutting",
            State::Waiting(Task::Cut(..)) => "cut waits",
            State::Resting(_) => "resting",
            State::Over(_) => "over",
        }
    }

    /// Returns the state of the first queued task.
    fn next(&mut self) -> State {
        self.queue.pop_front().map_or(State::Idle, State::Working)
    }

    /// Queues a failed task, from its beginning, behind all others. Returns the end of the pause.
    fn put_off(
        &mut self,
        now: Instant,
        task: Task,
        error: Error,
        out: &mut Vec<Output>,
    ) -> Instant {
        let again = match task {
            Task::Look(_) => task,
            Task::Cut(ino, _) => {
                out.push(Output::Failed(ino, error));
                Task::Cut(ino, 0)
            }
        };
        if !self.queue.contains(&again) {
            self.queue.push_back(again);
        }
        let rest = REST.0 * 2_u32.pow(self.failures.min(16));
        self.failures = self.failures.saturating_add(1);
        now + rest.min(REST.1)
    }

    /// Fails all tasks when no changes are possible.
    fn give_up(&mut self, task: Task, error: Error, out: &mut Vec<Output>) {
        self.queue.push_front(task);
        for task in mem::take(&mut self.queue) {
            if let Task::Cut(ino, _) = task {
                out.push(Output::Failed(ino, error));
            }
        }
    }

    /// Queues an inode.
    fn due(&mut self, state: State, ino: u64) -> State {
        match state {
            State::Idle => State::Working(Task::Cut(ino, 0)),
            State::Over(error) => State::Over(error),
            state @ (State::Working(_) | State::Waiting(_) | State::Resting(_)) => {
                self.queue.push_back(Task::Cut(ino, 0));
                state
            }
        }
    }

    /// Queues an inode that requests wait for.
    fn urgent(&mut self, state: State, ino: u64, out: &mut Vec<Output>) -> State {
        match state {
            // No file can grow where no changes are possible, so the wait ends at once.
            State::Over(error) => {
                out.push(Output::Failed(ino, error));
                State::Over(error)
            }
            // An urgent task does not wait for the end of a pause.
            State::Idle | State::Resting(_) => State::Working(Task::Cut(ino, 0)),
            // The urgent task preempts the current one, which starts again later.
            State::Working(Task::Cut(other, _)) if other != ino => {
                self.queue.push_front(Task::Cut(other, 0));
                State::Working(Task::Cut(ino, 0))
            }
            state @ (State::Working(_) | State::Waiting(_)) => {
                self.queue.push_front(Task::Cut(ino, 0));
                state
            }
        }
    }

    /// Queues orphans found by a scan.
    fn line_up(&mut self, found: Vec<u64>) {
        self.failures = 0;
        self.queue.extend(found.into_iter().map(|ino| Task::Cut(ino, 0)));
    }

    /// Records the success of a task.
    fn went(&mut self, over: Option<u64>, out: &mut Vec<Output>) {
        self.failures = 0;
        out.extend(over.map(Output::Over));
    }
}

impl Automaton for Reaper {
    type Input = Input;
    type Output = Output;

    fn step(&mut self, now: Instant, input: Input, out: &mut Vec<Output>) {
        self.state = match (mem::replace(&mut self.state, State::Idle), input) {
            (state, Input::Due(ino)) => self.due(state, ino),
            (state, Input::Urgent(ino)) => self.urgent(state, ino, out),
            (State::Working(Task::Look(_)), Input::Found(found, next)) => {
                self.line_up(found);
                next.map_or_else(|| self.next(), |from| State::Working(Task::Look(from)))
            }
            (State::Working(task), Input::Missing) => State::Waiting(task),
            (State::Waiting(task), Input::Fetched) => State::Working(task),
            (State::Working(Task::Cut(ino, _)), Input::Freed(at)) => {
                self.went(None, out);
                State::Working(Task::Cut(ino, at))
            }
            (State::Working(Task::Cut(ino, _)), Input::Done) => {
                self.went(Some(ino), out);
                self.next()
            }
            (State::Working(task) | State::Waiting(task), Input::Failed(error)) => {
                State::Resting(self.put_off(now, task, error, out))
            }
            (State::Working(task) | State::Waiting(task), Input::Ended(error)) => {
                self.give_up(task, error, out);
                State::Over(error)
            }
            (State::Resting(until), Input::Tick) if until <= now => self.next(),
            (state, Input::Tick) => state,
            // Each request of its own is completed once, and nothing else arrives.
            (
                state @ (State::Idle | State::Resting(_) | State::Over(_)),
                input @ (Input::Found(..)
                | Input::Missing
                | Input::Fetched
                | Input::Freed(_)
                | Input::Done
                | Input::Failed(_)
                | Input::Ended(_)),
            )
            | (state @ State::Working(_), input @ Input::Fetched)
            | (
                state @ (State::Working(Task::Cut(..)) | State::Waiting(_)),
                input @ Input::Found(..),
            )
            | (
                state @ (State::Working(Task::Look(_)) | State::Waiting(_)),
                input @ (Input::Freed(_) | Input::Done),
            )
            | (state @ State::Waiting(_), input @ Input::Missing) => {
                unreachable!("{input:?} in {state:?}")
            }
        };
    }

    fn deadline(&self) -> Option<Instant> {
        match self.state {
            State::Working(_) => Some(Instant(0)),
            State::Resting(until) => Some(until),
            State::Idle | State::Waiting(_) | State::Over(_) => None,
        }
    }

    fn check(&self) {
        let is_idle = self.state == State::Idle;
        assert!(!is_idle || self.queue.is_empty(), "nobody waits while nothing is done");
        let is_over = matches!(self.state, State::Over(_));
        assert!(!is_over || self.queue.is_empty(), "nobody waits in vain");
        let looks = self.queue.iter().filter(|task| matches!(task, Task::Look(_))).count();
        assert!(looks <= 1, "orphans of an earlier life are looked for once");
    }
}

/// Result of one step of freeing an inode.
pub(super) struct Cut {
    pub(super) changes: Vec<Change>,
    /// Offset up to which its contents are freed; `None` if nothing is left to free.
    pub(super) freed: Option<u64>,
    /// Whether the inode was removed.
    pub(super) gone: bool,
}

impl Cut {
    fn nothing() -> Cut {
        Cut { changes: Vec::new(), freed: None, gone: false }
    }
}

/// Returns the orphans from an inode on, and where to continue the scan.
pub(super) fn look(read_view: &ReadView<'_>, from: u64) -> Result<(Vec<u64>, Option<u64>), Stop> {
    let mut found = Vec::new();
    read_view.reader.scan(ORPHANS, &key(from), &mut |key, _value| {
        found.extend(of_key(key));
        if found.len() < LOOK_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    let more = found.len() >= LOOK_MAX;
    let next = found.last().filter(|_| more).and_then(|last| last.checked_add(1));
    Ok((found, next))
}

/// Plans the next step of freeing an inode, from a byte of its contents on. `held`: it is still in
/// use, so only contents behind its end are freed.
pub(super) fn cut(mut write_set: WriteSet<'_>, ino: u64, at: u64, held: bool) -> Result<Cut, Stop> {
    let Some(Orphan { why, end }) = write_set.read_view.orphan(ino)? else {
        return Ok(Cut::nothing());
    };
    let (block, inode) = (write_set.read_view.block, write_set.look(ino)?);
    let lives = why == FreeReason::Trimming || held;
    if lives && !inode.trimming {
        return Ok(Cut::nothing());
    }
    let kept = if lives { inode.size } else { 0 };
    let at = at.max(kept.next_multiple_of(block));
    let to = write_set.read_view.reader.reach(DATA, ino, at, BLOCKS_MAX)?.unwrap_or(u64::MAX);
    // A file without a name may have grown since it lost it.
    if to < end.max(inode.size).min(SIZE_MAX) {
        let blocks = data::covered(&write_set.read_view, ino, at, to)?;
        write_set.push(Change::Cut { table: DATA, object: ino, from: at, to });
        write_set.give_blocks(ino, blocks)?;
        return Ok(Cut { changes: write_set.finish(), freed: Some(to), gone: false });
    }
    if lives {
        let blocks = data::covered(&write_set.read_view, ino, at, to)?;
        write_set.push(Change::Cut { table: DATA, object: ino, from: kept, to: u64::MAX });
        write_set.give_blocks(ino, blocks)?;
        write_set.inode(ino)?.trimming = false;
        if why == FreeReason::Trimming {
            write_set.settle(ino);
        }
        return Ok(Cut { changes: write_set.finish(), freed: None, gone: false });
    }
    let gone = write_set.erase(ino, ATTRS_AT_ONCE)?;
    if gone {
        write_set.settle(ino);
    }
    Ok(Cut { changes: write_set.finish(), freed: (!gone).then_some(at), gone })
}
