//! Trees of a server: walking through one, and doing something to many files at once.

use super::list::unless_gone;
use super::{Outcome, Trouble};
use client::{Client, DEPTH_MAX, Entry, Error, Kind, Metadata};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::thread;

/// How many files are transferred at once.
const WORKERS: usize = 8;

/// Hands over everything below a directory, with its path; a directory before what is in it,
/// which comes if `each` says so. Links are not followed.
///
/// # Errors
/// Those of the server and of `each`.
pub(crate) fn walk(
    client: &Client,
    top: &Path,
    each: &mut dyn FnMut(&Path, Entry) -> Outcome<bool>,
) -> Outcome<()> {
    let mut todo = vec![(top.to_path_buf(), 0)];
    while let Some((dir, depth)) = todo.pop() {
        // Whoever walks a tree for an hour does not hold a directory open as long.
        let entries: Result<Vec<Entry>, Error> = client.read_dir(&dir)?.collect();
        for entry in entries? {
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

/// Does `work` with each job that `make` hands out, on a few threads at once.
///
/// # Errors
/// Those of `make`; the jobs that were handed out are done all the same.
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

/// What is known about each of these; `None` of what is gone meanwhile.
///
/// # Errors
/// The first that is another one.
pub(crate) fn metadata(
    client: &Client,
    found: &[(PathBuf, Entry)],
) -> Result<Vec<Option<Metadata>>, Error> {
    let part = found.len().div_ceil(WORKERS).max(1);
    let look = |(path, entry): &(PathBuf, Entry)| match &entry.metadata {
        Some(known) => Ok(Some(known.clone())),
        None => unless_gone(client.symlink_metadata(path)),
    };
    thread::scope(|scope| {
        let ask = |part: &'_ [_]| part.iter().map(look).collect::<Result<Vec<_>, Error>>();
        let parts: Vec<_> = found.chunks(part).map(|part| scope.spawn(move || ask(part))).collect();
        let mut all = Vec::new();
        for part in parts {
            all.extend(part.join().expect("it does not panic")?);
        }
        Ok(all)
    })
}
