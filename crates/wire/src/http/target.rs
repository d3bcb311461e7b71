//! The target of a request: a decoded path and its query.

use super::{Refusal, refusal};
use base::Name;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode, percent_encode};

/// Maximum length of a target, bytes.
const TARGET_MAX: usize = 8 << 10;

/// A path from the root, with its query.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// Its components; none is `.` or `..`.
    pub path: Vec<Name>,
    /// Whether it ends in a slash (or is the root), as the path of a directory should.
    pub slash: bool,
    /// The query: names, each with its value or an empty one.
    pub query: Vec<(String, Vec<u8>)>,
}

/// All characters but RFC 3986's unreserved ones are percent-encoded.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Returns a path component, percent-encoded for a URL.
pub fn encode_component(name: &[u8]) -> percent_encoding::PercentEncode<'_> {
    percent_encode(name, ESCAPED)
}

impl Target {
    /// Parses a target: its path, and the host if it names one.
    pub(super) fn parse(text: &str) -> Result<(Target, Option<&str>), Refusal> {
        if text.len() > TARGET_MAX {
            return Err(refusal(414, "the path is longer than 8 KiB"));
        }
        if text == "*" {
            return Ok((Target::default(), None));
        }
        Target::parse_with(text, &["http://"])
    }

    /// Parses a URI in a field: an absolute one, or a path. A proxy with TLS in front of this
    /// server passes on `https`.
    pub(super) fn parse_uri(text: &str) -> Result<(Target, Option<&str>), Refusal> {
        Target::parse_with(text, &["http://", "https://"])
    }

    fn parse_with<'a>(
        text: &'a str,
        schemes: &[&str],
    ) -> Result<(Target, Option<&'a str>), Refusal> {
        // RFC 3986 §3.1: schemes are case-insensitive.
        let behind = |scheme: &&str| {
            let (start, rest) = text.split_at_checked(scheme.len())?;
            start.eq_ignore_ascii_case(scheme).then_some(rest)
        };
        match schemes.iter().find_map(behind) {
            Some(rest) => Target::parse_absolute(rest),
            None => Ok((Target::parse_path(text)?, None)),
        }
    }

    /// Parses an absolute target behind its scheme: its path, and the host.
    fn parse_absolute(text: &str) -> Result<(Target, Option<&str>), Refusal> {
        let (host, path) = text.split_at(text.find('/').unwrap_or(text.len()));
        if host.is_empty() {
            return Err(refusal(400, "the target names a server without a name"));
        }
        Ok((Target::parse_path(if path.is_empty() { "/" } else { path })?, Some(host)))
    }

    fn parse_path(path: &str) -> Result<Target, Refusal> {
        if !path.starts_with('/') {
            return Err(refusal(400, "the path does not start with a slash"));
        }
        // RFC 9112 §3.2: to a client that sends a fragment, the target is another one.
        if path.contains('#') {
            return Err(refusal(400, "the path has a fragment"));
        }
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let parts = path.split('/').filter(|part| !part.is_empty());
        let names = parts.map(component).collect::<Result<Vec<Name>, Refusal>>()?;
        Ok(Target { path: names, slash: path.ends_with('/'), query: pairs(query) })
    }

    /// Returns the percent-encoded path, without a slash at the end.
    pub fn encoded(&self) -> String {
        let parts = self.path.iter().map(|name| encode_component(name.as_bytes()).to_string());
        parts.fold(String::new(), |path, part| path + "/" + &part)
    }
}

/// Returns the pairs of a query in their order.
fn pairs(query: &str) -> Vec<(String, Vec<u8>)> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let pair = |pair: &str| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let key = percent_decode(key.as_bytes()).decode_utf8_lossy().into_owned();
        (key, percent_decode(value.as_bytes()).collect())
    };
    pairs.map(pair).collect()
}

fn component(text: &str) -> Result<Name, Refusal> {
    let bytes: Vec<u8> = percent_decode(text.as_bytes()).collect();
    match Name::new(&bytes) {
        Ok(name) if name.plain() => Ok(name),
        Ok(_dots) => Err(refusal(400, "the path has . or .. as a component")),
        Err(base::Error::NameTooLong) => Err(refusal(414, "a name in the path is too long")),
        Err(_) => Err(refusal(400, "a name in the path holds a slash or a zero byte")),
    }
}
