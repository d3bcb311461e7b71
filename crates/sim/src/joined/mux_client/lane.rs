//! A lane: one outstanding request, and fids and files of its own.

use super::listing::Listing;
use crate::joined::space::At;
use base::{Error, Instant, Name};
use std::collections::{BTreeMap, VecDeque};
use wire::ninep::{Data, Names, Tmessage};

/// A fid, and the client's knowledge of it.
#[derive(Clone, Debug)]
pub(super) struct HeldFid {
    pub(super) at: At,
    pub(super) since: Instant,
    pub(super) state: State,
    /// Whether the file may have been renamed or removed in a way that the mux cannot follow.
    pub(super) may_be_stale: bool,
    /// Whether its state is unknown.
    pub(super) is_spoilt: bool,
}

/// State of a fid.
#[derive(Clone, Debug)]
pub(super) enum State {
    /// Not open.
    Closed,
    /// An open file, its read offset, and whether it is writable.
    File { offset: u64, writes: bool },
    /// An open directory.
    Directory(Listing),
}

/// A request.
#[derive(Clone, Debug)]
pub(super) enum Request {
    Walk { fid: u32, newfid: u32, names: Vec<Name> },
    Stat { fid: u32 },
    Open { fid: u32, write: bool },
    Read { fid: u32, offset: u64, count: u32 },
    List { fid: u32, offset: u64, count: u32 },
    Create { fid: u32, name: Name },
    MakeDir { fid: u32, name: Name },
    Write { fid: u32, offset: u64, data: Vec<u8> },
    Rename { from: u32, name: Name, to: u32, new: Name },
    Unlink { fid: u32, name: Name, directory: bool },
    Clunk { fid: u32 },
}

/// An outstanding request.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) request: Request,
    pub(super) since: Instant,
    /// Possible target directories of a rename on the disk, or its errors; empty for other
    /// requests.
    pub(super) expected: Vec<Result<u64, Error>>,
    /// Time to flush it.
    pub(super) flush_at: Option<Instant>,
    /// Time when it was flushed.
    pub(super) flushed: Option<Instant>,
    /// Whether its reply has arrived, and only that of the flush is missing.
    pub(super) is_answered: bool,
}

/// The lane.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) number: usize,
    pub(super) fids: BTreeMap<u32, HeldFid>,
    pub(super) waiting: Option<Waiting>,
    /// Requests still to be sent.
    pub(super) left: u32,
    /// Time of the next request.
    pub(super) next_at: Instant,
    /// Files and directories that it has created, and that exist.
    pub(super) own: BTreeMap<Name, OwnEntry>,
    /// Prefix of its names, and their number so far.
    prefix: String,
    names: u32,
    /// Paths to verify in the final survey.
    pub(super) survey: VecDeque<Vec<Name>>,
    /// Fid whose attributes the survey has verified.
    pub(super) looked_at: Option<u32>,
}

/// An entry created by the lane.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnEntry {
    /// Inodes on the disk: its directory, and itself.
    pub(super) dir: u64,
    pub(super) inode: u64,
    pub(super) is_directory: bool,
}

impl Lane {
    pub(super) fn new(number: usize, prefix: String, requests: u32) -> Lane {
        Lane {
            number,
            fids: BTreeMap::new(),
            waiting: None,
            left: requests,
            next_at: Instant(0),
            own: BTreeMap::new(),
            prefix,
            names: 0,
            survey: VecDeque::new(),
            looked_at: None,
        }
    }

    /// Returns whether its survey is complete.
    pub(super) fn is_done(&self) -> bool {
        self.waiting.is_none() && self.survey.is_empty() && self.fids.is_empty()
    }

    /// Returns the state of a fid.
    pub(super) fn held(&mut self, fid: u32) -> Option<&mut HeldFid> {
        self.fids.get_mut(&fid)
    }

    /// Returns an unused name.
    pub(super) fn new_name(&mut self) -> Name {
        self.names += 1;
        Name::new(format!("{}-{}", self.prefix, self.names).as_bytes()).expect("a plain name")
    }

    /// Returns a free fid.
    pub(super) fn new_fid(&self) -> u32 {
        let first = 100 * (u32::try_from(self.number).expect("few lanes") + 1);
        (first..).find(|fid| !self.fids.contains_key(fid)).expect("there are many")
    }

    /// Marks the state of all fids of a file as unknown.
    pub(super) fn spoil_all(&mut self, inode: u64) {
        for held in self.fids.values_mut().filter(|held| held.at.file.inode() == inode) {
            held.is_spoilt = true;
        }
    }

    /// Marks fids of a file that may no longer be found by its name.
    pub(super) fn doubt(&mut self, inode: u64) {
        for held in self.fids.values_mut().filter(|held| held.at.file.inode() == inode) {
            held.may_be_stale = true;
        }
    }
}

impl Request {
    /// Returns whether a flush of it gets its reply at once.
    pub(super) fn only_looks(&self) -> bool {
        match self {
            Request::Walk { .. }
            | Request::Stat { .. }
            | Request::Read { .. }
            | Request::List { .. } => true,
            Request::Open { .. }
            | Request::Create { .. }
            | Request::MakeDir { .. }
            | Request::Write { .. }
            | Request::Rename { .. }
            | Request::Unlink { .. }
            | Request::Clunk { .. } => false,
        }
    }

    /// Returns its fid, and a second one.
    pub(super) fn fids(&self) -> (u32, Option<u32>) {
        match self {
            Request::Walk { fid, .. }
            | Request::Stat { fid }
            | Request::Open { fid, .. }
            | Request::Read { fid, .. }
            | Request::List { fid, .. }
            | Request::Create { fid, .. }
            | Request::MakeDir { fid, .. }
            | Request::Write { fid, .. }
            | Request::Unlink { fid, .. }
            | Request::Clunk { fid } => (*fid, None),
            Request::Rename { from, to, .. } => (*from, Some(*to)),
        }
    }

    /// Returns the names that it changes.
    pub(super) fn changed(&self) -> Vec<&Name> {
        match self {
            Request::Create { name, .. }
            | Request::MakeDir { name, .. }
            | Request::Unlink { name, .. } => vec![name],
            Request::Rename { name, new, .. } => vec![name, new],
            Request::Walk { .. }
            | Request::Stat { .. }
            | Request::Open { .. }
            | Request::Read { .. }
            | Request::List { .. }
            | Request::Write { .. }
            | Request::Clunk { .. } => Vec::new(),
        }
    }

    /// Encodes the request.
    pub(super) fn encode(&self, tag: u16) -> Vec<u8> {
        let (gid, mode, names) = (0, 0o644, self.walked());
        let message = match self {
            Request::Walk { fid, newfid, .. } => {
                let names = Names::new(&names).expect("at most sixteen");
                Tmessage::Walk { fid: *fid, newfid: *newfid, names }
            }
            Request::Stat { fid } => Tmessage::Getattr { fid: *fid, mask: !0 },
            Request::Open { fid, write } => {
                Tmessage::Lopen { fid: *fid, flags: if *write { 2 } else { 0 } }
            }
            Request::Read { fid, offset, count } => {
                Tmessage::Read { fid: *fid, offset: *offset, count: *count }
            }
            Request::List { fid, offset, count } => {
                Tmessage::Readdir { fid: *fid, offset: *offset, count: *count }
            }
            Request::Create { fid, name } => {
                let (name, flags) = (name.as_bytes(), 0o302);
                Tmessage::Lcreate { fid: *fid, name, flags, mode, gid }
            }
            Request::MakeDir { fid, name } => {
                Tmessage::Mkdir { dfid: *fid, name: name.as_bytes(), mode: 0o755, gid }
            }
            Request::Write { fid, offset, data } => {
                Tmessage::Write { fid: *fid, offset: *offset, data: Data(data) }
            }
            Request::Rename { from, name, to, new } => Tmessage::Renameat {
                olddirfid: *from,
                oldname: name.as_bytes(),
                newdirfid: *to,
                newname: new.as_bytes(),
            },
            Request::Unlink { fid, name, directory } => {
                let flags = if *directory { 0x200 } else { 0 };
                Tmessage::Unlinkat { dfid: *fid, name: name.as_bytes(), flags }
            }
            Request::Clunk { fid } => Tmessage::Clunk { fid: *fid },
        };
        let mut bytes = Vec::new();
        message.encode(tag, &mut bytes);
        bytes
    }

    fn walked(&self) -> Vec<&[u8]> {
        match self {
            Request::Walk { names, .. } => names.iter().map(Name::as_bytes).collect(),
            _ => Vec::new(),
        }
    }
}
