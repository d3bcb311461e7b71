//! FUSE messages: requests of the Linux kernel, read from `/dev/fuse`, and their replies.
//!
//! Layouts of `include/uapi/linux/fuse.h`, protocol 7.31 to 7.38, in the byte order of this host. A
//! request is a header ([`Header`]) and a body that depends on its opcode; requests without a
//! meaning here decode to [`Request::Unknown`], which a server answers with `ENOSYS`.

mod reply;

#[cfg(test)]
mod tests;

pub use reply::{
    Attributes, Entry, InitReply, StatFs, attr_reply, entry_reply, error, expire_entry, header,
    inval_inode, lock_reply, lseek_reply, open_reply, put_dirent, put_dirent_plus, size_reply,
    statfs_reply, write_reply,
};

use std::fmt;

/// Bytes of a request's header.
pub const IN_HEADER_SIZE: usize = 40;
/// Bytes of a reply's header.
pub const OUT_HEADER_SIZE: usize = 16;
/// Node of the root directory.
pub const ROOT: u64 = 1;
/// Protocol version: major number, and the newest minor number whose messages are known.
pub const VERSION: (u32, u32) = (7, 38);
/// Oldest minor number that is supported (Linux 5.4).
pub const MINOR_MIN: u32 = 31;

/// Capabilities of `FUSE_INIT`.
#[allow(missing_docs, reason = "the kernel's own names")]
pub mod init {
    pub const ASYNC_READ: u64 = 1 << 0;
    pub const POSIX_LOCKS: u64 = 1 << 1;
    pub const BIG_WRITES: u64 = 1 << 5;
    pub const FLOCK_LOCKS: u64 = 1 << 10;
    pub const AUTO_INVAL_DATA: u64 = 1 << 12;
    pub const DO_READDIRPLUS: u64 = 1 << 13;
    pub const READDIRPLUS_AUTO: u64 = 1 << 14;
    pub const ASYNC_DIO: u64 = 1 << 15;
    pub const WRITEBACK_CACHE: u64 = 1 << 16;
    pub const PARALLEL_DIROPS: u64 = 1 << 18;
    pub const HANDLE_KILLPRIV: u64 = 1 << 19;
    pub const MAX_PAGES: u64 = 1 << 22;
    pub const CACHE_SYMLINKS: u64 = 1 << 23;
    pub const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    pub const INIT_EXT: u64 = 1 << 30;
    pub const DIRECT_IO_ALLOW_MMAP: u64 = 1 << 36;
}

/// Flags of a reply to an open request.
#[allow(missing_docs, reason = "the kernel's own names")]
pub mod fopen {
    pub const DIRECT_IO: u32 = 1 << 0;
    pub const KEEP_CACHE: u32 = 1 << 1;
    pub const CACHE_DIR: u32 = 1 << 3;
}

/// Attributes to change, in [`SetAttr::valid`].
#[allow(missing_docs, reason = "the kernel's own names")]
pub mod fattr {
    pub const MODE: u32 = 1 << 0;
    pub const UID: u32 = 1 << 1;
    pub const GID: u32 = 1 << 2;
    pub const SIZE: u32 = 1 << 3;
    pub const ATIME: u32 = 1 << 4;
    pub const MTIME: u32 = 1 << 5;
    pub const FH: u32 = 1 << 6;
    pub const ATIME_NOW: u32 = 1 << 7;
    pub const MTIME_NOW: u32 = 1 << 8;
    pub const CTIME: u32 = 1 << 10;
}

/// Reason for a failed decoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// The size field differs from the length of the message.
    Size,
    /// A field extends past the end.
    Short,
    /// A name has no end.
    Name,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DecodeError::Size => "the size field contradicts the message's length",
            DecodeError::Short => "a field reaches past the end of the message",
            DecodeError::Name => "a name has no end",
        })
    }
}

impl std::error::Error for DecodeError {}

/// Header of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Operation code.
    pub opcode: u32,
    /// Number of the request, repeated in its reply.
    pub unique: u64,
    /// Node that the request is about.
    pub node: u64,
    /// User id of the caller.
    pub uid: u32,
    /// Group id of the caller.
    pub gid: u32,
    /// Thread of the caller, 0 if it has no number in this namespace.
    pub pid: u32,
}

/// Seconds and nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timestamp {
    /// Seconds since 1970.
    pub secs: u64,
    /// Nanoseconds of the second.
    pub nanos: u32,
}

/// Body of `FUSE_SETATTR`.
#[allow(missing_docs, reason = "the kernel's own names")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// Changed attributes, bits of [`fattr`].
    pub valid: u32,
    pub handle: u64,
    pub size: u64,
    pub atime: Timestamp,
    pub mtime: Timestamp,
    pub ctime: Timestamp,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
}

/// Byte-range lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileLock {
    /// First byte.
    pub start: u64,
    /// Last byte; `i64::MAX` without an end.
    pub end: u64,
    /// `F_RDLCK`, `F_WRLCK` or `F_UNLCK`.
    pub kind: u32,
    /// Process that holds it.
    pub pid: u32,
}

/// Request of the kernel.
#[allow(missing_docs, reason = "the kernel's own names")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    Init {
        major: u32,
        minor: u32,
        max_readahead: u32,
        flags: u64,
    },
    Destroy,
    Lookup {
        name: &'a [u8],
    },
    /// Has no reply.
    Forget {
        lookups: u64,
    },
    /// Has no reply.
    BatchForget {
        nodes: Vec<(u64, u64)>,
    },
    GetAttr {
        handle: Option<u64>,
    },
    SetAttr(SetAttr),
    ReadLink,
    Symlink {
        name: &'a [u8],
        target: &'a [u8],
    },
    MkNod {
        name: &'a [u8],
        mode: u32,
        rdev: u32,
    },
    MkDir {
        name: &'a [u8],
        mode: u32,
    },
    Unlink {
        name: &'a [u8],
    },
    RmDir {
        name: &'a [u8],
    },
    Rename {
        name: &'a [u8],
        to_dir: u64,
        to_name: &'a [u8],
        flags: u32,
    },
    Link {
        node: u64,
        name: &'a [u8],
    },
    Open {
        flags: u32,
    },
    Create {
        name: &'a [u8],
        flags: u32,
        mode: u32,
    },
    Read {
        handle: u64,
        offset: u64,
        size: u32,
    },
    Write {
        handle: u64,
        offset: u64,
        flags: u32,
        data: &'a [u8],
    },
    StatFs,
    Release {
        handle: u64,
        flock_owner: Option<u64>,
    },
    Flush {
        handle: u64,
        owner: u64,
    },
    FSync {
        handle: u64,
        data_only: bool,
    },
    SetXattr {
        name: &'a [u8],
        value: &'a [u8],
        flags: u32,
    },
    GetXattr {
        name: &'a [u8],
        size: u32,
    },
    ListXattr {
        size: u32,
    },
    RemoveXattr {
        name: &'a [u8],
    },
    OpenDir {
        flags: u32,
    },
    ReadDir {
        handle: u64,
        offset: u64,
        size: u32,
    },
    ReadDirPlus {
        handle: u64,
        offset: u64,
        size: u32,
    },
    ReleaseDir {
        handle: u64,
    },
    FSyncDir {
        handle: u64,
        data_only: bool,
    },
    GetLock {
        handle: u64,
        owner: u64,
        lock: FileLock,
    },
    SetLock {
        handle: u64,
        owner: u64,
        lock: FileLock,
        flock: bool,
        wait: bool,
    },
    Access {
        mask: u32,
    },
    /// Has no reply.
    Interrupt {
        unique: u64,
    },
    Fallocate {
        handle: u64,
        offset: u64,
        length: u64,
        mode: u32,
    },
    LSeek {
        handle: u64,
        offset: u64,
        whence: u32,
    },
    /// A request that is not in this table.
    Unknown,
}

const HANDLE_IN_GETATTR: u32 = 1;
const FLOCK: u32 = 1;
const FLOCK_UNLOCK: u32 = 2;
const DATA_ONLY: u32 = 1;

/// Decodes a whole request.
///
/// # Errors
/// If the message is shorter than its fields.
pub fn decode(message: &[u8]) -> Result<(Header, Request<'_>), DecodeError> {
    let mut body = Reader { rest: message };
    let size = body.u32()?;
    if size as usize != message.len() {
        return Err(DecodeError::Size);
    }
    let header = Header {
        opcode: body.u32()?,
        unique: body.u64()?,
        node: body.u64()?,
        uid: body.u32()?,
        gid: body.u32()?,
        pid: body.u32()?,
    };
    body.skip(4)?;
    let request = match header.opcode {
        1..=17 | 35 | 45 => name_request(header.opcode, &mut body)?,
        _other => file_request(header.opcode, &mut body)?,
    };
    Ok((header, request))
}

/// Decodes requests about names and attributes, and those that open files.
fn name_request<'a>(opcode: u32, body: &mut Reader<'a>) -> Result<Request<'a>, DecodeError> {
    Ok(match opcode {
        1 => Request::Lookup { name: body.name()? },
        2 => Request::Forget { lookups: body.u64()? },
        3 => {
            let flags = body.u32()?;
            body.skip(4)?;
            let handle = body.u64()?;
            Request::GetAttr { handle: (flags & HANDLE_IN_GETATTR != 0).then_some(handle) }
        }
        4 => Request::SetAttr(body.set_attr()?),
        5 => Request::ReadLink,
        6 => Request::Symlink { name: body.name()?, target: body.name()? },
        8 => {
            let (mode, rdev) = (body.u32()?, body.u32()?);
            body.skip(8)?;
            Request::MkNod { name: body.name()?, mode, rdev }
        }
        9 => {
            let mode = body.u32()?;
            body.skip(4)?;
            Request::MkDir { name: body.name()?, mode }
        }
        10 => Request::Unlink { name: body.name()? },
        11 => Request::RmDir { name: body.name()? },
        12 => {
            let to_dir = body.u64()?;
            Request::Rename { to_dir, name: body.name()?, to_name: body.name()?, flags: 0 }
        }
        13 => Request::Link { node: body.u64()?, name: body.name()? },
        14 => {
            let flags = body.u32()?;
            Request::Open { flags }
        }
        15 => {
            let (handle, offset, size) = body.range()?;
            Request::Read { handle, offset, size }
        }
        16 => {
            let (handle, offset, size) = body.range()?;
            let flags = body.u32()?;
            body.skip(16)?;
            Request::Write { handle, offset, flags, data: body.take(size as usize)? }
        }
        17 => Request::StatFs,
        35 => {
            let (flags, mode) = (body.u32()?, body.u32()?);
            body.skip(8)?;
            Request::Create { name: body.name()?, flags, mode }
        }
        45 => {
            let (to_dir, flags) = (body.u64()?, body.u32()?);
            body.skip(4)?;
            Request::Rename { to_dir, name: body.name()?, to_name: body.name()?, flags }
        }
        _other => Request::Unknown,
    })
}

/// Decodes requests about open files, extended attributes and the session.
fn file_request<'a>(opcode: u32, body: &mut Reader<'a>) -> Result<Request<'a>, DecodeError> {
    Ok(match opcode {
        18 => {
            let handle = body.u64()?;
            body.skip(4)?;
            let (flags, owner) = (body.u32()?, body.u64()?);
            let flock_owner = (flags & FLOCK_UNLOCK != 0).then_some(owner);
            Request::Release { handle, flock_owner }
        }
        20 | 30 => {
            let (handle, flags) = (body.u64()?, body.u32()?);
            let data_only = flags & DATA_ONLY != 0;
            match opcode {
                20 => Request::FSync { handle, data_only },
                _directory => Request::FSyncDir { handle, data_only },
            }
        }
        21 => {
            let (size, flags) = (body.u32()?, body.u32()?);
            let name = body.name()?;
            Request::SetXattr { name, value: body.take(size as usize)?, flags }
        }
        22 => {
            let size = body.u32()?;
            body.skip(4)?;
            Request::GetXattr { name: body.name()?, size }
        }
        23 => Request::ListXattr { size: body.u32()? },
        24 => Request::RemoveXattr { name: body.name()? },
        25 => {
            let handle = body.u64()?;
            body.skip(8)?;
            Request::Flush { handle, owner: body.u64()? }
        }
        26 => body.init()?,
        27 => Request::OpenDir { flags: body.u32()? },
        28 | 44 => {
            let (handle, offset, size) = body.range()?;
            match opcode {
                28 => Request::ReadDir { handle, offset, size },
                _plus => Request::ReadDirPlus { handle, offset, size },
            }
        }
        29 => Request::ReleaseDir { handle: body.u64()? },
        31..=33 => body.lock(opcode)?,
        34 => Request::Access { mask: body.u32()? },
        36 => Request::Interrupt { unique: body.u64()? },
        38 => Request::Destroy,
        42 => body.forgets()?,
        43 => {
            let (handle, offset, length) = (body.u64()?, body.u64()?, body.u64()?);
            Request::Fallocate { handle, offset, length, mode: body.u32()? }
        }
        46 => {
            let (handle, offset) = (body.u64()?, body.u64()?);
            Request::LSeek { handle, offset, whence: body.u32()? }
        }
        _other => Request::Unknown,
    })
}

/// Decodes fields from the front of a message.
struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, n: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self.rest.split_at_checked(n).ok_or(DecodeError::Short)?;
        self.rest = rest;
        Ok(taken)
    }

    fn skip(&mut self, n: usize) -> Result<(), DecodeError> {
        self.take(n).map(|_| ())
    }

    fn u32(&mut self) -> Result<u32, DecodeError> {
        Ok(u32::from_ne_bytes(self.take(4)?.try_into().expect("as many as were taken")))
    }

    fn u64(&mut self) -> Result<u64, DecodeError> {
        Ok(u64::from_ne_bytes(self.take(8)?.try_into().expect("as many as were taken")))
    }

    /// Decodes a name up to its NUL.
    fn name(&mut self) -> Result<&'a [u8], DecodeError> {
        let end = self.rest.iter().position(|byte| *byte == 0).ok_or(DecodeError::Name)?;
        let name = self.take(end)?;
        self.skip(1)?;
        assert!(!name.contains(&0), "a name ends at its first NUL");
        Ok(name)
    }

    /// Decodes handle, offset and size.
    fn range(&mut self) -> Result<(u64, u64, u32), DecodeError> {
        Ok((self.u64()?, self.u64()?, self.u32()?))
    }

    fn init(&mut self) -> Result<Request<'a>, DecodeError> {
        let (major, minor, max_readahead) = (self.u32()?, self.u32()?, self.u32()?);
        let low = u64::from(self.u32()?);
        // Kernels before 5.17 send no second word.
        let high = if low & init::INIT_EXT != 0 { u64::from(self.u32()?) } else { 0 };
        Ok(Request::Init { major, minor, max_readahead, flags: low | high << 32 })
    }

    fn set_attr(&mut self) -> Result<SetAttr, DecodeError> {
        let valid = self.u32()?;
        self.skip(4)?;
        let (handle, size) = (self.u64()?, self.u64()?);
        self.skip(8)?;
        let secs = [self.u64()?, self.u64()?, self.u64()?];
        let nanos = [self.u32()?, self.u32()?, self.u32()?];
        let time = |n: usize| Timestamp { secs: secs[n], nanos: nanos[n] };
        let mode = self.u32()?;
        self.skip(4)?;
        let (uid, gid) = (self.u32()?, self.u32()?);
        let (atime, mtime, ctime) = (time(0), time(1), time(2));
        Ok(SetAttr { valid, handle, size, atime, mtime, ctime, mode, uid, gid })
    }

    fn lock(&mut self, opcode: u32) -> Result<Request<'a>, DecodeError> {
        assert!((31..=33).contains(&opcode), "{opcode} is about no lock");
        let (handle, owner) = (self.u64()?, self.u64()?);
        let (start, end) = (self.u64()?, self.u64()?);
        let lock = FileLock { start, end, kind: self.u32()?, pid: self.u32()? };
        let flock = self.u32()? & FLOCK != 0;
        Ok(match opcode {
            31 => Request::GetLock { handle, owner, lock },
            _set => Request::SetLock { handle, owner, lock, flock, wait: opcode == 33 },
        })
    }

    fn forgets(&mut self) -> Result<Request<'a>, DecodeError> {
        let count = self.u32()? as usize;
        self.skip(4)?;
        if self.rest.len() / 16 < count {
            return Err(DecodeError::Short);
        }
        let one = |_| Ok((self.u64()?, self.u64()?));
        Ok(Request::BatchForget { nodes: (0..count).map(one).collect::<Result<_, _>>()? })
    }
}
