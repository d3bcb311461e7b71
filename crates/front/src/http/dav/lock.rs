//! `LOCK` and `UNLOCK`. A name without a file gets an empty file (RFC 4918 §9.10.4).

use super::super::answer::{Head, status};
use super::super::exchange::{Context, Exchange, Stay};
use super::super::put::is_missing;
use super::super::{CALL, DISCARDED, State};
use super::make::NO_PARENT;
use super::permit::tokens;
use super::propfind::href;
use crate::CallId;
use crate::webdav::{
    self, Entry, NewLock, Path, Reply as LockReply, Request as LockRequest, Target,
};
use base::{Access, Error, Instant, Kind, Name};
use sha2::{Digest as _, Sha256};
use std::sync::Arc;
use tree::{Ask, NodeId, Reply};
use wire::dav::{LockScope, PropertyName, write_lock, write_property};
use wire::http::{Depth, Refusal, Request, refusal};

/// Permissions of a new file.
const MODE: u32 = 0o644;

/// A `LOCK`, or an `UNLOCK`.
#[derive(Debug)]
pub(super) struct Lock {
    request: Request,
    step: Step,
}

/// State of a request about a lock.
#[derive(Debug)]
enum Step {
    /// Waiting for a new lock.
    Locking,
    /// Waiting for a lock to be refreshed.
    Refreshing,
    /// Waiting for a lock to be removed.
    Unlocking,
    /// Waiting for the file, with its new lock.
    Looking(Box<webdav::Lock>),
    /// Waiting until the entry of a new file is permitted.
    Permitting(Box<webdav::Lock>),
    /// Waiting for the directory of a new file.
    Finding(Box<webdav::Lock>),
    /// Waiting for a new file in this directory.
    Creating(Box<webdav::Lock>, NodeId),
    /// Waiting for the removal of the new lock, as there is no file; then this is the response.
    GivingUp(Refusal),
}

impl Lock {
    /// Begins a `LOCK`: a new one, or the refresh of one.
    pub(super) fn begin(cx: &mut Context, request: Request, scope: Option<LockScope>) -> State {
        let path = request.target.path.clone();
        let dav = request.dav.as_ref().expect("a method of WebDAV");
        let time = dav.timeout;
        let is_deep = match dav.depth {
            None | Some(Depth::Infinity) => true,
            Some(Depth::Zero) => false,
            Some(Depth::One) => return cx.fail(refusal(400, "Depth is 0 or infinity here")),
        };
        let Some(scope) = scope else {
            let tokens = tokens(&request).into_iter().map(|(_, token)| token).collect();
            cx.ask_locks(LockRequest::Refresh(path, tokens, time));
            return Box::new(Lock { request, step: Step::Refreshing }).stay();
        };
        let (token, caller) = (next_token(cx), cx.session.caller.clone());
        let new = NewLock { path, is_deep, scope, token, time, caller };
        cx.ask_locks(LockRequest::Lock(Box::new(new)));
        Box::new(Lock { request, step: Step::Locking }).stay()
    }

    /// Begins an `UNLOCK`.
    pub(super) fn begin_unlock(cx: &mut Context, request: Request) -> State {
        let token = request.dav.as_ref().and_then(|dav| dav.lock_token.clone());
        let Some(token) = token else {
            return cx.fail(refusal(400, "the Lock-Token field is missing"));
        };
        cx.ask_locks(LockRequest::Unlock(request.target.path.clone(), token));
        Box::new(Lock { request, step: Step::Unlocking }).stay()
    }

    fn at(mut self: Box<Self>, step: Step) -> State {
        self.step = step;
        self.stay()
    }

    /// Waits for the file.
    fn look(self: Box<Self>, cx: &mut Context, lock: Box<webdav::Lock>) -> State {
        cx.ask(Ask::Walk { from: cx.session.export.root, names: lock.path.clone() });
        self.at(Step::Looking(lock))
    }

    /// Creates the file, if its entry is permitted: with the new token, and the submitted ones.
    fn missing(self: Box<Self>, cx: &mut Context, lock: Box<webdav::Lock>) -> State {
        let path = lock.path.clone();
        if path.is_empty() {
            return self.give_up(cx, *lock, status(Error::NotFound));
        }
        let mut tokens = tokens(&self.request);
        tokens.push((Arc::new(path.clone()), lock.token.clone()));
        let target = Target { path, is_deep: false, entry: Entry::Changed };
        cx.ask_locks(LockRequest::Begin(vec![target], tokens));
        self.at(Step::Permitting(lock))
    }

    fn create(self: Box<Self>, cx: &mut Context, lock: Box<webdav::Lock>) -> State {
        let mut names = lock.path.clone();
        names.pop();
        cx.ask(Ask::Walk { from: cx.session.export.root, names });
        self.at(Step::Finding(lock))
    }

    /// Removes the new lock, and responds with a failure.
    fn give_up(self: Box<Self>, cx: &mut Context, lock: webdav::Lock, refusal: Refusal) -> State {
        cx.ask_locks(LockRequest::Unlock(lock.path, lock.token));
        self.at(Step::GivingUp(refusal))
    }

    /// Handles the failure of a new file.
    fn not_created(
        self: Box<Self>,
        cx: &mut Context,
        (lock, dir): (Box<webdav::Lock>, NodeId),
        error: Error,
    ) -> State {
        cx.release(dir);
        // Somebody else has created it.
        if error == Error::Exists {
            return granted(cx, &lock, 200, true);
        }
        self.give_up(cx, *lock, status(error))
    }
}

/// Responds with a lock: a new one with its token.
fn granted(cx: &mut Context, lock: &webdav::Lock, status: u16, is_new: bool) -> State {
    let mut text =
        "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<D:prop xmlns:D=\"DAV:\">".to_string();
    let value = describe_lock(lock, cx.now);
    write_property(&PropertyName::dav("lockdiscovery"), None, &value, &mut text);
    text.push_str("</D:prop>\n");
    let mut head = Head::new(status)
        .field("Content-Type", "application/xml; charset=utf-8")
        .field("Content-Length", text.len());
    if is_new {
        head = head.field("Lock-Token", format_args!("<{}>", lock.token));
    }
    cx.send_head(head, text.as_bytes());
    cx.done()
}

/// Returns a lock as a part of the property `lockdiscovery`.
pub(super) fn describe_lock(lock: &webdav::Lock, now: Instant) -> String {
    let mut text = String::new();
    let root = href(&lock.path, Kind::File);
    let seconds = webdav::seconds(lock, now);
    write_lock(&lock.scope, (lock.is_deep, seconds), (&lock.token, &root), &mut text);
    text
}

/// Returns a token like no other one of any server: a UUID (RFC 9562 §5.8). Tokens are no secrets:
/// `lockdiscovery` has them.
fn next_token(cx: &mut Context) -> String {
    cx.session.temporaries += 1;
    let start = cx.session.export.wall;
    let mut hash = Sha256::new();
    for number in [start.secs.cast_unsigned(), start.nanos.into(), cx.session.number] {
        hash.update(number.to_le_bytes());
    }
    hash.update(cx.session.export.nfs.key);
    hash.update(cx.session.temporaries.to_le_bytes());
    let hash = hash.finalize();
    let hex: String = hash[..16].iter().map(|byte| format!("{byte:02x}")).collect();
    format!(
        "urn:uuid:{}-{}-8{}-8{}-{}",
        &hex[..8],
        &hex[8..12],
        &hex[13..16],
        &hex[17..20],
        &hex[20..]
    )
}

impl Exchange for Lock {
    fn name(&self) -> &'static str {
        "locking"
    }

    fn answered(
        mut self: Box<Self>,
        cx: &mut Context,
        _call: CallId,
        reply: Result<Reply, Error>,
    ) -> State {
        match (std::mem::replace(&mut self.step, Step::Locking), reply) {
            (Step::Looking(lock), Ok(Reply::Walked(_, Some(node)))) => {
                cx.release(node);
                granted(cx, &lock, 200, true)
            }
            (Step::Looking(lock), Err(error)) if !is_missing(error) => {
                self.give_up(cx, *lock, status(error))
            }
            (Step::Looking(lock), _) => self.missing(cx, lock),
            (Step::Finding(lock), Ok(Reply::Walked(_, Some(dir)))) => {
                let name: Name = lock.path.last().expect("the root exists").clone();
                let access = Access { write: true, ..Access::default() };
                cx.ask(Ask::Create { dir, name, access, exclusive: true, mode: MODE, gid: None });
                self.at(Step::Creating(lock, dir))
            }
            (Step::Finding(lock), Err(error)) if !is_missing(error) => {
                self.give_up(cx, *lock, status(error))
            }
            (Step::Finding(lock), _) => self.give_up(cx, *lock, NO_PARENT),
            (Step::Creating(lock, dir), Ok(Reply::Created(node, open, _))) => {
                cx.close(open);
                cx.release(node);
                cx.release(dir);
                granted(cx, &lock, 201, true)
            }
            (Step::Creating(lock, dir), Err(error)) => self.not_created(cx, (lock, dir), error),
            (step, reply) => unreachable!("{reply:?} in {step:?}"),
        }
    }

    fn locks_answered(mut self: Box<Self>, cx: &mut Context, reply: LockReply) -> State {
        match (std::mem::replace(&mut self.step, Step::Locking), reply) {
            (Step::Locking, LockReply::Granted(lock)) => self.look(cx, lock),
            (Step::Locking, LockReply::Locked(path)) => {
                let href = href(&path, Kind::File);
                let condition = format!(
                    "<D:no-conflicting-lock><D:href>{href}</D:href></D:no-conflicting-lock>"
                );
                cx.fail_with(423, &condition)
            }
            (Step::Locking, LockReply::Full) => {
                cx.fail(refusal(507, "there are too many locks, or the path is too long for one"))
            }
            (Step::Refreshing, LockReply::Granted(lock)) => granted(cx, &lock, 200, false),
            (Step::Refreshing, LockReply::Missing) => {
                cx.fail_with(412, "<D:lock-token-matches-request-uri/>")
            }
            (Step::Unlocking, LockReply::Done) => cx.respond(Head::new(204)),
            (Step::Unlocking, LockReply::Missing) => {
                cx.fail_with(409, "<D:lock-token-matches-request-uri/>")
            }
            (Step::Permitting(lock), LockReply::Begun(begun)) => {
                cx.session.change = Some(begun);
                self.create(cx, lock)
            }
            (Step::Permitting(lock), LockReply::Refused(..) | LockReply::Busy) => {
                self.give_up(cx, *lock, refusal(423, "the directory is locked"))
            }
            (Step::GivingUp(refusal), LockReply::Done | LockReply::Missing) => cx.fail(refusal),
            (step, reply) => unreachable!("{reply:?} in {step:?}"),
        }
    }

    /// A granted lock ends with its timeout: the client may not know its token.
    fn abort(self: Box<Self>, cx: &mut Context) -> usize {
        let forget = |cx: &mut Context, lock: &webdav::Lock| {
            cx.ask_locks(LockRequest::Unlock(lock.path.clone(), lock.token.clone()));
            DISCARDED
        };
        match &self.step {
            Step::Locking | Step::Refreshing | Step::Unlocking | Step::GivingUp(_) => DISCARDED,
            Step::Permitting(lock) => DISCARDED + forget(cx, lock),
            Step::Looking(lock) | Step::Finding(lock) => cx.cancel(CALL, true) + forget(cx, lock),
            Step::Creating(lock, dir) => {
                cx.release(*dir);
                cx.cancel(CALL, true) + forget(cx, lock)
            }
        }
    }
}

/// Returns whether a lock covers the resource of a path.
pub(super) fn covers(lock: &webdav::Lock, path: &Path) -> bool {
    lock.path == *path || (lock.is_deep && path.starts_with(&lock.path))
}
