//! The guest's kernel and initramfs, built from Debian packages that are unpacked under `target/vm`
//! and never installed.

use super::cpio::Cpio;
use crate::{apt, sh};
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Kernel and initramfs for QEMU.
pub(crate) struct Image {
    /// Kernel.
    pub(crate) kernel: PathBuf,
    /// Initial file system.
    pub(crate) initrd: PathBuf,
}

/// Modules loaded by the guest, in the order of their dependencies.
const MODULES: &[&str] =
    &["virtio_pci", "virtio_net", "virtio_blk", "virtio_rng", "9p", "9pnet_fd", "nfsv3"];

const INIT: &str = include_str!("init.sh");

/// Returns the image of the current Debian kernel, built at the first call.
pub(crate) fn image() -> Result<Image> {
    sh::exclusive(made)
}

fn made() -> Result<Image> {
    let package = match unpacked()? {
        Some(package) => package,
        None => unpack()?,
    };
    let tree = sh::scratch("vm/packages")?.join(&package);
    let release = package.trim_start_matches("linux-image-");
    let kernel = tree.join("boot").join(format!("vmlinuz-{release}"));
    let initrd = sh::target().join("vm/initrd");
    let archive = archive(&tree.join("lib/modules").join(release))?;
    // Another guest may be booting from it.
    if std::fs::read(&initrd).ok().as_ref() != Some(&archive) {
        let partial = initrd.with_extension("partial");
        std::fs::write(&partial, archive)?;
        std::fs::rename(&partial, &initrd)?;
    }
    Ok(Image { kernel, initrd })
}

/// Returns the newest kernel package already unpacked.
fn unpacked() -> Result<Option<String>> {
    let mut names: Vec<_> = std::fs::read_dir(sh::scratch("vm/packages")?)?
        .filter_map(|entry| entry.ok().map(|e| e.file_name().to_string_lossy().into_owned()))
        .filter(|name| name.starts_with("linux-image-"))
        .collect();
    names.sort();
    Ok(names.pop())
}

fn unpack() -> Result<String> {
    let package = apt::behind("linux-image-amd64", "linux-image-")?;
    println!("   unpacking {package} for the guest");
    let file = apt::download(&package)?;
    let kernels = sh::scratch("vm/packages")?;
    let partial = kernels.join("partial");
    sh::read(sh::cmd("dpkg-deb", &["-x"]).arg(file).arg(&partial))?;
    std::fs::rename(&partial, kernels.join(&package))?;
    Ok(package)
}

fn archive(modules: &Path) -> Result<Vec<u8>> {
    let mut archive = Cpio::default();
    for directory in ["bin", "dev", "etc", "lib", "mnt", "proc", "results", "sys", "tmp"] {
        archive.directory(directory);
    }
    archive.device("dev/console", 5, 1);
    archive.file("init", INIT.as_bytes());
    archive.file("bin/busybox", &std::fs::read("/bin/busybox").context("read /bin/busybox")?);
    archive.file("etc/passwd", accounts(|name, id| format!("{name}:x:{id}:{id}::/:/bin/sh\n")));
    archive.file("etc/group", accounts(|name, id| format!("{name}:x:{id}:\n")));
    let known = index(&modules.join("kernel"))?;
    let mut order = Vec::new();
    for module in MODULES {
        require(module, &known, &mut order)?;
    }
    for (position, (name, bytes)) in order.iter().enumerate() {
        archive.file(&format!("lib/{position:02}-{name}.ko"), bytes);
    }
    Ok(archive.finish())
}

/// Users of the suites. The numbers are those of `bin` and `sys`, which exist on every Debian host
/// with a group of the same number: some servers refuse users unknown to the host.
fn accounts(line: impl Fn(&str, u32) -> String) -> &'static [u8] {
    let users = [("root", 0), ("tests", 2), ("tests2", 3), ("stranger", 4242), ("nobody", 65534)];
    users.iter().map(|(name, id)| line(name, *id)).collect::<String>().leak().as_bytes()
}

/// Indexes module files by their names, with `_` for `-`.
fn index(dir: &Path) -> Result<BTreeMap<String, PathBuf>> {
    let mut known = BTreeMap::new();
    let mut todo = vec![dir.to_path_buf()];
    while let Some(dir) = todo.pop() {
        for entry in std::fs::read_dir(&dir).with_context(|| format!("{}", dir.display()))? {
            let path = entry?.path();
            if path.is_dir() {
                todo.push(path);
                continue;
            }
            let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if let Some((name, _)) = file.split_once(".ko") {
                known.insert(name.replace('-', "_"), path);
            }
        }
    }
    Ok(known)
}

/// Appends a module after the ones in its `depends=` entry.
fn require(
    name: &str,
    known: &BTreeMap<String, PathBuf>,
    order: &mut Vec<(String, Vec<u8>)>,
) -> Result<()> {
    if order.iter().any(|(there, _)| there == name) {
        return Ok(());
    }
    // A module without a file is built into the kernel.
    let Some(path) = known.get(name) else { return Ok(()) };
    let bytes = if path.extension().is_some_and(|extension| extension == "xz") {
        let output = sh::cmd("xz", &["-dc"]).arg(path).output()?;
        output.stdout
    } else {
        std::fs::read(path)?
    };
    let key = b"\0depends=";
    let depends = bytes
        .windows(key.len())
        .position(|window| window == key)
        .map(|at| &bytes[at + key.len()..])
        .and_then(|rest| rest.split(|byte| *byte == 0).next())
        .map(|list| String::from_utf8_lossy(list).into_owned())
        .unwrap_or_default();
    for dependency in depends.split(',').filter(|dependency| !dependency.is_empty()) {
        require(&dependency.replace('-', "_"), known, order)?;
    }
    order.push((name.to_owned(), bytes));
    Ok(())
}
