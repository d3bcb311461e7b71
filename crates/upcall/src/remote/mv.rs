//! `upcall mv`: renames files and directories of a server.

use super::frame::{self, Frame};
use super::trees::unless_gone;
use super::{Outcome, Server, Trouble, temporary};
use clap::Args;
use client::{Client, Dialect};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Options of `upcall mv`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Mv {
    #[command(flatten)]
    server: Server,

    /// Files, links and directories to move
    #[arg(value_name = "FROM", required = true)]
    from: Vec<PathBuf>,

    /// New name, replacing an existing file, or an existing directory to move into. Must be a
    /// directory if there are several sources or it ends with a slash. 9P2000 renames only within a
    /// directory
    #[arg(value_name = "TO")]
    to: PathBuf,
}

/// Moves files.
pub(crate) fn run(mv: &Mv) -> ExitCode {
    frame::run(&mv.server, false, |frame| {
        let place = Destination::find(frame, &mv.to, mv.from.len())?;
        frame::each(&mv.from, |from| {
            let to = place.of(from)?;
            match frame.client.dialect() {
                Dialect::Linux => {
                    frame.client.rename(from, &to).map_err(|error| explain(error, from, &to))
                }
                Dialect::Plan9 => replace(&frame.client, from, &to),
            }
        })
    })
}

/// Returns the error of a move; that of a directory into itself names the cause.
fn explain(error: client::Error, from: &Path, to: &Path) -> Trouble {
    const EINVAL: u32 = 22;
    if error.errno() != EINVAL {
        return error.into();
    }
    let (from, to) = (from.display(), to.display());
    Trouble::Host(format!("cannot move {from} into itself, {to}; name a directory outside of it"))
}

/// Renames a file over 9P2000, which never replaces: an existing target is set aside until the
/// rename has succeeded.
fn replace(client: &Client, from: &Path, to: &Path) -> Outcome<()> {
    let source = client.symlink_metadata(from)?;
    let there = unless_gone(client.symlink_metadata(to))?;
    let Some(there) = there.filter(client::Metadata::is_file) else {
        return Ok(client.rename(from, to)?);
    };
    if there.inode == source.inode {
        let (from, to) = (from.display(), to.display());
        let text = format!("cannot move {from} to {to}: they are the same file; name another one");
        return Err(Trouble::Host(text));
    }
    let aside = temporary(to);
    client.rename(to, &aside)?;
    if let Err(error) = client.rename(from, to) {
        if let Err(why) = client.rename(&aside, to) {
            let (to, aside) = (to.display(), aside.display());
            let text = format!("{error}; {to} is now called {aside} ({why}): rename it back");
            return Err(Trouble::Host(text));
        }
        return Err(error.into());
    }
    Ok(client.remove(&aside)?)
}

/// The target of `mv` and `cp`.
pub(super) struct Destination<'a> {
    to: &'a Path,
    is_dir: bool,
    /// Target paths assigned so far, with their sources.
    given: RefCell<BTreeMap<PathBuf, PathBuf>>,
}

impl<'a> Destination<'a> {
    /// Determines whether the target is a directory.
    ///
    /// # Errors
    /// It has to be a directory, for several sources or because of its trailing slash, and is not.
    pub(super) fn find(frame: &Frame, to: &'a Path, sources: usize) -> Outcome<Destination<'a>> {
        let there = unless_gone(frame.client.metadata(to))?;
        let is_dir = there.as_ref().is_some_and(client::Metadata::is_dir);
        if is_dir || (sources == 1 && !to.as_os_str().as_bytes().ends_with(b"/")) {
            return Ok(Destination { to, is_dir, given: RefCell::default() });
        }
        let (to, cause) = (to.display(), there.map_or("no such directory", |_| "not a directory"));
        let step = "make it with 'upcall mkdir', or name a directory";
        Err(Trouble::Host(format!("cannot put files into {to}: {cause}; {step}")))
    }

    /// Returns the target path of a source.
    ///
    /// # Errors
    /// A source without a name of its own, or with that of another source.
    pub(super) fn of(&self, from: &Path) -> Outcome<PathBuf> {
        if !self.is_dir {
            return Ok(self.to.to_path_buf());
        }
        let without_name = || {
            let from = from.display();
            Trouble::Host(format!("{from} has no name of its own; name the target in full"))
        };
        let to = self.to.join(from.file_name().ok_or_else(without_name)?);
        if let Some(other) = self.given.borrow_mut().insert(to.clone(), from.to_path_buf()) {
            let (from, to, other) = (from.display(), to.display(), other.display());
            let text = format!("cannot put {from} at {to}: {other} was just put there");
            return Err(Trouble::Host(text));
        }
        Ok(to)
    }
}
