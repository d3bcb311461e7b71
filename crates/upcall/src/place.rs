//! What is served and where: the directory and the addresses, as far as the command line goes.

use crate::config::{self, HTTP_DEFAULT, NINEP_DEFAULT, Serve};
use base::{Stat, Time};
use node::Protocol;
use reactor::Address;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The directory to serve.
pub(crate) struct Directory {
    pub(crate) path: PathBuf,
    pub(crate) stat: Stat,
}

/// A port that is listened on: for what, and where.
pub(crate) type Bound = (Protocol, Address);

/// Finds the directory.
pub(crate) fn directory(path: Option<&Path>) -> Result<Directory, String> {
    let asked = path.unwrap_or(Path::new("."));
    let refuse = |reason: &dyn std::fmt::Display| {
        format!("cannot serve {}: {reason}; name a directory that exists", asked.display())
    };
    let path = asked.canonicalize().map_err(|error| refuse(&error))?;
    let meta = path.metadata().map_err(|error| refuse(&error))?;
    if !meta.is_dir() {
        return Err(refuse(&"it is not a directory"));
    }
    let stat = Stat {
        kind: base::Kind::Directory,
        mode: meta.mode() & 0o7777,
        uid: meta.uid(),
        gid: meta.gid(),
        device: meta.dev(),
        inode: meta.ino(),
        modified: Time::from_secs(meta.mtime()),
        ..Stat::default()
    };
    Ok(Directory { path, stat })
}

/// All addresses, each with what is spoken there.
pub(crate) fn addresses(serve: &Serve) -> Result<Vec<Bound>, String> {
    let ninep = config::addresses(&serve.ninep, NINEP_DEFAULT)?;
    let http = config::addresses(&serve.http, HTTP_DEFAULT)?;
    let ninep = ninep.into_iter().map(|address| (Protocol::NineP, address));
    let http = http.into_iter().map(|address| (Protocol::Http, address));
    let all: Vec<Bound> = ninep.chain(http).collect();
    match all.is_empty() {
        true => Err("nothing to listen on: leave out '--9p none' or '--http none'".to_string()),
        false => Ok(all),
    }
}
