//! Objects of an HTTP/1.1 server: one request at a time on each of many connections.

use super::server::{Server, Stream, numbered};
use super::socket::{Session, Sockets};
use super::{Driver, Target, Troubles};
use crate::{Io, Kind, Outcome};
use std::io::{self, Read as _, Write as _};
use std::sync::Arc;
use wire::http::{Chunks, Piece};

/// Maximum length of a response head in bytes, and below its maximum number of fields.
const HEAD_MAX: usize = 64 << 10;
const FIELDS_MAX: usize = 100;

/// HTTP status of unsupported operations.
const NOT_IMPLEMENTED: u16 = 501;

/// Location of objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// Server.
    pub server: Server,
    /// Value of the `Host` field.
    pub host: String,
    /// Encoded path; `{}` stands for the file number.
    pub path: String,
}

/// PUT in progress.
pub struct Put {
    stream: Stream,
    path: String,
}

impl Url {
    /// Returns the size of an object in bytes, or `None` if it does not exist.
    ///
    /// # Errors
    /// If the server is unreachable or refuses.
    pub fn size(&self, file: u32) -> io::Result<Option<u64>> {
        let mut stream = self.server.connect()?;
        let (path, host) = (numbered(&self.path, file), &self.host);
        let close = "Connection: close";
        write!(stream, "HEAD {path} HTTP/1.1\r\nHost: {host}\r\n{close}\r\n\r\n")?;
        let (status, length) = head(&mut stream)?;
        match status {
            200..300 => Ok(Some(length.unwrap_or(0))),
            404 | 410 => Ok(None),
            status => Err(refused("asked for", &path, status)),
        }
    }

    /// Starts to create an object of this size in bytes.
    ///
    /// # Errors
    /// If the server is unreachable.
    pub fn put(&self, file: u32, bytes: u64) -> io::Result<Put> {
        let mut stream = self.server.connect()?;
        let (path, host) = (numbered(&self.path, file), &self.host);
        write!(stream, "PUT {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {bytes}\r\n")?;
        write!(stream, "Connection: close\r\n\r\n")?;
        Ok(Put { stream, path })
    }
}

impl Put {
    /// Sends a part of the body.
    ///
    /// # Errors
    /// If the server refuses or closes the connection.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).map_err(|error| self.refusal().unwrap_or(error))
    }

    /// Reads an error response that precedes the end of the body.
    fn refusal(&mut self) -> Option<io::Error> {
        let (status, _) = head(&mut self.stream).ok()?;
        (status >= 400).then(|| refused("sent", &self.path, status))
    }

    /// Waits for the response.
    ///
    /// # Errors
    /// If the status is not a success.
    pub fn end(mut self) -> io::Result<()> {
        match head(&mut self.stream)? {
            (200..300, _) => Ok(()),
            (status, _) => Err(refused("sent", &self.path, status)),
        }
    }
}

fn refused(what: &str, path: &str, status: u16) -> io::Error {
    let why = wire::http::status_text(status);
    let step = match status {
        403 | 405 if what == "sent" => "; it may be served read-only (upcall serve --http-write)",
        _ => "",
    };
    io::Error::other(format!("{what} {path}, the server answers {status} {why}{step}"))
}

/// Reads a response head. Returns the status and the announced body length.
fn head(stream: &mut Stream) -> io::Result<(u16, Option<u64>)> {
    let mut bytes = Vec::new();
    loop {
        let mut piece = [0; 1024];
        let count = stream.read(&mut piece)?;
        bytes.extend_from_slice(&piece[..count]);
        let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
        let mut response = httparse::Response::new(&mut fields);
        let wrong = || io::Error::other("the server does not speak HTTP/1.1");
        if response.parse(&bytes).map_err(|_| wrong())?.is_complete() {
            let length =
                response.headers.iter().find(|f| f.name.eq_ignore_ascii_case("content-length"));
            let length = length.and_then(|f| std::str::from_utf8(f.value).ok()?.parse().ok());
            return Ok((response.code.unwrap_or(0), length));
        }
        if count == 0 || bytes.len() > HEAD_MAX {
            return Err(wrong());
        }
    }
}

/// Objects of a server as a target. Reads are GETs (of a range, if they have a length), writes are
/// PUTs of whole objects, and removals are DELETEs.
#[derive(Clone, Debug)]
pub struct Http {
    /// Location of the objects.
    pub url: Url,
    /// Total connections of all workers.
    pub connections: usize,
    /// Maximum I/O size, in bytes.
    pub io_max: usize,
    /// Problems with its connections.
    pub troubles: Troubles,
}

impl Target for Http {
    fn driver(&self, worker: usize, workers: usize) -> io::Result<Box<dyn Driver>> {
        let (url, pattern) = (self.url.clone(), super::pattern(self.io_max));
        let dial = Box::new(move || {
            let socket = url.server.connect()?.into_socket()?;
            Ok((socket, HttpSession::new(url.clone(), pattern.clone())))
        });
        let place = (worker, workers);
        Ok(Box::new(Sockets::connect(self.connections, place, dial, &self.troubles)?))
    }

    fn name(&self) -> String {
        format!("http://{}{}", self.url.host, self.url.path)
    }

    fn troubles(&self) -> Vec<String> {
        self.troubles.lines()
    }
}

/// Parser position in a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Await {
    /// No outstanding request.
    Nothing,
    /// In the head.
    Head,
    /// In the body, with this many bytes left.
    Body(u64),
    /// In a chunked body.
    Chunked(Chunks),
}

/// Session of a connection.
pub(super) struct HttpSession {
    url: Url,
    pattern: Arc<[u8]>,
    name: u64,
    kind: Kind,
    status: u16,
    /// Bytes of the response's body.
    bytes: u64,
    /// Bytes of the request's body.
    sent: u64,
    awaited: Await,
    /// Whether the server closes the connection after this response.
    last: bool,
}

impl HttpSession {
    fn new(url: Url, pattern: Arc<[u8]>) -> HttpSession {
        HttpSession {
            url,
            pattern,
            name: 0,
            kind: Kind::Read,
            status: 0,
            bytes: 0,
            sent: 0,
            awaited: Await::Nothing,
            last: false,
        }
    }

    /// Parses the head, if it is complete. Returns its length.
    fn take_head(&mut self, bytes: &[u8]) -> Result<usize, &'static str> {
        let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
        let mut response = httparse::Response::new(&mut fields);
        let length = match response.parse(bytes) {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) if bytes.len() < HEAD_MAX => return Ok(0),
            Ok(httparse::Status::Partial) => return Err("the head of an answer is too long"),
            Err(_) => return Err("the head of an answer cannot be understood"),
        };
        let status = response.code.unwrap_or(0);
        let field = |name: &str| {
            let found = response.headers.iter().find(|f| f.name.eq_ignore_ascii_case(name));
            found.and_then(|field| std::str::from_utf8(field.value).ok()).map(str::trim)
        };
        if (100..200).contains(&status) {
            // Another head follows.
            return Ok(length);
        }
        let is = |name, value: &str| {
            field(name).is_some_and(|found: &str| found.to_ascii_lowercase().contains(value))
        };
        self.status = status;
        self.last = is("connection", "close");
        self.awaited = if is("transfer-encoding", "chunked") {
            Await::Chunked(Chunks::default())
        } else if matches!(status, 204 | 304) {
            Await::Body(0)
        } else {
            let length = field("content-length").map(str::parse);
            Await::Body(
                length
                    .ok_or("a response has no length")?
                    .map_err(|_| "a response has an invalid Content-Length")?,
            )
        };
        Ok(length)
    }

    /// Parses a part of the body. Returns the number of bytes.
    fn take_body(&mut self, bytes: &[u8]) -> Result<usize, &'static str> {
        match self.awaited {
            Await::Nothing | Await::Head => Ok(0),
            Await::Body(left) => {
                let count = left.min(bytes.len() as u64);
                self.bytes += count;
                self.awaited = Await::Body(left - count);
                Ok(count as usize)
            }
            Await::Chunked(chunks) => {
                let (piece, next) = chunks.next(bytes).map_err(|_| "chunks are wrong")?;
                self.awaited = Await::Chunked(next);
                Ok(match piece {
                    Piece::Framing(count) => count,
                    Piece::Data(count) => {
                        self.bytes += count as u64;
                        count
                    }
                    Piece::Incomplete | Piece::End => 0,
                })
            }
        }
    }

    /// Completes the request, if the response is complete.
    fn end(&mut self) -> Option<(u64, Outcome)> {
        if !matches!(self.awaited, Await::Body(0) | Await::Chunked(Chunks::Done)) {
            return None;
        }
        self.awaited = Await::Nothing;
        let outcome = match self.status {
            200..400 => {
                let reads = self.kind == Kind::Read;
                let moved = if reads { self.bytes } else { self.sent };
                Outcome::Done(u32::try_from(moved).unwrap_or(u32::MAX))
            }
            status => Outcome::Failed(status),
        };
        Some((self.name, outcome))
    }

    fn send(&mut self, io: &Io, out: &mut Vec<u8>) -> io::Result<()> {
        let (path, host) = (numbered(&self.url.path, io.file), &self.url.host);
        match io.kind {
            Kind::Read if io.len == 0 => write!(out, "GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"),
            Kind::Read => {
                let (first, last) = (io.offset, io.offset + u64::from(io.len) - 1);
                write!(out, "GET {path} HTTP/1.1\r\nHost: {host}\r\n")?;
                write!(out, "Range: bytes={first}-{last}\r\n\r\n")
            }
            Kind::Write | Kind::Create => {
                let len = io.len.min(self.pattern.len() as u32);
                write!(
                    out,
                    "PUT {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len}\r\n\r\n"
                )?;
                out.extend_from_slice(&self.pattern[..len as usize]);
                Ok(())
            }
            Kind::Remove => write!(out, "DELETE {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"),
            // A harmless request; these operations have no HTTP method and fail.
            Kind::Sync | Kind::Trim => {
                write!(out, "OPTIONS {path} HTTP/1.1\r\nHost: {host}\r\n\r\n")
            }
        }
    }
}

impl Session for HttpSession {
    fn has_room(&self) -> bool {
        self.awaited == Await::Nothing && !self.last
    }

    fn is_over(&self) -> bool {
        self.awaited == Await::Nothing && self.last
    }

    fn ask(&mut self, name: u64, io: &Io, out: &mut Vec<u8>) {
        (self.name, self.kind, self.bytes, self.awaited) = (name, io.kind, 0, Await::Head);
        let sends = matches!(io.kind, Kind::Write | Kind::Create);
        self.sent = if sends { u64::from(io.len).min(self.pattern.len() as u64) } else { 0 };
        self.send(io, out).expect("memory takes everything");
    }

    fn handle(
        &mut self,
        bytes: &[u8],
        ended: &mut Vec<(u64, Outcome)>,
    ) -> Result<usize, &'static str> {
        let mut arrived = 0;
        loop {
            let rest = &bytes[arrived..];
            let count = match self.awaited {
                Await::Nothing if rest.is_empty() => return Ok(arrived),
                Await::Nothing => return Err("an unsolicited reply"),
                Await::Head => self.take_head(rest)?,
                Await::Body(_) | Await::Chunked(_) => self.take_body(rest)?,
            };
            arrived += count;
            if let Some((name, outcome)) = self.end() {
                let outcome = match self.kind {
                    Kind::Sync | Kind::Trim => Outcome::Failed(NOT_IMPLEMENTED),
                    Kind::Read | Kind::Write | Kind::Create | Kind::Remove => outcome,
                };
                ended.push((name, outcome));
                if self.last {
                    return Ok(arrived);
                }
            } else if count == 0 {
                return Ok(arrived);
            }
        }
    }

    fn give_up(&mut self, ended: &mut Vec<(u64, Outcome)>, outcome: Outcome) {
        if self.awaited != Await::Nothing {
            self.awaited = Await::Nothing;
            ended.push((self.name, outcome));
        }
    }
}

#[cfg(test)]
mod tests;
