//! Fids: the client's names for files.

use crate::Output;
use base::op::Entry;
use base::{Access, Caller, Error, Kind};
use std::collections::{BTreeMap, BTreeSet, VecDeque, btree_map};
use std::mem;
use tree::{NodeId, OpenId};

/// Maximum memory of extended attributes, names and values, held by the fids of a connection,
/// bytes.
const ATTRS_MAX: usize = 1 << 20;

/// Maximum number of files of dropped fids released in one step: a client may have had a million.
pub(super) const RELEASES_MAX: usize = 16;

/// A file as the client knows it.
#[derive(Debug)]
pub(super) struct Fid {
    pub(super) node: NodeId,
    pub(super) caller: Caller,
    pub(super) kind: Kind,
    /// Last name of the walk to the file, which 9P2000 reports.
    pub(super) name: Vec<u8>,
    pub(super) openness: Openness,
}

/// Exclusive right of a call to open a fid. The fid may be clunked and its number reused for
/// another file before the call ends; the serial number detects that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) fid: u32,
    serial: u64,
}

/// Open state of a fid.
#[derive(Debug)]
pub(super) enum Openness {
    /// Not open: walk, stat and open are permitted.
    Closed,
    /// Claimed by a call that opens it; nothing is permitted.
    Opening { serial: u64 },
    /// An open file.
    File {
        open: OpenId,
        access: Access,
        /// Whether it is removed when the fid is clunked (9P2000's `ORCLOSE`).
        remove: bool,
        /// Whether it is a stream, whose reads may wait for data.
        is_stream: bool,
    },
    /// An open directory.
    Directory { open: OpenId, device: u64, cursor: Cursor, remove: bool },
    /// The value of an extended attribute, or the list of attributes, for reading.
    AttrRead { value: Vec<u8> },
    /// The value of an extended attribute being written, which is set when the fid is clunked.
    AttrWrite { name: Vec<u8>, value: Vec<u8>, size: usize, create: Option<bool> },
}

/// Position of a 9P2000 client in a directory: it may only continue or start again (read(5)).
#[derive(Debug, Default)]
pub(super) struct Cursor {
    /// The only offset except zero that may be read next.
    pub(super) offset: u64,
    /// The cookie of the last entry taken from the tree.
    pub(super) cookie: u64,
    /// Entries taken from the tree that did not fit the last response.
    pub(super) ahead: VecDeque<Entry>,
}

impl Fid {
    /// Returns the open file or directory, if there is one.
    pub(super) fn open(&self) -> Option<OpenId> {
        match self.openness {
            Openness::File { open, .. } | Openness::Directory { open, .. } => Some(open),
            Openness::Closed
            | Openness::Opening { .. }
            | Openness::AttrRead { .. }
            | Openness::AttrWrite { .. } => None,
        }
    }

    /// Returns the open file, if it is open for writing.
    pub(super) fn open_for_writing(&self) -> Option<OpenId> {
        match self.openness {
            Openness::File { open, access, .. } if access.write => Some(open),
            Openness::File { .. }
            | Openness::Directory { .. }
            | Openness::Closed
            | Openness::Opening { .. }
            | Openness::AttrRead { .. }
            | Openness::AttrWrite { .. } => None,
        }
    }

    /// # Errors
    /// `Invalid` if it stands for an extended attribute: that is no file, and has no names.
    pub(super) fn expect_no_attr(&self) -> Result<(), Error> {
        match self.openness {
            Openness::AttrRead { .. } | Openness::AttrWrite { .. } => Err(Error::Invalid),
            Openness::Closed
            | Openness::Opening { .. }
            | Openness::File { .. }
            | Openness::Directory { .. } => Ok(()),
        }
    }

    /// Returns the number of handles held: the node, and the open file, also while that is being
    /// opened.
    fn handles(&self) -> usize {
        match self.openness {
            Openness::Opening { .. } | Openness::File { .. } | Openness::Directory { .. } => 2,
            Openness::Closed | Openness::AttrRead { .. } | Openness::AttrWrite { .. } => 1,
        }
    }

    /// Returns the memory of extended attributes, bytes.
    fn attr_bytes(&self) -> usize {
        match &self.openness {
            Openness::AttrRead { value } => value.len(),
            // The rest of the value may still be written.
            Openness::AttrWrite { name, size, .. } => name.len() + size,
            Openness::Closed
            | Openness::Opening { .. }
            | Openness::File { .. }
            | Openness::Directory { .. } => 0,
        }
    }

    /// Releases the resources.
    pub(super) fn forget(self, out: &mut Vec<Output>) {
        if let Some(open) = self.open() {
            out.push(Output::Close(open));
        }
        out.push(Output::Release(self.node));
    }

    /// Releases the resources of a client that is gone.
    fn abandon(self, out: &mut Vec<Output>) {
        out.extend(self.open().map(Output::Abandon));
        out.push(Output::Release(self.node));
    }
}

/// Memory of attributes that the fids of a connection may hold in any case, bytes. It is part of
/// the base cost of a connection, and not counted.
const ATTRS_FREE: usize = 32 << 10;

/// All fids of a connection.
#[derive(Debug)]
pub(super) struct Fids {
    fids: BTreeMap<u32, Fid>,
    /// Fids from before the last `Tversion`, or of a client that is gone, which are released [a few
    /// at a time](Fids::release), and their number of handles.
    leaving: btree_map::IntoIter<u32, Fid>,
    leaving_handles: usize,
    /// Number of nodes and open files held by the fids.
    handles: usize,
    /// Number of nodes that calls in flight request or hold.
    coming: usize,
    /// Limit of both together.
    limit: usize,
    /// Present limit, given the handles of other connections.
    most: usize,
    /// Memory of attributes, bytes. At most [`ATTRS_MAX`].
    attr_bytes: usize,
    /// Present limit of that memory, given the other connections. Existing attributes are retained
    /// above it.
    attrs_most: usize,
    /// Number of claims so far.
    claims: u64,
}

impl Fids {
    pub(super) fn new(limit: usize) -> Fids {
        let (fids, attrs_most) = (BTreeMap::new(), ATTRS_MAX);
        Fids {
            fids,
            leaving: BTreeMap::new().into_iter(),
            leaving_handles: 0,
            handles: 0,
            limit,
            coming: 0,
            most: limit,
            attr_bytes: 0,
            attrs_most,
            claims: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.fids.len()
    }

    /// Returns the number of nodes and open files of fids, of dropped fids not yet released, and of
    /// calls in flight.
    pub(super) fn handles(&self) -> usize {
        self.handles + self.leaving_handles + self.coming
    }

    /// Returns whether dropped fids have not been released completely.
    pub(super) fn is_leaving(&self) -> bool {
        self.leaving.len() > 0
    }

    /// Returns the number of open files of the fids.
    pub(super) fn opens(&self) -> usize {
        self.handles - self.fids.len()
    }

    /// Counts a node for a call that starts.
    pub(super) fn expect_node(&mut self) {
        self.coming += 1;
    }

    /// Ends the counting of a node, at the end of its call.
    pub(super) fn end_node(&mut self) {
        assert!(self.coming > 0, "expectations are counted");
        self.coming -= 1;
    }

    fn expect_handle(&self) -> Result<(), Error> {
        if self.handles() >= self.most { Err(Error::TooManyOpen) } else { Ok(()) }
    }

    /// Sets the present limit of handles. Existing ones are retained above it.
    pub(super) fn set_most(&mut self, most: usize) {
        self.most = most.min(self.limit);
    }

    /// Sets the memory that is free, bytes, which limits that of attributes.
    pub(super) fn set_spare(&mut self, spare: usize) {
        self.attrs_most = spare.clamp(ATTRS_FREE, ATTRS_MAX);
    }

    /// Returns the memory of attributes being read or written, beyond the amount that is always
    /// permitted, bytes.
    pub(super) fn attr_excess(&self) -> usize {
        self.attr_bytes.saturating_sub(ATTRS_FREE)
    }

    /// Returns a fid; an unknown one is `Invalid`, like `EBADF` for a file descriptor.
    pub(super) fn get(&self, fid: u32) -> Result<&Fid, Error> {
        self.fids.get(&fid).ok_or(Error::Invalid)
    }

    pub(super) fn get_mut(&mut self, fid: u32) -> Result<&mut Fid, Error> {
        self.fids.get_mut(&fid).ok_or(Error::Invalid)
    }

    /// Binds an attribute to be written to a fid.
    pub(super) fn begin_attr(&mut self, fid: u32, write: Openness) -> Result<(), Error> {
        let Openness::Closed = self.get(fid)?.openness else { return Err(Error::Invalid) };
        let mut file = self.remove(fid)?;
        file.openness = write;
        let room = self.expect_room(&file);
        if room.is_err() {
            file.openness = Openness::Closed;
        }
        self.insert(fid, file);
        room
    }

    /// Claims a fid for opening; no other call may open it meanwhile.
    pub(super) fn claim(&mut self, fid: u32) -> Result<Claim, Error> {
        let serial = self.claims + 1;
        let room = self.expect_handle();
        let file = self.get_mut(fid)?;
        let Openness::Closed = file.openness else { return Err(Error::Invalid) };
        room?;
        file.openness = Openness::Opening { serial };
        self.handles += 1;
        self.claims = serial;
        assert!(self.handles <= self.limit, "handles are limited");
        Ok(Claim { fid, serial })
    }

    /// Returns the claimed fid, if it is still the same.
    pub(super) fn claimed(&mut self, claim: Claim) -> Option<&mut Fid> {
        let file = self.fids.get_mut(&claim.fid)?;
        matches!(file.openness, Openness::Opening { serial } if serial == claim.serial)
            .then_some(file)
    }

    /// Releases a claim after a failed open; the fid can be opened again.
    pub(super) fn unclaim(&mut self, claim: Claim) {
        if let Some(file) = self.claimed(claim) {
            file.openness = Openness::Closed;
            assert!(self.handles > 0, "claims are counted");
            self.handles -= 1;
        }
    }

    /// Checks that `fid` can be bound to a new file.
    pub(super) fn expect_free(&self, fid: u32) -> Result<(), Error> {
        if self.fids.contains_key(&fid) || fid == wire::ninep::NO_FID {
            return Err(Error::Invalid);
        }
        self.expect_handle()
    }

    /// Checks that another call may walk a fid in place: one may even at the limit, since the fid
    /// releases its old node.
    pub(super) fn expect_walk(&self) -> Result<(), Error> {
        if self.coming == 0 { Ok(()) } else { self.expect_handle() }
    }

    /// Binds `fid`, whose handle was counted when its call began. If the client has bound the
    /// number meanwhile, the new file is released and the other binding stays.
    pub(super) fn bind(&mut self, fid: u32, file: Fid, out: &mut Vec<Output>) -> Result<(), Error> {
        if self.fids.contains_key(&fid) {
            file.forget(out);
            return Err(Error::Invalid);
        }
        if let Err(error) = self.expect_room(&file) {
            file.forget(out);
            return Err(error);
        }
        self.insert(fid, file);
        Ok(())
    }

    pub(super) fn remove(&mut self, fid: u32) -> Result<Fid, Error> {
        let file = self.fids.remove(&fid).ok_or(Error::Invalid)?;
        self.attr_bytes -= file.attr_bytes();
        self.handles -= file.handles();
        Ok(file)
    }

    fn insert(&mut self, fid: u32, file: Fid) {
        self.attr_bytes += file.attr_bytes();
        self.handles += file.handles();
        let before = self.fids.insert(fid, file);
        assert!(before.is_none(), "a number stands for one file");
    }

    fn expect_room(&self, file: &Fid) -> Result<(), Error> {
        let bytes = self.attr_bytes + file.attr_bytes();
        if file.attr_bytes() > 0 && bytes > self.attrs_most {
            return Err(Error::NoMemory);
        }
        Ok(())
    }

    pub(super) fn check(&self, coming: usize) {
        assert_eq!(self.coming, coming);
        assert_eq!(self.attr_bytes, self.fids.values().map(Fid::attr_bytes).sum::<usize>());
        assert_eq!(self.handles, self.fids.values().map(Fid::handles).sum::<usize>());
        assert!(self.attr_bytes <= ATTRS_MAX);
        assert!(self.is_leaving() || self.leaving_handles == 0, "handles are of files");
        let mut serials = BTreeSet::new();
        for file in self.fids.values() {
            match &file.openness {
                Openness::Opening { serial } => {
                    assert!(
                        *serial <= self.claims && serials.insert(serial),
                        "one call opens a file"
                    );
                }
                Openness::AttrWrite { value, size, .. } => {
                    assert!(value.len() <= *size, "it has room")
                }
                Openness::Closed
                | Openness::File { .. }
                | Openness::Directory { .. }
                | Openness::AttrRead { .. } => {}
            }
        }
        assert!(self.most <= self.limit, "no more may be held than is allowed");
        assert!(!self.fids.contains_key(&wire::ninep::NO_FID), "that number stands for no file");
    }

    /// Drops all fids; [`Fids::release`] releases their files.
    pub(super) fn forget_all(&mut self) {
        self.attr_bytes = 0;
        self.leaving_handles += mem::take(&mut self.handles);
        if !self.fids.is_empty() {
            assert!(!self.is_leaving(), "messages wait until all are released");
            self.leaving = mem::take(&mut self.fids).into_iter();
        }
    }

    /// Releases files of dropped fids, at most [`RELEASES_MAX`].
    pub(super) fn release(&mut self, out: &mut Vec<Output>) {
        for (_, file) in self.leaving.by_ref().take(RELEASES_MAX) {
            self.leaving_handles -= file.handles();
            file.abandon(out);
        }
        assert!(self.is_leaving() || self.leaving_handles == 0, "a held lock is known");
    }
}
