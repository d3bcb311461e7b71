//! Response heads, and error responses.

use super::State;
use super::exchange::Context;
use base::{Buf, Caller, Error, Stat, Time};
use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use wire::http::{Refusal, date, refusal, status_text};

/// A response head being written: status, then fields.
#[derive(Debug)]
pub(super) struct Head {
    status: u16,
    text: String,
}

impl Head {
    pub(super) fn new(status: u16) -> Head {
        let mut text = String::with_capacity(400);
        write!(text, "HTTP/1.1 {status} ").expect("a string");
        text.push_str(status_text(status));
        text.push_str("\r\nServer: upcall\r\n");
        Head { status, text }
    }

    pub(super) fn field(mut self, name: &str, value: impl std::fmt::Display) -> Head {
        self.text.push_str(name);
        self.text.push_str(": ");
        write!(self.text, "{value}").expect("a string");
        self.text.push_str("\r\n");
        self
    }

    /// Adds the validators of this version of a file, and whether ranges are supported.
    pub(super) fn validators(self, stat: &Stat) -> Head {
        self.field("Last-Modified", date(stat.modified))
            .field("ETag", etag(stat))
            .field("Accept-Ranges", "bytes")
    }

    /// Completes the head with the date.
    fn end(mut self, wall: Time) -> Vec<u8> {
        write!(self.text, "Date: {}\r\n\r\n", date(wall)).expect("a string");
        self.text.into_bytes()
    }
}

/// Returns the entity tag of a file: it changes with every modification that the timestamps of the
/// file system resolve.
pub(super) fn etag(stat: &Stat) -> String {
    let version = stat.file_version();
    format!("\"{:x}-{:x}-{:x}\"", version.inode, version.size, version.change)
}

/// Returns the content type of a file by its extension; the server's own files are text.
pub(super) fn content_type(path: &[base::Name]) -> Cow<'static, str> {
    match path {
        [first, second] if first.as_bytes() == super::run::PLACE[0] => {
            return Cow::Borrowed(match second.as_bytes() {
                b"metrics" => "text/plain; version=0.0.4; charset=utf-8",
                _text => "text/plain; charset=utf-8",
            });
        }
        _elsewhere => {}
    }
    let extension =
        path.last().and_then(|name| Path::new(OsStr::from_bytes(name.as_bytes())).extension());
    let guess = extension.and_then(OsStr::to_str).map(mime_guess::from_ext);
    match guess.and_then(|guess| guess.first_raw()) {
        Some(text) if text.starts_with("text/") => Cow::Owned(format!("{text}; charset=utf-8")),
        Some(other) => Cow::Borrowed(other),
        None => Cow::Borrowed("application/octet-stream"),
    }
}

/// Reason of a refusal by permissions; the user is added in the response.
const DENIED: &str = "the file's permissions refuse this";

/// Returns the supported methods, for the `Allow` field.
pub(super) fn allowed(write: bool) -> &'static str {
    match write {
        true => {
            "GET, HEAD, PUT, DELETE, OPTIONS, PROPFIND, PROPPATCH, MKCOL, COPY, MOVE, LOCK, UNLOCK"
        }
        false => "GET, HEAD, OPTIONS, PROPFIND",
    }
}

/// Returns the status of an error, with a suggestion.
pub(super) fn status(error: Error) -> Refusal {
    match error {
        Error::NotFound => refusal(404, "there is no such file"),
        Error::NotDirectory => refusal(
            404,
            "a part of the path is no directory; changes do not follow symbolic links in the path",
        ),
        Error::Denied | Error::NotPermitted => refusal(403, DENIED),
        Error::CrossDevice => refusal(403, "the path leads out of the served directory"),
        Error::Loop => refusal(403, "the path goes through a symbolic link, or too many"),
        Error::Unsupported => refusal(403, "this kind of file cannot be used over HTTP"),
        Error::ReadOnly => refusal(403, "the server or its file system is read-only"),
        Error::NameTooLong => refusal(414, "a name in the path is too long"),
        Error::Exists => refusal(409, "there is something of that name already"),
        Error::IsDirectory => refusal(409, "that is a directory"),
        Error::NotEmpty => refusal(409, "the directory is not empty; remove its files first"),
        Error::Busy | Error::TextBusy => refusal(409, "the file is in use"),
        Error::TooManyLinks => refusal(409, "the file has as many names as it can have"),
        Error::Stale => refusal(409, "the file was replaced meanwhile; try again"),
        Error::Invalid => refusal(400, "the file system cannot do that with this name"),
        Error::FileTooLarge => refusal(413, "the file would be too large for the file system"),
        Error::NoSpace => refusal(507, "the disk is full"),
        Error::QuotaExceeded => refusal(507, "the quota is used up"),
        Error::TooManyOpen => refusal(503, "too many files are open; try again"),
        Error::NoMemory | Error::WouldBlock => refusal(503, "the server is busy; try again"),
        Error::Cancelled => refusal(503, "interrupted; try again"),
        Error::Disconnected => refusal(503, "a server that the path leads to is down; try again"),
        Error::TimedOut => {
            refusal(503, "the server or file system behind this path does not respond; try again")
        }
        Error::NoAttribute
        | Error::AttributeTooLarge
        | Error::WouldDeadlock
        | Error::NoDevice
        | Error::Io => refusal(500, "the disk failed"),
    }
}

/// Returns the status of an error between a change and its durability: never one that claims that
/// nothing was changed.
pub(super) fn not_durable(error: Error) -> Refusal {
    let reason = "the change was made, but may be lost in a crash; check the file and try again";
    Refusal { reason, status: status(error).status.max(500) }
}

/// Returns whether an error means that a directory needs or supports no flush: on some file systems
/// (fsync(2), `EINVAL`), and on 9P servers without fsync of directories.
pub(super) fn is_never_synced(error: Error) -> bool {
    matches!(error, Error::Invalid | Error::Unsupported)
}

/// Returns the response to a change in a directory that cannot be opened for its flush.
pub(super) fn not_opened(error: Error) -> Refusal {
    if error == Error::Denied {
        refusal(
            403,
            "permission denied to read the directory, so its change could not be made durable",
        )
    } else {
        status(error)
    }
}

/// Formats problem details; without a `type`, the title is that of the status (§4.2.1).
fn problem(status: u16, reason: &str) -> String {
    let title = status_text(status);
    let details = serde_json::json!({ "title": title, "status": status, "detail": reason });
    format!("{details}\n")
}

impl Context<'_> {
    /// Completes a head with the fields of every response, behind those of this one: `Connection`
    /// where needed, and the date.
    pub(super) fn end(&mut self, head: Head) -> Vec<u8> {
        let status = head.status;
        let head = match (self.session.last, self.session.manner.is_1_1) {
            (true, _) => head.field("Connection", "close"),
            (false, false) => head.field("Connection", "keep-alive"),
            (false, true) => head,
        };
        let head = head.end(self.wall());
        self.session.access.add_head(status, head.len());
        head
    }

    /// Adds the fields of a response of unknown length: in chunks, or until the connection ends.
    pub(super) fn stream(&mut self, head: Head) -> Head {
        let chunked = self.session.manner.is_1_1;
        self.session.last |= !chunked;
        if chunked { head.field("Transfer-Encoding", "chunked") } else { head }
    }

    /// Sends a head, with this beginning of the content.
    pub(super) fn send_head(&mut self, head: Head, content: &[u8]) {
        let mut bytes = self.end(head);
        bytes.extend_from_slice(content);
        self.send(Buf::from(bytes));
    }

    /// Sends a response without content.
    pub(super) fn respond(&mut self, head: Head) -> State {
        self.send_head(head, b"");
        self.done()
    }

    /// Sends an interim response: the client may send the content of its request.
    pub(super) fn send_continue(&mut self) {
        let head = &b"HTTP/1.1 100 Continue\r\n\r\n"[..];
        self.session.access.add_interim(head.len());
        self.send(Buf::from(head));
    }

    /// Sends a response in XML.
    pub(super) fn respond_xml(&mut self, status: u16, text: &str) -> State {
        let head = Head::new(status)
            .field("Content-Type", "application/xml; charset=utf-8")
            .field("Content-Length", text.len());
        self.send_head(super::get::safe(head), text.as_bytes());
        self.done()
    }

    /// Responds with the violated condition of RFC 4918 (§16); the connection continues.
    pub(super) fn fail_with(&mut self, status: u16, condition: &str) -> State {
        let opening = "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<D:error xmlns:D=\"DAV:\">";
        self.respond_xml(status, &format!("{opening}{condition}</D:error>\n"))
    }

    /// Sends an error with its reason as the body; for `HEAD`, without.
    pub(super) fn send_error(&mut self, refusal: Refusal) {
        let Refusal { status, reason } = refusal;
        match &self.session.caller {
            Caller::User(user) if reason == DENIED => {
                let text = format!("{reason} for user {}, as which this client acts", user.uid);
                self.send_error_text(status, &text);
            }
            Caller::User(_) | Caller::Server => self.send_error_text(status, reason),
        }
    }

    /// Sends an error with a computed reason: for programs that prefer JSON as problem details
    /// (RFC 9457).
    pub(super) fn send_error_text(&mut self, status: u16, reason: &str) {
        let (kind, content) = match self.session.manner.wants_problem {
            true => ("application/problem+json", problem(status, reason)),
            false => ("text/plain; charset=utf-8", format!("{reason}\n")),
        };
        let mut head = Head::new(status)
            .field("Content-Type", kind)
            .field("Vary", "Accept")
            .field("Content-Length", content.len());
        if status == 405 {
            head = head.field("Allow", allowed(self.session.export.web.write));
        }
        let content = if self.session.manner.head_only { "" } else { &content };
        self.send_head(head, content.as_bytes());
    }
}
