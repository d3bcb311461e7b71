//! Settings of NFS: the key of file handles, and the write verifier.

use crate::config::{NfsSquash, Serve};
use crate::homes::Homes;
use crate::{clock, key_file, log};
use base::Time;
use ipnet::IpNet;
use node::{Nfs, Squash};
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

/// Name of the file with the key, in the directory of the server's state.
const KEY: &str = "nfs-key";

/// Returns the settings of a server that starts now.
///
/// # Errors
/// `--nfs-allow` names no network, or there are no random numbers.
pub(crate) fn settings(
    serve: &Serve,
    served: &Path,
    homes: &Homes,
    now: Time,
) -> Result<Nfs, String> {
    let allow = serve.nfs_allow.iter().map(|text| network(text)).collect::<Result<_, _>>()?;
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
    Ok(Nfs { is_async: serve.nfs_async, allow, ..nfs })
}

/// Parses an address, or the address and prefix length of a network.
fn network(text: &str) -> Result<IpNet, String> {
    let network = match text.parse::<IpAddr>() {
        Ok(address) => Ok(IpNet::from(address.to_canonical())),
        Err(_) => text.parse::<IpNet>(),
    };
    network.map_err(|_| {
        format!("--nfs-allow {text}: give an address or a network, as 192.0.2.7 or 192.0.2.0/24")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_addresses_with_or_without_a_prefix() {
        let nfs = |networks: &[&str]| Nfs {
            allow: networks.iter().map(|text| network(text).unwrap()).collect(),
            ..Nfs::default()
        };
        let allows = |nfs: &Nfs, address: &str| nfs.allows(address.parse().unwrap());
        assert!(allows(&nfs(&[]), "192.0.2.7"));
        let some = nfs(&["192.0.2.0/25", "198.51.100.1", "2001:db8::/32"]);
        for inside in ["192.0.2.7", "::ffff:192.0.2.7", "198.51.100.1", "2001:db8:1::2"] {
            assert!(allows(&some, inside), "{inside}");
        }
        for outside in ["192.0.2.128", "198.51.100.2", "2001:db9::1", "127.0.0.1"] {
            assert!(!allows(&some, outside), "{outside}");
        }
        for bad in ["", "host", "192.0.2.0/33", "192.0.2", "::/129"] {
            assert!(network(bad).is_err(), "{bad}");
        }
    }

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
