//! Removal of an entry of a directory, and of all below it if it is a directory: a part of other
//! exchanges.
//!
//! File systems that are mounted below it stay, and so do the directories above them. Entries are
//! removed in the order of the listing, depth first. What cannot be removed is left,
//! with the directories above it, and named. An emptied directory in which others have created
//! entries meanwhile is emptied again. Memory is bounded: one page of names for each level.

use super::exchange::Context;
use super::room::HANDLES;
use base::op::Detail;
use base::{Access, Error, Name};
use std::collections::VecDeque;
use tree::{Ask, NodeId, OpenId, Reply};

/// Maximum depth of directories.
pub(super) const DEPTH_MAX: usize = 256;
/// Maximum number of times that a directory is emptied.
pub(super) const EMPTIED_MAX: u32 = 16;
/// Maximum number of failures that are remembered.
pub(super) const FAILURES_MAX: usize = 64;
/// Maximum number of bytes of names requested at once.
const PAGE: u32 = 4 << 10;

/// A failed removal: the path below the parent directory, and the reason.
pub(super) type Failure = (Vec<Name>, Error);

/// A removal in progress.
#[derive(Debug)]
pub(super) struct Removal {
    /// Parent directory, which belongs to the caller.
    parent: NodeId,
    /// Directories being emptied, outermost first.
    levels: Vec<Level>,
    step: Step,
    /// Whether directories are emptied, and whether that has begun.
    is_deep: bool,
    has_begun: bool,
    failures: Vec<Failure>,
}

/// A directory being emptied.
#[derive(Debug)]
struct Level {
    node: NodeId,
    name: Name,
    /// Position in its listing, and entries that were listed.
    cookie: u64,
    entries: VecDeque<Name>,
    /// Whether something below it could not be removed.
    is_kept: bool,
    device: u64,
    /// Number of times that it was emptied before.
    emptied: u32,
}

/// State of a removal.
#[derive(Debug)]
enum Step {
    /// Waiting for the removal of this entry of the innermost directory, with the number of times
    /// that it was emptied.
    Removing(Name, u32),
    /// Waiting for the node of this entry, a directory with entries, with that number.
    Walking(Name, u32),
    /// Waiting for the open of the innermost directory.
    Opening,
    /// Waiting for its entries.
    Listing(OpenId),
}

impl Removal {
    /// Begins to remove an entry; `is_deep`: also a directory that is not empty.
    pub(super) fn begin(cx: &mut Context, parent: NodeId, name: Name, is_deep: bool) -> Removal {
        let step = Step::Removing(name.clone(), 0);
        cx.ask(Ask::Remove { dir: parent, name, directory: None });
        let (levels, failures, has_begun) = (Vec::new(), Vec::new(), false);
        Removal { parent, levels, step, is_deep, has_begun, failures }
    }

    /// Returns whether something below the entry may be removed, although the entry is not.
    pub(super) fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Returns the innermost directory.
    fn dir(&self) -> NodeId {
        self.levels.last().map_or(self.parent, |level| level.node)
    }

    /// Handles a reply; returns the failures at the end.
    pub(super) fn answered(
        &mut self,
        cx: &mut Context,
        reply: Result<Reply, Error>,
    ) -> Option<Vec<Failure>> {
        let step = std::mem::replace(&mut self.step, Step::Opening);
        match (step, reply) {
            (Step::Removing(..), Ok(_)) => self.go_on(cx),
            // Somebody else has removed it; the caller learns of the first one only.
            (Step::Removing(..) | Step::Walking(..), Err(Error::NotFound))
                if !self.levels.is_empty() =>
            {
                self.go_on(cx)
            }
            (
                Step::Removing(name, emptied @ ..EMPTIED_MAX),
                Err(Error::NotEmpty | Error::Exists),
            ) if self.is_deep => match self.obstacle(cx) {
                Some(error) => {
                    self.fail(Some(name), error);
                    self.go_on(cx)
                }
                None => {
                    cx.ask(Ask::Walk { from: self.dir(), names: vec![name.clone()] });
                    self.step = Step::Walking(name, emptied);
                    None
                }
            },
            (Step::Walking(name, emptied), Ok(Reply::Walked(stats, Some(node)))) => {
                let device = stats.last().map_or(0, |stat| stat.device);
                if self.levels.first().is_some_and(|top| top.device != device) {
                    cx.release(node);
                    self.fail(Some(name), Error::CrossDevice);
                    return self.go_on(cx);
                }
                let (cookie, entries, is_kept) = (0, VecDeque::new(), false);
                self.has_begun = true;
                self.levels.push(Level { node, name, cookie, entries, is_kept, device, emptied });
                self.open(cx)
            }
            (Step::Opening, Ok(Reply::Opened(open, _))) => {
                let cookie = self.innermost().cookie;
                cx.session.outstanding = PAGE as usize;
                cx.ask(Ask::List { open, cookie, bytes_max: PAGE, detail: Detail::Name });
                self.step = Step::Listing(open);
                None
            }
            (Step::Listing(open), Ok(Reply::Entries(entries))) => {
                cx.close(open);
                let level = self.innermost();
                level.cookie = entries.last().map_or(level.cookie, |entry| entry.cookie);
                let is_end = entries.is_empty();
                level.entries.extend(entries.into_iter().map(|entry| entry.name));
                if is_end { self.leave(cx) } else { self.go_on(cx) }
            }
            (Step::Removing(name, _) | Step::Walking(name, _), reply) => {
                self.fail(Some(name), reply.err().unwrap_or(Error::NotFound));
                self.go_on(cx)
            }
            (Step::Listing(open), Err(error)) => {
                cx.close(open);
                self.unlisted(cx, error)
            }
            (Step::Opening, Err(error)) => self.unlisted(cx, error),
            (step, Ok(reply)) => unreachable!("{reply:?} in {step:?}"),
        }
    }

    /// Leaves a directory that cannot be listed. If somebody else has removed it, the listing of
    /// some file systems is invalid (ext4).
    fn unlisted(&mut self, cx: &mut Context, error: Error) -> Option<Vec<Failure>> {
        if !matches!(error, Error::NotFound | Error::Stale | Error::Invalid) {
            self.fail(None, error);
        }
        self.leave(cx)
    }

    fn innermost(&mut self) -> &mut Level {
        self.levels.last_mut().expect("a directory is being emptied")
    }

    /// Returns why no directory below the innermost one can be emptied.
    fn obstacle(&self, cx: &Context) -> Option<Error> {
        let may_hold = self.handles() + HANDLES < cx.session.handles_max;
        match self.levels.len() {
            DEPTH_MAX.. => Some(Error::NameTooLong),
            _ if !may_hold => Some(Error::TooManyOpen),
            _ => None,
        }
    }

    fn open(&mut self, cx: &mut Context) -> Option<Vec<Failure>> {
        cx.ask(Ask::Open { node: self.dir(), access: Access::READ });
        self.step = Step::Opening;
        None
    }

    /// Removes the next entry of the innermost directory, or lists more of it.
    fn go_on(&mut self, cx: &mut Context) -> Option<Vec<Failure>> {
        let Some(level) = self.levels.last_mut() else {
            return Some(std::mem::take(&mut self.failures));
        };
        let Some(name) = level.entries.pop_front() else { return self.open(cx) };
        cx.ask(Ask::Remove { dir: level.node, name: name.clone(), directory: None });
        self.step = Step::Removing(name, 0);
        None
    }

    /// Leaves the innermost directory, and removes it if it was emptied.
    fn leave(&mut self, cx: &mut Context) -> Option<Vec<Failure>> {
        let Level { node, name, is_kept, emptied, .. } =
            self.levels.pop().expect("one is being emptied");
        cx.release(node);
        if is_kept {
            return self.go_on(cx);
        }
        cx.ask(Ask::Remove { dir: self.dir(), name: name.clone(), directory: Some(true) });
        self.step = Step::Removing(name, emptied + 1);
        None
    }

    /// Records a failure: of an entry of the innermost directory, or of that directory.
    fn fail(&mut self, name: Option<Name>, error: Error) {
        self.levels.iter_mut().for_each(|level| level.is_kept = true);
        if self.failures.len() < FAILURES_MAX {
            let above = self.levels.iter().map(|level| level.name.clone());
            self.failures.push((above.chain(name).collect(), error));
        }
    }

    /// Releases its nodes and its open directory. Its call is cancelled by the caller.
    pub(super) fn release(&self, cx: &mut Context) {
        if let Step::Listing(open) = self.step {
            cx.close(open);
        }
        self.levels.iter().for_each(|level| cx.release(level.node));
    }

    /// Returns the number of nodes and open files held.
    pub(super) fn handles(&self) -> usize {
        self.levels.len() + 1
    }

    /// Returns the bytes of entries gathered.
    pub(super) fn gathered(&self) -> usize {
        let weight = |name: &Name| name.as_bytes().len() + size_of::<Name>();
        let entries = self.levels.iter().flat_map(|level| &level.entries);
        entries.map(weight).sum()
    }
}
