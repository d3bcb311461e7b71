//! Preparation of a run: opens or creates the target, and overwrites nothing without permission.

mod directory;
mod file;
mod nfs;
mod server;
mod volume;

use super::flags::Flags;
use super::place::LoadTarget;
use crate::progress::{self, Progress};
use crate::size;
use load::driver::{Null, Target};
use std::io;
use std::path::Path;

/// Bytes of one write while a target is created. Small volumes accept no more.
const PIECE: usize = 256 << 10;

/// Requirements of a workload.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wants {
    /// Whether it writes, trims, creates or removes anything.
    pub(crate) changes: bool,
    /// Its maximum I/O size, bytes.
    pub(crate) io_max: u32,
    /// Number of files.
    pub(crate) files: u32,
    /// Number of files, from the first on, with the default size of the target.
    pub(crate) plain: u32,
    /// Files with a size of their own, by number; bytes.
    pub(crate) sizes: Vec<(u32, u32)>,
    /// Whether it creates and removes files itself.
    pub(crate) comes_and_goes: bool,
}

impl Wants {
    /// Returns an error if a target of one file, or of files of one size, is insufficient.
    fn expect_one_size(&self) -> Result<(), String> {
        match self.sizes.is_empty() && !self.comes_and_goes {
            true => Ok(()),
            false => Err("this workload has files that come and go, or of many sizes: its target \
                          is dir:PATH, or http://HOST/PATH/{}"
                .to_string()),
        }
    }
}

/// A prepared target.
pub(crate) struct Prepared {
    pub(crate) target: Box<dyn Target>,
    /// Size of each of its files, bytes.
    pub(crate) span: u64,
    /// Notes for the report.
    pub(crate) notes: Vec<String>,
}

/// Opens a target, or creates it.
///
/// # Errors
/// The obstacle, and the next step.
pub(crate) fn prepare(flags: &Flags, wants: &Wants) -> Result<Prepared, String> {
    let place = flags.target()?;
    if !matches!(place, LoadTarget::Null | LoadTarget::Directory(_) | LoadTarget::Http(_)) {
        wants.expect_one_size()?;
    }
    let prepared = match place {
        LoadTarget::Null => {
            let span = flags.file_size;
            Ok(Prepared { target: Box::new(Null), span, notes: Vec::new() })
        }
        LoadTarget::File(path) => file::file(flags, path, wants),
        LoadTarget::Directory(path) => directory::directory(flags, path, wants),
        LoadTarget::Volume(path) => volume::volume(flags, path, wants),
        LoadTarget::NineP(server, path) => server::ninep(flags, server, path, wants),
        LoadTarget::Nfs(server, path) => nfs::nfs(flags, server, path, wants),
        LoadTarget::Http(url) => server::http(flags, url, wants),
    }?;
    // Files of different sizes are read as they are.
    if wants.sizes.is_empty() && prepared.span < u64::from(wants.io_max) {
        return Err(format!(
            "{place} has {}: too few for one I/O of {}",
            size::show(prepared.span),
            size::show(wants.io_max.into())
        ));
    }
    Ok(prepared)
}

/// Refuses to create a target for a run that only reads, as its path may be mistyped: names the
/// missing object, and the result of `--create`.
fn require_create(flags: &Flags, wants: &Wants, what: &str, made: &str) -> Result<(), String> {
    if wants.changes || flags.create {
        return Ok(());
    }
    Err(format!(
        "{what} does not exist, and a read-only run creates nothing; add --create to create \
         {made}, or choose another target"
    ))
}

/// Describes the file that `--create` makes.
fn random(bytes: u64) -> String {
    format!("it, {} of random bytes", size::show(bytes))
}

/// Returns the error for several files with one path.
fn several(what: &str) -> String {
    format!("this load uses several files; put {{}} into the path {what} for their numbers")
}

/// Returns the error for overwriting an existing target.
fn refuse(what: &str) -> String {
    format!(
        "{what} exists, and this load would overwrite it; add --destroy to permit that, or choose \
         another target"
    )
}

/// Writes random bytes, piece by piece, and shows the progress.
fn fill(
    what: &(impl AsRef<Path> + ?Sized),
    bytes: u64,
    mut write: impl FnMut(u64, &[u8]) -> io::Result<()>,
) -> io::Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    let what = what.as_ref().display();
    err_line!("creating {what}: {} of random bytes", size::show(bytes));
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
