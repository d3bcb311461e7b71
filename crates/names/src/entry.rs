//! A request about entries of unions: which member it goes to.
//!
//! An entry that is there belongs to the first member that has it. A new one is made in the first
//! member that takes it, of those that are marked for it (bind(1), `-c`); thesis 004, §4.1.2, has
//! the first success win. What is the place of a point can be neither replaced nor removed.
//!
#![doc = include_str!("entry/states.md")]

use crate::table::{Place, Table};
use base::op::Replacement;
use base::{Error, Name};
use tree::{Ask, NodeId, Reply, Request};

#[cfg(test)]
mod tests;

/// What it is doing.
#[derive(Clone, Debug)]
enum State {
    /// About to look for this entry in this member; what went wrong with those before.
    Next(usize, usize, Option<Error>),
    /// Waiting for a tree to look for this entry in this member.
    Looking(usize, usize, Option<Error>),
    /// About to make the request, with this of the members that take new entries.
    Ready(usize),
    /// Waiting for the request itself to be answered.
    Asked(usize),
    /// Answered.
    Over(Result<(), Error>),
}

/// One entry the request is about.
#[derive(Clone, Debug)]
struct Subject {
    place: Place,
    name: Name,
    /// The directory that has it, once that is known.
    found: Option<NodeId>,
}

/// The request.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) request: Request,
    state: State,
    /// One or two, in the order of [`Ask::entries`].
    subjects: Vec<Subject>,
    /// The first directory of the request as it was made.
    asked_of: Option<NodeId>,
    /// Nodes of trees that it needs until its end, whoever gives them back meanwhile.
    pub(crate) nodes: Vec<NodeId>,
}

/// What it wants next.
#[derive(Debug)]
pub(crate) enum Step {
    /// Look for a name.
    Look(NodeId, Name),
    /// The request, with the directories that it is about.
    Ask(Vec<NodeId>),
    /// Nothing: it cannot be done.
    Fail(Error),
    /// Nothing: this answers it.
    End(Reply),
}

impl Entry {
    /// A request whose nodes are those of trees already.
    pub(crate) fn new(mut request: Request, subjects: Vec<(Place, Name)>) -> Entry {
        let mut nodes = Vec::new();
        request.ask.each_node(&mut |node| nodes.push(*node));
        let subject = |(place, name)| Subject { place, name, found: None };
        let subjects = subjects.into_iter().map(subject).collect();
        Entry { request, state: State::Next(0, 0, None), subjects, asked_of: None, nodes }
    }

    /// Where what it makes is.
    pub(crate) fn place(&self) -> &Place {
        &self.subjects[0].place
    }

    /// The member in which what it makes is, if it is about a union.
    pub(crate) fn member(&self) -> Option<usize> {
        let point = self.place().union()?;
        point.members.iter().position(|member| Some(member.root.node) == self.asked_of)
    }

    /// Whether the subject has to be there: it is moved or removed.
    fn must_be_there(&self, subject: usize) -> bool {
        matches!(self.request.ask, Ask::Remove { .. }) || (subject == 0 && self.is_rename())
    }

    fn is_rename(&self) -> bool {
        let moves = |ask: &Ask| matches!(ask, Ask::Replace { by: Replacement::Entry(..), .. });
        matches!(self.request.ask, Ask::Rename { .. }) || moves(&self.request.ask)
    }

    /// What to ask for next.
    pub(crate) fn next(&mut self) -> Step {
        let (state, step) = match self.state {
            State::Next(subject, ..) if subject == self.subjects.len() => self.choose(0),
            State::Next(subject, member, failed) => {
                let Subject { place, name, .. } = &self.subjects[subject];
                let dir = place.union().map_or(place.node, |point| point.members[member].root.node);
                (State::Looking(subject, member, failed), Step::Look(dir, name.clone()))
            }
            State::Ready(candidate) => self.choose(candidate),
            State::Over(Err(error)) => (State::Over(Ok(())), Step::Fail(error)),
            State::Looking(..) | State::Asked(_) | State::Over(Ok(())) => {
                unreachable!("{:?}: what was asked for has not been answered", self.state)
            }
        };
        if let Step::Ask(dirs) = &step {
            self.asked_of = dirs.first().copied();
        }
        self.state = state;
        step
    }

    /// The directories, when each entry is found or known to be nowhere.
    fn choose(&self, candidate: usize) -> (State, Step) {
        let first = self.subjects[0].found;
        let dir = |subject: &Subject| match (subject.found, subject.place.union()) {
            (Some(found), _) => Ok(found),
            (None, None) => Ok(subject.place.node),
            (None, Some(point)) => {
                let inside = |root: &NodeId| first == Some(*root);
                let roots = point.members.iter().map(|member| member.root.node);
                // What is renamed stays in its tree if it can.
                if let Some(root) = roots.clone().find(inside) {
                    return Ok(root);
                }
                let takers = point.members.iter().filter(|member| member.create);
                takers.map(|member| member.root.node).nth(candidate).ok_or(Error::NotPermitted)
            }
        };
        match self.subjects.iter().map(dir).collect::<Result<Vec<NodeId>, Error>>() {
            Ok(dirs) => (State::Asked(candidate), Step::Ask(dirs)),
            Err(error) => (State::Over(Ok(())), Step::Fail(error)),
        }
    }

    /// Takes the answer to what was asked for; gives nodes that are done with.
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
            (State::Asked(_), Ok(reply)) => {
                self.state = State::Over(Ok(()));
                return Some(reply);
            }
            // Another member may take it.
            (State::Asked(candidate), Err(error)) => match self.takers() {
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
        let count = self.subjects[subject].place.union().map_or(1, |point| point.members.len());
        match failed {
            failed if member + 1 < count => State::Next(subject, member + 1, failed),
            Some(error) if self.must_be_there(subject) || error != Error::NotFound => {
                State::Over(Err(error))
            }
            Some(_) | None => State::Next(subject + 1, 0, None),
        }
    }

    /// How many members could take what is new.
    fn takers(&self) -> usize {
        let new = self.subjects.iter().filter(|subject| subject.found.is_none());
        let takers = |subject: &Subject| {
            let point = subject.place.union()?;
            Some(point.members.iter().filter(|member| member.create).count())
        };
        new.filter_map(takers).next().unwrap_or(1)
    }

    fn dir(&self, subject: usize, member: usize) -> NodeId {
        let place = &self.subjects[subject].place;
        place.union().map_or(place.node, |point| point.members[member].root.node)
    }

    /// One word for `/.upcall/`.
    pub(crate) fn name(&self) -> &'static str {
        match self.state {
            State::Next(..) => "next",
            State::Looking(..) => "looking",
            State::Ready(_) => "ready",
            State::Asked(_) => "asked",
            State::Over(_) => "over",
        }
    }
}

/// Whether it was the place that did not take the entry, and not the entry that is wrong. After
/// others nobody knows whether it was made.
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
