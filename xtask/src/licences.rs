//! Licences of all linked crates, and the reason for each direct dependency.
//!
//! A licence expression passes if it can be satisfied from [`ALLOWED`]. Each direct dependency
//! needs a row in `docs/dependencies.md` that starts with its name.

use anyhow::{Context, Result};
use rig::sh;
use serde_json::Value;
use std::collections::BTreeSet;

const ALLOWED: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Returns every dependency with a disallowed licence or without a documented reason.
pub(crate) fn complaints() -> Result<Vec<String>> {
    let platform = "x86_64-unknown-linux-gnu";
    let args = ["metadata", "--format-version", "1", "--filter-platform", platform];
    let metadata: Value = serde_json::from_str(&sh::read(&mut sh::cargo(&args))?)?;
    let explained = std::fs::read_to_string(sh::root().join("docs/dependencies.md"))
        .context("docs/dependencies.md explains each direct dependency")?;
    let mut complaints = Vec::new();
    let mut direct = BTreeSet::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let name = package["name"].as_str().unwrap_or_default();
        if package["source"].is_null() {
            let all = package["dependencies"].as_array().into_iter().flatten();
            let outside = all.filter(|dependency| !dependency["source"].is_null());
            direct.extend(outside.filter_map(|d| d["name"].as_str().map(str::to_owned)));
        }
        let licence = package["license"].as_str().unwrap_or("none given");
        if !satisfied(licence) {
            complaints.push(format!("{name}: licence {licence}"));
        }
    }
    let rows: BTreeSet<_> = explained.lines().filter_map(first_cell).collect();
    let unexplained = direct.iter().filter(|name| !rows.contains(name.as_str()));
    complaints.extend(unexplained.map(|name| format!("{name}: no row in docs/dependencies.md")));
    Ok(complaints)
}

fn first_cell(line: &str) -> Option<&str> {
    line.strip_prefix('|')?.split('|').next().map(|cell| cell.trim().trim_matches('`'))
}

/// Returns whether a licence expression (SPDX, or the older `A/B`) can be satisfied.
fn satisfied(expression: &str) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<_> = spaced.split_whitespace().collect();
    let mut rest = words.as_slice();
    any(&mut rest) && rest.is_empty()
}

fn any(rest: &mut &[&str]) -> bool {
    let mut good = all(rest);
    while take(rest, "OR") {
        good |= all(rest);
    }
    good
}

fn all(rest: &mut &[&str]) -> bool {
    let mut good = one(rest);
    while take(rest, "AND") {
        good &= one(rest);
    }
    good
}

fn one(rest: &mut &[&str]) -> bool {
    if take(rest, "(") {
        let good = any(rest);
        return take(rest, ")") && good;
    }
    let Some((licence, after)) = rest.split_first() else { return false };
    *rest = after;
    if take(rest, "WITH") {
        // Exceptions only ever permit more.
        *rest = rest.get(1..).unwrap_or_default();
    }
    ALLOWED.contains(licence)
}

fn take(rest: &mut &[&str], word: &str) -> bool {
    let there = rest.first() == Some(&word);
    if there {
        *rest = &rest[1..];
    }
    there
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_linked_in_is_allowed_and_explained() {
        let complaints = complaints().expect("cargo metadata works");
        assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
    }

    #[test]
    fn expressions_are_satisfied_as_they_are_meant() {
        assert!(satisfied("MIT OR GPL-3.0"));
        assert!(satisfied("MIT/Apache-2.0"));
        assert!(satisfied("(MIT OR GPL-2.0) AND Unicode-3.0"));
        assert!(satisfied("Apache-2.0 WITH LLVM-exception OR MIT"));
        assert!(!satisfied("MIT AND GPL-3.0"));
        assert!(!satisfied("MPL-2.0"));
        assert!(!satisfied(""));
    }
}
