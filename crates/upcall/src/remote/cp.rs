//! `upcall cp`: copies of files and trees of a server on that server, by reads and writes.
//!
//! As with `upcall put`, a file has a temporary name until it is complete.

use super::frame::{self, Frame};
use super::mv::Destination;
use super::report::Shared;
use super::{Outcome, Server, Trouble, put, temporary, trees};
use clap::Args;
use client::{Client, Entry, File, Kind, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;

/// Options of `upcall cp`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Cp {
    #[command(flatten)]
    server: Server,

    /// Files to copy; with -r also directories
    #[arg(value_name = "FROM", required = true)]
    from: Vec<PathBuf>,

    /// Name of the copy, replacing an existing file, or an existing directory for the copies. Must
    /// be a directory if there are several sources or it ends with a slash
    #[arg(value_name = "TO")]
    to: PathBuf,

    /// Copy directories recursively: files, links and permissions, not dates and owners
    #[arg(short, long)]
    recursive: bool,

    /// Make each copy durable before renaming it to its final name
    #[arg(long)]
    sync: bool,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Copies files.
pub(crate) fn run(cp: &Cp) -> ExitCode {
    frame::run(&cp.server, true, |frame| {
        let (place, shared) = (Destination::find(frame, &cp.to, cp.from.len())?, Shared::default());
        for from in &cp.from {
            if !shared.is_over() {
                let done = place.of(from).and_then(|to| one(frame, cp, from, &to, &shared));
                shared.note(from, done);
            }
        }
        shared.emit("copied", frame.elapsed(), cp.json)
    })
}

/// Copies a file or a directory.
fn one(frame: &Frame, cp: &Cp, from: &Path, to: &Path, shared: &Shared) -> Outcome<()> {
    let source = frame.client.metadata(from)?;
    if source.is_dir() {
        return tree(frame, cp, from, to, shared);
    }
    let there = super::trees::unless_gone(frame.client.metadata(to))?;
    if there.is_some_and(|there| there.inode == source.inode && source.is_file()) {
        let (from, to) = (from.display(), to.display());
        let text = format!("cannot copy {from} to {to}: they are the same file; name another one");
        return Err(Trouble::Host(text));
    }
    if cp.from.len() > 1 {
        frame.counts.add(&frame.counts.files_all, 1);
    }
    let done = file(frame, cp, from, to, shared);
    frame.counts.add(&frame.counts.files, 1);
    done
}

/// Copies a file under a temporary name, and gives it its own.
fn file(frame: &Frame, cp: &Cp, from: &Path, to: &Path, shared: &Shared) -> Outcome<()> {
    let source = frame.client.open(from)?;
    let metadata = source.metadata()?;
    if frame.counts.files_all.load(Ordering::Relaxed) == 0 {
        frame.counts.bytes_all.store(metadata.size, Ordering::Relaxed);
    }
    let path = temporary(to);
    let options = OpenOptions::new().write(true).create_new(true).mode(metadata.mode & 0o777);
    let copy = put::create(frame, &path, options, to)?;
    let done = pour(frame, (&source, metadata.size), copy, cp.sync);
    let done = done.and_then(|bytes| put::settle(&frame.client, &path, to).map(|()| bytes));
    let bytes = put::unless_kept(frame, path, to, done)?;
    shared.count(|report| {
        report.files += 1;
        report.bytes += bytes;
    });
    Ok(())
}

/// Copies all bytes, with many reads and many writes in flight; returns how many.
fn pour(frame: &Frame, (source, size): (&File, u64), copy: File, sync: bool) -> Outcome<u64> {
    let (mut stream, mut sink) = (source.stream_of(size), copy.sink(0));
    while let Some(piece) = stream.next_piece()? {
        sink.write_all(&piece).map_err(of_server)?;
        frame.counts.add(&frame.counts.bytes, piece.len());
    }
    let bytes = sink.finish()?;
    if sync {
        copy.sync()?;
    }
    copy.close()?;
    Ok(bytes)
}

/// The client's error inside of one of `std::io`.
fn of_server(error: io::Error) -> Trouble {
    match error.downcast::<client::Error>() {
        Ok(error) => Trouble::Server(error),
        Err(other) => Trouble::Host(format!("cannot write: {other}; try again")),
    }
}

/// A file or link of a tree, and the path of its copy.
struct Job {
    link: bool,
    from: PathBuf,
    to: PathBuf,
}

/// Copies a tree.
fn tree(frame: &Frame, cp: &Cp, from: &Path, to: &Path, shared: &Shared) -> Outcome<()> {
    if !cp.recursive {
        let from = from.display();
        let text = format!("cannot copy {from}: it is a directory; copy all of it with -r");
        return Err(Trouble::Host(text));
    }
    let absolute = |path: &Path| Path::new("/").join(path);
    if absolute(to).starts_with(absolute(from)) {
        return Err(itself(from, to));
    }
    let mut modes = Modes::default();
    modes.directory(frame, from, to, shared)?;
    let target = frame.client.metadata(to)?.inode;
    let done = trees::share(
        |hand_out: &mut dyn FnMut(Job)| {
            let mut each = |path: &Path, entry: Entry| {
                if shared.is_over() || trees::is_incomplete(path) {
                    return Ok(false);
                }
                let copy = to.join(path.strip_prefix(from).unwrap_or(path));
                let entry = (path, &entry);
                match enter(frame, entry, (&copy, target), shared, hand_out, &mut modes) {
                    Ok(enter) => Ok(enter),
                    Err(trouble) => {
                        shared.note(path, Err(trouble));
                        Ok(false)
                    }
                }
            };
            let mut unread = |path: &Path, error: client::Error| {
                shared.note(path, Err(error.into()));
            };
            let walked = trees::walk(&frame.client, from, &mut each, &mut unread);
            frame.counts.listed.store(true, Ordering::Relaxed);
            shared.note(from, walked);
            Ok(())
        },
        |job| {
            if !shared.is_over() {
                let done = match job.link {
                    true => link(&frame.client, &job.from, &job.to, shared),
                    false => file(frame, cp, &job.from, &job.to, shared),
                };
                shared.note(&job.from, done);
            }
            frame.counts.add(&frame.counts.files, 1);
        },
    );
    modes.finish(frame, shared);
    done
}

/// Modes of copied directories to set at the end, because they lack the owner's write permission.
#[derive(Default)]
struct Modes(Vec<(PathBuf, u32)>);

impl Modes {
    /// Creates a directory with the mode of its source, and temporarily all permissions of its
    /// owner, unless it exists.
    fn directory(&mut self, frame: &Frame, from: &Path, to: &Path, shared: &Shared) -> Outcome<()> {
        const OWNER: u32 = 0o700;
        match frame.client.create_dir(to) {
            Ok(()) => {
                shared.count(|report| report.directories += 1);
                let mode = frame.client.metadata(from)?.mode & 0o7777;
                frame.client.set_mode(to, mode | OWNER)?;
                if mode & OWNER != OWNER {
                    self.0.push((to.to_path_buf(), mode));
                }
            }
            Err(error) if error.is_exists() && frame.client.metadata(to)?.is_dir() => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Sets the modes that remain, of inner directories first.
    fn finish(self, frame: &Frame, shared: &Shared) {
        for (path, mode) in self.0.iter().rev() {
            let set = frame.client.set_mode(path, *mode);
            shared.note(path, set.map_err(Trouble::from));
        }
    }
}

fn itself(from: &Path, to: &Path) -> Trouble {
    let (from, to) = (from.display(), to.display());
    Trouble::Host(format!("cannot copy {from} into itself, {to}; name a directory outside of it"))
}

/// Copies or hands out one entry of a tree; returns whether it is a directory to enter.
fn enter(
    frame: &Frame,
    (path, entry): (&Path, &Entry),
    (copy, target): (&Path, u64),
    shared: &Shared,
    hand_out: &mut dyn FnMut(Job),
    modes: &mut Modes,
) -> Outcome<bool> {
    let link = match entry.kind {
        Kind::Directory => {
            // Through a link the target may be in the tree itself.
            if frame.client.symlink_metadata(path)?.inode == target {
                return Err(itself(path, copy));
            }
            return modes.directory(frame, path, copy, shared).map(|()| true);
        }
        Kind::File => false,
        Kind::Symlink => true,
        Kind::Fifo | Kind::Socket | Kind::CharDevice | Kind::BlockDevice => {
            let text = format!("{} is neither file nor link; it is not copied", path.display());
            return Err(Trouble::Host(text));
        }
    };
    frame.counts.add(&frame.counts.files_all, 1);
    hand_out(Job { link, from: path.to_path_buf(), to: copy.to_path_buf() });
    Ok(false)
}

fn link(client: &Client, from: &Path, to: &Path, shared: &Shared) -> Outcome<()> {
    put::link_to(client, &client.read_link(from)?, to)?;
    shared.count(|report| report.links += 1);
    Ok(())
}
