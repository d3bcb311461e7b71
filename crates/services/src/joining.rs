//! Progress of a joining replica.

use crate::Snapshot;

/// Progress of a joining replica.
#[derive(Debug)]
pub(crate) enum Joining {
    /// Asking one member after the other.
    Asks,
    /// Waiting for the join snapshot to be durable.
    Keeps(Box<Snapshot>),
}
