//! `upcall cat`: files of a server to standard output.

use super::frame::{self, Frame};
use super::{Outcome, Server};
use clap::Args;
use std::fs::File;
use std::io::{self, IsTerminal as _, Write as _};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;

/// Options of `upcall cat`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Cat {
    #[command(flatten)]
    server: Server,

    /// Files to print
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,

    /// Start offset in each file: 4096, 512M, 8G
    #[arg(long, value_name = "BYTES", value_parser = crate::size::parse, default_value = "0")]
    offset: u64,

    /// Maximum number of bytes of each file: 4096, 512M, 8G [default: to its end]
    #[arg(long, value_name = "BYTES", value_parser = crate::size::parse)]
    length: Option<u64>,
}

/// Runs the command.
pub(crate) fn run(cat: &Cat) -> ExitCode {
    let shown = !io::stdout().is_terminal();
    frame::run(&cat.server, shown, |frame| {
        // Without the standard library's buffer.
        let out = io::stdout().as_fd().try_clone_to_owned();
        let mut out = File::from(out.map_err(|error| frame::not_written(&error))?);
        frame::each(&cat.paths, |path| one(frame, cat, path, &mut out))
    })
}

fn one(frame: &Frame, cat: &Cat, path: &Path, out: &mut File) -> Outcome<()> {
    let file = frame.client.open(path)?;
    let length = cat.length.unwrap_or(u64::MAX);
    let size = file.metadata()?.size;
    let expected = size.saturating_sub(cat.offset).min(length);
    frame.counts.bytes_all.fetch_add(expected, Ordering::Relaxed);
    let mut stream = file.stream(cat.offset, length)?;
    while let Some(piece) = stream.next_piece()? {
        out.write_all(&piece).map_err(|error| frame::not_written(&error))?;
        frame.counts.add(&frame.counts.bytes, piece.len());
    }
    Ok(())
}
