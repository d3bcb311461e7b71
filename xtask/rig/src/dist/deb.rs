//! The Debian package (`deb(5)`): an `ar` archive of control files and data.

use super::archive::{Tree, gzip};
use super::{Source, packaging};
use crate::sh;
use anyhow::Result;
use std::fs;
use std::io::Write as _;

/// Scripts of the package, and the list of configuration files that dpkg keeps.
const SCRIPTS: &[&str] = &["postinst", "prerm", "postrm"];
const CONFIGURATION: &str = "etc/upcall/upcall.toml";
const UNITS: &[&str] = &["upcall.service", "upcall-9p.socket", "upcall-http.socket"];

/// Returns the package.
pub(super) fn write(source: &Source) -> Result<Vec<u8>> {
    let data = data(source)?;
    let mut control = Tree::default();
    control.file("control", 0o644, fields(source, data.bytes()).into_bytes());
    control.file("conffiles", 0o644, format!("/{CONFIGURATION}\n").into_bytes());
    for script in SCRIPTS {
        control.file(script, 0o755, packaging(script)?);
    }
    let mut package = b"!<arch>\n".to_vec();
    let members = [
        ("debian-binary", b"2.0\n".to_vec()),
        ("control.tar.gz", gzip(&control.tar(source.time)?)?),
        ("data.tar.gz", gzip(&data.tar(source.time)?)?),
    ];
    for (name, bytes) in members {
        let (time, size) = (source.time, bytes.len());
        writeln!(package, "{name:<16}{time:<12}{:<6}{:<6}{:<8}{size:<10}`", 0, 0, "100644")?;
        package.extend(&bytes);
        package.extend((size % 2 == 1).then_some(b'\n'));
    }
    Ok(package)
}

/// Returns the files that the package installs.
fn data(source: &Source) -> Result<Tree> {
    let mut tree = Tree::default();
    source.add_common(&mut tree)?;
    // The helper of mount(8) for the type `upcall` in fstab(5).
    tree.link("usr/sbin/mount.upcall", "../bin/upcall");
    tree.file(CONFIGURATION, 0o644, packaging("upcall.toml")?);
    for unit in UNITS {
        tree.file(&format!("usr/lib/systemd/system/{unit}"), 0o644, packaging(unit)?);
    }
    for (name, text) in &source.pages {
        tree.file(&format!("usr/share/man/man1/{name}.gz"), 0o644, gzip(text)?);
    }
    for (path, script) in &source.completions {
        tree.file(path, 0o644, script.clone());
    }
    let changes = gzip(&fs::read(sh::root().join("CHANGELOG.md"))?)?;
    tree.file("usr/share/doc/upcall/changelog.gz", 0o644, changes);
    Ok(tree)
}

/// Returns the control file (`deb-control(5)`); `bytes` is the size of all files.
fn fields(source: &Source, bytes: usize) -> String {
    format!(
        "Package: upcall\nVersion: {}\nArchitecture: amd64\nMaintainer: The Upcall developers\n\
         Installed-Size: {}\nDepends: passwd\nSuggests: fuse3\nSection: net\nPriority: optional\n\
         Description: active storage server\n One process serves a tree of files over 9P2000, \
         9P2000.L and HTTP, keeps\n files in volumes that survive a crash, and runs programs \
         beside the data.\n",
        source.version,
        bytes.div_ceil(1024)
    )
}

#[cfg(test)]
mod tests {
    use super::super::tests::source;
    use super::*;
    use std::process::Command;

    #[test]
    fn the_tools_of_debian_read_the_package() {
        if !sh::found("dpkg-deb") {
            base::skip("no dpkg-deb: not Debian");
            return;
        }
        let file = std::env::temp_dir().join(format!("upcall-{}.deb", std::process::id()));
        fs::write(&file, write(&source()).expect("a package")).expect("a file");
        let read = |flag: &str| sh::read(Command::new("dpkg-deb").arg(flag).arg(&file));
        let fields = read("--field").expect("control fields");
        assert!(fields.contains("Package: upcall\nVersion: 0.1.0\n"), "{fields}");
        let files = read("--contents").expect("a list");
        assert!(files.contains("-rwxr-xr-x 0/0               4 2023-11-14"), "{files}");
        assert!(files.contains(" usr/lib/systemd/system/upcall.service"), "{files}");
        assert!(files.contains(" usr/sbin/mount.upcall -> ../bin/upcall"), "{files}");
        fs::remove_file(file).expect("it is there");
    }
}
