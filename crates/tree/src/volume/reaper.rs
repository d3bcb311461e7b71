//! The reaper: frees the storage of what was removed or cut off, a bounded piece at a time.
//!
//! The request that removes a large file only takes its name away, and notes that it waits for
//! its storage to be freed; the rest is done here, in the node's spare turns, and goes on after a
//! crash. The machine only knows whose turn it is; what to do is planned like any request.
//!
#![doc = include_str!("reaper/states.md")]

use super::data::{self, SIZE_MAX};
use super::draft::Draft;
use super::record::{DATA, ORPHANS, Orphan, Why, key, of_key};
use super::remove::ATTRS_AT_ONCE;
use super::sight::{Sight, Stop};
use base::{Automaton, Error, Instant};
use std::collections::VecDeque;
use std::mem;
use std::ops::ControlFlow;
use store::Change;

#[cfg(test)]
mod tests;

/// Most blocks that one transaction frees.
const BLOCKS_MAX: u64 = 2048;

/// Most orphans that are noted at once when looking for those of an earlier life.
const LOOK_MAX: usize = 1024;

/// Files of more blocks than that are looked through only [`SPAN_MAX`] bytes at a time.
const SCAN_MAX: u64 = 65_536;
/// See [`SCAN_MAX`].
const SPAN_MAX: u64 = 256 << 20;

/// What the reaper is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// Waits for its turn to look who is an orphan, from this inode on.
    Looking(u64),
    /// Waits for blocks of the table of orphans.
    LookWaits(u64),
    /// Waits for somebody to die.
    Idle,
    /// Waits for its turn to free a part of this inode, from this byte of its contents on.
    Cutting(u64, u64),
    /// Waits for blocks, or for room.
    CutWaits(u64, u64),
    /// Nothing can be changed here.
    Over,
}

/// What can happen to it.
#[derive(Debug)]
pub(super) enum Input {
    /// This inode waits for storage to be freed.
    Due(u64),
    /// So it does, and somebody waits for that.
    Urgent(u64),
    /// These inodes wait; where to look on, unless that were all.
    Found(Vec<u64>, Option<u64>),
    /// Blocks were asked for.
    Missing,
    /// They are there.
    Fetched,
    /// A part was freed, up to this byte.
    Freed(u64),
    /// There is nothing left to be freed (now).
    Done,
    /// It cannot be done.
    Failed(Error),
}

/// What it says.
#[derive(Debug)]
pub(super) enum Output {
    /// Whoever waits for this inode may try again.
    Over(u64),
    /// Whoever waits for this inode waits in vain.
    Failed(u64, Error),
}

/// What is to be done when it is its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Task {
    /// Look who is an orphan, from this inode on.
    Look(u64),
    /// Free a part of this inode, from this byte of its contents on.
    Cut(u64, u64),
}

/// The machine.
#[derive(Debug)]
pub(super) struct Reaper {
    state: State,
    /// Whose turn is next.
    queue: VecDeque<u64>,
}

impl Reaper {
    pub(super) fn new(read_only: bool) -> Reaper {
        let state = if read_only { State::Over } else { State::Looking(0) };
        Reaper { state, queue: VecDeque::new() }
    }

    /// What to do, if it is its turn.
    pub(super) fn task(&self) -> Option<Task> {
        match self.state {
            State::Looking(from) => Some(Task::Look(from)),
            State::Cutting(ino, at) => Some(Task::Cut(ino, at)),
            State::LookWaits(_) | State::Idle | State::CutWaits(..) | State::Over => None,
        }
    }

    /// How many inodes wait.
    pub(super) fn waiting(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn name(&self) -> &'static str {
        match self.state {
            State::Looking(_) => "looking",
            State::LookWaits(_) => "look waits",
            State::Idle => "idle",
            State::Cutting(..) => "cutting",
            State::CutWaits(..) => "cut waits",
            State::Over => "over",
        }
    }

    fn next(&mut self) -> State {
        self.queue.pop_front().map_or(State::Idle, |ino| State::Cutting(ino, 0))
    }
}

impl Automaton for Reaper {
    type Input = Input;
    type Output = Output;

    fn step(&mut self, _now: Instant, input: Input, out: &mut Vec<Output>) {
        self.state = match (mem::replace(&mut self.state, State::Over), input) {
            (State::Over, Input::Due(_)) => State::Over,
            // Reading only: nobody grows a file, so nobody waits.
            (State::Over, Input::Urgent(ino)) => {
                out.push(Output::Failed(ino, Error::ReadOnly));
                State::Over
            }
            (State::Idle, Input::Due(ino) | Input::Urgent(ino)) => State::Cutting(ino, 0),
            // The turn goes to whom somebody waits for; the other one begins again later.
            (State::Cutting(other, _), Input::Urgent(ino)) if other != ino => {
                self.queue.push_front(other);
                State::Cutting(ino, 0)
            }
            (
                state @ (State::Looking(_)
                | State::LookWaits(_)
                | State::Cutting(..)
                | State::CutWaits(..)),
                Input::Urgent(ino),
            ) => {
                self.queue.push_front(ino);
                state
            }
            (
                state @ (State::Looking(_)
                | State::LookWaits(_)
                | State::Cutting(..)
                | State::CutWaits(..)),
                Input::Due(ino),
            ) => {
                self.queue.push_back(ino);
                state
            }
            (State::Looking(_), Input::Found(found, next)) => {
                self.queue.extend(found);
                next.map_or_else(|| self.next(), State::Looking)
            }
            (State::Looking(from), Input::Missing) => State::LookWaits(from),
            (State::LookWaits(from), Input::Fetched) => State::Looking(from),
            // What an earlier life left stays until the next one.
            (State::Looking(_) | State::LookWaits(_), Input::Failed(_)) => self.next(),
            (State::Cutting(ino, at), Input::Missing) => State::CutWaits(ino, at),
            (State::CutWaits(ino, at), Input::Fetched) => State::Cutting(ino, at),
            (State::Cutting(ino, _), Input::Freed(at)) => State::Cutting(ino, at),
            (State::Cutting(ino, _), Input::Done) => {
                out.push(Output::Over(ino));
                self.next()
            }
            (State::Cutting(ino, _) | State::CutWaits(ino, _), Input::Failed(error)) => {
                out.push(Output::Failed(ino, error));
                self.next()
            }
            // Only what it asked for comes back.
            (state, input) => unreachable!("{input:?} in {state:?}"),
        };
    }
}

/// A part of the work on an inode.
pub(super) struct Cut {
    pub(super) changes: Vec<Change>,
    /// Up to where its contents are freed; `None`: there is nothing left to be done.
    pub(super) freed: Option<u64>,
    /// There is no such inode any more.
    pub(super) gone: bool,
}

impl Cut {
    fn nothing() -> Cut {
        Cut { changes: Vec::new(), freed: None, gone: false }
    }
}

/// The orphans from an inode on, and where to look on.
pub(super) fn look(sight: &Sight<'_>, from: u64) -> Result<(Vec<u64>, Option<u64>), Stop> {
    let mut found = Vec::new();
    sight.reader.scan(ORPHANS, &key(from), &mut |key, _value| {
        found.extend(of_key(key));
        if found.len() < LOOK_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    let more = found.len() >= LOOK_MAX;
    let next = found.last().filter(|_| more).and_then(|last| last.checked_add(1));
    Ok((found, next))
}

/// The next part of freeing an inode, from a byte of its contents on. `held`: somebody still
/// uses it, so only what is behind its end goes.
pub(super) fn cut(mut draft: Draft<'_>, ino: u64, at: u64, held: bool) -> Result<Cut, Stop> {
    let Some(Orphan { why, end }) = draft.sight.orphan(ino)? else { return Ok(Cut::nothing()) };
    let (block, inode) = (draft.sight.block, draft.look(ino)?);
    let lives = why == Why::Trimming || held;
    if lives && !inode.trimming {
        return Ok(Cut::nothing());
    }
    let kept = if lives { inode.size } else { 0 };
    let at = at.max(kept.next_multiple_of(block));
    let to = at.saturating_add(span(&draft.sight, ino, at, inode.blocks)?);
    // A file without a name may have grown since it lost it.
    if to < end.max(inode.size).min(SIZE_MAX) {
        let blocks = data::covered(&draft.sight, ino, at, to)?;
        draft.push(Change::Cut { table: DATA, object: ino, from: at, to });
        draft.give_blocks(ino, blocks)?;
        return Ok(Cut { changes: draft.finish(), freed: Some(to), gone: false });
    }
    if lives {
        let blocks = data::covered(&draft.sight, ino, at, to)?;
        draft.push(Change::Cut { table: DATA, object: ino, from: kept, to: u64::MAX });
        draft.give_blocks(ino, blocks)?;
        draft.inode(ino)?.trimming = false;
        if why == Why::Trimming {
            draft.settle(ino);
        }
        return Ok(Cut { changes: draft.finish(), freed: None, gone: false });
    }
    let gone = draft.erase(ino, ATTRS_AT_ONCE)?;
    if gone {
        draft.settle(ino);
    }
    Ok(Cut { changes: draft.finish(), freed: (!gone).then_some(at), gone })
}

/// How many bytes from `at` on hold no more than [`BLOCKS_MAX`] blocks.
fn span(sight: &Sight<'_>, ino: u64, at: u64, blocks: u64) -> Result<u64, Stop> {
    let most = if blocks <= SCAN_MAX { SIZE_MAX / 4 } else { SPAN_MAX };
    let mut span = BLOCKS_MAX * sight.block;
    while span < most {
        let end = at.saturating_add(2 * span);
        if sight.reader.allocated(DATA, ino, at, end)? > BLOCKS_MAX {
            break;
        }
        span *= 2;
    }
    Ok(span)
}
