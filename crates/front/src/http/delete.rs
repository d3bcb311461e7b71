//! `DELETE`: resolve the directory, open it, look up the file (with conditions), remove it, and
//! flush the directory, which is opened first so that nothing is removed if it cannot be read.
//! Exactly the version that was evaluated is removed: if it has changed meanwhile, the conditions
//! are evaluated again.

use super::answer::{Head, etag, is_never_synced, not_durable, not_opened, status};
use super::exchange::{Context, Exchange, Stay};
use super::put::{UNEXPECTED, is_missing};
use super::{CALL, State};
use crate::CallId;
use base::op::Replacement;
use base::{Access, Error, Expected, Kind, Name, Stat};
use tree::{Ask, NodeId, OpenId, Reply};
use wire::http::{Method, Request, Verdict, refusal};

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
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Waiting for the directory.
    Finding,
    /// Waiting for the open of the directory.
    Opening(NodeId),
    /// Waiting for the entry.
    Looking(Dir),
    /// Waiting for its attributes, to evaluate the conditions.
    Measuring(Dir, NodeId),
    /// Waiting for its removal from this directory.
    Removing(Dir),
    /// Waiting for the directory to be durable.
    Syncing(Dir),
}

impl Step {
    /// Releases the nodes and the open file of this step.
    fn release(self, cx: &mut Context) {
        match self {
            Step::Finding => {}
            Step::Opening(dir) => cx.release(dir),
            Step::Looking(dir) | Step::Removing(dir) | Step::Syncing(dir) => dir.release(cx),
            Step::Measuring(dir, node) => {
                cx.release(node);
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
        self: Box<Self>,
        cx: &mut Context,
        _call: CallId,
        reply: Result<Reply, Error>,
    ) -> State {
        match (self.step, reply) {
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
            (Step::Removing(dir), Ok(_)) => {
                cx.ask(Ask::Sync { open: dir.open, data_only: false });
                self.at(Step::Syncing(dir))
            }
            (Step::Syncing(dir), Ok(_)) => removed(cx, dir),
            (_, Err(error)) => self.failed(cx, error),
            (step, Ok(other)) => unreachable!("{other:?} in {step:?}"),
        }
    }

    fn abort(self: Box<Self>, cx: &mut Context) -> usize {
        self.step.release(cx);
        cx.cancel(CALL, true)
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
            cx.ask(Ask::Remove { dir: dir.node, name, directory: None });
            return self.at(Step::Removing(dir));
        }
        cx.ask(Ask::Walk { from: dir.node, names: vec![name] });
        self.at(Step::Looking(dir))
    }

    /// Removes the file with these attributes, if it satisfies the conditions.
    fn looked(self: Box<Self>, cx: &mut Context, dir: Dir, present: Option<&Stat>) -> State {
        let tag = present.map(etag);
        let facts = tag.as_deref().zip(present.map(|stat| stat.modified));
        let request = &self.request;
        let verdict = request.conditions.judge(request.method, facts);
        let ask = match (verdict, present, self.name()) {
            (Verdict::Go, Some(stat), Some(name)) if stat.kind == Kind::File => {
                let (by, expected) = (Replacement::Nothing, Expected::Version(stat.file_version()));
                Ask::Replace { dir: dir.node, name, by, expected }
            }
            // Only files have versions: no condition can be ensured for anything else.
            (Verdict::Go, Some(_), Some(name)) if request.conditions.is_empty() => {
                Ask::Remove { dir: dir.node, name, directory: None }
            }
            (Verdict::Go, None, _) | (Verdict::Go, _, None) => {
                dir.release(cx);
                return cx.fail(status(Error::NotFound));
            }
            (Verdict::Go, Some(_), Some(_)) | (Verdict::NotModified | Verdict::Failed, ..) => {
                dir.release(cx);
                return cx.fail(UNEXPECTED);
            }
        };
        cx.ask(ask);
        self.at(Step::Removing(dir))
    }

    fn failed(self: Box<Self>, cx: &mut Context, error: Error) -> State {
        let refused = match self.step {
            Step::Looking(dir) if is_missing(error) => return self.looked(cx, dir, None),
            Step::Measuring(dir, node) if is_missing(error) => {
                cx.release(node);
                return self.looked(cx, dir, None);
            }
            Step::Syncing(dir) if is_never_synced(error) => return removed(cx, dir),
            Step::Syncing(_) => not_durable(error),
            Step::Opening(_) => not_opened(error),
            Step::Finding | Step::Looking(_) | Step::Measuring(..) | Step::Removing(_) => {
                status(error)
            }
        };
        self.step.release(cx);
        cx.fail(refused)
    }
}
