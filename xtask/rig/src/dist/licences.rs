//! Copyright notices of the program and of all packages linked into it.

use crate::sh;
use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Prefixes of file names with a licence or a notice.
const NAMES: &[&str] = &["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE"];

/// A package linked into the program.
pub(super) struct Linked {
    name: String,
    version: String,
    licence: String,
    dir: PathBuf,
}

/// Returns the packages from registries that are linked into the program.
pub(super) fn linked(target: &str) -> Result<Vec<Linked>> {
    let words = ["tree", "-p", "upcall", "-e", "normal", "--target", target, "--prefix", "none"];
    let tree = sh::read(sh::cargo(&words).args(["--format", "{p}"]))?;
    let names = tree.lines().filter_map(|line| {
        let mut words = line.split(' ');
        Some((words.next()?, words.next()?.strip_prefix('v')?))
    });
    let names: BTreeSet<(&str, &str)> = names.collect();
    let words = ["metadata", "--format-version", "1", "--filter-platform", target];
    let metadata: Value = serde_json::from_str(&sh::read(&mut sh::cargo(&words))?)?;
    let mut linked = Vec::new();
    for package in metadata["packages"].as_array().context("packages")? {
        let text = |field: &str| package[field].as_str().unwrap_or_default().to_owned();
        let (name, version) = (text("name"), text("version"));
        if package["source"].is_null() || !names.contains(&(&*name, &*version)) {
            continue;
        }
        let manifest = PathBuf::from(text("manifest_path"));
        let dir = manifest.parent().context("a directory")?.to_path_buf();
        linked.push(Linked { licence: text("license"), name, version, dir });
    }
    linked.sort_by(|a, b| (&a.name, &a.version).cmp(&(&b.name, &b.version)));
    ensure!(linked.len() > 50, "only {} packages are linked", linked.len());
    Ok(linked)
}

/// Returns the copyright file of Debian (its machine-readable format 1.0).
pub(super) fn copyright(linked: &[Linked]) -> Result<String> {
    let mit = std::fs::read_to_string(sh::root().join("LICENSE-MIT"))?;
    let holder = mit.lines().find_map(|line| line.strip_prefix("Copyright (c) "));
    let mut text = format!(
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\
         Upstream-Name: upcall\n\nFiles: *\nCopyright: {}\nLicense: Apache-2.0 or Expat\n \
         The text of the Apache License 2.0 is in /usr/share/common-licenses/Apache-2.0.\n .\n",
        holder.context("LICENSE-MIT names the holder")?
    );
    for line in mit.lines() {
        writeln!(text, " {}", if line.is_empty() { "." } else { line })?;
    }
    text.push_str(
        "\nFiles: /usr/bin/upcall\nCopyright: authors of the packages\nLicense: several\n \
         The program contains musl (MIT) and these packages of Rust. Their licence texts are in\n \
         /usr/share/doc/upcall/third-party.gz.\n .\n",
    );
    for Linked { name, version, licence, .. } in linked {
        writeln!(text, "  {name} {version}: {licence}")?;
    }
    Ok(text)
}

/// Returns the licence texts of all packages, each text once.
pub(super) fn notices(linked: &[Linked]) -> Result<String> {
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for Linked { name, version, licence, dir } in linked {
        let title = format!("{name} {version} ({licence})");
        for path in files(dir)? {
            let bytes = std::fs::read(&path)?;
            let text = String::from_utf8_lossy(&bytes).trim().to_owned();
            texts.entry(text).or_default().push(title.clone());
        }
    }
    let mut all = String::new();
    for (text, titles) in texts {
        writeln!(all, "{}\n\n{text}\n\n{}\n", titles.join("\n"), "-".repeat(72))?;
    }
    Ok(all)
}

/// Returns the files of a package with licences, sorted.
fn files(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().display().to_string().to_uppercase();
        if path.is_file() && NAMES.iter().any(|start| name.starts_with(start)) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
