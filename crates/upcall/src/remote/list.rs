//! `upcall ls` and `upcall stat`: names and attributes of files.

use super::frame::{self, Frame};
use super::{Outcome, Server, Trouble, say_json, trees};
use crate::clock;
use crate::output;
use clap::Args;
use client::{Entry, Error, Kind, Metadata};
use serde::Serialize;
use std::fmt::Write as _;
use std::io::{self, IsTerminal as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Options of `upcall ls`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Ls {
    #[command(flatten)]
    server: Server,

    /// Directories and files
    #[arg(value_name = "PATH", default_value = "/")]
    paths: Vec<PathBuf>,

    /// Show permissions, links, owner, group, size and date
    #[arg(short, long)]
    long: bool,

    /// List subdirectories recursively, one path per line
    #[arg(short = 'R', long)]
    recursive: bool,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Options of `upcall stat`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Stat {
    #[command(flatten)]
    server: Server,

    /// Files; for a link, the link itself
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// A file in the output for programs.
#[derive(Debug, Serialize)]
struct Shown {
    path: String,
    /// Bytes of a path that is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    kind: &'static str,
    size: u64,
    mode: String,
    user: String,
    group: String,
    links: u64,
    inode: u64,
    modified: String,
    accessed: String,
    changed: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
}

/// A line of the output: name, and attributes if wanted.
struct Line {
    path: PathBuf,
    name: PathBuf,
    metadata: Option<Metadata>,
}

fn word(kind: Kind) -> (&'static str, char) {
    match kind {
        Kind::File => ("file", '-'),
        Kind::Directory => ("directory", 'd'),
        Kind::Symlink => ("link", 'l'),
        Kind::Fifo => ("pipe", 'p'),
        Kind::Socket => ("socket", 's'),
        Kind::CharDevice => ("character device", 'c'),
        Kind::BlockDevice => ("block device", 'b'),
    }
}

/// Formats permissions as `ls` does: `rwxr-xr-x`.
fn permissions(mode: u32) -> String {
    let mut text: Vec<char> = (0..9)
        .map(|bit| if mode & (0o400 >> bit) == 0 { '-' } else { ['r', 'w', 'x'][bit % 3] })
        .collect();
    for (bit, place, sign) in [(0o4000, 2, 's'), (0o2000, 5, 's'), (0o1000, 8, 't')] {
        if mode & bit != 0 {
            text[place] = if text[place] == 'x' { sign } else { sign.to_ascii_uppercase() };
        }
    }
    text.into_iter().collect()
}

/// Lists files.
pub(crate) fn ls(ls: &Ls) -> ExitCode {
    frame::run(&ls.server, false, |frame| {
        let (mut shown, mut complete) = (Vec::new(), true);
        let mut code = frame::each(&ls.paths, |path| {
            let lines = lines(frame, ls, path, &mut complete)?;
            match ls.json {
                true => lines.into_iter().try_for_each(|line| {
                    shown.push(described(frame, line)?);
                    Ok(())
                }),
                false => say_lines(frame, ls, &lines),
            }
        })?;
        if ls.json {
            say_json(&shown)?;
        }
        if !complete {
            code = ExitCode::from(1);
        }
        Ok(code)
    })
}

/// Returns the lines for a path, in order. Directories and files that cannot be read are named on
/// standard error, and `complete` becomes false.
fn lines(frame: &Frame, ls: &Ls, path: &Path, complete: &mut bool) -> Outcome<Vec<Line>> {
    let wanted = ls.long || ls.json;
    let metadata = frame.client.metadata(path)?;
    if !metadata.is_dir() {
        let (path, name) = (path.to_path_buf(), path.to_path_buf());
        return Ok(vec![Line { path, name, metadata: Some(metadata) }]);
    }
    let mut found: Vec<(PathBuf, Entry)> = Vec::new();
    let mut unread = |_: &Path, error: Error| {
        frame::note(&error.into());
        *complete = false;
    };
    if ls.recursive {
        let mut each = |path: &Path, entry| {
            found.push((path.to_path_buf(), entry));
            Ok(true)
        };
        trees::walk(&frame.client, path, &mut each, &mut unread)?;
    } else {
        for entry in frame.client.read_dir(path)? {
            let entry = entry?;
            found.push((path.join(&entry.name), entry));
        }
    }
    found.sort_by(|(a, _), (b, _)| a.cmp(b));
    let known: Vec<Option<Metadata>> = match wanted {
        true => trees::metadata(&frame.client, &found, &mut unread)?,
        false => found.iter().map(|_| None).collect(),
    };
    let many = ls.paths.len() > 1;
    let named = found.into_iter().zip(known).filter(|(_, known)| !wanted || known.is_some());
    Ok(named
        .map(|((full, _), metadata)| {
            let below = full.strip_prefix(path).unwrap_or(&full).to_path_buf();
            let name = if many { full.clone() } else { below };
            Line { path: full, name, metadata }
        })
        .collect())
}

fn say_lines(frame: &Frame, ls: &Ls, lines: &[Line]) -> Outcome<()> {
    let all = || lines.iter().filter_map(|line| line.metadata.as_ref());
    let width = |of: fn(&Metadata) -> usize| all().map(of).max().unwrap_or(0);
    let widths = [
        width(|it| it.links.to_string().len()),
        width(|it| it.user.chars().count()),
        width(|it| it.group.chars().count()),
        width(|it| it.size.to_string().len()),
    ];
    let terminal = io::stdout().is_terminal();
    let mut text = Vec::new();
    for line in lines {
        if let (Some(it), true) = (&line.metadata, ls.long) {
            let [links, user, group, size] = widths;
            let (sign, date) = (word(it.kind).1, clock::iso(it.modified));
            let head = format!(
                "{sign}{} {:>links$} {:user$} {:group$} {:>size$} {date} ",
                permissions(it.mode),
                it.links,
                it.user,
                it.group,
                it.size
            );
            text.extend(head.into_bytes());
        }
        text.extend(plain(&line.name, terminal));
        if let (true, Some(target)) = (ls.long, target(frame, line)?) {
            text.extend(b" -> ");
            text.extend(plain(&target, terminal));
        }
        text.push(b'\n');
    }
    frame::say_bytes(&text)
}

/// Returns a name as it is; on a terminal without control characters.
fn plain(name: &Path, terminal: bool) -> Vec<u8> {
    match terminal {
        true => name.to_string_lossy().replace(output::is_unprintable, "?").into_bytes(),
        false => name.as_os_str().as_bytes().to_vec(),
    }
}

/// Returns the target of a link; `None` if it is gone meanwhile or cannot be read.
fn target(frame: &Frame, line: &Line) -> Outcome<Option<PathBuf>> {
    if !line.metadata.as_ref().is_some_and(Metadata::is_symlink) {
        return Ok(None);
    }
    match frame.client.read_link(&line.path) {
        Ok(target) => Ok(Some(target)),
        Err(error) if error.is_fatal() => Err(error.into()),
        Err(_) => Ok(None),
    }
}

fn described(frame: &Frame, line: Line) -> Outcome<Shown> {
    let target = target(frame, &line)?;
    let Some(it) = line.metadata else {
        return Err(Trouble::Host(format!("{} was not looked at", line.path.display())));
    };
    Ok(Shown {
        path: line.path.to_string_lossy().into_owned(),
        path_hex: line.path.to_str().is_none().then(|| hex(&line.path)),
        kind: word(it.kind).0,
        size: it.size,
        mode: format!("{:04o}", it.mode),
        user: it.user,
        group: it.group,
        links: it.links,
        inode: it.inode,
        modified: clock::iso(it.modified),
        accessed: clock::iso(it.accessed),
        changed: clock::iso(it.changed),
        target: target.map(|target| target.to_string_lossy().into_owned()),
    })
}

/// Returns the bytes of a path as hexadecimal digits.
fn hex(path: &Path) -> String {
    path.as_os_str().as_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Shows attributes.
pub(crate) fn stat(stat: &Stat) -> ExitCode {
    frame::run(&stat.server, false, |frame| {
        let mut all = Vec::new();
        let code = frame::each(&stat.paths, |path| {
            let metadata = Some(frame.client.symlink_metadata(path)?);
            let (path, name) = (path.to_path_buf(), path.to_path_buf());
            all.push(described(frame, Line { path, name, metadata })?);
            Ok(())
        })?;
        match stat.json {
            true => say_json(&all)?,
            false => frame::emit(&all.iter().map(text).collect::<String>())?,
        }
        Ok(code)
    })
}

fn text(shown: &Shown) -> String {
    let mut text = String::new();
    let rows = [
        ("path", shown.path.escape_debug().to_string()),
        ("kind", shown.kind.to_string()),
        ("size", crate::size::counted(shown.size, "byte", "bytes")),
        ("mode", shown.mode.clone()),
        ("owner", format!("{}:{}", shown.user, shown.group)),
        ("links", shown.links.to_string()),
        ("inode", shown.inode.to_string()),
        ("modified", shown.modified.clone()),
        ("accessed", shown.accessed.clone()),
        ("changed", shown.changed.clone()),
    ];
    for (name, value) in rows {
        writeln!(text, "{name:<9} {value}").expect("a string");
    }
    if let Some(target) = &shown.target {
        writeln!(text, "{:<9} {}", "target", target.escape_debug()).expect("a string");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_are_shown_as_everywhere() {
        for (mode, text) in [
            (0o755, "rwxr-xr-x"),
            (0o4711, "rws--x--x"),
            (0o1777, "rwxrwxrwt"),
            (0o2640, "rw-r-S---"),
        ] {
            assert_eq!(permissions(mode), text);
        }
    }
}
