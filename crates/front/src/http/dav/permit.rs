//! The beginning of a change: it is registered with the locks, which refuse it if a lock of others
//! is in the way, and tell which submitted tokens are valid. Then the tokens in `If` are known, and
//! what remains of it is a condition on entity tags.

use super::super::exchange::{Context, Exchange, Stay};
use super::super::put::UNEXPECTED;
use super::super::{DISCARDED, State};
use super::propfind::href;
use crate::webdav::{Begun, Entry, Path, Reply as LockReply, Request as LockRequest, Target};
use crate::{CallId, Output};
use base::{Error, Kind};
use std::sync::Arc;
use tree::Reply;
use wire::http::{Method, Refusal, Request, ResourceState, StateList, refusal};

const BUSY: Refusal = refusal(
    409,
    "another request removes or moves it, or something in it; repeat the request later",
);

/// A change that waits for the locks.
#[derive(Debug)]
pub(super) struct Permit {
    request: Request,
}

impl Context<'_> {
    /// Begins a change, when the locks permit it.
    pub(in super::super) fn begin_change(&mut self, request: Request) -> State {
        let (targets, tokens) = (targets(&request), tokens(&request));
        self.ask_locks(LockRequest::Begin(targets, tokens));
        Box::new(Permit { request }).stay()
    }

    /// Sends a request to the locks.
    pub(in super::super) fn ask_locks(&mut self, request: LockRequest) {
        self.out.push(Output::Locks(self.session.caller.clone(), request));
    }

    /// Ends the registered change, if there is one.
    pub(in super::super) fn end_change(&mut self) {
        if let Some(begun) = self.session.change.take() {
            self.ask_locks(LockRequest::End(begun.number));
        }
    }

    /// Responds that a resource is locked (RFC 4918 §11.3).
    pub(in super::super) fn refuse_locked(&mut self, path: &Path) -> State {
        let href = href(path, Kind::File);
        // The body of an upload follows.
        self.session.last = true;
        let condition =
            format!("<D:lock-token-submitted><D:href>{href}</D:href></D:lock-token-submitted>");
        self.fail_with(423, &condition)
    }
}

/// Returns the resources that a request changes.
fn targets(request: &Request) -> Vec<Target> {
    let target = |path: &Path, is_deep, entry| Target { path: path.clone(), is_deep, entry };
    let (own, dav) = (&request.target.path, request.dav.as_ref());
    let destination = dav.and_then(|dav| dav.destination.as_ref());
    let destination = destination.map(|it| target(&it.target.path, true, Entry::Changed));
    let method = request.method;
    if method == Method::Copy {
        return destination.into_iter().collect();
    }
    // Whether an upload adds an entry is known later.
    let is_deep = matches!(method, Method::Delete | Method::Move);
    let entry = match method {
        Method::Put => Entry::PerhapsCreated,
        Method::Delete => Entry::Removed,
        Method::Move => Entry::Moved,
        Method::Mkcol => Entry::Changed,
        Method::Get
        | Method::Head
        | Method::Post
        | Method::Options
        | Method::Propfind
        | Method::Proppatch
        | Method::Copy
        | Method::Lock
        | Method::Unlock => Entry::Kept,
    };
    [target(own, is_deep, entry)].into_iter().chain(destination).collect()
}

/// Returns the submitted tokens in their order, each with its resource.
pub(super) fn tokens(request: &Request) -> Vec<(Arc<Path>, String)> {
    let own = Arc::new(request.target.path.clone());
    let lists = request.dav.iter().flat_map(|dav| &dav.states);
    let of_list = |list: &StateList| {
        let path = Arc::clone(list.path.as_ref().unwrap_or(&own));
        let tokens = list.conditions.iter().filter_map(|condition| match &condition.state {
            ResourceState::Token(token) => Some(token.clone()),
            ResourceState::Tag(_) => None,
        });
        tokens.map(move |token| (Arc::clone(&path), token)).collect::<Vec<_>>()
    };
    lists.flat_map(of_list).collect()
}

/// Returns the lists of `If` that can still hold, given which tokens are valid: the entity tags in
/// them, each with whether it must not be the tag. Those of other resources are not known.
fn remaining(request: &Request, valid: &[bool]) -> Vec<Vec<(bool, String)>> {
    let mut valid = valid.iter();
    let mut lists = Vec::new();
    for list in request.dav.iter().flat_map(|dav| &dav.states) {
        let is_own = list.path.as_ref().is_none_or(|path| **path == request.target.path);
        let (mut holds, mut tags) = (true, Vec::new());
        for condition in &list.conditions {
            match &condition.state {
                ResourceState::Token(_) => {
                    holds &= valid.next() != Some(&condition.is_not);
                }
                ResourceState::Tag(tag) => {
                    holds &= is_own;
                    tags.push((condition.is_not, tag.clone()));
                }
            }
        }
        lists.extend(holds.then_some(tags));
    }
    lists
}

impl Permit {
    /// Begins the change, if `If` can hold.
    fn begun(mut self: Box<Self>, cx: &mut Context, begun: Begun) -> State {
        let can_hold = self.judge(&begun.valid);
        cx.session.change = Some(begun);
        match can_hold {
            true => cx.begin_permitted(self.request),
            false => cx.refuse(UNEXPECTED),
        }
    }

    /// Adds what remains of `If` to the conditions; returns whether it can hold.
    fn judge(&mut self, valid: &[bool]) -> bool {
        let has_states = self.request.dav.as_ref().is_some_and(|dav| !dav.states.is_empty());
        if !has_states {
            return true;
        }
        let lists = remaining(&self.request, valid);
        let can_hold = !lists.is_empty();
        if lists.iter().all(|list| !list.is_empty()) {
            self.request.conditions.require_one_of(lists);
        }
        can_hold
    }
}

impl Exchange for Permit {
    fn name(&self) -> &'static str {
        "permitting"
    }

    fn answered(
        self: Box<Self>,
        _cx: &mut Context,
        _call: CallId,
        reply: Result<Reply, Error>,
    ) -> State {
        unreachable!("{reply:?} without a call")
    }

    fn locks_answered(mut self: Box<Self>, cx: &mut Context, reply: LockReply) -> State {
        match reply {
            LockReply::Begun(begun) => self.begun(cx, begun),
            LockReply::Refused(path, valid) if self.judge(&valid) => cx.refuse_locked(&path),
            LockReply::Refused(..) => cx.refuse(UNEXPECTED),
            LockReply::Busy => cx.refuse(BUSY),
            LockReply::Locked(_)
            | LockReply::Granted(_)
            | LockReply::Missing
            | LockReply::Full
            | LockReply::Done
            | LockReply::Found(_) => unreachable!("{reply:?} of a change"),
        }
    }

    fn abort(self: Box<Self>, _cx: &mut Context) -> usize {
        DISCARDED
    }
}
