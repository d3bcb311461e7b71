//! HTTP/1.1 on the wire (RFC 9110, RFC 9112): request heads in, response heads out.
//!
//! `httparse` finds the tokens; this module turns them into a valid [`Request`] or a [`Refusal`]
//! with its status. A head that two parsers could interpret differently (two lengths, a length
//! beside chunks, an unknown coding) is refused, so request smuggling is impossible.

mod accept;
mod chunk;
mod collection;
mod condition;
mod digest;
mod range;
mod state_lists;
mod target;

#[cfg(test)]
mod tests;

pub use accept::Preference;
pub use chunk::{Chunks, Piece};
pub use collection::{DavFields, Depth, Destination};
pub use condition::{Conditions, Tags, Verdict};
pub use range::{Range, Ranges, Resolved};
pub use state_lists::{ResourceState, StateCondition, StateList};
pub use target::{Target, encode_component};

use base::Time;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Maximum length of a request head, bytes.
pub const HEAD_MAX: usize = 16 << 10;
/// Maximum number of header fields.
pub const FIELDS_MAX: usize = 100;

/// Defines the request methods with their names in a request line.
macro_rules! methods {
    ($($(#[$doc:meta])* $method:ident = $name:literal,)*) => {
        /// Request method (RFC 9110 §9.3, RFC 4918 §9).
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Method { $($(#[$doc])* $method,)* }

        impl Method {
            /// Returns the method of this name.
            fn parse(name: &str) -> Option<Method> {
                match name { $($name => Some(Method::$method),)* _unknown => None }
            }

            /// Returns the name of the method in a request line.
            pub fn name(self) -> &'static str {
                match self { $(Method::$method => $name,)* }
            }
        }
    };
}

methods! {
    /// Get the representation.
    Get = "GET",
    /// Get the header fields only.
    Head = "HEAD",
    /// Create or replace the resource.
    Put = "PUT",
    /// Remove the resource.
    Delete = "DELETE",
    /// Have the resource process the body.
    Post = "POST",
    /// Query the supported methods.
    Options = "OPTIONS",
    /// Get properties of the resource and its members.
    Propfind = "PROPFIND",
    /// Change properties of the resource.
    Proppatch = "PROPPATCH",
    /// Create a collection.
    Mkcol = "MKCOL",
    /// Copy the resource to another place.
    Copy = "COPY",
    /// Move the resource to another place.
    Move = "MOVE",
    /// Lock the resource, or refresh a lock.
    Lock = "LOCK",
    /// Remove a lock.
    Unlock = "UNLOCK",
}

impl Method {
    /// Returns whether it is a method of WebDAV.
    pub fn is_dav(self) -> bool {
        use Method::{Copy, Lock, Mkcol, Move, Propfind, Proppatch, Unlock};
        matches!(self, Propfind | Proppatch | Mkcol | Copy | Move | Lock | Unlock)
    }

    /// Returns whether it is about a lock.
    pub fn is_lock(self) -> bool {
        matches!(self, Method::Lock | Method::Unlock)
    }

    /// Returns whether it changes what the server stores at the target.
    pub fn changes(self) -> bool {
        use Method::{Copy, Delete, Mkcol, Move, Proppatch, Put};
        matches!(self, Put | Delete | Proppatch | Mkcol | Copy | Move)
    }
}

/// Framing of the body of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// No body.
    None,
    /// `Content-Length`, bytes.
    Length(u64),
    /// Chunked transfer coding.
    Chunked,
}

/// A request head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Method.
    pub method: Method,
    /// Target.
    pub target: Target,
    /// Whether the version is HTTP/1.1 and not 1.0.
    pub is_1_1: bool,
    /// Whether the connection stays open for further requests.
    pub keep_alive: bool,
    /// Host name that the client has used for the server.
    pub host: Option<String>,
    /// `Cookie` field (RFC 6265 §5.4).
    pub cookie: Option<String>,
    /// `Origin` field.
    pub origin: Option<String>,
    /// Whether a browser sent the request for a page of another site, and not because the user
    /// followed a link (`Sec-Fetch-Site`, `Sec-Fetch-Mode`).
    pub is_embedded: bool,
    /// Framing of the body.
    pub body: Body,
    /// Whether the body is only a part of the representation (`Content-Range`).
    pub is_partial: bool,
    /// Whether the client waits for `100 Continue` before it sends the body.
    pub expects_continue: bool,
    /// Preferred form of listings and errors.
    pub preference: Preference,
    /// Requested byte ranges.
    pub ranges: Option<Ranges>,
    /// Preconditions.
    pub conditions: Conditions,
    /// SHA-256 of the body (RFC 9530), for `PUT`.
    pub digest: Option<[u8; 32]>,
    /// Fields of WebDAV, for its methods, and for those that change something.
    pub dav: Option<Box<DavFields>>,
}

/// Refusal of a request: status and one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Status code.
    pub status: u16,
    /// Reason and remedy, for people.
    pub reason: &'static str,
}

/// Returns a refusal with this status and reason.
pub const fn refusal(status: u16, reason: &'static str) -> Refusal {
    assert!(status >= 200 && status < 600, "an answer has a final status");
    Refusal { status, reason }
}

/// Parses the request head at the start of `bytes`: `None` while it is incomplete, otherwise the
/// request and the length of the head, bytes.
///
/// # Errors
/// A refusal if the head is malformed or ambiguous; the connection must be closed then.
pub fn parse(bytes: &[u8]) -> Result<Option<(Request, usize)>, Refusal> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut head = httparse::Request::new(&mut fields);
    let window = &bytes[..bytes.len().min(HEAD_MAX)];
    match head.parse(window) {
        // A bare LF is a line end to some parsers and part of the line to others (RFC 9112 §11.1).
        Ok(httparse::Status::Complete(length)) if has_bare_lf(&window[..length]) => {
            Err(refusal(400, "the lines of the request head do not all end in CR LF"))
        }
        Ok(httparse::Status::Complete(length)) => Ok(Some((request(&head)?, length))),
        Ok(httparse::Status::Partial) if bytes.len() >= HEAD_MAX => {
            Err(refusal(431, "the request head is longer than 16 KiB"))
        }
        Ok(httparse::Status::Partial) => Ok(None),
        Err(httparse::Error::TooManyHeaders) => {
            Err(refusal(431, "the request has more than 100 header fields"))
        }
        Err(httparse::Error::Version) => Err(refusal(505, "speak HTTP/1.1")),
        Err(_) => Err(refusal(400, "the request head cannot be understood")),
    }
}

/// A request line, and the fields for access logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Method.
    pub method: String,
    /// Target as received.
    pub target: String,
    /// Minor version of HTTP/1.
    pub minor: u8,
    /// `Referer` field.
    pub referer: Option<String>,
    /// `User-Agent` field.
    pub agent: Option<String>,
}

/// Parses a request head for the access log.
pub fn line(bytes: &[u8]) -> Option<Line> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut head = httparse::Request::new(&mut fields);
    head.parse(&bytes[..bytes.len().min(HEAD_MAX)]).ok()?;
    let (method, target) = (head.method?.to_string(), head.path?.to_string());
    let minor = head.version?;
    let fields = Fields(head.headers);
    let first = |name| fields.all(name).next().map(str::to_string);
    Some(Line { method, target, minor, referer: first("referer"), agent: first("user-agent") })
}

fn has_bare_lf(head: &[u8]) -> bool {
    memchr::memchr_iter(b'\n', head).any(|at| at == 0 || head[at - 1] != b'\r')
}

/// Trims spaces and tabs only, not Unicode white space (RFC 9110 §5.6.3).
fn trim(text: &str) -> &str {
    text.trim_matches([' ', '\t'])
}

fn request(head: &httparse::Request<'_, '_>) -> Result<Request, Refusal> {
    let name = head.method.unwrap_or_default();
    let Some(method) = Method::parse(name) else {
        return Err(refusal(501, "this method is not implemented; OPTIONS lists those that are"));
    };
    let is_1_1 = head.version == Some(1);
    let fields = Fields(head.headers);
    let path = head.path.unwrap_or_default();
    if path == "*" && method != Method::Options {
        return Err(refusal(400, "only OPTIONS accepts *"));
    }
    let (target, authority) = Target::parse(path)?;
    let named = fields.one("host")?;
    if named.is_none() && is_1_1 {
        return Err(refusal(400, "a request of HTTP/1.1 needs a Host field"));
    }
    let host = authority.or(named);
    if host.is_some_and(|host| !host.is_empty() && host_name(host).is_none()) {
        return Err(refusal(400, "the Host field names no host"));
    }
    let text = |value: &str| value.to_string();
    Ok(Request {
        method,
        target,
        is_1_1,
        keep_alive: keep_alive(&fields, is_1_1),
        host: host.map(text),
        cookie: fields.one("cookie")?.map(text),
        origin: fields.one("origin")?.map(text),
        is_embedded: is_embedded(&fields),
        body: body(&fields, is_1_1)?,
        is_partial: fields.one("content-range")?.is_some(),
        expects_continue: expects_continue(&fields, is_1_1)?,
        preference: accept::preference(&fields),
        ranges: fields.one("range")?.and_then(Ranges::parse),
        conditions: Conditions::parse(&fields)?,
        digest: if method == Method::Put { digest::parse(&fields)? } else { None },
        dav: DavFields::parse(&fields, method)?,
    })
}

/// The host of an authority (RFC 3986 §3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host<'a> {
    /// A name, or an IPv4 address.
    Name(&'a str),
    /// An IPv6 address, in brackets.
    V6(std::net::Ipv6Addr),
}

/// Returns the host of `host[:port]`, the syntax of a `Host` field; `None` if the host is invalid
/// or anything but a port follows it.
pub fn host_name(authority: &str) -> Option<Host<'_>> {
    let (host, rest) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (address, rest) = rest.split_once(']')?;
            (Host::V6(address.parse().ok()?), rest)
        }
        None => {
            let plain = |byte: u8| {
                byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~' | b'%')
            };
            let end = authority.bytes().position(|byte| !plain(byte)).unwrap_or(authority.len());
            if end == 0 {
                return None;
            }
            (Host::Name(&authority[..end]), &authority[end..])
        }
    };
    let port = match rest.strip_prefix(':') {
        Some(port) => port,
        None if rest.is_empty() => return Some(host),
        None => return None,
    };
    // An empty port is the default one.
    let digits = port.bytes().all(|byte| byte.is_ascii_digit());
    (digits && (port.is_empty() || port.parse::<u16>().is_ok())).then_some(host)
}

/// The header fields of a request, by case-insensitive name.
pub(crate) struct Fields<'a>(&'a [httparse::Header<'a>]);

impl<'a> Fields<'a> {
    /// Returns all values of a field.
    pub(crate) fn all(&self, name: &'a str) -> impl Iterator<Item = &'a str> + '_ {
        let fields = self.0.iter().filter(move |field| field.name.eq_ignore_ascii_case(name));
        // None of the fields read here can have a value that is not text.
        fields.map(|field| std::str::from_utf8(field.value).unwrap_or("\u{fffd}")).map(trim)
    }

    /// Returns the value of a field that must not be repeated.
    pub(crate) fn one(&self, name: &'a str) -> Result<Option<&'a str>, Refusal> {
        let mut values = self.all(name);
        let first = values.next();
        match values.next() {
            None => Ok(first),
            Some(_) => Err(refusal(400, "duplicate header field")),
        }
    }

    /// Returns the elements of a list field.
    pub(crate) fn list(&self, name: &'a str) -> impl Iterator<Item = &'a str> + '_ {
        self.all(name).flat_map(|value| value.split(',')).map(trim)
    }
}

fn keep_alive(fields: &Fields<'_>, is_1_1: bool) -> bool {
    let has_token =
        |word: &str| fields.list("connection").any(|option| option.eq_ignore_ascii_case(word));
    if is_1_1 { !has_token("close") } else { has_token("keep-alive") }
}

fn is_embedded(fields: &Fields<'_>) -> bool {
    let foreign = |site: &str| ["cross-site", "same-site"].contains(&site);
    let mut modes = fields.all("sec-fetch-mode");
    fields.all("sec-fetch-site").any(foreign) && !modes.any(|mode| mode == "navigate")
}

/// Returns the framing of the body (RFC 9112 §6.3); refuses ambiguous framing (§11.2).
fn body(fields: &Fields<'_>, is_1_1: bool) -> Result<Body, Refusal> {
    let coding = fields.one("transfer-encoding")?;
    let length = fields.one("content-length")?;
    match (coding, length) {
        (None, None) => Ok(Body::None),
        (Some(_), Some(_)) => {
            Err(refusal(400, "a length and a transfer coding exclude each other"))
        }
        (Some(_), None) if !is_1_1 => Err(refusal(400, "HTTP/1.0 has no transfer codings")),
        (Some(coding), None) if coding.eq_ignore_ascii_case("chunked") => Ok(Body::Chunked),
        (Some(_), None) => Err(refusal(501, "the only transfer coding known is chunked")),
        (None, Some(digits)) => {
            let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
            let length = plain.then(|| digits.parse().ok()).flatten();
            match length {
                None => Err(refusal(400, "the content length is no number")),
                Some(0) => Ok(Body::None),
                Some(length) => Ok(Body::Length(length)),
            }
        }
    }
}

fn expects_continue(fields: &Fields<'_>, is_1_1: bool) -> Result<bool, Refusal> {
    match fields.one("expect")? {
        Some(value) if value.eq_ignore_ascii_case("100-continue") => Ok(is_1_1),
        Some(_) => Err(refusal(417, "the only expectation known is 100-continue")),
        None => Ok(false),
    }
}

/// Returns the standard reason phrase of a status code.
pub fn status_text(status: u16) -> &'static str {
    match status {
        100 => "Continue",
        200 => "OK",
        201 => "Created",
        204 => "No Content",
        206 => "Partial Content",
        207 => "Multi-Status",
        301 => "Moved Permanently",
        304 => "Not Modified",
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        409 => "Conflict",
        411 => "Length Required",
        412 => "Precondition Failed",
        413 => "Content Too Large",
        414 => "URI Too Long",
        416 => "Range Not Satisfiable",
        415 => "Unsupported Media Type",
        417 => "Expectation Failed",
        422 => "Unprocessable Content",
        423 => "Locked",
        424 => "Failed Dependency",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        505 => "HTTP Version Not Supported",
        507 => "Insufficient Storage",
        _other => "Unknown",
    }
}

/// Returns a date in the format of HTTP (RFC 9110 §5.6.7). Dates before 1970 become 1970, dates
/// after 9999 the last of 9999.
pub fn date(time: Time) -> httpdate::HttpDate {
    const YEAR_9999: u64 = 253_402_300_799;
    let secs = u64::try_from(time.secs).unwrap_or(0).min(YEAR_9999);
    httpdate::HttpDate::from(UNIX_EPOCH + Duration::from_secs(secs))
}

/// Parses a date in the format of HTTP.
pub fn parse_date(text: &str) -> Option<Time> {
    let date: SystemTime = httpdate::parse_http_date(text).ok()?;
    let secs = date.duration_since(UNIX_EPOCH).ok()?.as_secs();
    Some(Time::from_secs(i64::try_from(secs).ok()?))
}
