//! WebDAV bodies (RFC 4918): `PROPFIND` and `PROPPATCH` requests in, multi-status responses out.
//!
//! `quick-xml` finds elements and namespaces; this module turns them into lists of properties.
//! Document type declarations and entities other than the predefined ones are refused. Values of
//! properties are kept as XML text that is valid anywhere: each element declares its own namespace.

mod parse;
#[cfg(test)]
mod tests;

pub use parse::{lock_request, propfind, proppatch};

use quick_xml::escape::escape;
use std::fmt::Write as _;

/// Maximum length of a request body, and of the values parsed from it, bytes.
pub const BODY_MAX: usize = 64 << 10;
/// Maximum number of properties in a request.
pub const PROPERTIES_MAX: usize = 256;
/// Maximum length of the owner of a lock, bytes.
const OWNER_MAX: usize = 1 << 10;
/// Maximum depth of elements in a body.
const DEPTH_MAX: usize = 32;
/// Maximum length of a namespace, and of the local name of a property, bytes.
const NAME_MAX: usize = 256;

/// Namespace of the properties of RFC 4918.
pub const DAV: &str = "DAV:";

/// Name of a property.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PropertyName {
    /// Namespace; empty for none.
    pub namespace: String,
    /// Local name.
    pub local: String,
}

impl PropertyName {
    /// Returns a name in the namespace of RFC 4918.
    pub fn dav(local: &str) -> PropertyName {
        PropertyName { namespace: DAV.to_string(), local: local.to_string() }
    }

    /// Returns whether it is this name of RFC 4918.
    pub fn is_dav(&self, local: &str) -> bool {
        self.namespace == DAV && self.local == local
    }
}

/// A property with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Property {
    /// Name.
    pub name: PropertyName,
    /// Language of the value (`xml:lang`).
    pub lang: Option<String>,
    /// Value, XML text.
    pub value: String,
}

/// The properties requested by a `PROPFIND` (§14.20).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// All properties that are cheap, and these.
    All(Vec<PropertyName>),
    /// The names of all properties.
    Names,
    /// These.
    These(Vec<PropertyName>),
}

/// One change of a `PROPPATCH` (§14.19), in the order of the body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Set a property.
    Set(Property),
    /// Remove a property.
    Remove(PropertyName),
}

impl Change {
    /// Returns the name of the property.
    pub fn name(&self) -> &PropertyName {
        match self {
            Change::Set(property) => &property.name,
            Change::Remove(name) => name,
        }
    }
}

/// A lock, as requested by a `LOCK` (§14.11) and reported (§14.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockScope {
    /// Whether it excludes all other locks, and not only exclusive ones.
    pub is_exclusive: bool,
    /// Contact of the user, XML text.
    pub owner: Option<String>,
}

/// The value of the property `supportedlock` (§15.10).
pub const SUPPORTED_LOCKS: &str = "<D:lockentry><D:lockscope><D:exclusive/></D:lockscope>\
    <D:locktype><D:write/></D:locktype></D:lockentry><D:lockentry><D:lockscope><D:shared/>\
    </D:lockscope><D:locktype><D:write/></D:locktype></D:lockentry>";

/// Writes a lock as a part of the property `lockdiscovery` (§15.8): whether it covers all below its
/// root, its timeout in seconds, its token, and the percent-encoded path of its root.
pub fn write_lock(
    scope: &LockScope,
    (is_deep, seconds): (bool, u64),
    (token, root): (&str, &str),
    out: &mut String,
) {
    let kind = if scope.is_exclusive { "exclusive" } else { "shared" };
    let depth = if is_deep { "infinity" } else { "0" };
    let owner = scope.owner.as_ref().map(|owner| format!("<D:owner>{owner}</D:owner>"));
    write!(
        out,
        "<D:activelock><D:locktype><D:write/></D:locktype><D:lockscope><D:{kind}/></D:lockscope>\
         <D:depth>{depth}</D:depth>{}<D:timeout>Second-{seconds}</D:timeout><D:locktoken><D:href>\
         {}</D:href></D:locktoken><D:lockroot><D:href>{root}</D:href></D:lockroot></D:activelock>",
        owner.unwrap_or_default(),
        escape(token),
    )
    .expect("a string");
}

/// The beginning of a multi-status response (§13).
pub const OPENING: &str =
    "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<D:multistatus xmlns:D=\"DAV:\">\n";
/// Its end.
pub const CLOSING: &str = "</D:multistatus>\n";

/// Writes an element of a response: a property with this XML text as its value.
pub fn write_property(name: &PropertyName, lang: Option<&str>, value: &str, out: &mut String) {
    let lang = lang.map_or(String::new(), |lang| format!(" xml:lang=\"{}\"", escape(lang)));
    let PropertyName { namespace, local } = name;
    let (tag, declared) = match &**namespace {
        DAV => (format!("D:{local}"), String::new()),
        "" => (local.clone(), String::new()),
        other => (format!("x:{local}"), format!(" xmlns:x=\"{}\"", escape(other))),
    };
    let end = if value.is_empty() { "/>" } else { ">" };
    write!(out, "<{tag}{declared}{lang}{end}").expect("a string");
    if !value.is_empty() {
        write!(out, "{value}</{tag}>").expect("a string");
    }
}

/// Writes text as XML. Characters that XML cannot contain (§2.2 of XML 1.0) become U+FFFD.
pub fn write_text(text: &str, out: &mut String) {
    let text = text.replace(|c| !is_legal(c), "\u{fffd}");
    out.push_str(&escape(&text));
}

/// Returns whether a character may occur in XML 1.0 (§2.2).
fn is_legal(c: char) -> bool {
    let is_control = c < ' ' && !matches!(c, '\t' | '\n' | '\r');
    !is_control && !matches!(c, '\u{fffe}' | '\u{ffff}')
}

/// Writes a group of properties with one status (§14.22); nothing if there are none.
pub fn write_propstat(properties: &str, status: u16, out: &mut String) {
    if properties.is_empty() {
        return;
    }
    let words = crate::http::status_text(status);
    let line = format!("<D:status>HTTP/1.1 {status} {words}</D:status>");
    write!(out, "<D:propstat><D:prop>{properties}</D:prop>{line}</D:propstat>").expect("a string");
}

/// Writes the response about one resource (§14.24): its percent-encoded path, and what is reported.
pub fn write_response(href: &str, content: &str, out: &mut String) {
    writeln!(out, "<D:response><D:href>{href}</D:href>{content}</D:response>").expect("a string");
}

/// Writes the status of one resource, for [`write_response`].
pub fn write_status(status: u16, reason: &str, out: &mut String) {
    let words = crate::http::status_text(status);
    write!(out, "<D:status>HTTP/1.1 {status} {words}</D:status>").expect("a string");
    let reason = escape(reason);
    write!(out, "<D:responsedescription>{reason}</D:responsedescription>").expect("a string");
}
