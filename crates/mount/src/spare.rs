//! A fid kept for the next stream of a subtree.

use crate::link::{Connection, Fid};

/// Open fid of the file of subtrees.
#[derive(Debug)]
pub(crate) struct Spare {
    pub(crate) user: u32,
    pub(crate) fid: Fid,
    pub(crate) age: u32,
}

impl Spare {
    pub(crate) fn is_of(&self, user: u32, connection: &Connection) -> bool {
        (self.user, self.fid.connection.number) == (user, connection.number)
    }
}
