//! The key of a service: its holder may change the members.

use services::{ADMINISTRATOR, Settings};
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Maximum size of a key, bytes: it names some replicas.
const KEY_MAX: u64 = 1 << 20;

/// Writes the key of the service with these settings, readable by its owner only.
///
/// # Errors
/// The cause, and the next step.
pub(super) fn write(path: &Path, settings: &Settings) -> Result<(), String> {
    let key = Settings { me: ADMINISTRATOR, ..settings.clone() };
    let text = serde_json::to_string_pretty(&key).expect("names and numbers are JSON");
    let shown = path.display();
    let refuse = |error| format!("cannot write {shown}: {error}; choose another --dir");
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let mut file = file.map_err(refuse)?;
    writeln!(file, "{text}").and_then(|()| file.sync_all()).map_err(|error| {
        // A partial key is useless.
        drop(std::fs::remove_file(path));
        refuse(error)
    })
}

/// Reads a key.
///
/// # Errors
/// The cause, and the next step.
pub(super) fn read(path: &Path) -> Result<Settings, String> {
    let shown = path.display();
    let mut text = String::new();
    let file = File::open(path).and_then(|file| file.take(KEY_MAX).read_to_string(&mut text));
    file.map_err(|error| match error.kind() == io::ErrorKind::InvalidData {
        true => format!("{shown} is no key of a service: name NAME.key"),
        false => format!("cannot read {shown}: {error}; 'upcall replica init' created NAME.key"),
    })?;
    let key: Settings = serde_json::from_str(&text).map_err(|error| {
        format!("{shown} is no key of a service: {error}; 'upcall replica init' makes NAME.key")
    })?;
    match key.is_known() {
        true => Ok(key),
        false => Err(format!("{shown} is the key of another version of upcall: use that")),
    }
}
