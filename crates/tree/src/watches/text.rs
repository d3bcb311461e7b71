//! Paths of watches, as text.

use base::{Error, Name};

/// Splits a path, and returns whether everything beneath it is meant.
pub(super) fn parse(text: &[u8]) -> Result<(Vec<Name>, bool), Error> {
    let rest = text.strip_prefix(b"/").ok_or(Error::Invalid)?;
    let mut parts: Vec<&[u8]> =
        rest.split(|byte| *byte == b'/').filter(|part| !part.is_empty()).collect();
    let is_deep = parts.last() == Some(&b"**".as_slice());
    if is_deep {
        parts.pop();
    }
    let names: Vec<Name> = parts.into_iter().map(Name::new).collect::<Result<_, _>>()?;
    if names.iter().any(|name| !name.plain()) {
        return Err(Error::Invalid);
    }
    Ok((names, is_deep))
}

/// Returns the path of names.
pub(super) fn display(names: &[Name]) -> Vec<u8> {
    names.iter().fold(Vec::new(), |path, name| join(&path, name))
}

/// Returns the path of an entry of a directory.
pub(super) fn join(path: &[u8], name: &Name) -> Vec<u8> {
    let mut path = path.to_vec();
    path.push(b'/');
    path.extend_from_slice(name.as_bytes());
    path
}

/// Returns the memory of a directory or an entry with this length of its path or name.
pub(super) fn bytes_of(length: usize) -> usize {
    200 + 2 * length
}

/// Returns the first of all names.
pub(super) fn least() -> Name {
    Name::new(&[1]).expect("a name")
}
