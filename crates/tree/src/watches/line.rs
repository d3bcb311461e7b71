//! Lines of a watch: a JSON object each.

use super::Coverage;
use super::place::Child;
use crate::change::Change;
use base::{Error, Stat};
use std::io::Write as _;

/// Beats of a watch without changes.
pub(super) const BEAT: &[u8] = b"\n";

/// A reader that is too far behind has lost changes.
pub(super) const LOST: &[u8] = b"{\"change\":\"lost\"}\n";

/// Adds `"path":…`; a path that is not UTF-8 is in `"path_hex"`, too.
fn add_path(path: &[u8], out: &mut Vec<u8>) {
    let path = if path.is_empty() { b"/" } else { path };
    out.extend_from_slice(b"\"path\":");
    add_text(&String::from_utf8_lossy(path), out);
    if std::str::from_utf8(path).is_err() {
        out.extend_from_slice(b",\"path_hex\":\"");
        path.iter().for_each(|byte| write!(out, "{byte:02x}").expect("memory"));
        out.push(b'"');
    }
}

fn add_text(text: &str, out: &mut Vec<u8>) {
    serde_json::to_writer(&mut *out, text).expect("a string is JSON");
}

/// The changes beneath `path` are reported from here on.
pub(super) fn watching(path: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"change\":\"watching\",");
    add_path(path, out);
    out.extend_from_slice(b"}\n");
}

/// A path cannot be watched.
pub(super) fn failed(path: &[u8], error: Error, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"change\":\"error\",");
    add_path(path, out);
    out.extend_from_slice(b",\"error\":");
    add_text(&error.to_string(), out);
    out.extend_from_slice(b"}\n");
}

/// A file was created, removed or replaced, or has new contents or attributes.
pub(super) fn changed(
    what: &str,
    path: &[u8],
    child: Option<&Child>,
    stat: Option<&Stat>,
    out: &mut Vec<u8>,
) {
    write!(out, "{{\"change\":\"{what}\",").expect("memory");
    add_path(path, out);
    if let Some(child) = child {
        let Child { key: (_, inode), kind } = child;
        write!(out, ",\"type\":\"{}\",\"inode\":{inode}", kind.name()).expect("memory");
    }
    if let Some(stat) = stat {
        write!(out, ",\"size\":{}", stat.size).expect("memory");
    }
    out.extend_from_slice(b"}\n");
}

/// Changes that are seen, and whether with the names of entries.
pub(super) fn coverage(coverage: Coverage, names: bool, out: &mut Vec<u8>) {
    let Coverage { is_complete, has_unions } = coverage;
    let flags = format!("\"complete\":{is_complete},\"unions\":{has_unions},\"names\":{names}");
    writeln!(out, "{{\"change\":\"watching\",{flags}}}").expect("memory");
}

/// A change of a file given by its number; the name of an entry only where it may be known.
pub(super) fn of_file(change: &Change, device: u64, with_names: bool, out: &mut Vec<u8>) {
    let (what, key) = match change {
        Change::Entry(dir, _) => ("entry", dir),
        Change::Contents(file) => ("written", file),
        Change::Attributes(file) => ("attributes", file),
        Change::Moved(file) => ("moved", file),
    };
    let number = base::file_number(*key, device);
    write!(out, "{{\"change\":\"{what}\",\"file\":{number}").expect("memory");
    if let Change::Entry(_, name) = change
        && let (true, Ok(name)) = (with_names, std::str::from_utf8(name.as_bytes()))
    {
        out.extend_from_slice(b",\"name\":");
        add_text(name, out);
    }
    out.extend_from_slice(b"}\n");
}
