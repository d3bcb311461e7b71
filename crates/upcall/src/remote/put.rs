//! `upcall put`: a file or a tree of this host to a server.
//!
//! Incomplete files have temporary names, which are removed after an interrupt. With `--in-place`,
//! and always for an existing target that is not a plain file (a device, a link), the target is
//! written directly.

use super::frame::{self, Frame};
use super::report::Shared;
use super::trees::unless_gone;
use super::{Outcome, Server, Trouble, temporary, trees};
use base::is_temporary;
use clap::Args;
use client::{Client, Dialect, File, OpenOptions, Time};
use std::fs;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;

/// Options of `upcall put`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Put {
    #[command(flatten)]
    server: Server,

    /// File on this host, or a directory with -r; `-` is standard input
    #[arg(value_name = "FROM")]
    from: PathBuf,

    /// Path of the copy on the server; a file goes into an existing directory, which is required if
    /// the path ends with a slash [default: its own name, in the root]
    #[arg(value_name = "TO")]
    to: Option<PathBuf>,

    /// Upload a directory recursively: files with permissions and modification times, and links,
    /// not owners. Existing files of the same size and time are skipped
    #[arg(short, long)]
    recursive: bool,

    /// Write into the existing file, as devices and services require; an interrupted transfer
    /// leaves it incomplete
    #[arg(long, conflicts_with = "recursive")]
    in_place: bool,

    /// Make each file durable before renaming it to its final name
    #[arg(long)]
    sync: bool,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Permission bits of a file from standard input.
const MODE: u32 = 0o644;

/// Runs the command.
pub(crate) fn run(put: &Put) -> ExitCode {
    frame::run(&put.server, true, |frame| {
        let (to, shared) = (target(put)?, Shared::default());
        let root = || Path::new("/").to_path_buf();
        let there = unless_gone(frame.client.metadata(&to))?;
        let is_dir = there.as_ref().is_some_and(client::Metadata::is_dir);
        let is_tree = put.recursive && put.from.is_dir();
        if !is_tree && ends_with_slash(&to) && !is_dir {
            return Err(no_directory(&to, there.is_some()));
        }
        if put.from == Path::new("-") {
            one(frame, put, (&mut frame::Input(frame), MODE, None), &to, &shared)?;
        } else if read_metadata(&put.from)?.is_dir() {
            tree(frame, put, if is_dir { None } else { Some(&to) }, &to, &shared)?;
        } else {
            let name = put.from.file_name().map_or_else(root, PathBuf::from);
            let to = if is_dir { to.join(name) } else { to };
            file(frame, put, &put.from, &to, &shared, one)?;
        }
        shared.emit("sent", frame.elapsed(), put.json)
    })
}

fn target(put: &Put) -> Outcome<PathBuf> {
    let own =
        || put.from.file_name().filter(|name| *name != "-").map(|name| Path::new("/").join(name));
    put.to
        .clone()
        .or_else(own)
        .ok_or_else(|| Trouble::Host("it has no name; give the name of the copy".to_string()))
}

/// Returns whether a path has a trailing slash.
fn ends_with_slash(path: &Path) -> bool {
    path.as_os_str().as_bytes().ends_with(b"/")
}

/// Returns the error for a target with a trailing slash that is not a directory.
fn no_directory(to: &Path, exists: bool) -> Trouble {
    let to = to.display();
    Trouble::Host(match exists {
        true => format!("cannot put a file into {to}: not a directory; leave the last slash out"),
        false => {
            format!("cannot put a file into {to}: no such directory; make it with 'upcall mkdir'")
        }
    })
}

fn unread(path: &Path) -> impl Fn(io::Error) -> Trouble + '_ {
    |error| Trouble::host("read", path, &error, "choose a path that exists and is readable")
}

fn read_metadata(path: &Path) -> Outcome<fs::Metadata> {
    fs::metadata(path).map_err(unread(path))
}

/// Contents of a file, its permission bits, and the modification time that the copy gets.
type Source<'a> = (&'a mut dyn Read, u32, Option<Time>);

/// Function that sends a file.
type Send = fn(&Frame, &Put, Source<'_>, &Path, &Shared) -> Outcome<()>;

/// Sends one file of this host.
fn file(
    frame: &Frame,
    put: &Put,
    from: &Path,
    to: &Path,
    shared: &Shared,
    send: Send,
) -> Outcome<()> {
    let mut source = fs::File::open(from).map_err(unread(from))?;
    let metadata = source.metadata().map_err(unread(from))?;
    if frame.counts.files_all.load(Ordering::Relaxed) == 0 {
        frame.counts.bytes_all.store(metadata.len(), Ordering::Relaxed);
    }
    let mode = metadata.permissions().mode() & 0o777;
    let modified = Some(modified(&metadata)).filter(|_| put.recursive);
    send(frame, put, (&mut source, mode, modified), to, shared)
}

fn modified(metadata: &fs::Metadata) -> Time {
    Time { secs: metadata.mtime(), nanos: u32::try_from(metadata.mtime_nsec()).unwrap_or(0) }
}

/// Sends a file of a tree, unless one with the same size and modification time exists.
fn file_of_tree(frame: &Frame, put: &Put, job: &Job, shared: &Shared) -> Outcome<()> {
    if !job.fresh {
        let own = fs::metadata(&job.from).map_err(unread(&job.from))?;
        let there = unless_gone(frame.client.symlink_metadata(&job.to))?;
        let is_there = there.is_some_and(|there| {
            there.is_file()
                && there.size == own.len()
                && trees::same_time(there.modified, modified(&own))
        });
        if is_there {
            frame.counts.bytes_skipped.fetch_add(own.len(), Ordering::Relaxed);
            shared.count(|report| report.skipped += 1);
            return Ok(());
        }
    }
    file(frame, put, &job.from, &job.to, shared, replace)
}

/// Sends a single file, whose target may be something other than a plain file.
fn one(frame: &Frame, put: &Put, source: Source<'_>, to: &Path, shared: &Shared) -> Outcome<()> {
    let there = unless_gone(frame.client.symlink_metadata(to))?;
    if put.in_place || there.is_some_and(|there| !there.is_file()) {
        let options = OpenOptions::new().write(true).truncate(true);
        let so = format!("the partial file {} is kept", to.display());
        frame.if_interrupted(so);
        let source = (source.0, None);
        return pour(frame, put, source, frame.client.open_with(to, options)?, shared);
    }
    replace(frame, put, source, to, shared)
}

/// Sends a file under a temporary name, and renames it.
fn replace(
    frame: &Frame,
    put: &Put,
    (source, mode, modified): Source<'_>,
    to: &Path,
    shared: &Shared,
) -> Outcome<()> {
    let path = temporary(to);
    let options = OpenOptions::new().write(true).create_new(true).mode(mode);
    let file = create(frame, &path, options, to)?;
    let done = pour(frame, put, (source, modified), file, shared);
    // The program that writes standard input ends with the same Ctrl-C, which looks like its end.
    frame.notice_signals();
    let done = done.and_then(|()| settle(&frame.client, &path, to));
    unless_kept(frame, path, to, done)
}

/// Creates a file under a temporary name. An interrupted request may have created it.
pub(super) fn create(frame: &Frame, path: &Path, options: OpenOptions, to: &Path) -> Outcome<File> {
    frame.client.open_with(path, options).map_err(|error| {
        if error.is_fatal() {
            frame.leave(path.to_path_buf());
        }
        named(error, to).into()
    })
}

/// Removes a file under its temporary name after a failure, and returns the cause.
pub(super) fn unless_kept<T>(
    frame: &Frame,
    path: PathBuf,
    to: &Path,
    done: Outcome<T>,
) -> Outcome<T> {
    let trouble = match done {
        Ok(value) => return Ok(value),
        Err(trouble) => trouble,
    };
    if trouble.is_fatal() {
        frame.leave(path);
    } else if let Err(error) = unless_gone(frame.client.remove(&path)) {
        frame::note(&error.into());
    }
    Err(match trouble {
        Trouble::Server(error) => Trouble::Server(named(error, to)),
        other @ (Trouble::Host(_) | Trouble::ReaderClosed) => other,
    })
}

/// Replaces the temporary name in a refusal by the target's, which the user knows.
fn named(mut error: client::Error, to: &Path) -> client::Error {
    if let client::Error::Refused { path, .. } = &mut error {
        *path = to.to_path_buf();
    }
    error
}

/// Renames a file to its final name, replacing an existing file. 9P2000 has no message for both.
pub(super) fn settle(client: &Client, path: &Path, to: &Path) -> Outcome<()> {
    if client.dialect() == Dialect::Plan9
        && unless_gone(client.metadata(to))?.is_some_and(|there| there.is_file())
    {
        client.remove(to)?;
    }
    Ok(client.rename(path, to)?)
}

/// Sends the whole source; sets the modification time, if the server permits.
fn pour(
    frame: &Frame,
    put: &Put,
    (mut source, modified): (&mut dyn Read, Option<Time>),
    file: File,
    shared: &Shared,
) -> Outcome<()> {
    let mut sink = file.sink(0);
    loop {
        let taken = sink.take_from(&mut source).map_err(unread(&put.from))??;
        if taken == 0 {
            break;
        }
        frame.counts.add(&frame.counts.bytes, taken);
    }
    let bytes = sink.finish()?;
    match modified.map_or(Ok(()), |modified| file.set_modified(modified)) {
        Err(error) if error.is_fatal() => return Err(error.into()),
        Err(_) => shared.count(|report| report.undated += 1),
        Ok(()) => {}
    }
    if put.sync {
        file.sync()?;
    }
    file.close()?;
    shared.count(|report| {
        report.files += 1;
        report.bytes += bytes;
    });
    Ok(())
}

/// A file or link of a tree, and its target.
struct Job {
    link: bool,
    /// Whether its directory was newly created.
    fresh: bool,
    from: PathBuf,
    to: PathBuf,
}

/// Sends a tree. `make`: a directory to create first.
fn tree(frame: &Frame, put: &Put, make: Option<&Path>, to: &Path, shared: &Shared) -> Outcome<()> {
    if !put.recursive {
        let from = put.from.display();
        return Err(Trouble::Host(format!("{from} is a directory; send all of it with -r")));
    }
    if let Some(path) = make {
        frame.client.create_dir(path)?;
        shared.count(|report| report.directories += 1);
    }
    trees::share(
        |hand_out| {
            walk(frame, (&put.from, to, make.is_some()), shared, hand_out);
            frame.counts.listed.store(true, Ordering::Relaxed);
            Ok(())
        },
        |job: Job| {
            if !shared.is_over() {
                let done = match job.link {
                    true => link(&frame.client, &job.from, &job.to, shared),
                    false => file_of_tree(frame, put, &job, shared),
                };
                shared.note(&job.from, done);
            }
            frame.counts.add(&frame.counts.files, 1);
        },
    )
}

/// Creates directories and hands out their contents. `fresh`: the target is new.
fn walk(
    frame: &Frame,
    (from, to, fresh): (&Path, &Path, bool),
    shared: &Shared,
    hand_out: &mut dyn FnMut(Job),
) {
    let mut todo = vec![(from.to_path_buf(), to.to_path_buf(), fresh)];
    while let Some((from, to, fresh)) = todo.pop() {
        let entries = match fs::read_dir(&from) {
            Ok(entries) => entries,
            Err(error) => {
                shared.note(&from, Err(unread(&from)(error)));
                continue;
            }
        };
        for entry in entries {
            if shared.is_over() {
                return;
            }
            let found = entry.and_then(|entry| Ok((entry.file_name(), entry.metadata()?)));
            match found.map_err(unread(&from)) {
                Err(trouble) => shared.note(&from, Err(trouble)),
                Ok((name, found)) if found.is_file() && is_temporary(name.as_bytes()) => {}
                Ok((name, found)) => {
                    let job = Job {
                        link: found.is_symlink(),
                        fresh,
                        from: from.join(&name),
                        to: to.join(&name),
                    };
                    let (from, to) = (job.from.clone(), job.to.clone());
                    match place(frame, &found, job, shared, hand_out) {
                        Ok(Enter::Directory { fresh }) => todo.push((from, to, fresh)),
                        Ok(Enter::Nothing) => {}
                        Err(trouble) => shared.note(&from, Err(trouble)),
                    }
                }
            }
        }
    }
}

/// Whether to enter an entry, a directory.
enum Enter {
    Directory { fresh: bool },
    Nothing,
}

/// Creates a directory, or hands out a file or link.
fn place(
    frame: &Frame,
    found: &fs::Metadata,
    job: Job,
    shared: &Shared,
    hand_out: &mut dyn FnMut(Job),
) -> Outcome<Enter> {
    if found.is_dir() {
        let fresh = match frame.client.create_dir(&job.to) {
            Ok(()) => true,
            Err(error) if error.is_exists() => false,
            Err(error) => return Err(error.into()),
        };
        shared.count(|report| report.directories += u64::from(fresh));
        return Ok(Enter::Directory { fresh });
    }
    if !found.is_file() && !found.is_symlink() {
        let from = job.from.display();
        let text = format!("{from} is neither file nor link; send it by itself");
        return Err(Trouble::Host(text));
    }
    if found.is_file() {
        frame.counts.bytes_all.fetch_add(found.len(), Ordering::Relaxed);
    }
    frame.counts.add(&frame.counts.files_all, 1);
    hand_out(job);
    Ok(Enter::Nothing)
}

fn link(client: &Client, from: &Path, to: &Path, shared: &Shared) -> Outcome<()> {
    link_to(client, &fs::read_link(from).map_err(unread(from))?, to)?;
    shared.count(|report| report.links += 1);
    Ok(())
}

/// Creates a symbolic link unless it exists.
pub(super) fn link_to(client: &Client, target: &Path, to: &Path) -> Outcome<()> {
    match client.symlink(target, to) {
        Err(error) if error.is_exists() && client.read_link(to)? == target => Ok(()),
        done => Ok(done?),
    }
}
