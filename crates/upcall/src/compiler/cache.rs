//! Cache of compiled modules on disk, across restarts.
//!
//! A directory that only the server may read and write, with a key of its own. A file is accepted
//! only with a correct authentication code; a file that is corrupt, of another version or foreign
//! counts as missing, and is replaced. So the cache never fails: a full disk costs only time.

use crate::key_file::{self, create, open};
use rustix::fs::{Timespec, Timestamps, UTIME_NOW};
use std::fs::{DirBuilder, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;
use wasi::{Artifact, Hash, Key};

/// Maximum total size of files, bytes, and maximum number of files.
const BYTES_MAX: u64 = 1 << 30;
const FILES_MAX: usize = 4096;

/// Maximum size of a file that is read, bytes.
const FILE_MAX: u64 = 256 << 20;

/// Name of the key file.
const KEY: &str = "key";

/// A directory of artifacts.
pub(super) struct Cache {
    dir: PathBuf,
    key: Key,
    bytes_max: u64,
}

impl Cache {
    /// Opens a directory, creating it if necessary.
    pub(super) fn open(dir: &Path) -> Result<Cache, String> {
        let shown = dir.display();
        let make = || DirBuilder::new().recursive(true).mode(0o700).create(dir);
        let made = make().and_then(|()| std::fs::metadata(dir));
        let stat = made.map_err(|error| format!("cannot use {shown} for modules: {error}"))?;
        let own = reactor::own_user();
        if stat.uid() != own || stat.mode() & 0o022 != 0 {
            return Err(format!(
                "cannot use {shown} for modules: it must belong to user {own} and others must \
                 not write to it; name a directory that does not exist, or one of mode 0700"
            ));
        }
        let key = key_file::read_or_create(&dir.join(KEY))
            .map(Key::new)
            .map_err(|why| format!("cannot use {shown} for modules: {why}"))?;
        Ok(Cache { dir: dir.to_path_buf(), key, bytes_max: BYTES_MAX })
    }

    /// Returns the cached artifact of a module for engines of this compatibility.
    pub(super) fn find(&self, name: Hash, compatibility: Hash) -> Option<Artifact> {
        let mut file = open(&self.path(name, compatibility)).ok()?;
        let len = file.metadata().ok()?.len();
        if len > FILE_MAX {
            return None;
        }
        let mut bytes = Vec::with_capacity(usize::try_from(len).ok()?);
        file.read_to_end(&mut bytes).ok()?;
        let artifact = Artifact::open(bytes, &self.key).ok()?;
        let wanted = artifact.name() == name && artifact.compatibility() == compatibility;
        touch(&file);
        wanted.then_some(artifact)
    }

    /// Stores an artifact, evicting the least recently used ones.
    pub(super) fn keep(&self, mut artifact: Artifact) {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = self.path(artifact.name(), artifact.compatibility());
        let new = self.dir.join(format!("new-{}-{count}", std::process::id()));
        let sealed = artifact.seal(&self.key);
        let _ = std::fs::remove_file(&new);
        let written = create(&new).and_then(|mut file| file.write_all(sealed));
        if written.and_then(|()| std::fs::rename(&new, &path)).is_err() {
            let _ = std::fs::remove_file(&new);
        }
        let _ = self.make_room();
    }

    fn path(&self, name: Hash, compatibility: Hash) -> PathBuf {
        let engine = compatibility.to_string();
        self.dir.join(format!("{name}-{}", &engine[..16]))
    }

    /// Removes the least recently used files until the rest fits the limits.
    fn make_room(&self) -> io::Result<()> {
        let mut files: Vec<(SystemTime, PathBuf, u64)> = Vec::new();
        for entry in std::fs::read_dir(&self.dir)? {
            let entry = entry?;
            let stat = entry.metadata()?;
            if stat.is_file() && entry.file_name() != KEY {
                files.push((stat.modified()?, entry.path(), stat.len()));
            }
        }
        files.sort_unstable();
        let mut bytes: u64 = files.iter().map(|(_, _, len)| len).sum();
        let mut count = files.len();
        for (_, path, len) in files {
            if bytes <= self.bytes_max && count <= FILES_MAX {
                break;
            }
            std::fs::remove_file(path)?;
            (bytes, count) = (bytes - len, count - 1);
        }
        Ok(())
    }
}

/// Sets the last-use time of a file to now.
fn touch(file: &File) {
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    let times = Timestamps { last_access: now, last_modification: now };
    // After a failure it is evicted too early.
    let _ = rustix::fs::futimens(file, &times);
}

#[cfg(test)]
mod tests;
