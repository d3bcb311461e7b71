//! The served directory or volume and the addresses, from the command line.

use crate::config::{self, HTTP_DEFAULT, NFS_DEFAULT, NINEP_DEFAULT, Serve};
use crate::listening::Bound;
use crate::service;
use crate::size;
use crate::volume::create::Create;
use crate::volume::direct::Direct;
use crate::volume::file::{self, CACHE_MIB, How, Opened};
use crate::volume::info::Facts;
use base::{Name, Stat, Time};
use node::Protocol;
use node::script::Source;
use std::net::ToSocketAddrs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt};
use std::path::{Path, PathBuf};

/// Default volume.
const VOLUME_DEFAULT: &str = "./upcall.volume";

/// Error without anything to serve.
const NOTHING_TO_SERVE: &str = "nothing to serve; use 'upcall serve DIR' for a directory, or \
                                'upcall serve NAME.volume' for a volume, which is created if it \
                                does not exist; 'upcall serve --help' lists the options";

/// The tree to serve.
pub(crate) struct TreeSource {
    /// Its path on this host.
    pub(crate) path: PathBuf,
    /// Attributes of its root.
    pub(crate) stat: Stat,
    pub(crate) what: What,
}

/// Its kind.
pub(crate) enum What {
    Directory,
    /// An open volume, and its description.
    Volume(Box<Opened>, Box<Facts>),
    /// Empty directories, as mount points.
    Skeleton(Vec<Vec<Name>>),
    /// The tree of a 9P server, by its name.
    Remote(Vec<base::op::Address>, String),
}

/// Finds the tree to serve; creates and opens the volume, if it is one. Messages go to `say`.
pub(crate) fn find(serve: &Serve, emit: &dyn Fn(&str)) -> Result<TreeSource, String> {
    let Some(requested) = serve.dir.as_deref() else {
        let path = Path::new(VOLUME_DEFAULT);
        return match path.exists() {
            true => volume(path, serve),
            false if !serve.replica.is_empty() => Ok(empty()),
            false => Err(NOTHING_TO_SERVE.to_string()),
        };
    };
    let named = requested.extension().is_some_and(|extension| extension == "volume");
    if named && !requested.exists() {
        make(requested, serve.read_only, emit)?;
    }
    existing(requested, serve)
}

/// Returns the tree of a line of a names file: a volume, which is created if it does not exist, or
/// a directory.
pub(crate) fn named(
    requested: &Path,
    is_volume: bool,
    serve: &Serve,
    emit: &dyn Fn(&str),
) -> Result<TreeSource, String> {
    if is_volume && !requested.exists() {
        make(requested, serve.read_only, emit)?;
    }
    let place = existing(requested, serve)?;
    let shown = requested.display();
    match (&place.what, is_volume) {
        (What::Volume(..), false) => Err(format!("{shown} is a volume; use volume:{shown}")),
        (What::Directory, true) => Err(format!("{shown} is a directory; use host:{shown}")),
        _fits => Ok(place),
    }
}

/// Returns a 9P server, which need not be available yet.
pub(crate) fn remote(source: &Source) -> Result<TreeSource, String> {
    let (address, aname) = match source {
        Source::NineP { address, aname } => (resolve(address)?, aname),
        Source::NinePUnix { path, aname } => {
            (vec![base::op::Address::Unix(path.as_bytes().to_vec())], aname)
        }
        Source::Volume(_) | Source::Host(_) => unreachable!("{source} is no server"),
    };
    let (path, what) = (PathBuf::from(source.to_string()), What::Remote(address, aname.clone()));
    Ok(TreeSource { path, stat: Stat::default(), what })
}

/// Resolves the HOST:PORT of a server.
///
/// # Errors
/// The cause, and the next step.
pub(crate) fn resolve(address: &str) -> Result<Vec<base::op::Address>, String> {
    let unfound = |error: &dyn std::fmt::Display| match address.rsplit_once(':') {
        Some((host, port)) if port.parse::<u16>().is_ok() && !host.is_empty() => {
            format!("cannot find the host '{host}' of '{address}': {error}; check its name")
        }
        _unclear => format!("{address}: {error}; use HOST:PORT of a 9P server"),
    };
    let found = address.to_socket_addrs().map_err(|error| unfound(&error))?;
    let found: Vec<_> = found.map(base::op::Address::Tcp).collect();
    if found.is_empty() { Err(unfound(&"it has no address")) } else { Ok(found) }
}

fn existing(requested: &Path, serve: &Serve) -> Result<TreeSource, String> {
    let refuse = |reason: &dyn std::fmt::Display| {
        format!(
            "cannot serve {}: {reason}; name a directory that exists, or a volume",
            requested.display()
        )
    };
    let meta = requested.metadata().map_err(|error| refuse(&error))?;
    if meta.is_file() || meta.file_type().is_block_device() {
        return volume(requested, serve);
    }
    let path = requested.canonicalize().map_err(|error| refuse(&error))?;
    if !meta.is_dir() {
        return Err(refuse(&"it is neither a directory nor a file"));
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
    Ok(TreeSource { path, stat, what: What::Directory })
}

/// Returns an empty directory, the root of a server of replicas alone.
fn empty() -> TreeSource {
    let stat = Stat { uid: reactor::own_user(), ..Stat::default() };
    TreeSource { path: PathBuf::from("/"), stat, what: What::Skeleton(Vec::new()) }
}

/// Creates the volume to serve, whose name marks it as one.
fn make(path: &Path, read_only: bool, emit: &dyn Fn(&str)) -> Result<(), String> {
    if read_only {
        return Err(format!(
            "{} does not exist, and --read-only creates nothing; choose an existing directory or \
             volume",
            path.display()
        ));
    }
    let (bytes, _) = Create::usual(path).make()?;
    let size = size::show(bytes);
    let path = path.display();
    emit(&format!("created  {path}, {size}, which takes storage as it is filled\n"));
    Ok(())
}

fn volume(requested: &Path, serve: &Serve) -> Result<TreeSource, String> {
    let path =
        requested.canonicalize().map_err(|error| format!("{}: {error}", requested.display()))?;
    let how = How {
        writable: !serve.read_only,
        accept_loss: serve.accept_loss,
        memory: serve.cache.unwrap_or(CACHE_MIB).saturating_mul(1 << 20),
        if_served: "look at /.upcall/ in the served tree",
    };
    let mut direct = Direct::new(file::open(&path, &how)?, serve.read_only);
    let stat = direct.stat(direct.root());
    let stat = stat.map_err(|_| file::explain(&path, store::Error::Damaged))?;
    let facts = Facts::of(&path, &mut direct)?;
    let what = What::Volume(Box::new(direct.into_opened()), Box::new(facts));
    Ok(TreeSource { path, stat, what })
}

/// Returns the addresses to listen at, each with its protocol: the given ones, or the default for a
/// protocol without a socket of the service manager, whose addresses are `inherited`.
pub(crate) fn addresses(serve: &Serve, inherited: &[Bound]) -> Result<Vec<Bound>, String> {
    let of = |protocol: Protocol, given: &[String], default| {
        if given.is_empty() && inherited.iter().any(|(it, _)| *it == protocol) {
            return Ok(Vec::new());
        }
        let all = config::addresses(given, default)
            .map_err(|error| format!("{}: {error}", service::name_of(protocol)))?;
        Ok::<_, String>(all.into_iter().map(|address| (protocol, address)).collect::<Vec<_>>())
    };
    let mut all: Vec<Bound> = of(Protocol::NineP, &serve.ninep, NINEP_DEFAULT)?;
    if !serve.nfs.is_empty() {
        all.extend(of(Protocol::Nfs, &serve.nfs, NFS_DEFAULT)?);
    }
    all.extend(of(Protocol::Http, &serve.http, HTTP_DEFAULT)?);
    match all.is_empty() && inherited.is_empty() {
        true => {
            Err("nothing to listen on: leave out '--9p none' or '--http none', add --nfs ADDR, or \
                     list an address for 9p, http or nfs in the configuration file"
                .to_string())
        }
        false => Ok(all),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reactor::Address;

    #[test]
    fn an_unknown_host_is_named() {
        let error = resolve("no-such-host.invalid:5640").unwrap_err();
        assert!(error.starts_with("cannot find the host 'no-such-host.invalid' of "), "{error}");
        assert!(error.ends_with("; check its name"), "{error}");
        let error = resolve("127.0.0.1:port").unwrap_err();
        assert!(error.ends_with("use HOST:PORT of a 9P server"), "{error}");
    }

    #[test]
    fn a_socket_of_the_service_manager_replaces_the_default_of_its_protocol() {
        let inherited = [(Protocol::NineP, Address::Unix("/run/9p".into()))];
        let http = (Protocol::Http, Address::Tcp(HTTP_DEFAULT.parse().unwrap()));
        let mut serve = Serve::default();
        assert_eq!(addresses(&serve, &inherited), Ok(vec![http.clone()]));
        assert_eq!(addresses(&serve, &[]).map(|all| all.len()), Ok(2));
        serve.ninep = vec!["unix:/run/other".to_string()];
        let other = (Protocol::NineP, Address::Unix("/run/other".into()));
        assert_eq!(addresses(&serve, &inherited), Ok(vec![other, http]));
        (serve.ninep, serve.http) = (vec!["none".to_string()], vec!["none".to_string()]);
        assert_eq!(addresses(&serve, &inherited), Ok(Vec::new()));
        assert!(addresses(&serve, &[]).is_err());
    }
}
