//! Copy of a directory, and of all below it, a part of a `COPY`.
//!
//! Files are copied one after the other, depth first. What cannot be copied is left out, and named;
//! links are copied as links. Each directory is durable before its parent is. Memory is bounded:
//! one page of names for each level.

use super::super::answer::is_never_synced;
use super::super::exchange::Context;
use super::super::removal::{DEPTH_MAX, FAILURES_MAX, Failure};
use super::super::room::HANDLES;
use super::file_copy::{Copied, FileCopy};
use super::properties::ATTRIBUTE;
use base::op::Detail;
use base::{Access, Error, Kind, Name, Stat};
use std::collections::VecDeque;
use tree::{Ask, NodeId, OpenId, Reply};

/// Maximum number of bytes of names requested at once.
const PAGE: u32 = 4 << 10;

/// A copy in progress.
#[derive(Debug)]
pub(super) struct TreeCopy {
    /// Directory of the copy, which belongs to the caller.
    parent: NodeId,
    /// Directories being copied, outermost first.
    levels: Vec<Level>,
    step: Step,
    /// Whether what is below the directory is copied, too.
    is_deep: bool,
    /// The outermost copy, when it is made. It could be below the source by another path.
    copy: Option<Stat>,
    failures: Vec<Failure>,
}

/// A directory being copied.
#[derive(Debug)]
struct Level {
    source: NodeId,
    copy: NodeId,
    name: Name,
    /// Position in the listing of the source, and entries that were listed.
    cookie: u64,
    entries: VecDeque<Name>,
}

/// A directory to be copied.
#[derive(Debug)]
struct Next {
    source: NodeId,
    name: Name,
}

/// State of a copy.
#[derive(Debug)]
enum Step {
    /// Nothing is outstanding.
    Idle,
    /// Waiting for a new directory.
    Making(Next),
    /// Waiting for its node.
    Entering(Next),
    /// Waiting for the dead properties of the innermost source.
    ReadingAttribute,
    /// Waiting for them to be set.
    SettingAttribute,
    /// Waiting for the open of the innermost source.
    Opening,
    /// Waiting for its entries.
    Listing(OpenId),
    /// Waiting for the node of an entry.
    Walking(Name),
    /// Waiting for the copy of a file.
    Copying(Name, Box<FileCopy>),
    /// Waiting for the target of a link.
    ReadingLink(Name, NodeId),
    /// Waiting for a new link.
    Linking(Name),
    /// Waiting for the open of the innermost copy, and for it to be durable.
    OpeningCopy,
    /// Waiting for the innermost copy to be durable.
    Syncing(OpenId),
}

impl TreeCopy {
    /// Begins to copy a directory of these attributes, whose node belongs to the copy.
    pub(super) fn begin(
        cx: &mut Context,
        (source, stat): (NodeId, &Stat),
        (parent, name): (NodeId, Name),
        is_deep: bool,
    ) -> TreeCopy {
        let (levels, failures) = (Vec::new(), Vec::new());
        let mut copy = TreeCopy { parent, levels, step: Step::Idle, is_deep, copy: None, failures };
        copy.make(cx, Next { source, name }, stat.mode);
        copy
    }

    /// Returns whether the outermost copy was made.
    pub(super) fn is_made(&self) -> bool {
        self.copy.is_some()
    }

    /// Returns the innermost copy.
    fn dir(&self) -> NodeId {
        self.levels.last().map_or(self.parent, |level| level.copy)
    }

    fn innermost(&mut self) -> &mut Level {
        self.levels.last_mut().expect("a directory is being copied")
    }

    /// Handles a reply; returns the failures at the end.
    pub(super) fn answered(
        &mut self,
        cx: &mut Context,
        reply: Result<Reply, Error>,
    ) -> Option<Vec<Failure>> {
        match (std::mem::replace(&mut self.step, Step::Idle), reply) {
            (Step::Making(next), Ok(_)) => {
                cx.ask(Ask::Walk { from: self.dir(), names: vec![next.name.clone()] });
                self.at(Step::Entering(next))
            }
            (Step::Entering(next), Ok(Reply::Walked(stats, Some(copy)))) => {
                self.enter(cx, next, copy, stats.into_iter().next_back())
            }
            (Step::Making(next) | Step::Entering(next), reply) => {
                cx.release(next.source);
                self.fail(Some(next.name), reply.err().unwrap_or(Error::Stale));
                self.go_on(cx)
            }
            (Step::ReadingAttribute, Ok(Reply::Bytes(value))) => {
                let (node, name) = (self.dir(), ATTRIBUTE.to_vec());
                cx.ask(Ask::SetAttr { node, name, value, create: None });
                self.at(Step::SettingAttribute)
            }
            (Step::ReadingAttribute, Err(_))
            | (Step::SettingAttribute, Ok(_) | Err(Error::Unsupported)) => self.go_on(cx),
            (Step::SettingAttribute, Err(error)) => {
                self.fail(None, error);
                self.go_on(cx)
            }
            (step @ (Step::Opening | Step::Listing(_)), reply) => self.listed(cx, step, reply),
            (Step::Walking(name), Ok(Reply::Walked(stats, Some(node)))) => {
                let stat = stats.into_iter().next_back().unwrap_or_default();
                self.begin_entry(cx, name, node, &stat)
            }
            // It was removed meanwhile.
            (Step::Walking(_), Ok(_) | Err(Error::NotFound)) => self.go_on(cx),
            (Step::Copying(name, file), reply) => self.copied(cx, name, file, reply),
            (Step::ReadingLink(name, node), Ok(Reply::Bytes(target))) => {
                cx.release(node);
                let dir = self.dir();
                cx.ask(Ask::Symlink { dir, name: name.clone(), target, gid: None });
                self.at(Step::Linking(name))
            }
            (Step::ReadingLink(name, node), Err(error)) => {
                cx.release(node);
                self.fail(Some(name), error);
                self.go_on(cx)
            }
            (Step::Linking(_), Ok(_)) => self.go_on(cx),
            (Step::Linking(name) | Step::Walking(name), Err(error)) => {
                self.fail(Some(name), error);
                self.go_on(cx)
            }
            (Step::OpeningCopy, Ok(Reply::Opened(open, _))) => {
                cx.ask(Ask::Sync { open, data_only: false });
                self.at(Step::Syncing(open))
            }
            (Step::OpeningCopy, Err(error)) => self.leave(cx, Err(error)),
            (Step::Syncing(open), reply) => {
                cx.close(open);
                self.leave(cx, reply.map(|_| ()))
            }
            (step, Ok(reply)) => unreachable!("{reply:?} in {step:?}"),
            (Step::Idle, Err(error)) => unreachable!("{error:?} without a call"),
        }
    }

    fn at(&mut self, step: Step) -> Option<Vec<Failure>> {
        self.step = step;
        None
    }

    /// Makes a directory in the innermost copy. Its owner can fill it, whatever the source permits.
    fn make(&mut self, cx: &mut Context, next: Next, mode: u32) {
        let (dir, name, mode) = (self.dir(), next.name.clone(), mode & 0o777 | 0o700);
        cx.ask(Ask::MakeDir { dir, name, mode, gid: None });
        self.step = Step::Making(next);
    }

    /// Continues in a new directory.
    fn enter(
        &mut self,
        cx: &mut Context,
        next: Next,
        copy: NodeId,
        stat: Option<Stat>,
    ) -> Option<Vec<Failure>> {
        if self.levels.is_empty() {
            self.copy = Some(stat.unwrap_or_default());
        }
        let Next { source, name } = next;
        self.levels.push(Level { source, copy, name, cookie: 0, entries: VecDeque::new() });
        cx.ask(Ask::GetAttr { node: source, name: ATTRIBUTE.to_vec() });
        self.at(Step::ReadingAttribute)
    }

    /// Continues with the next entry of the innermost source.
    fn go_on(&mut self, cx: &mut Context) -> Option<Vec<Failure>> {
        let is_deep = self.is_deep;
        let Some(level) = self.levels.last_mut() else {
            return Some(std::mem::take(&mut self.failures));
        };
        if !is_deep {
            cx.ask(Ask::Open { node: level.copy, access: Access::READ });
            return self.at(Step::OpeningCopy);
        }
        let from = level.source;
        match level.entries.pop_front() {
            Some(name) => {
                cx.ask(Ask::Walk { from, names: vec![name.clone()] });
                self.at(Step::Walking(name))
            }
            None => {
                cx.ask(Ask::Open { node: from, access: Access::READ });
                self.at(Step::Opening)
            }
        }
    }

    /// Reads the next entries of the innermost source; at the end, makes its copy durable.
    fn listed(
        &mut self,
        cx: &mut Context,
        step: Step,
        reply: Result<Reply, Error>,
    ) -> Option<Vec<Failure>> {
        if let Step::Listing(open) = step {
            cx.close(open);
        }
        let mut is_end = true;
        match reply {
            Ok(Reply::Opened(open, _)) => {
                let cookie = self.innermost().cookie;
                cx.session.outstanding = PAGE as usize;
                cx.ask(Ask::List { open, cookie, bytes_max: PAGE, detail: Detail::Name });
                return self.at(Step::Listing(open));
            }
            Ok(Reply::Entries(entries)) => {
                let level = self.innermost();
                level.cookie = entries.last().map_or(level.cookie, |entry| entry.cookie);
                is_end = entries.is_empty();
                level.entries.extend(entries.into_iter().map(|entry| entry.name));
            }
            Ok(reply) => unreachable!("{reply:?} is no listing"),
            Err(error) => self.fail(None, error),
        }
        if !is_end {
            return self.go_on(cx);
        }
        cx.ask(Ask::Open { node: self.dir(), access: Access::READ });
        self.at(Step::OpeningCopy)
    }

    /// Begins to copy an entry of the innermost source.
    fn begin_entry(
        &mut self,
        cx: &mut Context,
        name: Name,
        node: NodeId,
        stat: &Stat,
    ) -> Option<Vec<Failure>> {
        let refused = match stat.kind {
            Kind::File if !stat.is_stream() => {
                let file = FileCopy::begin(cx, (node, stat), (self.dir(), name.clone()), false);
                return self.at(Step::Copying(name, Box::new(file)));
            }
            Kind::Symlink => {
                cx.ask(Ask::ReadLink { node });
                return self.at(Step::ReadingLink(name, node));
            }
            Kind::Directory if self.copy.as_ref().is_some_and(|copy| copy.is_same(stat)) => {
                cx.release(node);
                return self.go_on(cx);
            }
            Kind::Directory if self.levels.len() >= DEPTH_MAX => Error::NameTooLong,
            Kind::Directory if self.handles() + HANDLES >= cx.session.handles_max => {
                Error::TooManyOpen
            }
            Kind::Directory => {
                self.make(cx, Next { source: node, name }, stat.mode);
                return None;
            }
            Kind::File | Kind::Fifo | Kind::Socket | Kind::CharDevice | Kind::BlockDevice => {
                Error::Unsupported
            }
        };
        cx.release(node);
        self.fail(Some(name), refused);
        self.go_on(cx)
    }

    fn copied(
        &mut self,
        cx: &mut Context,
        name: Name,
        mut file: Box<FileCopy>,
        reply: Result<Reply, Error>,
    ) -> Option<Vec<Failure>> {
        let copied = match file.answered(cx, reply) {
            Some(Copied::Occupied) => file.fail(cx, Error::Exists),
            other => other,
        };
        let Some(copied) = copied else {
            return self.at(Step::Copying(name, file));
        };
        let removal = file.release(cx);
        assert!(removal.is_none(), "an ended copy has no temporary file");
        match copied {
            Copied::Done => {}
            Copied::Occupied => unreachable!("it has failed above"),
            Copied::Failed(error) => self.fail(Some(name), error),
        }
        self.go_on(cx)
    }

    /// Leaves the innermost directory, after it became durable or could not.
    fn leave(&mut self, cx: &mut Context, synced: Result<(), Error>) -> Option<Vec<Failure>> {
        if let Err(error) = synced
            && !is_never_synced(error)
        {
            self.fail(None, error);
        }
        let Level { source, copy, .. } = self.levels.pop().expect("a directory is being copied");
        cx.release(source);
        cx.release(copy);
        match self.levels.is_empty() {
            true => Some(std::mem::take(&mut self.failures)),
            false => self.go_on(cx),
        }
    }

    /// Records a failure: of an entry of the innermost directory, or of that directory.
    fn fail(&mut self, name: Option<Name>, error: Error) {
        if self.failures.len() < FAILURES_MAX {
            let above = self.levels.iter().map(|level| level.name.clone());
            self.failures.push((above.chain(name).collect(), error));
        }
    }

    /// Releases its nodes and open files; returns the request to remove a temporary file, if there
    /// is one. Its call is cancelled by the caller.
    pub(super) fn release(&mut self, cx: &mut Context) -> Option<Ask> {
        let removal = match &mut self.step {
            Step::Making(next) | Step::Entering(next) => {
                cx.release(next.source);
                None
            }
            Step::Listing(open) | Step::Syncing(open) => {
                cx.close(*open);
                None
            }
            Step::ReadingLink(_, node) => {
                cx.release(*node);
                None
            }
            Step::Copying(_, file) => file.release(cx),
            Step::Idle
            | Step::ReadingAttribute
            | Step::SettingAttribute
            | Step::Opening
            | Step::Walking(_)
            | Step::Linking(_)
            | Step::OpeningCopy => None,
        };
        for level in self.levels.drain(..) {
            cx.release(level.source);
            cx.release(level.copy);
        }
        removal
    }

    /// Returns the number of nodes and open files held.
    pub(super) fn handles(&self) -> usize {
        2 * self.levels.len() + 4
    }

    /// Returns the bytes of entries gathered.
    pub(super) fn gathered(&self) -> usize {
        let weight = |name: &Name| name.as_bytes().len() + size_of::<Name>();
        self.levels.iter().flat_map(|level| &level.entries).map(weight).sum()
    }
}
