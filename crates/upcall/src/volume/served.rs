//! Volumes in use by another process: the state readable without the lock.
//!
//! Blocks reachable from the newest superblock are never overwritten. So data read is the state of
//! that checkpoint, if the superblock is still the newest afterwards. The journal behind it changes
//! all the time and is not read.

use super::file::{self, FileDisk, How, Opened};
use reactor::VolumeFile;
use serde::Serialize;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use store::{Config, Superblock};

/// Maximum number of reads of a volume, each overtaken by a checkpoint.
const TRIES_MAX: u32 = 40;

/// Maximum number of reads of the superblocks until two are equal.
const READINGS_MAX: u32 = 16;

/// A volume in use by another process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Served {
    /// Process id, if known.
    pub(crate) pid: Option<u32>,
    /// Name of its program.
    pub(crate) program: Option<String>,
    #[serde(skip)]
    path: PathBuf,
}

/// State of one checkpoint of a volume in use.
#[derive(Debug)]
pub(crate) struct Newest {
    file: VolumeFile,
    path: PathBuf,
    /// The superblocks, as read.
    pub(crate) head: Vec<u8>,
    pub(crate) superblock: Superblock,
    /// Whether a later one was seen.
    is_replaced: bool,
}

/// Opens and locks a volume's file for reading, or opens it without the lock of another process.
///
/// # Errors
/// The cause, and the next step.
pub(crate) fn open_file(
    path: &Path,
    how: &How<'_>,
) -> Result<(VolumeFile, Option<Served>), String> {
    let refuse = |error: io::Error| file::not_opened(path, &error);
    let mut opened = VolumeFile::open(path, how.writable);
    let is_held = |opened: &io::Result<VolumeFile>| {
        opened.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    };
    // A killed process holds its files a moment longer.
    if is_held(&opened) && holder(path).is_none() {
        opened = VolumeFile::open_patiently(path, how.writable);
    }
    if is_held(&opened) {
        let (pid, program) = holder(path).unzip();
        let served = Served { pid, program: program.flatten(), path: path.to_path_buf() };
        return Ok((unlocked(path)?, Some(served)));
    }
    Ok((opened.map_err(refuse)?, None))
}

/// Inspects a volume: all of it, or its newest checkpoint if another process uses it.
///
/// # Errors
/// The cause, and the next step.
pub(crate) fn look<T, F>(path: &Path, look: F) -> Result<T, String>
where
    F: Fn(Opened, Option<&Served>) -> Result<T, String>,
{
    let (file, served) = open_file(path, &How::READ)?;
    let Some(served) = served else {
        return look(file::open_locked(path, file, &How::READ)?, None);
    };
    for _ in 0..TRIES_MAX {
        let mut newest = served.newest()?;
        let found = newest.open().and_then(|opened| look(opened, Some(&served)));
        if newest.is_current() {
            return found;
        }
    }
    Err(format!("{}: {served} writes checkpoints too fast; try again", path.display()))
}

impl Served {
    /// Reads the newest checkpoint.
    ///
    /// # Errors
    /// The cause, and the next step.
    pub(crate) fn newest(&self) -> Result<Newest, String> {
        let file = unlocked(&self.path)?;
        let mut head = file::head(&file).unwrap_or_default();
        for _ in 0..READINGS_MAX {
            // A superblock may be read while it is being written.
            let again = file::head(&file).unwrap_or_default();
            if again == head {
                break;
            }
            head = again;
        }
        let superblock = file::newest(&self.path, &file, &head)?;
        let path = self.path.clone();
        Ok(Newest { file, path, head, superblock, is_replaced: false })
    }
}

fn unlocked(path: &Path) -> Result<VolumeFile, String> {
    VolumeFile::open_unlocked(path).map_err(|error| file::not_opened(path, &error))
}

impl std::fmt::Display for Served {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (&self.program, self.pid) {
            (Some(program), Some(pid)) => write!(f, "{program} (process {pid})"),
            (None, Some(pid)) => write!(f, "process {pid}"),
            (_, None) => f.write_str("another process"),
        }
    }
}

impl Newest {
    /// Returns whether it is still the newest.
    pub(crate) fn is_current(&mut self) -> bool {
        if !self.is_replaced {
            let head = file::head(&self.file).unwrap_or_default();
            let found = Superblock::newest(&head);
            self.is_replaced = found.map(|found| found.epoch) != Ok(self.superblock.epoch);
        }
        !self.is_replaced
    }

    /// Returns the volume without its journal.
    ///
    /// # Errors
    /// The cause, and the next step.
    pub(crate) fn disk(&self) -> Result<FileDisk, String> {
        Ok(FileDisk::without_journal(unlocked(&self.path)?, &self.superblock.layout))
    }

    fn open(&self) -> Result<Opened, String> {
        let layout = self.superblock.layout;
        let mut disk = self.disk()?;
        let usual = Config::for_memory(How::READ.memory, &layout);
        let config = Config { read_only: true, ..usual };
        let store = file::open_store(&mut disk, &self.head, config);
        let store = store.map_err(|error| file::explain(&self.path, error))?;
        Ok(Opened { disk, store })
    }
}

/// Returns the living process that has a file locked, and its program, if readable.
fn holder(path: &Path) -> Option<(u32, Option<String>)> {
    let meta = std::fs::metadata(path).ok()?;
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    let device = (rustix::fs::major(meta.dev()), rustix::fs::minor(meta.dev()));
    let pid = locks.lines().find_map(|line| locker(line, device, meta.ino()))?;
    let program = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok();
    let program = program.map(|name| name.trim_end().to_string());
    match std::fs::read_link(format!("/proc/{pid}/exe")) {
        // A killed process that has not yet exited has no program.
        Err(error) if error.kind() != io::ErrorKind::PermissionDenied => None,
        Ok(_) | Err(_) => Some((pid, program)),
    }
}

/// Returns the process that has a file locked, from a line of `/proc/locks` about that file.
fn locker(line: &str, (major, minor): (u32, u32), inode: u64) -> Option<u32> {
    // `1: FLOCK  ADVISORY  WRITE 1234 fe:01:5678 0 EOF`
    let mut words = line.split_whitespace().skip_while(|word| *word != "FLOCK");
    let (pid, file) = (words.nth(3)?, words.next()?);
    let mut parts = file.split(':');
    let mut number = |radix| u64::from_str_radix(parts.next()?, radix).ok();
    let found = (number(16)?, number(16)?, number(10)?);
    (found == (u64::from(major), u64::from(minor), inode)).then(|| pid.parse().ok()).flatten()
}
