//! Native builds of the same programs, to compare with: into `target/native/bin`.

use super::{GUESTS, Guest, Recipe, sources, toolchain};
use crate::sh;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};

/// Returns the path of a program, building it if it is not current.
pub fn native(name: &str) -> Result<PathBuf> {
    let guest = GUESTS.iter().find(|guest| guest.name == name).context("no such guest")?;
    let root = sh::scratch("native")?;
    let made = sh::scratch("native/bin")?.join(name);
    let stamp = root.join(format!("{name}.stamp"));
    let made_of = guest.made_of()?;
    let is_same = std::fs::read_to_string(&stamp).is_ok_and(|stamp| stamp == made_of);
    if !made.exists() || !is_same {
        println!("-- {name}, native");
        guest.make_native(&root, &made).with_context(|| format!("{name}, native"))?;
        std::fs::write(&stamp, made_of)?;
    }
    Ok(made)
}

impl Guest {
    fn make_native(&self, root: &Path, made: &Path) -> Result<()> {
        match &self.recipe {
            Recipe::Crate { name, version, features: "", .. } => {
                let words = ["install", name, "--version", version, "--locked", "--no-track"];
                let mut cargo = sh::cargo(&words);
                cargo.arg("--force").arg("--root").arg(root);
                cargo.arg("--target-dir").arg(root.join("build")).env_remove("CARGO_TARGET_DIR");
                sh::read(&mut cargo).map(drop)
            }
            Recipe::C { file } => c(&sources("c").join(file), None, made),
            Recipe::Sqlite { file, libsqlite3_sys } => {
                let sqlite = toolchain::sqlite(libsqlite3_sys)?;
                c(&sources("c").join(file), Some(&sqlite), made)
            }
            Recipe::Go { dir } => {
                let go = sh::which("go").context("no go toolchain")?.display().to_string();
                let mut go = sh::cmd(&go, &["build", "-ldflags=-s -w", "-o"]);
                go.arg(made).arg(".").current_dir(sources(dir));
                go.env("GOFLAGS", "-buildvcs=false").env("GOTOOLCHAIN", "local");
                sh::read(&mut go).map(drop)
            }
            other @ (Recipe::Crate { .. }
            | Recipe::Rust { .. }
            | Recipe::GoModule { .. }
            | Recipe::AssemblyScript { .. }) => bail!("{other:?} is not built natively"),
        }
    }
}

/// Builds a C program, with the same SQLite as for guests.
fn c(file: &Path, sqlite: Option<&Path>, made: &Path) -> Result<()> {
    let mut cc = sh::cmd("cc", &["-O2", "-march=native", "-Wall"]);
    cc.arg(file).arg("-o").arg(made);
    if let Some(sqlite) = sqlite {
        cc.arg(sqlite.join("sqlite3.c")).arg("-I").arg(sqlite);
        cc.args(toolchain::SQLITE_OPTIONS).arg("-lm");
    }
    sh::read(&mut cc).map(drop)
}
