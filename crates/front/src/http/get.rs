//! `GET` and `HEAD`: lookup of the file, conditions, and the response.

use super::answer::{Head, content_type, etag, status};
use super::exchange::{Context, Exchange, Stay};
use super::listing::Listing;
use super::room::HANDLES;
use super::transfer::{Part, Transfer, frame};
use super::{CALL, FETCH_MAX, HEADROOM, State};
use crate::CallId;
use base::{Buf, Error, Kind, Name, Stat};
use std::ops::Range as Span;
use tree::{Ask, OpenId, Reply};
use wire::http::{Method, Request, Resolved, Verdict, refusal};

/// Boundary between the parts of a response with several ranges. It may occur in the content: each
/// part has its length.
const BOUNDARY: &str = "upcall-part-7MA4YWxkTrZu0gW";

/// Index page of a directory.
const INDEX: &[u8] = b"index.html";

/// A lookup of the requested file.
#[derive(Debug)]
pub(super) struct Fetch {
    request: Request,
    /// Whether the first bytes are fetched, too.
    reads: bool,
    /// The open directory, if the file is its index page.
    directory: Option<OpenId>,
}

impl Exchange for Fetch {
    fn name(&self) -> &'static str {
        "fetching"
    }

    fn answered(
        self: Box<Self>,
        cx: &mut Context,
        _call: CallId,
        reply: Result<Reply, Error>,
    ) -> State {
        match self.directory {
            Some(directory) => self.index_fetched(cx, directory, reply),
            None => self.fetched(cx, reply),
        }
    }

    fn abort(self: Box<Self>, cx: &mut Context) -> usize {
        cx.close(self.directory);
        cx.cancel(CALL, true)
    }

    /// With the directory of an index page, or the target of a link, also opened.
    fn handles(&self) -> usize {
        HANDLES
    }
}

impl Fetch {
    /// Fetches the file; with its first bytes if all of it may be needed.
    pub(super) fn begin(cx: &mut Context, request: Request) -> State {
        let whole = wants_whole(&request) && request.conditions.is_empty();
        let fetch = Box::new(Fetch { request, reads: whole, directory: None });
        fetch.fetch(cx, if whole { FETCH_MAX } else { 0 })
    }

    fn fetch(mut self: Box<Self>, cx: &mut Context, read_max: u32) -> State {
        let path = self.request.target.path.clone();
        self.reads = read_max > 0;
        cx.session.outstanding = read_max as usize;
        cx.ask(Ask::Fetch { root: None, path, read_max, headroom: HEADROOM });
        self.stay()
    }

    /// Fetches the index page of a directory, which stays open to be listed if there is none.
    fn fetch_index(mut self: Box<Self>, cx: &mut Context, directory: OpenId) -> State {
        self.request.target.path.push(Name::new(INDEX).expect("a name"));
        let path = self.request.target.path.clone();
        (self.reads, self.directory) = (false, Some(directory));
        cx.ask(Ask::Fetch { root: None, path, read_max: 0, headroom: 0 });
        self.stay()
    }

    /// Continues with the index page if it is a file, and lists the directory if there is none.
    fn index_fetched(
        mut self: Box<Self>,
        cx: &mut Context,
        directory: OpenId,
        reply: Result<Reply, Error>,
    ) -> State {
        match reply {
            Ok(Reply::Fetched(stat, data, open)) if stat.kind == Kind::File => {
                cx.close(directory);
                self.directory = None;
                self.fetched(cx, Ok(Reply::Fetched(stat, data, open)))
            }
            Err(error) if error != Error::NotFound => {
                cx.close(directory);
                cx.fail(status(error))
            }
            other => {
                crate::discard(other, cx.out);
                self.request.target.path.pop();
                Listing::begin(cx, &self.request, directory)
            }
        }
    }

    fn fetched(self: Box<Self>, cx: &mut Context, reply: Result<Reply, Error>) -> State {
        let (stat, data, open) = match reply {
            Ok(Reply::Fetched(stat, data, open)) => (stat, data, open),
            Ok(other) => unreachable!("{other:?} answers no fetch"),
            Err(error) => return cx.fail(status(error)),
        };
        match (stat.kind, open, self.verdict(&stat)) {
            (Kind::Directory, Some(open), _) => self.directory(cx, open),
            // The reported size of generated files is zero: read to find the actual one.
            (Kind::File, open, Verdict::Go) if stat.size == 0 && !self.reads => {
                cx.close(open);
                self.fetch(cx, FETCH_MAX)
            }
            (Kind::File, open, Verdict::Go) => file(cx, &self.request, stat, data, open),
            (_, open, Verdict::NotModified) => {
                cx.close(open);
                cx.respond(Head::new(304).validators(&stat))
            }
            (_, open, Verdict::Failed) => {
                cx.close(open);
                cx.fail(refusal(412, "the file is not the one that was expected"))
            }
            (_, open, Verdict::Go) => {
                cx.close(open);
                cx.fail(status(Error::Unsupported))
            }
        }
    }

    fn verdict(&self, stat: &Stat) -> Verdict {
        let Request { conditions, method, .. } = &self.request;
        if conditions.is_empty() || stat.kind != Kind::File {
            return Verdict::Go;
        }
        conditions.judge(*method, Some((&etag(stat), stat.modified)))
    }

    fn directory(self: Box<Self>, cx: &mut Context, open: OpenId) -> State {
        if !self.request.target.slash {
            cx.close(open);
            // Relative, so that it is right behind a proxy that serves this server at a path.
            let path = self.request.target.encoded();
            let name = path.rsplit('/').next().unwrap_or_default();
            let location = format!("./{name}/");
            let head = Head::new(301).field("Location", location).field("Content-Length", 0);
            return cx.respond(head);
        }
        if cx.session.export.web.index && !self.request.preference.json {
            return self.fetch_index(cx, open);
        }
        Listing::begin(cx, &self.request, open)
    }
}

/// Sends a file. One of reported size zero has the size of the data read, or an unknown size.
fn file(
    cx: &mut Context,
    request: &Request,
    mut stat: Stat,
    mut data: Buf,
    open: Option<OpenId>,
) -> State {
    if stat.size > 0 {
        data.truncate(usize::try_from(stat.size).unwrap_or(usize::MAX));
        return known_file(cx, request, &stat, data, open);
    }
    if open.is_some() {
        return unknown_file(cx, request, data, open);
    }
    stat.size = data.len() as u64;
    known_file(cx, request, &stat, data, open)
}

/// Sends a file of unknown size, to its end.
fn unknown_file(cx: &mut Context, request: &Request, data: Buf, open: Option<OpenId>) -> State {
    let chunked = request.is_1_1;
    let head =
        safe_file(cx, Head::new(200).field("Content-Type", content_type(&request.target.path)));
    let head = cx.stream(head);
    let from = data.len() as u64;
    let first = if data.is_empty() { data } else { frame(data, chunked) };
    send(cx, request, head, open, vec![Part::Bytes(first), Part::Rest { from, chunked }])
}

/// Sends a file, or the requested ranges.
fn known_file(
    cx: &mut Context,
    request: &Request,
    stat: &Stat,
    data: Buf,
    open: Option<OpenId>,
) -> State {
    assert!(data.len() as u64 <= stat.size, "bytes read are of the file");
    let ranges = request.ranges.as_ref().filter(|_| {
        request.method == Method::Get
            && request.conditions.range_applies(&etag(stat), stat.modified)
    });
    let name = content_type(&request.target.path);
    let resolved = ranges.map_or(Resolved::Whole, |ranges| ranges.resolve(stat.size));
    let (head, parts) = match &resolved {
        Resolved::Whole => {
            let head = Head::new(200).field("Content-Type", name).validators(stat);
            let rest = data.len() as u64..stat.size;
            let head = safe_file(cx, head).field("Content-Length", stat.size);
            return send(cx, request, head, open, vec![Part::Bytes(data), Part::File(rest)]);
        }
        Resolved::Parts(spans) => match &spans[..] {
            [span] => single(stat, &name, span, &data),
            many => several(stat, &name, many, &data),
        },
        Resolved::Unsatisfiable => {
            cx.close(open);
            let range = format!("bytes */{}", stat.size);
            let head = Head::new(416).field("Content-Range", range).field("Content-Length", 0);
            return cx.respond(head);
        }
    };
    let head = safe_file(cx, head);
    send(cx, request, head, open, parts)
}

/// Sends a head and its content; for `HEAD`, the head.
fn send(
    cx: &mut Context,
    request: &Request,
    head: Head,
    open: Option<OpenId>,
    parts: Vec<Part>,
) -> State {
    let parts = if request.method == Method::Head { Vec::new() } else { parts };
    let head = cx.end(head);
    Transfer::new(head, open, parts).begin(cx)
}

/// Adds header fields that keep a browser from treating a file as an active page of this server,
/// and from handing it to pages of other sites. If files can be written over HTTP, served pages run
/// no scripts: these could write, too.
pub(super) fn safe_file(cx: &Context, head: Head) -> Head {
    let head = safe(head);
    let writes = cx.session.export.web.write;
    if writes { head.field("Content-Security-Policy", "sandbox") } else { head }
}

/// Adds the header fields for responses with a policy of their own.
pub(super) fn safe(head: Head) -> Head {
    head.field("X-Content-Type-Options", "nosniff")
        .field("Cross-Origin-Resource-Policy", "same-origin")
}

fn content_range(span: &Span<u64>, size: u64) -> String {
    assert!(span.start < span.end && span.end <= size, "a range is some of the file");
    format!("bytes {}-{}/{size}", span.start, span.end - 1)
}

/// Returns whether all of the file is requested, subject to conditions.
fn wants_whole(request: &Request) -> bool {
    request.method == Method::Get && request.ranges.is_none()
}

/// Returns a part of the file, given its first bytes.
fn part(span: &Span<u64>, data: &Buf) -> Part {
    let ends = usize::try_from(span.start).ok().zip(usize::try_from(span.end).ok());
    match ends.and_then(|(start, end)| data.get(start..end)) {
        Some(bytes) => Part::Bytes(Buf::from(bytes)),
        None => Part::File(span.clone()),
    }
}

fn single(stat: &Stat, name: &str, span: &Span<u64>, data: &Buf) -> (Head, Vec<Part>) {
    let head = Head::new(206)
        .field("Content-Type", name)
        .validators(stat)
        .field("Content-Range", content_range(span, stat.size))
        .field("Content-Length", span.end - span.start);
    (head, vec![part(span, data)])
}

/// Builds a response with several ranges: `multipart/byteranges` (RFC 9110 §14.6).
fn several(stat: &Stat, name: &str, spans: &[Span<u64>], data: &Buf) -> (Head, Vec<Part>) {
    assert!(spans.len() > 1, "a single range is sent as it is");
    let mut parts = Vec::new();
    for span in spans {
        let range = content_range(span, stat.size);
        let text =
            format!("\r\n--{BOUNDARY}\r\nContent-Type: {name}\r\nContent-Range: {range}\r\n\r\n");
        parts.push(Part::Bytes(Buf::from(text.into_bytes())));
        parts.push(part(span, data));
    }
    parts.push(Part::Bytes(Buf::from(format!("\r\n--{BOUNDARY}--\r\n").into_bytes())));
    let length = parts.iter().map(Part::length).fold(0, u64::saturating_add);
    let head = Head::new(206)
        .field("Content-Type", format_args!("multipart/byteranges; boundary={BOUNDARY}"))
        .validators(stat)
        .field("Content-Length", length);
    (head, parts)
}
