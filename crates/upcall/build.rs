//! Version text of `upcall --version`: the package's version, with the commit and its date if the
//! source is a git checkout or the variables `UPCALL_COMMIT` and `UPCALL_DATE` name them.
//!
//! The script runs again only when the checkout's commit or one of the variables changes.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Digits of a commit hash that are shown.
const DIGITS: usize = 12;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let version = std::env::var("CARGO_PKG_VERSION").expect("cargo sets it");
    let outputs = ["UPCALL_COMMIT", "UPCALL_DATE"].map(|name| {
        println!("cargo::rerun-if-env-changed={name}");
        std::env::var(name).ok().filter(|value| !value.is_empty())
    });
    let text = match outputs.into() {
        (Some(commit), Some(date)) => Some(format!("{commit:.DIGITS$} {date}")),
        _incomplete => checkout(),
    };
    let full = text.map_or_else(|| version.clone(), |text| format!("{version} ({text})"));
    println!("cargo::rustc-env=UPCALL_VERSION={full}");
}

/// Returns the commit and the date of the checkout that contains this package.
fn checkout() -> Option<String> {
    let root = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR")?).join("../..");
    let root = root.canonicalize().ok()?;
    // A source archive inside of another project's checkout has no commit.
    let top = git(&root, &["rev-parse", "--show-toplevel"])?;
    if Path::new(&top).canonicalize().ok()? != root {
        return None;
    }
    // The log of HEAD grows with each commit and checkout; a missing file would run the script
    // each time.
    let mut files = vec!["HEAD".to_string(), "logs/HEAD".to_string()];
    files.extend(git(&root, &["symbolic-ref", "-q", "HEAD"]));
    for file in files {
        let path = root.join(git(&root, &["rev-parse", "--git-path", &file])?);
        if path.exists() {
            println!("cargo::rerun-if-changed={}", path.display());
        }
    }
    let abbrev = format!("--abbrev={DIGITS}");
    let words = ["log", "-1", &abbrev, "--date=short", "--format=%h %cd"];
    git(&root, &words)
}

/// Returns the output of git, if it is installed and succeeds.
fn git(root: &Path, words: &[&str]) -> Option<String> {
    let output = Command::new("git").arg("-C").arg(root).args(words).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let text = text.trim();
    (output.status.success() && !text.is_empty()).then(|| text.to_string())
}
