//! `COPY` and `MOVE`.
//!
//! A file replaces another one in one step. Anything else in the way gets a temporary name first,
//! and its own back if the copy or move fails; afterwards it is removed with all below it (RFC 4918
//! §9.8.4, §9.9.3). The change is durable before it is acknowledged.

use super::super::answer::{Head, etag, is_never_synced, not_durable, not_opened, status};
use super::super::exchange::{Context, Exchange, Stay};
use super::super::guard;
use super::super::put::{UNEXPECTED, is_missing, next_name};
use super::super::removal::{Failure, Removal};
use super::super::room::HANDLES;
use super::super::{CALL, CLEANUP, RESTORE, State};
use super::file_copy::{Copied, FileCopy};
use super::make::NO_PARENT;
use super::propfind::href;
use super::tree_copy::TreeCopy;
use crate::{CallId, webdav};
use base::{Access, Error, Kind, Name, Stat};
use tree::{Ask, NodeId, OpenId, Reply};
use wire::dav::{CLOSING, OPENING, write_response, write_status};
use wire::http::{Depth, Destination, Method, Refusal, Request, Verdict, refusal};

/// A copy or move.
#[derive(Debug)]
pub(super) struct Relocate {
    request: Request,
    /// Path of the destination.
    path: Vec<Name>,
    overwrite: bool,
    step: Step,
    /// Directories of both, open for their flush.
    source_dir: Option<Dir>,
    dir: Option<Dir>,
    /// The source, of a copy until it begins.
    source: Option<NodeId>,
    stat: Stat,
    /// The present file at the destination, and its temporary name.
    present: Option<Stat>,
    parked: Option<Name>,
    /// Directories on the way to the source.
    above: Vec<Stat>,
    /// Failures of the copy of a directory.
    failures: Vec<Failure>,
}

/// A directory.
#[derive(Clone, Copy, Debug)]
struct Dir {
    node: NodeId,
    open: Option<OpenId>,
}

/// State of a copy or move.
#[derive(Debug)]
enum Step {
    /// Waiting for the directory of the source.
    FindingSource,
    /// Waiting for the source.
    LookingUp,
    /// Waiting for the directory of the destination.
    FindingDir,
    /// Waiting for what is at the destination.
    LookingAt,
    /// Waiting for the open of a directory: that of the source, or else of the destination.
    Opening(bool),
    /// Waiting until what is at the destination has a temporary name; a copied file waits for it.
    Parking(Option<Box<FileCopy>>),
    /// Waiting until it has its own name again; then this is the response.
    Restoring(Refusal),
    /// Waiting for its removal.
    Discarding(Removal),
    /// Waiting for the move.
    Moving,
    /// Waiting for the copy of a file.
    CopyingFile(Box<FileCopy>),
    /// Waiting for the copy of a directory.
    CopyingTree(TreeCopy),
    /// Waiting for a directory to be durable, as in `Opening`.
    Syncing(bool),
}

const OCCUPIED: Refusal = refusal(412, "there is something at the destination");
const BELOW_ITSELF: Refusal =
    refusal(403, "nothing can be copied or moved to itself, or into itself");

impl Relocate {
    pub(super) fn begin(cx: &mut Context, request: Request) -> State {
        let dav = request.dav.as_ref().expect("a method of WebDAV");
        let Some(Destination { target, authority }) = dav.destination.clone() else {
            return cx.fail(refusal(400, "the Destination field is missing"));
        };
        let host = request.host.as_deref();
        let is_here = |authority: String| {
            guard::is_same_server(host, &authority, cx.session.local, &cx.session.export.web.hosts)
        };
        if !authority.is_none_or(is_here) {
            return cx.fail(refusal(502, "the destination is on another server"));
        }
        let is_move = request.method == Method::Move;
        match dav.depth {
            Some(Depth::One) => return cx.fail(refusal(400, "Depth is 0 or infinity here")),
            Some(Depth::Zero) if is_move => {
                return cx.fail(refusal(400, "a move has infinite depth"));
            }
            None | Some(Depth::Zero | Depth::Infinity) => {}
        }
        let (from, to) = (&request.target.path, &target.path);
        if from.is_empty() || to.is_empty() {
            return cx.fail(refusal(403, "the root can be neither copied, moved nor replaced"));
        }
        if from == to {
            return cx.fail(refusal(403, "source and destination are the same"));
        }
        if to.starts_with(from) || from.starts_with(to) {
            return cx.fail(BELOW_ITSELF);
        }
        let (overwrite, path) = (dav.overwrite, target.path);
        let mut names = request.target.path.clone();
        names.pop();
        cx.ask(Ask::Walk { from: cx.session.export.root, names });
        let relocate = Relocate {
            request,
            path,
            overwrite,
            step: Step::FindingSource,
            source_dir: None,
            dir: None,
            source: None,
            stat: Stat::default(),
            present: None,
            parked: None,
            above: Vec::new(),
            failures: Vec::new(),
        };
        Box::new(relocate).stay()
    }

    fn at(mut self: Box<Self>, step: Step) -> State {
        self.step = step;
        self.stay()
    }

    fn source_name(&self) -> Name {
        self.request.target.path.last().expect("not the root").clone()
    }

    fn name(&self) -> Name {
        self.path.last().expect("not the root").clone()
    }

    fn dir(&self) -> NodeId {
        self.dir.expect("it was found").node
    }

    fn source_dir(&self) -> NodeId {
        self.source_dir.expect("it was found").node
    }

    /// Continues with the directory of the destination, if the source satisfies the conditions.
    fn looked_up(mut self: Box<Self>, cx: &mut Context, stat: Stat, node: NodeId) -> State {
        self.source = Some(node);
        let tag = etag(&stat);
        let facts = Some((&*tag, stat.modified));
        if self.request.conditions.judge(self.request.method, facts) == Verdict::Failed {
            return self.fail(cx, UNEXPECTED);
        }
        let is_copy = self.request.method == Method::Copy;
        let is_copied = matches!(stat.kind, Kind::File | Kind::Directory) && !stat.is_stream();
        if is_copy && !is_copied {
            return self.fail(cx, status(Error::Unsupported));
        }
        self.stat = stat;
        let mut names = self.path.clone();
        names.pop();
        cx.ask(Ask::Walk { from: cx.session.export.root, names });
        self.at(Step::FindingDir)
    }

    /// Continues with the open of the directories, if the destination may be replaced.
    fn looked_at(mut self: Box<Self>, cx: &mut Context, present: Option<Stat>) -> State {
        if present.is_some() && !self.overwrite {
            return self.fail(cx, OCCUPIED);
        }
        if present.as_ref().is_some_and(|present| present.is_same(&self.stat)) {
            return self.fail(cx, refusal(403, "source and destination are the same file"));
        }
        // By another path: what is replaced must not hold the source.
        if present.as_ref().is_some_and(|present| self.above.iter().any(|it| it.is_same(present))) {
            return self.fail(cx, BELOW_ITSELF);
        }
        self.present = present;
        let is_move = self.request.method == Method::Move;
        self.open_dir(cx, is_move)
    }

    fn open_dir(self: Box<Self>, cx: &mut Context, of_source: bool) -> State {
        let node = if of_source { self.source_dir() } else { self.dir() };
        cx.ask(Ask::Open { node, access: Access::READ });
        self.at(Step::Opening(of_source))
    }

    fn opened(mut self: Box<Self>, cx: &mut Context, of_source: bool, open: OpenId) -> State {
        let dir = if of_source { &mut self.source_dir } else { &mut self.dir };
        dir.as_mut().expect("it was found").open = Some(open);
        if of_source {
            return self.open_dir(cx, false);
        }
        if self.request.method == Method::Move {
            return self.rename(cx);
        }
        let (source, to) =
            (self.source.take().expect("it was looked up"), (self.dir(), self.name()));
        if self.stat.kind == Kind::File {
            let file = FileCopy::begin(cx, (source, &self.stat), to, self.overwrite);
            return self.at(Step::CopyingFile(Box::new(file)));
        }
        self.source = Some(source);
        if self.present.is_some() { self.park(cx, None) } else { self.copy_tree(cx) }
    }

    fn rename(self: Box<Self>, cx: &mut Context) -> State {
        let (from, to) = (self.source_dir(), self.dir());
        let (name, new_name, replace) = (self.source_name(), self.name(), self.overwrite);
        cx.ask(Ask::Rename { from, name, to, new_name, replace });
        self.at(Step::Moving)
    }

    fn copy_tree(mut self: Box<Self>, cx: &mut Context) -> State {
        let source = self.source.take().expect("it was looked up");
        let depth = self.request.dav.as_ref().and_then(|dav| dav.depth);
        let (to, is_deep) = ((self.dir(), self.name()), depth != Some(Depth::Zero));
        let tree = TreeCopy::begin(cx, (source, &self.stat), to, is_deep);
        self.at(Step::CopyingTree(tree))
    }

    /// Gives what is at the destination a temporary name; then `file` gets its own.
    fn park(mut self: Box<Self>, cx: &mut Context, file: Option<Box<FileCopy>>) -> State {
        // No name of an incomplete file, which copies of trees leave out: a crash hides nothing.
        let (temporary, dir) = (next_name(cx.session, "old"), self.dir());
        let (name, new_name) = (self.name(), temporary.clone());
        self.parked = Some(temporary);
        cx.ask(Ask::Rename { from: dir, name, to: dir, new_name, replace: false });
        self.at(Step::Parking(file))
    }

    /// Continues after what is at the destination has a temporary name, or could not get one.
    fn parked(
        mut self: Box<Self>,
        cx: &mut Context,
        file: Option<Box<FileCopy>>,
        result: Result<(), Error>,
    ) -> State {
        if result.is_err() {
            self.parked = None;
        }
        // What is missing was removed by somebody else.
        let failure = result.err().filter(|error| *error != Error::NotFound);
        match (file, failure) {
            (Some(mut file), None) => {
                file.link_again(cx);
                self.at(Step::CopyingFile(file))
            }
            (Some(mut file), Some(error)) => match file.fail(cx, error) {
                Some(_) => {
                    file.release(cx);
                    self.fail(cx, status(error))
                }
                None => self.at(Step::CopyingFile(file)),
            },
            (None, Some(error)) => self.fail(cx, status(error)),
            (None, None) if self.request.method == Method::Move => self.rename(cx),
            (None, None) => self.copy_tree(cx),
        }
    }

    /// Gives what was at the destination its own name again, and fails.
    fn restore(mut self: Box<Self>, cx: &mut Context, refusal: Refusal) -> State {
        let Some(name) = self.parked.take() else { return self.fail(cx, refusal) };
        let (dir, new_name) = (self.dir(), self.name());
        cx.ask(Ask::Rename { from: dir, name, to: dir, new_name, replace: false });
        self.at(Step::Restoring(refusal))
    }

    /// Removes what was at the destination, and continues.
    fn discard(mut self: Box<Self>, cx: &mut Context) -> State {
        if self.present.is_some() {
            cx.ask_locks(webdav::Request::Gone(self.path.clone()));
        }
        match self.parked.take() {
            Some(name) => {
                let removal = Removal::begin(cx, self.dir(), name, true);
                self.at(Step::Discarding(removal))
            }
            None => self.discarded(cx, Vec::new()),
        }
    }

    /// Responds with failures, or makes the change durable.
    fn discarded(mut self: Box<Self>, cx: &mut Context, left: Vec<Failure>) -> State {
        self.failures.extend(left.into_iter().filter(|(_, error)| *error != Error::NotFound));
        if self.failures.is_empty() {
            return self.sync(cx, false);
        }
        let (mut above, failures) = (self.path.clone(), std::mem::take(&mut self.failures));
        above.pop();
        self.release(cx);
        cx.respond_failures(&above, &failures)
    }

    /// Handles a failed move.
    fn not_moved(self: Box<Self>, cx: &mut Context, error: Error) -> State {
        let is_in_the_way = matches!(
            error,
            Error::Exists | Error::NotEmpty | Error::IsDirectory | Error::NotDirectory
        );
        let may_park = self.overwrite && self.parked.is_none() && self.present.is_some();
        if is_in_the_way && may_park {
            return self.park(cx, None);
        }
        let refusal = if error == Error::Exists && !self.overwrite {
            OCCUPIED
        } else if error == Error::CrossDevice {
            refusal(502, "source and destination are on different file systems; copy, then delete")
        } else if error == Error::Invalid {
            BELOW_ITSELF
        } else {
            status(error)
        };
        self.restore(cx, refusal)
    }

    fn copied_file(
        self: Box<Self>,
        cx: &mut Context,
        mut file: Box<FileCopy>,
        reply: Result<Reply, Error>,
    ) -> State {
        let copied = match file.answered(cx, reply) {
            Some(Copied::Occupied) if self.overwrite && self.parked.is_none() => {
                return self.park(cx, Some(file));
            }
            Some(Copied::Occupied) => file.fail(cx, Error::Exists),
            other => other,
        };
        let Some(copied) = copied else { return self.at(Step::CopyingFile(file)) };
        file.release(cx);
        match copied {
            Copied::Done if self.parked.is_some() => self.discard(cx),
            Copied::Done => self.sync(cx, false),
            Copied::Failed(Error::Exists) => self.restore(cx, OCCUPIED),
            Copied::Failed(error) => self.restore(cx, status(error)),
            Copied::Occupied => unreachable!("it has failed above"),
        }
    }

    fn sync(self: Box<Self>, cx: &mut Context, of_source: bool) -> State {
        let dir = if of_source { self.source_dir } else { self.dir };
        let open = dir.and_then(|dir| dir.open).expect("it was opened");
        cx.ask(Ask::Sync { open, data_only: false });
        self.at(Step::Syncing(of_source))
    }

    /// Continues after a directory became durable: that of the destination first.
    fn synced(mut self: Box<Self>, cx: &mut Context, of_source: bool) -> State {
        if !of_source && self.request.method == Method::Move {
            return self.sync(cx, true);
        }
        let is_new = self.present.is_none();
        self.release(cx);
        let head = Head::new(if is_new { 201 } else { 204 });
        cx.respond(if is_new { head.field("Content-Length", 0) } else { head })
    }

    /// Continues after the copy of a directory. If not even that was made, what was there before
    /// gets its name back.
    fn copied_tree(
        mut self: Box<Self>,
        cx: &mut Context,
        is_made: bool,
        failures: Vec<Failure>,
    ) -> State {
        if let Some((_, error)) = failures.first().filter(|_| !is_made) {
            let refusal = status(*error);
            return self.restore(cx, refusal);
        }
        self.failures = failures;
        self.discard(cx)
    }

    fn fail(mut self: Box<Self>, cx: &mut Context, refusal: Refusal) -> State {
        self.release(cx);
        cx.fail(refusal)
    }

    /// Releases the nodes and open files, except those of a part.
    fn release(&mut self, cx: &mut Context) {
        self.source.take().into_iter().for_each(|node| cx.release(node));
        for dir in [self.source_dir.take(), self.dir.take()].into_iter().flatten() {
            cx.close(dir.open);
            cx.release(dir.node);
        }
    }

    fn failed(mut self: Box<Self>, cx: &mut Context, step: Step, error: Error) -> State {
        match step {
            Step::FindingDir if is_missing(error) => self.fail(cx, NO_PARENT),
            Step::LookingAt if error == Error::NotDirectory => self.fail(cx, NO_PARENT),
            Step::LookingAt if is_missing(error) => self.looked_at(cx, None),
            Step::Opening(_) => self.fail(cx, not_opened(error)),
            Step::Moving => self.not_moved(cx, error),
            Step::Syncing(of_source) if is_never_synced(error) => self.synced(cx, of_source),
            Step::Syncing(_) => self.fail(cx, not_durable(error)),
            Step::Parking(file) => self.parked(cx, file, Err(error)),
            Step::Restoring(refusal) => self.fail(cx, refusal),
            Step::FindingSource | Step::LookingUp | Step::FindingDir | Step::LookingAt => {
                self.fail(cx, status(error))
            }
            Step::Discarding(_) | Step::CopyingFile(_) | Step::CopyingTree(_) => {
                self.step = step;
                unreachable!("{error:?} is handled by the part: {self:?}")
            }
        }
    }
}

impl Exchange for Relocate {
    fn name(&self) -> &'static str {
        "relocating"
    }

    fn answered(
        mut self: Box<Self>,
        cx: &mut Context,
        _call: CallId,
        reply: Result<Reply, Error>,
    ) -> State {
        match (std::mem::replace(&mut self.step, Step::Moving), reply) {
            (Step::FindingSource, Ok(Reply::Walked(above, Some(node)))) => {
                self.above = above;
                self.source_dir = Some(Dir { node, open: None });
                cx.ask(Ask::Walk { from: node, names: vec![self.source_name()] });
                self.at(Step::LookingUp)
            }
            (Step::LookingUp, Ok(Reply::Walked(mut stats, Some(node)))) => {
                let stat = stats.pop().unwrap_or_default();
                self.looked_up(cx, stat, node)
            }
            (Step::FindingSource | Step::LookingUp, Ok(_)) => {
                self.fail(cx, status(Error::NotFound))
            }
            (Step::FindingDir, Ok(Reply::Walked(above, Some(node)))) => {
                self.dir = Some(Dir { node, open: None });
                if above.iter().any(|it| it.is_same(&self.stat)) {
                    return self.fail(cx, BELOW_ITSELF);
                }
                cx.ask(Ask::Walk { from: node, names: vec![self.name()] });
                self.at(Step::LookingAt)
            }
            (Step::FindingDir, Ok(_)) => self.fail(cx, NO_PARENT),
            (Step::LookingAt, Ok(Reply::Walked(mut stats, Some(node)))) => {
                cx.release(node);
                let stat = stats.pop().unwrap_or_default();
                self.looked_at(cx, Some(stat))
            }
            (Step::LookingAt, Ok(_)) => self.looked_at(cx, None),
            (Step::Opening(of_source), Ok(Reply::Opened(open, _))) => {
                self.opened(cx, of_source, open)
            }
            (Step::Parking(file), Ok(_)) => self.parked(cx, file, Ok(())),
            (Step::Restoring(refusal), Ok(_)) => self.fail(cx, refusal),
            (Step::Discarding(mut removal), reply) => match removal.answered(cx, reply) {
                None => self.at(Step::Discarding(removal)),
                Some(left) => self.discarded(cx, left),
            },
            (Step::CopyingFile(file), reply) => self.copied_file(cx, file, reply),
            (Step::CopyingTree(mut tree), reply) => match tree.answered(cx, reply) {
                None => self.at(Step::CopyingTree(tree)),
                Some(failures) => self.copied_tree(cx, tree.is_made(), failures),
            },
            (Step::Moving, Ok(_)) => {
                cx.ask_locks(webdav::Request::Gone(self.request.target.path.clone()));
                self.discard(cx)
            }
            (Step::Syncing(of_source), Ok(_)) => self.synced(cx, of_source),
            (step, Err(error)) => self.failed(cx, step, error),
            (step, Ok(reply)) => unreachable!("{reply:?} in {step:?}"),
        }
    }

    fn abort(mut self: Box<Self>, cx: &mut Context) -> usize {
        let cleanup = match &mut self.step {
            Step::Discarding(removal) => {
                removal.release(cx);
                None
            }
            Step::Parking(Some(file)) | Step::CopyingFile(file) => file.release(cx),
            Step::CopyingTree(tree) => tree.release(cx),
            Step::FindingSource
            | Step::LookingUp
            | Step::FindingDir
            | Step::LookingAt
            | Step::Opening(_)
            | Step::Parking(None)
            | Step::Restoring(_)
            | Step::Moving
            | Step::Syncing(_) => None,
        };
        let mut replies = usize::from(cleanup.is_some());
        cleanup.into_iter().for_each(|ask| cx.ask_as(CLEANUP, ask));
        if let Some(name) = self.parked.take() {
            // Unless the copy or move was made meanwhile.
            let (dir, new_name) = (self.dir(), self.name());
            let ask = Ask::Rename { from: dir, name, to: dir, new_name, replace: false };
            cx.ask_as(RESTORE, ask);
            replies += 1;
        }
        self.release(cx);
        replies + cx.cancel(CALL, true)
    }

    fn handles(&self) -> usize {
        let of_part = if let Step::Discarding(removal) = &self.step {
            removal.handles()
        } else if let Step::CopyingTree(tree) = &self.step {
            tree.handles()
        } else {
            HANDLES
        };
        5 + of_part
    }

    fn gathered(&self) -> usize {
        if let Step::Discarding(removal) = &self.step {
            removal.gathered()
        } else if let Step::CopyingTree(tree) = &self.step {
            tree.gathered()
        } else {
            0
        }
    }
}

impl Context<'_> {
    /// Responds that some members of a collection could not be changed (RFC 4918 §13): failures
    /// below the directory of this path.
    pub(in super::super) fn respond_failures(
        &mut self,
        above: &[Name],
        failures: &[Failure],
    ) -> State {
        assert!(!failures.is_empty(), "something has failed");
        let mut text = OPENING.to_string();
        for (path, error) in failures {
            let path: Vec<Name> = above.iter().chain(path).cloned().collect();
            let Refusal { status, reason } = status(*error);
            let mut content = String::new();
            write_status(status, reason, &mut content);
            write_response(&href(&path, Kind::File), &content, &mut text);
        }
        text.push_str(CLOSING);
        self.respond_xml(207, &text)
    }
}
