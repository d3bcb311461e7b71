//! Execution of a storelet on a worker.
//!
//! The guest itself is not in this machine: its owner has the guest too, and runs it for a slice on
//! [`Output::Resume`]. The guest can be killed between any two slices; an outstanding reply is then
//! waited for, because the resources it contains have to be released.
//!
#![doc = include_str!("execution/states.md")]

use base::{Automaton, Error, Instant, Kind, Name};
use std::mem;
use tree::{Ask, NodeId, Reply};
use wasi::{Ended, Got, Pause, Reason, Stream, Want};

#[cfg(test)]
mod tests;

/// Maximum number of names in a walk.
const NAMES_MAX: usize = 16;

/// Inputs of an execution.
#[derive(Debug)]
pub(crate) enum Input {
    /// Start: the root directory is resolved from this node.
    Begin(NodeId),
    /// The storelet is scheduled.
    Turn,
    /// The slice has ended.
    Paused(Pause),
    /// Its file request is admitted.
    Admitted,
    /// The reply to its file request.
    Answered(Result<Reply, Error>),
    /// A prefetch has completed.
    Arrived,
    /// Input; empty at the end of the stream.
    Fed(Vec<u8>),
    /// Its output is accepted.
    Received,
    /// Time has passed.
    Tick,
    /// Kill the guest.
    Kill(Reason),
}

/// Outputs of an execution.
#[derive(Debug)]
pub(crate) enum Output {
    /// Send a request to the namespace; [`Input::Answered`] follows.
    Ask(Ask),
    /// Cancel the request; its reply comes nevertheless.
    Cancel,
    /// Create the guest, with this directory as its root.
    Make(NodeId),
    /// Run the guest for a slice, with this result of its wait.
    Resume(Option<Got>),
    /// Feed the guest when there is input, at most this number of bytes.
    Hungry(u32),
    /// Accept output.
    Say(Stream, Vec<u8>),
    /// Drop the guest at its present point.
    Drop,
    /// Release the resources of this reply.
    Disclaim(Reply),
    /// Release this node, which was an intermediate directory or is not a directory.
    Release(NodeId),
    /// The guest has ended.
    Ended(Ended),
}

/// An intermediate directory, to be released after the walk from it.
type Via = Option<NodeId>;

/// State of an execution.
#[derive(Debug)]
enum State {
    /// Waiting for the start, with the path of the root.
    New(Vec<Name>),
    /// Waiting for a walk; the remaining names are walked next.
    Finding(Via, Vec<Name>),
    /// Waiting for a slice, with the result of the last wait.
    Ready(Option<Got>),
    /// Waiting for the end of the slice.
    Running,
    /// Waiting for admission of a file request.
    Queued(Box<Ask>),
    /// Waiting for a reply.
    Asking,
    /// Waiting for the reply to a prefetch.
    Awaiting,
    /// Waiting for input.
    Hungry,
    /// Waiting for room for output.
    Saying,
    /// Waiting for a point in time.
    Sleeping(Instant),
    /// Waiting for a reply to discard, after the end.
    Leaving(Via),
    /// Finished.
    Over,
}

/// Execution of one storelet.
#[derive(Debug)]
pub(crate) struct Execution {
    state: State,
}

impl Execution {
    /// Creates an execution that has not begun, with the path of its root.
    pub(crate) fn new(root: Vec<Name>) -> Execution {
        Execution { state: State::New(root) }
    }

    /// Returns whether it waits for a slice.
    pub(crate) fn is_ready(&self) -> bool {
        matches!(self.state, State::Ready(_))
    }

    /// Returns the file request that waits for admission.
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

    /// Returns whether it waits for input, output or time: its buffered output is flushed then.
    pub(crate) fn is_talking(&self) -> bool {
        matches!(self.state, State::Hungry | State::Saying | State::Sleeping(_))
    }

    /// Returns whether it has ended from the view of others.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.state, State::Leaving(_) | State::Over)
    }

    /// Returns whether nothing is outstanding any more.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.state, State::Over)
    }

    /// Returns the state in a few words.
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

    /// Walks to the directory at the end of the names, as many at once as possible.
    fn find(from: NodeId, via: Via, mut names: Vec<Name>, out: &mut Vec<Output>) -> State {
        let rest = names.split_off(names.len().min(NAMES_MAX));
        out.push(Output::Ask(Ask::Walk { from, names }));
        State::Finding(via, rest)
    }

    /// Handles the reply to a walk.
    fn found(rest: Vec<Name>, reply: Result<Reply, Error>, out: &mut Vec<Output>) -> State {
        match reply {
            Ok(Reply::Walked(way, Some(node))) if rest.is_empty() => {
                if way.last().is_some_and(|stat| stat.kind != Kind::Directory) {
                    out.push(Output::Release(node));
                    return Execution::rootless(Error::NotDirectory, out);
                }
                out.push(Output::Make(node));
                State::Ready(None)
            }
            Ok(Reply::Walked(_, Some(node))) => Execution::find(node, Some(node), rest, out),
            Ok(_) => Execution::rootless(Error::NotFound, out),
            Err(error) => Execution::rootless(error, out),
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

    /// Handles the end of a slice.
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
            Pause::Wants(Want::Prefetch) => State::Awaiting,
            Pause::Wants(Want::Sleep(ns)) => State::Sleeping(Instant(now.0.saturating_add(ns))),
            Pause::Ended(ended) => {
                out.extend([Output::Drop, Output::Ended(ended)]);
                State::Over
            }
        }
    }

    /// Kills the guest. An outstanding reply is waited for, one that has arrived is released.
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

impl Automaton for Execution {
    type Input = Input;
    type Output = Output;

    fn step(&mut self, now: Instant, input: Input, out: &mut Vec<Output>) {
        let state = mem::replace(&mut self.state, State::Over);
        self.state = match (state, input) {
            (State::New(names), Input::Begin(from)) => Execution::find(from, None, names, out),
            (State::Finding(via, rest), Input::Answered(reply)) => {
                out.extend(via.map(Output::Release));
                Execution::found(rest, reply, out)
            }
            (State::Ready(got), Input::Turn) => {
                out.push(Output::Resume(got));
                State::Running
            }
            (State::Running, Input::Paused(pause)) => Execution::paused(now, pause, out),
            (State::Queued(ask), Input::Admitted) => {
                out.push(Output::Ask(*ask));
                State::Asking
            }
            (State::Asking, Input::Answered(reply)) => State::Ready(Some(Got::File(reply))),
            (State::Awaiting, Input::Arrived) => State::Ready(Some(Got::Done)),
            (State::Hungry, Input::Fed(bytes)) => State::Ready(Some(Got::Input(bytes))),
            (State::Saying, Input::Received) => State::Ready(Some(Got::Done)),
            (State::Sleeping(until), Input::Tick) if until <= now => State::Ready(Some(Got::Done)),
            (State::Leaving(via), Input::Answered(reply)) => {
                out.extend(via.map(Output::Release));
                out.extend(reply.ok().map(Output::Disclaim));
                State::Over
            }
            (state, Input::Kill(reason)) => Execution::killed(state, reason, out),
            (state, Input::Tick | Input::Arrived) => state,
            // A slice is synchronous, and a wait has exactly one kind of result.
            (
                state,
                input @ (Input::Begin(_)
                | Input::Turn
                | Input::Paused(_)
                | Input::Admitted
                | Input::Answered(_)
                | Input::Fed(_)
                | Input::Received),
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
