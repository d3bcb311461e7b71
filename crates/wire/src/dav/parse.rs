//! Request bodies.

use super::{
    BODY_MAX, Change, DAV, DEPTH_MAX, LockScope, NAME_MAX, OWNER_MAX, PROPERTIES_MAX, Property,
    PropertyName, Wanted, is_legal,
};
use crate::http::{Refusal, refusal};
use quick_xml::XmlVersion;
use quick_xml::escape::{escape, resolve_predefined_entity, unescape};
use quick_xml::events::{BytesRef, BytesStart, Event};
use quick_xml::name::{PrefixDeclaration, ResolveResult};
use quick_xml::reader::NsReader;
use std::collections::BTreeSet;
use std::fmt::Write as _;

const MALFORMED: Refusal = refusal(400, "the body is no well-formed XML with namespaces");
const TOO_LARGE: Refusal = refusal(413, "the body has too many properties, or too large ones");

/// Parses the body of a `PROPFIND`; an empty one requests all properties (§9.1).
///
/// # Errors
/// If it is malformed or too large, or requests nothing that is known.
pub fn propfind(body: &[u8]) -> Result<Wanted, Refusal> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok(Wanted::All(Vec::new()));
    }
    let mut reader = Reader::new(body)?;
    reader.root("propfind")?;
    let (mut wanted, mut included) = (None, Vec::new());
    while let Some(element) = reader.child()? {
        let next = match &*element.dav_name() {
            "allprop" => Wanted::All(Vec::new()),
            "propname" => Wanted::Names,
            "prop" => Wanted::These(reader.names()?),
            "include" => {
                included = reader.names()?;
                continue;
            }
            _unknown => {
                reader.skip()?;
                continue;
            }
        };
        if !matches!(next, Wanted::These(_)) {
            reader.skip()?;
        }
        if wanted.replace(next).is_some() {
            return Err(refusal(400, "the body requests properties in two ways"));
        }
    }
    reader.end()?;
    match wanted {
        Some(Wanted::All(_)) => Ok(Wanted::All(included)),
        Some(other) => Ok(other),
        None => Err(refusal(400, "the body requests no properties")),
    }
}

/// Parses the body of a `PROPPATCH`.
///
/// # Errors
/// If it is malformed or too large, or changes nothing.
pub fn proppatch(body: &[u8]) -> Result<Vec<Change>, Refusal> {
    let mut reader = Reader::new(body)?;
    let lang = reader.root("propertyupdate")?.lang;
    let mut changes = Vec::new();
    while let Some(element) = reader.child()? {
        let is_set = match &*element.dav_name() {
            "set" => true,
            "remove" => false,
            _unknown => {
                reader.skip()?;
                continue;
            }
        };
        let lang = element.lang.or_else(|| lang.clone());
        while let Some(element) = reader.child()? {
            if element.dav_name() != "prop" {
                reader.skip()?;
                continue;
            }
            let lang = element.lang.or_else(|| lang.clone());
            reader.changes(is_set, lang.as_deref(), &mut changes)?;
        }
    }
    reader.end()?;
    if changes.is_empty() { Err(refusal(400, "the body changes no property")) } else { Ok(changes) }
}

/// Parses the body of a `LOCK`; an empty one refreshes a lock (§9.10.2): `None`.
///
/// # Errors
/// If it is malformed or too large, or requests another kind of lock.
pub fn lock_request(body: &[u8]) -> Result<Option<LockScope>, Refusal> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok(None);
    }
    let mut reader = Reader::new(body)?;
    reader.root("lockinfo")?;
    let (mut is_exclusive, mut is_write, mut owner) = (None, false, None);
    while let Some(element) = reader.child()? {
        match &*element.dav_name() {
            "lockscope" => {
                let names = reader.names()?;
                is_exclusive = names.iter().find_map(|name| match &*name.local {
                    "exclusive" if name.namespace == DAV => Some(true),
                    "shared" if name.namespace == DAV => Some(false),
                    _unknown => None,
                });
            }
            "locktype" => is_write = reader.names()?.iter().any(|name| name.is_dav("write")),
            "owner" => owner = Some(reader.value()?).filter(|owner| !owner.is_empty()),
            _unknown => reader.skip()?,
        }
    }
    reader.end()?;
    if owner.as_ref().is_some_and(|owner| owner.len() > OWNER_MAX) {
        return Err(refusal(413, "the owner of the lock is longer than 1 KiB"));
    }
    match is_exclusive.filter(|_| is_write) {
        Some(is_exclusive) => Ok(Some(LockScope { is_exclusive, owner })),
        None => Err(refusal(422, "a lock is exclusive or shared, and for write")),
    }
}

/// Start of an element.
struct Element {
    name: PropertyName,
    lang: Option<String>,
    /// Attributes other than namespaces, as XML text.
    attributes: String,
}

impl Element {
    /// Returns its local name, if it is one of RFC 4918.
    fn dav_name(&self) -> String {
        if self.name.namespace == DAV { self.name.local.clone() } else { String::new() }
    }
}

/// A part of a body.
enum Part {
    Start(Element),
    End,
    /// XML text.
    Text(String),
}

/// A body being parsed.
struct Reader<'a> {
    inner: NsReader<&'a [u8]>,
    /// Number of open elements.
    depth: usize,
    /// Length of the values so far, bytes.
    length: usize,
}

impl<'a> Reader<'a> {
    fn new(body: &'a [u8]) -> Result<Reader<'a>, Refusal> {
        if body.len() > BODY_MAX {
            return Err(TOO_LARGE);
        }
        let text = std::str::from_utf8(body).map_err(|_| MALFORMED)?;
        if !text.chars().all(is_legal) {
            return Err(MALFORMED);
        }
        let mut inner = NsReader::from_str(text);
        inner.config_mut().expand_empty_elements = true;
        Ok(Reader { inner, depth: 0, length: 0 })
    }

    /// Returns the next part; `None` at the end of the body.
    fn next(&mut self) -> Result<Option<Part>, Refusal> {
        loop {
            let (resolved, event) = self.inner.read_resolved_event().map_err(|_| MALFORMED)?;
            let namespace = match resolved {
                ResolveResult::Bound(namespace) => plain(namespace.0)?,
                ResolveResult::Unbound => String::new(),
                ResolveResult::Unknown(_) => return Err(MALFORMED),
            };
            return Ok(Some(match event {
                Event::Start(start) => {
                    self.depth += 1;
                    if self.depth > DEPTH_MAX {
                        return Err(TOO_LARGE);
                    }
                    Part::Start(self.element(namespace, &start)?)
                }
                Event::End(_) => {
                    self.depth -= 1;
                    Part::End
                }
                Event::Text(text) => Part::Text(escape(&*text.xml10_content()).into_owned()),
                Event::CData(data) => Part::Text(escape(&*data.xml10_content()).into_owned()),
                Event::GeneralRef(reference) => Part::Text(resolve(&reference)?),
                Event::Comment(_) | Event::PI(_) | Event::Decl(_) => continue,
                Event::Eof => return Ok(None),
                Event::DocType(_) => {
                    return Err(refusal(400, "document type declarations are not accepted"));
                }
                Event::Empty(_) => unreachable!("they are expanded"),
            }));
        }
    }

    fn element(&self, namespace: String, start: &BytesStart<'_>) -> Result<Element, Refusal> {
        let local = start.local_name().into_inner().to_string();
        let is_reserved = RESERVED.contains(&&*namespace);
        if !is_name(&local) || namespace.len() > NAME_MAX || is_reserved {
            return Err(MALFORMED);
        }
        let (mut lang, mut attributes, mut names) = (None, String::new(), BTreeSet::new());
        for attribute in start.attributes() {
            let attribute = attribute.map_err(|_| MALFORMED)?;
            let value = attribute.normalized_value(XmlVersion::Implicit1_0);
            let value = value.map_err(|_| MALFORMED)?;
            if !value.chars().all(is_legal) {
                return Err(MALFORMED);
            }
            match attribute.key.as_namespace_binding() {
                // XML Namespaces 1.0 §2.2: a prefix is not bound to nothing.
                Some(PrefixDeclaration::Named(_)) if value.is_empty() => return Err(MALFORMED),
                Some(_) => continue,
                None if attribute.key.as_ref() == "xml:lang" => lang = Some(value.into_owned()),
                None => {
                    let (resolved, local) = self.inner.resolver().resolve_attribute(attribute.key);
                    let (local, space) = (
                        local.into_inner(),
                        match resolved {
                            ResolveResult::Unbound => String::new(),
                            ResolveResult::Bound(namespace) => plain(namespace.0)?,
                            ResolveResult::Unknown(_) => return Err(MALFORMED),
                        },
                    );
                    // XML Namespaces 1.0 §6.3: no attribute occurs twice.
                    if !is_name(local) || !names.insert((space.clone(), local.to_string())) {
                        return Err(MALFORMED);
                    }
                    write_attribute(&space, local, &value, &mut attributes);
                }
            }
        }
        Ok(Element { name: PropertyName { namespace, local }, lang, attributes })
    }

    /// Returns the root element, which must be this one of RFC 4918.
    fn root(&mut self, name: &str) -> Result<Element, Refusal> {
        match self.child()? {
            Some(root) if root.name.is_dav(name) => Ok(root),
            Some(_) | None => Err(refusal(400, "the body is of another method")),
        }
    }

    /// Returns the next element within the open one; `None` at its end.
    fn child(&mut self) -> Result<Option<Element>, Refusal> {
        loop {
            match self.next()?.ok_or(MALFORMED)? {
                Part::Start(element) => return Ok(Some(element)),
                Part::End => return Ok(None),
                Part::Text(_) => {}
            }
        }
    }

    /// Skips the rest of the open element.
    fn skip(&mut self) -> Result<(), Refusal> {
        let depth = self.depth;
        while self.depth >= depth {
            self.next()?.ok_or(MALFORMED)?;
        }
        Ok(())
    }

    /// Skips what follows the root.
    fn end(&mut self) -> Result<(), Refusal> {
        while let Some(part) = self.next()? {
            match part {
                Part::Text(text) if text.trim().is_empty() => {}
                Part::Text(_) | Part::Start(_) | Part::End => return Err(MALFORMED),
            }
        }
        Ok(())
    }

    /// Returns the names of the elements within the open one, without duplicates.
    fn names(&mut self) -> Result<Vec<PropertyName>, Refusal> {
        let mut names: Vec<PropertyName> = Vec::new();
        while let Some(element) = self.child()? {
            self.skip()?;
            if !names.contains(&element.name) {
                names.push(property_name(element.name)?);
            }
            if names.len() > PROPERTIES_MAX {
                return Err(TOO_LARGE);
            }
        }
        Ok(names)
    }

    /// Reads the properties within the open `prop`.
    fn changes(
        &mut self,
        is_set: bool,
        lang: Option<&str>,
        changes: &mut Vec<Change>,
    ) -> Result<(), Refusal> {
        while let Some(element) = self.child()? {
            if changes.len() == PROPERTIES_MAX {
                return Err(TOO_LARGE);
            }
            let name = property_name(element.name)?;
            changes.push(match is_set {
                true => {
                    let lang = element.lang.or_else(|| lang.map(str::to_string));
                    Change::Set(Property { name, lang, value: self.value()? })
                }
                false => {
                    self.skip()?;
                    Change::Remove(name)
                }
            });
        }
        Ok(())
    }

    /// Returns the content of the open element.
    fn value(&mut self) -> Result<String, Refusal> {
        let (mut value, mut open) = (String::new(), Vec::new());
        loop {
            match self.next()?.ok_or(MALFORMED)? {
                Part::Text(text) => value.push_str(&text),
                Part::Start(Element { name, lang, attributes }) => {
                    let (space, local) = (escape(&name.namespace), &name.local);
                    write!(value, "<{local} xmlns=\"{space}\"").expect("a string");
                    if let Some(lang) = lang {
                        write!(value, " xml:lang=\"{}\"", escape(&lang)).expect("a string");
                    }
                    write!(value, "{attributes}>").expect("a string");
                    open.push(name.local);
                }
                Part::End => match open.pop() {
                    Some(local) => write!(value, "</{local}>").expect("a string"),
                    None => break,
                },
            }
            if self.length + value.len() > BODY_MAX {
                return Err(TOO_LARGE);
            }
        }
        self.length += value.len();
        Ok(value)
    }
}

/// Namespaces of the prefixes `xml` and `xmlns`, which no other prefix may have.
const RESERVED: [&str; 2] =
    ["http://www.w3.org/XML/1998/namespace", "http://www.w3.org/2000/xmlns/"];

/// Writes an attribute, with a prefix of its own for its namespace.
fn write_attribute(space: &str, local: &str, value: &str, out: &mut String) {
    let prefix = out.len();
    match space {
        "" => write!(out, " {local}"),
        it if it == RESERVED[0] => write!(out, " xml:{local}"),
        other => write!(out, " xmlns:a{prefix}=\"{}\" a{prefix}:{local}", escape(other)),
    }
    .expect("a string");
    // Ends of lines and tabs would be read as blanks.
    let value = escape(value).replace('\n', "&#10;").replace('\t', "&#9;");
    write!(out, "=\"{value}\"").expect("a string");
}

/// Returns a namespace without references to characters.
fn plain(namespace: &str) -> Result<String, Refusal> {
    let plain = unescape(namespace).map_err(|_| MALFORMED)?;
    if plain.chars().all(is_legal) { Ok(plain.into_owned()) } else { Err(MALFORMED) }
}

/// Returns a name as that of a property.
fn property_name(name: PropertyName) -> Result<PropertyName, Refusal> {
    if name.local.len() > NAME_MAX { Err(TOO_LARGE) } else { Ok(name) }
}

/// Returns whether this is a name without a colon (XML 1.0 §2.3, XML Namespaces 1.0 §3).
fn is_name(local: &str) -> bool {
    let first = |c: char| {
        matches!(c, 'A'..='Z' | '_' | 'a'..='z' | '\u{c0}'..='\u{d6}' | '\u{d8}'..='\u{f6}'
            | '\u{f8}'..='\u{2ff}' | '\u{370}'..='\u{37d}' | '\u{37f}'..='\u{1fff}'
            | '\u{200c}'..='\u{200d}' | '\u{2070}'..='\u{218f}' | '\u{2c00}'..='\u{2fef}'
            | '\u{3001}'..='\u{d7ff}' | '\u{f900}'..='\u{fdcf}' | '\u{fdf0}'..='\u{fffd}'
            | '\u{10000}'..='\u{effff}')
    };
    let other = |c: char| {
        first(c)
            || matches!(c, '-' | '.' | '0'..='9' | '\u{b7}' | '\u{300}'..='\u{36f}'
                | '\u{203f}'..='\u{2040}')
    };
    local.starts_with(first) && local.chars().all(other)
}

/// Returns the text of a character reference or predefined entity, as XML text.
fn resolve(reference: &BytesRef<'_>) -> Result<String, Refusal> {
    match reference.resolve_char_ref().map_err(|_| MALFORMED)? {
        Some(c) if is_legal(c) => Ok(escape(String::from(c)).into_owned()),
        Some(_) => Err(MALFORMED),
        None => {
            let text = resolve_predefined_entity(reference).ok_or(MALFORMED)?;
            Ok(escape(text).into_owned())
        }
    }
}
