//! Changes of the namespace: those at its construction, and later commands.
//!
//! Changes are made one after the other, because a bind may depend on the mount before it. A
//! command of several lines ends at the first that fails. A mount opens its source first, in the
//! reactor; a volume recovers before it is visible; then the mux does the rest.
//!
//! A server or host that does not answer delays the next change by [`TIMEOUT`] at most: then the
//! change fails. A source that is opened later is closed again. Recovery and growth of a volume
//! have no time limit.
//!
#![doc = include_str!("changes/states.md")]

use super::sources::{self, Opening, Settings, refusal};
use super::{Order, Served};
use base::op::{File, PathDone, PathOp};
use base::{Error, Instant, Name, Stat};
use names::script::{self, Line, Source as ScriptSource};
use names::{NamespaceChange, Source};
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;
use tree::{NodeId, Refusal};

#[cfg(test)]
mod tests;

/// Maximum number of queued changes.
const WAITING_MAX: usize = 65_536;

/// Timeout of a change.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum number of abandoned opens that have not ended; at the limit nothing is opened.
const LATE_MAX: usize = 64;

/// Inputs of the machine.
#[derive(Debug)]
pub(crate) enum Input {
    /// Lines written to the service file, with the number of the first one; [`Output::Commanded`]
    /// follows.
    Command(u64, usize, Vec<u8>),
    /// Cancel a command; its result comes nevertheless. Its queued changes are dropped, and one in
    /// progress ends at once.
    Cancel(u64),
    /// Shutdown of the node: cancels all changes, present and future.
    Drain,
    /// [`Changes::deadline`] has passed.
    Late,
    /// Result of the open for the change with this number.
    Opened(u32, Result<PathDone, Error>),
    /// The planted tree has this number; `None`: there are too many.
    Planted(Option<u16>),
    /// Recovery of the planted tree: its root, or its failure.
    Recovered(Result<(NodeId, Stat), Error>),
    /// Result of the change in the mux.
    Changed(Result<(), Error>),
    /// Result of the growth of a volume.
    Grown(Result<(), Refusal>),
}

/// An input of the change in progress.
#[derive(Debug)]
enum Event {
    Opened(Result<PathDone, Error>),
    Planted(Option<u16>),
    Recovered(Result<(NodeId, Stat), Error>),
    Changed(Result<(), Error>),
    Grown(Result<(), Refusal>),
}

/// Outputs of the machine.
#[derive(Debug)]
pub(crate) enum Output {
    /// Open a source for the change with this number; [`Input::Opened`] with it follows.
    Open(u32, PathOp),
    /// Cancel that open; its result is not waited for.
    CancelOpen(u32),
    /// Create a tree; [`Input::Planted`] follows before anything else, and [`Input::Recovered`]
    /// some time later.
    Plant(Served),
    /// Make the change with this number in the mux; [`Input::Changed`] follows.
    Make(u32, NamespaceChange),
    /// Cancel that change; [`Input::Changed`] follows soon.
    CancelMake(u32),
    /// Grow the volume in this file to this size, bytes; [`Input::Grown`] follows.
    Grow(String, u64),
    /// Remove a tree that is not needed.
    Leave(u16),
    /// Close a file that is not needed.
    Close(File),
    /// Result of a command.
    Commanded(u64, Result<(), Refusal>),
}

/// Origin of a change.
#[derive(Clone, Copy, Debug)]
enum Cause {
    /// Configuration of the node; position among its joins.
    Start(usize),
    /// A command in the service file: its number, and the line.
    Command(u64, usize),
}

/// A queued change.
#[derive(Debug)]
enum Change {
    /// A change that the mux can make.
    Ready(NamespaceChange),
    /// A mount of a source that is not open yet.
    Mount(Mount),
    /// Growth of a volume, by its file, to this size, bytes.
    Grow(String, u64),
}

/// A mount.
#[derive(Clone, Debug)]
struct Mount {
    at: Vec<Name>,
    source: ScriptSource,
    order: Order,
    create: bool,
}

/// State of a change.
#[derive(Debug)]
enum Step {
    /// Waiting for the open of its source.
    Opening(Mount),
    /// Waiting for its tree; with the file opened for it.
    Planting(Mount, Option<File>),
    /// Waiting for the recovery of its tree.
    Recovering(Mount, u16),
    /// Waiting for the recovery, after a cancellation for this reason.
    Leaving(Mount, u16, Error),
    /// Waiting for the mux; with the tree planted for it.
    Making(Option<u16>),
    /// Waiting for the mux after a cancellation for this reason; the change may have been made
    /// before.
    Stopping(Option<u16>, Error),
    /// Waiting for the growth of a volume, which cannot be cancelled; with the reason of a
    /// cancellation.
    Growing(Option<Error>),
}

/// Next state of a change, `None` if it is made; or the reason of its failure.
type Done = Result<Option<Step>, Refusal>;

/// The change in progress.
#[derive(Debug)]
struct Current {
    cause: Cause,
    step: Step,
    /// Deadline.
    until: Instant,
}

/// Queued changes, and failures.
#[derive(Debug)]
pub(crate) struct Changes {
    settings: Settings,
    waiting: VecDeque<(Cause, Change)>,
    current: Option<Current>,
    /// Number of the change started last.
    number: u32,
    /// Changes whose abandoned opens have not ended.
    late: BTreeSet<u32>,
    /// Whether the node is shutting down, so that no changes are made.
    draining: bool,
    /// Joins of the configuration that failed.
    failed: Vec<(usize, Error)>,
    /// Error of the last command, if it failed.
    complaint: Option<String>,
}

impl Changes {
    /// Creates an empty queue.
    pub(crate) fn new(settings: Settings) -> Changes {
        Changes {
            settings,
            waiting: VecDeque::new(),
            current: None,
            number: 0,
            late: BTreeSet::new(),
            draining: false,
            failed: Vec::new(),
            complaint: None,
        }
    }

    /// Adds a join of the configuration, with its position.
    pub(crate) fn add(&mut self, number: usize, requested: NamespaceChange) {
        self.waiting.push_back((Cause::Start(number), Change::Ready(requested)));
    }

    /// Records the failure of a join that could not be started.
    pub(crate) fn fail(&mut self, number: usize, error: Error) {
        self.failed.push((number, error));
    }

    /// Returns the joins that failed.
    pub(crate) fn failed(&self) -> &[(usize, Error)] {
        &self.failed
    }

    /// Returns whether no change is queued or in progress.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.current.is_none()
    }

    /// Returns whether an open is outstanding in the reactor.
    pub(crate) fn is_opening(&self) -> bool {
        !self.late.is_empty() || matches!(self.step_now(), Some(Step::Opening(_)))
    }

    /// Returns the deadline of the change in progress.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let current = self.current.as_ref()?;
        match current.step {
            Step::Opening(_) | Step::Making(_) => Some(current.until),
            Step::Planting(..)
            | Step::Recovering(..)
            | Step::Leaving(..)
            | Step::Stopping(..)
            | Step::Growing(_) => None,
        }
    }

    /// Returns the tree that is recovering.
    pub(crate) fn recovering(&self) -> Option<u16> {
        match self.step_now()? {
            Step::Recovering(_, tree) | Step::Leaving(_, tree, _) => Some(*tree),
            Step::Opening(_)
            | Step::Planting(..)
            | Step::Making(_)
            | Step::Stopping(..)
            | Step::Growing(_) => None,
        }
    }

    fn step_now(&self) -> Option<&Step> {
        self.current.as_ref().map(|current| &current.step)
    }

    /// Returns the state as one word, for `/.upcall/`.
    pub(crate) fn name(&self) -> &'static str {
        self.step_now().map_or("idle", |step| match step {
            Step::Opening(_) => "opening",
            Step::Planting(..) => "planting",
            Step::Recovering(..) => "recovering",
            Step::Leaving(..) => "leaving",
            Step::Making(_) => "making",
            Step::Stopping(..) => "stopping",
            Step::Growing(_) => "growing",
        })
    }

    /// Returns the error of the last command, if it failed.
    pub(crate) fn complaint(&self) -> Option<&str> {
        self.complaint.as_deref()
    }

    /// Starts the next change, if none is in progress.
    pub(crate) fn begin(&mut self, now: Instant, out: &mut Vec<Output>) {
        if self.current.is_some() {
            return;
        }
        let Some((cause, change)) = self.waiting.pop_front() else { return };
        assert!(!self.draining, "nothing is begun when the node ends");
        self.number = self.number.wrapping_add(1);
        let begun = match change {
            Change::Ready(requested) => {
                out.push(Output::Make(self.number, requested));
                Ok(Step::Making(None))
            }
            Change::Mount(mount) => self.open(mount, out),
            Change::Grow(file, bytes) => {
                out.push(Output::Grow(file, bytes));
                Ok(Step::Growing(None))
            }
        };
        match begun {
            Ok(step) => self.current = Some(Current { cause, step, until: now + TIMEOUT }),
            Err(refusal) => self.end(cause, Err(refusal), out),
        }
    }

    fn open(&mut self, mount: Mount, out: &mut Vec<Output>) -> Result<Step, Refusal> {
        match sources::open(&mount.source, self.settings) {
            Opening::Known(served) => Ok(plant(mount, served, out)),
            Opening::Ask(_) if self.late.len() >= LATE_MAX => {
                let advice = "too many sources that do not answer are still being opened";
                Err(refusal(&mount.source, Error::Busy, advice))
            }
            Opening::Ask(op) => {
                out.push(Output::Open(self.number, op));
                Ok(Step::Opening(mount))
            }
        }
    }

    /// Handles an input.
    pub(crate) fn step(&mut self, now: Instant, input: Input, out: &mut Vec<Output>) {
        match input {
            Input::Command(ticket, line, text) => self.command(ticket, line, &text, out),
            Input::Cancel(ticket) => self.cancel(ticket, out),
            Input::Drain => self.drain(out),
            Input::Late => self.stop(Error::TimedOut, out),
            Input::Opened(number, result) if self.late.remove(&number) => {
                out.extend(result.ok().and_then(sources::file).map(Output::Close));
            }
            Input::Opened(_, result) => self.handle(now, Event::Opened(result), out),
            Input::Planted(tree) => self.handle(now, Event::Planted(tree), out),
            Input::Recovered(result) => self.handle(now, Event::Recovered(result), out),
            Input::Changed(result) => self.handle(now, Event::Changed(result), out),
            Input::Grown(result) => self.handle(now, Event::Grown(result), out),
        }
    }

    /// Handles an input of the change in progress.
    fn handle(&mut self, now: Instant, event: Event, out: &mut Vec<Output>) {
        let Some(Current { cause, step, until }) = self.current.take() else {
            unreachable!("nothing is in progress: {event:?}")
        };
        // The duration of a recovery does not count.
        let until = if matches!(event, Event::Recovered(_)) { now + TIMEOUT } else { until };
        let done = self.advance(step, event, out);
        self.go_on(cause, until, done, out);
    }

    /// Ends the change in progress for this reason, as soon as possible.
    fn stop(&mut self, error: Error, out: &mut Vec<Output>) {
        let Current { cause, step, until } = self.current.take().expect("a change is in progress");
        let done = self.leave(step, error, out).map(Some);
        self.go_on(cause, until, done, out);
    }

    fn go_on(&mut self, cause: Cause, until: Instant, done: Done, out: &mut Vec<Output>) {
        assert!(self.current.is_none(), "one change after the other");
        match done {
            Ok(Some(step)) => self.current = Some(Current { cause, step, until }),
            Ok(None) => self.end(cause, Ok(()), out),
            Err(refusal) => self.end(cause, Err(refusal), out),
        }
    }

    /// Advances the change in progress; `None`: it is made.
    fn advance(&self, step: Step, event: Event, out: &mut Vec<Output>) -> Done {
        match (step, event) {
            (Step::Opening(mount), Event::Opened(result)) => self.opened(mount, result, out),
            (Step::Planting(mount, _), Event::Planted(Some(tree))) => {
                Ok(Some(Step::Recovering(mount, tree)))
            }
            (Step::Planting(mount, file), Event::Planted(None)) => {
                out.extend(file.map(Output::Close));
                let advice = "there are too many trees; unmount some";
                Err(refusal(&mount.source, Error::TooManyOpen, advice))
            }
            (Step::Recovering(mount, tree), Event::Recovered(Ok((root, stat)))) => {
                self.join(mount, Source::Tree(root, stat), out);
                Ok(Some(Step::Making(Some(tree))))
            }
            (Step::Recovering(mount, tree), Event::Recovered(Err(error))) => {
                out.push(Output::Leave(tree));
                let advice = "run 'upcall volume check' on it";
                Err(refusal(&mount.source, error, advice))
            }
            (Step::Leaving(mount, tree, error), Event::Recovered(_)) => {
                out.push(Output::Leave(tree));
                Err(refusal(&mount.source, error, advice(error)))
            }
            (Step::Making(_) | Step::Stopping(_, Error::TimedOut), Event::Changed(Ok(()))) => {
                Ok(None)
            }
            (Step::Stopping(_, error), Event::Changed(Ok(()))) => Err(made_in_part(error)),
            (Step::Making(tree), Event::Changed(Err(error)))
            | (Step::Stopping(tree, error), Event::Changed(Err(_))) => {
                out.extend(tree.map(Output::Leave));
                Err(Refusal { error, why: format!("{error}; {}", advice(error)) })
            }
            (Step::Growing(None), Event::Grown(result)) => result.map(|()| None),
            (Step::Growing(Some(error)), Event::Grown(result)) => {
                result.and_then(|()| Err(made_in_part(error)))
            }
            (step, event) => unreachable!("{event:?} while {step:?}: results follow requests"),
        }
    }

    fn join(&self, mount: Mount, what: Source, out: &mut Vec<Output>) {
        let Mount { at, source, order, create } = mount;
        let source_text = script::quoted(&source.to_string()).into();
        let change = NamespaceChange::Join { at, what, order, create, source_text };
        out.push(Output::Make(self.number, change));
    }

    /// Creates a tree from the source opened for a mount.
    fn opened(&self, mount: Mount, result: Result<PathDone, Error>, out: &mut Vec<Output>) -> Done {
        match sources::opened(&mount.source, result, self.settings) {
            Ok(served) => Ok(Some(plant(mount, served, out))),
            Err((refusal, file)) => {
                out.extend(file.map(Output::Close));
                Err(refusal)
            }
        }
    }

    /// Cancels the change in progress, for this reason.
    fn leave(&mut self, step: Step, error: Error, out: &mut Vec<Output>) -> Result<Step, Refusal> {
        match step {
            Step::Opening(mount) => {
                out.push(Output::CancelOpen(self.number));
                let new = self.late.insert(self.number);
                assert!(new, "a change is given up once");
                let late = "open timed out; is the remote file system hung?";
                let advice = if error == Error::TimedOut { late } else { advice(error) };
                Err(refusal(&mount.source, error, advice))
            }
            Step::Planting(..) => unreachable!("a tree is planted before any other input"),
            Step::Recovering(mount, tree) | Step::Leaving(mount, tree, _) => {
                Ok(Step::Leaving(mount, tree, error))
            }
            Step::Making(tree) => {
                out.push(Output::CancelMake(self.number));
                Ok(Step::Stopping(tree, error))
            }
            Step::Stopping(tree, _) => Ok(Step::Stopping(tree, error)),
            Step::Growing(_) => Ok(Step::Growing(Some(error))),
        }
    }

    /// Drops the queued changes of a command, and ends the one in progress.
    fn cancel(&mut self, ticket: u64, out: &mut Vec<Output>) {
        let waited = self.drop_rest(ticket);
        if self.current.as_ref().is_some_and(|current| is_of(current.cause, ticket)) {
            self.stop(Error::Cancelled, out);
        } else if waited {
            out.push(given_up(ticket));
        }
    }

    /// Drops the queued changes of a command; returns whether there were any.
    fn drop_rest(&mut self, ticket: u64) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|(cause, _)| !is_of(*cause, ticket));
        self.waiting.len() < before
    }

    /// Drops all queued changes, and ends the one in progress.
    fn drain(&mut self, out: &mut Vec<Output>) {
        self.draining = true;
        let tickets = self.waiting.drain(..).filter_map(|(cause, _)| match cause {
            Cause::Command(ticket, _) => Some(ticket),
            Cause::Start(_) => None,
        });
        let mut tickets: BTreeSet<u64> = tickets.collect();
        if let Some(current) = &self.current {
            tickets.retain(|ticket| !is_of(current.cause, *ticket));
            self.stop(Error::Cancelled, out);
        }
        out.extend(tickets.into_iter().map(given_up));
    }

    fn end(&mut self, cause: Cause, result: Result<(), Refusal>, out: &mut Vec<Output>) {
        assert!(self.current.is_none(), "one change after the other");
        match (cause, result) {
            // A change cancelled by the shutdown is not a failure.
            (Cause::Start(_), Err(_)) if self.draining => {}
            (Cause::Start(number), Err(refusal)) => self.failed.push((number, refusal.error)),
            (Cause::Start(_), Ok(())) => {}
            (Cause::Command(ticket, line), Err(Refusal { error, why })) => {
                let why = format!("line {line}: {why}");
                self.complaint = Some(why.clone());
                self.drop_rest(ticket);
                out.push(Output::Commanded(ticket, Err(Refusal { error, why })));
            }
            (Cause::Command(ticket, _), Ok(())) => {
                let next = self.waiting.front();
                if !next.is_some_and(|(cause, _)| is_of(*cause, ticket)) {
                    out.push(Output::Commanded(ticket, Ok(())));
                }
            }
        }
    }

    /// Asserts what always holds.
    pub(crate) fn check(&self) {
        assert!(self.late.len() <= LATE_MAX + 1, "few openings that nobody waits for");
        let planting = matches!(self.step_now(), Some(Step::Planting(..)));
        assert!(!planting, "a tree is planted before any other input");
        assert!(!self.draining || self.waiting.is_empty(), "nothing waits when the node ends");
        let opening = matches!(self.step_now(), Some(Step::Opening(_)));
        assert!(!opening || !self.late.contains(&self.number), "somebody waits for it");
    }

    fn command(&mut self, ticket: u64, line: usize, text: &[u8], out: &mut Vec<Output>) {
        self.complaint = None;
        if self.draining {
            return out.push(given_up(ticket));
        }
        match self.understand(line, text) {
            Ok(lines) if lines.is_empty() => out.push(Output::Commanded(ticket, Ok(()))),
            Ok(lines) => {
                let caused = |(line, change)| (Cause::Command(ticket, line), wanted(change));
                self.waiting.extend(lines.into_iter().map(caused));
            }
            Err(refusal) => {
                self.complaint = Some(refusal.why.clone());
                out.push(Output::Commanded(ticket, Err(refusal)));
            }
        }
    }

    /// Parses the lines of a command, the first of which has this number; fails if any is invalid.
    fn understand(&self, first: usize, text: &[u8]) -> Result<Vec<(usize, Line)>, Refusal> {
        let refusal = |error, why| Refusal { error, why };
        let text = std::str::from_utf8(text)
            .map_err(|_| refusal(Error::Invalid, format!("line {first}: it is no UTF-8 text")))?;
        let mut lines = script::parse(text).map_err(|mut mistake| {
            mistake.line += first - 1;
            refusal(Error::Invalid, mistake.to_string())
        })?;
        if self.waiting.len() + lines.len() > WAITING_MAX {
            return Err(refusal(Error::Busy, "too many changes wait; try again".into()));
        }
        lines.iter_mut().for_each(|(number, _)| *number += first - 1);
        Ok(lines)
    }
}

/// Returns the refusal of the rest of a command, after a line that was completed in spite of its
/// cancellation.
fn made_in_part(error: Error) -> Refusal {
    Refusal {
        error,
        why: format!("{error}; the change was made, but the commands behind it were not executed"),
    }
}

/// Returns the result of a cancelled command.
fn given_up(ticket: u64) -> Output {
    let error = Error::Cancelled;
    Output::Commanded(ticket, Err(Refusal { error, why: error.to_string() }))
}

/// Creates a tree for a mount.
fn plant(mount: Mount, served: Served, out: &mut Vec<Output>) -> Step {
    let file = served.file();
    out.push(Output::Plant(served));
    Step::Planting(mount, file)
}

/// Returns a suggestion for a mount point or bind that the mux refuses.
pub fn advice(error: Error) -> &'static str {
    if error == Error::NotFound {
        "no such directory in the namespace so far"
    } else if error == Error::NotDirectory {
        "only directories can be joined, and only at directories"
    } else if error == Error::Busy {
        "busy: another tree is mounted below it; unmount that first"
    } else if error == Error::TooManyLinks {
        "the union has too many members; unmount some"
    } else if error == Error::TooManyOpen {
        "the namespace has too many lines; unmount some"
    } else if error == Error::TimedOut {
        "the server at that place does not answer; check whether it hangs"
    } else if error == Error::Cancelled {
        "its client has disconnected, or the server is shutting down"
    } else {
        "look at the server or file behind it"
    }
}

fn is_of(cause: Cause, ticket: u64) -> bool {
    matches!(cause, Cause::Command(of, _) if of == ticket)
}

/// Converts a line to a change.
fn wanted(line: Line) -> Change {
    match line {
        Line::Mount { at, source, order, create } => {
            Change::Mount(Mount { at, source, order, create })
        }
        Line::Bind { new, old, order, create } => {
            let source_text = script::path_text(&new).into();
            let what = Source::Path(new);
            Change::Ready(NamespaceChange::Join { at: old, what, order, create, source_text })
        }
        Line::Unmount { what, at } => {
            let source_text = what.map(|what| script::quoted(&what).into());
            Change::Ready(NamespaceChange::Part { at, source_text })
        }
        Line::Grow { file, bytes } => Change::Grow(file, bytes),
    }
}
