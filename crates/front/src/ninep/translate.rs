//! Translation between 9P and file requests.

use base::{Access, Caller, Error, Kind, Stat};

/// Flags of `Tlopen` and `Tlcreate`, which are Linux's for `open(2)` on most machines.
pub(super) mod flags {
    /// The file must not exist.
    pub(in super::super) const EXCL: u32 = 0o200;
    /// The file must be a directory.
    pub(in super::super) const DIRECTORY: u32 = 0o200_000;
    pub(super) const TRUNC: u32 = 0o1000;
    pub(super) const APPEND: u32 = 0o2000;
    pub(super) const DSYNC: u32 = 0o10_000;
    pub(super) const SYNC: u32 = 0o4_000_000;
}

/// Decodes Linux open flags.
pub(super) fn linux_access(flags: u32) -> Result<Access, Error> {
    let (read, write) = match flags & 3 {
        0 => (true, false),
        1 => (false, true),
        2 => (true, true),
        _three => return Err(Error::Invalid),
    };
    Ok(Access {
        read,
        write,
        append: flags & flags::APPEND != 0,
        truncate: flags & flags::TRUNC != 0,
        sync: flags & (flags::SYNC | flags::DSYNC) != 0,
    })
}

/// Returns whether an attribute must be new or must exist (setxattr(2)).
pub(super) fn attr_flags(flags: u32) -> Result<Option<bool>, Error> {
    match flags {
        0 => Ok(None),
        1 => Ok(Some(true)),
        2 => Ok(Some(false)),
        _other => Err(Error::Invalid),
    }
}

/// Decodes a Plan 9 open mode (open(5)), and whether the file is removed on close.
pub(super) fn plan9_access(mode: u8) -> Result<(Access, bool), Error> {
    const TRUNCATE: u8 = 0x10;
    const REMOVE: u8 = 0x40;
    if mode & !(3 | TRUNCATE | REMOVE) != 0 {
        return Err(Error::Invalid);
    }
    let (read, write) = match mode & 3 {
        1 => (false, true),
        2 => (true, true),
        _read_or_execute => (true, false),
    };
    let truncate = mode & TRUNCATE != 0;
    Ok((Access { read, write, truncate, ..Access::default() }, mode & REMOVE != 0))
}

/// Returns whether a user may execute a file, by its mode bits; for the server itself any execute
/// bit suffices.
pub(super) fn may_execute(caller: &Caller, stat: &Stat) -> bool {
    let bits = match caller {
        Caller::Server => 0o111,
        Caller::User(user) if user.uid == 0 => 0o111,
        Caller::User(user) if user.uid == stat.uid => 0o100,
        Caller::User(user) if user.gid == stat.gid || user.groups.contains(&stat.gid) => 0o010,
        Caller::User(_) => 0o001,
    };
    stat.kind == Kind::Directory || stat.mode & bits != 0
}
