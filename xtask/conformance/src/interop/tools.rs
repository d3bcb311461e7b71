//! Downloads from registries, each pinned to one version: Go programs through Go's proxy, Python
//! packages from PyPI into a virtual environment. All of them are kept in `target/interop`.

use anyhow::{Context, Result};
use rig::{go, sh};
use std::path::PathBuf;

/// Versions of the downloads; the page lists them.
pub(super) const P9: &str = "v0.3.0";
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
        let plan9 = ("9fans.net/go", PLAN9);
        Tools {
            p9ufs: kept("p9ufs", go::program("p9ufs", p9), &mut missing),
            export9p: kept("export9p", go::program("export9p", go::GO9P), &mut missing),
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

/// Builds a client of ours on a Go module, again when its source changes.
fn client(name: &str, text: &str, module: (&str, &str)) -> Result<PathBuf> {
    let dir = sh::scratch(&format!("interop/client-{name}"))?;
    std::fs::write(dir.join("main.go"), text)?;
    go::build(&dir, module, "client", ".")?;
    Ok(dir.join("client"))
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
