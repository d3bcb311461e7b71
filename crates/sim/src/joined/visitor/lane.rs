//! A lane: one request under way, and the fids and files that are nobody else's.

use super::listing::Listing;
use crate::joined::space::At;
use base::{Error, Instant, Name};
use std::collections::{BTreeMap, VecDeque};
use wire::ninep::{Data, Names, Tmessage};

/// A fid, and what the visitor knows of it.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) at: At,
    pub(super) since: Instant,
    pub(super) state: State,
    /// The file may have been renamed or removed in a way that the mux cannot follow.
    pub(super) may_be_stale: bool,
    /// Nobody knows what it stands for.
    pub(super) is_spoilt: bool,
}

/// What can be done with a fid.
#[derive(Clone, Debug)]
pub(super) enum State {
    /// It is not open.
    Closed,
    /// It is an open file, read so far; and whether it may be written.
    File { offset: u64, writes: bool },
    /// It is an open directory.
    Directory(Listing),
}

/// What is asked.
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

/// A request that is not answered.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) request: Request,
    pub(super) since: Instant,
    /// To which directories on the disk a rename may go, or why not; nothing for other requests.
    pub(super) expected: Vec<Result<u64, Error>>,
    /// When to flush it.
    pub(super) flush_at: Option<Instant>,
    /// When it was flushed.
    pub(super) flushed: Option<Instant>,
    /// It was answered, and only the answer to the flush is missing.
    pub(super) is_answered: bool,
}

/// The lane.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) number: usize,
    pub(super) fids: BTreeMap<u32, Held>,
    pub(super) waiting: Option<Waiting>,
    /// Requests still to be made.
    pub(super) left: u32,
    /// When to make the next one.
    pub(super) next_at: Instant,
    /// Files and directories that it has made, and knows to be there.
    pub(super) own: BTreeMap<Name, Own>,
    /// What its names begin with, and how many there were.
    prefix: String,
    names: u32,
    /// Paths that it will look at in the end.
    pub(super) survey: VecDeque<Vec<Name>>,
    /// The fid whose attributes it has seen in the end.
    pub(super) looked_at: Option<u32>,
}

/// Something that the lane has made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Own {
    /// On the disk: its directory, and itself.
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

    /// Whether it has looked at everything.
    pub(super) fn is_done(&self) -> bool {
        self.waiting.is_none() && self.survey.is_empty() && self.fids.is_empty()
    }

    /// What it knows of a fid.
    pub(super) fn held(&mut self, fid: u32) -> Option<&mut Held> {
        self.fids.get_mut(&fid)
    }

    /// A name that nobody has used.
    pub(super) fn new_name(&mut self) -> Name {
        self.names += 1;
        Name::new(format!("{}-{}", self.prefix, self.names).as_bytes()).expect("a plain name")
    }

    /// A fid that is free.
    pub(super) fn new_fid(&self) -> u32 {
        let first = 100 * (u32::try_from(self.number).expect("few lanes") + 1);
        (first..).find(|fid| !self.fids.contains_key(fid)).expect("there are many")
    }

    /// Nobody knows what can be done with fids of a file.
    pub(super) fn spoil_all(&mut self, inode: u64) {
        for held in self.fids.values_mut().filter(|held| held.at.file.inode() == inode) {
            held.is_spoilt = true;
        }
    }

    /// Fids of a file may not be found again under its name.
    pub(super) fn doubt(&mut self, inode: u64) {
        for held in self.fids.values_mut().filter(|held| held.at.file.inode() == inode) {
            held.may_be_stale = true;
        }
    }
}

impl Request {
    /// Whether a flush of it is answered at once.
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

    /// The fid that it is about, and another one.
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

    /// The names that it changes.
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

    /// The message that says it.
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
