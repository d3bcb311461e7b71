//! Operations in 9P2000, which has fewer: no links, no locks, no extended attributes, and renames
//! only within a directory.

use crate::attr::Attr;
use crate::errno;
use crate::link::{Connection, Failure, only};
use crate::linux::{O_ACCMODE, O_TRUNC};
use client::Interrupt;
use wire::fuse::{SetAttr, fattr};
use wire::ninep::{Qid, Rmessage, Stat, Tmessage};

const TRUNCATE: u8 = 0x10;

/// Returns the attributes of a file. `owner` stands for users without a number.
pub(crate) fn getattr(
    connection: &Connection,
    interrupt: &Interrupt,
    fid: u32,
    owner: (u32, u32),
) -> Result<Attr, Failure> {
    let wanted = only!(Rmessage::Stat { stat } => Attr::plan9(&stat, owner));
    connection.call(interrupt, &Tmessage::Stat { fid }, wanted)
}

/// Changes permissions, size or modification time. The time of access and owners cannot be set.
pub(crate) fn setattr(
    connection: &Connection,
    interrupt: &Interrupt,
    fid: u32,
    set: &SetAttr,
    is_dir: bool,
) -> Result<(), Failure> {
    let has = |bit| set.valid & bit != 0;
    if has(fattr::UID) || has(fattr::GID) {
        return Err(Failure::Errno(errno::EPERM));
    }
    let mut stat = Stat::unchanged();
    if has(fattr::MODE) {
        stat.mode = set.mode & 0o777 | if is_dir { Stat::DIR } else { 0 };
    }
    if has(fattr::SIZE) {
        stat.length = set.size;
    }
    if has(fattr::MTIME) && !has(fattr::MTIME_NOW) {
        stat.mtime = u32::try_from(set.mtime.secs).unwrap_or(u32::MAX - 1);
    }
    if stat == Stat::unchanged() {
        // A stat without changes would flush the file.
        return Ok(());
    }
    wstat(connection, interrupt, fid, stat)
}

fn wstat(
    connection: &Connection,
    interrupt: &Interrupt,
    fid: u32,
    stat: Stat<'_>,
) -> Result<(), Failure> {
    let message = Tmessage::Wstat { fid, stat };
    connection.call(interrupt, &message, only!(Rmessage::Wstat {} => ()))
}

/// Makes a file durable: a wstat that changes nothing (stat(5)).
pub(crate) fn sync(
    connection: &Connection,
    interrupt: &Interrupt,
    fid: u32,
) -> Result<(), Failure> {
    wstat(connection, interrupt, fid, Stat::unchanged())
}

/// Returns the mode of `Topen` for the flags of open(2).
pub(crate) fn open_mode(flags: u32) -> u8 {
    let access = (flags & O_ACCMODE).min(2) as u8;
    access | if flags & O_TRUNC != 0 { TRUNCATE } else { 0 }
}

/// Creates and opens a file or directory: the directory's fid becomes that of the file.
pub(crate) fn create(
    connection: &Connection,
    interrupt: &Interrupt,
    fid: u32,
    (name, flags, mode, is_dir): (&[u8], u32, u32, bool),
) -> Result<Qid, Failure> {
    let (perm, mode) = match is_dir {
        true => (Stat::DIR | mode & 0o777, 0),
        false => (mode & 0o777, open_mode(flags & O_ACCMODE)),
    };
    let message = Tmessage::Create { fid, name, perm, mode };
    connection.call(interrupt, &message, only!(Rmessage::Create { qid, .. } => qid))
}

/// Renames a file within its directory.
pub(crate) fn rename(
    connection: &Connection,
    interrupt: &Interrupt,
    fid: u32,
    name: &[u8],
) -> Result<(), Failure> {
    wstat(connection, interrupt, fid, Stat { name, ..Stat::unchanged() })
}
