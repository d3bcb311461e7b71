//! `upcall rm` and `upcall mkdir`: one request for each path.

use super::frame;
use super::{Server, Trouble};
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;

/// Options of `upcall rm`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Rm {
    #[command(flatten)]
    server: Server,

    /// Files, links and empty directories to remove
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,

    /// Remove directories recursively
    #[arg(short, long)]
    recursive: bool,
}

/// Removes files.
pub(crate) fn rm(rm: &Rm) -> ExitCode {
    frame::run(&rm.server, false, |frame| {
        frame::each(&rm.paths, |path| {
            if path.file_name().is_none() {
                let path = path.display();
                let why = format!("cannot remove {path}: it has no name of its own; name a file");
                return Err(Trouble::Host(why));
            }
            match rm.recursive {
                true => frame.client.remove_all(path).map(|_| ())?,
                false => frame.client.remove(path)?,
            }
            Ok(())
        })
    })
}

/// Options of `upcall mkdir`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Mkdir {
    #[command(flatten)]
    server: Server,

    /// Directories to create
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,

    /// Create missing parent directories; an existing directory is no error
    #[arg(short, long)]
    parents: bool,
}

/// Makes directories.
pub(crate) fn mkdir(mkdir: &Mkdir) -> ExitCode {
    frame::run(&mkdir.server, false, |frame| {
        frame::each(&mkdir.paths, |path| {
            match mkdir.parents {
                true => frame.client.create_dir_all(path)?,
                false => frame.client.create_dir(path)?,
            }
            Ok(())
        })
    })
}
