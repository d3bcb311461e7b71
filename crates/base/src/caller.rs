//! The identity that an operation is performed as.

use std::sync::Arc;

/// The identity that an operation is performed as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Caller {
    /// The server itself, with the rights of its process.
    Server,
    /// A user of the host; the kernel checks their permissions.
    User(Arc<User>),
}

/// A user of the host with their groups in the host's user database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// User id.
    pub uid: u32,
    /// Primary group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// Whether the user may administer the server: authenticated by the kernel, on a
    /// connection that asked for it. Proxies, which forward requests of others, do not ask.
    pub commands: bool,
}
