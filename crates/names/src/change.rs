//! A change of the namespace: a mount, a bind, or an unmount.
//!
//! Both paths are resolved by walks with the server's own rights (thesis 004, §4.1.3).
//!
#![doc = include_str!("change/states.md")]

use crate::hidden::Hidden;
use crate::history::Number;
use crate::key::Key;
use crate::table::{HeldNode, MEMBERS_MAX, Member, MountPoint, Position, Table};
use crate::walk::{Map, Step as WalkStep, Walk};
use base::{Caller, Error, Kind, Name, Stat};
use std::collections::BTreeSet;
use std::sync::Arc;
use tree::NodeId;

#[cfg(test)]
mod tests;

/// Position of new members in a union (bind(1)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Alone: hides the present members.
    #[default]
    Replace,
    /// In front of the present members.
    Before,
    /// Behind the present members.
    After,
}

/// A requested change.
#[derive(Clone, Debug)]
pub enum NamespaceChange {
    /// Mount or bind a directory.
    Join {
        /// Path of the mount point, from the root of the namespace.
        at: Vec<Name>,
        /// The directory to mount or bind.
        what: Source,
        /// Position among the present members.
        order: Order,
        /// Whether new files may be created in it.
        create: bool,
        /// The source as written in the request, for listings of the namespace.
        source_text: Arc<str>,
    },
    /// Unmount.
    Part {
        /// Path of the mount point.
        at: Vec<Name>,
        /// Only the members with this source, as written when they were mounted; `None`: all.
        source_text: Option<Arc<str>>,
    },
}

/// A directory to mount or bind.
#[derive(Clone, Debug)]
pub enum Source {
    /// The root of a tree: a mount.
    Tree(NodeId, Stat),
    /// A directory of the namespace: a bind.
    Path(Vec<Name>),
}

/// Progress of the change.
#[derive(Clone, Debug)]
enum State {
    /// Walking to the source of a bind.
    ToSource(Box<Walk>),
    /// Walking to the mount point, with the members to put there.
    ToPlace(Box<Walk>, Vec<Member>),
    /// Ended.
    Over,
}

/// The root of the first tree, with its attributes, which no walk returns.
#[derive(Clone, Debug)]
pub(crate) struct Top {
    pub(crate) node: NodeId,
    pub(crate) stat: Stat,
}

impl Top {
    fn key(&self) -> Key {
        Key::new(self.node.tree(), &self.stat)
    }
}

/// A change in progress.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    root: Position,
    top: Top,
    requested: NamespaceChange,
    /// Lines that the path of the bind's source depends on.
    needs: Vec<Number>,
    state: State,
}

/// Next action of the change.
#[derive(Debug)]
pub(crate) enum Step {
    /// A walk within one tree.
    Ask(NodeId, Vec<Name>),
    /// The end, with the result.
    End(Result<(), Error>),
}

impl Change {
    pub(crate) fn new(root: Position, top: Top, requested: NamespaceChange) -> Change {
        let walk =
            |path: &[Name]| Box::new(Walk::to_point(Caller::Server, root.clone(), path.to_vec()));
        let state = match &requested {
            NamespaceChange::Join { what: Source::Path(path), .. } => State::ToSource(walk(path)),
            NamespaceChange::Join {
                at,
                what: Source::Tree(node, stat),
                create,
                source_text,
                ..
            } => {
                let member = member(
                    HeldNode { node: *node, owned: false },
                    stat,
                    *create,
                    Some(source_text),
                );
                State::ToPlace(walk(at), vec![member])
            }
            NamespaceChange::Part { at, .. } => State::ToPlace(walk(at), Vec::new()),
        };
        Change { root, top, requested, needs: Vec::new(), state }
    }

    /// Handles the reply to a walk.
    pub(crate) fn arrive(
        &mut self,
        reply: Result<tree::Reply, Error>,
        map: Map<'_>,
        gone: &mut Vec<NodeId>,
    ) {
        match &mut self.state {
            State::ToSource(walk) | State::ToPlace(walk, _) => walk.arrive(reply, map, gone),
            State::Over => unreachable!("{reply:?} was not asked for"),
        }
    }

    /// Returns the next request; updates the table at the end.
    pub(crate) fn next(
        &mut self,
        table: &mut Table,
        hidden: &Hidden,
        gone: &mut Vec<NodeId>,
    ) -> Step {
        loop {
            let map = Map { table, hidden, top: self.top.node, root: table.at(self.top.key()) };
            let (State::ToSource(walk) | State::ToPlace(walk, _)) = &mut self.state else {
                unreachable!("it is over");
            };
            let found = match walk.next(map) {
                WalkStep::Ask(from, names) => return Step::Ask(from, names),
                WalkStep::End(Err(error)) => Err(error),
                WalkStep::End(Ok((_, None))) => Err(walk.why().unwrap_or(Error::NotFound)),
                WalkStep::End(Ok((stats, Some(position)))) => {
                    let spare = walk.owns_end().then_some(position.node);
                    Ok((stats.last().unwrap_or(&self.top.stat).clone(), position, spare))
                }
            };
            let (stat, position, spare) = match found {
                Ok(found) => found,
                Err(error) => return self.over(Err(error), gone),
            };
            match std::mem::replace(&mut self.state, State::Over) {
                State::ToSource(_) => match self.source(stat, &position, spare, gone) {
                    Ok(members) => self.find_place(members),
                    Err(error) => return Step::End(Err(error)),
                },
                State::ToPlace(_, members) => {
                    let end = self.put(stat, position, spare, members, (table, hidden), gone);
                    return self.over(end, gone);
                }
                State::Over => unreachable!("it walked"),
            }
        }
    }

    /// Aborts the change; appends the nodes to release.
    pub(crate) fn abandon(self, gone: &mut Vec<NodeId>) {
        let (mut walk, members) = match self.state {
            State::ToSource(walk) => (walk, Vec::new()),
            State::ToPlace(walk, members) => (walk, members),
            State::Over => unreachable!("it walked"),
        };
        gone.extend(walk.abandon());
        gone.extend(members.into_iter().filter_map(given_back));
    }

    fn over(&mut self, end: Result<(), Error>, gone: &mut Vec<NodeId>) -> Step {
        // Members that were not mounted.
        if let State::ToPlace(_, members) = std::mem::replace(&mut self.state, State::Over) {
            gone.extend(members.into_iter().filter_map(given_back));
        }
        Step::End(end)
    }

    /// Returns the members to bind: all members of a mount point, else the directory itself.
    fn source(
        &mut self,
        stat: Stat,
        position: &Position,
        spare: Option<NodeId>,
        gone: &mut Vec<NodeId>,
    ) -> Result<Vec<Member>, Error> {
        let NamespaceChange::Join { create, source_text, .. } = &self.requested else {
            unreachable!("only a bind has a source");
        };
        self.needs = position.stack.lines();
        if let Some(last) = position.stack.last().filter(|_| position.at_point) {
            gone.extend(spare);
            self.needs.extend(last.point.lines());
            let with = |member: &Member| Member {
                create: *create,
                what: Some(Arc::clone(source_text)),
                ..member.clone()
            };
            return Ok(last.point.members.iter().map(with).collect());
        }
        if stat.kind != Kind::Directory {
            gone.extend(spare);
            return Err(Error::NotDirectory);
        }
        Ok(vec![member(
            HeldNode { node: position.node, owned: true },
            &stat,
            *create,
            Some(source_text),
        )])
    }

    fn find_place(&mut self, members: Vec<Member>) {
        let NamespaceChange::Join { at, .. } = &self.requested else {
            unreachable!("only a bind has a source")
        };
        let walk = Walk::to_point(Caller::Server, self.root.clone(), at.clone());
        self.state = State::ToPlace(Box::new(walk), members);
    }

    fn put(
        &self,
        stat: Stat,
        position: Position,
        spare: Option<NodeId>,
        members: Vec<Member>,
        (table, hidden): (&mut Table, &Hidden),
        gone: &mut Vec<NodeId>,
    ) -> Result<(), Error> {
        let last = position.stack.last().filter(|_| position.at_point);
        let known = last.and_then(|last| table.at(last.point.key).cloned());
        let way = last.map_or(&position.stack, |last| &last.before);
        let needs = [self.needs.as_slice(), &way.lines()].concat();
        match &self.requested {
            NamespaceChange::Part { source_text, .. } => {
                gone.extend(spare);
                let point = known.ok_or(Error::NotFound)?;
                let rest = parted(&point, source_text.as_ref())?;
                self.expect_none_stranded(&point, &rest, table, hidden)?;
                let line = table.record(&self.requested, point.key, false, needs);
                match rest.is_empty() {
                    true => table.remove(point.key, line),
                    false => table.set(point.with(rest), line),
                }
            }
            NamespaceChange::Join { at, order, .. } => {
                let fits = match &known {
                    _ if !table.has_room() => Err(Error::TooManyOpen),
                    Some(point) => self.expect_fit(*order, point, &members, table, hidden),
                    None if stat.kind != Kind::Directory => Err(Error::NotDirectory),
                    // The mount point was unmounted meanwhile.
                    None if spare.is_none() => Err(Error::Stale),
                    None => Ok(()),
                };
                if fits.is_err() || known.is_some() {
                    gone.extend(spare);
                }
                if let Err(error) = fits {
                    gone.extend(members.into_iter().filter_map(given_back));
                    return Err(error);
                }
                match known {
                    Some(point) => self.join(*order, &point, members, needs, table),
                    None => {
                        let bare = bare(position.node, &stat, at);
                        self.join(*order, &bare, members, needs, table);
                    }
                }
            }
        }
        Ok(())
    }

    /// Checks that members fit at a mount point: none of the hidden ones makes another mount point
    /// unreachable, and there are not too many.
    fn expect_fit(
        &self,
        order: Order,
        point: &MountPoint,
        members: &[Member],
        table: &Table,
        hidden: &Hidden,
    ) -> Result<(), Error> {
        match order {
            Order::Replace => self.expect_none_stranded(point, members, table, hidden),
            Order::Before | Order::After if point.members.len() + members.len() > MEMBERS_MAX => {
                Err(Error::TooManyLinks)
            }
            Order::Before | Order::After => Ok(()),
        }
    }

    /// Checks that a mount point left with only these members makes no other mount point
    /// unreachable: nobody could use that one, or unmount it.
    fn expect_none_stranded(
        &self,
        point: &MountPoint,
        members: &[Member],
        table: &Table,
        hidden: &Hidden,
    ) -> Result<(), Error> {
        let open = BTreeSet::from([self.top.node.tree()]);
        match table.strands(point.key, members, open, hidden) {
            true => Err(Error::Busy),
            false => Ok(()),
        }
    }

    /// Adds members to a mount point, or replaces the present ones.
    fn join(
        &self,
        order: Order,
        point: &MountPoint,
        mut members: Vec<Member>,
        needs: Vec<Number>,
        table: &mut Table,
    ) {
        let own = point.members.iter().any(|member| member.what.is_none());
        let alone = order == Order::Replace || !own;
        let line = table.record(&self.requested, point.key, alone, needs);
        members.iter_mut().for_each(|member| member.line = Some(line));
        table.set(point.with(ordered(order, &point.members, members)), line);
    }

    /// Returns the state's name for `/.upcall/`.
    pub(crate) fn name(&self) -> &'static str {
        match self.state {
            State::ToSource(_) => "to source",
            State::ToPlace(..) => "to place",
            State::Over => "over",
        }
    }
}

fn member(root: HeldNode, stat: &Stat, create: bool, source_text: Option<&Arc<str>>) -> Member {
    let (key, stat, what) = (Key::new(root.node.tree(), stat), stat.clone(), source_text.cloned());
    Member { root: Arc::new(root), key, stat, create, what, line: None }
}

/// Returns a directory as a mount point whose only member is itself.
fn bare(node: NodeId, stat: &Stat, at: &[Name]) -> MountPoint {
    let own = member(HeldNode { node, owned: true }, stat, false, None);
    let (from, key, path) = (Arc::clone(&own.root), own.key, at.to_vec());
    MountPoint { from, key, path, members: vec![own] }
}

/// Returns the node of a member to release, unless others hold it.
fn given_back(member: Member) -> Option<NodeId> {
    HeldNode::let_go(member.root)
}

fn ordered(order: Order, there: &[Member], new: Vec<Member>) -> Vec<Member> {
    match order {
        Order::Replace => new,
        Order::Before => [new.as_slice(), there].concat(),
        Order::After => [there, new.as_slice()].concat(),
    }
}

/// Returns the members left after an unmount; none, if only the directory itself would be left.
fn parted(point: &MountPoint, source_text: Option<&Arc<str>>) -> Result<Vec<Member>, Error> {
    let goes = |member: &&Member| match (&member.what, source_text) {
        (Some(what), Some(source_text)) => what == source_text,
        (Some(_), None) => true,
        (None, _) => false,
    };
    let mut rest: Vec<Member> = point.members.iter().filter(|m| !goes(m)).cloned().collect();
    if rest.len() == point.members.len() {
        return Err(Error::NotFound);
    }
    if rest.iter().all(|member| member.what.is_none()) {
        rest.clear();
    }
    Ok(rest)
}
