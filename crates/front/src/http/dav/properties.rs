//! Properties of files: *live* ones, which the server computes, and *dead* ones, which clients set.
//!
//! All dead properties of a file are in one extended attribute, in the form of a `PROPPATCH` that
//! sets them, so they change at once.

use super::super::answer::{content_type, etag};
use base::{Error, Kind, Name, Stat, StatFs, Time};
use std::fmt::Write as _;
use wire::dav::{
    Change, DAV, Property, PropertyName, SUPPORTED_LOCKS, Wanted, write_property, write_propstat,
    write_text,
};
use wire::http::date;

/// Extended attribute with the dead properties.
pub(crate) const ATTRIBUTE: &[u8] = b"user.upcall.dav";

/// Namespace of the property for whether a file may be executed (mod_dav, davfs2).
const APACHE: &str = "http://apache.org/dav/props/";

/// The live properties of RFC 4918 §15, RFC 4331 and mod_dav; whether each is part of *all*.
const LIVE: &[(&str, &str, bool)] = &[
    (DAV, "resourcetype", true),
    (DAV, "displayname", true),
    (DAV, "creationdate", true),
    (DAV, "getlastmodified", true),
    (DAV, "getcontentlength", true),
    (DAV, "getcontenttype", true),
    (DAV, "getetag", true),
    (DAV, "supportedlock", true),
    (DAV, "lockdiscovery", true),
    (APACHE, "executable", true),
    (DAV, "quota-available-bytes", false),
    (DAV, "quota-used-bytes", false),
];

/// A file, as its live properties see it.
pub(super) struct Subject<'a> {
    /// Path from the root.
    pub(super) path: &'a [Name],
    pub(super) stat: &'a Stat,
    /// Usage of its tree, where requested and available.
    pub(super) space: Option<&'a StatFs>,
    /// Its locks, if they are requested: the value of `lockdiscovery`.
    pub(super) locks: &'a str,
}

/// Returns whether the locks are needed for what is requested.
pub(super) fn wants_locks(wanted: &Wanted) -> bool {
    let Wanted::These(names) = wanted else { return true };
    names.iter().any(|name| name.is_dav("lockdiscovery"))
}

fn is_live(name: &PropertyName) -> bool {
    LIVE.iter()
        .any(|(namespace, local, _)| (*namespace, *local) == (&*name.namespace, &*name.local))
}

/// Returns whether dead properties are needed for what is requested.
pub(super) fn wants_dead(wanted: &Wanted) -> bool {
    match wanted {
        Wanted::All(_) | Wanted::Names => true,
        Wanted::These(names) => !names.iter().all(is_live),
    }
}

/// Returns whether the usage of the tree is needed.
pub(super) fn wants_space(wanted: &Wanted) -> bool {
    let (Wanted::All(names) | Wanted::These(names)) = wanted else { return true };
    names.iter().any(|name| name.namespace == DAV && name.local.starts_with("quota-"))
}

/// Returns the value of a live property, XML text; `None` if the file has none.
fn live(name: &PropertyName, of: &Subject<'_>) -> Option<String> {
    let stat = of.stat;
    let is_directory = stat.kind == Kind::Directory;
    let file = |value: String| (!is_directory).then_some(value);
    let directory = |blocks: fn(&StatFs) -> u64| {
        let space = of.space.filter(|_| is_directory)?;
        Some(blocks(space).saturating_mul(u64::from(space.block_size)).to_string())
    };
    let text = |text: &str| {
        let mut value = String::new();
        write_text(text, &mut value);
        value
    };
    match (&*name.namespace, &*name.local) {
        (APACHE, "executable") => file(if stat.mode & 0o111 == 0 { "F" } else { "T" }.into()),
        (DAV, "resourcetype") if is_directory => Some("<D:collection/>".into()),
        (DAV, "resourcetype") => Some(String::new()),
        (DAV, "displayname") => {
            let name = of.path.last().map(|name| String::from_utf8_lossy(name.as_bytes()));
            Some(text(&name.unwrap_or_default()))
        }
        (DAV, "creationdate") => stat.created.map(iso),
        (DAV, "supportedlock") => Some(SUPPORTED_LOCKS.into()),
        (DAV, "lockdiscovery") => Some(of.locks.to_string()),
        (DAV, "getlastmodified") => Some(date(stat.modified).to_string()),
        (DAV, "getcontentlength") => file(stat.size.to_string()),
        (DAV, "getcontenttype") => file(text(&content_type(of.path))),
        (DAV, "getetag") => file(text(&etag(stat))),
        (DAV, "quota-available-bytes") => directory(|space| space.blocks_available),
        (DAV, "quota-used-bytes") => {
            directory(|space| space.blocks.saturating_sub(space.blocks_free))
        }
        _dead => None,
    }
}

/// Formats a date as in RFC 3339.
fn iso(time: Time) -> String {
    String::from_utf8_lossy(&super::super::listing::iso(time)).into_owned()
}

/// Writes the properties of a file that are requested.
pub(super) fn describe(of: &Subject<'_>, dead: &[Property], wanted: &Wanted, out: &mut String) {
    let (mut found, mut missing) = (String::new(), String::new());
    let all = LIVE.iter().filter(|(.., is_cheap)| *is_cheap || *wanted == Wanted::Names);
    let all = all.map(|(namespace, local, _)| PropertyName {
        namespace: (*namespace).to_string(),
        local: (*local).to_string(),
    });
    match wanted {
        Wanted::Names => {
            let live = all.filter(|name| live(name, of).is_some());
            let names = live.chain(dead.iter().map(|property| property.name.clone()));
            names.for_each(|name| write_property(&name, None, "", &mut found));
        }
        Wanted::All(included) => {
            for name in all.chain(included.iter().filter(|name| is_live(name)).cloned()) {
                if let Some(value) = live(&name, of) {
                    write_property(&name, None, &value, &mut found);
                }
            }
            dead.iter().for_each(|property| write_dead(property, &mut found));
        }
        Wanted::These(names) => {
            for name in names {
                let stored = dead.iter().find(|property| property.name == *name);
                match (live(name, of), stored) {
                    (Some(value), _) => write_property(name, None, &value, &mut found),
                    (None, Some(property)) => write_dead(property, &mut found),
                    (None, None) => write_property(name, None, "", &mut missing),
                }
            }
        }
    }
    // A response has at least one group (RFC 4918 §14.24).
    if found.is_empty() && missing.is_empty() {
        return write!(
            out,
            "<D:propstat><D:prop/><D:status>HTTP/1.1 200 OK</D:status></D:propstat>"
        )
        .expect("a string");
    }
    write_propstat(&found, 200, out);
    write_propstat(&missing, 404, out);
}

fn write_dead(property: &Property, out: &mut String) {
    write_property(&property.name, property.lang.as_deref(), &property.value, out);
}

/// Returns the dead properties in the value of the attribute; `None` if it is invalid, since other
/// programs can write it, too.
fn decode(bytes: &[u8]) -> Option<Vec<Property>> {
    let changes = wire::dav::proppatch(bytes).ok()?;
    let property = |change| if let Change::Set(property) = change { Some(property) } else { None };
    changes.into_iter().map(property).collect()
}

/// Returns the value of the attribute with these properties; `None` if they would not be the same
/// when it is read: there are too many of them.
pub(super) fn encode(properties: &[Property]) -> Option<Vec<u8>> {
    let mut text = "<D:propertyupdate xmlns:D=\"DAV:\"><D:set><D:prop>".to_string();
    properties.iter().for_each(|property| write_dead(property, &mut text));
    text.push_str("</D:prop></D:set></D:propertyupdate>");
    let is_same = properties.is_empty() || decode(text.as_bytes()).as_deref() == Some(properties);
    is_same.then(|| text.into_bytes())
}

/// Result of planning the changes of a `PROPPATCH`.
#[derive(Debug)]
pub(super) struct Plan {
    /// All dead properties afterwards, and whether they differ from those before.
    pub(super) dead: Vec<Property>,
    pub(super) changes_dead: bool,
    /// Value of the attribute with them.
    pub(super) value: Vec<u8>,
    /// Permissions afterwards.
    pub(super) mode: Option<u32>,
}

/// Plans changes of a file with these attributes and dead properties.
///
/// # Errors
/// With the indices of the changes that are refused.
pub(super) fn plan(
    changes: &[Change],
    stat: &Stat,
    mut dead: Vec<Property>,
) -> Result<Plan, Vec<usize>> {
    let (mut mode, mut changes_dead, mut refused) = (None, false, Vec::new());
    for (at, change) in changes.iter().enumerate() {
        let name = change.name();
        match change {
            Change::Set(property) if name.namespace == APACHE && name.local == "executable" => {
                let old = mode.unwrap_or(stat.mode);
                match property.value.trim() {
                    _any if stat.kind != Kind::File => refused.push(at),
                    // Those may execute it that may read it.
                    "T" => mode = Some(old | (old & 0o444) >> 2),
                    "F" => mode = Some(old & !0o111),
                    _other => refused.push(at),
                }
            }
            Change::Set(_) | Change::Remove(_) if is_live(name) => refused.push(at),
            Change::Set(property) => {
                changes_dead = true;
                match dead.iter_mut().find(|it| it.name == *name) {
                    Some(old) => *old = property.clone(),
                    None => dead.push(property.clone()),
                }
            }
            // RFC 4918 §14.23: removing a property that does not exist is no error.
            Change::Remove(_) => {
                let before = dead.len();
                dead.retain(|it| it.name != *name);
                changes_dead |= dead.len() < before;
            }
        }
    }
    if refused.is_empty() {
        Ok(Plan { dead, changes_dead, value: Vec::new(), mode })
    } else {
        Err(refused)
    }
}

/// Returns the dead properties in a reply to the request for the attribute; `Io` if it is invalid.
pub(super) fn in_reply(reply: Result<tree::Reply, Error>) -> Result<Vec<Property>, Error> {
    match reply {
        Ok(tree::Reply::Bytes(bytes)) => decode(&bytes).ok_or(Error::Io),
        Ok(other) => unreachable!("{other:?} is no attribute"),
        Err(Error::NoAttribute | Error::Unsupported) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}
