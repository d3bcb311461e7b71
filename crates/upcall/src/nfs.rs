//! Settings of NFS: the key of file handles, and the write verifier.

use crate::config::{NfsSquash, Serve};
use crate::homes::Homes;
use crate::{clock, key_file, log};
use base::Time;
use node::{Nfs, Squash};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

/// Name of the file with the key, in the directory of the server's state.
const KEY: &str = "nfs-key";

/// Returns the settings of a server that starts now.
///
/// # Errors
/// There are no random numbers.
pub(crate) fn settings(
    serve: &Serve,
    served: &Path,
    homes: &Homes,
    now: Time,
) -> Result<Nfs, String> {
    if serve.nfs.is_empty() {
        return Ok(Nfs::default());
    }
    let kept = homes.state.as_ref().map_err(Clone::clone).and_then(|state| {
        let shown = state.display();
        let mut dir = std::fs::DirBuilder::new();
        let made = dir.recursive(true).mode(0o700).create(state);
        made.map_err(|error| format!("cannot create {shown}: {error}"))?;
        let key = key_file::read_or_create(&state.join(KEY));
        key.map_err(|error| format!("cannot use {shown}: {error}"))
    });
    let secret = match kept {
        Ok(key) => key,
        Err(error) => {
            log::warn("nfs", format!("file handles end with this server: {error}"));
            clock::random_bytes().map_err(|error| format!("no random numbers: {error}"))?
        }
    };
    let squash = match serve.nfs_squash.unwrap_or(NfsSquash::Root) {
        NfsSquash::Root => Squash::Root,
        NfsSquash::All => Squash::All,
        NfsSquash::None => Squash::None,
    };
    let served = served.as_os_str().as_bytes();
    let nfs = Nfs::new(&secret, served, now.as_nanos().to_be_bytes(), squash);
    Ok(Nfs { is_async: serve.nfs_async, ..nfs })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_last_and_differ_between_trees() {
        let state = std::env::temp_dir().join(format!("upcall-nfs-key-{}", std::process::id()));
        let homes = Homes { cache: Err(String::new()), state: Ok(state.clone()) };
        let serve = Serve { nfs: vec!["127.0.0.1:0".to_string()], ..Serve::default() };
        let of = |path: &str, secs| {
            settings(&serve, Path::new(path), &homes, Time::from_secs(secs)).unwrap()
        };
        let (first, again, other) = (of("/srv", 1), of("/srv", 2), of("/home", 1));
        std::fs::remove_dir_all(&state).unwrap();
        assert_eq!(first.key, again.key);
        assert_ne!(first.verifier, again.verifier);
        assert_ne!(first.key, other.key);
    }
}
