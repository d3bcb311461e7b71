//! Accounts that storelets are charged to.

/// Account that a storelet is charged to: a user, and one of the user's clients.
///
/// Ordered by user, so that the clients of a user are adjacent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Account {
    /// The user's number.
    pub user: u32,
    /// Connection, as in [`RequestId::requester`](tree::RequestId::requester); [`Account::OWN`] for
    /// runs that the server starts itself.
    pub client: u32,
}

impl Account {
    /// Client of all runs that the server starts itself: not the number of a connection.
    pub const OWN: u32 = u32::MAX;
}
