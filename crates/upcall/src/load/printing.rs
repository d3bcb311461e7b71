//! Output of the result, in every requested form.

use super::flags::Flags;
use load::measure::Measured;
use load::report::{fio, hdr, html, json, text};
use std::path::Path;

/// Prints the result to standard output, and writes the requested files.
///
/// # Errors
/// If a file cannot be written.
pub(crate) fn all(flags: &Flags, measured: &Measured) -> Result<(), String> {
    let run = measured.run();
    let printed = if flags.json { json::report(&run) } else { text::report(&run) };
    crate::output::out(format_args!("{printed}"));
    if let Some(path) = &flags.html {
        write(path, html::report(&run).as_bytes())?;
    }
    if let Some(path) = &flags.fio {
        write(path, fio::report(&run).as_bytes())?;
    }
    if let Some(path) = &flags.hdr {
        let mut log = Vec::new();
        hdr::write(&run, &mut log).map_err(|error| failed(path, &error))?;
        write(path, &log)?;
    }
    Ok(())
}

/// Writes a whole file.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<(), String> {
    std::fs::write(path, bytes).map_err(|error| failed(path, &error))
}

fn failed(path: &Path, error: &std::io::Error) -> String {
    format!("cannot write {}: {error}", path.display())
}
