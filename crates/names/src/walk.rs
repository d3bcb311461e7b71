//! A walk through the namespace, part by part.
//!
//! A part is a run of names, sent as a whole to the tree it starts in (thesis 004, §4.1.2). If a
//! file on the way turns out to be a mount point, the node found behind it is released, and the
//! rest of the names continues at the members of the mount point. `.` and `..` are sent alone,
//! because they may leave a mount point; if a member does not have the first name of a run, the
//! next member is tried.
//!
#![doc = include_str!("walk/states.md")]

use crate::hidden::Hidden;
use crate::key::Key;
use crate::table::{MountPoint, MountStack, Position, Table};
use base::{Caller, Error, Name, Stat};
use std::collections::VecDeque;
use std::sync::Arc;
use tree::{NodeId, Reply};

#[cfg(test)]
mod tests;

/// Progress of the walk.
#[derive(Clone, Debug)]
pub(crate) enum State {
    /// About to send the next part.
    Ready,
    /// About to try this member of the current union; the error of the members before.
    Next(usize, Option<Error>),
    /// Waiting for a tree to walk this number of names from the current place.
    Down(usize),
    /// Like [`State::Down`], from this member of the current union; the error of the members
    /// before.
    DownMember(usize, usize, Option<Error>),
    /// Waiting for a tree to walk `.` or `..`, or a name with a hidden mount behind it. The mount
    /// stack after it.
    Aside(MountStack),
    /// Waiting for a reference to the root of this member of the mount point reached.
    Arriving(usize, Option<Error>),
    /// Waiting for one more reference to the node where the walk starts and ends.
    Copying,
    /// Ended. `None`: some names were found, but not all.
    Over(Option<Error>),
}

/// A walk in progress.
#[derive(Clone, Debug)]
pub(crate) struct Walk {
    pub(crate) caller: Caller,
    state: State,
    position: Position,
    /// Whether the walk has a reference of its own to the node.
    owned: bool,
    /// Attributes of the files passed so far.
    stats: Vec<Stat>,
    /// Names not walked yet.
    names: VecDeque<Name>,
    /// Error that ended the walk, also after some names were found.
    why: Option<Error>,
    /// Whether to end at a mount point without a request to its members.
    to_point: bool,
}

/// Next action of a walk.
#[derive(Debug)]
pub(crate) enum Step {
    /// A walk within one tree.
    Ask(NodeId, Vec<Name>),
    /// The end: all names were found, or some, or none.
    End(Result<(Vec<Stat>, Option<Position>), Error>),
}

/// The tables used by a walk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Map<'a> {
    pub(crate) table: &'a Table,
    pub(crate) hidden: &'a Hidden,
    /// Root of the first tree.
    pub(crate) top: NodeId,
    /// Mount point at the root, if there is one.
    pub(crate) root: Option<&'a Arc<MountPoint>>,
}

impl Walk {
    pub(crate) fn new(caller: Caller, position: Position, names: Vec<Name>) -> Walk {
        let (stats, names) = (Vec::new(), names.into());
        Walk {
            caller,
            state: State::Ready,
            position,
            owned: false,
            stats,
            names,
            why: None,
            to_point: false,
        }
    }

    /// Returns a walk that, if it ends at a mount point, sends no request to the members: their
    /// servers may be unavailable.
    pub(crate) fn to_point(caller: Caller, position: Position, names: Vec<Name>) -> Walk {
        Walk { to_point: true, ..Walk::new(caller, position, names) }
    }

    /// Returns the error that ended the walk, also after some names were found; `None` or
    /// `NotFound` if a name was not found.
    pub(crate) fn why(&self) -> Option<Error> {
        self.why
    }

    pub(crate) fn check(&self) {
        assert!(matches!(
            self.state,
            State::Down(_)
                | State::DownMember(..)
                | State::Aside(_)
                | State::Arriving(..)
                | State::Copying
        ));
    }

    /// Returns the next request, or the result of the walk.
    pub(crate) fn next(&mut self, map: Map<'_>) -> Step {
        let (state, step) = match std::mem::replace(&mut self.state, State::Ready) {
            // A walk that failed behind the first name has found the names before.
            State::Over(error) => {
                self.why = error;
                let stats = std::mem::take(&mut self.stats);
                let end = match error {
                    Some(error) if stats.is_empty() => Err(error),
                    Some(_) | None => Ok((stats, None)),
                };
                (State::Over(None), Step::End(end))
            }
            State::Next(member, failed) if self.names.is_empty() => self.arrive_at(member, failed),
            State::Next(member, failed) => self.try_member(member, failed, map),
            State::Ready => self.take_part(map),
            state @ (State::Down(_)
            | State::DownMember(..)
            | State::Aside(_)
            | State::Arriving(..)
            | State::Copying) => unreachable!("{state:?}: the part has not been answered"),
        };
        self.state = state;
        step
    }

    fn take_part(&mut self, map: Map<'_>) -> (State, Step) {
        // `.` stays here, whichever members are unavailable.
        while self.position.at_point && self.names.front().is_some_and(|n| n.as_bytes() == b".") {
            self.names.pop_front();
            let here = self.stats.last().unwrap_or(&self.point().members[0].stat).clone();
            self.stats.push(here);
        }
        let node = self.position.node;
        let Some(first) = self.names.front() else {
            let stays = self.to_point && self.position.at_point;
            return match (self.owned || stays, self.position.at_point && !self.stats.is_empty()) {
                (true, _) => {
                    let end = (std::mem::take(&mut self.stats), Some(self.position.clone()));
                    (State::Over(None), Step::End(Ok(end)))
                }
                (false, true) => self.arrive_at(0, None),
                (false, false) => (State::Copying, Step::Ask(node, Vec::new())),
            };
        };
        let aside = |stack: &MountStack, from, name: &[u8]| {
            let name = Name::new(name).expect("a plain name");
            (State::Aside(stack.clone()), Step::Ask(from, vec![name]))
        };
        if let Some((stack, node)) = self.beside(first, map) {
            return aside(&stack, node, b".");
        }
        let stack = &self.position.stack;
        match stack.last().filter(|_| first.is_parent() && self.position.at_point) {
            Some(last) => aside(&last.before, last.point.from.node, b".."),
            None if !first.plain() => aside(stack, node, first.as_bytes()),
            None if self.position.union().is_some() => self.try_member(0, None, map),
            None => {
                let run = self.run(map);
                (State::Down(run), Step::Ask(node, self.first_names(run)))
            }
        }
    }

    /// Returns the destination of a name that leaves the tree through a hidden mount.
    fn beside(&self, name: &Name, map: Map<'_>) -> Option<(MountStack, NodeId)> {
        let Position { node, ref stack, at_point } = self.position;
        let above = map.hidden.above(node).filter(|_| name.is_parent());
        if let Some(above) = above {
            return Some((stack.clone(), above));
        }
        if !map.hidden.is_name(name) {
            return None;
        }
        let hidden = |at| map.hidden.behind(at, name);
        // Hidden mounts of the root stay there even if the root itself is a mount point.
        let last = stack.last().filter(|_| at_point);
        let at_root = last.is_some_and(|last| map.root.is_some_and(|r| r.key == last.point.key));
        if at_root && let Some(root) = hidden(map.top) {
            return Some((MountStack::default(), root));
        }
        let members =
            self.position.union().into_iter().flat_map(|union| &union.members).enumerate();
        let mut members = members.filter_map(|(number, member)| {
            hidden(member.root.node).map(|root| (stack.by_member(number), root))
        });
        members.next().or_else(|| hidden(node).map(|root| (stack.clone(), root)))
    }

    fn try_member(&mut self, member: usize, failed: Option<Error>, map: Map<'_>) -> (State, Step) {
        let run = self.run(map);
        let root = self.point().members[member].root.node;
        (State::DownMember(run, member, failed), Step::Ask(root, self.first_names(run)))
    }

    fn arrive_at(&mut self, member: usize, failed: Option<Error>) -> (State, Step) {
        let root = self.point().members[member].root.node;
        let here = Name::new(b".").expect("a plain name");
        (State::Arriving(member, failed), Step::Ask(root, vec![here]))
    }

    /// Handles the reply to a part; appends the nodes to release.
    pub(crate) fn arrive(
        &mut self,
        reply: Result<Reply, Error>,
        map: Map<'_>,
        gone: &mut Vec<NodeId>,
    ) {
        let reply = reply.map(|reply| match reply {
            Reply::Walked(stats, node) => (stats, node),
            other => unreachable!("{other:?} answers no walk"),
        });
        self.state = match (std::mem::replace(&mut self.state, State::Ready), reply) {
            (State::Down(run), Ok((stats, node))) => {
                let (tree, stack) = (self.position.node.tree(), self.position.stack.clone());
                self.found(run, tree, (stats, node), stack, map, gone)
            }
            (State::DownMember(run, member, _), Ok((stats, node))) => {
                let tree = self.point().members[member].root.node.tree();
                let stack = self.position.stack.by_member(member);
                self.found(run, tree, (stats, node), stack, map, gone)
            }
            // The next member may have the name.
            (State::DownMember(_, member, failed), Err(error)) => {
                self.fail_member(member, failed, error)
            }
            (State::Aside(stack), Ok((stats, Some(node)))) => {
                self.names.pop_front();
                let key = stats.last().map(|stat| Key::new(node.tree(), stat));
                self.stats.extend(stats);
                let at_point = key.is_some_and(|key| stack.at_root(key).is_some());
                let root = map.root.filter(|root| stack.is_empty() && key == Some(root.key));
                self.go(Position { node, stack: stack.clone(), at_point }, gone);
                // There is nothing above the root; if it is a mount point, the walk enters it.
                root.map_or(State::Ready, |root| self.enter(root, &stack, gone))
            }
            (State::Arriving(member, _), Ok((stats, Some(node)))) => {
                // Its attributes may have changed since it was mounted.
                self.stats.pop();
                self.stats.extend(stats);
                let stack = self.position.stack.by_member(member);
                self.go(Position { node, stack, at_point: true }, gone);
                State::Ready
            }
            (State::Arriving(member, failed), Err(error)) => {
                match self.fail_member(member, failed, error) {
                    State::Over(error) => {
                        self.stats.pop();
                        State::Over(error)
                    }
                    next => next,
                }
            }
            (State::Copying, Ok((_, Some(node)))) => {
                let position = Position { node, ..self.position.clone() };
                self.go(position, gone);
                State::Ready
            }
            (State::Aside(_) | State::Arriving(..) | State::Copying, Ok((_, None))) => {
                State::Over(Some(Error::NotFound))
            }
            (State::Down(_) | State::Aside(_) | State::Copying, Err(error)) => {
                State::Over(Some(error))
            }
            (state @ (State::Ready | State::Next(..) | State::Over(_)), reply) => {
                unreachable!("{state:?}: {reply:?} was not asked for")
            }
        };
        if matches!(self.state, State::Over(_)) {
            self.let_go(gone);
        }
    }

    /// Continues behind a found part, or the found beginning of one: there, or at a mount point on
    /// it.
    fn found(
        &mut self,
        run: usize,
        tree: u16,
        (stats, node): (Vec<Stat>, Option<NodeId>),
        stack: MountStack,
        map: Map<'_>,
        gone: &mut Vec<NodeId>,
    ) -> State {
        let point = |stat: &Stat| map.table.point(tree, stat).cloned();
        let crossed = stats.iter().enumerate().find_map(|(at, stat)| Some((at, point(stat)?)));
        match (crossed, node) {
            (Some((at, point)), node) => {
                gone.extend(node);
                self.stats.extend(stats.into_iter().take(at + 1));
                self.names.drain(..=at);
                self.enter(&point, &stack, gone)
            }
            (None, Some(node)) => {
                self.stats.extend(stats);
                self.names.drain(..run);
                self.go(Position { node, stack, at_point: false }, gone);
                State::Ready
            }
            (None, None) => {
                self.stats.extend(stats);
                State::Over(None)
            }
        }
    }

    /// Enters a mount point, without a reference of its own.
    fn enter(
        &mut self,
        point: &Arc<MountPoint>,
        stack: &MountStack,
        gone: &mut Vec<NodeId>,
    ) -> State {
        let Some(stack) = stack.through(point, 0) else {
            self.stats.pop();
            return State::Over(Some(Error::Loop));
        };
        let first = &point.members[0];
        *self.stats.last_mut().expect("the point was found") = first.stat.clone();
        self.go(Position { node: first.root.node, stack, at_point: true }, gone);
        self.owned = false;
        State::Ready
    }

    fn fail_member(&self, member: usize, failed: Option<Error>, error: Error) -> State {
        // An unavailable server is a more important error than a missing name.
        let failed = failed.filter(|failed| *failed != Error::NotFound).or(Some(error));
        if member + 1 < self.point().members.len() {
            State::Next(member + 1, failed)
        } else {
            State::Over(failed)
        }
    }

    fn go(&mut self, position: Position, gone: &mut Vec<NodeId>) {
        self.let_go(gone);
        self.position = position;
        self.owned = true;
    }

    fn let_go(&mut self, gone: &mut Vec<NodeId>) {
        if std::mem::replace(&mut self.owned, false) {
            gone.push(self.position.node);
        }
    }

    fn point(&self) -> &MountPoint {
        &self.position.stack.last().expect("members belong to a point").point
    }

    /// Returns whether the walk has a reference to the node at its end, to be released.
    pub(crate) fn owns_end(&self) -> bool {
        self.owned
    }

    /// Aborts the walk; returns the nodes to release.
    pub(crate) fn abandon(&mut self) -> Vec<NodeId> {
        let mut gone = Vec::new();
        self.let_go(&mut gone);
        gone
    }

    /// Returns the number of first names that stay in the tree, judged by names alone.
    fn run(&self, map: Map<'_>) -> usize {
        let aside = |name: &Name| !name.plain() || map.hidden.is_name(name);
        self.names.iter().skip(1).take_while(|name| !aside(name)).count() + 1
    }

    fn first_names(&self, run: usize) -> Vec<Name> {
        self.names.iter().take(run).cloned().collect()
    }

    /// Returns the state's name for `/.upcall/`.
    pub(crate) fn name(&self) -> &'static str {
        match self.state {
            State::Ready => "ready",
            State::Next(..) => "next",
            State::Down(_) => "down",
            State::DownMember(..) => "down member",
            State::Aside(_) => "aside",
            State::Arriving(..) => "arriving",
            State::Copying => "copying",
            State::Over(_) => "over",
        }
    }
}
