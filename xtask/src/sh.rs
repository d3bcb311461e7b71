//! Running other programs, and the few paths every command needs.
//!
//! A program is named in the error when it fails, with the end of what it wrote, so that a failure
//! can be read without running it again.

use anyhow::{Context, Result, bail};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The root of the workspace.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask has a parent").to_path_buf()
}

/// Where builds and downloads go.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// `target/NAME` as an existing directory.
pub(crate) fn scratch(name: &str) -> Result<PathBuf> {
    let dir = target().join(name);
    std::fs::create_dir_all(&dir).with_context(|| format!("make {}", dir.display()))?;
    Ok(dir)
}

/// `target/NAME` as a new, empty directory.
pub(crate) fn empty(name: &str) -> Result<PathBuf> {
    let dir = target().join(name);
    if dir.exists() {
        std::fs::remove_dir_all(&dir).with_context(|| format!("empty {}", dir.display()))?;
    }
    scratch(name)
}

/// Makes something that several processes of a test run need; one process at a time.
pub(crate) fn exclusive<T>(make: impl FnOnce() -> Result<T>) -> Result<T> {
    // Closing the directory unlocks it.
    let target = std::fs::File::open(target()).context("open the directory of builds")?;
    rustix::fs::flock(&target, rustix::fs::FlockOperation::LockExclusive)
        .context("wait for other test processes")?;
    make()
}

/// A command in the workspace's root.
pub(crate) fn cmd<S: AsRef<OsStr>>(program: &str, args: &[S]) -> Command {
    let mut command = Command::new(program);
    command.args(args).current_dir(root()).stdin(Stdio::null());
    command
}

/// `cargo` as it was called by `cargo xtask`.
pub(crate) fn cargo<S: AsRef<OsStr>>(args: &[S]) -> Command {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    cmd(&cargo, args)
}

/// Runs this program's `word` again, optimised, as what is measured must be: the clients of a
/// bench must not be its slow part, and the server is built as they are.
pub(crate) fn optimised(word: &str, args: &[String]) -> Result<()> {
    build_optimised()?;
    let program = target().join("release/xtask").display().to_string();
    run(cmd(&program, &[word]).args(args))
}

/// Builds all programs of the workspace, optimised. One by one they would have dependencies with
/// other features, which would be built again each time another program is wanted.
pub(crate) fn build_optimised() -> Result<()> {
    run(&mut cargo(&["build", "--quiet", "--release", "--workspace", "--bins"]))
}

/// Where this program is. A build may have put a newer one in its place, which does as well: then
/// Linux says that this one is deleted.
pub(crate) fn own_path() -> Result<PathBuf> {
    let path = std::env::current_exe()?;
    let newer = path.to_str().and_then(|text| text.strip_suffix(" (deleted)")).map(PathBuf::from);
    Ok(newer.unwrap_or(path))
}

/// Runs to the end with the output on the terminal.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("start {}", line(command)))?;
    if !status.success() {
        bail!("{} ended with {status}", line(command));
    }
    Ok(())
}

/// Runs to the end and returns what it wrote; what it complained about is in the error.
pub(crate) fn read(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("start {}", line(command)))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{} ended with {}: {}", line(command), output.status, tail(&said, 600));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Whether a program of this name can be found.
pub(crate) fn found(program: &str) -> bool {
    which(program).is_some()
}

/// Where a program is; system directories count even when PATH does not name them.
pub(crate) fn which(program: &str) -> Option<PathBuf> {
    let path = std::env::var("PATH").unwrap_or_default();
    let extra = ["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/lib/go/bin"];
    path.split(':')
        .chain(extra)
        .map(|dir| Path::new(dir).join(program))
        .find(|candidate| candidate.is_file())
}

/// The last `bytes` of a text, from a character boundary, without surrounding blanks.
pub(crate) fn tail(text: &str, bytes: usize) -> &str {
    let text = text.trim();
    let mut start = text.len().saturating_sub(bytes);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    &text[start..]
}

fn line(command: &Command) -> String {
    let words: Vec<_> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    words.join(" ").chars().take(200).collect()
}
