//! Changes of the name space: those it is put together with, and those that are commanded later.
//!
//! One is made after the other, because a bind may need what the mount before it brought. A command
//! of several lines ends with the first that fails. A mount opens its source first, which the
//! reactor does; a volume recovers before anybody sees it; then the mux does the rest.
//!
#![doc = include_str!("changes/states.md")]

use super::sources::{self, Opening, Refusal, Settings};
use super::{Order, Served};
use base::op::{File, PathDone, PathOp};
use base::{Error, Name, Stat};
use names::script::{self, Line, Source as Said};
use names::{Source, Wish};
use std::collections::VecDeque;
use tree::NodeId;

#[cfg(test)]
mod tests;

/// Most changes that wait.
const WAITING_MAX: usize = 65_536;

/// What can happen to the changes.
#[derive(Debug)]
pub(crate) enum Input {
    /// Somebody wrote this to the service file; [`Output::Commanded`] follows.
    Command(u64, Vec<u8>),
    /// What was to be opened was, or could not be.
    Opened(Result<PathDone, Error>),
    /// What was to be planted is a tree with this number now; `None`: there are too many.
    Planted(Option<u16>),
    /// The tree that was planted can be used, with this root, or never can.
    Recovered(Result<(NodeId, Stat), Error>),
    /// The mux has made the change, or could not.
    Changed(Result<(), Error>),
}

/// What the changes can ask for.
#[derive(Debug)]
pub(crate) enum Output {
    /// Open a source; [`Input::Opened`] follows.
    Open(PathOp),
    /// Make a tree of it; [`Input::Planted`] follows, and then [`Input::Recovered`].
    Plant(Served),
    /// Let the mux make it; [`Input::Changed`] follows.
    Make(Wish),
    /// A tree was planted in vain.
    Leave(u16),
    /// A file was opened in vain.
    Close(File),
    /// A command was carried out, or not.
    Commanded(u64, Result<(), Error>),
}

/// Why a change is made.
#[derive(Clone, Copy, Debug)]
enum Cause {
    /// The node was made with it; its place among those.
    Start(usize),
    /// Somebody wrote it to the service file: the number of that, and its line.
    Command(u64, usize),
}

/// A change that waits.
#[derive(Debug)]
enum Change {
    /// One that the mux can make.
    Ready(Wish),
    /// A mount of what is not open yet.
    Mount(Mount),
}

/// A mount.
#[derive(Clone, Debug)]
struct Mount {
    at: Vec<Name>,
    source: Said,
    order: Order,
    create: bool,
}

/// How far a change has come.
#[derive(Debug)]
enum Step {
    /// Its source is being opened.
    Opening(Mount),
    /// It is being given a tree; the file that was opened for it.
    Planting(Mount, Option<File>),
    /// Its tree recovers.
    Recovering(Mount, u16),
    /// The mux makes it; the tree that was planted for it.
    Making(Option<u16>),
}

/// What is still to be changed, and what could not be.
#[derive(Debug)]
pub(crate) struct Changes {
    settings: Settings,
    waiting: VecDeque<(Cause, Change)>,
    /// The one under way.
    current: Option<(Cause, Step)>,
    /// What the node was made with and could not be joined.
    failed: Vec<(usize, Error)>,
    /// What was wrong with the last command, if anything.
    complaint: Option<String>,
}

impl Changes {
    /// Nothing to change.
    pub(crate) fn new(settings: Settings) -> Changes {
        let (waiting, failed) = (VecDeque::new(), Vec::new());
        Changes { settings, waiting, current: None, failed, complaint: None }
    }

    /// One of the changes that the node begins with, with its place among those.
    pub(crate) fn add(&mut self, number: usize, wish: Wish) {
        self.waiting.push_back((Cause::Start(number), Change::Ready(wish)));
    }

    /// One of those failed before it could be tried.
    pub(crate) fn fail(&mut self, number: usize, error: Error) {
        self.failed.push((number, error));
    }

    /// Those of them that failed.
    pub(crate) fn failed(&self) -> &[(usize, Error)] {
        &self.failed
    }

    /// Whether there is nothing to be changed.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.current.is_none()
    }

    /// Whether the reactor has something to do for a change.
    pub(crate) fn is_opening(&self) -> bool {
        matches!(self.current, Some((_, Step::Opening(_))))
    }

    /// The tree that is recovering.
    pub(crate) fn recovering(&self) -> Option<u16> {
        match self.current {
            Some((_, Step::Recovering(_, tree))) => Some(tree),
            Some((_, Step::Opening(_) | Step::Planting(..) | Step::Making(_))) | None => None,
        }
    }

    /// One word for `/.upcall/`.
    pub(crate) fn name(&self) -> &'static str {
        self.current.as_ref().map_or("idle", |(_, step)| match step {
            Step::Opening(_) => "opening",
            Step::Planting(..) => "planting",
            Step::Recovering(..) => "recovering",
            Step::Making(_) => "making",
        })
    }

    /// What was wrong with the last command, if anything.
    pub(crate) fn complaint(&self) -> Option<&str> {
        self.complaint.as_deref()
    }

    /// Begins the next change, if none is under way.
    pub(crate) fn begin(&mut self, out: &mut Vec<Output>) {
        if self.current.is_some() {
            return;
        }
        let Some((cause, change)) = self.waiting.pop_front() else { return };
        let step = match change {
            Change::Ready(wish) => {
                out.push(Output::Make(wish));
                Step::Making(None)
            }
            Change::Mount(mount) => match sources::open(&mount.source, self.settings) {
                Opening::Known(served) => plant(mount, served, out),
                Opening::Ask(op) => {
                    out.push(Output::Open(op));
                    Step::Opening(mount)
                }
            },
        };
        self.current = Some((cause, step));
    }

    /// Takes what has happened.
    pub(crate) fn step(&mut self, input: Input, out: &mut Vec<Output>) {
        if let Input::Command(ticket, text) = input {
            return self.command(ticket, &text, out);
        }
        let Some((cause, step)) = self.current.take() else {
            unreachable!("nothing is under way: {input:?}")
        };
        match self.advance(step, input, out) {
            Ok(Some(step)) => self.current = Some((cause, step)),
            Ok(None) => self.end(cause, Ok(()), out),
            Err(refusal) => self.end(cause, Err(refusal), out),
        }
    }

    /// Takes the change under way one step further; `None`: it is made.
    fn advance(
        &self,
        step: Step,
        input: Input,
        out: &mut Vec<Output>,
    ) -> Result<Option<Step>, Refusal> {
        match (step, input) {
            (Step::Opening(mount), Input::Opened(result)) => {
                match sources::opened(&mount.source, result, self.settings) {
                    Ok(served) => Ok(Some(plant(mount, served, out))),
                    Err((refusal, file)) => {
                        out.extend(file.map(Output::Close));
                        Err(refusal)
                    }
                }
            }
            (Step::Planting(mount, _), Input::Planted(Some(tree))) => {
                Ok(Some(Step::Recovering(mount, tree)))
            }
            (Step::Planting(mount, file), Input::Planted(None)) => {
                out.extend(file.map(Output::Close));
                let advice = "there are too many trees; unmount some";
                Err(Refusal::new(&mount.source, Error::TooManyOpen, advice))
            }
            (Step::Recovering(mount, tree), Input::Recovered(Ok((root, stat)))) => {
                let Mount { at, source, order, create } = mount;
                let said = script::quoted(&source.to_string()).into();
                let what = Source::Tree(root, stat);
                out.push(Output::Make(Wish::Join { at, what, order, create, said }));
                Ok(Some(Step::Making(Some(tree))))
            }
            (Step::Recovering(mount, tree), Input::Recovered(Err(error))) => {
                out.push(Output::Leave(tree));
                let advice = "see what 'upcall volume check' says of it";
                Err(Refusal::new(&mount.source, error, advice))
            }
            (Step::Making(_), Input::Changed(Ok(()))) => Ok(None),
            (Step::Making(tree), Input::Changed(Err(error))) => {
                out.extend(tree.map(Output::Leave));
                Err(Refusal { error, why: format!("{error}; {}", advice(error)) })
            }
            (step, input) => unreachable!("{input:?} while {step:?}"),
        }
    }

    fn end(&mut self, cause: Cause, result: Result<(), Refusal>, out: &mut Vec<Output>) {
        match (cause, result) {
            (Cause::Start(number), Err(refusal)) => self.failed.push((number, refusal.error)),
            (Cause::Start(_), Ok(())) => {}
            (Cause::Command(ticket, line), Err(Refusal { error, why })) => {
                self.complaint = Some(format!("line {line}: {why}"));
                self.waiting.retain(|(cause, _)| !is_of(*cause, ticket));
                out.push(Output::Commanded(ticket, Err(error)));
            }
            (Cause::Command(ticket, _), Ok(())) => {
                let next = self.waiting.front();
                if !next.is_some_and(|(cause, _)| is_of(*cause, ticket)) {
                    out.push(Output::Commanded(ticket, Ok(())));
                }
            }
        }
    }

    fn command(&mut self, ticket: u64, text: &[u8], out: &mut Vec<Output>) {
        self.complaint = None;
        match self.understand(text) {
            Ok(lines) if lines.is_empty() => out.push(Output::Commanded(ticket, Ok(()))),
            Ok(lines) => {
                let caused = |(line, change)| (Cause::Command(ticket, line), wanted(change));
                self.waiting.extend(lines.into_iter().map(caused));
            }
            Err((complaint, error)) => {
                self.complaint = Some(complaint);
                out.push(Output::Commanded(ticket, Err(error)));
            }
        }
    }

    /// The lines of a command; none of them, if one cannot be understood.
    fn understand(&self, text: &[u8]) -> Result<Vec<(usize, Line)>, (String, Error)> {
        let text = std::str::from_utf8(text)
            .map_err(|_| ("it is no UTF-8 text".to_string(), Error::Invalid))?;
        let lines = script::parse(text).map_err(|it| (it.to_string(), Error::Invalid))?;
        if self.waiting.len() + lines.len() > WAITING_MAX {
            return Err(("too many changes wait; try again".into(), Error::Busy));
        }
        Ok(lines)
    }
}

/// Has a tree made of what is to be mounted.
fn plant(mount: Mount, served: Served, out: &mut Vec<Output>) -> Step {
    let file = served.file();
    out.push(Output::Plant(served));
    Step::Planting(mount, file)
}

/// What to do about a place or a bind that the mux refuses.
pub fn advice(error: Error) -> &'static str {
    if error == Error::NotFound {
        "there is no such directory in the name space so far"
    } else if error == Error::NotDirectory {
        "only directories can be joined, and only at directories"
    } else {
        "look at the server or file behind it"
    }
}

fn is_of(cause: Cause, ticket: u64) -> bool {
    matches!(cause, Cause::Command(of, _) if of == ticket)
}

/// What a line wants.
fn wanted(line: Line) -> Change {
    match line {
        Line::Mount { at, source, order, create } => {
            Change::Mount(Mount { at, source, order, create })
        }
        Line::Bind { new, old, order, create } => {
            let said = script::path_text(&new).into();
            let what = Source::Path(new);
            Change::Ready(Wish::Join { at: old, what, order, create, said })
        }
        Line::Unmount { what, at } => {
            let said = what.map(|what| script::quoted(&what).into());
            Change::Ready(Wish::Part { at, said })
        }
    }
}
