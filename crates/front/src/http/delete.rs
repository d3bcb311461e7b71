//! `DELETE`: resolve the directory, open it, look up the file (with conditions), remove it, and
//! flush the directory, which is opened first so that nothing is removed if it cannot be read.
//! Exactly the version that was evaluated is removed: if it has changed meanwhile, the conditions
//! are evaluated again.

use super::answer::{Head, etag, is_never_synced, not_durable, not_opened, status};
use super::put::{UNEXPECTED, is_missing};
use super::{Session, State};
use crate::Output;
use base::op::Replacement;
use base::{Access, Buf, Error, Expected, Instant, Kind, Name, Stat};
use tree::{Ask, NodeId, OpenId, Reply};
use wire::http::{Method, Request, Verdict, refusal};

/// A removal.
#[derive(Debug)]
pub(super) struct Delete {
    request: Box<Request>,
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
    fn release(self, out: &mut Vec<Output>) {
        out.extend([Output::Close(self.open), Output::Release(self.node)]);
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
    fn release(self, out: &mut Vec<Output>) {
        match self {
            Step::Finding => {}
            Step::Opening(dir) => out.push(Output::Release(dir)),
            Step::Looking(dir) | Step::Removing(dir) | Step::Syncing(dir) => dir.release(out),
            Step::Measuring(dir, node) => {
                out.push(Output::Release(node));
                dir.release(out);
            }
        }
    }
}

impl Delete {
    /// Releases its resources; returns the number of outstanding replies.
    pub(super) fn forget(self, out: &mut Vec<Output>) -> usize {
        self.step.release(out);
        1
    }

    fn at(self, step: Step) -> State {
        State::Deleting(Delete { step, ..self })
    }

    fn name(&self) -> Option<Name> {
        self.request.target.path.last().cloned()
    }
}

impl Session {
    pub(super) fn delete(&mut self, request: Request, out: &mut Vec<Output>) -> State {
        assert_eq!(request.method, Method::Delete, "no other method removes a file");
        let mut names = request.target.path.clone();
        names.pop();
        self.ask(Ask::Walk { from: self.export.root, names }, out);
        State::Deleting(Delete { request: Box::new(request), step: Step::Finding })
    }

    pub(super) fn delete_answered(
        &mut self,
        now: Instant,
        delete: Delete,
        reply: Result<Reply, Error>,
        out: &mut Vec<Output>,
    ) -> State {
        match (delete.step, reply) {
            (Step::Finding, Ok(Reply::Walked(stats, Some(dir)))) => {
                if stats.last().is_some_and(|stat| stat.kind != Kind::Directory) {
                    out.push(Output::Release(dir));
                    return self.fail(now, status(Error::NotDirectory), out);
                }
                if delete.name().is_none() {
                    out.push(Output::Release(dir));
                    return self.fail(now, refusal(403, "the root cannot be removed"), out);
                }
                self.ask(Ask::Open { node: dir, access: Access::READ }, out);
                delete.at(Step::Opening(dir))
            }
            (Step::Finding, Ok(_)) => self.fail(now, status(Error::NotFound), out),
            (Step::Opening(node), Ok(Reply::Opened(open, _))) => {
                self.delete_begin(delete, Dir { node, open }, out)
            }
            (Step::Looking(dir), Ok(Reply::Walked(_, Some(node)))) => {
                self.ask(Ask::Stat { node }, out);
                delete.at(Step::Measuring(dir, node))
            }
            (Step::Looking(dir), Ok(_)) => self.delete_judged(now, delete, dir, None, out),
            (Step::Measuring(dir, node), Ok(Reply::Stat(stat))) => {
                out.push(Output::Release(node));
                self.delete_judged(now, delete, dir, Some(&stat), out)
            }
            (Step::Removing(dir), Ok(Reply::Unexpected(present))) => {
                self.delete_judged(now, delete, dir, present.as_ref(), out)
            }
            (Step::Removing(dir), Ok(_)) => {
                self.ask(Ask::Sync { open: dir.open, data_only: false }, out);
                delete.at(Step::Syncing(dir))
            }
            (Step::Syncing(dir), Ok(_)) => self.delete_done(now, dir, out),
            (step, Err(error)) => self.delete_failed(now, delete, step, error, out),
            (step, Ok(other)) => unreachable!("{other:?} in {step:?}"),
        }
    }

    /// Responds after the removal.
    fn delete_done(&mut self, now: Instant, dir: Dir, out: &mut Vec<Output>) -> State {
        dir.release(out);
        let head = self.end(now, Head::new(204));
        self.say(Buf::from(head), out);
        self.done(now, out)
    }

    /// Starts the removal in the open directory.
    fn delete_begin(&mut self, delete: Delete, dir: Dir, out: &mut Vec<Output>) -> State {
        let name = delete.name().expect("the root was refused");
        if delete.request.conditions.is_empty() {
            self.ask(Ask::Remove { dir: dir.node, name, directory: None }, out);
            return delete.at(Step::Removing(dir));
        }
        self.ask(Ask::Walk { from: dir.node, names: vec![name] }, out);
        delete.at(Step::Looking(dir))
    }

    /// Removes the file with these attributes, if it satisfies the conditions.
    fn delete_judged(
        &mut self,
        now: Instant,
        delete: Delete,
        dir: Dir,
        present: Option<&Stat>,
        out: &mut Vec<Output>,
    ) -> State {
        let tag = present.map(etag);
        let facts = tag.as_deref().zip(present.map(|stat| stat.modified));
        let request = &delete.request;
        let verdict = request.conditions.judge(request.method, facts);
        let ask = match (verdict, present, delete.name()) {
            (Verdict::Go, Some(stat), Some(name)) if stat.kind == Kind::File => {
                let (by, expected) = (Replacement::Nothing, Expected::Version(stat.file_version()));
                Ask::Replace { dir: dir.node, name, by, expected }
            }
            // Only files have versions: no condition can be ensured for anything else.
            (Verdict::Go, Some(_), Some(name)) if request.conditions.is_empty() => {
                Ask::Remove { dir: dir.node, name, directory: None }
            }
            (Verdict::Go, Some(_), Some(_)) => {
                dir.release(out);
                return self.fail(now, UNEXPECTED, out);
            }
            (Verdict::Go, _, _) => {
                dir.release(out);
                return self.fail(now, status(Error::NotFound), out);
            }
            (Verdict::NotModified | Verdict::Failed, _, _) => {
                dir.release(out);
                return self.fail(now, UNEXPECTED, out);
            }
        };
        self.ask(ask, out);
        delete.at(Step::Removing(dir))
    }

    fn delete_failed(
        &mut self,
        now: Instant,
        delete: Delete,
        step: Step,
        error: Error,
        out: &mut Vec<Output>,
    ) -> State {
        match step {
            Step::Looking(dir) if is_missing(error) => {
                return self.delete_judged(now, delete, dir, None, out);
            }
            Step::Measuring(dir, node) if is_missing(error) => {
                out.push(Output::Release(node));
                return self.delete_judged(now, delete, dir, None, out);
            }
            Step::Syncing(dir) if is_never_synced(error) => return self.delete_done(now, dir, out),
            Step::Syncing(dir) => {
                dir.release(out);
                return self.fail(now, not_durable(error), out);
            }
            Step::Opening(dir) => {
                out.push(Output::Release(dir));
                return self.fail(now, not_opened(error), out);
            }
            Step::Finding | Step::Looking(_) | Step::Measuring(..) | Step::Removing(_) => {
                step.release(out)
            }
        }
        self.fail(now, status(error), out)
    }
}
