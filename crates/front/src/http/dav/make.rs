//! `MKCOL`: a new directory, durable before it is acknowledged.

use super::super::answer::{Head, is_never_synced, not_durable, not_opened, status};
use super::super::exchange::{Context, Exchange, Stay};
use super::super::put::is_missing;
use super::super::{CALL, State};
use crate::CallId;
use base::{Access, Error};
use tree::{Ask, NodeId, OpenId, Reply};
use wire::http::{Request, Verdict, refusal};

/// Permissions of a new directory.
const MODE: u32 = 0o755;

/// Creation of a directory.
#[derive(Debug)]
pub(super) struct Make {
    request: Request,
    step: Step,
}

/// State of a `MKCOL`.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Waiting for the parent directory.
    Finding,
    /// Waiting for its open.
    Opening(NodeId),
    /// Waiting for the new directory.
    Making(NodeId, OpenId),
    /// Waiting for it to be durable.
    Syncing(NodeId, OpenId),
}

impl Make {
    pub(super) fn begin(cx: &mut Context, request: Request) -> State {
        // An existing directory is a failed condition of nothing else than `If-None-Match`.
        if request.conditions.judge(request.method, None) == Verdict::Failed {
            return cx.fail(super::super::put::UNEXPECTED);
        }
        let mut names = request.target.path.clone();
        if names.pop().is_none() {
            return cx.fail(refusal(405, "the root exists already"));
        }
        cx.ask(Ask::Walk { from: cx.session.export.root, names });
        Box::new(Make { request, step: Step::Finding }).stay()
    }

    fn at(mut self: Box<Self>, step: Step) -> State {
        self.step = step;
        self.stay()
    }

    fn release(&self, cx: &mut Context) {
        match self.step {
            Step::Finding => {}
            Step::Opening(dir) => cx.release(dir),
            Step::Making(dir, open) | Step::Syncing(dir, open) => {
                cx.close(open);
                cx.release(dir);
            }
        }
    }

    fn done(&self, cx: &mut Context) -> State {
        self.release(cx);
        cx.respond(Head::new(201).field("Content-Length", 0))
    }
}

impl Exchange for Make {
    fn name(&self) -> &'static str {
        "making"
    }

    fn answered(
        self: Box<Self>,
        cx: &mut Context,
        _call: CallId,
        reply: Result<Reply, Error>,
    ) -> State {
        match (self.step, reply) {
            (Step::Finding, Ok(Reply::Walked(_, Some(dir)))) => {
                cx.ask(Ask::Open { node: dir, access: Access::READ });
                self.at(Step::Opening(dir))
            }
            (Step::Finding, Err(error)) if !is_missing(error) => cx.fail(status(error)),
            (Step::Finding, _) => cx.fail(NO_PARENT),
            (Step::Opening(dir), Ok(Reply::Opened(open, _))) => {
                let name = self.request.target.path.last().expect("not the root").clone();
                cx.ask(Ask::MakeDir { dir, name, mode: MODE, gid: None });
                self.at(Step::Making(dir, open))
            }
            (Step::Making(dir, open), Ok(_)) => {
                cx.ask(Ask::Sync { open, data_only: false });
                self.at(Step::Syncing(dir, open))
            }
            (Step::Syncing(..), Ok(_)) => self.done(cx),
            (Step::Syncing(..), Err(error)) if is_never_synced(error) => self.done(cx),
            (step, Err(error)) => {
                self.release(cx);
                cx.fail(match step {
                    Step::Opening(_) => not_opened(error),
                    Step::Syncing(..) => not_durable(error),
                    Step::Making(..) if error == Error::Exists => {
                        refusal(405, "there is something of that name already")
                    }
                    Step::Making(..) if error == Error::NotDirectory => NO_PARENT,
                    Step::Making(..) | Step::Finding => status(error),
                })
            }
            (step, Ok(reply)) => unreachable!("{reply:?} in {step:?}"),
        }
    }

    fn abort(self: Box<Self>, cx: &mut Context) -> usize {
        self.release(cx);
        cx.cancel(CALL, true)
    }
}

/// Response to a change in a directory that does not exist.
pub(super) const NO_PARENT: wire::http::Refusal =
    refusal(409, "the directory does not exist; make it first");
