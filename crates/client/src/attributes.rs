//! File attributes set by clients, and file system statistics.

use crate::line::Pending;
use crate::tree::{Fid, only};
use crate::{Client, Dialect, Error, File, Path, Time};
use wire::ninep::{Qid, Rmessage, Stat, Tmessage};

/// Flag of `Txattrcreate` with which an empty value removes an attribute (`XATTR_REPLACE`).
const REPLACE: u32 = 2;

/// Maximum length of an extended attribute, bytes (Linux `XATTR_SIZE_MAX`).
const VALUE_MAX: u64 = 64 << 10;

/// Bits of `Tsetattr`'s `valid`.
const MODE: u32 = 0x1;
const MTIME: u32 = 0x20;
const MTIME_SET: u32 = 0x100;

/// Space and files of a file system, as in `statfs(2)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSystem {
    /// Type of the file system, `f_type` of `statfs(2)`.
    pub kind: u32,
    /// Block size, in bytes.
    pub block_size: u32,
    /// Total blocks.
    pub blocks: u64,
    /// Free blocks.
    pub blocks_free: u64,
    /// Free blocks for users other than root.
    pub blocks_available: u64,
    /// Maximum number of files.
    pub files: u64,
    /// Files that can still be created.
    pub files_free: u64,
    /// Identifier of the file system.
    pub id: u64,
    /// Maximum length of a file name, in bytes.
    pub name_max: u32,
}

/// Attributes to change; `None` keeps the present value.
#[derive(Clone, Copy, Default)]
struct Change {
    mode: Option<u32>,
    modified: Option<Time>,
}

impl Client {
    /// Sets the permission bits of a file, in 9P2000.L also the set-id and sticky bits; links are
    /// followed.
    ///
    /// # Errors
    /// Those of the server and of the connection.
    pub fn set_mode(&self, path: impl AsRef<Path>, mode: u32) -> Result<(), Error> {
        let path = path.as_ref();
        self.set_mode_of(self.tree.find(path, true), path, mode)
    }

    /// Sets the mode of a file below a directory without following links there, so that another
    /// client cannot redirect the change by a link in place of a directory or file.
    ///
    /// # Errors
    /// `ELOOP` if `below` is a link or leads through one, and those of the server and of the
    /// connection.
    pub fn set_mode_beneath(
        &self,
        top: impl AsRef<Path>,
        below: impl AsRef<Path>,
        mode: u32,
    ) -> Result<(), Error> {
        let (top, below) = (top.as_ref(), below.as_ref());
        self.set_mode_of(self.tree.find_beneath(top, below), &top.join(below), mode)
    }

    fn set_mode_of(
        &self,
        found: Result<(Fid, Qid), Error>,
        path: &Path,
        mode: u32,
    ) -> Result<(), Error> {
        let change = Change { mode: Some(mode), modified: None };
        let changed = found.and_then(|(fid, _)| match self.dialect() {
            Dialect::Linux => change.linux(&fid),
            Dialect::Plan9 => change.plan9(&fid),
        });
        changed.map_err(|error| error.of("change the mode of", path))
    }

    /// Returns the value of an extended attribute; links are followed.
    ///
    /// # Errors
    /// Those of the server and of the connection; `Unsupported` with 9P2000.
    pub fn attribute(&self, path: impl AsRef<Path>, name: &str) -> Result<Vec<u8>, Error> {
        const DOING: &str = "read an extended attribute of";
        let path = path.as_ref();
        self.linux_only(DOING, path)?;
        let found = self.tree.find(path, true).and_then(|(fid, _)| open_attribute(&fid, name));
        let (fid, size) = found.map_err(|error| error.of(DOING, path))?;
        let (file, mut value) = (File::new(fid, path, 0), vec![0; size]);
        let mut read = 0;
        while read < size {
            match file.read_at(&mut value[read..], read as u64)? {
                0 => break,
                count => read += count,
            }
        }
        assert!(read <= size, "no more is read than there is room for");
        value.truncate(read);
        Ok(value)
    }

    /// Sets the value of an extended attribute; links are followed.
    ///
    /// # Errors
    /// Those of the server and of the connection; `Unsupported` with 9P2000.
    pub fn set_attribute(
        &self,
        path: impl AsRef<Path>,
        name: &str,
        value: &[u8],
    ) -> Result<(), Error> {
        self.write_attribute(path.as_ref(), name, value, 0)
    }

    /// Removes an extended attribute; links are followed.
    ///
    /// # Errors
    /// Those of the server and of the connection; `Unsupported` with 9P2000.
    pub fn remove_attribute(&self, path: impl AsRef<Path>, name: &str) -> Result<(), Error> {
        self.write_attribute(path.as_ref(), name, &[], REPLACE)
    }

    fn write_attribute(
        &self,
        path: &Path,
        name: &str,
        value: &[u8],
        flags: u32,
    ) -> Result<(), Error> {
        const DOING: &str = "change an extended attribute of";
        self.linux_only(DOING, path)?;
        let created = self.tree.find(path, true).and_then(|(fid, _)| {
            let (name, size) = (name.as_bytes(), value.len() as u64);
            let message = Tmessage::Xattrcreate { fid: fid.number, name, size, flags };
            fid.line.call(&message, only!(Rmessage::Xattrcreate {} => ()))?;
            Ok(fid)
        });
        let file = File::new(created.map_err(|error| error.of(DOING, path))?, path, 0);
        let mut written = 0;
        while written < value.len() {
            written += file.write_at(&value[written..], written as u64)?;
        }
        assert_eq!(written, value.len(), "all was sent");
        // Servers set the attribute once they have all of it.
        file.close()
    }

    /// Returns space and files of the file system that contains a file.
    ///
    /// # Errors
    /// Those of the server and of the connection; `Unsupported` with 9P2000.
    pub fn file_system(&self, path: impl AsRef<Path>) -> Result<FileSystem, Error> {
        const DOING: &str = "tell the free space of";
        let path = path.as_ref();
        self.linux_only(DOING, path)?;
        let found = self.tree.find(path, true).and_then(|(fid, _)| file_system(&fid));
        found.map_err(|error| error.of(DOING, path))
    }
}

impl File {
    /// Sets the modification time, in 9P2000 to the second.
    ///
    /// # Errors
    /// Those of the server and of the connection.
    pub fn set_modified(&self, modified: Time) -> Result<(), Error> {
        let change = Change { mode: None, modified: Some(modified) };
        let fid = self.fid();
        let changed = match fid.line.dialect {
            Dialect::Linux => change.linux(fid),
            Dialect::Plan9 => change.plan9(fid),
        };
        changed.map_err(|error| error.of("set the modification time of", &self.path))
    }
}

impl Change {
    fn linux(self, fid: &Fid) -> Result<(), Error> {
        let mode = self.mode.map_or(0, |_| MODE);
        let modified = self.modified.map_or(0, |_| MTIME | MTIME_SET);
        let time = self.modified.unwrap_or(Time { secs: 0, nanos: 0 });
        let message = Tmessage::Setattr {
            fid: fid.number,
            valid: mode | modified,
            mode: self.mode.unwrap_or(0) & 0o7777,
            uid: 0,
            gid: 0,
            size: 0,
            atime_sec: 0,
            atime_nsec: 0,
            mtime_sec: time.secs.cast_unsigned(),
            mtime_nsec: time.nanos.into(),
        };
        fid.line.call(&message, only!(Rmessage::Setattr {} => ()))
    }

    /// Sets attributes with 9P2000, where a mode includes the bits of the file's kind, which are
    /// kept.
    fn plan9(self, fid: &Fid) -> Result<(), Error> {
        const KIND: u32 = !0o777;
        let mut stat = Stat::unchanged();
        if let Some(mode) = self.mode {
            let message = Tmessage::Stat { fid: fid.number };
            let before = fid.line.call(&message, only!(Rmessage::Stat { stat } => stat.mode))?;
            stat.mode = before & KIND | mode & 0o777;
        }
        if let Some(modified) = self.modified {
            let last = u32::MAX - 1;
            stat.mtime = u32::try_from(modified.secs.max(0)).map_or(last, |secs| secs.min(last));
        }
        let message = Tmessage::Wstat { fid: fid.number, stat };
        fid.line.call(&message, only!(Rmessage::Wstat {} => ()))
    }
}

/// Opens an extended attribute; returns its length in bytes.
fn open_attribute(fid: &Fid, name: &str) -> Result<(Fid, usize), Error> {
    let (line, newfid) = (&fid.line, fid.line.new_fid()?);
    let message = Tmessage::Xattrwalk { fid: fid.number, newfid, name: name.as_bytes() };
    let reply = line.begin(&message, Some(newfid)).and_then(Pending::wait);
    let reply = reply.inspect_err(|error| {
        if !error.is_fatal() {
            line.free_fid(newfid);
        }
    })?;
    let opened = Fid::new(line.clone(), newfid);
    let size = line.read(&reply, only!(Rmessage::Xattrwalk { size } => size))?;
    match usize::try_from(size).ok().filter(|_| size <= VALUE_MAX) {
        Some(size) => Ok((opened, size)),
        None => Err(line.broken(format!("an extended attribute of {size} bytes"))),
    }
}

fn file_system(fid: &Fid) -> Result<FileSystem, Error> {
    let message = Tmessage::Statfs { fid: fid.number };
    let reply = fid.line.begin(&message, None)?.wait()?;
    fid.line.read(&reply, |reply| {
        let Rmessage::Statfs { kind, bsize, blocks, bfree, bavail, .. } = reply else {
            return None;
        };
        let Rmessage::Statfs { files, ffree, fsid, namelen, .. } = reply else { return None };
        Some(FileSystem {
            kind,
            block_size: bsize,
            blocks,
            blocks_free: bfree,
            blocks_available: bavail,
            files,
            files_free: ffree,
            id: fsid,
            name_max: namelen,
        })
    })
}
