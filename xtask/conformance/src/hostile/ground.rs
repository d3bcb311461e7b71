//! Files served to malicious storelets and to ordinary readers.

use super::corpus::{self, What};
use anyhow::{Context, Result};
use rig::files::Files;
use rig::server::{Kind, Server};
use rig::sh;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::os::unix::fs::{DirBuilderExt as _, lchown, symlink};
use std::path::{Path, PathBuf};

/// Sizes of the files that are read meanwhile, bytes.
const SIZES: [usize; 6] = [0, 1, 4096, 70_000, 262_144, 1_000_003];

/// User of a server started by root.
const NOBODY: u32 = 65_534;

/// Two directories, removed at the end.
pub(super) struct Ground {
    served: PathBuf,
    /// Cache of compiled modules, writable by the server's user.
    cache: PathBuf,
}

impl Ground {
    pub(super) fn new() -> Result<Ground> {
        let base = std::env::temp_dir().join(format!("upcall-hostile-{}", std::process::id()));
        let ground = Ground { served: base.join("served"), cache: base.join("cache") };
        std::fs::create_dir_all(ground.served.join("runs")).context("make a directory")?;
        std::fs::DirBuilder::new().mode(0o700).create(&ground.cache)?;
        for (name, bytes) in ground.files() {
            std::fs::write(ground.served.join(&name), bytes)?;
        }
        // The server runs as the owner of these directories.
        give(&ground.served)?;
        give(&ground.cache)?;
        Ok(ground)
    }

    /// Returns the names and contents of the files that are read.
    pub(super) fn files(&self) -> Vec<(String, Vec<u8>)> {
        let bytes = |size: usize| {
            let mut state = 0x9e37_79b9_7f4a_7c15_u64 ^ size as u64;
            let mut next = || {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state.to_le_bytes()[3]
            };
            (0..size).map(|_| next()).collect()
        };
        SIZES.iter().map(|size| (format!("read-{size}"), bytes(*size))).collect()
    }

    pub(super) fn serve(&self, kind: Kind) -> Result<Server> {
        let cache = self.cache.display().to_string();
        let flags = ["--http-write", "--storelet-cache", &cache];
        Server::start(kind, &self.served, &flags)
    }

    /// Creates a tree for one run; returns its path in the served directory.
    pub(super) fn tree(&self, number: usize) -> Result<String> {
        let root = self.dir(number);
        std::fs::create_dir(&root)?;
        give(&root)?;
        for (path, what, text) in corpus::tree() {
            let path = root.join(path);
            let above = path.parent().context("it is below the root")?;
            for dir in above.ancestors().take_while(|dir| *dir != root).collect::<Vec<_>>() {
                std::fs::create_dir_all(dir)?;
                give(dir)?;
            }
            match what {
                What::File => std::fs::write(&path, text)?,
                What::Link => symlink(text, &path)?,
                What::Fifo => mknodat(CWD, &path, FileType::Fifo, Mode::from(0o644), 0)?,
            }
            give(&path)?;
        }
        Ok(format!("/runs/{number}"))
    }

    /// Removes the rest of a run's tree.
    pub(super) fn remove(&self, number: usize) -> Result<()> {
        std::fs::remove_dir_all(self.dir(number)).with_context(|| format!("tree of run {number}"))
    }

    fn dir(&self, number: usize) -> PathBuf {
        self.served.join("runs").join(number.to_string())
    }

    /// Returns the running programs, as listed by the server.
    pub(super) fn running(&self, server: &Server) -> Result<Vec<String>> {
        let list = Files::of(server)?.read("/.upcall/storelets/running")?;
        let text = String::from_utf8(list.context("no list of programs")?)?;
        Ok(text.lines().skip(1).map(str::to_owned).collect())
    }

    /// Returns a directory outside of the served one.
    pub(super) fn scratch(&self, name: &str) -> Result<PathBuf> {
        let dir = sh::scratch("hostile")?.join(name);
        std::fs::create_dir_all(&dir)?;
        Ok(dir)
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        if let Some(base) = self.served.parent() {
            let _ = std::fs::remove_dir_all(base);
        }
    }
}

/// Changes the owner to the server's user.
fn give(path: &Path) -> Result<()> {
    if rustix::process::geteuid().is_root() {
        lchown(path, Some(NOBODY), Some(NOBODY))?;
    }
    Ok(())
}
