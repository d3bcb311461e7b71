//! `GET` and `HEAD`: lookup of the file, conditions, and the response.

use super::answer::{Head, content_type, etag, status};
use super::listing::Listing;
use super::transfer::{Part, Transfer, frame};
use super::{FETCH_MAX, HEADROOM, Session, State};
use crate::Output;
use base::{Buf, Error, Instant, Kind, Name, Stat};
use std::ops::Range as Span;
use tree::{Ask, OpenId, Reply};
use wire::http::{Method, Request, Resolved, Verdict, refusal};

/// Boundary between the parts of a response with several ranges. It may occur in the content: each
/// part has its length.
const BOUNDARY: &str = "upcall-part-7MA4YWxkTrZu0gW";

/// Index page of a directory.
const INDEX: &[u8] = b"index.html";

impl Session {
    /// Fetches the file; with its first bytes if all of it may be needed.
    pub(super) fn fetch(&mut self, request: Request, out: &mut Vec<Output>) -> State {
        let whole = wants_whole(&request) && request.conditions.is_empty();
        self.fetch_up_to(request, if whole { FETCH_MAX } else { 0 }, out)
    }

    fn fetch_up_to(&mut self, request: Request, read_max: u32, out: &mut Vec<Output>) -> State {
        let path = request.target.path.clone();
        self.asked = read_max as usize;
        self.ask(Ask::Fetch { root: None, path, read_max, headroom: HEADROOM }, out);
        State::Fetching { request: Box::new(request), reads: read_max > 0, directory: None }
    }

    /// Fetches the index page of a directory, which stays open to be listed if there is none.
    fn fetch_index(
        &mut self,
        mut request: Request,
        directory: OpenId,
        out: &mut Vec<Output>,
    ) -> State {
        request.target.path.push(Name::new(INDEX).expect("a name"));
        let path = request.target.path.clone();
        self.ask(Ask::Fetch { root: None, path, read_max: 0, headroom: 0 }, out);
        State::Fetching { request: Box::new(request), reads: false, directory: Some(directory) }
    }

    /// Continues with the index page if it is a file, and lists the directory if there is none.
    pub(super) fn index_fetched(
        &mut self,
        now: Instant,
        mut request: Request,
        directory: OpenId,
        reply: Result<Reply, Error>,
        out: &mut Vec<Output>,
    ) -> State {
        match reply {
            Ok(Reply::Fetched(stat, data, open)) if stat.kind == Kind::File => {
                out.push(Output::Close(directory));
                self.fetched(now, request, false, Ok(Reply::Fetched(stat, data, open)), out)
            }
            Err(error) if error != Error::NotFound => {
                out.push(Output::Close(directory));
                self.fail(now, status(error), out)
            }
            other => {
                crate::discard(other, out);
                request.target.path.pop();
                self.list_on(now, Listing::new(&request, directory), out)
            }
        }
    }

    pub(super) fn fetched(
        &mut self,
        now: Instant,
        request: Request,
        reads: bool,
        reply: Result<Reply, Error>,
        out: &mut Vec<Output>,
    ) -> State {
        let (stat, data, open) = match reply {
            Ok(Reply::Fetched(stat, data, open)) => (stat, data, open),
            Ok(other) => unreachable!("{other:?} answers no fetch"),
            Err(error) => return self.fail(now, status(error), out),
        };
        let verdict = self.verdict(&request, &stat);
        match (stat.kind, open, verdict) {
            (Kind::Directory, Some(open), _) => self.directory(now, request, open, out),
            // The reported size of generated files is zero: read to find the actual one.
            (Kind::File, open, Verdict::Go) if stat.size == 0 && !reads => {
                out.extend(open.map(Output::Close));
                self.fetch_up_to(request, FETCH_MAX, out)
            }
            (Kind::File, open, Verdict::Go) => self.file(now, &request, stat, data, open, out),
            (_, open, Verdict::NotModified) => {
                out.extend(open.map(Output::Close));
                let head = Head::new(304).validators(&stat);
                let head = self.end(now, head);
                self.say(Buf::from(head), out);
                self.done(now, out)
            }
            (_, open, Verdict::Failed) => {
                out.extend(open.map(Output::Close));
                self.fail(now, refusal(412, "the file is not the one that was expected"), out)
            }
            (_, open, Verdict::Go) => {
                out.extend(open.map(Output::Close));
                self.fail(now, status(Error::Unsupported), out)
            }
        }
    }

    pub(super) fn verdict(&self, request: &Request, stat: &Stat) -> Verdict {
        if request.conditions.is_empty() || stat.kind != Kind::File {
            return Verdict::Go;
        }
        request.conditions.judge(request.method, Some((&etag(stat), stat.modified)))
    }

    fn directory(
        &mut self,
        now: Instant,
        request: Request,
        open: OpenId,
        out: &mut Vec<Output>,
    ) -> State {
        if !request.target.slash {
            out.push(Output::Close(open));
            let head = Head::new(301)
                .field("Location", request.target.encoded() + "/")
                .field("Content-Length", 0);
            let head = self.end(now, head);
            self.say(Buf::from(head), out);
            return self.done(now, out);
        }
        if self.export.web.index && !request.wants_json {
            return self.fetch_index(request, open, out);
        }
        self.list_on(now, Listing::new(&request, open), out)
    }

    /// Sends a file. One of reported size zero has the size of the data read, or an unknown size.
    fn file(
        &mut self,
        now: Instant,
        request: &Request,
        mut stat: Stat,
        mut data: Buf,
        open: Option<OpenId>,
        out: &mut Vec<Output>,
    ) -> State {
        if stat.size > 0 {
            data.truncate(usize::try_from(stat.size).unwrap_or(usize::MAX));
            return self.known_file(now, request, &stat, data, open, out);
        }
        if open.is_some() {
            return self.unknown_file(now, request, data, open, out);
        }
        stat.size = data.len() as u64;
        self.known_file(now, request, &stat, data, open, out)
    }

    /// Sends a file of unknown size, to its end.
    fn unknown_file(
        &mut self,
        now: Instant,
        request: &Request,
        data: Buf,
        open: Option<OpenId>,
        out: &mut Vec<Output>,
    ) -> State {
        let chunked = request.is_1_1;
        self.last |= !chunked;
        let name = content_type(&request.target.path);
        let mut head = self.safe(Head::new(200).field("Content-Type", name));
        if chunked {
            head = head.field("Transfer-Encoding", "chunked");
        }
        let from = data.len() as u64;
        let first = if data.is_empty() { data } else { frame(data, chunked) };
        let parts = vec![Part::Bytes(first), Part::Rest { from, chunked }];
        let parts = if request.method == Method::Head { Vec::new() } else { parts };
        self.send(now, head, open, parts, out)
    }

    /// Sends a file, or the requested ranges.
    fn known_file(
        &mut self,
        now: Instant,
        request: &Request,
        stat: &Stat,
        data: Buf,
        open: Option<OpenId>,
        out: &mut Vec<Output>,
    ) -> State {
        assert!(data.len() as u64 <= stat.size, "what was read is of the file");
        let ranges = request.ranges.as_ref().filter(|_| {
            request.method == Method::Get
                && request.conditions.range_applies(&etag(stat), stat.modified)
        });
        let name = content_type(&request.target.path);
        let resolved = ranges.map_or(Resolved::Whole, |ranges| ranges.resolve(stat.size));
        match &resolved {
            Resolved::Whole => {
                let head = Head::new(200).field("Content-Type", name).validators(stat);
                let head = self.safe(head).field("Content-Length", stat.size);
                let rest = data.len() as u64..stat.size;
                let parts = vec![Part::Bytes(data), Part::File(rest)];
                let parts = if request.method == Method::Head { Vec::new() } else { parts };
                self.send(now, head, open, parts, out)
            }
            Resolved::Parts(spans) => {
                let (head, parts) = match &spans[..] {
                    [span] => single(stat, &name, span, &data),
                    many => several(stat, &name, many, &data),
                };
                let head = self.safe(head);
                self.send(now, head, open, parts, out)
            }
            Resolved::Unsatisfiable => {
                out.extend(open.map(Output::Close));
                let head = Head::new(416)
                    .field("Content-Range", format_args!("bytes */{}", stat.size))
                    .field("Content-Length", 0);
                let head = self.end(now, head);
                self.say(Buf::from(head), out);
                self.done(now, out)
            }
        }
    }

    fn send(
        &mut self,
        now: Instant,
        head: Head,
        open: Option<OpenId>,
        parts: Vec<Part>,
        out: &mut Vec<Output>,
    ) -> State {
        let head = self.end(now, head);
        self.go_on(now, Transfer::new(head, open, parts), out)
    }
}

impl Session {
    /// Adds header fields that keep a browser from treating a file as an active page of this
    /// server, and from handing it to pages of other sites. If files can be written over HTTP,
    /// served pages run no scripts: these could write, too.
    pub(super) fn safe(&self, head: Head) -> Head {
        let head = safe(head);
        if self.export.web.write { head.field("Content-Security-Policy", "sandbox") } else { head }
    }
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
