//! What is known about a file.

use crate::line::Dialect;
use crate::tree::{Fid, only};
use crate::{Error, Kind, Time};
use wire::ninep::{Qid, Rmessage, Stat, Tmessage};

/// `P9_GETATTR_BASIC`: all that `stat(2)` tells.
const BASIC: u64 = 0x7ff;

/// `DMSYMLINK`, which some servers of 9P2000 use.
const PLAN9_SYMLINK: u32 = 0x0200_0000;

/// What is known about a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// What it is. 9P2000 knows files and directories only.
    pub kind: Kind,
    /// Permission bits, with set-id and sticky bits.
    pub mode: u32,
    /// Length, bytes.
    pub size: u64,
    /// Its owner: a name where the server speaks 9P2000, else a number.
    pub user: String,
    /// Its group, in the same way.
    pub group: String,
    /// How many names it has; 9P2000 does not say more than one.
    pub links: u64,
    /// Which file it is among those of its server.
    pub inode: u64,
    /// Last change of the contents.
    pub modified: Time,
    /// Last read.
    pub accessed: Time,
    /// Last change of the attributes; with 9P2000 that of the contents.
    pub changed: Time,
}

impl Metadata {
    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.kind == Kind::Directory
    }

    /// Whether it is a plain file.
    pub fn is_file(&self) -> bool {
        self.kind == Kind::File
    }

    /// Whether it is a symbolic link.
    pub fn is_symlink(&self) -> bool {
        self.kind == Kind::Symlink
    }

    pub(crate) fn of(fid: &Fid) -> Result<Metadata, Error> {
        match fid.line.dialect {
            Dialect::Linux => linux(fid),
            Dialect::Plan9 => {
                let message = Tmessage::Stat { fid: fid.number };
                fid.line.call(&message, only!(Rmessage::Stat { stat } => Metadata::plan9(&stat)))
            }
        }
    }

    pub(crate) fn plan9(stat: &Stat<'_>) -> Metadata {
        let date = |seconds: u32| Time::from_secs(seconds.into());
        let kind = match stat.mode {
            mode if mode & Stat::DIR != 0 => Kind::Directory,
            mode if mode & PLAN9_SYMLINK != 0 => Kind::Symlink,
            _plain => Kind::File,
        };
        Metadata {
            kind,
            mode: stat.mode & 0o777,
            size: stat.length,
            user: text(stat.uid),
            group: text(stat.gid),
            links: 1,
            inode: stat.qid.path,
            modified: date(stat.mtime),
            accessed: date(stat.atime),
            changed: date(stat.mtime),
        }
    }
}

/// What is shown on terminals has no control characters.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).escape_debug().to_string()
}

fn linux(fid: &Fid) -> Result<Metadata, Error> {
    let message = Tmessage::Getattr { fid: fid.number, mask: BASIC };
    let reply = fid.line.begin(&message, None)?.wait()?;
    fid.line.read(&reply, |reply| {
        let Rmessage::Getattr { qid, mode, uid, gid, nlink, size, .. } = reply else {
            return None;
        };
        let Rmessage::Getattr { atime_sec, atime_nsec, mtime_sec, mtime_nsec, .. } = reply else {
            return None;
        };
        let Rmessage::Getattr { ctime_sec, ctime_nsec, .. } = reply else { return None };
        Some(Metadata {
            kind: Kind::from_mode(mode).unwrap_or_else(|| kind_of(qid)),
            mode: mode & 0o7777,
            size,
            user: uid.to_string(),
            group: gid.to_string(),
            links: nlink,
            inode: qid.path,
            modified: date(mtime_sec, mtime_nsec),
            accessed: date(atime_sec, atime_nsec),
            changed: date(ctime_sec, ctime_nsec),
        })
    })
}

/// Seconds before 1970 come as what they are in two's complement.
fn date(secs: u64, nanos: u64) -> Time {
    let nanos = u32::try_from(nanos).ok().filter(|nanos| *nanos < 1_000_000_000);
    Time { secs: secs.cast_signed(), nanos: nanos.unwrap_or(0) }
}

/// What a file is, as far as its qid tells.
pub(crate) fn kind_of(qid: Qid) -> Kind {
    match qid.kind {
        kind if kind & Qid::DIR != 0 => Kind::Directory,
        kind if kind & Qid::SYMLINK != 0 => Kind::Symlink,
        _plain => Kind::File,
    }
}
