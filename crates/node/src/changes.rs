//! Changes of the name space: those it is put together with, and those that are commanded later.
//!
//! One is made after the other, because a bind may need what the mount before it brought. A command
//! of several lines ends with the first that fails.

use super::branch::Branch;
use super::{Join, Joined, Node, Phase, Served};
use crate::route::Message;
use base::op::{Address, Op};
use base::{Error, Instant, Name};
use names::script::{self, Line, Source as Said};
use names::{Source, Wish};
use std::collections::VecDeque;
use tree::{Input as TreeInput, RequestId};

/// Most changes that wait.
const WAITING_MAX: usize = 65_536;

/// Most trees that a node ever has: their numbers are not used again.
const TREES_MAX: usize = 60_000;

/// The id of changes of the name space; no connection has it.
const CHANGE: RequestId = RequestId(u64::MAX);

/// Why a change is made.
#[derive(Clone, Copy, Debug)]
enum Cause {
    /// The node was made with it; its place among those.
    Start(usize),
    /// Somebody wrote it to the service file: the number of that, and its line.
    Command(u64, usize),
}

/// What is still to be changed, and what could not be.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    waiting: VecDeque<(Cause, Wish)>,
    /// The one under way.
    current: Option<Cause>,
    /// What the node was made with and could not be joined.
    pub(crate) failed: Vec<(usize, Error)>,
    /// What was wrong with the last command, if anything.
    pub(crate) complaint: Option<String>,
}

impl Changes {
    /// The changes that a node begins with; their trees are added to `trees`.
    pub(crate) fn new(
        joins: Vec<Join>,
        trees: &mut Vec<Branch>,
        config: &super::Config,
    ) -> Changes {
        let wish = |(number, join): (usize, Join)| {
            let Join { what, at, order, create, said } = join;
            let what = match what {
                Joined::Path(path) => Source::Path(path),
                Joined::Tree(served) => plant(served, trees, config),
            };
            (Cause::Start(number), Wish::Join { at, what, order, create, said })
        };
        let waiting = joins.into_iter().enumerate().map(wish).collect();
        Changes { waiting, ..Changes::default() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.current.is_none()
    }
}

/// One tree more.
fn plant(served: Served, trees: &mut Vec<Branch>, config: &super::Config) -> Source {
    let index = u16::try_from(trees.len()).expect("fewer trees than numbers of them");
    let tree = Branch::new(index, served, config);
    let (root, stat) = (tree.root(), tree.root_stat());
    trees.push(tree);
    Source::Tree(root, stat)
}

impl Node {
    /// Begins the next change, if none is under way.
    pub(crate) fn change(&mut self, now: Instant, ops: &mut Vec<Op>) {
        while self.changes.current.is_none() {
            let Some((cause, wish)) = self.changes.waiting.pop_front() else {
                if self.phase == Phase::Joining {
                    self.phase = Phase::Running;
                }
                return;
            };
            self.changes.current = Some(cause);
            self.messages.push_back(Message::Names(names::Input::Change(CHANGE, wish)));
            self.route(now, ops);
        }
    }

    /// A change has ended.
    pub(crate) fn changed(&mut self, result: Result<(), Error>) {
        match (self.changes.current.take().expect("something was being changed"), result) {
            (Cause::Start(number), Err(error)) => self.changes.failed.push((number, error)),
            (Cause::Start(_), Ok(())) => {}
            (Cause::Command(ticket, line), Err(error)) => {
                self.changes.complaint = Some(format!("line {line}: {error}"));
                let of = |cause: &Cause| matches!(cause, Cause::Command(of, _) if *of == ticket);
                self.changes.waiting.retain(|(cause, _)| !of(cause));
                self.commanded(ticket, Err(error));
            }
            (Cause::Command(ticket, _), Ok(())) => {
                let next = self.changes.waiting.front();
                let of = |cause: &Cause| matches!(cause, Cause::Command(of, _) if *of == ticket);
                if !next.is_some_and(|(cause, _)| of(cause)) {
                    self.commanded(ticket, Ok(()));
                }
            }
        }
    }

    /// Somebody wrote this to the service file.
    pub(crate) fn command(&mut self, ticket: u64, text: &[u8]) {
        self.changes.complaint = None;
        match self.wishes(text) {
            Ok(wishes) if wishes.is_empty() => self.commanded(ticket, Ok(())),
            Ok(wishes) => {
                let caused = |(line, wish)| (Cause::Command(ticket, line), wish);
                self.changes.waiting.extend(wishes.into_iter().map(caused));
            }
            Err((complaint, error)) => {
                self.changes.complaint = Some(complaint);
                self.commanded(ticket, Err(error));
            }
        }
    }

    fn commanded(&mut self, ticket: u64, result: Result<(), Error>) {
        let input = TreeInput::Commanded(ticket, result);
        self.messages.push_back(Message::Tree(super::SERVICE, input));
    }

    /// What lines of a names file want.
    fn wishes(&mut self, text: &[u8]) -> Result<Vec<(usize, Wish)>, (String, Error)> {
        let text = std::str::from_utf8(text)
            .map_err(|_| ("it is no UTF-8 text".to_string(), Error::Invalid))?;
        let lines = script::parse(text).map_err(|it| (it.to_string(), Error::Invalid))?;
        if self.changes.waiting.len() + lines.len() > WAITING_MAX {
            return Err(("too many changes wait; try again".into(), Error::Busy));
        }
        // None of them, if one cannot be understood.
        for (number, line) in &lines {
            if let Line::Mount { source, .. } = line {
                address(source)
                    .map_err(|(what, error)| (format!("line {number}: {what}"), error))?;
            }
        }
        if self.trees.len() + lines.len() > TREES_MAX {
            return Err(("too many trees were mounted; start anew".into(), Error::TooManyOpen));
        }
        Ok(lines.into_iter().map(|(number, line)| (number, self.wish(line))).collect())
    }

    fn wish(&mut self, line: Line) -> Wish {
        match line {
            Line::Mount { at, source, order, create } => {
                let (to, aname) = address(&source).expect("it was looked at before");
                let said = script::quoted(&source.to_string());
                let served = Served::Remote { to, aname, path: said.as_bytes().to_vec() };
                let what = plant(served, &mut self.trees, &self.config);
                self.tree_alarm.push(None);
                self.busy_trees.insert(self.trees.len() as u16 - 1);
                Wish::Join { at, what, order, create, said: said.into() }
            }
            Line::Bind { new, old, order, create } => {
                let said = script::path_text(&new).into();
                Wish::Join { at: old, what: Source::Path(new), order, create, said }
            }
            Line::Unmount { what, at } => {
                Wish::Part { at, said: what.map(|what| script::quoted(&what).into()) }
            }
        }
    }

    /// The name space in the words of a names file.
    pub(crate) fn names_text(&self) -> String {
        let root = String::from_utf8_lossy(&self.export.path);
        let mut text = format!("# at the root: {root}\n");
        for (path, members) in self.names.points() {
            self.point_text(&path, &members, &mut text);
        }
        if let Some(complaint) = &self.changes.complaint {
            text.push_str(&format!("# the last change failed: {complaint}\n"));
        }
        text
    }

    /// Lines that would make a point, in the order in which they would have to be said.
    fn point_text(&self, at: &[Name], members: &[(Option<&str>, bool)], text: &mut String) {
        let own = members.iter().position(|(said, _)| said.is_none());
        let line = |(said, create): &(Option<&str>, bool), order: &str| {
            let Some(said) = said else { return String::new() };
            let flags = match (order, create) {
                ("", false) => String::new(),
                (order, create) => format!("-{order}{} ", if *create { "c" } else { "" }),
            };
            let at = script::path_text(at);
            match said.trim_start_matches('\'').starts_with('/') {
                true => format!("bind {flags}{said} {at}\n"),
                false => format!("mount {flags}{at} {said}\n"),
            }
        };
        let (before, behind) = members.split_at(own.unwrap_or(0));
        before.iter().rev().for_each(|member| text.push_str(&line(member, "b")));
        for (number, member) in behind.iter().enumerate() {
            let order = if number == 0 && own.is_none() { "" } else { "a" };
            text.push_str(&line(member, order));
        }
    }
}

/// Where a server is that can be mounted while the node serves.
fn address(source: &Said) -> Result<(Address, Vec<u8>), (String, Error)> {
    match source {
        Said::NineP { address, aname } => {
            let numbers = "while serving, servers are named by numbers, like 9p://127.0.0.1:5640";
            let to = address.parse().map_err(|_| (numbers.to_string(), Error::Invalid))?;
            Ok((Address::Tcp(to), aname.as_bytes().to_vec()))
        }
        Said::NinePUnix { path, aname } => {
            Ok((Address::Unix(path.as_bytes().to_vec()), aname.as_bytes().to_vec()))
        }
        Said::Volume(_) | Said::Host(_) => {
            let what = format!("{source} can only be mounted by a names file, at the start");
            Err((what, Error::Unsupported))
        }
    }
}
