//! Dependencies between crates, checked against the allowed ones: every dependency in a Cargo.toml
//! must be allowed.
//!
//! The allowed dependencies are the table of ARCHITECTURE.md whose last column is titled `may use`,
//! so the documented architecture is the enforced one.

use anyhow::{Context, Result, ensure};
use rig::sh;
use std::collections::{BTreeMap, BTreeSet};

type Arrows = BTreeMap<String, BTreeSet<String>>;

/// Returns every dependency that the table does not allow and every crate missing from it.
pub(crate) fn complaints() -> Result<Vec<String>> {
    let written = std::fs::read_to_string(sh::root().join("ARCHITECTURE.md"))?;
    let allowed = table(&written);
    ensure!(!allowed.is_empty(), "ARCHITECTURE.md has no table whose last column is `may use`");
    let mut complaints = Vec::new();
    for (from, uses) in &drawn()? {
        let Some(may) = allowed.get(from) else {
            complaints.push(format!("crate {from} is not in the table of arrows"));
            continue;
        };
        complaints.extend(uses.difference(may).map(|to| format!("{from} may not use {to}")));
    }
    Ok(complaints)
}

/// Parses the rows of every Markdown table whose last column is titled `may use`.
fn table(text: &str) -> Arrows {
    let mut rows = Arrows::new();
    let mut inside = false;
    for line in text.lines() {
        let cells: Vec<_> = line.trim().trim_matches('|').split('|').map(str::trim).collect();
        if !line.trim_start().starts_with('|') {
            inside = false;
        } else if cells.last() == Some(&"may use") {
            inside = true;
        } else if inside && !cells[0].starts_with('-') {
            rows.insert(names(cells[0]).into_iter().collect(), names(cells[cells.len() - 1]));
        }
    }
    rows
}

/// Returns the crate names of a cell, with or without backticks and commas.
fn names(cell: &str) -> BTreeSet<String> {
    cell.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect()
}

/// Returns the dependencies in the manifests, among the crates of this workspace.
fn drawn() -> Result<Arrows> {
    let mut manifests = vec![("xtask".to_owned(), sh::root().join("xtask/Cargo.toml"))];
    for dir in ["crates", "xtask"] {
        for entry in std::fs::read_dir(sh::root().join(dir))? {
            let entry = entry?;
            let (name, manifest) = (entry.file_name(), entry.path().join("Cargo.toml"));
            if manifest.exists() {
                manifests.push((name.to_string_lossy().into_owned(), manifest));
            }
        }
    }
    let ours: BTreeSet<_> = manifests.iter().map(|(name, _)| name.clone()).collect();
    let mut arrows = Arrows::new();
    for (name, path) in &manifests {
        let text = std::fs::read_to_string(path).with_context(|| format!("{}", path.display()))?;
        arrows.insert(name.clone(), dependencies(&text).intersection(&ours).cloned().collect());
    }
    Ok(arrows)
}

/// Returns the keys of every dependencies section of a manifest.
fn dependencies(manifest: &str) -> BTreeSet<String> {
    let mut inside = false;
    let mut keys = BTreeSet::new();
    for line in manifest.lines() {
        if let Some(section) = line.trim().strip_prefix('[') {
            inside = section.trim_end_matches(']').ends_with("dependencies");
        } else if inside && let Some((key, _)) = line.split_once(['.', '=', ' ']) {
            keys.insert(key.trim().to_owned());
        }
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_use_only_what_the_table_allows() {
        let complaints = complaints().expect("manifests can be read");
        assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
    }

    #[test]
    fn a_table_is_read_whatever_its_middle_columns() {
        let text = "| crate | is | may use |\n|---|---|---|\n| `a` | x | – |\n| `b` | y | `a` |\n";
        let rows = table(text);
        assert!(rows["a"].is_empty());
        assert!(rows["b"].contains("a"));
    }

    #[test]
    fn dependencies_of_every_kind_are_seen() {
        let text =
            "[dependencies]\nbase.workspace = true\n[dev-dependencies]\nsim = { path = \"\" }\n";
        assert_eq!(dependencies(text).into_iter().collect::<Vec<_>>(), ["base", "sim"]);
    }
}
