//! Replies to the kernel, and notifications.

use super::{FileLock, OUT_HEADER_SIZE, Timestamp, VERSION, init};
use std::time::Duration;

/// Attributes of a file (`struct fuse_attr`).
#[allow(missing_docs, reason = "the kernel's own names")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    pub ino: u64,
    pub size: u64,
    pub blocks: u64,
    pub atime: Timestamp,
    pub mtime: Timestamp,
    pub ctime: Timestamp,
    /// Type and permissions.
    pub mode: u32,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    /// Device number, as the kernel encodes it.
    pub rdev: u32,
    pub blksize: u32,
}

impl Attributes {
    fn put(&self, out: &mut Vec<u8>) {
        let Timestamp { secs: atime, nanos: atime_ns } = self.atime;
        let Timestamp { secs: mtime, nanos: mtime_ns } = self.mtime;
        let Timestamp { secs: ctime, nanos: ctime_ns } = self.ctime;
        let wide = [self.ino, self.size, self.blocks, atime, mtime, ctime];
        wide.iter().for_each(|field| out.extend(field.to_ne_bytes()));
        let ids = [self.mode, self.nlink, self.uid, self.gid, self.rdev, self.blksize, 0];
        let narrow = [atime_ns, mtime_ns, ctime_ns].into_iter().chain(ids);
        narrow.for_each(|field| out.extend(field.to_ne_bytes()));
    }
}

/// A name's node and attributes (`struct fuse_entry_out`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Node; 0 for a name that does not exist.
    pub node: u64,
    /// Time for which the kernel may cache the name.
    pub name_valid: Duration,
    /// Time for which the kernel may cache the attributes.
    pub attr_valid: Duration,
    /// Attributes of the node.
    pub attributes: Attributes,
}

impl Entry {
    fn put(&self, out: &mut Vec<u8>) {
        let seconds = [self.name_valid.as_secs(), self.attr_valid.as_secs()];
        let wide = [self.node, 0].into_iter().chain(seconds);
        wide.for_each(|field| out.extend(field.to_ne_bytes()));
        out.extend(self.name_valid.subsec_nanos().to_ne_bytes());
        out.extend(self.attr_valid.subsec_nanos().to_ne_bytes());
        self.attributes.put(out);
    }
}

/// Body of the reply to `FUSE_INIT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InitReply {
    /// Minor version of the conversation.
    pub minor: u32,
    /// Maximum read-ahead, in bytes.
    pub max_readahead: u32,
    /// Accepted capabilities, bits of [`init`].
    pub flags: u64,
    /// Maximum number of background requests.
    pub max_background: u16,
    /// Maximum data of a write, in bytes.
    pub max_write: u32,
    /// Maximum data of a request, in pages.
    pub max_pages: u16,
}

impl InitReply {
    /// Encodes the body.
    pub fn encode(&self) -> Vec<u8> {
        let (low, high) = (self.flags as u32, (self.flags >> 32) as u32);
        assert!(high == 0 || self.flags & init::INIT_EXT != 0, "a second word is announced");
        let mut out = Vec::with_capacity(64);
        for field in [VERSION.0, self.minor, self.max_readahead, low] {
            out.extend(field.to_ne_bytes());
        }
        out.extend(self.max_background.to_ne_bytes());
        out.extend((self.max_background / 4 * 3).to_ne_bytes());
        out.extend(self.max_write.to_ne_bytes());
        // Timestamps have a granularity of one nanosecond.
        out.extend(1_u32.to_ne_bytes());
        out.extend(self.max_pages.to_ne_bytes());
        out.extend(0_u16.to_ne_bytes());
        out.extend(high.to_ne_bytes());
        out.resize(64, 0);
        out
    }
}

/// Space of a file system (`struct fuse_kstatfs`).
#[allow(missing_docs, reason = "the kernel's own names")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatFs {
    pub blocks: u64,
    pub bfree: u64,
    pub bavail: u64,
    pub files: u64,
    pub ffree: u64,
    pub bsize: u32,
    pub namelen: u32,
}

/// Returns the header of a reply whose body has `size` bytes.
pub fn header(unique: u64, size: usize) -> [u8; OUT_HEADER_SIZE] {
    let size = u32::try_from(OUT_HEADER_SIZE + size).expect("replies are below 4 GiB");
    head(size, 0, unique)
}

/// Returns a whole error reply.
pub fn error(unique: u64, errno: u32) -> [u8; OUT_HEADER_SIZE] {
    assert!((1..4096).contains(&errno), "{errno} is no errno");
    head(OUT_HEADER_SIZE as u32, (-errno.cast_signed()).cast_unsigned(), unique)
}

fn head(size: u32, code: u32, unique: u64) -> [u8; OUT_HEADER_SIZE] {
    let mut header = [0; OUT_HEADER_SIZE];
    header[..4].copy_from_slice(&size.to_ne_bytes());
    header[4..8].copy_from_slice(&code.to_ne_bytes());
    header[8..].copy_from_slice(&unique.to_ne_bytes());
    header
}

/// Encodes the body of a reply with attributes.
pub fn attr_reply(valid: Duration, attributes: &Attributes) -> Vec<u8> {
    let mut out = Vec::with_capacity(104);
    out.extend(valid.as_secs().to_ne_bytes());
    out.extend(valid.subsec_nanos().to_ne_bytes());
    out.extend(0_u32.to_ne_bytes());
    attributes.put(&mut out);
    assert_eq!(out.len(), 104, "struct fuse_attr_out");
    out
}

/// Encodes the body of a reply with an entry.
pub fn entry_reply(entry: &Entry) -> Vec<u8> {
    let mut out = Vec::with_capacity(128);
    entry.put(&mut out);
    assert_eq!(out.len(), 128, "struct fuse_entry_out");
    out
}

/// Encodes the body of a reply with an open file.
pub fn open_reply(handle: u64, flags: u32) -> Vec<u8> {
    let mut out = Vec::with_capacity(16);
    out.extend(handle.to_ne_bytes());
    out.extend(flags.to_ne_bytes());
    out.extend(0_u32.to_ne_bytes());
    out
}

/// Encodes the body of a reply to a write.
pub fn write_reply(count: u32) -> Vec<u8> {
    size_reply(count)
}

/// Encodes the body of a reply with the size of an extended attribute or list.
pub fn size_reply(size: u32) -> Vec<u8> {
    let mut out = Vec::with_capacity(8);
    out.extend(size.to_ne_bytes());
    out.extend(0_u32.to_ne_bytes());
    out
}

/// Encodes the body of a reply with an offset.
pub fn lseek_reply(offset: u64) -> Vec<u8> {
    offset.to_ne_bytes().to_vec()
}

/// Encodes the body of a reply with a lock.
pub fn lock_reply(lock: &FileLock) -> Vec<u8> {
    let mut out = Vec::with_capacity(24);
    out.extend(lock.start.to_ne_bytes());
    out.extend(lock.end.to_ne_bytes());
    out.extend(lock.kind.to_ne_bytes());
    out.extend(lock.pid.to_ne_bytes());
    out
}

/// Encodes the body of a reply to `FUSE_STATFS`.
pub fn statfs_reply(space: &StatFs) -> Vec<u8> {
    let mut out = Vec::with_capacity(80);
    for field in [space.blocks, space.bfree, space.bavail, space.files, space.ffree] {
        out.extend(field.to_ne_bytes());
    }
    for field in [space.bsize, space.namelen, space.bsize] {
        out.extend(field.to_ne_bytes());
    }
    out.resize(80, 0);
    out
}

/// Appends a directory entry: number, offset of the next one, `d_type`, name. Returns whether it
/// fits within `size_max` bytes.
pub fn put_dirent(
    (ino, next, kind, name): (u64, u64, u8, &[u8]),
    size_max: usize,
    out: &mut Vec<u8>,
) -> bool {
    let padded = (24 + name.len()).next_multiple_of(8);
    if out.len() + padded > size_max {
        return false;
    }
    let end = out.len() + padded;
    out.extend(ino.to_ne_bytes());
    out.extend(next.to_ne_bytes());
    let length = u32::try_from(name.len()).expect("names are short");
    out.extend(length.to_ne_bytes());
    out.extend(u32::from(kind).to_ne_bytes());
    out.extend(name);
    out.resize(end, 0);
    true
}

/// Appends a directory entry with attributes, like [`put_dirent`]. A node of 0 means none.
pub fn put_dirent_plus(
    entry: &Entry,
    (ino, next, kind, name): (u64, u64, u8, &[u8]),
    size_max: usize,
    out: &mut Vec<u8>,
) -> bool {
    let start = out.len();
    entry.put(out);
    let fits = put_dirent((ino, next, kind, name), size_max, out);
    if !fits {
        out.truncate(start);
    }
    fits
}

/// Returns the notification that a name of a directory is to be looked up again. Kernels before 6.2
/// drop it, with what is mounted beneath it.
pub fn expire_entry(dir: u64, name: &[u8]) -> Vec<u8> {
    const INVAL_ENTRY: u32 = 3;
    const EXPIRE_ONLY: u32 = 1;
    let size = OUT_HEADER_SIZE + 16 + name.len() + 1;
    let mut out = head(u32::try_from(size).expect("a name is short"), INVAL_ENTRY, 0).to_vec();
    out.extend(dir.to_ne_bytes());
    out.extend(u32::try_from(name.len()).expect("a name is short").to_ne_bytes());
    out.extend(EXPIRE_ONLY.to_ne_bytes());
    out.extend(name);
    out.push(0);
    assert_eq!(out.len(), size, "struct fuse_notify_inval_entry_out");
    out
}

/// Returns the notification that invalidates the attributes of a node; with `data` also its pages.
pub fn inval_inode(node: u64, data: bool) -> Vec<u8> {
    const INVAL_INODE: u32 = 2;
    let offset: i64 = if data { 0 } else { -1 };
    let size = OUT_HEADER_SIZE + 24;
    let mut out = head(u32::try_from(size).expect("forty"), INVAL_INODE, 0).to_vec();
    out.extend(node.to_ne_bytes());
    out.extend(offset.to_ne_bytes());
    out.extend(0_i64.to_ne_bytes());
    assert_eq!(out.len(), size, "struct fuse_notify_inval_inode_out");
    out
}
