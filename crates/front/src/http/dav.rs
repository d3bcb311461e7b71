//! WebDAV, classes 1 and 2 (RFC 4918): properties, collections and locks.
//!
//! Collections are directories. Links are followed as by `GET` where properties are read, and by
//! no method that changes something (decision 10).

mod file_copy;
mod lock;
mod make;
mod permit;
mod properties;
mod propfind;
mod proppatch;
mod relocate;
mod tree_copy;

use super::body::Remaining;
use super::exchange::{Context, Exchange, Stay};
use super::{BODY_TIME, State};
use crate::CallId;
use base::{Error, Instant};
use lock::Lock;
use make::Make;
use propfind::Propfind;
use proppatch::Proppatch;
use relocate::Relocate;
use tree::Reply;
use wire::dav::BODY_MAX;
use wire::http::{Body, Method, Refusal, Request, refusal};

pub(super) use properties::ATTRIBUTE;

/// A request whose body is being received, as a whole.
#[derive(Debug)]
struct Receive {
    request: Request,
    left: Remaining,
    body: Vec<u8>,
    until: Instant,
}

impl Context<'_> {
    /// Begins the exchange of a WebDAV request.
    pub(super) fn begin_dav(&mut self, request: Request) -> State {
        let method = request.method;
        if let Method::Propfind | Method::Proppatch | Method::Lock = method {
            return Receive::begin(self, request);
        }
        // RFC 4918 §9.3: a body that is not understood is refused.
        if request.body != Body::None {
            return self.refuse(refusal(415, "this method takes no body here"));
        }
        if method == Method::Unlock {
            return Lock::begin_unlock(self, request);
        }
        if method == Method::Mkcol {
            return Make::begin(self, request);
        }
        assert!(matches!(method, Method::Copy | Method::Move), "no method of WebDAV: {method:?}");
        Relocate::begin(self, request)
    }
}

const TOO_LARGE: Refusal = refusal(413, "the body is longer than 64 KiB");

impl Receive {
    fn begin(cx: &mut Context, request: Request) -> State {
        if let Body::Length(length) = request.body
            && length > BODY_MAX as u64
        {
            return cx.refuse(TOO_LARGE);
        }
        if request.expects_continue && cx.session.input.is_empty() {
            cx.send_continue();
        }
        let (left, until) = (Remaining::of(request.body), cx.now + BODY_TIME);
        Box::new(Receive { request, left, body: Vec::new(), until }).received(cx)
    }
}

impl Exchange for Receive {
    fn name(&self) -> &'static str {
        "receiving"
    }

    fn answered(
        self: Box<Self>,
        _cx: &mut Context,
        _call: CallId,
        reply: Result<Reply, Error>,
    ) -> State {
        unreachable!("{reply:?} without a call")
    }

    fn received(mut self: Box<Self>, cx: &mut Context) -> State {
        match self.left.take(&mut cx.session.input) {
            Ok(data) => self.body.extend_from_slice(&data),
            Err(refusal) => return cx.refuse(refusal),
        }
        if self.body.len() > BODY_MAX {
            return cx.refuse(TOO_LARGE);
        }
        if !self.left.is_empty() {
            return if cx.session.last_byte_came { self.finish(cx) } else { self.stay() };
        }
        let Receive { request, body, .. } = *self;
        let begun = if request.method == Method::Propfind {
            wire::dav::propfind(&body).map(|wanted| Propfind::begin(cx, request, wanted))
        } else if request.method == Method::Lock {
            wire::dav::lock_request(&body).map(|scope| Lock::begin(cx, request, scope))
        } else {
            wire::dav::proppatch(&body).map(|changes| Proppatch::begin(cx, request, changes))
        };
        begun.unwrap_or_else(|refusal| cx.fail(refusal))
    }

    fn ticked(self: Box<Self>, cx: &mut Context) -> State {
        if self.until <= cx.now {
            return cx.refuse(refusal(408, "the body took too long"));
        }
        self.stay()
    }

    fn finish(self: Box<Self>, cx: &mut Context) -> State {
        if cx.session.last_byte_came {
            return cx.refuse(refusal(400, "the body ended early"));
        }
        self.stay()
    }

    fn abort(self: Box<Self>, _cx: &mut Context) -> usize {
        0
    }

    fn is_hungry(&self, buffered: usize) -> bool {
        self.left.exceeds(buffered)
    }

    fn takes_input(&self) -> bool {
        true
    }

    fn is_upload(&self) -> bool {
        true
    }

    fn deadline(&self) -> Option<Instant> {
        Some(self.until)
    }

    fn gathered(&self) -> usize {
        self.body.len()
    }
}
