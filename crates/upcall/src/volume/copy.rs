//! `upcall volume copy`: copies a tree of files into a volume, or out of it.
//!
//! A second run continues where the first one ended: a file is complete when its size and its
//! modification time are those of the original, because the time is set last. An incomplete file is
//! removed after an interrupt.

mod host;
mod inside;
mod side;
mod work;

use super::direct::Direct;
use super::file::{self, How};
use base::{Error, Kind, Name};
use clap::Args;
use host::Host;
use inside::Inside;
use side::Side as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use work::{From, To, Work};

/// Options of `upcall volume copy`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Copy {
    /// Source: a path on this host, or FILE:/PATH in a volume; snapshots are at
    /// FILE:/.upcall/snapshots/NAME
    #[arg(value_name = "FROM")]
    from: PathBuf,

    /// Target: a path on this host, or FILE:/PATH in a volume. The contents of a directory go into
    /// it; a file goes into an existing directory, which is required if the path ends with a slash
    #[arg(value_name = "TO")]
    to: PathBuf,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Source or target.
#[derive(Debug)]
enum End<'a> {
    Host(&'a Path),
    Volume(PathBuf, Vec<Name>),
}

impl End<'_> {
    /// Parses a path, which is in a volume if it has the form and its first part is a volume's
    /// file.
    fn of(path: &Path) -> Result<End<'_>, String> {
        let bytes = path.as_os_str().as_bytes();
        let Some((file, inside)) = split(bytes) else { return Ok(End::Host(path)) };
        let file = Path::new(std::ffi::OsStr::from_bytes(file));
        let Ok(meta) = file.metadata() else { return Ok(End::Host(path)) };
        if !meta.is_file() && !meta.file_type().is_block_device() {
            return Ok(End::Host(path));
        }
        let parts = inside.split(|byte| *byte == b'/').filter(|part| !part.is_empty());
        let names: Result<Vec<Name>, Error> = parts.map(Name::new).collect();
        match names {
            Ok(names) if names.iter().all(Name::plain) => {
                Ok(End::Volume(file.to_path_buf(), names))
            }
            _ => Err(format!("{}: write the whole path, without '..'", path.display())),
        }
    }
}

/// Splits `FILE:/PATH`.
fn split(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = bytes.windows(2).position(|pair| pair == b":/")?;
    (colon > 0).then(|| (&bytes[..colon], &bytes[colon + 1..]))
}

/// Copies.
pub(crate) fn run(copy: &Copy) -> Result<ExitCode, String> {
    reactor::raise_open_files();
    reactor::clear_umask();
    match (End::of(&copy.from)?, End::of(&copy.to)?) {
        (End::Host(from), End::Volume(file, to)) => copy_in(copy, from, &file, &to),
        (End::Volume(file, from), End::Host(to)) => copy_out(copy, &file, &from, to),
        (End::Volume(..), End::Volume(..)) => {
            Err("both are in volumes: copy out to a directory first, and from there".to_string())
        }
        (End::Host(from), End::Host(to)) => Err(neither(from, to)),
    }
}

fn neither(from: &Path, to: &Path) -> String {
    for path in [from, to] {
        if let Some((file, _)) = split(path.as_os_str().as_bytes()) {
            let file = String::from_utf8_lossy(file);
            return format!(
                "{file} is not a volume: choose an existing one, or create it with 'upcall volume \
                 create {file}'"
            );
        }
    }
    format!(
        "neither {} nor {} is in a volume: write one of them as FILE:/PATH",
        from.display(),
        to.display()
    )
}

fn shown(file: &Path, names: &[Name]) -> String {
    let path: String = names.iter().map(|name| format!("/{name}")).collect();
    format!("{}:{}", file.display(), if names.is_empty() { "/" } else { &path })
}

/// Returns whether a path has a trailing slash.
fn ends_with_slash(path: &Path) -> bool {
    path.as_os_str().as_bytes().ends_with(b"/")
}

/// Returns the error for a target with a trailing slash that is not a directory.
fn no_directory(to: &Path, exists: bool) -> String {
    let to = to.display();
    match exists {
        true => format!("cannot copy a file into {to}: not a directory; leave the last slash out"),
        false => format!("cannot copy a file into {to}: no such directory; make it first"),
    }
}

fn copy_in(copy: &Copy, from: &Path, file: &Path, to: &[Name]) -> Result<ExitCode, String> {
    let root = reactor::is_root();
    let missing =
        |error| format!("cannot copy {}: {error}; choose an existing path", from.display());
    let (node, stat) = Host::node(from).map_err(missing)?;
    if to.first().is_some_and(|name| name.as_bytes() == b".upcall") {
        return Err(format!("{}: /.upcall is read-only; choose another path", shown(file, to)));
    }
    let name = from.canonicalize().ok();
    let name = name.as_ref().and_then(|path| path.file_name());
    let name = name.and_then(|name| Name::new(name.as_bytes()).ok());
    let opened = file::open(file, &How::WRITE)?;
    let volume = file.metadata().map_err(|error| format!("{}: {error}", file.display()))?;
    let mut inside = Inside::new(Direct::new(opened, false), root);
    let (above, last) = match to.split_last() {
        Some((last, above)) => (above, Some(last.clone())),
        None => (to, None),
    };
    let dir = inside.direct.resolve(above).map_err(|error| {
        format!("{}: {error}; copy to a directory that exists", shown(file, above))
    })?;
    if stat.kind != Kind::Directory && ends_with_slash(&copy.to) {
        let dir = inside.direct.resolve(to);
        let found = dir.and_then(|dir| {
            let found = inside.direct.stat(dir);
            inside.release(dir);
            found
        });
        match found {
            Ok(found) if found.kind == Kind::Directory => {}
            found => return Err(no_directory(&copy.to, found.is_ok())),
        }
    }
    let mut host = Host::new(root);
    let except = Some((volume.dev(), volume.ino()));
    let (from, to) = (From { node, stat, name }, To { dir, name: last });
    let report = Work::new(&mut host, &mut inside, except)?.copy(from, to);
    inside.direct.finish(file)?;
    report.map(|report| report.emit(copy.json))
}

fn copy_out(copy: &Copy, file: &Path, from: &[Name], to: &Path) -> Result<ExitCode, String> {
    let root = reactor::is_root();
    let opened = file::open(file, &How::READ)?;
    let mut inside = Inside::new(Direct::new(opened, true), root);
    let missing =
        |error| format!("cannot copy {}: {error}; choose an existing path", shown(file, from));
    let node = inside.direct.resolve(from).map_err(missing)?;
    let stat = inside.direct.stat(node).map_err(missing)?;
    let refuse = |error: rustix::io::Errno| {
        format!("cannot copy to {}: {error}; copy into a directory that exists", to.display())
    };
    if stat.kind != Kind::Directory && ends_with_slash(to) && !to.is_dir() {
        // Without its slash: the path of a plain file with one is not found.
        return Err(no_directory(to, to.components().as_path().symlink_metadata().is_ok()));
    }
    let mut host = Host::new(root);
    let to = match Host::place(to) {
        Ok((dir, name)) => To { dir, name: Some(name) },
        // `.`, `..` or `/`: always an existing directory.
        Err(rustix::io::Errno::ISDIR) => {
            let (dir, stat) = Host::node(to).map_err(refuse)?;
            assert_eq!(stat.kind, Kind::Directory);
            To { dir, name: None }
        }
        Err(error) => return Err(refuse(error)),
    };
    let from = From { node, stat, name: from.last().cloned() };
    let report = Work::new(&mut inside, &mut host, None)?.copy(from, to)?;
    inside.release(node);
    Ok(report.emit(copy.json))
}
