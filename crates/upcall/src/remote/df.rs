//! `upcall df`: free space of the file systems that a server serves.

use super::frame;
use super::{Server, say_json};
use crate::size::{count, show};
use clap::Args;
use client::FileSystem;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Options of `upcall df`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Df {
    #[command(flatten)]
    server: Server,

    /// Files on the file systems to show; not supported by 9P2000
    #[arg(value_name = "PATH", default_value = "/")]
    paths: Vec<PathBuf>,

    /// Print the result as JSON: sizes in bytes
    #[arg(long)]
    json: bool,
}

/// A file system for people and programs; sizes in bytes.
#[derive(Debug, Serialize)]
struct Shown {
    path: String,
    size: u64,
    used: u64,
    free: u64,
    /// Free for users other than root.
    available: u64,
    block_size: u32,
    files: u64,
    files_free: u64,
    name_max: u32,
    /// Type of the file system, `f_type` of `statfs(2)`.
    kind: u32,
}

impl Shown {
    fn new(path: &Path, it: &FileSystem) -> Shown {
        let bytes = |blocks: u64| blocks.saturating_mul(it.block_size.into());
        Shown {
            path: path.to_string_lossy().into_owned(),
            size: bytes(it.blocks),
            used: bytes(it.blocks.saturating_sub(it.blocks_free)),
            free: bytes(it.blocks_free),
            available: bytes(it.blocks_available),
            block_size: it.block_size,
            files: it.files,
            files_free: it.files_free,
            name_max: it.name_max,
            kind: it.kind,
        }
    }

    /// Returns the cells of its row.
    fn row(&self) -> [String; 6] {
        [
            show(self.size),
            show(self.used),
            show(self.available),
            percent(self.used, self.available),
            count(self.files_free),
            self.path.escape_debug().to_string(),
        ]
    }
}

/// Returns the used part of the space available to users other than root, rounded up as by df(1).
fn percent(used: u64, available: u64) -> String {
    let all = u128::from(used) + u128::from(available);
    match all {
        0 => "-".to_string(),
        all => format!("{}%", (u128::from(used) * 100).div_ceil(all)),
    }
}

/// Shows file systems.
pub(crate) fn run(df: &Df) -> ExitCode {
    frame::run(&df.server, false, |frame| {
        let mut all = Vec::new();
        let code = frame::each(&df.paths, |path| {
            all.push(Shown::new(path, &frame.client.file_system(path)?));
            Ok(())
        })?;
        match df.json {
            true => say_json(&all)?,
            false if all.is_empty() => {}
            false => frame::emit(&table(&all))?,
        }
        Ok(code)
    })
}

/// Returns rows below a header.
fn table(all: &[Shown]) -> String {
    let head = ["size", "used", "available", "use", "files free", "path"];
    frame::table(head, all.iter().map(Shown::row))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_is_a_row() {
        let it = FileSystem {
            kind: 1,
            block_size: 4096,
            blocks: 1 << 20,
            blocks_free: 3 << 18,
            blocks_available: 1 << 19,
            files: 2000,
            files_free: 1000,
            id: 0,
            name_max: 255,
        };
        let text = table(&[Shown::new(Path::new("/a"), &it)]);
        assert_eq!(
            text,
            " size   used  available  use  files free  path\n\
             4 GiB  1 GiB      2 GiB  34%       1,000  /a\n"
        );
        assert_eq!(percent(0, 0), "-");
    }
}
