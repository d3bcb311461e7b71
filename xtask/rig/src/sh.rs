//! Running other programs, and common paths.
//!
//! The error of a failed program contains its name and the end of its output, so it can be
//! diagnosed without running the program again.

use anyhow::{Context, Result, bail};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Returns the root of the workspace.
pub fn root() -> PathBuf {
    let rig = Path::new(env!("CARGO_MANIFEST_DIR"));
    rig.ancestors().nth(2).expect("it is two directories below").to_path_buf()
}

/// Returns the directory of builds and downloads.
pub fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// Returns `target/NAME`, created if necessary.
pub fn scratch(name: &str) -> Result<PathBuf> {
    let dir = target().join(name);
    std::fs::create_dir_all(&dir).with_context(|| format!("make {}", dir.display()))?;
    Ok(dir)
}

/// Returns `target/NAME` as a new, empty directory.
pub fn empty(name: &str) -> Result<PathBuf> {
    let dir = target().join(name);
    if dir.exists() {
        std::fs::remove_dir_all(&dir).with_context(|| format!("empty {}", dir.display()))?;
    }
    scratch(name)
}

/// Runs `make` under a lock: for files shared by several processes of a test run.
pub fn exclusive<T>(make: impl FnOnce() -> Result<T>) -> Result<T> {
    // Closing the directory unlocks it.
    let target = std::fs::File::open(target()).context("open the directory of builds")?;
    rustix::fs::flock(&target, rustix::fs::FlockOperation::LockExclusive)
        .context("wait for other test processes")?;
    make()
}

/// Returns a program of crates.io, built once under `target/tools`.
pub fn tool(name: &str, version: &str) -> Result<PathBuf> {
    let tools = scratch("tools")?.join(format!("{name}-{version}"));
    let program = tools.join("bin").join(name);
    if !program.exists() {
        println!("   building {name} {version}, once");
        let mut cargo = cargo(&["install", name, "--quiet", "--locked", "--version", version]);
        cargo.arg("--root").arg(&tools).arg("--target-dir").arg(tools.join("build"));
        run(&mut cargo)?;
    }
    Ok(program)
}

/// Returns a command in the workspace's root.
pub fn cmd<S: AsRef<OsStr>>(program: &str, args: &[S]) -> Command {
    let mut command = Command::new(program);
    command.args(args).current_dir(root()).stdin(Stdio::null());
    command
}

/// Returns the `cargo` that runs `cargo xtask`.
pub fn cargo<S: AsRef<OsStr>>(args: &[S]) -> Command {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    cmd(&cargo, args)
}

/// Builds all programs of the workspace as tests use them.
pub fn build() -> Result<()> {
    run(&mut cargo(&["build", "--quiet", "--workspace", "--bins"]))
}

/// Builds all programs of the workspace in release mode. Built separately, their dependencies would
/// have different features and be rebuilt for each program.
pub fn build_optimised() -> Result<()> {
    run(&mut cargo(&["build", "--quiet", "--release", "--workspace", "--bins"]))
}

/// Returns the path of this program. A build may have replaced it by a newer one, which does as
/// well: then Linux marks the old path as deleted.
pub fn own_path() -> Result<PathBuf> {
    let path = std::env::current_exe()?;
    let newer = path.to_str().and_then(|text| text.strip_suffix(" (deleted)")).map(PathBuf::from);
    Ok(newer.unwrap_or(path))
}

/// Runs a command to its end with output to the terminal.
pub fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("start {}", line(command)))?;
    if !status.success() {
        bail!("{} ended with {status}", line(command));
    }
    Ok(())
}

/// Runs a command to its end and returns its output; standard error is in the error.
pub fn read(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("start {}", line(command)))?;
    if !output.status.success() {
        let printed = String::from_utf8_lossy(&output.stderr);
        bail!("{} ended with {}: {}", line(command), output.status, tail(&printed, 600));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns whether a program of this name can be found.
pub fn found(program: &str) -> bool {
    which(program).is_some()
}

/// Returns the path of a program; system directories are searched even if not in PATH.
pub fn which(program: &str) -> Option<PathBuf> {
    let path = std::env::var("PATH").unwrap_or_default();
    let extra = ["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/lib/go/bin"];
    path.split(':')
        .chain(extra)
        .map(|dir| Path::new(dir).join(program))
        .find(|candidate| candidate.is_file())
}

/// Returns the last `bytes` of a text, from a character boundary, without surrounding blanks.
pub fn tail(text: &str, bytes: usize) -> &str {
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
