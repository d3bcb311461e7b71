//! The life of a storelet on a worker: running, and waiting for this or that.
//!
//! The guest itself is not in here: whoever has this machine has it, and runs it for a slice when
//! the machine says [`Output::Resume`]. At any moment between two slices it can be killed; an
//! answer that is on its way then is waited for, because what it hands out has to be given back.
//!
#![doc = include_str!("life/states.md")]

use crate::budget::Reason;
use crate::door::{Got, Stream, Want};
use crate::guest::{Ended, Pause};
use base::{Automaton, Error, Instant, Kind, Name};
use std::mem;
use tree::{Ask, NodeId, Reply};

#[cfg(test)]
mod tests;

/// Most names of one walk.
const NAMES_MAX: usize = 16;

/// What can happen to a storelet.
#[derive(Debug)]
pub(crate) enum Input {
    /// It is to find the directory that it sees as its root: names from here.
    Begin(NodeId),
    /// It is its turn to run.
    Turn,
    /// Its slice is over.
    Paused(Pause),
    /// It is its turn to ask for files.
    Admitted,
    /// The answer to what it asked.
    Answered(Result<Reply, Error>),
    /// What it asked ahead has come.
    Arrived,
    /// Some of its input; nothing: the end.
    Fed(Vec<u8>),
    /// What it says is taken.
    Heard,
    /// Time has passed.
    Tick,
    /// It is to end.
    Kill(Reason),
}

/// What a storelet can ask for.
#[derive(Debug)]
pub(crate) enum Output {
    /// Ask the name space; [`Input::Answered`] follows.
    Ask(Ask),
    /// The answer is not wanted any more; it comes all the same.
    Cancel,
    /// Make the guest, which sees this directory as its root.
    Make(NodeId),
    /// Run the guest for a slice; it gets this.
    Resume(Option<Got>),
    /// Feed it when there is input, at most so many bytes.
    Hungry(u32),
    /// Take what it says.
    Say(Stream, Vec<u8>),
    /// Drop the guest where it stands.
    Drop,
    /// Give back what this answer hands out.
    Disclaim(Reply),
    /// Give back this file, which was on the way or is no directory.
    Release(NodeId),
    /// It has ended, like this.
    Ended(Ended),
}

/// A directory on the way to the root, to be given back when the walk from it has ended.
type Via = Option<NodeId>;

/// What it waits for.
#[derive(Debug)]
enum State {
    /// To be begun, with the names of its root.
    New(Vec<Name>),
    /// For a walk from here; the names behind that are to be walked then.
    Finding(Via, Vec<Name>),
    /// For its turn; then it gets this.
    Ready(Option<Got>),
    /// For the end of its slice.
    Running,
    /// For its turn to ask for this.
    Queued(Box<Ask>),
    /// For an answer.
    Asking,
    /// For the answer to what it asked ahead.
    Awaiting,
    /// For input.
    Hungry,
    /// For somebody to take what it said.
    Saying,
    /// For a time.
    Sleeping(Instant),
    /// For an answer that nobody wants any more.
    Leaving(Via),
    /// For nothing.
    Over,
}

/// The life of one storelet.
#[derive(Debug)]
pub(crate) struct Life {
    state: State,
}

impl Life {
    /// A storelet that has not begun; its root is at the end of these names.
    pub(crate) fn new(root: Vec<Name>) -> Life {
        Life { state: State::New(root) }
    }

    /// Whether it waits for its turn to run.
    pub(crate) fn is_ready(&self) -> bool {
        matches!(self.state, State::Ready(_))
    }

    /// What it waits its turn to ask for.
    pub(crate) fn queued(&self) -> Option<&Ask> {
        match &self.state {
            State::Queued(ask) => Some(ask),
            State::New(_)
            | State::Finding(..)
            | State::Ready(_)
            | State::Running
            | State::Asking
            | State::Awaiting
            | State::Hungry
            | State::Saying
            | State::Sleeping(_)
            | State::Leaving(_)
            | State::Over => None,
        }
    }

    /// Whether it waits for input or for its listener: for people.
    pub(crate) fn is_talking(&self) -> bool {
        matches!(self.state, State::Hungry | State::Saying | State::Sleeping(_))
    }

    /// Whether it has ended, as far as others are concerned.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.state, State::Leaving(_) | State::Over)
    }

    /// Whether it waits for nothing any more.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.state, State::Over)
    }

    /// The state in one word.
    pub(crate) fn state_name(&self) -> &'static str {
        match self.state {
            State::New(_) | State::Finding(..) => "finding its root",
            State::Ready(_) => "ready",
            State::Running => "running",
            State::Queued(_) => "waiting to ask",
            State::Asking | State::Awaiting => "waiting for files",
            State::Hungry => "waiting for input",
            State::Saying => "waiting for its reader",
            State::Sleeping(_) => "sleeping",
            State::Leaving(_) => "leaving",
            State::Over => "over",
        }
    }

    /// Asks for the directory at the end of some names, as many at once as can be.
    fn find(from: NodeId, via: Via, mut names: Vec<Name>, out: &mut Vec<Output>) -> State {
        let rest = names.split_off(names.len().min(NAMES_MAX));
        out.push(Output::Ask(Ask::Walk { from, names }));
        State::Finding(via, rest)
    }

    /// The names were walked, or not.
    fn found(rest: Vec<Name>, reply: Result<Reply, Error>, out: &mut Vec<Output>) -> State {
        match reply {
            Ok(Reply::Walked(way, Some(node))) if rest.is_empty() => {
                if way.last().is_some_and(|stat| stat.kind != Kind::Directory) {
                    out.push(Output::Release(node));
                    return Life::rootless(Error::NotDirectory, out);
                }
                out.push(Output::Make(node));
                State::Ready(None)
            }
            Ok(Reply::Walked(_, Some(node))) => Life::find(node, Some(node), rest, out),
            Ok(_) => Life::rootless(Error::NotFound, out),
            Err(error) => Life::rootless(error, out),
        }
    }

    fn rootless(error: Error, out: &mut Vec<Output>) -> State {
        let cause = match [Error::NotFound, Error::NotDirectory].contains(&error) {
            true => "no such directory".to_string(),
            false => error.to_string(),
        };
        let text = format!("cannot enter its root: {cause}; name a directory of the server");
        out.push(Output::Ended(Ended::Refused(text)));
        State::Over
    }

    /// Its slice is over.
    fn paused(now: Instant, pause: Pause, out: &mut Vec<Output>) -> State {
        match pause {
            Pause::Slice => State::Ready(None),
            Pause::Wants(Want::File(ask)) => State::Queued(Box::new(ask)),
            Pause::Wants(Want::Input(count)) => {
                out.push(Output::Hungry(count));
                State::Hungry
            }
            Pause::Wants(Want::Output(stream, bytes)) => {
                out.push(Output::Say(stream, bytes));
                State::Saying
            }
            Pause::Wants(Want::Ahead) => State::Awaiting,
            Pause::Wants(Want::Sleep(ns)) => State::Sleeping(Instant(now.0.saturating_add(ns))),
            Pause::Ended(ended) => {
                out.extend([Output::Drop, Output::Ended(ended)]);
                State::Over
            }
        }
    }

    /// It is to end. An answer that is on its way is waited for, and one that has come given back.
    fn killed(state: State, reason: Reason, out: &mut Vec<Output>) -> State {
        let next = match state {
            state @ (State::New(_) | State::Leaving(_) | State::Over) => return state,
            State::Running => unreachable!("a slice is run at once"),
            State::Finding(via, _) => State::Leaving(via),
            State::Asking => State::Leaving(None),
            State::Ready(got) => {
                if let Some(Got::File(Ok(reply))) = got {
                    out.push(Output::Disclaim(reply));
                }
                State::Over
            }
            State::Queued(_)
            | State::Awaiting
            | State::Hungry
            | State::Saying
            | State::Sleeping(_) => State::Over,
        };
        if matches!(next, State::Leaving(_)) {
            out.push(Output::Cancel);
        }
        out.extend([Output::Drop, Output::Ended(Ended::Killed(reason))]);
        next
    }
}

impl Automaton for Life {
    type Input = Input;
    type Output = Output;

    fn step(&mut self, now: Instant, input: Input, out: &mut Vec<Output>) {
        let state = mem::replace(&mut self.state, State::Over);
        self.state = match (state, input) {
            (State::New(names), Input::Begin(from)) => Life::find(from, None, names, out),
            (State::Finding(via, rest), Input::Answered(reply)) => {
                out.extend(via.map(Output::Release));
                Life::found(rest, reply, out)
            }
            (State::Ready(got), Input::Turn) => {
                out.push(Output::Resume(got));
                State::Running
            }
            (State::Running, Input::Paused(pause)) => Life::paused(now, pause, out),
            (State::Queued(ask), Input::Admitted) => {
                out.push(Output::Ask(*ask));
                State::Asking
            }
            (State::Asking, Input::Answered(reply)) => State::Ready(Some(Got::File(reply))),
            (State::Awaiting, Input::Arrived) => State::Ready(Some(Got::Done)),
            (State::Hungry, Input::Fed(bytes)) => State::Ready(Some(Got::Input(bytes))),
            (State::Saying, Input::Heard) => State::Ready(Some(Got::Done)),
            (State::Sleeping(until), Input::Tick) if until <= now => State::Ready(Some(Got::Done)),
            (State::Leaving(via), Input::Answered(reply)) => {
                out.extend(via.map(Output::Release));
                out.extend(reply.ok().map(Output::Disclaim));
                State::Over
            }
            (state, Input::Kill(reason)) => Life::killed(state, reason, out),
            (state, Input::Tick | Input::Arrived) => state,
            // A slice is run at once; who waits for one thing does not get another.
            (
                state,
                input @ (Input::Begin(_)
                | Input::Turn
                | Input::Paused(_)
                | Input::Admitted
                | Input::Answered(_)
                | Input::Fed(_)
                | Input::Heard),
            ) => unreachable!("{input:?} in {state:?}"),
        };
    }

    fn deadline(&self) -> Option<Instant> {
        match self.state {
            State::Sleeping(until) => Some(until),
            State::New(_)
            | State::Finding(..)
            | State::Ready(_)
            | State::Running
            | State::Queued(_)
            | State::Asking
            | State::Awaiting
            | State::Hungry
            | State::Saying
            | State::Leaving(_)
            | State::Over => None,
        }
    }
}
