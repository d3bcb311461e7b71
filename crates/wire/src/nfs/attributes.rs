//! Attributes of files in NFS version 3 (RFC 1813, 2.6).

use crate::xdr::{DecodeError, Reader, Xdr, enumeration, structure};

enumeration! {
    /// Kind of a file (`ftype3`).
    FileKind {
        /// A regular file.
        File = 1,
        /// A directory.
        Directory = 2,
        /// A block device.
        BlockDevice = 3,
        /// A character device.
        CharDevice = 4,
        /// A symbolic link.
        Symlink = 5,
        /// A Unix socket.
        Socket = 6,
        /// A named pipe.
        Fifo = 7,
    }
}

structure! {
    /// A time since 1970.
    #[derive(Copy)]
    Timestamp {
        /// Seconds.
        seconds: u32,
        /// Nanoseconds.
        nanoseconds: u32,
    }
}

structure! {
    /// Device number of a device file (`specdata3`).
    #[derive(Copy, Default)]
    Special {
        /// Major number.
        major: u32,
        /// Minor number.
        minor: u32,
    }
}

structure! {
    /// Attributes of a file (`fattr3`).
    Attributes {
        /// Kind of the file.
        kind: FileKind,
        /// Permission bits with set-id and sticky bits.
        mode: u32,
        /// Number of hard links.
        nlink: u32,
        /// Owner.
        uid: u32,
        /// Group.
        gid: u32,
        /// Length, bytes.
        size: u64,
        /// Storage used, bytes.
        used: u64,
        /// Device number of a device file.
        rdev: Special,
        /// Identifier of the file system.
        fsid: u64,
        /// Inode number.
        fileid: u64,
        /// Time of the last read.
        atime: Timestamp,
        /// Time of the last change of the contents.
        mtime: Timestamp,
        /// Time of the last change of the attributes.
        ctime: Timestamp,
    }
}

/// Attributes after an operation, if known (`post_op_attr`).
pub type PostOp = Option<Attributes>;

structure! {
    /// The attributes before a change that tell whether another one came between (`wcc_attr`).
    PreOp {
        /// Length, bytes.
        size: u64,
        /// Time of the last change of the contents.
        mtime: Timestamp,
        /// Time of the last change of the attributes.
        ctime: Timestamp,
    }
}

structure! {
    /// Weak cache consistency data (`wcc_data`): attributes before and after a change.
    Wcc {
        /// Before, if known.
        before: Option<PreOp>,
        /// After, if known.
        after: PostOp,
    }
}

impl Wcc {
    /// No attributes.
    pub const NONE: Wcc = Wcc { before: None, after: None };
}

/// A timestamp to set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SetTime {
    /// Leave it unchanged.
    #[default]
    Keep,
    /// The server's current time.
    Server,
    /// This time.
    Client(Timestamp),
}

impl<'a> Xdr<'a> for SetTime {
    fn get(reader: &mut Reader<'a>) -> Result<SetTime, DecodeError> {
        match reader.get::<u32>()? {
            0 => Ok(SetTime::Keep),
            1 => Ok(SetTime::Server),
            2 => Ok(SetTime::Client(reader.get()?)),
            other => Err(DecodeError::Value(other)),
        }
    }

    fn put(&self, out: &mut Vec<u8>) {
        match self {
            SetTime::Keep => 0u32.put(out),
            SetTime::Server => 1u32.put(out),
            SetTime::Client(time) => {
                2u32.put(out);
                time.put(out);
            }
        }
    }
}

structure! {
    /// Attributes to set (`sattr3`); `None` leaves the attribute unchanged.
    #[derive(Default)]
    SetAttributes {
        /// Permission bits.
        mode: Option<u32>,
        /// Owner.
        uid: Option<u32>,
        /// Group.
        gid: Option<u32>,
        /// Length, bytes.
        size: Option<u64>,
        /// Time of the last read.
        atime: SetTime,
        /// Time of the last change of the contents.
        mtime: SetTime,
    }
}
