//! Configuration of a node: its trees, ports, clients and limits.

use base::op::{Address, File};
use base::{Name, Stat, Time};
use front::{Identity, Limits, Nfs, Protocol, Web};
use names::Order;
use std::sync::Arc;
use store::Store;

/// Configuration of a node.
#[derive(Clone, Debug)]
pub struct Config {
    /// Whether all changes are refused.
    pub read_only: bool,
    /// Whether changes are durable before their replies.
    pub write_through: bool,
    /// Whether the server's own state is visible under `/.upcall/`.
    pub service: bool,
    /// Settings of HTTP.
    pub web: Web,
    /// Settings of NFS.
    pub nfs: Nfs,
    /// User number of the server.
    pub owner: u32,
    /// Listening sockets with their protocols.
    pub ports: Vec<Port>,
    /// Wall-clock time at the reactor's time zero.
    pub wall: Time,
    /// Limits of each connection.
    pub limits: Limits,
    /// Maximum number of connections.
    pub connections_max: usize,
    /// Maximum number of bytes requested or unsent, over all connections.
    pub bytes_max: usize,
    /// Maximum number of open files of the process: connections, and files held by clients.
    pub files_max: usize,
    /// Number of nodes of this process with connections. Each may give its clients an equal part of
    /// the trees' nodes and open files.
    pub sharers: usize,
    /// Memory for the blocks of each volume that is mounted at run time, bytes.
    pub volume_cache: usize,
    /// Settings of storelets, if they are enabled.
    pub storelets: Option<storelet::Settings>,
}

/// A tree to serve.
#[derive(Debug)]
pub enum Served {
    /// A directory of the host.
    Directory {
        /// Handle of the directory.
        root: File,
        /// Attributes of the directory.
        stat: Stat,
        /// Path on the host.
        path: Vec<u8>,
    },
    /// The files of another 9P server.
    Remote {
        /// Addresses of the server.
        to: Vec<Address>,
        /// Tree to attach to; may be empty.
        aname: Vec<u8>,
        /// Name of the tree here.
        path: Vec<u8>,
    },
    /// Empty directories as mount points.
    Skeleton {
        /// Paths of the directories.
        paths: Vec<Vec<Name>>,
    },
    /// A volume.
    Volume {
        /// Open file of the volume.
        file: File,
        /// Store in it, which may still be recovering.
        store: Box<Store>,
        /// Outputs of the store at its opening.
        outputs: Vec<store::Output>,
        /// Path of the file on the host.
        path: Vec<u8>,
    },
}

impl Served {
    /// Returns its path on the host, or its name.
    pub(crate) fn path(&self) -> &[u8] {
        match self {
            Served::Directory { path, .. }
            | Served::Volume { path, .. }
            | Served::Remote { path, .. } => path,
            Served::Skeleton { .. } => &[],
        }
    }

    /// Returns the file that was opened for it.
    pub(crate) fn file(&self) -> Option<File> {
        match self {
            Served::Directory { root: file, .. } | Served::Volume { file, .. } => Some(*file),
            Served::Remote { .. } | Served::Skeleton { .. } => None,
        }
    }
}

/// A mount, bind or unmount at the construction of the namespace.
#[derive(Debug)]
pub struct Join {
    /// Source.
    pub what: Joined,
    /// Mount point.
    pub at: Vec<Name>,
    /// Order in the union.
    pub order: Order,
    /// Whether files may be created in it.
    pub create: bool,
    /// The same as text, for listings of the namespace.
    pub source_text: Arc<str>,
}

/// Source of a join.
#[derive(Debug)]
pub enum Joined {
    /// A tree: a mount.
    Tree(Served),
    /// A directory of the namespace: a bind.
    Path(Vec<Name>),
    /// Nothing: an unmount of everything at the mount point, or only of the join with this text.
    Gone(Option<Arc<str>>),
}

/// Identities of the clients of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Clients {
    /// The same rule for all.
    All(Identity),
    /// The identity verified by the kernel. For Unix sockets only.
    Themselves,
    /// The identity verified by the kernel, but these users may claim any: a mount by the kernel
    /// comes from root. For Unix sockets only.
    Spokesmen(Vec<u32>),
}

/// A listening socket and its purpose.
#[derive(Clone, Debug)]
pub struct Port {
    /// Identifier of the socket in the reactor.
    pub listener: base::op::Listener,
    /// Protocol.
    pub protocol: Protocol,
    /// Whether only this host can reach it: loopback, or a Unix socket.
    pub local: bool,
    /// Identities of its clients.
    pub clients: Clients,
}

impl Port {
    /// Returns whether the kernel verifies the identities of its clients: a Unix socket.
    pub(crate) fn is_verified(&self) -> bool {
        matches!(self.clients, Clients::Themselves | Clients::Spokesmen(_))
    }
}

#[cfg(test)]
impl Config {
    /// Configuration without listeners and services.
    pub(crate) fn of_tests() -> Config {
        Config {
            read_only: false,
            write_through: false,
            service: false,
            web: Web::default(),
            nfs: Nfs::default(),
            owner: 0,
            ports: Vec::new(),
            wall: Time::default(),
            limits: Limits::default(),
            connections_max: 1000,
            bytes_max: 1 << 30,
            files_max: 1 << 20,
            sharers: 1,
            volume_cache: 1 << 20,
            storelets: None,
        }
    }
}
