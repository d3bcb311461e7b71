//! Programs of Go modules, through Go's proxy, kept in `target/interop`.

use crate::sh;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

/// A 9P2000 library with programs, and its version.
pub const GO9P: (&str, &str) = ("github.com/knusbaum/go9p", "v1.18.0");

/// Returns a program of a module of this version.
pub fn program(name: &str, module: (&str, &str)) -> Result<PathBuf> {
    let dir = sh::scratch(&format!("interop/{name}-{}", module.1))?;
    let program = dir.join(name);
    if !program.exists() {
        build(&dir, module, name, &format!("{}/cmd/{name}", module.0))?;
    }
    Ok(program)
}

/// Builds a package with a module pinned to the given version.
pub fn build(dir: &Path, module: (&str, &str), to: &str, package: &str) -> Result<()> {
    let (name, version) = module;
    let text = format!("module interop\n\ngo 1.19\n\nrequire {name} {version}\n");
    std::fs::write(dir.join("go.mod"), text)?;
    let go = sh::which("go").context("no go toolchain")?.display().to_string();
    let mut command = sh::cmd(&go, &["build", "-mod=mod", "-o", to, package]);
    command.current_dir(dir).env("GOFLAGS", "-buildvcs=false").env("GOTOOLCHAIN", "local");
    sh::read(&mut command).with_context(|| format!("build {package}")).map(|_| ())
}
