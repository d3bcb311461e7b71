//! State store of installed storelets: a directory with one server as its only writer.
//!
//! ```text
//! lock           whoever has this server's storelets has it locked
//! names/NAME     what is installed under a name, as JSON
//! modules/HASH   a module, as it was sent
//! books/NAME     what came of its last runs, as JSON
//! files/NAME     for which files of its directory it has run, as JSON
//! ```
//!
//! A file is complete or does not exist: it is written under another name, made durable, and
//! renamed; then its directory is made durable. Foreign files are left alone.

use rustix::fs::{FlockOperation, flock};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use storelet::run_spec::Label;
use storelet::standing::{Change, Kept, Key, Stock, ToStateStore};
use wasi::Hash;

/// Subdirectories.
const NAMES: &str = "names";
const MODULES: &str = "modules";
const BOOKS: &str = "books";
const FILES: &str = "files";

/// Suffix of a file being written.
const NEW: &str = ".new";

/// Maximum size of a file that is read, bytes: no module is larger.
const FILE_MAX: u64 = 32 << 20;

/// Maximum number of files of a directory that are read.
const FILES_MAX: usize = 100_000;

/// The directory, locked once it has contents.
pub(crate) struct StateStore {
    dir: PathBuf,
    lock: Option<File>,
}

impl StateStore {
    /// Opens a directory, creating it if necessary.
    ///
    /// # Errors
    /// If it cannot be used, or another server has locked it.
    pub(crate) fn make(dir: &Path) -> Result<StateStore, String> {
        let mut state_store = StateStore { dir: dir.to_path_buf(), lock: None };
        state_store.lock()?;
        Ok(state_store)
    }

    /// Opens a directory if it exists; otherwise the first write creates it. One without access for
    /// this user counts as missing.
    ///
    /// # Errors
    /// If it cannot be used, or another server has locked it.
    pub(crate) fn find(dir: &Path) -> Result<StateStore, String> {
        match dir.try_exists() {
            Ok(false) | Err(_) => Ok(StateStore { dir: dir.to_path_buf(), lock: None }),
            Ok(true) => StateStore::make(dir),
        }
    }

    fn lock(&mut self) -> Result<(), String> {
        if self.lock.is_some() {
            return Ok(());
        }
        let shown = self.dir.display();
        let cannot = |why: &dyn std::fmt::Display| {
            format!("cannot keep storelets in {shown}: {why}; name another with --storelet-state")
        };
        let make = |dir: &Path| DirBuilder::new().recursive(true).mode(0o700).create(dir);
        make(&self.dir).map_err(|error| cannot(&error))?;
        let stat = std::fs::metadata(&self.dir).map_err(|error| cannot(&error))?;
        let own = reactor::own_user();
        if stat.uid() != own || stat.mode() & 0o022 != 0 {
            return Err(cannot(&format!(
                "it must belong to user {own} and others must not write to it"
            )));
        }
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let lock = options.custom_flags(libc::O_NOFOLLOW).open(self.dir.join("lock"));
        let lock = lock.map_err(|error| cannot(&error))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| cannot(&"another server keeps its storelets there"))?;
        for name in [NAMES, MODULES, BOOKS, FILES] {
            make(&self.dir.join(name)).map_err(|error| cannot(&error))?;
        }
        sync_dir(&self.dir).map_err(|error| cannot(&error))?;
        if let Some(above) = self.dir.parent() {
            // Its ancestors may belong to other users.
            let _ = sync_dir(above);
        }
        self.lock = Some(lock);
        Ok(())
    }

    /// Reads the whole contents. Unreadable files are reported.
    pub(crate) fn stock(&self, inform: &mut dyn FnMut(String)) -> Stock {
        if self.lock.is_none() {
            return Stock::default();
        }
        let mut stock = Stock::default();
        for name in self.files(NAMES, inform) {
            let path = self.dir.join(NAMES).join(&name);
            match (name.parse(), read(&path)) {
                (Ok(label), Ok(bytes)) => stock.take(Key::Name(label), bytes),
                (Err(_), _) => inform(format!("{} is no storelet's: left alone", path.display())),
                (_, Err(error)) => inform(format!("cannot read {}: {error}", path.display())),
            }
        }
        for (dir, key) in [(BOOKS, Key::RunHistory as fn(Label) -> Key), (FILES, Key::Files)] {
            for name in self.files(dir, inform) {
                let bytes = read(&self.dir.join(dir).join(&name));
                if let (Ok(label), Ok(bytes)) = (name.parse(), bytes) {
                    stock.take(key(label), bytes);
                }
            }
        }
        let modules = self.files(MODULES, inform);
        stock.modules = modules.iter().filter_map(|name| name.parse().ok()).collect();
        stock
    }

    /// Lists the files in a subdirectory. Unfinished ones are removed.
    fn files(&self, dir: &str, inform: &mut dyn FnMut(String)) -> Vec<String> {
        let path = self.dir.join(dir);
        let entries = match std::fs::read_dir(&path) {
            Ok(entries) => entries,
            Err(error) => {
                inform(format!("cannot read {}: {error}", path.display()));
                return Vec::new();
            }
        };
        let names = entries.take(FILES_MAX).filter_map(Result::ok);
        let names = names.filter_map(|entry| entry.file_name().into_string().ok());
        let (new, mut names): (Vec<String>, Vec<String>) = names.partition(|name| {
            // Names of complete files never begin with a dot.
            name.starts_with(NEW)
        });
        for name in new {
            let _ = std::fs::remove_file(path.join(name));
        }
        names.sort_unstable();
        names
    }

    /// Returns the bytes of a module.
    pub(super) fn module(&self, hash: Hash) -> Option<Vec<u8>> {
        self.lock.as_ref()?;
        let bytes = read(&self.dir.join(MODULES).join(hash.to_string())).ok()?;
        (Hash::of(&bytes) == hash).then_some(bytes)
    }

    /// Makes changes durable.
    pub(super) fn keep(&mut self, requested: ToStateStore) -> Kept {
        let ToStateStore { ticket, changes } = requested;
        let result = self.lock().and_then(|()| {
            changes.into_iter().try_for_each(|change| {
                let (dir, name) = place(&change.key);
                let path = self.dir.join(dir).join(&name);
                self.change(dir, &name, change)
                    .map_err(|error| format!("cannot write {}: {error}", path.display()))
            })
        });
        Kept { ticket, result }
    }

    fn change(&self, dir: &str, name: &str, change: Change) -> io::Result<()> {
        let dir = self.dir.join(dir);
        let path = dir.join(name);
        match change.bytes {
            Some(bytes) => {
                let new = dir.join(NEW);
                let _ = std::fs::remove_file(&new);
                let mut file =
                    OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
                file.write_all(&bytes)?;
                file.sync_all()?;
                std::fs::rename(&new, &path)?;
            }
            None => match std::fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => {}
            },
        }
        sync_dir(&dir)
    }
}

/// Returns the subdirectory and the name of a file.
fn place(key: &Key) -> (&'static str, String) {
    match key {
        Key::Name(label) => (NAMES, label.to_string()),
        Key::Module(hash) => (MODULES, hash.to_string()),
        Key::RunHistory(label) => (BOOKS, label.to_string()),
        Key::Files(label) => (FILES, label.to_string()),
    }
}

/// Reads a plain file, without following a link.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let stat = file.metadata()?;
    if !stat.is_file() || stat.len() > FILE_MAX {
        return Err(io::Error::other("it is no plain file, or too large"));
    }
    let mut bytes = Vec::new();
    file.take(FILE_MAX + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests;
