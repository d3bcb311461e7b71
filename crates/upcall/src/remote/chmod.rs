//! `upcall chmod`: permission bits of files of a server.

use super::frame::{self, Frame};
use super::{Outcome, Server, trees};
use clap::Args;
use client::{Entry, Kind, Metadata};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Options of `upcall chmod`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Chmod {
    #[command(flatten)]
    server: Server,

    /// Permissions, octal or symbolic: 644, 2775, u+x, go-w, a=rX. Up to four octal digits keep the
    /// set-id bits of directories; without u, g, o or a the umask of this process applies
    #[arg(value_name = "MODE", value_parser = parse)]
    mode: Mode,

    /// Files and directories; for a link, its target
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,

    /// Change directories recursively, except links
    #[arg(short = 'R', long)]
    recursive: bool,
}

/// Changes modes.
pub(crate) fn run(chmod: &Chmod) -> ExitCode {
    frame::run(&chmod.server, false, |frame| {
        let mut complete = true;
        let code = frame::each(&chmod.paths, |path| {
            let known = frame.client.metadata(path)?;
            frame.client.set_mode(path, chmod.mode.of(known.mode, known.is_dir()))?;
            if !chmod.recursive || !known.is_dir() {
                return Ok(());
            }
            below(frame, &chmod.mode, path, &mut complete)
        })?;
        Ok(if complete { code } else { ExitCode::from(1) })
    })
}

/// Changes the mode of everything below a directory, of each directory before it is entered.
fn below(frame: &Frame, mode: &Mode, top: &Path, complete: &mut bool) -> Outcome<()> {
    let mut unread = Vec::new();
    let mut each = |path: &Path, entry: Entry| {
        if entry.kind == Kind::Symlink {
            return Ok(false);
        }
        match one(frame, mode, top, path, entry.metadata) {
            Err(trouble) if trouble.is_fatal() => return Err(trouble),
            Err(trouble) => {
                frame::note(&trouble);
                *complete = false;
            }
            Ok(()) => {}
        }
        Ok(true)
    };
    trees::walk(&frame.client, top, &mut each, &mut |_, error| unread.push(error))?;
    *complete &= unread.is_empty();
    unread.into_iter().for_each(|error| frame::note(&error.into()));
    Ok(())
}

/// Changes the mode of one file below a directory, not of the target of a link that has replaced it
/// since.
fn one(
    frame: &Frame,
    mode: &Mode,
    top: &Path,
    path: &Path,
    known: Option<Metadata>,
) -> Outcome<()> {
    let known = match known {
        Some(known) => known,
        None => frame.client.symlink_metadata(path)?,
    };
    let below = path.strip_prefix(top).expect("a walk stays below its top");
    Ok(frame.client.set_mode_beneath(top, below, mode.of(known.mode, known.is_dir()))?)
}

/// A mode: permission bits, or changes of them.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Mode {
    /// All bits; whether set-id bits of directories are set as well.
    Bits(u32, bool),
    /// Changes, in order.
    Changes(Vec<Change>),
}

/// A clause of a symbolic mode: `go-w`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Change {
    /// Permission bits of its classes.
    classes: u32,
    operator: Operator,
    /// Permission bits for every class.
    bits: u32,
    /// Sets execution for directories, and for files with any execute bit.
    search: bool,
}

/// Effect of a clause on the bits of its classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Add,
    Remove,
    Set,
}

const SET_UID: u32 = 0o4000;
const SET_GID: u32 = 0o2000;
const STICKY: u32 = 0o1000;
const EXECUTE: u32 = 0o111;

impl Mode {
    /// Returns the new mode of a file that has this one.
    fn of(&self, before: u32, is_dir: bool) -> u32 {
        match self {
            Mode::Bits(bits, false) if is_dir => bits | before & (SET_UID | SET_GID),
            Mode::Bits(bits, _) => *bits,
            Mode::Changes(all) => all.iter().fold(before, |mode, it| it.apply(mode, is_dir)),
        }
    }
}

impl Change {
    fn apply(self, mode: u32, is_dir: bool) -> u32 {
        let search = self.search && (is_dir || mode & EXECUTE != 0);
        let bits = self.classes & (self.bits | if search { EXECUTE } else { 0 });
        match self.operator {
            Operator::Add => mode | bits,
            Operator::Remove => mode & !bits,
            // Set-id bits of directories stay, as with chmod(1).
            Operator::Set if is_dir => mode & !(self.classes & 0o1777) | bits,
            Operator::Set => mode & !self.classes | bits,
        }
    }
}

/// Parses a mode.
fn parse(text: &str) -> Result<Mode, String> {
    let wrong = || "write a mode like 644, 1777, u+x, go-w or a=rX".to_string();
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        let bits = u32::from_str_radix(text, 8).ok().filter(|bits| *bits <= 0o7777);
        return bits.map(|bits| Mode::Bits(bits, text.len() > 4)).ok_or_else(wrong);
    }
    let clauses: Option<Vec<Change>> = text.split(',').map(clause).collect();
    clauses.map(Mode::Changes).ok_or_else(wrong)
}

/// Returns the permission bits masked from new files of this process.
fn umask() -> u32 {
    let mask = rustix::process::umask(rustix::fs::Mode::empty());
    rustix::process::umask(mask);
    mask.bits()
}

fn clause(text: &str) -> Option<Change> {
    let at = text.find(['+', '-', '='])?;
    let (classes, rest) = text.split_at(at);
    let operator = match rest.as_bytes()[0] {
        b'+' => Operator::Add,
        b'-' => Operator::Remove,
        _equals => Operator::Set,
    };
    let classes = classes.chars().try_fold(0, |all, class| {
        Some(
            all | match class {
                'u' => SET_UID | 0o700,
                'g' => SET_GID | 0o070,
                'o' => STICKY | 0o007,
                'a' => 0o7777,
                _ => return None,
            },
        )
    })?;
    let mut change = Change { classes, operator, bits: 0, search: false };
    if classes == 0 {
        change.classes = 0o7777 & !umask();
    }
    for letter in rest[1..].chars() {
        change.bits |= match letter {
            'r' => 0o444,
            'w' => 0o222,
            'x' => EXECUTE,
            's' => SET_UID | SET_GID,
            't' => STICKY,
            'X' => {
                change.search = true;
                0
            }
            _ => return None,
        };
    }
    Some(change)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_those_of_chmod() {
        for (text, before, file, dir) in [
            ("644", 0o777, 0o644, 0o644),
            ("u+x", 0o644, 0o744, 0o744),
            ("go-w", 0o666, 0o644, 0o644),
            ("a=rX", 0o600, 0o444, 0o555),
            ("a+X", 0o744, 0o755, 0o755),
            ("u=rw,go=", 0o777, 0o600, 0o600),
            ("+t", 0o777, 0o1777, 0o1777),
            ("ug+s", 0o755, 0o6755, 0o6755),
            ("g=rx", 0o2777, 0o757, 0o2757),
            ("755", 0o2700, 0o755, 0o2755),
            ("00755", 0o2700, 0o755, 0o755),
            ("+w", 0o444, 0o666 & !umask() | 0o444, 0o666 & !umask() | 0o444),
        ] {
            let mode = parse(text).expect(text);
            assert_eq!((mode.of(before, false), mode.of(before, true)), (file, dir), "{text}");
        }
        for text in ["", "8", "77777", "u", "u+q", "z+x", "u+x,"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
