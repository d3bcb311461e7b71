//! Fids: the client's names for files.

use crate::Output;
use base::op::Entry;
use base::{Access, Caller, Error, Kind};
use std::collections::{BTreeMap, BTreeSet, VecDeque, btree_map};
use std::mem;
use tree::{NodeId, OpenId};

/// Most bytes of names and values of extended attributes that the fids of a connection hold.
const ATTRS_MAX: usize = 1 << 20;

/// Most files of forgotten fids given back in one step: a client may have had a million.
const RELEASES_MAX: usize = 64;

/// A file as the client knows it.
#[derive(Debug)]
pub(super) struct Fid {
    pub(super) node: NodeId,
    pub(super) caller: Caller,
    pub(super) kind: Kind,
    /// The last name of the walk that led here; 9P2000 shows it.
    pub(super) name: Vec<u8>,
    pub(super) openness: Openness,
}

/// The right to open a fid, held by one call. The fid may be clunked and its number taken for
/// another file before the call ends; the serial number tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) fid: u32,
    serial: u64,
}

/// What can be done through a fid.
#[derive(Debug)]
pub(super) enum Openness {
    /// Walk, stat, open.
    Closed,
    /// Nothing before the call that claimed it has opened it.
    Opening { serial: u64 },
    /// Read and write a file.
    File {
        open: OpenId,
        access: Access,
        /// Remove it when the fid is clunked (9P2000's `ORCLOSE`).
        remove: bool,
        /// A read of it may wait for something to be said.
        says_what_comes: bool,
    },
    /// Read a directory.
    Directory { open: OpenId, device: u64, cursor: Cursor, remove: bool },
    /// Read the value of an extended attribute, or the list of them.
    AttrRead { value: Vec<u8> },
    /// Write the value of an extended attribute, which is set when the fid is clunked.
    AttrWrite { name: Vec<u8>, value: Vec<u8>, size: usize, create: Option<bool> },
}

/// Where a 9P2000 client is in a directory: it may only go on or start again (read(5)).
#[derive(Debug, Default)]
pub(super) struct Cursor {
    /// The only offset but zero that may be read next.
    pub(super) offset: u64,
    /// The cookie of the last entry taken from the tree.
    pub(super) cookie: u64,
    /// Entries taken from the tree that did not fit the last answer.
    pub(super) ahead: VecDeque<Entry>,
}

impl Fid {
    /// The open file behind it, whatever it is.
    pub(super) fn open(&self) -> Option<OpenId> {
        match self.openness {
            Openness::File { open, .. } | Openness::Directory { open, .. } => Some(open),
            Openness::Closed
            | Openness::Opening { .. }
            | Openness::AttrRead { .. }
            | Openness::AttrWrite { .. } => None,
        }
    }

    /// The open file behind it, if it may be written.
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

    /// How many handles it holds: its node, and its open file even before that is open.
    fn handles(&self) -> usize {
        match self.openness {
            Openness::Opening { .. } | Openness::File { .. } | Openness::Directory { .. } => 2,
            Openness::Closed | Openness::AttrRead { .. } | Openness::AttrWrite { .. } => 1,
        }
    }

    /// How many bytes of attributes it holds.
    fn attr_bytes(&self) -> usize {
        match &self.openness {
            Openness::AttrRead { value } => value.len(),
            // The whole of the value may yet be written.
            Openness::AttrWrite { name, size, .. } => name.len() + size,
            Openness::Closed
            | Openness::Opening { .. }
            | Openness::File { .. }
            | Openness::Directory { .. } => 0,
        }
    }

    /// Gives back what it holds.
    pub(super) fn forget(self, out: &mut Vec<Output>) {
        if let Some(open) = self.open() {
            out.push(Output::Close(open));
        }
        out.push(Output::Release(self.node));
    }

    /// Gives back what it holds, because the client is gone.
    fn abandon(self, out: &mut Vec<Output>) {
        out.extend(self.open().map(Output::Abandon));
        out.push(Output::Release(self.node));
    }
}

/// Bytes of attributes that the fids of a connection may hold, whatever others hold. They are part
/// of what each connection takes, and not counted.
const ATTRS_FREE: usize = 32 << 10;

/// All fids of a connection.
#[derive(Debug)]
pub(super) struct Fids {
    fids: BTreeMap<u32, Fid>,
    /// Files of the time before the last `Tversion` or of a client that is gone, which are given
    /// back [a few at a time](Fids::release), and the handles that they hold.
    leaving: Vec<btree_map::IntoIter<u32, Fid>>,
    leaving_handles: usize,
    /// Nodes and open files that they hold.
    handles: usize,
    /// Nodes that calls in flight ask for or hold.
    coming: usize,
    /// Limit of both together.
    limit: usize,
    /// The limit at present, for what others hold.
    most: usize,
    /// Bytes of attributes that they hold. At most [`ATTRS_MAX`].
    attr_bytes: usize,
    /// How many these may be at present, for what others hold. More stay, if they are there.
    attrs_most: usize,
    /// Claims handed out so far.
    claims: u64,
}

impl Fids {
    pub(super) fn new(limit: usize) -> Fids {
        let (fids, attrs_most) = (BTreeMap::new(), ATTRS_MAX);
        Fids {
            fids,
            leaving: Vec::new(),
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

    /// Nodes and open files that they hold or have not given back, and nodes of calls in flight.
    pub(super) fn handles(&self) -> usize {
        self.handles + self.leaving_handles + self.coming
    }

    /// Whether files of forgotten fids have not been given back.
    pub(super) fn is_leaving(&self) -> bool {
        !self.leaving.is_empty()
    }

    /// Open files among these.
    pub(super) fn opens(&self) -> usize {
        self.handles - self.fids.len()
    }

    /// Counts a node for a call that begins.
    pub(super) fn expect_node(&mut self) {
        self.coming += 1;
    }

    /// Counts it no more: the call has ended.
    pub(super) fn end_node(&mut self) {
        assert!(self.coming > 0, "what was expected is counted");
        self.coming -= 1;
    }

    fn expect_handle(&self) -> Result<(), Error> {
        if self.handles() >= self.most { Err(Error::TooManyOpen) } else { Ok(()) }
    }

    /// Sets how many these may be while others hold what they do. More stay, if they are there.
    pub(super) fn set_most(&mut self, most: usize) {
        self.most = most.min(self.limit);
    }

    /// Sets how many bytes nobody holds: attributes may take as many.
    pub(super) fn set_spare(&mut self, spare: usize) {
        self.attrs_most = spare.clamp(ATTRS_FREE, ATTRS_MAX);
    }

    /// Bytes of attributes that the client has begun to read or to write, beyond those that it may
    /// always have.
    pub(super) fn attr_excess(&self) -> usize {
        self.attr_bytes.saturating_sub(ATTRS_FREE)
    }

    /// `Invalid` stands for an unknown fid, as `EBADF` would for a file descriptor.
    pub(super) fn get(&self, fid: u32) -> Result<&Fid, Error> {
        self.fids.get(&fid).ok_or(Error::Invalid)
    }

    pub(super) fn get_mut(&mut self, fid: u32) -> Result<&mut Fid, Error> {
        self.fids.get_mut(&fid).ok_or(Error::Invalid)
    }

    /// Makes a fid hold an attribute that is going to be written.
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

    /// Claims a fid for opening; nobody else may open it meanwhile.
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

    /// The fid that was claimed, if it is still the same.
    pub(super) fn claimed(&mut self, claim: Claim) -> Option<&mut Fid> {
        let file = self.fids.get_mut(&claim.fid)?;
        matches!(file.openness, Openness::Opening { serial } if serial == claim.serial)
            .then_some(file)
    }

    /// Opening failed; the fid can be opened again.
    pub(super) fn unclaim(&mut self, claim: Claim) {
        if let Some(file) = self.claimed(claim) {
            file.openness = Openness::Closed;
            assert!(self.handles > 0, "what was claimed is counted");
            self.handles -= 1;
        }
    }

    /// Whether `fid` can be given to a new file.
    pub(super) fn expect_free(&self, fid: u32) -> Result<(), Error> {
        if self.fids.contains_key(&fid) || fid == wire::ninep::NO_FID {
            return Err(Error::Invalid);
        }
        self.expect_handle()
    }

    /// Whether another call may walk a fid to another file: one may even at the limit, since the
    /// fid gives back what it had.
    pub(super) fn expect_walk(&self) -> Result<(), Error> {
        if self.coming == 0 { Ok(()) } else { self.expect_handle() }
    }

    /// Binds `fid`, for which a handle was counted when its call began; if the client took the
    /// number meanwhile for something else, the new file is given back and the later binding stays.
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
        assert!(self.leaving.iter().all(|files| files.len() > 0), "what is empty is not kept");
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

    /// Forgets all fids; [`Fids::release`] gives their files back.
    pub(super) fn forget_all(&mut self) {
        self.attr_bytes = 0;
        self.leaving_handles += mem::take(&mut self.handles);
        if !self.fids.is_empty() {
            self.leaving.push(mem::take(&mut self.fids).into_iter());
        }
    }

    /// Gives files of forgotten fids back, at most [`RELEASES_MAX`].
    pub(super) fn release(&mut self, out: &mut Vec<Output>) {
        for _ in 0..RELEASES_MAX {
            let Some(files) = self.leaving.last_mut() else { break };
            let (_, file) = files.next().expect("only those that have files are kept");
            self.leaving_handles -= file.handles();
            file.abandon(out);
            if files.len() == 0 {
                self.leaving.pop();
            }
        }
        assert!(self.is_leaving() || self.leaving_handles == 0, "what is held is known");
    }
}
