//! 9P2000 and 9P2000.L on the wire.
//!
//! A message is `size[4] type[1] tag[2] …`, little-endian, strings and lists with a 16-bit count in
//! front (Plan 9 manual, section 5; thesis 004, appendix, figure 16). The tables of messages below
//! read like that manual; both directions of the codec are generated from them. The session decides
//! which messages belong to which dialect.

mod codec;
mod stat;
mod translate;

#[cfg(test)]
mod tests;

pub use codec::{DecodeError, Names, Qid, Qids, Reader};
pub use stat::Stat;
pub use translate::{STATS_BTIME, attributes, entry_qid, errno, qid};

pub(crate) use codec::Field;

/// Bytes in front of every message's body: size, type, tag.
pub const HEADER_SIZE: usize = 7;
/// Bytes in front of the data in an `Rread` and an `Rreaddir`: header and count.
pub const READ_HEADER_SIZE: usize = HEADER_SIZE + 4;
/// Maximum overhead of a `Twrite` or `Rread` beside its data, bytes (`IOHDRSZ`).
pub const IO_HEADER_SIZE: u32 = 24;
/// Maximum number of names in one walk (walk(5)).
pub const WALK_MAX: usize = 16;
/// The tag of `Tversion`.
pub const NO_TAG: u16 = !0;
/// The absent fid (`NOFID`), in `Tattach`.
pub const NO_FID: u32 = !0;
/// The absent user id, in `Tattach` of 9P2000.L.
pub const NO_UID: u32 = !0;

/// Declares an enum of messages and its codec: one line per message, as in the manual.
macro_rules! messages {
    ($(#[$doc:meta])* $enum:ident { $($(#[$vdoc:meta])* $name:ident = $code:literal
        { $($field:ident : $type:ty),* $(,)? })* }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[allow(missing_docs, reason = "the manual's own names for the fields")]
        pub enum $enum<'a> { $($(#[$vdoc])* $name { $($field: $type),* }),* }

        impl<'a> $enum<'a> {
            /// Returns the type byte.
            pub fn code(&self) -> u8 {
                match self { $($enum::$name { .. } => $code),* }
            }

            /// Returns the message name of a type byte, as in this table.
            pub fn name_of(code: u8) -> Option<&'static str> {
                match code {
                    $($code => Some(stringify!($name)),)*
                    _unknown => None,
                }
            }

            /// Decodes one whole message, size field included.
            ///
            /// # Errors
            /// If the body is too short or too long, or the type is not in the table.
            pub fn decode(message: &'a [u8]) -> Result<(u16, $enum<'a>), DecodeError> {
                let mut body = Reader::new(message);
                let size: u32 = body.get()?;
                if size as usize != message.len() {
                    return Err(DecodeError::Size);
                }
                let code: u8 = body.get()?;
                let tag: u16 = body.get()?;
                let message = match code {
                    $($code => $enum::$name { $($field: body.get::<$type>()?),* },)*
                    unknown => return Err(DecodeError::Type(unknown)),
                };
                body.end()?;
                Ok((tag, message))
            }

            /// Appends the whole message, size field included.
            pub fn encode(&self, tag: u16, out: &mut Vec<u8>) {
                let start = out.len();
                out.extend([0; 4]);
                out.push(self.code());
                tag.put(out);
                match self { $($enum::$name { $($field),* } => { $($field.put(out);)* }),* }
                let size = u32::try_from(out.len() - start).expect("messages are below 4 GiB");
                out[start..start + 4].copy_from_slice(&size.to_le_bytes());
            }
        }
    };
}

messages! {
    /// Messages of clients.
    Tmessage {
        Statfs = 8 { fid: u32 }
        Lopen = 12 { fid: u32, flags: u32 }
        Lcreate = 14 { fid: u32, name: &'a [u8], flags: u32, mode: u32, gid: u32 }
        Symlink = 16 { dfid: u32, name: &'a [u8], target: &'a [u8], gid: u32 }
        Mknod = 18 { dfid: u32, name: &'a [u8], mode: u32, major: u32, minor: u32, gid: u32 }
        Rename = 20 { fid: u32, dfid: u32, name: &'a [u8] }
        Readlink = 22 { fid: u32 }
        Getattr = 24 { fid: u32, mask: u64 }
        Setattr = 26 { fid: u32, valid: u32, mode: u32, uid: u32, gid: u32, size: u64,
            atime_sec: u64, atime_nsec: u64, mtime_sec: u64, mtime_nsec: u64 }
        Xattrwalk = 30 { fid: u32, newfid: u32, name: &'a [u8] }
        Xattrcreate = 32 { fid: u32, name: &'a [u8], size: u64, flags: u32 }
        Readdir = 40 { fid: u32, offset: u64, count: u32 }
        Fsync = 50 { fid: u32, data_only: Option<u32> }
        Lock = 52 { fid: u32, kind: u8, flags: u32, start: u64, length: u64, proc_id: u32,
            client_id: &'a [u8] }
        Getlock = 54 { fid: u32, kind: u8, start: u64, length: u64, proc_id: u32,
            client_id: &'a [u8] }
        Link = 70 { dfid: u32, fid: u32, name: &'a [u8] }
        Mkdir = 72 { dfid: u32, name: &'a [u8], mode: u32, gid: u32 }
        Renameat = 74 { olddirfid: u32, oldname: &'a [u8], newdirfid: u32, newname: &'a [u8] }
        Unlinkat = 76 { dfid: u32, name: &'a [u8], flags: u32 }
        Version = 100 { msize: u32, version: &'a [u8] }
        /// The user id exists in 9P2000.L only.
        Auth = 102 { afid: u32, uname: &'a [u8], aname: &'a [u8], uid: Option<u32> }
        /// The user id exists in 9P2000.L only.
        Attach = 104 { fid: u32, afid: u32, uname: &'a [u8], aname: &'a [u8], uid: Option<u32> }
        Flush = 108 { oldtag: u16 }
        Walk = 110 { fid: u32, newfid: u32, names: Names<'a> }
        Open = 112 { fid: u32, mode: u8 }
        Create = 114 { fid: u32, name: &'a [u8], perm: u32, mode: u8 }
        Read = 116 { fid: u32, offset: u64, count: u32 }
        Write = 118 { fid: u32, offset: u64, data: Data<'a> }
        Clunk = 120 { fid: u32 }
        Remove = 122 { fid: u32 }
        Stat = 124 { fid: u32 }
        Wstat = 126 { fid: u32, stat: Stat<'a> }
    }
}

messages! {
    /// Messages of servers.
    Rmessage {
        /// The error of 9P2000.L: a Linux `errno`.
        Lerror = 7 { ecode: u32 }
        Statfs = 9 { kind: u32, bsize: u32, blocks: u64, bfree: u64, bavail: u64, files: u64,
            ffree: u64, fsid: u64, namelen: u32 }
        Lopen = 13 { qid: Qid, iounit: u32 }
        Lcreate = 15 { qid: Qid, iounit: u32 }
        Symlink = 17 { qid: Qid }
        Mknod = 19 { qid: Qid }
        Rename = 21 { }
        Readlink = 23 { target: &'a [u8] }
        Getattr = 25 { valid: u64, qid: Qid, mode: u32, uid: u32, gid: u32, nlink: u64, rdev: u64,
            size: u64, blksize: u64, blocks: u64, atime_sec: u64, atime_nsec: u64, mtime_sec: u64,
            mtime_nsec: u64, ctime_sec: u64, ctime_nsec: u64, btime_sec: u64, btime_nsec: u64,
            generation: u64, data_version: u64 }
        Setattr = 27 { }
        Xattrwalk = 31 { size: u64 }
        Xattrcreate = 33 { }
        Readdir = 41 { data: Data<'a> }
        Fsync = 51 { }
        Lock = 53 { status: u8 }
        Getlock = 55 { kind: u8, start: u64, length: u64, proc_id: u32, client_id: &'a [u8] }
        Link = 71 { }
        Mkdir = 73 { qid: Qid }
        Renameat = 75 { }
        Unlinkat = 77 { }
        Version = 101 { msize: u32, version: &'a [u8] }
        Auth = 103 { aqid: Qid }
        Attach = 105 { qid: Qid }
        /// The error of 9P2000: a string.
        Error = 107 { ename: &'a [u8] }
        Flush = 109 { }
        Walk = 111 { qids: Qids }
        Open = 113 { qid: Qid, iounit: u32 }
        Create = 115 { qid: Qid, iounit: u32 }
        Read = 117 { data: Data<'a> }
        Write = 119 { count: u32 }
        Clunk = 121 { }
        Remove = 123 { }
        Stat = 125 { stat: Stat<'a> }
        Wstat = 127 { }
    }
}

/// Bytes preceded by a 32-bit count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data<'a>(pub &'a [u8]);

/// Returns the length of the first message in `bytes`; `None` while its size field is incomplete.
pub fn frame_size(bytes: &[u8]) -> Option<usize> {
    let size = bytes.first_chunk::<4>()?;
    Some(u32::from_le_bytes(*size) as usize)
}

/// Returns the number of bytes requested by a message: the count of a `Tread` or `Treaddir`,
/// otherwise zero.
pub fn wanted(message: &[u8]) -> u32 {
    const TREADDIR: u8 = 40;
    const TREAD: u8 = 116;
    // The count follows size, type, tag, fid and offset.
    match (message.get(4), message.get(19..23)) {
        (Some(&(TREADDIR | TREAD)), Some(count)) => {
            u32::from_le_bytes(count.try_into().expect("four bytes"))
        }
        (_, _) => 0,
    }
}

/// Returns whether a message is a `Treaddir`.
pub fn lists(message: &[u8]) -> bool {
    message.get(4) == Some(&40)
}

/// Decodes the header of a `Twrite` without copying its data: tag, fid, offset and count.
///
/// # Errors
/// If the message is not a well-formed `Twrite`.
pub fn decode_write(message: &[u8]) -> Result<(u16, u32, u64, usize), DecodeError> {
    match Tmessage::decode(message)? {
        (tag, Tmessage::Write { fid, offset, data }) => Ok((tag, fid, offset, data.0.len())),
        (_, other) => Err(DecodeError::Type(other.code())),
    }
}

/// Returns the header of a `Twrite` with `count` bytes of data, its tag yet to be filled in.
pub fn write_header(fid: u32, offset: u64, count: usize) -> Vec<u8> {
    let mut header = Vec::with_capacity(IO_HEADER_SIZE as usize);
    Tmessage::Write { fid, offset, data: Data(&[]) }.encode(0, &mut header);
    let count = u32::try_from(count).expect("counts are below the message size");
    let (size, end) = (header.len() as u32 + count, header.len());
    header[..4].copy_from_slice(&size.to_le_bytes());
    header[end - 4..].copy_from_slice(&count.to_le_bytes());
    header
}

/// Returns the header of an `Rread` with `count` bytes of data.
pub fn read_header(tag: u16, count: usize) -> [u8; READ_HEADER_SIZE] {
    data_header(117, tag, count)
}

/// Returns the header of an `Rreaddir` with `count` bytes of entries.
pub fn readdir_header(tag: u16, count: usize) -> [u8; READ_HEADER_SIZE] {
    data_header(41, tag, count)
}

fn data_header(code: u8, tag: u16, count: usize) -> [u8; READ_HEADER_SIZE] {
    let count = u32::try_from(count).expect("counts are below the message size");
    let mut header = [0; READ_HEADER_SIZE];
    header[..4].copy_from_slice(&(count + READ_HEADER_SIZE as u32).to_le_bytes());
    header[4] = code;
    header[5..7].copy_from_slice(&tag.to_le_bytes());
    header[7..].copy_from_slice(&count.to_le_bytes());
    header
}

/// Appends one entry of an `Rreaddir`: qid, cookie of the next, type, name.
pub fn put_dirent(qid: Qid, cookie: u64, kind: u8, name: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    qid.put(out);
    cookie.put(out);
    kind.put(out);
    name.put(out);
    assert_eq!(out.len() - start, dirent_size(name), "a name is as short as names are");
}

/// Returns the size of such an entry, bytes.
pub fn dirent_size(name: &[u8]) -> usize {
    13 + 8 + 1 + 2 + name.len()
}

/// One decoded entry of an `Rreaddir`: qid, cookie of the next, type, name.
pub type Dirent<'a> = (Qid, u64, u8, &'a [u8]);

/// Decodes the data of an `Rreaddir`.
///
/// # Errors
/// If an entry is truncated.
pub fn dirents(data: &[u8]) -> Result<Vec<Dirent<'_>>, DecodeError> {
    let mut reader = Reader::new(data);
    let mut entries = Vec::new();
    while !reader.is_empty() {
        entries.push((reader.get()?, reader.get()?, reader.get()?, reader.get()?));
    }
    Ok(entries)
}
