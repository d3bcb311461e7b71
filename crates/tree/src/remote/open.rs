//! An open file, which outlives the connection it was opened on.

use super::Remote;
use super::places::ROOT;
use super::writes::Writes;
use crate::request::OpenId;
use base::op::Entry;
use base::{Access, Error, Kind};

/// One of them.
#[derive(Clone, Debug)]
pub(super) struct Open {
    /// Which file; the place is pinned.
    pub(super) place: usize,
    pub(super) kind: Kind,
    pub(super) user: u32,
    pub(super) access: Access,
    /// The server's number for it, on this connection.
    pub(super) fid: u32,
    pub(super) epoch: u32,
    /// The largest transfer that the server likes, bytes; zero: whatever fits.
    pub(super) iounit: u32,
    /// The client's use, errands, and a seek.
    pub(super) users: u32,
    /// It cannot be opened again.
    pub(super) stale: bool,
    /// It has held locks on this connection.
    pub(super) locked: bool,
    /// It has held locks on a connection that is lost.
    pub(super) locks_lost: bool,
    /// The losses of writes to this file that its client knows of.
    pub(super) losses_seen: u64,
    /// Where a directory of 9P2000 is read.
    pub(super) cursor: Cursor,
}

/// Directories of 9P2000 are read one behind the other: the last entries that were read, and the
/// offset behind them. An entry's cookie is its number, from one.
#[derive(Clone, Debug, Default)]
pub(super) struct Cursor {
    /// The cookie in front of the first entry here.
    pub(super) before: u64,
    pub(super) entries: Vec<Entry>,
    pub(super) offset: u64,
}

impl Open {
    pub(super) fn new(place: usize, kind: Kind, user: u32, access: Access) -> Open {
        Open {
            place,
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

    /// It is open on another connection; what the server had kept is gone.
    pub(super) fn reopened(&mut self, fid: u32, epoch: u32) {
        assert_ne!(self.epoch, epoch, "it is opened once on each connection");
        self.locks_lost |= std::mem::take(&mut self.locked);
        self.cursor = Cursor::default();
        (self.fid, self.epoch) = (fid, epoch);
    }
}

impl Remote {
    /// Writes to the file that is open.
    pub(super) fn writes(&mut self, open: OpenId) -> &mut Writes {
        self.places.writes(self.opens[open.local()].place)
    }

    /// # Errors
    /// `Disconnected`, once, if writes to the file may have been lost with a connection.
    pub(super) fn expect_kept(&mut self, open: OpenId) -> Result<(), Error> {
        let it = &mut self.opens[open.local()];
        match self.places.writes(it.place).report(self.epoch, &mut it.losses_seen) {
            true => Err(Error::Disconnected),
            false => Ok(()),
        }
    }

    /// A file that was opened by `fid`. The place must be pinned, and is the open file's now.
    pub(super) fn add_open(&mut self, open: Open) -> OpenId {
        let losses_seen = self.places.writes(open.place).seen_by_new(self.epoch);
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
        if it.epoch == self.epoch {
            self.clunk(it.fid);
        }
        self.unpin_place(it.place);
    }

    /// The place has this fid from now on, for this user.
    pub(super) fn bind(&mut self, place: usize, user: u32, fid: u32) {
        for unneeded in self.places.bind(place, user, self.epoch, fid) {
            self.clunk(unneeded);
        }
    }

    pub(super) fn unpin_place(&mut self, place: usize) {
        assert!(place != ROOT || self.places.users(ROOT) > 1, "the root is never released");
        for fid in self.places.unpin(place, self.epoch) {
            self.clunk(fid);
        }
    }
}
