//! File metadata.

use crate::tree::{Fid, only};
use crate::{Dialect, Error, Kind, Time};
use wire::ninep::{Qid, Rmessage, Stat, Tmessage};

/// `P9_GETATTR_BASIC`: all fields of `stat(2)`.
const BASIC: u64 = 0x7ff;

/// `DMSYMLINK`, used by some 9P2000 servers.
const PLAN9_SYMLINK: u32 = 0x0200_0000;

/// File metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// File type. 9P2000 has only files and directories; some of its servers add symbolic links.
    pub kind: Kind,
    /// Permission, set-id and sticky bits.
    pub mode: u32,
    /// Length, in bytes.
    pub size: u64,
    /// Owner: a name with 9P2000, else a number.
    pub user: String,
    /// Group, in the same form.
    pub group: String,
    /// Number of hard links; always 1 with 9P2000.
    pub links: u64,
    /// Identifier of the file on its server.
    pub inode: u64,
    /// Time of the last change of the contents.
    pub modified: Time,
    /// Time of the last read.
    pub accessed: Time,
    /// Time of the last change of attributes; with 9P2000, of the contents.
    pub changed: Time,
}

impl Metadata {
    /// Reports whether this is a directory.
    pub fn is_dir(&self) -> bool {
        self.kind == Kind::Directory
    }

    /// Reports whether this is a regular file.
    pub fn is_file(&self) -> bool {
        self.kind == Kind::File
    }

    /// Reports whether this is a symbolic link.
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

/// Escapes control characters, because the text may be printed on terminals.
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

/// Converts a time; seconds before 1970 are in two's complement.
fn date(secs: u64, nanos: u64) -> Time {
    let nanos = u32::try_from(nanos).ok().filter(|nanos| *nanos < 1_000_000_000);
    Time { secs: secs.cast_signed(), nanos: nanos.unwrap_or(0) }
}

/// Returns the file type according to its qid.
pub(crate) fn kind_of(qid: Qid) -> Kind {
    match qid.kind {
        kind if kind & Qid::DIR != 0 => Kind::Directory,
        kind if kind & Qid::SYMLINK != 0 => Kind::Symlink,
        _plain => Kind::File,
    }
}
