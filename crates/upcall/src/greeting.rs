//! Start message of the server: what is served, and how to reach it.

use crate::config::Serve;
use crate::listening::{Bound, nfs_port};
use crate::output::quoted;
use node::Protocol;
use reactor::Address;
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

/// The message, as `Display`.
pub(crate) struct Greeting<'a> {
    pub(crate) serve: &'a Serve,
    /// Path of the served tree.
    pub(crate) path: &'a Path,
    /// The names file, and the number of its lines that were applied.
    pub(crate) names: Option<(&'a Path, usize)>,
    /// Description of the volume, if one is served.
    pub(crate) volume: Option<&'a str>,
    /// Description of each replica.
    pub(crate) replicas: &'a [String],
    pub(crate) form: &'a str,
    pub(crate) rule: &'a str,
    /// Reason for fewer connections than the default.
    pub(crate) limit: Option<&'a str>,
    pub(crate) bound: &'a [Bound],
}

impl fmt::Display for Greeting<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = match (self.serve.read_only, self.serve.write_through) {
            (true, _) => "read-only",
            (false, true) => "read-write, write-through",
            (false, false) => "read-write",
        };
        writeln!(f, "serving  {}, {mode}", self.path.display())?;
        if let Some(volume) = self.volume {
            writeln!(f, "volume   {volume}")?;
        }
        if let Some((file, count)) = self.names {
            let lines = if count == 1 { "line" } else { "lines" };
            writeln!(f, "names    {}, {count} {lines} joined", file.display())?;
        }
        for replica in self.replicas {
            writeln!(f, "replica  {replica}")?;
        }
        writeln!(f, "reactor  {}", self.form)?;
        if let Some(record) = &self.serve.record {
            writeln!(f, "record   every I/O of files into {}", record.display())?;
        }
        writeln!(f, "users    {}", self.rule)?;
        if let Some(limit) = self.limit {
            writeln!(f, "limit    {limit}")?;
        }
        for (protocol, address) in self.bound {
            match (protocol, address) {
                (Protocol::NineP, Address::Tcp(address)) => self.ninep(f, address)?,
                (Protocol::NineP, Address::Unix(path)) => {
                    writeln!(f, "9p       unix:{}", path.display())?;
                    let path = quoted(path);
                    writeln!(
                        f,
                        "         sudo mount -t 9p -o trans=unix,{} {path} /mnt",
                        options("user")
                    )?;
                }
                (Protocol::Nfs, Address::Tcp(address)) => self.nfs(f, address)?,
                (Protocol::Nfs, Address::Unix(path)) => {
                    writeln!(f, "nfs      unix:{}", path.display())?;
                }
                (Protocol::Http, Address::Tcp(address)) => {
                    writeln!(f, "http     http://{address}/")?;
                    writeln!(f, "         curl http://{}/", reachable(address))?;
                }
                (Protocol::Http, Address::Unix(path)) => {
                    writeln!(f, "http     unix:{}", path.display())?;
                    let path = quoted(path);
                    writeln!(f, "         curl --unix-socket {path} http://localhost/")?;
                }
            }
        }
        if !self.serve.no_status {
            let snapshots = if self.volume.is_some() { ", snapshots" } else { "" };
            writeln!(
                f,
                "status   /.upcall/ in the served tree: machines, queues, stages, \
                 metrics, names, watch, subtree{snapshots}"
            )?;
        }
        writeln!(
            f,
            "Ctrl-C shuts down after outstanding requests, in at most 10 s; a second Ctrl-C ends \
             it at once."
        )
    }
}

impl Greeting<'_> {
    fn ninep(&self, f: &mut fmt::Formatter<'_>, address: &SocketAddr) -> fmt::Result {
        let (host, port) = (reachable(address).ip(), address.port());
        writeln!(f, "9p       {address}")?;
        let options = options(if self.serve.trust_clients { "user" } else { "any" });
        writeln!(f, "         sudo mount -t 9p -o trans=tcp,port={port},{options} {host} /mnt")?;
        let path = quoted(self.path);
        writeln!(f, "         diodls -s {} -a {path}", reachable(address))?;
        writeln!(f, "         9p -a 'tcp!{host}!{port}' ls /")
    }

    fn nfs(&self, f: &mut fmt::Formatter<'_>, address: &SocketAddr) -> fmt::Result {
        let (host, port) = (nfs_host(address), address.port());
        writeln!(f, "nfs      {address}")?;
        let is_registered =
            self.serve.nfs_portmapper && address.is_ipv4() && nfs_port(self.bound) == Some(port);
        let ports = match is_registered {
            true => String::new(),
            false => format!("port={port},mountport={port},"),
        };
        let options = format!("vers=3,tcp,{ports}nolock");
        writeln!(f, "         sudo mount -t nfs -o {options} {host}:/ /mnt")
    }
}

/// Returns the host of an NFS mount: a colon follows, so IPv6 addresses have brackets.
fn nfs_host(address: &SocketAddr) -> String {
    match reachable(address) {
        SocketAddr::V4(v4) => v4.ip().to_string(),
        SocketAddr::V6(v6) => format!("[{}]", v6.ip()),
    }
}

/// Returns the options of a mount. `access`: whether the kernel attaches separately for each user.
fn options(access: &str) -> String {
    format!("version=9p2000.L,msize=1048576,access={access}")
}

/// Returns the address by which this host reaches a listener: loopback for one on every interface.
fn reachable(address: &SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V4(v4) if v4.ip().is_unspecified() => {
            SocketAddr::new(Ipv4Addr::LOCALHOST.into(), v4.port())
        }
        SocketAddr::V6(v6) if v6.ip().is_unspecified() => {
            SocketAddr::new(Ipv6Addr::LOCALHOST.into(), v6.port())
        }
        address @ (SocketAddr::V4(_) | SocketAddr::V6(_)) => *address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_on_every_interface_is_reached_by_loopback() {
        assert_eq!(reachable(&"0.0.0.0:80".parse().unwrap()).to_string(), "127.0.0.1:80");
        assert_eq!(reachable(&"[::]:80".parse().unwrap()).to_string(), "[::1]:80");
    }
}
