//! Header fields of WebDAV (RFC 4918 §10).

use super::state_lists::{self, StateList};
use super::{Fields, Method, Refusal, Target, refusal};
use std::time::Duration;

/// How deep a request goes below its target (§10.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// The target only.
    Zero,
    /// Its members, too.
    One,
    /// All below it.
    Infinity,
}

/// The WebDAV fields of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DavFields {
    /// `Depth`.
    pub depth: Option<Depth>,
    /// `Destination` of a copy or move (§10.3).
    pub destination: Option<Destination>,
    /// Whether an existing destination is replaced (`Overwrite`, §10.6).
    pub overwrite: bool,
    /// `If`: one of these lists must hold; none if there is no such field.
    pub states: Vec<StateList>,
    /// `Lock-Token` (§10.5).
    pub lock_token: Option<String>,
    /// The first understood time of `Timeout` (§10.7).
    pub timeout: Option<Duration>,
}

/// Destination of a copy or move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    /// Its path.
    pub target: Target,
    /// Its server, if it names one: `host[:port]`.
    pub authority: Option<String>,
}

impl DavFields {
    /// Parses the fields, for methods of WebDAV.
    pub(super) fn parse(
        fields: &Fields<'_>,
        method: Method,
    ) -> Result<Option<Box<DavFields>>, Refusal> {
        if !method.is_dav() && !method.changes() {
            return Ok(None);
        }
        let depth = match fields.one("depth")? {
            None => None,
            Some("0") => Some(Depth::Zero),
            Some("1") => Some(Depth::One),
            Some(text) if text.eq_ignore_ascii_case("infinity") => Some(Depth::Infinity),
            Some(_) => return Err(refusal(400, "Depth is 0, 1 or infinity")),
        };
        let overwrite = match fields.one("overwrite")? {
            None => true,
            Some(text) if text.eq_ignore_ascii_case("t") => true,
            Some(text) if text.eq_ignore_ascii_case("f") => false,
            Some(_) => return Err(refusal(400, "Overwrite is T or F")),
        };
        let destination = fields.one("destination")?.map(destination).transpose()?;
        let states = fields.one("if")?.map_or(Ok(Vec::new()), state_lists::parse)?;
        let lock_token = fields.one("lock-token")?.map(coded_url).transpose()?;
        let timeout = fields.list("timeout").find_map(timeout);
        let fields = DavFields { depth, destination, overwrite, states, lock_token, timeout };
        Ok(Some(Box::new(fields)))
    }
}

fn destination(text: &str) -> Result<Destination, Refusal> {
    let (target, authority) = Target::parse_uri(text)?;
    Ok(Destination { target, authority: authority.map(str::to_string) })
}

/// Parses a token in angle brackets.
fn coded_url(text: &str) -> Result<String, Refusal> {
    let token = text.strip_prefix('<').and_then(|text| text.strip_suffix('>'));
    token.map(str::to_string).ok_or(refusal(400, "Lock-Token is a token in angle brackets"))
}

/// Parses a time of a lock; an infinite one is the longest.
fn timeout(text: &str) -> Option<Duration> {
    if text.eq_ignore_ascii_case("infinite") {
        return Some(Duration::MAX);
    }
    let (word, seconds) = text.split_at_checked("Second-".len())?;
    let is_number = !seconds.is_empty() && seconds.bytes().all(|byte| byte.is_ascii_digit());
    // One that is too large is long enough.
    let time = seconds.parse().map_or(Duration::MAX, Duration::from_secs);
    (is_number && word.eq_ignore_ascii_case("Second-")).then_some(time)
}
