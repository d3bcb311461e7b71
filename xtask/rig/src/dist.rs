//! `cargo xtask dist [--quick]`: builds the packages into `target/dist`.
//!
//! | file | contents |
//! |---|---|
//! | `upcall` | the program: static, stripped, for x86-64 Linux of any distribution |
//! | `upcall-VERSION-x86_64-linux-musl.tar.gz` | the same with manual pages and completions |
//! | `upcall_VERSION_amd64.deb` | Debian package with a systemd service |
//! | `upcall-VERSION-oci.tar` | container image, for `podman load` and `docker load` |
//! | `SHA256SUMS` | their checksums |
//!
//! One program is in all of them. With `--quick` it is not optimised, which shows that packages
//! work, and is not for users. The target of Rust and the
//! Debian package `musl-tools` are installed when missing.
//!
//! The packages depend on the sources, the compiler and `SOURCE_DATE_EPOCH` only, which is by
//! default the time of the commit: entries of archives are sorted, and have that time.

mod archive;
mod deb;
mod elf;
mod image;
mod licences;

use crate::{apt, sh};
use anyhow::{Context as _, Result, bail, ensure};
use archive::Tree;
use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

pub use archive::unpack;

/// Target of the program.
const TARGET: &str = "x86_64-unknown-linux-musl";

/// Shells with completions, with their files in packages.
const SHELLS: &[(&str, &str)] = &[
    ("bash", "usr/share/bash-completion/completions/upcall"),
    ("zsh", "usr/share/zsh/vendor-completions/_upcall"),
    ("fish", "usr/share/fish/vendor_completions.d/upcall.fish"),
];

/// The packages.
pub struct Packages {
    /// Directory of all of them.
    pub dir: PathBuf,
    /// Static program.
    pub program: PathBuf,
    /// Program with manual pages and completions.
    pub tarball: PathBuf,
    /// Debian package.
    pub deb: PathBuf,
    /// Container image.
    pub image: PathBuf,
}

/// Contents of all packages.
struct Source {
    version: String,
    /// Time of all entries, seconds since 1970.
    time: u64,
    commit: String,
    program: Vec<u8>,
    /// Manual pages by name.
    pages: Vec<(String, Vec<u8>)>,
    /// Completion scripts by path.
    completions: Vec<(&'static str, Vec<u8>)>,
    copyright: String,
    /// Licence texts of linked packages.
    notices: String,
}

/// Runs the command.
pub fn main(args: &[String]) -> Result<()> {
    let quick = match args {
        [] => false,
        [word] if word == "--quick" => true,
        _ => bail!("usage: cargo xtask dist [--quick]"),
    };
    let packages = build(quick)?;
    print!("{}", fs::read_to_string(packages.dir.join("SHA256SUMS"))?);
    for path in [&packages.program, &packages.tarball, &packages.deb, &packages.image] {
        println!("{:>12} bytes  {}", path.metadata()?.len(), path.display());
    }
    Ok(())
}

/// Builds the program and the packages.
pub fn build(quick: bool) -> Result<Packages> {
    let program = program(quick)?;
    let source = Source::collect(&program)?;
    let dir = sh::empty("dist")?;
    let version = &source.version;
    let packages = Packages {
        program: dir.join("upcall"),
        tarball: dir.join(format!("upcall-{version}-x86_64-linux-musl.tar.gz")),
        deb: dir.join(format!("upcall_{version}_amd64.deb")),
        image: dir.join(format!("upcall-{version}-oci.tar")),
        dir,
    };
    fs::copy(&program, &packages.program).context("copy the program")?;
    fs::write(&packages.tarball, source.tarball()?)?;
    fs::write(&packages.deb, deb::write(&source)?)?;
    fs::write(&packages.image, image::write(&source)?)?;
    let mut sums = String::new();
    for path in [&packages.program, &packages.tarball, &packages.deb, &packages.image] {
        let name = path.file_name().unwrap_or_default().display().to_string();
        writeln!(sums, "{}  {name}", sha256(&fs::read(path)?))?;
    }
    fs::write(packages.dir.join("SHA256SUMS"), sums)?;
    Ok(packages)
}

/// Builds the static program and returns its path.
fn program(quick: bool) -> Result<PathBuf> {
    prepare()?;
    let profile = if quick { "quick" } else { "dist" };
    let mut cargo = sh::cargo(&["build", "--quiet", "--locked", "--profile", profile]);
    cargo.args(["--target", TARGET, "-p", "upcall", "--bin", "upcall"]);
    if quick {
        cargo.env("CARGO_INCREMENTAL", "0");
    } else {
        let home = std::env::var("CARGO_HOME").map(PathBuf::from).ok();
        let home = home.or_else(|| Some(std::env::home_dir()?.join(".cargo")));
        // Paths in messages of panics do not depend on the machine.
        let remap = |from: &Path, to: &str| format!("--remap-path-prefix={}={to}", from.display());
        let mut flags = vec![remap(&sh::root(), "/upcall")];
        flags.extend(home.map(|home| remap(&home, "/cargo")));
        cargo.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"));
    }
    sh::run(&mut cargo)?;
    let program = sh::scratch("dist-program")?.join("upcall");
    let built = sh::target().join(TARGET).join(profile).join("upcall");
    sh::read(Command::new("strip").arg("-o").arg(&program).arg(built))?;
    elf::expect_static(&fs::read(&program)?)
        .with_context(|| format!("{} is not a static program", program.display()))?;
    Ok(program)
}

/// Installs the target and the linker.
fn prepare() -> Result<()> {
    apt::need(&[apt::MUSL])?;
    let targets = sh::read(&mut sh::cmd("rustup", &["target", "list", "--installed"]));
    let targets = targets.context("cannot list the targets of Rust; install rustup")?;
    if !targets.lines().any(|line| line == TARGET) {
        println!("   installing Rust's target {TARGET} (builds the static program)");
        sh::read(&mut sh::cmd("rustup", &["target", "add", TARGET]))?;
    }
    Ok(())
}

impl Source {
    /// Collects the contents; manual pages and completions are generated by the program.
    fn collect(program: &Path) -> Result<Source> {
        let pages = sh::empty("dist-man")?;
        sh::read(Command::new(program).arg("man-pages").arg(&pages))?;
        let mut names: Vec<_> = fs::read_dir(&pages)?
            .map(|entry| Ok(entry?.file_name().display().to_string()))
            .collect::<Result<_>>()?;
        names.sort();
        ensure!(names.len() > 10, "only {} manual pages", names.len());
        let pages = names.into_iter().map(|name| {
            let text = fs::read(pages.join(&name))?;
            Ok((name, text))
        });
        let completions = SHELLS.iter().map(|(shell, path)| {
            let script = sh::read(Command::new(program).args(["completions", shell]))?;
            Ok((*path, script.into_bytes()))
        });
        let (commit, time) = commit()?;
        let linked = licences::linked(TARGET)?;
        Ok(Source {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            time,
            commit,
            program: fs::read(program)?,
            pages: pages.collect::<Result<_>>()?,
            completions: completions.collect::<Result<_>>()?,
            copyright: licences::copyright(&linked)?,
            notices: licences::notices(&linked)?,
        })
    }

    /// Returns a compressed archive with the program and its documentation.
    fn tarball(&self) -> Result<Vec<u8>> {
        let top = format!("upcall-{}", self.version);
        let mut tree = Tree::default();
        tree.file(&format!("{top}/upcall"), 0o755, self.program.clone());
        for name in ["README.md", "CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT"] {
            tree.file(&format!("{top}/{name}"), 0o644, fs::read(sh::root().join(name))?);
        }
        tree.file(&format!("{top}/THIRD-PARTY"), 0o644, self.notices.clone().into_bytes());
        for (name, text) in &self.pages {
            tree.file(&format!("{top}/man/{name}"), 0o644, text.clone());
        }
        for (path, script) in &self.completions {
            let name = path.rsplit('/').next().unwrap_or(path);
            tree.file(&format!("{top}/completions/{name}"), 0o644, script.clone());
        }
        for name in ["upcall.service", "upcall-9p.socket", "upcall-http.socket", "upcall.toml"] {
            tree.file(&format!("{top}/systemd/{name}"), 0o644, packaging(name)?);
        }
        archive::gzip(&tree.tar(self.time)?)
    }

    /// Adds the files of `/usr` that are the same in the Debian package and in the image.
    fn add_common(&self, tree: &mut Tree) -> Result<()> {
        tree.file("usr/bin/upcall", 0o755, self.program.clone());
        let doc = "usr/share/doc/upcall";
        tree.file(&format!("{doc}/copyright"), 0o644, self.copyright.clone().into_bytes());
        let notices = archive::gzip(self.notices.as_bytes())?;
        tree.file(&format!("{doc}/third-party.gz"), 0o644, notices);
        Ok(())
    }
}

/// Returns a file of the packaging directory.
fn packaging(name: &str) -> Result<Vec<u8>> {
    let path = sh::root().join("packaging").join(name);
    fs::read(&path).with_context(|| format!("read {}", path.display()))
}

/// Returns the commit and the time of packages.
fn commit() -> Result<(String, u64)> {
    let git = sh::read(&mut sh::cmd("git", &["log", "-1", "--format=%H %ct"]));
    let git = git.unwrap_or_default();
    let (commit, time) = git.trim().split_once(' ').unwrap_or(("unknown", "0"));
    let time = std::env::var("SOURCE_DATE_EPOCH").unwrap_or_else(|_| time.to_owned());
    let time = time.parse().with_context(|| format!("SOURCE_DATE_EPOCH={time} is no time"))?;
    Ok((commit.to_owned(), time))
}

/// Returns the SHA-256 of bytes, hexadecimal.
fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("to a string");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns contents for tests of the formats.
    pub(super) fn source() -> Source {
        Source {
            version: "0.1.0".to_owned(),
            time: 1_700_000_000,
            commit: "abc".to_owned(),
            program: b"\x7fELF".to_vec(),
            pages: vec![("upcall.1".to_owned(), b".TH upcall 1".to_vec())],
            completions: vec![(SHELLS[0].1, b"complete".to_vec())],
            copyright: "Licence: MIT\n".to_owned(),
            notices: "texts\n".to_owned(),
        }
    }

    #[test]
    fn packages_of_the_same_contents_are_equal() {
        let source = source();
        for write in [Source::tarball, deb::write, image::write] {
            let (one, other) = (write(&source).expect("a package"), write(&source));
            assert!(one.len() > 100 && one == other.expect("a package"));
            let later = Source { time: source.time + 1, ..self::source() };
            assert_ne!(one, write(&later).expect("a package"), "the time is that of the source");
        }
    }

    #[test]
    fn a_checksum_is_that_of_sha256sum() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(sha256(b""), empty);
    }
}
