//! Accounting of the current request: its method, status and bytes, for metrics and the access log.

use super::State;
use super::exchange::Context;
use crate::{Account, Entry, Output};
use base::Instant;
use wire::http::{Line, Method, Refusal};

/// Status of a request whose client disconnected before the response, as in nginx.
const CLIENT_LEFT: u16 = 499;

/// Accounting of the current request.
#[derive(Debug, Default)]
pub(super) struct Access {
    method: Option<Method>,
    /// Status of the response head, if it was sent.
    status: Option<u16>,
    /// Bytes sent, and those of them in heads.
    sent: u64,
    heads: u64,
    entry: Option<Box<Entry>>,
}

impl Access {
    /// Starts the accounting of a request.
    pub(super) fn begin(&mut self, method: Method) {
        self.method = Some(method);
    }

    /// Adds an access log entry to a request.
    pub(super) fn log(&mut self, now: Instant, line: Option<Line>) {
        self.entry = Some(Box::new(Entry { begun: now, ended: now, line }));
    }

    /// Counts a response head.
    pub(super) fn add_head(&mut self, status: u16, bytes: usize) {
        self.status = Some(status);
        self.add_interim(bytes);
    }

    /// Counts an interim response (RFC 9110 §15.2).
    pub(super) fn add_interim(&mut self, bytes: usize) {
        self.heads += bytes as u64;
    }

    /// Counts bytes of heads and content.
    pub(super) fn add_sent(&mut self, bytes: usize) {
        self.sent += bytes as u64;
    }
}

impl Context<'_> {
    /// Adds the request at the start of the input to the access log, if that is enabled.
    pub(super) fn log(&mut self) {
        if self.session.export.web.logs {
            self.session.access.log(self.now, wire::http::line(&self.session.input));
        }
    }

    /// Refuses a request with an invalid or incomplete head.
    pub(super) fn refuse_head(&mut self, refusal: Refusal) -> State {
        self.log();
        self.refuse(refusal)
    }

    /// Ends the accounting of the current request, if there is one.
    pub(super) fn account(&mut self) {
        self.end_change();
        let Access { method, status, sent, heads, entry } =
            std::mem::take(&mut self.session.access);
        if method.is_none() && status.is_none() {
            return;
        }
        self.out.push(Output::Account(Account {
            method: method.map_or("other", Method::name),
            status: status.unwrap_or(CLIENT_LEFT),
            bytes: sent.saturating_sub(heads),
            entry: entry.map(|entry| Box::new(Entry { ended: self.now, ..*entry })),
        }));
    }
}
