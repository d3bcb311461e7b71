//! `cargo xtask api [--record]`: the public interface of the published libraries, compared with
//! the listing beside each (`crates/*/api.txt`).
//!
//! A line of the listing is a public item as rustfmt writes it, without its documentation. The
//! compiler's lint `unreachable_pub` ensures that each `pub` is reachable, so the text is the
//! interface. `--record` writes the listings. After a release (the first line says `released`) it
//! refuses to remove or change a line unless the version is incompatible with that of the listing.
//!
//! cargo-semver-checks would find changes of auto traits and of layouts too. It builds rustdoc's
//! JSON of two versions, whose format changes with the compiler, and more than 300 packages; a
//! listing is reviewed as a part of each change.

use anyhow::{Context as _, Result, bail, ensure};
use rig::sh;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// A published library, with the items that it exports from other crates.
struct Library {
    name: &'static str,
    exports: &'static [(&'static str, &'static [&'static str])],
}

const LIBRARIES: &[Library] = &[
    Library {
        name: "client",
        exports: &[("base/src", &["Kind", "Time"]), ("session/src", &["Dialect"])],
    },
    Library {
        name: "embed",
        exports: &[
            ("engine/src", &["Call", "Entry", "Failure", "Reply", "Request", "Scan", "ScanBatch"]),
            ("store/src", &["Durability", "Ticket"]),
        ],
    },
];

/// State of the version of a listing, on its first line.
const UNRELEASED: &str = "unreleased";

/// Runs the command. Returns whether the listings are those of the sources.
pub(crate) fn main(args: &[String]) -> Result<bool> {
    match args {
        [] => {
            let complaints = complaints()?;
            complaints.iter().for_each(|complaint| println!("{complaint}"));
            Ok(complaints.is_empty())
        }
        [word] if word == "--record" => {
            LIBRARIES.iter().try_for_each(record)?;
            Ok(true)
        }
        _ => bail!("usage: cargo xtask api [--record]"),
    }
}

/// Returns every difference between the listings and the sources.
pub(crate) fn complaints() -> Result<Vec<String>> {
    let mut complaints = Vec::new();
    for library in LIBRARIES {
        let written = std::fs::read_to_string(library.file()).unwrap_or_default();
        let now = library.listing()?;
        let before: Vec<&str> = written.lines().skip(1).collect();
        let gone = before.iter().filter(|line| !now.iter().any(|it| it == *line));
        complaints.extend(gone.map(|line| format!("{}: gone: {line}", library.name)));
        let new = now.iter().filter(|line| !before.contains(&line.as_str()));
        complaints.extend(new.map(|line| format!("{}: new: {line}", library.name)));
    }
    if !complaints.is_empty() {
        complaints.push("review the changes, then run `cargo xtask api --record`".to_owned());
    }
    Ok(complaints)
}

fn record(library: &Library) -> Result<()> {
    let written = std::fs::read_to_string(library.file()).unwrap_or_default();
    let (now, version) = (library.listing()?, env!("CARGO_PKG_VERSION"));
    let mut lines = written.lines();
    let head = lines.next().unwrap_or_default();
    let is_gone = lines.any(|line| !now.iter().any(|it| it == line));
    permit(head, version, is_gone).with_context(|| format!("crate {}", library.name))?;
    let head = format!("# upcall-{} {version}, {UNRELEASED}", library.name);
    std::fs::write(library.file(), format!("{head}\n{}\n", now.join("\n"))).map_err(Into::into)
}

/// Checks that a change is compatible with the version; `head` is the first line of the listing.
fn permit(head: &str, version: &str, is_gone: bool) -> Result<()> {
    let Some(before) = head.strip_suffix(", released") else { return Ok(()) };
    let before = before.rsplit(' ').next().unwrap_or_default();
    ensure!(before != version, "{version} is released: raise the version first");
    // Cargo's rule: the first part that is not 0 is the incompatible one.
    let series = |version: &str| {
        let mut parts = version.split('.');
        let first = parts.next().unwrap_or_default().to_owned();
        if first == "0" { format!("0.{}", parts.next().unwrap_or_default()) } else { first }
    };
    let is_compatible = series(before) == series(version);
    ensure!(
        !(is_gone && is_compatible),
        "items are gone or changed, and {version} is compatible with {before}: raise the version"
    );
    Ok(())
}

impl Library {
    fn file(&self) -> PathBuf {
        sh::root().join("crates").join(self.name).join("api.txt")
    }

    fn listing(&self) -> Result<Vec<String>> {
        let crates = sh::root().join("crates");
        let mut all = BTreeSet::new();
        for path in sources(&crates.join(self.name).join("src"))? {
            all.extend(items(&std::fs::read_to_string(path)?));
        }
        for (dir, names) in self.exports {
            let mut found = BTreeSet::new();
            for path in sources(&crates.join(dir))? {
                found.extend(items(&std::fs::read_to_string(path)?));
            }
            for name in *names {
                let defines = |item: &String| owner(item) == *name;
                let own: Vec<_> = found.iter().filter(|item| defines(item)).cloned().collect();
                ensure!(!own.is_empty(), "{dir} defines no {name}");
                all.extend(own);
            }
        }
        Ok(all.into_iter().collect())
    }
}

/// Returns the name of the type that an item of a listing is or belongs to.
fn owner(item: &str) -> &str {
    let head = item.split(": ").next().unwrap_or(item);
    let head = head.rsplit(" for ").next().unwrap_or(head);
    let words = head.split(|c: char| !c.is_alphanumeric() && c != '_');
    let keywords = ["pub", "impl", "struct", "enum", "trait", "type", ""];
    words.into_iter().find(|word| !keywords.contains(word)).unwrap_or_default()
}

/// Returns the source files of a crate, except for tests.
fn sources(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).with_context(|| dir.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            files.extend(sources(&path)?);
        } else if path.extension().is_some_and(|it| it == "rs") && !path.ends_with("tests.rs") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Returns the public items of a text formatted by rustfmt, each with the block that contains it.
fn items(text: &str) -> Vec<String> {
    let (mut items, mut block) = (Vec::new(), String::new());
    let mut lines = text.lines().take_while(|line| *line != "#[cfg(test)]");
    while let Some(line) = lines.next() {
        let code = line.trim_start();
        let depth = (line.len() - code.len()) / 4;
        if line == "}" {
            block.clear();
        }
        let of_block = depth == 1 && is_open(&block);
        let is_item = code.starts_with("pub ")
            || depth == 0 && code.starts_with("impl")
            || of_block && !code.starts_with(['/', '#', '}']) && !code.is_empty();
        if !is_item || depth > 1 {
            continue;
        }
        let mut item = code.to_owned();
        while !is_complete(&item) {
            let Some(next) = lines.next() else { break };
            item.push(' ');
            item.push_str(next.trim());
        }
        let head = item.split(" { ").next().unwrap_or(&item);
        let head = head.trim_end_matches(['{', ',', ';', ' ']).to_owned();
        let is_inherent = depth == 0 && head.starts_with("impl") && !head.contains(" for ");
        if depth == 0 && item.ends_with('{') {
            block.clone_from(&head);
        }
        if !is_inherent {
            items.push(if depth == 0 { head } else { format!("{block}: {head}") });
        }
    }
    items
}

/// Returns whether all items of a block are public: variants, functions of a trait.
fn is_open(block: &str) -> bool {
    block.starts_with("pub enum ") || block.starts_with("pub trait ")
}

/// Returns whether a declaration has ended.
fn is_complete(item: &str) -> bool {
    let count = |letters: [char; 2]| item.matches(letters).count();
    let balanced = count(['(', '(']) == count([')', ')']) && count(['[', '[']) == count([']', ']']);
    let imports = item.starts_with("pub use ");
    balanced && (item.ends_with([';', '}', ',']) || !imports && item.ends_with('{'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_listings_are_those_of_the_sources() {
        let complaints = complaints().expect("sources");
        assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
    }

    #[test]
    fn public_items_are_listed_with_their_blocks() {
        let text = "/// Text.\npub struct A {\n    /// Text.\n    pub b: u8,\n    c: u8,\n}\n\
                    impl A {\n    pub fn d(\n        &self,\n    ) -> u8 {\n        1\n    }\n    \
                    fn e() {}\n}\nimpl Drop for A {\n    fn drop(&mut self) {}\n}\n\
                    pub enum F {\n    /// Text.\n    G(u8),\n}\npub(crate) fn h() {}\n\
                    #[cfg(test)]\npub fn i() {}\n";
        let all = ["pub struct A", "pub struct A: pub b: u8", "impl A: pub fn d( &self, ) -> u8"];
        let items = items(text);
        assert_eq!(items[..3], all);
        assert_eq!(items[3..], ["impl Drop for A", "pub enum F", "pub enum F: G(u8)"]);
        assert_eq!(items.iter().filter(|item| owner(item) == "A").count(), 4);
    }

    #[test]
    fn a_released_item_stays_until_the_version_is_incompatible() {
        let head = "# upcall-client 0.1.0, released";
        assert!(permit(head, "0.1.0", false).is_err(), "the same version");
        assert!(permit(head, "0.1.1", false).is_ok(), "an addition");
        assert!(permit(head, "0.1.1", true).is_err(), "a removal");
        assert!(permit(head, "0.2.0", true).is_ok());
        assert!(permit("# upcall-client 1.2.0, released", "1.3.0", true).is_err());
        assert!(permit("# upcall-client 0.1.0, unreleased", "0.1.0", true).is_ok());
    }
}
