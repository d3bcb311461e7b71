//! `PROPPATCH`: all changes are made, or none.

use super::super::answer::{etag, is_never_synced, not_durable, status};
use super::super::exchange::{Context, Exchange, Stay};
use super::super::{CALL, State};
use super::properties::{ATTRIBUTE, Plan, encode, in_reply, plan};
use super::propfind::href;
use crate::CallId;
use base::{Access, Error, SetStat, Stat};
use tree::{Ask, NodeId, OpenId, Reply};
use wire::dav::{CLOSING, Change, OPENING, write_property, write_propstat, write_response};
use wire::http::{Refusal, Request, Verdict, refusal};

/// Response if changes would lose the other properties.
const UNREADABLE: Refusal = refusal(
    500,
    "the stored properties cannot be read; look at the extended attribute user.upcall.dav",
);

/// A change of properties.
#[derive(Debug)]
pub(super) struct Proppatch {
    request: Request,
    changes: Vec<Change>,
    step: Step,
}

/// State of a `PROPPATCH`.
#[derive(Debug)]
enum Step {
    /// Waiting for the file.
    Finding,
    /// Waiting for its attributes.
    Measuring(NodeId),
    /// Waiting for its dead properties.
    Reading(NodeId, Stat),
    /// Waiting for the open of the file, which is for the flush.
    Opening(NodeId, Stat, Plan),
    /// Waiting for the permissions to be set.
    Permitting(NodeId, Stat, OpenId, Plan),
    /// Waiting for the dead properties to be set.
    Setting(NodeId, Stat, OpenId, Plan),
    /// Waiting for the permissions of before, as the properties could not be set: with this status.
    Restoring(NodeId, Stat, OpenId, u16),
    /// Waiting for the changes to be durable.
    Syncing(NodeId, Stat, OpenId),
}

impl Proppatch {
    pub(super) fn begin(cx: &mut Context, request: Request, changes: Vec<Change>) -> State {
        let names = request.target.path.clone();
        cx.ask(Ask::Walk { from: cx.session.export.root, names });
        Box::new(Proppatch { request, changes, step: Step::Finding }).stay()
    }

    fn at(mut self: Box<Self>, step: Step) -> State {
        self.step = step;
        self.stay()
    }

    /// Plans the changes of a file with these dead properties.
    fn read(
        self: Box<Self>,
        cx: &mut Context,
        (node, stat): (NodeId, Stat),
        reply: Result<Reply, Error>,
    ) -> State {
        let facts = etag(&stat);
        let facts = Some((&*facts, stat.modified));
        if self.request.conditions.judge(self.request.method, facts) == Verdict::Failed {
            cx.release(node);
            return cx.fail(super::super::put::UNEXPECTED);
        }
        let planned = match in_reply(reply) {
            Ok(dead) => plan(&self.changes, &stat, dead),
            Err(Error::Io) => {
                cx.release(node);
                return cx.fail(UNREADABLE);
            }
            Err(error) => {
                cx.release(node);
                return cx.fail(status(error));
            }
        };
        match planned {
            Ok(plan) => match encode(&plan.dead) {
                Some(value) => {
                    cx.ask(Ask::Open { node, access: Access::READ });
                    self.at(Step::Opening(node, stat, Plan { value, ..plan }))
                }
                None => {
                    cx.release(node);
                    self.respond(cx, &stat, 507, |_| true)
                }
            },
            Err(refused) => {
                cx.release(node);
                self.respond(cx, &stat, 403, |at| refused.contains(&at))
            }
        }
    }

    /// Sets the permissions, which more often fails than the rest.
    fn permit(
        self: Box<Self>,
        cx: &mut Context,
        (node, stat): (NodeId, Stat),
        open: OpenId,
        plan: Plan,
    ) -> State {
        let Some(mode) = plan.mode else { return self.set(cx, (node, stat), open, plan) };
        let set = SetStat { mode: Some(mode), ..SetStat::default() };
        cx.ask(Ask::SetStat { node, open: None, set });
        self.at(Step::Permitting(node, stat, open, plan))
    }

    /// Sets the dead properties.
    fn set(
        self: Box<Self>,
        cx: &mut Context,
        (node, stat): (NodeId, Stat),
        open: OpenId,
        plan: Plan,
    ) -> State {
        if !plan.changes_dead {
            return self.sync(cx, (node, stat), open);
        }
        let name = ATTRIBUTE.to_vec();
        cx.ask(match plan.dead.is_empty() {
            true => Ask::RemoveAttr { node, name },
            false => Ask::SetAttr { node, name, value: plan.value.clone(), create: None },
        });
        self.at(Step::Setting(node, stat, open, plan))
    }

    fn sync(self: Box<Self>, cx: &mut Context, at: (NodeId, Stat), open: OpenId) -> State {
        cx.ask(Ask::Sync { open, data_only: false });
        self.at(Step::Syncing(at.0, at.1, open))
    }

    /// Handles the failure to set the dead properties: the permissions become those of before.
    fn not_set(
        mut self: Box<Self>,
        cx: &mut Context,
        (node, stat): (NodeId, Stat),
        open: OpenId,
        (plan, error): (Plan, Error),
    ) -> State {
        // The file or its file system cannot have these properties.
        let status = if error == Error::Unsupported { 403 } else { status(error).status };
        if plan.mode.is_some() {
            let set = SetStat { mode: Some(stat.mode), ..SetStat::default() };
            cx.ask(Ask::SetStat { node, open: None, set });
            return self.at(Step::Restoring(node, stat, open, status));
        }
        self.step = Step::Restoring(node, stat, open, status);
        self.not_changed(cx)
    }

    /// Responds that nothing was changed.
    fn not_changed(self: Box<Self>, cx: &mut Context) -> State {
        self.release(cx);
        let Step::Restoring(_, stat, _, status) = &self.step else {
            unreachable!("{:?} has changed something", self.step)
        };
        self.respond(cx, stat, *status, |_| true)
    }

    fn done(self: Box<Self>, cx: &mut Context) -> State {
        let Step::Syncing(node, stat, open) = &self.step else {
            unreachable!("changes become durable at the end: {:?}", self.step)
        };
        cx.close(*open);
        cx.release(*node);
        let stat = stat.clone();
        self.respond(cx, &stat, 200, |_| true)
    }

    /// Responds: the changes for which `is_told` holds have this status, the others failed because
    /// of them.
    fn respond(
        &self,
        cx: &mut Context,
        stat: &Stat,
        status: u16,
        is_reported: impl Fn(usize) -> bool,
    ) -> State {
        let (mut reported, mut others) = (String::new(), String::new());
        for (at, change) in self.changes.iter().enumerate() {
            let part = if is_reported(at) { &mut reported } else { &mut others };
            write_property(change.name(), None, "", part);
        }
        let (mut content, mut text) = (String::new(), OPENING.to_string());
        write_propstat(&reported, status, &mut content);
        write_propstat(&others, 424, &mut content);
        write_response(&href(&self.request.target.path, stat.kind), &content, &mut text);
        text.push_str(CLOSING);
        cx.respond_xml(207, &text)
    }

    /// Releases the node and the open file of this step.
    fn release(&self, cx: &mut Context) {
        match &self.step {
            Step::Finding => {}
            Step::Measuring(node) | Step::Reading(node, _) | Step::Opening(node, ..) => {
                cx.release(*node);
            }
            Step::Setting(node, _, open, _)
            | Step::Permitting(node, _, open, _)
            | Step::Restoring(node, _, open, _)
            | Step::Syncing(node, _, open) => {
                cx.close(*open);
                cx.release(*node);
            }
        }
    }

    fn failed(self: Box<Self>, cx: &mut Context, error: Error) -> State {
        self.release(cx);
        match &self.step {
            Step::Permitting(_, stat, ..) => self.respond(cx, stat, status(error).status, |_| true),
            Step::Syncing(..) => cx.fail(not_durable(error)),
            Step::Finding
            | Step::Measuring(_)
            | Step::Reading(..)
            | Step::Opening(..)
            | Step::Setting(..)
            | Step::Restoring(..) => cx.fail(status(error)),
        }
    }
}

impl Exchange for Proppatch {
    fn name(&self) -> &'static str {
        "patching"
    }

    fn answered(
        mut self: Box<Self>,
        cx: &mut Context,
        _call: CallId,
        reply: Result<Reply, Error>,
    ) -> State {
        match (std::mem::replace(&mut self.step, Step::Finding), reply) {
            (Step::Finding, Ok(Reply::Walked(_, Some(node)))) => {
                cx.ask(Ask::Stat { node });
                self.at(Step::Measuring(node))
            }
            (Step::Finding, Ok(_)) => cx.fail(status(Error::NotFound)),
            (Step::Measuring(node), Ok(Reply::Stat(stat))) => {
                cx.ask(Ask::GetAttr { node, name: ATTRIBUTE.to_vec() });
                self.at(Step::Reading(node, stat))
            }
            (Step::Reading(node, stat), reply) => self.read(cx, (node, stat), reply),
            (Step::Opening(node, stat, plan), Ok(Reply::Opened(open, _))) => {
                self.permit(cx, (node, stat), open, plan)
            }
            (Step::Permitting(node, stat, open, plan), Ok(_)) => {
                self.set(cx, (node, stat), open, plan)
            }
            // Without the attribute, somebody else has removed it.
            (Step::Setting(node, stat, open, _), Ok(_) | Err(Error::NoAttribute)) => {
                self.sync(cx, (node, stat), open)
            }
            (Step::Setting(node, stat, open, plan), Err(error)) => {
                self.not_set(cx, (node, stat), open, (plan, error))
            }
            (step @ Step::Restoring(..), _) => {
                self.step = step;
                self.not_changed(cx)
            }
            (step @ Step::Syncing(..), Ok(_)) => {
                self.step = step;
                self.done(cx)
            }
            (step @ Step::Syncing(..), Err(error)) if is_never_synced(error) => {
                self.step = step;
                self.done(cx)
            }
            (step, Err(error)) => {
                self.step = step;
                self.failed(cx, error)
            }
            (step, Ok(reply)) => unreachable!("{reply:?} in {step:?}"),
        }
    }

    fn abort(self: Box<Self>, cx: &mut Context) -> usize {
        self.release(cx);
        cx.cancel(CALL, true)
    }
}
