//! Downloads from registries, each pinned to one version: Go programs through Go's proxy, Python
//! packages from PyPI into a virtual environment. All of them are kept in `target/interop`.

use crate::sh;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

/// Versions of the downloads; the page lists them.
pub(super) const P9: &str = "v0.3.0";
pub(super) const GO9P: &str = "v1.18.0";
pub(super) const PLAN9: &str = "v0.0.7";
pub(super) const PYROUTE2: &str = "0.9.7";

const PLAN9_CLIENT: &str = include_str!("plan9.go");
const P9_CLIENT: &str = include_str!("linux.go");
const PYTHON_CLIENT: &str = include_str!("client.py");
const PYTHON_SERVER: &str = include_str!("serve.py");

/// Paths of the programs that could be installed.
#[derive(Default)]
pub(super) struct Tools {
    pub(super) p9ufs: Option<PathBuf>,
    pub(super) export9p: Option<PathBuf>,
    pub(super) plan9_client: Option<PathBuf>,
    pub(super) p9_client: Option<PathBuf>,
    pub(super) python: Option<Python>,
    /// Programs that could not be installed, and the reason.
    pub(super) missing: Vec<(&'static str, String)>,
}

/// An interpreter with the package, and our scripts for it.
pub(super) struct Python {
    pub(super) program: PathBuf,
    pub(super) client: PathBuf,
    pub(super) server: PathBuf,
}

impl Tools {
    /// Builds and downloads missing programs.
    pub(super) fn install() -> Tools {
        let mut missing = Vec::new();
        let p9 = ("github.com/hugelgupf/p9", P9);
        let go9p = ("github.com/knusbaum/go9p", GO9P);
        let plan9 = ("9fans.net/go", PLAN9);
        Tools {
            p9ufs: kept("p9ufs", server("p9ufs", p9), &mut missing),
            export9p: kept("export9p", server("export9p", go9p), &mut missing),
            plan9_client: kept("9fans", client("plan9", PLAN9_CLIENT, plan9), &mut missing),
            p9_client: kept("p9", client("linux", P9_CLIENT, p9), &mut missing),
            python: kept("python", python(), &mut missing),
            missing,
        }
    }
}

fn kept<T>(
    name: &'static str,
    outcome: Result<T>,
    missing: &mut Vec<(&'static str, String)>,
) -> Option<T> {
    outcome.map_err(|error| missing.push((name, format!("{error:#}")))).ok()
}

/// Returns a FUSE client of 9P2000 from one of these modules.
pub(crate) fn mount9p() -> Result<PathBuf> {
    server("mount9p", ("github.com/knusbaum/go9p", GO9P))
}

/// Returns a program of a Go module.
fn server(name: &str, module: (&str, &str)) -> Result<PathBuf> {
    let dir = sh::scratch(&format!("interop/{name}-{}", module.1))?;
    let program = dir.join(name);
    if !program.exists() {
        go_build(&dir, module, name, &format!("{}/cmd/{name}", module.0))?;
    }
    Ok(program)
}

/// Builds a client of ours on a Go module, again when its source changes.
fn client(name: &str, text: &str, module: (&str, &str)) -> Result<PathBuf> {
    let dir = sh::scratch(&format!("interop/client-{name}"))?;
    std::fs::write(dir.join("main.go"), text)?;
    go_build(&dir, module, "client", ".")?;
    Ok(dir.join("client"))
}

/// Builds a package with a module pinned to the given version.
fn go_build(dir: &Path, module: (&str, &str), to: &str, package: &str) -> Result<()> {
    let (name, version) = module;
    let text = format!("module interop\n\ngo 1.19\n\nrequire {name} {version}\n");
    std::fs::write(dir.join("go.mod"), text)?;
    let go = sh::which("go").context("no go toolchain")?.display().to_string();
    let mut command = sh::cmd(&go, &["build", "-mod=mod", "-o", to, package]);
    command.current_dir(dir).env("GOFLAGS", "-buildvcs=false").env("GOTOOLCHAIN", "local");
    sh::read(&mut command).with_context(|| format!("build {package}")).map(|_| ())
}

fn python() -> Result<Python> {
    let dir = sh::scratch(&format!("interop/python-{PYROUTE2}"))?;
    let program = dir.join("venv/bin/python");
    let complete = dir.join("complete");
    if !complete.exists() {
        let python = sh::which("python3").context("no python3")?.display().to_string();
        let venv = dir.join("venv").display().to_string();
        sh::read(&mut sh::cmd(&python, &["-m", "venv", "--clear", &venv]))?;
        let package = format!("pyroute2=={PYROUTE2}");
        let pip = ["-m", "pip", "install", "--quiet", &package];
        sh::read(&mut sh::cmd(&program.display().to_string(), &pip))?;
        std::fs::write(complete, "")?;
    }
    let (client, server) = (dir.join("client.py"), dir.join("serve.py"));
    std::fs::write(&client, PYTHON_CLIENT)?;
    std::fs::write(&server, PYTHON_SERVER)?;
    Ok(Python { program, client, server })
}
