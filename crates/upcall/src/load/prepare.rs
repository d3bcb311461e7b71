//! Before a run: the target is opened, or made, and nothing is destroyed that nobody gave away.

mod directory;
mod file;
mod server;
mod volume;

use super::flags::Flags;
use super::place::Place;
use crate::progress::{self, Progress};
use crate::size;
use load::driver::{Null, Target};
use std::io;
use std::path::Path;

/// What is written at once while something is made, bytes. Small volumes take no more.
const PIECE: usize = 256 << 10;

/// What a workload wants of its target.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wants {
    /// Whether it writes, trims, makes or removes anything.
    pub(crate) changes: bool,
    /// Its largest I/O, bytes.
    pub(crate) io_max: u32,
    /// How many files it uses.
    pub(crate) files: u32,
    /// How many of them, from the first on, are as large as the target is made.
    pub(crate) plain: u32,
    /// Those of them that have a size of their own, by number; bytes.
    pub(crate) sizes: Vec<(u32, u32)>,
    /// Whether it makes and removes files itself.
    pub(crate) comes_and_goes: bool,
}

impl Wants {
    /// Why a target that is one file, or several of one size, is not enough.
    fn expect_one_size(&self) -> Result<(), String> {
        match self.sizes.is_empty() && !self.comes_and_goes {
            true => Ok(()),
            false => Err("this workload has files that come and go, or of many sizes: its target \
                          is dir:PATH, or http://HOST/PATH/{}"
                .to_string()),
        }
    }
}

/// A target that is ready.
pub(crate) struct Prepared {
    pub(crate) target: Box<dyn Target>,
    /// How large each of its files is, bytes.
    pub(crate) span: u64,
    /// What whoever reads the result should know of it.
    pub(crate) notes: Vec<String>,
}

/// Opens a target, or makes it.
///
/// # Errors
/// What is in the way, and what to do.
pub(crate) fn prepare(flags: &Flags, wants: &Wants) -> Result<Prepared, String> {
    let place = flags.target()?;
    if !matches!(place, Place::Null | Place::Directory(_) | Place::Http(_)) {
        wants.expect_one_size()?;
    }
    let prepared = match place {
        Place::Null => {
            let span = flags.file_size;
            Ok(Prepared { target: Box::new(Null), span, notes: Vec::new() })
        }
        Place::File(path) => file::file(flags, path, wants),
        Place::Directory(path) => directory::directory(flags, path, wants),
        Place::Volume(path) => volume::volume(flags, path, wants),
        Place::NineP(server, path) => server::ninep(flags, server, path, wants),
        Place::Http(url) => server::http(flags, url, wants),
    }?;
    // Files of many sizes are read as they are.
    if wants.sizes.is_empty() && prepared.span < u64::from(wants.io_max) {
        return Err(format!(
            "{place} has {}: too few for one I/O of {}",
            size::show(prepared.span),
            size::show(wants.io_max.into())
        ));
    }
    Ok(prepared)
}

/// Refuses to create a target for a run that only reads, as its path may be mistyped: what does not
/// exist, and what `--create` makes of it.
fn require_create(flags: &Flags, wants: &Wants, what: &str, made: &str) -> Result<(), String> {
    if wants.changes || flags.create {
        return Ok(());
    }
    Err(format!(
        "{what} does not exist, and a run that only reads makes nothing. Give --create to make \
         {made}, or another target"
    ))
}

/// The file that `--create` makes, in words.
fn random(bytes: u64) -> String {
    format!("it, {} of random bytes", size::show(bytes))
}

/// One path is not several files.
fn several(what: &str) -> String {
    format!("this load uses several files: write {{}} into the path {what}, for their numbers")
}

/// Refuses to change what exists.
fn refuse(what: &str) -> String {
    format!(
        "{what} exists, and this load writes to it: its contents would be lost. \
         Give --destroy if that is meant, or another target"
    )
}

/// Says random bytes, piece by piece, and shows how far it is.
fn fill(
    what: &(impl AsRef<Path> + ?Sized),
    bytes: u64,
    mut write: impl FnMut(u64, &[u8]) -> io::Result<()>,
) -> io::Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    let what = what.as_ref().display();
    eprintln!("making {what}: {} of random bytes", size::show(bytes));
    let mut shown = Progress::start();
    let mut piece = vec![0; PIECE];
    let mut random = fastrand::Rng::with_seed(bytes);
    let mut done = 0;
    while done < bytes {
        let count = (bytes - done).min(PIECE as u64) as usize;
        random.fill(&mut piece[..count]);
        write(done, &piece[..count])?;
        done += count as u64;
        shown.show(|elapsed| {
            format!(
                "{} of {}, {}",
                size::show(done),
                size::show(bytes),
                progress::rate(done, elapsed)
            )
        });
    }
    Ok(())
}
