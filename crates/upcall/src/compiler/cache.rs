//! What was compiled, kept on disk across restarts.
//!
//! A directory that only the server may read and write, with a key of its own. A file in it is
//! believed if its authentication code is right; what is broken, of another version or of somebody
//! else counts as not there, and is replaced. So nothing here fails: a full disk costs time only.

use super::child::random;
use rustix::fs::{Timespec, Timestamps, UTIME_NOW};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;
use storelet::compile::Hash;
use storelet::{Artifact, Key};

/// Most bytes of files, and most files.
const BYTES_MAX: u64 = 1 << 30;
const FILES_MAX: usize = 4096;

/// The largest file that is looked at, bytes.
const FILE_MAX: u64 = 256 << 20;

/// The name of the key.
const KEY: &str = "key";

/// A directory of artifacts.
pub(super) struct Cache {
    dir: PathBuf,
    key: Key,
    bytes_max: u64,
}

impl Cache {
    /// Opens a directory, or makes it.
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
        let key = key(dir).map_err(|why| format!("cannot use {shown} for modules: {why}"))?;
        Ok(Cache { dir: dir.to_path_buf(), key, bytes_max: BYTES_MAX })
    }

    /// What was kept of a module for engines of this compatibility.
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

    /// Keeps what was compiled, in the place of what was used longest ago.
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

    /// Removes what was used longest ago, until the rest is not too much.
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

/// The key of a directory; it is made if there is none.
fn key(dir: &Path) -> Result<Key, String> {
    let path = dir.join(KEY);
    let make = || -> Result<(), String> {
        let bytes = random()?;
        let new = dir.join(format!("new-key-{}", std::process::id()));
        let write = || -> io::Result<()> {
            let mut file = create(&new)?;
            file.write_all(&bytes)?;
            file.sync_all()?;
            // Another server may have made one meanwhile; then that is the key.
            std::fs::hard_link(&new, &path)
        };
        let made = write();
        let _ = std::fs::remove_file(&new);
        match made {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error.to_string()),
            Ok(()) | Err(_) => Ok(()),
        }
    };
    if !path.exists() {
        make()?;
    }
    let read = || -> io::Result<(std::fs::Metadata, Vec<u8>)> {
        let file = open(&path)?;
        let (stat, mut bytes) = (file.metadata()?, Vec::new());
        file.take(Key::LEN as u64 + 1).read_to_end(&mut bytes)?;
        Ok((stat, bytes))
    };
    let (stat, bytes) = read().map_err(|error| format!("its file {KEY}: {error}"))?;
    if stat.uid() != reactor::own_user() || stat.mode() & 0o077 != 0 || !stat.is_file() {
        return Err(format!("others may read its file {KEY}: remove the directory"));
    }
    let bytes = bytes.try_into().map_err(|_| format!("its file {KEY} is broken: remove it"))?;
    Ok(Key::new(bytes))
}

/// Opens a file to read it; not one that a link leads to.
fn open(path: &Path) -> io::Result<File> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

/// Makes a file that was not there.
fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// Says that a file was used now.
fn touch(file: &File) {
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    let times = Timestamps { last_access: now, last_modification: now };
    // If that fails it is removed earlier than it has deserved.
    let _ = rustix::fs::futimens(file, &times);
}

#[cfg(test)]
mod tests;
