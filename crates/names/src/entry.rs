//! Routing of requests about entries of unions to a member.
//!
//! An existing entry belongs to the first member that has it. A new one is created in the first
//! member that accepts it, of those with the create flag (bind(1), `-c`); in thesis 004, §4.1.2,
//! the first success wins. A mount point can be neither replaced nor removed.
//!
#![doc = include_str!("entry/states.md")]

use crate::table::{Position, Table};
use base::op::Replacement;
use base::{Error, Name};
use tree::{Ask, NodeId, Reply, Request};

#[cfg(test)]
mod tests;

/// Progress of the request.
#[derive(Clone, Debug)]
enum State {
    /// About to look up this entry in this member; the error of the members before.
    Next(usize, usize, Option<Error>),
    /// Waiting for the lookup of this entry in this member.
    Looking(usize, usize, Option<Error>),
    /// About to send the request, with this of the members that accept new entries.
    Ready(usize),
    /// Waiting for the reply to the request itself.
    Requested(usize),
    /// Ended.
    Over(Result<(), Error>),
}

/// One entry of the request.
#[derive(Clone, Debug)]
struct Subject {
    position: Position,
    name: Name,
    /// The directory that has it, once known.
    found: Option<NodeId>,
}

/// A request about entries.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) request: Request,
    state: State,
    /// One or two, in the order of [`Ask::entries`].
    subjects: Vec<Subject>,
    /// First directory of the request as sent.
    asked_of: Option<NodeId>,
    /// Nodes of trees that it needs until its end, even if clients release them meanwhile.
    pub(crate) nodes: Vec<NodeId>,
}

/// Next action of the request.
#[derive(Debug)]
pub(crate) enum Step {
    /// Look up a name.
    Look(NodeId, Name),
    /// Send the request, with these directories.
    Ask(Vec<NodeId>),
    /// End with an error.
    Fail(Error),
    /// End with this reply.
    End(Reply),
}

impl Entry {
    /// Returns a request whose nodes are already those of trees.
    pub(crate) fn new(mut request: Request, subjects: Vec<(Position, Name)>) -> Entry {
        let mut nodes = Vec::new();
        request.ask.each_node(&mut |node| nodes.push(*node));
        let subject = |(position, name)| Subject { position, name, found: None };
        let subjects = subjects.into_iter().map(subject).collect();
        Entry { request, state: State::Next(0, 0, None), subjects, asked_of: None, nodes }
    }

    /// Returns the directory of a new entry.
    pub(crate) fn position(&self) -> &Position {
        &self.subjects[0].position
    }

    /// Returns the member in which a new entry was created, if the directory is a union.
    pub(crate) fn member(&self) -> Option<usize> {
        let point = self.position().union()?;
        point.members.iter().position(|member| Some(member.root.node) == self.asked_of)
    }

    /// Returns whether the subject must exist, because it is renamed or removed.
    fn must_be_there(&self, subject: usize) -> bool {
        matches!(self.request.ask, Ask::Remove { .. }) || (subject == 0 && self.is_rename())
    }

    fn is_rename(&self) -> bool {
        let moves = |ask: &Ask| matches!(ask, Ask::Replace { by: Replacement::Entry(..), .. });
        matches!(self.request.ask, Ask::Rename { .. }) || moves(&self.request.ask)
    }

    /// Returns the next action.
    pub(crate) fn next(&mut self) -> Step {
        let (state, step) = match self.state {
            State::Next(subject, ..) if subject == self.subjects.len() => self.choose(0),
            State::Next(subject, member, failed) => {
                let Subject { position, name, .. } = &self.subjects[subject];
                let dir =
                    position.union().map_or(position.node, |point| point.members[member].root.node);
                (State::Looking(subject, member, failed), Step::Look(dir, name.clone()))
            }
            State::Ready(candidate) => self.choose(candidate),
            State::Over(Err(error)) => (State::Over(Ok(())), Step::Fail(error)),
            State::Looking(..) | State::Requested(_) | State::Over(Ok(())) => {
                unreachable!("{:?}: what was requested has not been answered", self.state)
            }
        };
        if let Step::Ask(dirs) = &step {
            self.asked_of = dirs.first().copied();
        }
        self.state = state;
        step
    }

    /// Returns the directories, once each entry is found or known not to exist.
    fn choose(&self, candidate: usize) -> (State, Step) {
        let first = self.subjects[0].found;
        let dir = |subject: &Subject| match (subject.found, subject.position.union()) {
            (Some(found), _) => Ok(found),
            (None, None) => Ok(subject.position.node),
            (None, Some(point)) => {
                let inside = |root: &NodeId| first == Some(*root);
                let roots = point.members.iter().map(|member| member.root.node);
                // A renamed entry stays in its tree if possible.
                if let Some(root) = roots.clone().find(inside) {
                    return Ok(root);
                }
                let takers = point.members.iter().filter(|member| member.create);
                takers.map(|member| member.root.node).nth(candidate).ok_or(Error::NotPermitted)
            }
        };
        match self.subjects.iter().map(dir).collect::<Result<Vec<NodeId>, Error>>() {
            Ok(dirs) => (State::Requested(candidate), Step::Ask(dirs)),
            Err(error) => (State::Over(Ok(())), Step::Fail(error)),
        }
    }

    /// Handles a reply; appends the nodes to release.
    pub(crate) fn arrive(
        &mut self,
        reply: Result<Reply, Error>,
        table: &Table,
        gone: &mut Vec<NodeId>,
    ) -> Option<Reply> {
        self.state = match (self.state.clone(), reply) {
            (State::Looking(subject, member, _), Ok(Reply::Walked(stats, node))) => {
                gone.extend(node);
                let dir = self.dir(subject, member);
                let is_point = stats.first().is_some_and(|s| table.point(dir.tree(), s).is_some());
                self.subjects[subject].found = Some(dir);
                match is_point {
                    true => State::Over(Err(Error::Busy)),
                    false => State::Next(subject + 1, 0, None),
                }
            }
            (State::Looking(subject, member, failed), Err(error)) => {
                self.not_there(subject, member, failed, error)
            }
            (State::Requested(_), Ok(reply)) => {
                self.state = State::Over(Ok(()));
                return Some(reply);
            }
            // Another member may accept it.
            (State::Requested(candidate), Err(error)) => match self.takers() {
                more if candidate + 1 < more && may_be_taken_elsewhere(error) => {
                    State::Ready(candidate + 1)
                }
                _last => State::Over(Err(error)),
            },
            (state, reply) => unreachable!("{state:?}: {reply:?} was not asked for"),
        };
        None
    }

    fn not_there(
        &self,
        subject: usize,
        member: usize,
        failed: Option<Error>,
        error: Error,
    ) -> State {
        let failed = failed.filter(|failed| *failed != Error::NotFound).or(Some(error));
        let count = self.subjects[subject].position.union().map_or(1, |point| point.members.len());
        match failed {
            failed if member + 1 < count => State::Next(subject, member + 1, failed),
            Some(error) if self.must_be_there(subject) || error != Error::NotFound => {
                State::Over(Err(error))
            }
            Some(_) | None => State::Next(subject + 1, 0, None),
        }
    }

    /// Returns the number of members that may accept a new entry.
    fn takers(&self) -> usize {
        let new = self.subjects.iter().filter(|subject| subject.found.is_none());
        let takers = |subject: &Subject| {
            let point = subject.position.union()?;
            Some(point.members.iter().filter(|member| member.create).count())
        };
        new.filter_map(takers).next().unwrap_or(1)
    }

    fn dir(&self, subject: usize, member: usize) -> NodeId {
        let position = &self.subjects[subject].position;
        position.union().map_or(position.node, |point| point.members[member].root.node)
    }

    /// Returns the state's name for `/.upcall/`.
    pub(crate) fn name(&self) -> &'static str {
        match self.state {
            State::Next(..) => "next",
            State::Looking(..) => "looking",
            State::Ready(_) => "ready",
            State::Requested(_) => "asked",
            State::Over(_) => "over",
        }
    }
}

/// Returns whether the member refused the entry, so that another one may accept it. After other
/// errors it is unknown whether the entry was created.
fn may_be_taken_elsewhere(error: Error) -> bool {
    matches!(
        error,
        Error::Denied
            | Error::NotPermitted
            | Error::NoSpace
            | Error::QuotaExceeded
            | Error::ReadOnly
            | Error::Unsupported
            | Error::Stale
    )
}
