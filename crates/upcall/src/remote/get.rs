//! `upcall get`: a file or a tree of a server to this host.
//!
//! Incomplete files have temporary names. Whatever the server replies, nothing outside of the
//! target is written: names cannot be paths, and no link below the target is followed.

use super::frame::{self, Counts, Frame};
use super::report::Shared;
use super::{Outcome, Server, Trouble, temporary, trees};
use clap::Args;
use client::{Client, Entry, Kind, Metadata, Stream, Time};
use rustix::fs::{Timespec, Timestamps, UTIME_OMIT};
use std::fs::{self, File, OpenOptions};
use std::io::{self, IsTerminal as _, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;

/// Options of `upcall get`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Get {
    #[command(flatten)]
    server: Server,

    /// File on the server, or a directory with -r
    #[arg(value_name = "FROM")]
    from: PathBuf,

    /// Path of the copy on this host; a file goes into an existing directory; `-` is standard
    /// output [default: its own name]
    #[arg(value_name = "TO")]
    to: Option<PathBuf>,

    /// Download a directory recursively: files with permissions and modification times, and links,
    /// not owners. Existing files of the same size and time are skipped
    #[arg(short, long)]
    recursive: bool,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(crate) fn run(get: &Get) -> ExitCode {
    let to_stdout = get.to.as_deref() == Some(Path::new("-"));
    let shown = !(to_stdout && io::stdout().is_terminal());
    frame::run(&get.server, shown, |frame| {
        if to_stdout {
            let file = frame.client.open(&get.from)?;
            let size = file.metadata()?.size;
            frame.counts.bytes_all.store(size, Ordering::Relaxed);
            pour(file.stream_of(size), &frame.counts, &mut io::stdout(), |error| {
                frame::not_written(&error)
            })?;
            return Ok(ExitCode::SUCCESS);
        }
        let to = target(get)?;
        let shared = Shared::default();
        match frame.client.metadata(&get.from)?.is_dir() {
            true => tree(frame, get, &to, &shared)?,
            false if to.as_os_str().as_bytes().ends_with(b"/") && !to.is_dir() => {
                let to = to.display();
                let text = format!("cannot write into {to}: no such directory; make it with mkdir");
                return Err(Trouble::Host(text));
            }
            false => {
                let name = get.from.file_name().filter(|_| to.is_dir());
                let to = name.map_or_else(|| to.clone(), |name| to.join(name));
                file(frame, &get.from, &to, &shared)?;
            }
        }
        shared.emit("fetched", frame.elapsed(), get.json)
    })
}

fn target(get: &Get) -> Outcome<PathBuf> {
    let own = || get.from.file_name().map(PathBuf::from);
    get.to
        .clone()
        .or_else(own)
        .ok_or_else(|| Trouble::Host("the root has no name; give the name of the copy".to_string()))
}

/// Fetches one file.
fn file(frame: &Frame, from: &Path, to: &Path, shared: &Shared) -> Outcome<()> {
    let file = frame.client.open(from)?;
    let metadata = file.metadata()?;
    let alone = frame.counts.files_all.load(Ordering::Relaxed) == 0;
    if alone {
        frame.counts.bytes_all.store(metadata.size, Ordering::Relaxed);
    }
    if !alone && is_here(to, &metadata) {
        shared.count(|report| report.skipped += 1);
        return Ok(());
    }
    let land = if alone { Landing::named } else { Landing::within };
    let mut landing = land(to, metadata.mode)?;
    let failed = |error: io::Error| Trouble::host("write", to, &error, "look at the disk");
    let stream = file.stream_of(metadata.size);
    let bytes = pour(stream, &frame.counts, &mut landing.file, failed)?;
    if !alone && set_modified(&landing.file, metadata.modified).is_err() {
        shared.count(|report| report.undated += 1);
    }
    landing.settle()?;
    shared.count(|report| {
        report.files += 1;
        report.bytes += bytes;
    });
    Ok(())
}

/// Returns whether a plain file of this host has the size and modification time of a server's.
fn is_here(to: &Path, there: &Metadata) -> bool {
    let Ok(own) = to.symlink_metadata() else { return false };
    let nanos = u32::try_from(own.mtime_nsec()).unwrap_or(0);
    let modified = Time { secs: own.mtime(), nanos };
    own.is_file() && own.len() == there.size && trees::same_time(modified, there.modified)
}

fn set_modified(file: &File, modified: Time) -> rustix::io::Result<()> {
    let omit = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    let time = Timespec { tv_sec: modified.secs, tv_nsec: modified.nanos.into() };
    rustix::fs::futimens(file, &Timestamps { last_access: omit, last_modification: time })
}

/// Writes everything; returns the number of bytes.
fn pour(
    mut stream: Stream<'_>,
    counts: &Counts,
    to: &mut impl Write,
    failed: impl Fn(io::Error) -> Trouble,
) -> Outcome<u64> {
    let mut bytes = 0;
    while let Some(piece) = stream.next_piece()? {
        to.write_all(&piece).map_err(&failed)?;
        counts.add(&counts.bytes, piece.len());
        bytes += piece.len() as u64;
    }
    to.flush().map_err(failed)?;
    Ok(bytes)
}

/// A file of this host under its temporary name, removed unless it is settled.
struct Landing {
    file: File,
    /// Temporary and final paths; devices and pipes are written in place.
    moves: Option<(PathBuf, PathBuf)>,
}

impl Landing {
    /// Opens a named target. A link means its target.
    fn named(to: &Path, mode: u32) -> Outcome<Landing> {
        Landing::new(fs::canonicalize(to).unwrap_or_else(|_| to.to_path_buf()), to, mode)
    }

    /// Opens a file of a tree. A link there must not lead out of the tree: it is replaced.
    fn within(to: &Path, mode: u32) -> Outcome<Landing> {
        if to.symlink_metadata().is_ok_and(|it| it.file_type().is_symlink()) {
            let failed = |error| Trouble::host("replace", to, &error, "remove the link");
            fs::remove_file(to).map_err(failed)?;
        }
        Landing::new(to.to_path_buf(), to, mode)
    }

    fn new(real: PathBuf, to: &Path, mode: u32) -> Outcome<Landing> {
        let failed = |error| Trouble::host("write", to, &error, "write into a directory you may");
        if real.metadata().is_ok_and(|it| !it.is_file() && !it.is_dir()) {
            let file = OpenOptions::new().write(true).open(&real).map_err(failed)?;
            return Ok(Landing { file, moves: None });
        }
        if real.file_name().is_none() || real.is_dir() {
            let text = format!("{} is a directory; name a file in it", to.display());
            return Err(Trouble::Host(text));
        }
        let temporary = temporary(&real);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(mode & 0o777);
        let file = options.open(&temporary).map_err(failed)?;
        Ok(Landing { file, moves: Some((temporary, real)) })
    }

    fn settle(mut self) -> Outcome<()> {
        let Some((from, to)) = self.moves.take() else { return Ok(()) };
        fs::rename(&from, &to).map_err(|error| {
            let _ = fs::remove_file(&from);
            Trouble::host("write", &to, &error, "remove what is there")
        })
    }
}

impl Drop for Landing {
    fn drop(&mut self) {
        if let Some((temporary, _)) = &self.moves {
            // It is gone already, or cannot be removed.
            let _ = fs::remove_file(temporary);
        }
    }
}

/// A file or link of a tree, and its target.
struct Job {
    link: bool,
    from: PathBuf,
    to: PathBuf,
}

/// Fetches a tree.
fn tree(frame: &Frame, get: &Get, to: &Path, shared: &Shared) -> Outcome<()> {
    if !get.recursive {
        let from = get.from.display();
        return Err(Trouble::Host(format!("{from} is a directory; take all of it with -r")));
    }
    if !to.is_dir() {
        make_dir(to)?;
        shared.count(|report| report.directories += 1);
    }
    trees::share(
        |hand_out: &mut dyn FnMut(Job)| {
            let mut each = |path: &Path, entry: Entry| {
                if shared.is_over() || trees::is_incomplete(path) {
                    return Ok(false);
                }
                let below = path.strip_prefix(&get.from).unwrap_or(path);
                Ok(place(frame, path, &entry, to.join(below), shared, hand_out))
            };
            let mut unread = |path: &Path, error: client::Error| {
                shared.note(path, Err(error.into()));
            };
            let walked = trees::walk(&frame.client, &get.from, &mut each, &mut unread);
            frame.counts.listed.store(true, Ordering::Relaxed);
            shared.note(&get.from, walked);
            Ok(())
        },
        |job| {
            if !shared.is_over() {
                let done = match job.link {
                    true => link(&frame.client, &job.from, &job.to, shared),
                    false => file(frame, &job.from, &job.to, shared),
                };
                shared.note(&job.from, done);
            }
            frame.counts.add(&frame.counts.files, 1);
        },
    )
}

/// Handles one entry of a tree; returns whether to enter it.
fn place(
    frame: &Frame,
    path: &Path,
    entry: &Entry,
    to: PathBuf,
    shared: &Shared,
    hand_out: &mut dyn FnMut(Job),
) -> bool {
    let link = match entry.kind {
        Kind::Directory => {
            let made = directory(&to, shared);
            let good = made.is_ok();
            shared.note(path, made);
            return good;
        }
        Kind::File => false,
        Kind::Symlink => true,
        Kind::Fifo | Kind::Socket | Kind::CharDevice | Kind::BlockDevice => {
            let path_shown = path.display();
            let text = format!("{path_shown} is neither file nor link; fetch it by itself");
            shared.note(path, Err(Trouble::Host(text)));
            return false;
        }
    };
    frame.counts.add(&frame.counts.files_all, 1);
    hand_out(Job { link, from: path.to_path_buf(), to });
    false
}

/// Creates a directory below the target, or finds an existing one, which must not be a link.
fn directory(to: &Path, shared: &Shared) -> Outcome<()> {
    match fs::symlink_metadata(to) {
        Ok(it) if it.is_dir() => Ok(()),
        Ok(_) => {
            let text = format!("{} is there and no directory; remove it first", to.display());
            Err(Trouble::Host(text))
        }
        Err(_) => {
            make_dir(to)?;
            shared.count(|report| report.directories += 1);
            Ok(())
        }
    }
}

fn make_dir(to: &Path) -> Outcome<()> {
    let step = "make a directory above it, or choose another one";
    fs::create_dir(to).map_err(|error| Trouble::host("make the directory", to, &error, step))
}

fn link(client: &Client, from: &Path, to: &Path, shared: &Shared) -> Outcome<()> {
    let target = client.read_link(from)?;
    match std::os::unix::fs::symlink(&target, to) {
        Err(_) if fs::read_link(to).is_ok_and(|there| there == target) => {}
        done => done
            .map_err(|error| Trouble::host("make the link", to, &error, "remove what is there"))?,
    }
    shared.count(|report| report.links += 1);
    Ok(())
}
