//! `cargo xtask guests [NAME…]`: builds the storelet programs, into `target/guests/NAME.wasm`.
//!
//! | name | what | from |
//! |---|---|---|
//! | `rg` | ripgrep | crates.io |
//! | `coreutils` | uutils coreutils, one program of many names | crates.io |
//! | `gojq` | a jq | a Go module |
//! | `sql` | SQLite with a small shell | crates.io (its C source), `guests/c` |
//! | `find`, `wc`, `count`, `compete` | in C | `guests/c` |
//! | `sums` | in Go | `guests/go` |
//! | `usage` | in Rust | `guests/rust` |
//! | `letters` | in AssemblyScript | `guests/assemblyscript` |
//!
//! Programs built in the same way from the same sources are not rebuilt. Missing Debian packages
//! are installed; Rust's target comes from rustup. A build failure does not stop the other builds,
//! but fails the command.

mod native;
mod toolchain;

pub use native::native;

use crate::{apt, sh};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Build recipe of a program. Its `Debug` output is part of the key that decides whether the
/// program is current.
#[derive(Debug)]
enum Recipe {
    /// A program of a crate from crates.io.
    Crate {
        name: &'static str,
        version: &'static str,
        /// Features; empty for the default ones.
        features: &'static str,
        /// Optimisation level.
        level: &'static str,
    },
    /// A package of this repository.
    Rust { dir: &'static str },
    /// A command of a Go module, with its version.
    GoModule { command: &'static str },
    /// A module of this repository.
    Go { dir: &'static str },
    /// C sources of this repository.
    C { file: &'static str },
    /// The same with SQLite, in the version bundled with a crate.
    Sqlite { file: &'static str, libsqlite3_sys: &'static str },
    /// A package of this repository.
    AssemblyScript { dir: &'static str },
}

/// A program.
struct Guest {
    /// Name of the module.
    name: &'static str,
    /// Name of the toolchain's output file, if the toolchain chooses it.
    makes: &'static str,
    recipe: Recipe,
}

const fn guest(name: &'static str, makes: &'static str, recipe: Recipe) -> Guest {
    Guest { name, makes, recipe }
}

/// Programs of coreutils run by the tests and the pages: each takes the compiler seconds.
const UTILITIES: &str = "b2sum cat cksum cp head ls mkdir mv rm rmdir sha256sum sort tail tee \
    truncate wc";

const GUESTS: &[Guest] = &[
    guest("find", "", Recipe::C { file: "find.c" }),
    guest("wc", "", Recipe::C { file: "wc.c" }),
    guest("count", "", Recipe::C { file: "count.c" }),
    guest("compete", "", Recipe::C { file: "compete.c" }),
    guest("usage", "usage.wasm", Recipe::Rust { dir: "rust" }),
    guest("sums", "", Recipe::Go { dir: "go" }),
    guest("letters", "", Recipe::AssemblyScript { dir: "assemblyscript" }),
    guest("sql", "", Recipe::Sqlite { file: "sql.c", libsqlite3_sys: "0.35.0" }),
    guest(
        "gojq",
        "gojq",
        Recipe::GoModule { command: "github.com/itchyny/gojq/cmd/gojq@v0.12.17" },
    ),
    guest(
        "rg",
        "rg.wasm",
        Recipe::Crate { name: "ripgrep", version: "15.2.0", features: "", level: "3" },
    ),
    // Its programs are not benchmarked.
    guest(
        "coreutils",
        "coreutils.wasm",
        Recipe::Crate { name: "coreutils", version: "0.12.0", features: UTILITIES, level: "1" },
    ),
];

/// Runs the command. Returns whether all programs are built.
pub fn main(names: &[String]) -> Result<bool> {
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    make(&names).map(|failed| failed.is_empty())
}

/// Builds the named programs, or all; returns the names of failed ones.
pub fn make(names: &[&str]) -> Result<Vec<&'static str>> {
    for name in names {
        if !GUESTS.iter().any(|guest| guest.name == *name) {
            let all: Vec<_> = GUESTS.iter().map(|guest| guest.name).collect();
            bail!("no guest is called {name}: there are {}", all.join(", "));
        }
    }
    let wanted = |guest: &&Guest| names.is_empty() || names.contains(&guest.name);
    let mut failed = Vec::new();
    for guest in GUESTS.iter().filter(wanted) {
        if let Err(error) = guest.make() {
            println!("-- {}: FAILED: {error:#}", guest.name);
            failed.push(guest.name);
        }
    }
    Ok(failed)
}

impl Guest {
    fn make(&self) -> Result<()> {
        let module = sh::scratch("guests")?.join(format!("{}.wasm", self.name));
        let stamp = sh::scratch("guests/build")?.join(format!("{}.stamp", self.name));
        let made_of = self.made_of()?;
        let is_same = std::fs::read_to_string(&stamp).is_ok_and(|stamp| stamp == made_of);
        if module.exists() && is_same {
            println!("-- {}: up to date, {}", self.name, size(&module)?);
            return Ok(());
        }
        println!("-- {}: from {}", self.name, self.recipe.source());
        apt::need(self.recipe.packages())?;
        let begun = Instant::now();
        let built = self.build()?;
        // The final name and the stamp are set only when complete.
        let partial = module.with_extension("partial");
        std::fs::copy(&built, &partial).with_context(|| built.display().to_string())?;
        std::fs::rename(&partial, &module)?;
        std::fs::write(&stamp, made_of)?;
        println!("   {} in {:.1} s", size(&module)?, begun.elapsed().as_secs_f64());
        Ok(())
    }

    /// Builds it; returns the built file.
    fn build(&self) -> Result<PathBuf> {
        match &self.recipe {
            Recipe::Crate { name, version, features, level } => {
                toolchain::install(name, version, (features, level), self.makes)
            }
            Recipe::Rust { dir } => toolchain::rust(&sources(dir), self.makes),
            Recipe::GoModule { command } => toolchain::go_install(command, self.makes),
            Recipe::Go { dir } => toolchain::go(&sources(dir), self.name),
            Recipe::C { file } => toolchain::c(&sources("c").join(file), None, self.name),
            Recipe::Sqlite { file, libsqlite3_sys } => {
                let sqlite = toolchain::sqlite(libsqlite3_sys)?;
                toolchain::c(&sources("c").join(file), Some(&sqlite), self.name)
            }
            Recipe::AssemblyScript { dir } => toolchain::assembly_script(&sources(dir), self.name),
        }
    }

    /// Returns everything that determines the module: a different text means a different module.
    fn made_of(&self) -> Result<String> {
        let mut text = format!("{:?}\n{}\n", self.recipe, toolchain::FLAGS);
        for file in self.recipe.files()? {
            text += &std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        }
        Ok(text)
    }
}

impl Recipe {
    /// Describes its source.
    fn source(&self) -> String {
        match self {
            Recipe::Crate { name, version, .. } => format!("crates.io: {name} {version}"),
            Recipe::GoModule { command } => format!("Go module {command}"),
            Recipe::Rust { dir } | Recipe::Go { dir } | Recipe::AssemblyScript { dir } => {
                format!("guests/{dir}")
            }
            Recipe::C { file } => format!("guests/c/{file}"),
            Recipe::Sqlite { file, libsqlite3_sys } => {
                format!("guests/c/{file} and crates.io: libsqlite3-sys {libsqlite3_sys}")
            }
        }
    }

    fn packages(&self) -> &'static [&'static [apt::Package]] {
        match self {
            Recipe::Crate { .. } | Recipe::Rust { .. } => &[],
            Recipe::GoModule { .. } | Recipe::Go { .. } => &[apt::GUESTS_GO],
            Recipe::C { .. } | Recipe::Sqlite { .. } => &[apt::GUESTS_C],
            Recipe::AssemblyScript { .. } => &[apt::GUESTS_NPM],
        }
    }

    /// Returns the files of this repository that it is built from.
    fn files(&self) -> Result<Vec<PathBuf>> {
        match self {
            Recipe::Crate { .. } | Recipe::GoModule { .. } => Ok(Vec::new()),
            Recipe::C { file } | Recipe::Sqlite { file, .. } => {
                Ok(["upcall.h", "walk.h", file].map(|name| sources("c").join(name)).to_vec())
            }
            Recipe::Rust { dir } => files_of(&sources(dir).join("src")),
            Recipe::Go { dir } => {
                let library = files_of(&sources(dir).join("upcall"))?;
                Ok([files_of(&sources(dir))?, library].concat())
            }
            Recipe::AssemblyScript { dir } => files_of(&sources(dir)),
        }
    }
}

fn sources(dir: &str) -> PathBuf {
    sh::root().join("guests").join(dir)
}

/// Returns the files of a directory, sorted.
fn files_of(dir: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(dir).with_context(|| dir.display().to_string())?;
    let mut files = Vec::new();
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            files.push(entry.path());
        }
    }
    files.sort();
    Ok(files)
}

fn size(file: &Path) -> Result<String> {
    let bytes = std::fs::metadata(file)?.len();
    Ok(match bytes {
        0..1_000_000 => format!("{:.1} KB", bytes as f64 / 1e3),
        _ => format!("{:.1} MB", bytes as f64 / 1e6),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_source_of_a_guest_is_there_and_changes_what_it_is_made_of() {
        for guest in GUESTS {
            let made_of = guest.made_of().expect("its sources can be read");
            for file in guest.recipe.files().expect("they can be listed") {
                let source = std::fs::read_to_string(file).expect("it is text");
                assert!(made_of.contains(&source), "{}", guest.name);
            }
        }
    }

    #[test]
    fn an_unknown_name_is_refused_with_those_that_there_are() {
        let error = make(&["rg", "emacs"]).expect_err("nobody builds it").to_string();
        assert!(error.starts_with("no guest is called emacs") && error.contains("coreutils"));
    }
}
