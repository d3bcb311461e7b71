//! The Linux source of Debian: a real tree of files.

use crate::{apt, sh};
use anyhow::Result;
use std::path::PathBuf;

/// Returns the unpacked Linux source, downloaded at the first call.
pub fn source() -> Result<PathBuf> {
    sh::exclusive(|| unpacked("linux-source", &[]))
}

/// Returns a directory with at least these parts of the Linux source.
pub fn parts(parts: &[&str]) -> Result<PathBuf> {
    sh::exclusive(|| {
        let whole = sh::target().join("linux-source");
        if whole.exists() { Ok(whole) } else { unpacked("linux-parts", parts) }
    })
}

/// Unpacks these parts of the Linux source, or all of it if none is named, into the directory of
/// this name.
fn unpacked(name: &str, parts: &[&str]) -> Result<PathBuf> {
    let dir = sh::target().join(name);
    if !dir.exists() || !parts.iter().all(|part| dir.join(part).exists()) {
        let package = apt::behind("linux-source", "linux-source-")?;
        println!("   unpacking {package} for a real tree");
        let file = apt::download(&package)?;
        let partial = sh::empty(&format!("{name}.partial"))?;
        sh::read(sh::cmd("dpkg-deb", &["-x"]).arg(file).arg(&partial))?;
        let archive = partial.join("usr/src").join(format!("{package}.tar.xz"));
        let out = partial.join("out");
        std::fs::create_dir(&out)?;
        let paths = parts.iter().map(|part| format!("{package}/{part}"));
        sh::read(sh::cmd("tar", &["-xf"]).arg(archive).arg("-C").arg(&out).args(paths))?;
        if dir.exists() {
            std::fs::remove_dir_all(&dir)?;
        }
        std::fs::rename(out.join(package), &dir)?;
        std::fs::remove_dir_all(&partial)?;
    }
    Ok(dir)
}
