//! Operations in 9P2000.L.

use crate::attr::Attr;
use crate::errno;
use crate::link::{Connection, Failure, Fid, only};
use client::Interrupt;
use wire::fuse::{SetAttr, StatFs, fattr};
use wire::ninep::{Qid, Rmessage, STATS_BTIME, Tmessage};

/// Attributes of stat(2) in `Tgetattr`, and the time of the creation.
const STATS: u64 = 0x7ff | STATS_BTIME;

/// Flags of open(2).
pub(crate) const O_WRONLY: u32 = 1;
pub(crate) const O_RDWR: u32 = 2;
pub(crate) const O_ACCMODE: u32 = 3;
pub(crate) const O_CREAT: u32 = 0o100;
pub(crate) const O_EXCL: u32 = 0o200;
pub(crate) const O_TRUNC: u32 = 0o1000;
pub(crate) const O_APPEND: u32 = 0o2000;
const O_DSYNC: u32 = 0o10_000;
const O_DIRECTORY: u32 = 0o200_000;
const O_SYNC: u32 = 0o4_010_000;

/// Flags of open(2) that are sent to the server.
const OPEN_FLAGS: u32 = O_ACCMODE | O_TRUNC | O_APPEND | O_DSYNC | O_SYNC | O_DIRECTORY;

const REMOVE_DIR: u32 = 0x200;

/// Returns the message that requests the attributes of a file.
pub(crate) fn getattr_message(fid: u32) -> Tmessage<'static> {
    Tmessage::Getattr { fid, mask: STATS }
}

/// Decodes attributes.
pub(crate) fn attributes(reply: Rmessage<'_>) -> Option<Attr> {
    let Rmessage::Getattr { qid, mode, uid, gid, nlink, rdev, size, blksize, blocks, .. } = reply
    else {
        return None;
    };
    let Rmessage::Getattr { atime_sec, atime_nsec, mtime_sec, mtime_nsec, .. } = reply else {
        return None;
    };
    let Rmessage::Getattr { ctime_sec, ctime_nsec, .. } = reply else { return None };
    let Rmessage::Getattr { valid, btime_sec, btime_nsec, .. } = reply else { return None };
    let time = |secs, nanos| crate::attr::timestamp(secs, nanos);
    let shown = wire::fuse::Attributes {
        ino: qid.path,
        size,
        blocks,
        atime: time(atime_sec, atime_nsec),
        mtime: time(mtime_sec, mtime_nsec),
        ctime: time(ctime_sec, ctime_nsec),
        mode,
        nlink: u32::try_from(nlink).unwrap_or(u32::MAX),
        uid,
        gid,
        rdev: crate::attr::kernel_device(rdev),
        blksize: u32::try_from(blksize).unwrap_or(4096),
    };
    let created = (valid & STATS_BTIME != 0).then(|| time(btime_sec, btime_nsec));
    Some(Attr { qid, shown, created })
}

/// Changes attributes.
pub(crate) fn setattr(
    connection: &Connection,
    interrupt: &Interrupt,
    fid: u32,
    set: &SetAttr,
) -> Result<(), Failure> {
    const MAP: [(u32, u32); 8] = [
        (fattr::MODE, 0x1),
        (fattr::UID, 0x2),
        (fattr::GID, 0x4),
        (fattr::SIZE, 0x8),
        (fattr::ATIME, 0x10),
        (fattr::MTIME, 0x20),
        (fattr::ATIME_NOW, 0x10),
        (fattr::MTIME_NOW, 0x20),
    ];
    const ATIME_SET: u32 = 0x80;
    const MTIME_SET: u32 = 0x100;
    let has = |bit| set.valid & bit != 0;
    let mut valid = MAP.iter().filter(|(bit, _)| has(*bit)).fold(0, |all, (_, it)| all | it);
    if has(fattr::ATIME) && !has(fattr::ATIME_NOW) {
        valid |= ATIME_SET;
    }
    if has(fattr::MTIME) && !has(fattr::MTIME_NOW) {
        valid |= MTIME_SET;
    }
    let message = Tmessage::Setattr {
        fid,
        valid,
        mode: set.mode & 0o7777,
        uid: set.uid,
        gid: set.gid,
        size: set.size,
        atime_sec: set.atime.secs,
        atime_nsec: set.atime.nanos.into(),
        mtime_sec: set.mtime.secs,
        mtime_nsec: set.mtime.nanos.into(),
    };
    connection.call(interrupt, &message, only!(Rmessage::Setattr {} => ()))
}

/// Returns the flags of `Tlopen` for those of open(2).
pub(crate) fn open_flags(flags: u32) -> u32 {
    flags & OPEN_FLAGS
}

/// Creates and opens a file: the directory's fid becomes that of the file.
pub(crate) fn create(
    connection: &Connection,
    interrupt: &Interrupt,
    fid: u32,
    (name, flags, mode, gid): (&[u8], u32, u32, u32),
) -> Result<Qid, Failure> {
    let flags = open_flags(flags) | O_CREAT | flags & O_EXCL;
    let message = Tmessage::Lcreate { fid, name, flags, mode: mode & 0o7777, gid };
    connection.call(interrupt, &message, only!(Rmessage::Lcreate { qid, .. } => qid))
}

/// Reports whether a server does not know a message, such as diod for the newer ones.
pub(crate) fn is_unknown(failure: Failure) -> bool {
    [errno::EOPNOTSUPP, errno::ENOSYS].map(Failure::Errno).contains(&failure)
}

/// Removes a name.
pub(crate) fn remove(
    dir: &Fid,
    interrupt: &Interrupt,
    (name, is_dir): (&[u8], bool),
) -> Result<(), Failure> {
    let connection = &dir.connection;
    let flags = if is_dir { REMOVE_DIR } else { 0 };
    let message = Tmessage::Unlinkat { dfid: dir.number, name, flags };
    match connection.call(interrupt, &message, only!(Rmessage::Unlinkat {} => ())) {
        Err(failure) if is_unknown(failure) => {
            let (fid, _) = connection.walk(interrupt, dir.number, &[name.to_vec()])?;
            remove_fid(interrupt, fid)
        }
        done => done,
    }
}

/// Removes a file through a fid, which the server discards in any case (remove(5)).
pub(crate) fn remove_fid(interrupt: &Interrupt, fid: Fid) -> Result<(), Failure> {
    let connection = fid.connection.clone();
    let number = fid.forget();
    let message = Tmessage::Remove { fid: number };
    let done = connection.call(interrupt, &message, only!(Rmessage::Remove {} => ()));
    if let Ok(()) | Err(Failure::Errno(_)) = done {
        connection.raw.free_fid(number);
    }
    done
}

/// Renames a file; replaces an existing one.
pub(crate) fn rename(
    interrupt: &Interrupt,
    (from, oldname): (&Fid, &[u8]),
    (to, newname): (&Fid, &[u8]),
) -> Result<(), Failure> {
    let (olddirfid, newdirfid) = (from.number, to.number);
    let message = Tmessage::Renameat { olddirfid, oldname, newdirfid, newname };
    from.connection.call(interrupt, &message, only!(Rmessage::Renameat {} => ()))
}

/// Renames the file of a fid, at servers without the message for it by name.
pub(crate) fn rename_fid(
    interrupt: &Interrupt,
    fid: &Fid,
    (to, name): (&Fid, &[u8]),
) -> Result<(), Failure> {
    let message = Tmessage::Rename { fid: fid.number, dfid: to.number, name };
    fid.connection.call(interrupt, &message, only!(Rmessage::Rename {} => ()))
}

/// Returns the space of a file system.
pub(crate) fn statfs(
    connection: &Connection,
    interrupt: &Interrupt,
    fid: u32,
) -> Result<StatFs, Failure> {
    connection.call(interrupt, &Tmessage::Statfs { fid }, |reply| {
        let Rmessage::Statfs { bsize, blocks, bfree, bavail, files, ffree, namelen, .. } = reply
        else {
            return None;
        };
        Some(StatFs { blocks, bfree, bavail, files, ffree, bsize, namelen })
    })
}

/// Returns an extended attribute, or the list of their names for an empty name.
pub(crate) fn xattr(
    connection: &std::sync::Arc<Connection>,
    interrupt: &Interrupt,
    fid: u32,
    (name, size_max): (&[u8], u32),
) -> Result<Xattr, Failure> {
    let newfid = connection.raw.new_fid().map_err(|error| connection.failure(&error))?;
    let message = Tmessage::Xattrwalk { fid, newfid, name };
    let reply = connection.request(interrupt, &message, Some(newfid));
    let (fid, size) =
        connection.made(newfid, reply, only!(Rmessage::Xattrwalk { size } => size))?;
    let size = u32::try_from(size).map_err(|_| errno::EIO)?;
    if size_max == 0 {
        return Ok(Xattr::Size(size));
    }
    if size > size_max {
        return Err(Failure::Errno(errno::ERANGE));
    }
    let mut value = Vec::new();
    while value.len() < size as usize {
        let count = (size - value.len() as u32).min(connection.io_max());
        let offset = value.len() as u64;
        let message = Tmessage::Read { fid: fid.number, offset, count };
        let reply = connection.request(interrupt, &message, None)?;
        let data = reply.data(count).map_err(|error| connection.failure(&error))?;
        if data.is_empty() {
            break;
        }
        value.extend(data);
    }
    Ok(Xattr::Value(value))
}

/// Extended attribute.
pub(crate) enum Xattr {
    Size(u32),
    Value(Vec<u8>),
}

/// Sets an extended attribute through a fid that it uses up. An empty value with `XATTR_REPLACE`
/// removes it.
pub(crate) fn set_xattr(
    interrupt: &Interrupt,
    fid: Fid,
    (name, value, flags): (&[u8], &[u8], u32),
) -> Result<(), Failure> {
    let connection = fid.connection.clone();
    let size = value.len() as u64;
    let message = Tmessage::Xattrcreate { fid: fid.number, name, size, flags };
    connection.call(interrupt, &message, only!(Rmessage::Xattrcreate {} => ()))?;
    let mut done = 0;
    while done < value.len() {
        let end = value.len().min(done + connection.io_max() as usize);
        let data = wire::ninep::Data(&value[done..end]);
        let message = Tmessage::Write { fid: fid.number, offset: done as u64, data };
        let written = only!(Rmessage::Write { count } => count);
        let count = connection.call(interrupt, &message, written)? as usize;
        if count == 0 || count > end - done {
            return Err(Failure::Errno(errno::EIO));
        }
        done += count;
    }
    // Servers set the attribute once they have all of it.
    let number = fid.forget();
    let clunk = Tmessage::Clunk { fid: number };
    let done = connection.call(interrupt, &clunk, only!(Rmessage::Clunk {} => ()));
    if let Ok(()) | Err(Failure::Errno(_)) = done {
        connection.raw.free_fid(number);
    }
    done
}
