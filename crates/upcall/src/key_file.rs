//! Files with a secret key, which are created at their first use.

use crate::clock;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

/// Size of a key, bytes.
pub(crate) const KEY_SIZE: usize = 32;

/// Returns the key in a file, creating it if necessary.
///
/// # Errors
/// The cause, and the next step.
pub(crate) fn read_or_create(path: &Path) -> Result<[u8; KEY_SIZE], String> {
    let shown = path.file_name().unwrap_or_default().display();
    if !path.exists() {
        create_key(path).map_err(|error| error.to_string())?;
    }
    let read = || -> io::Result<(std::fs::Metadata, Vec<u8>)> {
        let file = open(path)?;
        let (stat, mut bytes) = (file.metadata()?, Vec::new());
        file.take(KEY_SIZE as u64 + 1).read_to_end(&mut bytes)?;
        Ok((stat, bytes))
    };
    let (stat, bytes) = read().map_err(|error| format!("its file {shown}: {error}"))?;
    if stat.uid() != reactor::own_user() || stat.mode() & 0o077 != 0 || !stat.is_file() {
        return Err(format!("others may read its file {shown}: remove the directory"));
    }
    bytes.try_into().map_err(|_| format!("its file {shown} is broken: remove it"))
}

fn create_key(path: &Path) -> io::Result<()> {
    let bytes: [u8; KEY_SIZE] = clock::random_bytes()?;
    let new = path.with_file_name(format!("new-key-{}", std::process::id()));
    let write = || -> io::Result<()> {
        let mut file = create(&new)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        // Another server may have created one meanwhile; then that is the key.
        std::fs::hard_link(&new, path)
    };
    let made = write();
    let _ = std::fs::remove_file(&new);
    match made {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Opens a file for reading, without following a link.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

/// Creates a new file.
pub(crate) fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}
