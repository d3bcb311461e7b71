//! Volumes for tests and benchmarks, created, filled and checked by the server's own binary.

use crate::{server, sh};
use anyhow::{Context, Result, ensure};
use std::path::Path;

/// Creates an empty, sparse volume, replacing an earlier one.
pub fn create(file: &Path, size: &str) -> Result<()> {
    make(file, &["create", "--sparse", "--size", size])
}

/// Like `create`, with all storage preallocated.
pub fn create_whole(file: &Path, size: &str) -> Result<()> {
    make(file, &["create", "--size", size])
}

fn make(file: &Path, words: &[&str]) -> Result<()> {
    if file.exists() {
        std::fs::remove_file(file)?;
    }
    if let Some(dir) = file.parent() {
        std::fs::create_dir_all(dir)?;
    }
    run(words, &[file]).map(|_| ())
}

/// Copies the contents of a directory into the root of a volume.
pub fn copy_in(dir: &Path, file: &Path) -> Result<String> {
    run(&["copy"], &[dir, &root_of(file)])
}

/// Copies everything in a volume into a new directory.
pub fn copy_out(file: &Path, dir: &Path) -> Result<String> {
    run(&["copy"], &[&root_of(file), dir])
}

/// Checks a volume; returns the last line of the output, or an error if it is damaged.
pub fn check(file: &Path) -> Result<String> {
    let printed = run(&["check"], &[file])?;
    let last = printed.lines().last().unwrap_or("").to_owned();
    ensure!(last == "nothing is wrong", "printed {last:?}");
    Ok(last)
}

/// Checks the volume without writing: records in the journal are not applied.
pub fn look(file: &Path) -> Result<String> {
    run(&["check", "--read-only"], &[file])
}

fn root_of(file: &Path) -> std::path::PathBuf {
    let mut text = file.as_os_str().to_owned();
    text.push(":/");
    text.into()
}

/// Runs `upcall volume`. Findings are on standard output, so they are part of the error.
fn run(words: &[&str], paths: &[&Path]) -> Result<String> {
    let binary = server::binary().display().to_string();
    let output = sh::cmd(&binary, &["volume"]).args(words).args(paths).output()?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let complained = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "upcall volume {} ended with {}: {}",
        words.first().context("a command")?,
        output.status,
        sh::tail(&format!("{complained}{printed}"), 600)
    );
    Ok(printed)
}
