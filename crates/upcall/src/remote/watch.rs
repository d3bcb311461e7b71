//! `upcall watch`: changes of files on a server, as they are made.

use super::frame::{self, Frame};
use super::{Outcome, Server, Trouble};
use crate::size;
use clap::Args;
use client::OpenOptions;
use serde::Deserialize;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::process::ExitCode;

/// The file of watches.
const FILE: &str = "/.upcall/watch";

/// Size of a read, bytes.
const READ: usize = 64 << 10;

/// Maximum length of a line, bytes.
const LINE_MAX: usize = 1 << 20;

/// Options of `upcall watch`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Watch {
    #[command(flatten)]
    server: Server,

    /// Directories, for changes of their entries, and files
    #[arg(value_name = "PATH", default_value = "/")]
    paths: Vec<PathBuf>,

    /// Watch everything beneath directories, too
    #[arg(short, long)]
    recursive: bool,

    /// End after this number of changes
    #[arg(long, value_name = "NUMBER", value_parser = crate::units::count)]
    count: Option<u64>,

    /// Print each change as a line of JSON
    #[arg(long)]
    json: bool,
}

/// A line of the file of watches.
#[derive(Debug, Deserialize)]
struct Line {
    change: String,
    path: String,
    #[serde(default)]
    error: Option<String>,
    #[serde(default)]
    size: Option<u64>,
}

/// Shows changes until Ctrl-C.
pub(crate) fn run(watch: &Watch) -> ExitCode {
    frame::run(&watch.server, false, |frame| {
        frame.if_interrupted("changes from now on are not shown".to_string());
        follow(watch, frame)
    })
}

fn follow(watch: &Watch, frame: &Frame) -> Outcome<ExitCode> {
    let other = || Trouble::Host(format!("the server reports no changes: it has no {FILE}"));
    // It is written to: other servers may have a file of that name.
    match frame.client.metadata(FILE) {
        Ok(it) if it.mode & 0o777 == 0o666 && it.size == 0 => {}
        Ok(_) => return Err(other()),
        Err(error) if error.is_not_found() => return Err(other()),
        Err(error) => return Err(error.into()),
    }
    let options = OpenOptions::new().read(true).write(true);
    let file = frame.client.open_with(FILE, options)?;
    let mut text = Vec::new();
    for path in &watch.paths {
        let path = path.as_os_str().as_bytes();
        if path.contains(&b'\n') {
            return Err(Trouble::Host("a path with a line break cannot be watched".to_string()));
        }
        let below: &[u8] = if watch.recursive { b"/**\n" } else { b"\n" };
        text.extend_from_slice(&[b"/", path, below].concat());
    }
    file.write_at(&text, 0)?;
    let (mut lines, mut buf) = (Vec::new(), vec![0; READ]);
    let (mut shown, mut failed, mut is_watching) = (0, 0, false);
    let (mut offset, mut code) = (0, ExitCode::SUCCESS);
    loop {
        let length = file.read_at(&mut buf, offset)?;
        if length == 0 {
            return Err(Trouble::Host("the server has ended the watch: it is going down".into()));
        }
        offset += length as u64;
        lines.extend_from_slice(&buf[..length]);
        while let Some(end) = lines.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = lines.drain(..=end).collect();
            if end == 0 {
                continue;
            }
            let line = String::from_utf8_lossy(&line);
            let parsed: Line = serde_json::from_str(&line).map_err(|error| {
                Trouble::Host(format!("the server's line is no change: {error}: {}", line.trim()))
            })?;
            if parsed.error.is_some() {
                code = ExitCode::FAILURE;
                failed += 1;
            }
            frame::emit(&if watch.json { line.into_owned() } else { parsed.to_string() })?;
            let is_begin = parsed.change == "watching";
            is_watching |= is_begin;
            if !is_watching && failed == watch.paths.len() {
                return Ok(code);
            }
            shown += u64::from(!is_begin);
            if watch.count.is_some_and(|count| shown >= count) {
                return Ok(code);
            }
        }
        if lines.len() > LINE_MAX {
            return Err(Trouble::Host("the server's line is too long".to_string()));
        }
    }
}

impl std::fmt::Display for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let path = self.path.escape_debug();
        match (&self.error, self.size) {
            (Some(error), _) => writeln!(f, "error       {path}: {error}"),
            (None, Some(size)) => {
                writeln!(f, "{:<10}  {path}  {}", self.change, size::exact(size))
            }
            (None, None) => writeln!(f, "{:<10}  {path}", self.change),
        }
    }
}
