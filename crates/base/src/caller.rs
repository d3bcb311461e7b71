//! Who asks.

use std::sync::Arc;

/// On whose behalf an operation is performed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Caller {
    /// The server itself: whatever its process may do.
    Server,
    /// A user of the host; the kernel checks their permissions.
    User(Arc<User>),
}

/// A user of the host with the groups the host says they have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The user id.
    pub uid: u32,
    /// The primary group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// The kernel says who it is, and it asked to command the server: no server that only hands
    /// on what others ask does that.
    pub commands: bool,
}
