//! What the server serves to those who attack, and to those who only want to read.

use super::corpus::{self, What};
use crate::files::Files;
use crate::server::{Kind, Server};
use crate::sh;
use anyhow::{Context, Result};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::os::unix::fs::{DirBuilderExt as _, lchown, symlink};
use std::path::{Path, PathBuf};

/// Sizes of the files that are read meanwhile.
const SIZES: [usize; 6] = [0, 1, 4096, 70_000, 262_144, 1_000_003];

/// The user whom a server started by root becomes.
const NOBODY: u32 = 65_534;

/// Two directories, gone at the end.
pub(super) struct Ground {
    served: PathBuf,
    /// Compiled modules; the server's user may write there.
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
        // The server becomes the user whom this belongs to.
        give(&ground.served)?;
        give(&ground.cache)?;
        Ok(ground)
    }

    /// The files that are read: names and what is in them.
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

    /// A tree for one run: its path in what is served.
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

    /// Removes what a run has left of its tree.
    pub(super) fn remove(&self, number: usize) -> Result<()> {
        std::fs::remove_dir_all(self.dir(number)).with_context(|| format!("tree of run {number}"))
    }

    fn dir(&self, number: usize) -> PathBuf {
        self.served.join("runs").join(number.to_string())
    }

    /// The programs that the server says it runs.
    pub(super) fn running(&self, server: &Server) -> Result<Vec<String>> {
        let list = Files::of(server)?.read("/.upcall/storelets/running")?;
        let text = String::from_utf8(list.context("no list of programs")?)?;
        Ok(text.lines().skip(1).map(str::to_owned).collect())
    }

    /// A place for what is no part of what is served.
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

/// Gives it to the server's user.
fn give(path: &Path) -> Result<()> {
    if rustix::process::geteuid().is_root() {
        lchown(path, Some(NOBODY), Some(NOBODY))?;
    }
    Ok(())
}
