//! `DELETE`: resolve the directory, open it, look up the file (with conditions), remove it, and
//! flush the directory, which is opened first so that nothing is removed if it cannot be read.
//! Exactly the version that was evaluated is removed: if it has changed meanwhile, the conditions
//! are evaluated again. A directory is removed with all below it (RFC 4918 §9.6.1).

use super::answer::{Head, etag, is_never_synced, not_durable, not_opened, status};
use super::exchange::{Context, Exchange, Stay};
use super::put::{UNEXPECTED, is_missing};
use super::removal::{Failure, Removal};
use super::{CALL, State};
use crate::{CallId, webdav};
use base::op::Replacement;
use base::{Access, Error, Expected, Kind, Name, Stat};
use tree::{Ask, NodeId, OpenId, Reply};
use wire::http::{Depth, Method, Request, Verdict, refusal};

/// A removal.
#[derive(Debug)]
pub(super) struct Delete {
    request: Request,
    step: Step,
}

/// Directory of the file to be removed.
#[derive(Clone, Copy, Debug)]
struct Dir {
    node: NodeId,
    open: OpenId,
}

impl Dir {
    /// Closes and releases the directory.
    fn release(self, cx: &mut Context) {
        cx.close(self.open);
        cx.release(self.node);
    }
}

/// State of a `DELETE`.
#[derive(Debug)]
enum Step {
    /// Waiting for the directory.
    Finding,
    /// Waiting for the open of the directory.
    Opening(NodeId),
    /// Waiting for the entry.
    Looking(Dir),
    /// Waiting for its attributes, to evaluate the conditions.
    Measuring(Dir, NodeId),
    /// Waiting for its removal from this directory, in the version that was evaluated.
    Removing(Dir),
    /// Waiting for its removal, with all below it.
    RemovingAll(Dir, Removal),
    /// Waiting for the directory to be durable.
    Syncing(Dir),
}

impl Step {
    /// Releases the nodes and the open file of this step.
    fn release(&self, cx: &mut Context) {
        match self {
            Step::Finding => {}
            Step::Opening(dir) => cx.release(*dir),
            Step::Looking(dir) | Step::Removing(dir) | Step::Syncing(dir) => dir.release(cx),
            Step::RemovingAll(dir, removal) => {
                removal.release(cx);
                dir.release(cx);
            }
            Step::Measuring(dir, node) => {
                cx.release(*node);
                dir.release(cx);
            }
        }
    }
}

impl Exchange for Delete {
    fn name(&self) -> &'static str {
        "deleting"
    }

    fn answered(
        mut self: Box<Self>,
        cx: &mut Context,
        _call: CallId,
        reply: Result<Reply, Error>,
    ) -> State {
        match (std::mem::replace(&mut self.step, Step::Finding), reply) {
            (Step::Finding, Ok(Reply::Walked(stats, Some(dir)))) => {
                if stats.last().is_some_and(|stat| stat.kind != Kind::Directory) {
                    cx.release(dir);
                    return cx.fail(status(Error::NotDirectory));
                }
                if self.name().is_none() {
                    cx.release(dir);
                    return cx.fail(refusal(403, "the root cannot be removed"));
                }
                cx.ask(Ask::Open { node: dir, access: Access::READ });
                self.at(Step::Opening(dir))
            }
            (Step::Finding, Ok(_)) => cx.fail(status(Error::NotFound)),
            (Step::Opening(node), Ok(Reply::Opened(open, _))) => {
                self.opened(cx, Dir { node, open })
            }
            (Step::Looking(dir), Ok(Reply::Walked(_, Some(node)))) => {
                cx.ask(Ask::Stat { node });
                self.at(Step::Measuring(dir, node))
            }
            (Step::Looking(dir), Ok(_)) => self.looked(cx, dir, None),
            (Step::Measuring(dir, node), Ok(Reply::Stat(stat))) => {
                cx.release(node);
                self.looked(cx, dir, Some(&stat))
            }
            (Step::Removing(dir), Ok(Reply::Unexpected(present))) => {
                self.looked(cx, dir, present.as_ref())
            }
            (Step::Removing(dir), Ok(_)) => self.removed_all(cx, dir, true, &[]),
            (Step::RemovingAll(dir, mut removal), reply) => match removal.answered(cx, reply) {
                None => self.at(Step::RemovingAll(dir, removal)),
                Some(failures) => self.removed_all(cx, dir, removal.has_begun(), &failures),
            },
            (Step::Syncing(dir), Ok(_)) => removed(cx, dir),
            (step, Err(error)) => self.failed(cx, step, error),
            (step, Ok(other)) => unreachable!("{other:?} in {step:?}"),
        }
    }

    fn abort(self: Box<Self>, cx: &mut Context) -> usize {
        if let Step::RemovingAll(_, removal) = &self.step
            && removal.has_begun()
        {
            cx.ask_locks(webdav::Request::Gone(self.request.target.path.clone()));
        }
        self.step.release(cx);
        cx.cancel(CALL, true)
    }

    fn handles(&self) -> usize {
        2 + if let Step::RemovingAll(_, removal) = &self.step { removal.handles() } else { 0 }
    }

    fn gathered(&self) -> usize {
        if let Step::RemovingAll(_, removal) = &self.step { removal.gathered() } else { 0 }
    }
}

/// Responds after the removal.
fn removed(cx: &mut Context, dir: Dir) -> State {
    dir.release(cx);
    cx.respond(Head::new(204))
}

impl Delete {
    pub(super) fn begin(cx: &mut Context, request: Request) -> State {
        assert_eq!(request.method, Method::Delete, "no other method removes a file");
        if request.dav.as_ref().is_some_and(|dav| dav.depth == Some(Depth::One)) {
            return cx.fail(refusal(400, "Depth is 0 or infinity here"));
        }
        let mut names = request.target.path.clone();
        names.pop();
        cx.ask(Ask::Walk { from: cx.session.export.root, names });
        Box::new(Delete { request, step: Step::Finding }).stay()
    }

    fn at(mut self: Box<Self>, step: Step) -> State {
        self.step = step;
        self.stay()
    }

    fn name(&self) -> Option<Name> {
        self.request.target.path.last().cloned()
    }

    /// Starts the removal in the open directory.
    fn opened(self: Box<Self>, cx: &mut Context, dir: Dir) -> State {
        let name = self.name().expect("the root was refused");
        if self.request.conditions.is_empty() {
            return self.remove_all(cx, dir, name);
        }
        cx.ask(Ask::Walk { from: dir.node, names: vec![name] });
        self.at(Step::Looking(dir))
    }

    /// Starts the removal of an entry, whatever it is.
    fn remove_all(self: Box<Self>, cx: &mut Context, dir: Dir, name: Name) -> State {
        // RFC 4918 §9.6.1: a directory is removed with all below it, or the depth is wrong.
        let depth = self.request.dav.as_ref().and_then(|dav| dav.depth);
        let is_deep = depth.is_none_or(|depth| depth == Depth::Infinity);
        let removal = Removal::begin(cx, dir.node, name, is_deep);
        self.at(Step::RemovingAll(dir, removal))
    }

    fn sync(self: Box<Self>, cx: &mut Context, dir: Dir) -> State {
        cx.ask(Ask::Sync { open: dir.open, data_only: false });
        self.at(Step::Syncing(dir))
    }

    /// Continues after everything was removed that could be.
    fn removed_all(
        self: Box<Self>,
        cx: &mut Context,
        dir: Dir,
        has_begun: bool,
        failures: &[Failure],
    ) -> State {
        // Its owner has submitted the tokens of all locks below, also of what is left.
        if has_begun || failures.is_empty() {
            cx.ask_locks(webdav::Request::Gone(self.request.target.path.clone()));
        }
        match failures {
            [] => self.sync(cx, dir),
            // The target itself, not something below it.
            [(path, error)] if path.len() == 1 => {
                dir.release(cx);
                cx.fail(status(*error))
            }
            failures => {
                dir.release(cx);
                let mut above = self.request.target.path.clone();
                above.pop();
                cx.respond_failures(&above, failures)
            }
        }
    }

    /// Removes the file with these attributes, if it satisfies the conditions.
    fn looked(self: Box<Self>, cx: &mut Context, dir: Dir, present: Option<&Stat>) -> State {
        let tag = present.map(etag);
        let facts = tag.as_deref().zip(present.map(|stat| stat.modified));
        let request = &self.request;
        let verdict = request.conditions.judge(request.method, facts);
        match (verdict, present, self.name()) {
            (Verdict::Go, Some(stat), Some(name)) if stat.kind == Kind::File => {
                let (by, expected) = (Replacement::Nothing, Expected::Version(stat.file_version()));
                cx.ask(Ask::Replace { dir: dir.node, name, by, expected });
                self.at(Step::Removing(dir))
            }
            (Verdict::Go, Some(_), Some(name)) if request.conditions.requires_only_existence() => {
                self.remove_all(cx, dir, name)
            }
            (Verdict::Go, None, _) | (Verdict::Go, _, None) => {
                dir.release(cx);
                cx.fail(status(Error::NotFound))
            }
            // Only files have versions: no condition can be ensured for anything else.
            (Verdict::Go, Some(_), Some(_)) | (Verdict::NotModified | Verdict::Failed, ..) => {
                dir.release(cx);
                cx.fail(UNEXPECTED)
            }
        }
    }

    fn failed(self: Box<Self>, cx: &mut Context, step: Step, error: Error) -> State {
        let refused = match step {
            Step::Looking(dir) if is_missing(error) => return self.looked(cx, dir, None),
            Step::Measuring(dir, node) if is_missing(error) => {
                cx.release(node);
                return self.looked(cx, dir, None);
            }
            Step::Syncing(dir) if is_never_synced(error) => return removed(cx, dir),
            Step::Syncing(_) => not_durable(error),
            Step::Opening(_) => not_opened(error),
            Step::Finding
            | Step::Looking(_)
            | Step::Measuring(..)
            | Step::Removing(_)
            | Step::RemovingAll(..) => status(error),
        };
        step.release(cx);
        cx.fail(refused)
    }
}
