//! A fetch by path in a namespace with mount points: walk, open and read in sequence.
//!
//! A tree fetches in one request, but does not know which of its directories are mount points.
//!
#![doc = include_str!("fetch/states.md")]

use crate::table::Position;
use crate::walk::{Map, Step as WalkStep, Walk};
use base::{Access, Buf, Caller, Error, Kind, Name, Stat};
use tree::{Ask, NodeId, OpenId, Reply};

#[cfg(test)]
mod tests;

/// Maximum number of symbolic links on a path, as in Linux.
const LINKS_MAX: u32 = 40;

/// Progress of the fetch.
#[derive(Clone, Debug)]
enum State {
    /// Walking the path.
    Walking(Box<Walk>),
    /// Walking to the symbolic link on the path, with this number of names in front of it.
    ToLink(Box<Walk>, usize),
    /// Waiting for the target of the link.
    ReadingLink(NodeId, usize),
    /// Waiting for the open of the file.
    Opening(Position),
    /// Waiting for the first bytes of the file.
    Reading(OpenId, Stat),
    /// Ended, or continued as the open of a union; nothing is held.
    Over,
}

/// A fetch in progress.
#[derive(Clone, Debug)]
pub(crate) struct Fetch {
    pub(crate) caller: Caller,
    root: Position,
    state: State,
    path: Vec<Name>,
    links: u32,
    read_max: u32,
    headroom: u32,
}

/// Next action of the fetch.
#[derive(Debug)]
pub(crate) enum Step {
    /// Send a request to the tree with this number.
    Ask(u16, Ask),
    /// Open the union that the path leads to, as the end of the fetch.
    OpenUnion(Position),
    /// End with this reply.
    End(Result<Reply, Error>),
}

/// Nodes and the open file to give back.
#[derive(Debug, Default)]
pub(crate) struct Released {
    pub(crate) nodes: Vec<NodeId>,
    pub(crate) open: Option<OpenId>,
}

impl Fetch {
    pub(crate) fn new(
        caller: Caller,
        root: Position,
        path: Vec<Name>,
        read_max: u32,
        headroom: u32,
    ) -> Fetch {
        let walk = Walk::new(caller.clone(), root.clone(), path.clone());
        let state = State::Walking(Box::new(walk));
        Fetch { caller, root, state, path, links: 0, read_max, headroom }
    }

    /// Returns the first action.
    pub(crate) fn begin(&mut self, map: Map<'_>, gone: &mut Released) -> Step {
        let step = self.walk_on(map, gone);
        self.release_at_end(step)
    }

    /// Handles a reply; returns the next action.
    pub(crate) fn arrive(
        &mut self,
        reply: Result<Reply, Error>,
        map: Map<'_>,
        gone: &mut Released,
    ) -> Step {
        let step = self.take(reply, map, gone);
        self.release_at_end(step)
    }

    /// Marks the end of the fetch: its nodes and files belong to the client or are already
    /// released.
    fn release_at_end(&mut self, step: Step) -> Step {
        match step {
            Step::End(_) | Step::OpenUnion(_) => self.state = State::Over,
            Step::Ask(..) => {}
        }
        step
    }

    fn take(&mut self, reply: Result<Reply, Error>, map: Map<'_>, gone: &mut Released) -> Step {
        match (&mut self.state, reply) {
            (State::Walking(walk) | State::ToLink(walk, _), reply) => {
                walk.arrive(reply, map, &mut gone.nodes);
                self.walk_on(map, gone)
            }
            (State::ReadingLink(node, before), Ok(Reply::Bytes(target))) => {
                let (node, before) = (*node, *before);
                gone.nodes.push(node);
                match self.redirect(before, &target) {
                    Ok(()) => self.walk_on(map, gone),
                    Err(error) => Step::End(Err(error)),
                }
            }
            (State::ReadingLink(node, _), Err(error)) => {
                gone.nodes.push(*node);
                Step::End(Err(error))
            }
            (State::Opening(position), Ok(Reply::Opened(open, stat))) => {
                gone.nodes.push(position.node);
                self.opened(open, stat)
            }
            (State::Opening(position), Err(error)) => {
                gone.nodes.push(position.node);
                Step::End(Err(error))
            }
            (State::Reading(open, stat), Ok(reply @ (Reply::Data(_) | Reply::Pieces(_)))) => {
                let (open, stat) = (*open, stat.clone());
                let data = whole(reply, self.headroom as usize);
                // A file of size zero with contents may continue after any read.
                let known = stat.size > 0 || data.is_empty();
                let all = known && stat.size <= data.len() as u64;
                gone.open = all.then_some(open);
                Step::End(Ok(Reply::Fetched(stat, data, (!all).then_some(open))))
            }
            (State::Reading(open, _), Err(error)) => {
                gone.open = Some(*open);
                Step::End(Err(error))
            }
            (state, reply) => unreachable!("{state:?}: {reply:?} was not asked for"),
        }
    }

    fn walk_on(&mut self, map: Map<'_>, gone: &mut Released) -> Step {
        let (State::Walking(walk) | State::ToLink(walk, _)) = &mut self.state else {
            unreachable!("{:?} walks nowhere", self.state);
        };
        match walk.next(map) {
            WalkStep::Ask(from, names) => Step::Ask(from.tree(), Ask::Walk { from, names }),
            WalkStep::End(Err(error)) => Step::End(Err(error)),
            WalkStep::End(Ok((stats, position))) => self.arrived(&stats, position, map, gone),
        }
    }

    /// Continues at the end of the walk, along the path or to a link on it, as far as it went.
    fn arrived(
        &mut self,
        stats: &[Stat],
        position: Option<Position>,
        map: Map<'_>,
        gone: &mut Released,
    ) -> Step {
        let is_link = stats.last().is_some_and(|stat| stat.kind == Kind::Symlink);
        match (&self.state, position) {
            (State::ToLink(_, before), Some(position)) if is_link => {
                let node = position.node;
                self.state = State::ReadingLink(node, *before);
                Step::Ask(node.tree(), Ask::ReadLink { node })
            }
            // No longer a link.
            (State::ToLink(..), position) => {
                gone.nodes.extend(position.map(|position| position.node));
                Step::End(Err(Error::NotFound))
            }
            (_, position) if is_link => {
                gone.nodes.extend(position.map(|position| position.node));
                self.links += 1;
                if self.links > LINKS_MAX {
                    return Step::End(Err(Error::Loop));
                }
                let way = self.path[..stats.len()].to_vec();
                let walk = Walk::new(self.caller.clone(), self.root.clone(), way);
                self.state = State::ToLink(Box::new(walk), stats.len() - 1);
                self.walk_on(map, gone)
            }
            (State::Walking(walk), None)
                if walk.why().is_some_and(|why| why != Error::NotFound) =>
            {
                Step::End(Err(walk.why().expect("it is there")))
            }
            (_, None) => Step::End(Err(match stats.last() {
                Some(stat) if stat.kind != Kind::Directory => Error::NotDirectory,
                Some(_) | None => Error::NotFound,
            })),
            (_, Some(position)) if position.union().is_some() => {
                gone.nodes.push(position.node);
                Step::OpenUnion(position)
            }
            (_, Some(position)) => {
                let node = position.node;
                self.state = State::Opening(position);
                let access = Access { read: true, ..Access::default() };
                Step::Ask(node.tree(), Ask::Open { node, access })
            }
        }
    }

    fn opened(&mut self, open: OpenId, stat: Stat) -> Step {
        if stat.kind == Kind::Directory {
            let data = Buf::with_room(self.headroom as usize, 0);
            return Step::End(Ok(Reply::Fetched(stat, data, Some(open))));
        }
        let (count, headroom) = (self.read_max, self.headroom);
        self.state = State::Reading(open, stat);
        Step::Ask(open.tree(), Ask::Read { open, offset: 0, count, headroom })
    }

    /// Replaces a link by its target and restarts the walk.
    fn redirect(&mut self, before: usize, target: &[u8]) -> Result<(), Error> {
        // Absolute targets lead out of the served tree.
        if target.first() == Some(&b'/') {
            return Err(Error::CrossDevice);
        }
        let mut path = self.path[..before].to_vec();
        for part in target.split(|byte| *byte == b'/') {
            match part {
                b"" | b"." => {}
                b".." => drop(path.pop().ok_or(Error::CrossDevice)?),
                part => path.push(Name::new(part)?),
            }
        }
        path.extend_from_slice(&self.path[before + 1..]);
        self.path = path;
        let walk = Walk::new(self.caller.clone(), self.root.clone(), self.path.clone());
        self.state = State::Walking(Box::new(walk));
        Ok(())
    }

    /// Aborts the fetch; gives back everything that it holds.
    pub(crate) fn abandon(&mut self, gone: &mut Released) {
        match &mut self.state {
            State::Walking(walk) | State::ToLink(walk, _) => gone.nodes.extend(walk.abandon()),
            State::ReadingLink(node, _) => gone.nodes.push(*node),
            State::Opening(position) => gone.nodes.push(position.node),
            State::Reading(open, _) => gone.open = Some(*open),
            State::Over => {}
        }
        self.state = State::Over;
    }

    pub(crate) fn headroom(&self) -> u32 {
        self.headroom
    }

    /// Returns the state's name for `/.upcall/`.
    pub(crate) fn name(&self) -> &'static str {
        match self.state {
            State::Walking(_) => "walking",
            State::ToLink(..) => "to link",
            State::ReadingLink(..) => "reading link",
            State::Opening(_) => "opening",
            State::Reading(..) => "reading",
            State::Over => "over",
        }
    }
}

/// Returns the data in one buffer, with headroom.
fn whole(reply: Reply, headroom: usize) -> Buf {
    match reply {
        Reply::Data(data) => data,
        Reply::Pieces(pieces) => {
            let count = pieces.iter().map(|piece| piece.len()).sum();
            let mut buf = Buf::with_room(headroom, count);
            pieces.iter().for_each(|piece| buf.extend(piece));
            buf
        }
        other => unreachable!("{other:?} has no bytes"),
    }
}
