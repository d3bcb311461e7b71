//! What a node is made with: what it serves, where, to whom, and within which limits.

use base::op::{Address, File};
use base::{Name, Stat, Time};
use front::{Identity, Limits, Protocol, Web};
use names::Order;
use std::sync::Arc;
use store::Store;

/// What a node serves, where, to whom, and within which limits.
#[derive(Clone, Debug)]
pub struct Config {
    /// Nothing may be changed.
    pub read_only: bool,
    /// Changes are durable before they are answered.
    pub write_through: bool,
    /// The server's own state is shown under `/.upcall/`.
    pub service: bool,
    /// Settings of HTTP.
    pub web: Web,
    /// The number of the server's own user.
    pub owner: u32,
    /// Where to listen, and for which protocol.
    pub ports: Vec<Port>,
    /// The date on the wall when the reactor's clock stood at zero.
    pub wall: Time,
    /// Limits of each connection.
    pub limits: Limits,
    /// Most connections at once.
    pub connections_max: usize,
    /// Most bytes asked for or unsent, over all connections.
    pub bytes_max: usize,
    /// Most files that the process may have open: connections, and files that clients know.
    pub files_max: usize,
    /// Nodes of this process that have connections. Each may give its clients the same part of the
    /// nodes and open files that trees have.
    pub sharers: usize,
    /// Memory for the blocks of each volume that is mounted while the node serves, bytes.
    pub volume_cache: usize,
    /// Who runs storelets, if they are run.
    pub storelets: Option<storelet::Settings>,
}

/// What a node serves.
#[derive(Debug)]
pub enum Served {
    /// A directory of the host.
    Directory {
        /// A handle of the reactor's.
        root: File,
        /// Its attributes.
        stat: Stat,
        /// Its path on the host.
        path: Vec<u8>,
    },
    /// What another 9P server serves.
    Remote {
        /// Where it listens.
        to: Vec<Address>,
        /// What is attached to there; may be empty.
        aname: Vec<u8>,
        /// What it is called here.
        path: Vec<u8>,
    },
    /// Empty directories, for others to be mounted at.
    Skeleton {
        /// Their paths.
        paths: Vec<Vec<Name>>,
    },
    /// A volume.
    Volume {
        /// Its file, as the reactor knows it.
        file: File,
        /// Its store, which may still be recovering.
        store: Box<Store>,
        /// What the store said when it was opened.
        said: Vec<store::Output>,
        /// The path of the file on the host.
        path: Vec<u8>,
    },
}

impl Served {
    /// The file that was opened for it.
    pub(crate) fn file(&self) -> Option<File> {
        match self {
            Served::Directory { root: file, .. } | Served::Volume { file, .. } => Some(*file),
            Served::Remote { .. } | Served::Skeleton { .. } => None,
        }
    }
}

/// Something that is put at a place of the name space, or taken away, before anybody is let in.
#[derive(Debug)]
pub struct Join {
    /// What.
    pub what: Joined,
    /// Where.
    pub at: Vec<Name>,
    /// Where among what is there.
    pub order: Order,
    /// New files may be made in it.
    pub create: bool,
    /// The same in the words of whoever wants it, for those who list the name space.
    pub said: Arc<str>,
}

/// What is put at a place.
#[derive(Debug)]
pub enum Joined {
    /// A tree of its own: a mount.
    Tree(Served),
    /// A directory of the name space: a bind.
    Path(Vec<Name>),
    /// Nothing: what was put there goes, or only what was said so. An unmount.
    Gone(Option<Arc<str>>),
}

/// As whom the clients of a port act.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Clients {
    /// All act like this.
    All(Identity),
    /// Each as whom the kernel says it is. For unix sockets only.
    Themselves,
    /// Each as whom the kernel says it is; but these users are believed whom they speak for: a
    /// mount by the kernel comes from root. For unix sockets only.
    Spokesmen(Vec<u32>),
}

/// A listening socket and what it is for.
#[derive(Clone, Debug)]
pub struct Port {
    /// The reactor's name for it.
    pub listener: base::op::Listener,
    /// What is spoken there.
    pub protocol: Protocol,
    /// Only this host can reach it: loopback, or a unix socket.
    pub local: bool,
    /// As whom its clients act.
    pub clients: Clients,
}

impl Port {
    /// Whether the kernel says who its clients are: a unix socket.
    pub(crate) fn is_told(&self) -> bool {
        matches!(self.clients, Clients::Themselves | Clients::Spokesmen(_))
    }
}

#[cfg(test)]
impl Config {
    /// A node without listeners and services.
    pub(crate) fn of_tests() -> Config {
        Config {
            read_only: false,
            write_through: false,
            service: false,
            web: Web::default(),
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
