//! Trees of a server: walks, and concurrent transfers.

use super::{Outcome, Trouble};
use client::{Client, DEPTH_MAX, Entry, Error, Kind, Metadata, Time};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::thread;

/// Number of concurrent transfers.
const WORKERS: usize = 8;

/// Visits everything below a directory, with its path; a directory before its contents, which
/// follow if `each` returns true. Links are not followed. `unread` receives each directory that
/// cannot be read completely; the walk continues with the others.
///
/// # Errors
/// Those of the connection and of `each`.
pub(crate) fn walk(
    client: &Client,
    top: &Path,
    each: &mut dyn FnMut(&Path, Entry) -> Outcome<bool>,
    unread: &mut dyn FnMut(&Path, Error),
) -> Outcome<()> {
    let mut todo = vec![(top.to_path_buf(), 0)];
    while let Some((dir, depth)) = todo.pop() {
        // No directory stays open while the tree below it is walked.
        let (entries, error) = entries(client, &dir);
        match error {
            Some(error) if error.is_fatal() => return Err(error.into()),
            Some(error) => unread(&dir, error),
            None => {}
        }
        for entry in entries {
            let (path, kind) = (dir.join(&entry.name), entry.kind);
            let enter = each(&path, entry)?;
            if kind != Kind::Directory || !enter {
                continue;
            }
            if depth >= DEPTH_MAX {
                let why = "the directories are too deep; name one further down";
                return Err(Trouble::Server(Error::BadPath { path, why }));
            }
            todo.push((path, depth + 1));
        }
    }
    Ok(())
}

/// Returns the entries of a directory up to the first error, and that error.
fn entries(client: &Client, dir: &Path) -> (Vec<Entry>, Option<Error>) {
    let mut entries = Vec::new();
    let found = match client.read_dir(dir) {
        Ok(found) => found,
        Err(error) => return (entries, Some(error)),
    };
    for entry in found {
        match entry {
            Ok(entry) => entries.push(entry),
            Err(error) => return (entries, Some(error)),
        }
    }
    (entries, None)
}

/// Returns whether a path is that of an incomplete file: a transfer in progress, or one that was
/// killed. It is no part of a tree.
pub(crate) fn is_incomplete(path: &Path) -> bool {
    path.file_name().is_some_and(|name| base::is_temporary(name.as_bytes()))
}

/// Returns whether two modification times are equal, as far as servers and file systems store them:
/// some drop the nanoseconds.
pub(crate) fn same_time(one: Time, other: Time) -> bool {
    let whole = one.nanos == 0 || other.nanos == 0;
    one.secs == other.secs && (whole || one.nanos == other.nanos)
}

/// Runs `work` on each job that `make` hands out, in a few threads.
///
/// # Errors
/// Those of `make`; jobs handed out before are completed nevertheless.
pub(crate) fn share<J: Send>(
    make: impl FnOnce(&mut dyn FnMut(J)) -> Outcome<()>,
    work: impl Fn(J) + Sync,
) -> Outcome<()> {
    let (hand_out, jobs) = channel();
    let jobs = Mutex::new(jobs);
    let next = || jobs.lock().expect("nobody panics with it").recv();
    thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                while let Ok(job) = next() {
                    work(job);
                }
            });
        }
        // The receiver outlives this scope.
        let made = make(&mut |job| hand_out.send(job).expect("somebody takes it"));
        drop(hand_out);
        made
    })
}

/// Returns the metadata of each of these; `None` for files that are gone meanwhile, or for which
/// `unread` receives an error.
///
/// # Errors
/// Those of the connection.
pub(crate) fn metadata(
    client: &Client,
    found: &[(PathBuf, Entry)],
    unread: &mut dyn FnMut(&Path, Error),
) -> Result<Vec<Option<Metadata>>, Error> {
    let part = found.len().div_ceil(WORKERS).max(1);
    let look = |(path, entry): &(PathBuf, Entry)| match &entry.metadata {
        Some(known) => Ok(Some(known.clone())),
        None => unless_gone(client.symlink_metadata(path)),
    };
    thread::scope(|scope| {
        let ask = |part: &'_ [_]| part.iter().map(look).collect::<Vec<_>>();
        let parts: Vec<_> = found.chunks(part).map(|part| scope.spawn(move || ask(part))).collect();
        let mut all = Vec::new();
        for part in parts {
            all.extend(part.join().expect("it does not panic"));
        }
        let known = all.into_iter().zip(found).map(|(known, (path, _))| match known {
            Err(error) if !error.is_fatal() => {
                unread(path, error);
                Ok(None)
            }
            known => known,
        });
        known.collect()
    })
}

/// Maps the error of a missing file to `None`.
pub(super) fn unless_gone<T>(found: Result<T, Error>) -> Result<Option<T>, Error> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::same_time;
    use client::Time;

    #[test]
    fn times_are_the_same_without_nanoseconds() {
        let time = |secs, nanos| Time { secs, nanos };
        assert!(same_time(time(5, 7), time(5, 7)) && same_time(time(5, 7), time(5, 0)));
        assert!(!same_time(time(5, 7), time(5, 8)) && !same_time(time(5, 0), time(6, 0)));
    }
}
