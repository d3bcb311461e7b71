//! An open file, which outlives the connection of its open.

use super::Remote;
use super::inodes::ROOT;
use super::writes::Writes;
use crate::request::OpenId;
use base::op::Entry;
use base::{Access, Error, Kind};

/// An open file.
#[derive(Clone, Debug)]
pub(super) struct Open {
    /// The file's place, pinned.
    pub(super) inode: usize,
    pub(super) kind: Kind,
    pub(super) user: u32,
    pub(super) access: Access,
    /// Its fid on this connection.
    pub(super) fid: u32,
    pub(super) epoch: u32,
    /// Preferred maximum transfer size of the server, bytes; zero: the message size is the limit.
    pub(super) iounit: u32,
    /// References of the client, of pending requests, and of a recovery.
    pub(super) users: u32,
    /// Whether reopening has failed for good.
    pub(super) stale: bool,
    /// Whether it has held locks on this connection.
    pub(super) locked: bool,
    /// Whether it has held locks on a lost connection.
    pub(super) locks_lost: bool,
    /// Losses of writes to this file that were reported to its client.
    pub(super) losses_seen: u64,
    /// Read position in a directory of 9P2000.
    pub(super) cursor: Cursor,
}

/// Read position in a directory of 9P2000, which can be read only sequentially: the last entries
/// read, and the offset behind them. The cookie of an entry is its number, from one.
#[derive(Clone, Debug, Default)]
pub(super) struct Cursor {
    /// Cookie in front of the first of the entries.
    pub(super) before: u64,
    pub(super) entries: Vec<Entry>,
    pub(super) offset: u64,
}

impl Open {
    pub(super) fn new(inode: usize, kind: Kind, user: u32, access: Access) -> Open {
        Open {
            inode,
            kind,
            user,
            access,
            fid: 0,
            epoch: 0,
            iounit: 0,
            users: 1,
            stale: false,
            locked: false,
            locks_lost: false,
            losses_seen: 0,
            cursor: Cursor::default(),
        }
    }

    /// Records the reopening on another connection; the server's state of the former one is gone.
    pub(super) fn reopened(&mut self, fid: u32, epoch: u32) {
        assert_ne!(self.epoch, epoch, "it is opened once on each connection");
        self.locks_lost |= std::mem::take(&mut self.locked);
        self.cursor = Cursor::default();
        (self.fid, self.epoch) = (fid, epoch);
    }
}

impl Remote {
    /// Returns the writes to an open file.
    pub(super) fn writes(&mut self, open: OpenId) -> &mut Writes {
        self.inodes.writes(self.opens[open.local()].inode)
    }

    /// # Errors
    /// `Disconnected`, once, if writes to the file may have been lost with a connection.
    pub(super) fn expect_kept(&mut self, open: OpenId, client: u32) -> Result<(), Error> {
        let it = &mut self.opens[open.local()];
        match self.inodes.writes(it.inode).report(&mut it.losses_seen, client) {
            true => Err(Error::Disconnected),
            false => Ok(()),
        }
    }

    /// Adds an open file. The place must be pinned; the pin passes to the open file.
    pub(super) fn add_open(&mut self, open: Open) -> OpenId {
        let losses_seen = self.inodes.writes(open.inode).seen_by_new();
        let open = Open { losses_seen, ..open };
        OpenId::new(self.index, self.opens.insert(open))
    }

    pub(super) fn unpin_open(&mut self, open: usize) {
        let it = &mut self.opens[open];
        assert!(it.users > 0, "a use is given back once");
        it.users -= 1;
        if it.users > 0 {
            return;
        }
        let it = self.opens.remove(open);
        self.inodes.closed(it.inode, open);
        if it.epoch == self.inodes.epoch() {
            self.clunk(it.fid);
        }
        self.unpin_inode(it.inode);
    }

    /// Binds a fid to an inode for this user.
    pub(super) fn bind(&mut self, inode: usize, user: u32, fid: u32) {
        for unneeded in self.inodes.bind(inode, user, fid) {
            self.clunk(unneeded);
        }
    }

    pub(super) fn unpin_inode(&mut self, inode: usize) {
        assert!(inode != ROOT || self.inodes.users(ROOT) > 1, "the root is never released");
        for fid in self.inodes.unpin(inode) {
            self.clunk(fid);
        }
    }
}
