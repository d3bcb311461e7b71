//! Debian packages required by tests and benchmarks, installed when missing.
//!
//! Root installs them with apt-get, other users with `sudo -n` if that works; otherwise the command
//! to run is printed and the caller fails.

use crate::sh;
use anyhow::{Context, Result, bail};
use std::path::PathBuf;
use std::process::Command;

/// A package, a program or file that proves its presence, and its purpose.
pub struct Package {
    name: &'static str,
    shows: &'static str,
    why: &'static str,
}

const fn package(name: &'static str, shows: &'static str, why: &'static str) -> Package {
    Package { name, shows, why }
}

/// Packages for booting a guest kernel.
pub const VM: &[Package] = &[
    package("qemu-system-x86", "qemu-system-x86_64", "runs the guest kernel"),
    package("busybox-static", "/bin/busybox", "is the guest's user land"),
    package("xz-utils", "xz", "unpacks kernel modules and sources"),
    package("attr", "setfattr", "extended attributes in the guest"),
];

/// Packages for building pjdfstest.
pub const PJDFSTEST: &[Package] = &[
    package("libacl1-dev", "/usr/include/sys/acl.h", "pjdfstest links to it"),
    package("gcc", "cc", "links pjdfstest"),
];

/// Packages for a file system that can hang.
pub const CANCEL: &[Package] = &[
    package("bindfs", "bindfs", "a FUSE mount that can be stopped, for hung reads"),
    package("fuse3", "fusermount3", "unmounts it"),
];

/// Programs that work on a mount.
pub const MOUNT: &[Package] = &[
    package("fuse3", "fusermount3", "mounts and unmounts"),
    package("git", "git", "works on a mount"),
    package("sqlite3", "sqlite3", "locks a database on a mount"),
    package("python3", "python3", "maps files"),
    package("attr", "setfattr", "sets extended attributes"),
];

/// Packages for exercising a mount.
pub const EXERCISE: &[Package] =
    &[package("stress-ng", "stress-ng", "exercises a mount"), package("gcc", "cc", "links fsx")];

/// Network configuration of a network namespace.
pub const NET: &[Package] =
    &[package("iproute2", "ip", "puts up a network"), package("hostname", "hostname", "names it")];

/// The portmapper, and a client that asks it.
pub const PORTMAPPER: &[Package] = &[
    package("rpcbind", "rpcbind", "is the portmapper"),
    package("libnfs-utils", "nfs-ls", "a client of NFS"),
];

/// diod: client tools for the tests, server for the benchmarks.
pub const DIOD: &[Package] = &[package("diod", "diod", "its client tools and its server")];

/// Clients of WebDAV.
pub const WEBDAV: &[Package] = &[
    package("litmus", "litmus", "tests WebDAV"),
    package("cadaver", "cadaver", "a client of WebDAV"),
    package("davfs2", "mount.davfs", "mounts WebDAV"),
];

/// A browser, and what drives it.
pub const BROWSER: &[Package] = &[
    package("chromium", "chromium", "shows the pages of directories"),
    package("chromium-driver", "chromedriver", "drives the browser"),
    package("python3-selenium", "/usr/lib/python3/dist-packages/selenium", "drives the browser"),
];

/// Linker and C library of static programs.
pub const MUSL: &[Package] = &[
    package("musl-tools", "musl-gcc", "compiles what wasmtime has in C, for musl"),
    package("binutils", "strip", "removes symbols from the static program"),
];

/// Packages for a root file system of Debian.
pub const ROOTFS: &[Package] = &[
    package("mmdebstrap", "mmdebstrap", "makes the root that the Debian package is installed in"),
    package("systemd", "systemd-analyze", "verifies units, and activates sockets"),
    package("man-db", "man", "reads the manual pages"),
];

/// Go toolchain, for the 9P2000 client and etcd.
pub const GO: &[Package] = &[
    package("golang-go", "go", "builds programs nobody here wrote"),
    package("ca-certificates", "/etc/ssl/certs/ca-certificates.crt", "fetches their sources"),
];

/// Compiler of C for WASI.
pub const GUESTS_C: &[Package] = &[
    package("clang", "clang", "compiles C to WebAssembly"),
    package("lld", "wasm-ld", "links it"),
    package("wasi-libc", "/usr/include/wasm32-wasi/stdio.h", "the C library of WASI"),
    package(
        "libclang-rt-dev-wasm32",
        "/usr/share/doc/libclang-rt-dev-wasm32",
        "what the compiler itself calls",
    ),
];

/// Compiler of Go for WASI.
pub const GUESTS_GO: &[Package] = &[
    package("golang-go", "go", "compiles Go to WebAssembly"),
    package("ca-certificates", "/etc/ssl/certs/ca-certificates.crt", "fetches modules"),
];

/// Compiler of AssemblyScript.
pub const GUESTS_NPM: &[Package] = &[
    package("nodejs", "node", "runs the compiler of AssemblyScript"),
    package("npm", "npm", "fetches the compiler of AssemblyScript"),
];

/// Interpreter for a server and a client in Python; their dependencies come from PyPI.
pub const PYTHON: &[Package] = &[
    package("python3", "python3", "runs a 9P2000 server and a client nobody here wrote"),
    package("python3-venv", "python3", "has their packages beside the system's"),
];

/// The HTTP client.
pub const CURL: &[Package] = &[package("curl", "curl", "the HTTP client of the tests")];

/// A reverse proxy; another one, and tools, are unpacked by the suites that use them.
pub const PROXY: &[Package] = &[package("nginx-light", "nginx", "a reverse proxy")];

/// Peers and tools of the benchmarks.
pub const BENCH: &[Package] = &[
    package("diod", "diod", "the 9P peer"),
    package("nginx-light", "nginx", "the HTTP peer"),
    package("wrk", "wrk", "the HTTP load generator"),
    package("strace", "strace", "counts system calls"),
];

/// Dependencies of the embedded library's peers.
pub const BENCH_STORE: &[Package] = &[
    package("librocksdb-dev", "/usr/include/rocksdb/c.h", "RocksDB, a peer of the library"),
    package("gcc", "cc", "builds SQLite, and what slows flushes"),
];

/// Dependencies of coverage-guided fuzzing.
pub const GUIDED: &[Package] = &[package("g++", "c++", "compiles libFuzzer")];

/// A peer of the replicas; the other one is built with Go.
pub const BENCH_REPLICA: &[Package] =
    &[package("redis-server", "redis-server", "a peer of the replicas")];

/// A peer of the NFS server; unfs3 is in no Debian package.
pub const BENCH_NFS: &[Package] = &[
    package("nfs-ganesha", "ganesha.nfsd", "an NFS peer"),
    package("nfs-ganesha-vfs", "/usr/lib/x86_64-linux-gnu/ganesha/libfsalvfs.so", "its files"),
    package("rpcbind", "rpcbind", "is what nfs-ganesha registers at"),
    package("strace", "strace", "counts system calls"),
];

/// Dependencies of the benchmark of mounts.
pub const BENCH_MOUNT: &[Package] = &[
    package("fuse3", "fusermount3", "unmounts"),
    package("sshfs", "sshfs", "a peer that mounts"),
    package("openssh-sftp-server", "/usr/lib/openssh/sftp-server", "what sshfs mounts"),
    package("rclone", "rclone", "a peer that mounts"),
];

/// Dependencies of the load generator's evaluation.
pub const LOAD: &[Package] = &[package("fio", "fio", "replays beside ours")];

/// Dependencies of the storelet evaluation: mounts, native programs, servers to compare with.
pub const STORELET: &[Package] = &[
    package("rclone", "rclone", "mounts what our server serves by HTTP"),
    package("fuse3", "fusermount3", "mounts and unmounts"),
    package("gcc", "cc", "builds programs natively, to compare with"),
    package("diod", "diod", "a file server beside ours"),
    package("nfs-ganesha", "ganesha.nfsd", "another one"),
    package("nfs-ganesha-vfs", "/usr/lib/x86_64-linux-gnu/ganesha/libfsalvfs.so", "its files"),
];

/// Ensures that all packages of these groups are installed.
pub fn need(groups: &[&[Package]]) -> Result<()> {
    let missing: Vec<_> =
        groups.iter().flat_map(|group| group.iter()).filter(|package| !there(package)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let mut names: Vec<_> = missing.iter().map(|package| package.name).collect();
    names.sort_unstable();
    names.dedup();
    for package in &missing {
        println!("   installing {} ({})", package.name, package.why);
    }
    refresh_once()?;
    let mut words = vec!["apt-get", "install", "-y", "-q", "--no-install-recommends"];
    words.extend(&names);
    as_root(&words)
}

/// Downloads a package into `target/deb` without installing it and returns its file and name. For a
/// metapackage they are those of the real package that it depends on.
pub fn download(name: &str) -> Result<PathBuf> {
    let dir = sh::scratch("deb")?;
    if let Some(file) = downloaded(&dir, name)? {
        return Ok(file);
    }
    refresh_once()?;
    sh::read(sh::cmd("apt-get", &["download", "-q", name]).current_dir(&dir))?;
    downloaded(&dir, name)?.with_context(|| format!("apt-get download {name} left no file"))
}

/// Returns a program of a package that is unpacked below `target/deb` instead of installed: some
/// packages start their service on installation.
pub fn unpacked(name: &str, program: &str) -> Result<PathBuf> {
    sh::exclusive(|| {
        let to = sh::scratch("deb")?.join(name);
        if !to.join(program).exists() {
            let file = download(name)?;
            std::fs::create_dir_all(&to)?;
            sh::run(Command::new("dpkg-deb").arg("-x").arg(file).arg(&to))?;
        }
        Ok(to.join(program))
    })
}

/// Returns the dependency of a metapackage whose name has the same prefix.
pub fn behind(meta: &str, prefix: &str) -> Result<String> {
    let ask = || sh::read(&mut sh::cmd("apt-cache", &["depends", meta]));
    let mut text = ask().unwrap_or_default();
    if !text.contains(prefix) {
        refresh_once()?;
        text = ask()?;
    }
    text.lines()
        .filter_map(|line| line.trim().strip_prefix("Depends: "))
        .find(|name| name.starts_with(prefix) && *name != meta)
        .map(str::to_owned)
        .with_context(|| format!("apt knows no package {prefix}… behind {meta}: not Debian?"))
}

fn there(package: &Package) -> bool {
    if package.shows.starts_with('/') {
        return std::path::Path::new(package.shows).exists();
    }
    sh::found(package.shows)
}

fn downloaded(dir: &std::path::Path, name: &str) -> Result<Option<PathBuf>> {
    let mut files: Vec<_> = std::fs::read_dir(dir)?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| {
            let file = path.file_name().unwrap_or_default().to_string_lossy();
            file.starts_with(&format!("{name}_")) && file.ends_with(".deb")
        })
        .collect();
    files.sort();
    Ok(files.pop())
}

/// Runs `apt-get update`, unless a package list is younger than a day.
fn refresh_once() -> Result<()> {
    let stamp = sh::target().join(".apt-updated");
    let fresh = std::fs::metadata(&stamp)
        .and_then(|meta| meta.modified())
        .ok()
        .and_then(|time| time.elapsed().ok())
        .is_some_and(|age| age.as_secs() < 86_400);
    if !fresh {
        as_root(&["apt-get", "update", "-q"])?;
        std::fs::create_dir_all(sh::target())?;
        std::fs::write(&stamp, "")?;
    }
    Ok(())
}

fn as_root(words: &[&str]) -> Result<()> {
    let root = rustix::process::geteuid().is_root();
    let line = words.join(" ");
    if !root && sh::read(&mut sh::cmd("sudo", &["-n", "true"])).is_err() {
        bail!("this needs root once: run `sudo {line}` and start again");
    }
    let mut all = if root { vec![] } else { vec!["sudo", "-n"] };
    all.extend(["env", "DEBIAN_FRONTEND=noninteractive"]);
    all.extend(words);
    sh::read(&mut sh::cmd(all[0], &all[1..])).map(|_| ()).with_context(|| line)
}
