//! Requests of a client, and their encoding in each dialect.

use super::{FidState, Ninep};
use base::{Access, Kind, SetStat, SetTime};
use wire::ninep::{Data, Names, Stat as WireStat, Tmessage};

/// Contents, displayed by length.
#[derive(Clone)]
pub(super) struct Bytes(pub(super) Vec<u8>);

impl std::fmt::Debug for Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

/// A request. Names are bytes, because invalid ones are sent too.
#[derive(Clone, Debug)]
pub(super) enum Request {
    Walk { fid: u32, newfid: u32, names: Vec<Vec<u8>> },
    Open { fid: u32, access: Access, remove: bool },
    Create { fid: u32, name: Vec<u8>, access: Access, exclusive: bool, mode: u32, dir: bool },
    Read { fid: u32, offset: u64, count: u32 },
    List { fid: u32, offset: u64, count: u32 },
    Write { fid: u32, offset: u64, data: Bytes },
    Stat { fid: u32 },
    SetStat { fid: u32, set: SetStat, rename: Option<Vec<u8>> },
    MakeDir { fid: u32, name: Vec<u8>, mode: u32 },
    Symlink { fid: u32, name: Vec<u8>, target: Vec<u8> },
    MakeNode { fid: u32, name: Vec<u8>, kind: Kind, mode: u32, device: (u32, u32) },
    ReadLink { fid: u32 },
    Link { dir: u32, fid: u32, name: Vec<u8> },
    Rename { fid: u32, dir: u32, name: Vec<u8> },
    RenameAt { from: u32, name: Vec<u8>, to: u32, new: Vec<u8> },
    Unlink { fid: u32, name: Vec<u8>, directory: bool },
    Remove { fid: u32 },
    Clunk { fid: u32 },
    Sync { fid: u32 },
    StatFs { fid: u32 },
    AttrWalk { fid: u32, newfid: u32, name: Vec<u8> },
    AttrCreate { fid: u32, name: Vec<u8>, size: u64, flags: u32 },
    Lock { fid: u32, kind: u8, slot: u64, owner: u32, wait: bool },
    GetLock { fid: u32, kind: u8, slot: u64, owner: u32 },
}

/// Bytes in each lockable range: ranges are equal or disjoint.
pub(super) const SLOT: u64 = 100;

impl Request {
    /// Returns the approximate name of the message.
    pub(super) fn name(&self) -> String {
        let text = format!("{self:?}");
        text.split(' ').next().unwrap_or_default().to_string()
    }

    /// Returns whether it changes the state of its fids, and the fids.
    pub(super) fn fids(&self) -> (bool, Vec<u32>) {
        match self {
            Request::Walk { fid, newfid, .. } => (fid == newfid, vec![*fid]),
            Request::Open { fid, .. }
            | Request::Create { fid, .. }
            | Request::List { fid, .. }
            | Request::Remove { fid }
            | Request::Clunk { fid }
            | Request::AttrCreate { fid, .. } => (true, vec![*fid]),
            // A value is written from start to end, and a name may change.
            Request::Write { fid, .. } | Request::SetStat { fid, .. } => (true, vec![*fid]),
            Request::Read { fid, .. }
            | Request::Stat { fid }
            | Request::MakeDir { fid, .. }
            | Request::Symlink { fid, .. }
            | Request::MakeNode { fid, .. }
            | Request::ReadLink { fid }
            | Request::Unlink { fid, .. }
            | Request::Sync { fid }
            | Request::StatFs { fid }
            | Request::AttrWalk { fid, .. }
            | Request::Lock { fid, .. }
            | Request::GetLock { fid, .. } => (false, vec![*fid]),
            Request::Link { dir, fid, .. } => (false, vec![*dir, *fid]),
            Request::Rename { fid, dir, .. } => (false, vec![*fid, *dir]),
            Request::RenameAt { from, to, .. } => (false, vec![*from, *to]),
        }
    }

    /// Returns the fid that it creates.
    pub(super) fn new_fid(&self) -> Option<u32> {
        match self {
            Request::Walk { fid, newfid, .. } => (fid != newfid).then_some(*newfid),
            Request::AttrWalk { newfid, .. } => Some(*newfid),
            _ => None,
        }
    }

    /// Returns whether a flush of it gets its reply at once.
    pub(super) fn only_looks(&self) -> bool {
        matches!(
            self,
            Request::Walk { .. }
                | Request::Read { .. }
                | Request::List { .. }
                | Request::Stat { .. }
                | Request::ReadLink { .. }
                | Request::StatFs { .. }
        )
    }
}

/// Returns Linux's flags of `open(2)`.
fn linux_flags(access: Access) -> u32 {
    let mode = match (access.read, access.write) {
        (_, false) => 0,
        (false, true) => 1,
        (true, true) => 2,
    };
    mode | if access.append { 0o2000 } else { 0 } | if access.truncate { 0o1000 } else { 0 }
}

/// Returns Plan 9's mode of `open(5)`.
fn plan9_mode(access: Access, remove: bool) -> u8 {
    let mode = linux_flags(Access { append: false, truncate: false, ..access }) as u8;
    mode | if access.truncate { 0x10 } else { 0 } | if remove { 0x40 } else { 0 }
}

fn set_attr<'a>(fid: u32, set: &SetStat) -> Tmessage<'a> {
    let time = |time: Option<SetTime>| match time {
        Some(SetTime::At(time)) => (time.secs.cast_unsigned(), u64::from(time.nanos)),
        Some(SetTime::Now) | None => (0, 0),
    };
    let bits = [
        (1, set.mode.is_some()),
        (2, set.uid.is_some()),
        (4, set.gid.is_some()),
        (8, set.size.is_some()),
        (0x20 | 0x100, set.modified.is_some()),
    ];
    let valid = bits.iter().filter(|(_, on)| *on).map(|(bit, _)| bit).sum();
    let (mtime_sec, mtime_nsec) = time(set.modified);
    Tmessage::Setattr {
        fid,
        valid,
        mode: set.mode.unwrap_or(0),
        uid: set.uid.unwrap_or(0),
        gid: set.gid.unwrap_or(0),
        size: set.size.unwrap_or(0),
        atime_sec: 0,
        atime_nsec: 0,
        mtime_sec,
        mtime_nsec,
    }
}

fn set_wstat<'a>(fid: u32, set: &SetStat, rename: Option<&'a [u8]>, dir: bool) -> Tmessage<'a> {
    let mut stat = WireStat::unchanged();
    let type_bit = if dir { WireStat::DIR } else { 0 };
    stat.mode = set.mode.map_or(stat.mode, |mode| mode | type_bit);
    stat.length = set.size.unwrap_or(stat.length);
    if let Some(SetTime::At(time)) = set.modified {
        stat.mtime = time.secs as u32;
    }
    stat.name = rename.unwrap_or_default();
    Tmessage::Wstat { fid, stat }
}

impl Ninep {
    /// Encodes a request in the client's dialect.
    pub(super) fn encode(&self, tag: u16, request: &Request) -> Vec<u8> {
        let linux = self.setup.linux;
        let names;
        let message = match request {
            Request::Walk { fid, newfid, names: list } => {
                let list: Vec<&[u8]> = list.iter().map(Vec::as_slice).collect();
                names = Names::new(&list).expect("at most sixteen");
                Tmessage::Walk { fid: *fid, newfid: *newfid, names }
            }
            Request::Open { fid, access, .. } if linux => {
                Tmessage::Lopen { fid: *fid, flags: linux_flags(*access) }
            }
            Request::Open { fid, access, remove } => {
                Tmessage::Open { fid: *fid, mode: plan9_mode(*access, *remove) }
            }
            Request::Create { fid, name, access, exclusive, mode, .. } if linux => {
                let flags = linux_flags(*access) | if *exclusive { 0o200 } else { 0 } | 0o100;
                Tmessage::Lcreate { fid: *fid, name, flags, mode: *mode, gid: 0 }
            }
            Request::Create { fid, name, access, mode, dir, .. } => {
                let perm = *mode | if *dir { WireStat::DIR } else { 0 };
                Tmessage::Create { fid: *fid, name, perm, mode: plan9_mode(*access, false) }
            }
            Request::Read { fid, offset, count } => {
                Tmessage::Read { fid: *fid, offset: *offset, count: *count }
            }
            Request::List { fid, offset, count } if linux => {
                Tmessage::Readdir { fid: *fid, offset: *offset, count: *count }
            }
            Request::List { fid, offset, count } => {
                Tmessage::Read { fid: *fid, offset: *offset, count: *count }
            }
            Request::Write { fid, offset, data } => {
                Tmessage::Write { fid: *fid, offset: *offset, data: Data(&data.0) }
            }
            Request::Stat { fid } if linux => Tmessage::Getattr { fid: *fid, mask: !0 },
            Request::Stat { fid } => Tmessage::Stat { fid: *fid },
            Request::SetStat { fid, set, .. } if linux => set_attr(*fid, set),
            Request::SetStat { fid, set, rename } => {
                let dir = self.fids.get(fid).is_some_and(|fid| fid.kind == Kind::Directory);
                set_wstat(*fid, set, rename.as_deref(), dir)
            }
            other => rest(other),
        };
        let mut bytes = Vec::new();
        message.encode(tag, &mut bytes);
        bytes
    }

    /// Returns the bytes still to be written of a value through this fid.
    pub(super) fn value_left(&self, fid: u32) -> Option<usize> {
        match self.fids.get(&fid).map(|fid| &fid.state) {
            Some(FidState::AttrWrite { value, size, .. }) => Some(size - value.len()),
            _ => None,
        }
    }
}

/// Returns the messages common to both dialects, or only in 9P2000.L.
fn rest(request: &Request) -> Tmessage<'_> {
    let gid = 0;
    match request {
        Request::MakeDir { fid, name, mode } => {
            Tmessage::Mkdir { dfid: *fid, name, mode: *mode, gid }
        }
        Request::Symlink { fid, name, target } => {
            Tmessage::Symlink { dfid: *fid, name, target, gid }
        }
        Request::MakeNode { fid, name, kind, mode, device: (major, minor) } => {
            let mode = mode | kind.mode_bits();
            Tmessage::Mknod { dfid: *fid, name, mode, major: *major, minor: *minor, gid }
        }
        Request::ReadLink { fid } => Tmessage::Readlink { fid: *fid },
        Request::Link { dir, fid, name } => Tmessage::Link { dfid: *dir, fid: *fid, name },
        Request::Rename { fid, dir, name } => Tmessage::Rename { fid: *fid, dfid: *dir, name },
        Request::RenameAt { from, name, to, new } => {
            Tmessage::Renameat { olddirfid: *from, oldname: name, newdirfid: *to, newname: new }
        }
        Request::Unlink { fid, name, directory } => {
            Tmessage::Unlinkat { dfid: *fid, name, flags: if *directory { 0x200 } else { 0 } }
        }
        Request::Remove { fid } => Tmessage::Remove { fid: *fid },
        Request::Clunk { fid } => Tmessage::Clunk { fid: *fid },
        Request::Sync { fid } => Tmessage::Fsync { fid: *fid, data_only: Some(0) },
        Request::StatFs { fid } => Tmessage::Statfs { fid: *fid },
        Request::AttrWalk { fid, newfid, name } => {
            Tmessage::Xattrwalk { fid: *fid, newfid: *newfid, name }
        }
        Request::AttrCreate { fid, name, size, flags } => {
            Tmessage::Xattrcreate { fid: *fid, name, size: *size, flags: *flags }
        }
        Request::Lock { fid, kind, slot, owner, wait } => Tmessage::Lock {
            fid: *fid,
            kind: *kind,
            flags: u32::from(*wait),
            start: slot * SLOT,
            length: SLOT,
            proc_id: *owner,
            client_id: b"sim",
        },
        Request::GetLock { fid, kind, slot, owner } => Tmessage::Getlock {
            fid: *fid,
            kind: *kind,
            start: slot * SLOT,
            length: SLOT,
            proc_id: *owner,
            client_id: b"sim",
        },
        other => unreachable!("{other:?} is matched above"),
    }
}
