//! `DELETE`: look (if there are conditions), find the directory, remove.

use super::answer::{Head, status};
use super::{Session, State};
use crate::Output;
use base::{Buf, Error, Instant};
use tree::{Ask, NodeId, Reply};
use wire::http::{Request, Verdict, refusal};

/// What a `DELETE` waits for.
#[derive(Debug)]
pub(super) enum Delete {
    /// For the file, to judge the conditions.
    Looking(Box<Request>),
    /// For its directory.
    Finding(Box<Request>),
    /// For its removal from this directory.
    Removing(NodeId),
}

impl Delete {
    /// Gives back what it holds; how many answers are to come.
    pub(super) fn forget(self, out: &mut Vec<Output>) -> usize {
        match self {
            Delete::Looking(_) | Delete::Finding(_) => {}
            Delete::Removing(dir) => out.push(Output::Release(dir)),
        }
        1
    }
}

impl Session {
    pub(super) fn delete(&mut self, request: Request, out: &mut Vec<Output>) -> State {
        if request.conditions.is_empty() {
            return self.find_dir(request, out);
        }
        let path = request.target.path.clone();
        self.ask(Ask::Fetch { root: None, path, read_max: 0, headroom: 0 }, out);
        State::Deleting(Delete::Looking(Box::new(request)))
    }

    fn find_dir(&mut self, request: Request, out: &mut Vec<Output>) -> State {
        let mut names = request.target.path.clone();
        names.pop();
        self.ask(Ask::Walk { from: self.export.root, names }, out);
        State::Deleting(Delete::Finding(Box::new(request)))
    }

    pub(super) fn delete_answered(
        &mut self,
        now: Instant,
        delete: Delete,
        reply: Result<Reply, Error>,
        out: &mut Vec<Output>,
    ) -> State {
        match (delete, reply) {
            (Delete::Looking(request), Ok(Reply::Fetched(stat, _, open))) => {
                out.extend(open.map(Output::Close));
                match self.verdict(&request, &stat) {
                    Verdict::Go => self.find_dir(*request, out),
                    Verdict::NotModified | Verdict::Failed => {
                        let reason = "the file is not the one that was expected";
                        self.fail(now, refusal(412, reason), out)
                    }
                }
            }
            (Delete::Finding(request), Ok(Reply::Walked(_, Some(dir)))) => {
                let Some(name) = request.target.path.last().cloned() else {
                    out.push(Output::Release(dir));
                    return self.fail(now, refusal(403, "the root cannot be removed"), out);
                };
                self.ask(Ask::Remove { dir, name, directory: None }, out);
                State::Deleting(Delete::Removing(dir))
            }
            (Delete::Finding(_), Ok(_)) => self.fail(now, status(Error::NotFound), out),
            (Delete::Removing(dir), Ok(_)) => {
                out.push(Output::Release(dir));
                let head = self.end(now, Head::new(204));
                self.say(Buf::from(head), out);
                self.done(now, out)
            }
            (Delete::Removing(dir), Err(error)) => {
                out.push(Output::Release(dir));
                self.fail(now, status(error), out)
            }
            (Delete::Looking(_) | Delete::Finding(_), Err(error)) => {
                self.fail(now, status(error), out)
            }
            (Delete::Looking(_), Ok(other)) => unreachable!("{other:?} answers no fetch"),
        }
    }
}
