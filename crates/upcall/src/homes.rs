//! Default directories of the server: in its user's home, or, for a server started by root that
//! acts as another user, in the host's directories for services, which are created while it is
//! still root.

use base::User;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

/// Default directories of a service (FHS 3.0, 5.5 and 5.8).
const CACHES: &str = "/var/cache/upcall";
const STATES: &str = "/var/lib/upcall";

/// A directory that only this server's user may write, or the reason why there is none.
pub(crate) type Home = Result<PathBuf, String>;

/// Directories of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Homes {
    /// For files that can be recreated.
    pub(crate) cache: Home,
    /// For persistent state.
    pub(crate) state: Home,
}

impl Homes {
    /// Returns those of the user that started the server (XDG Base Directory Specification).
    pub(crate) fn own() -> Homes {
        let home = std::env::var_os("HOME").map(PathBuf::from);
        let place = |variable: &str, usual: &str| {
            let printed = std::env::var_os(variable).filter(|printed| !printed.is_empty());
            let place = printed.map(PathBuf::from).or_else(|| Some(home.as_ref()?.join(usual)));
            let place = place.map(|place| place.join("upcall"));
            place.ok_or_else(|| format!("know no directory: neither {variable} nor HOME is set"))
        };
        Homes {
            cache: place("XDG_CACHE_HOME", ".cache"),
            state: place("XDG_STATE_HOME", ".local/state"),
        }
    }

    /// Returns those of a service that acts as `user`, created by root: below systemd's directories
    /// for it, or the default ones of services.
    pub(crate) fn of_service(user: &User) -> Homes {
        let place = |variable: &str, usual: &str| {
            let all = std::env::var_os(variable).filter(|printed| !printed.is_empty());
            let all = all.map_or_else(|| PathBuf::from(usual), PathBuf::from);
            let own = all.join(user.uid.to_string());
            match make(&all, &own, user) {
                Ok(()) => Ok(own),
                Err(error) => Err(format!("cannot use {}: {error}", own.display())),
            }
        };
        Homes { cache: place("CACHE_DIRECTORY", CACHES), state: place("STATE_DIRECTORY", STATES) }
    }
}

fn make(all: &Path, own: &Path, user: &User) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o755).create(all)?;
    match std::fs::DirBuilder::new().mode(0o700).create(own) {
        Ok(()) => std::os::unix::fs::lchown(own, Some(user.uid), Some(user.gid)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let there = own.symlink_metadata()?;
            let is_ours = there.is_dir() && there.uid() == user.uid;
            if is_ours { Ok(()) } else { Err(error) }
        }
        Err(error) => Err(error),
    }
}
