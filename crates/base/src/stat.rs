//! Attributes of files.

use crate::Time;

/// Kind of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A regular file.
    #[default]
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A Unix socket.
    Socket,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
}

impl Kind {
    /// All kinds, for tables and tests.
    pub const ALL: [Kind; 7] = [
        Kind::File,
        Kind::Directory,
        Kind::Symlink,
        Kind::Fifo,
        Kind::Socket,
        Kind::CharDevice,
        Kind::BlockDevice,
    ];

    /// Returns the name of the kind in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Kind::File => "file",
            Kind::Directory => "directory",
            Kind::Symlink => "symlink",
            Kind::Fifo => "fifo",
            Kind::Socket => "socket",
            Kind::CharDevice => "char-device",
            Kind::BlockDevice => "block-device",
        }
    }

    /// Returns the type bits of a Linux `st_mode` (`stat(2)`).
    pub fn mode_bits(self) -> u32 {
        match self {
            Kind::File => 0o100_000,
            Kind::Directory => 0o040_000,
            Kind::Symlink => 0o120_000,
            Kind::Fifo => 0o010_000,
            Kind::Socket => 0o140_000,
            Kind::CharDevice => 0o020_000,
            Kind::BlockDevice => 0o060_000,
        }
    }

    /// Returns the kind of a Linux `st_mode`; a mode without type bits is a plain file, as for
    /// `mknod(2)`.
    pub fn from_mode(mode: u32) -> Option<Kind> {
        let bits = mode & 0o170_000;
        if bits == 0 {
            return Some(Kind::File);
        }
        Kind::ALL.into_iter().find(|kind| kind.mode_bits() == bits)
    }

    /// Returns the type byte of a directory entry (`DT_…`): the type bits shifted, as in Linux.
    pub fn dirent_type(self) -> u8 {
        u8::try_from(self.mode_bits() >> 12).expect("four bits")
    }
}

/// Attributes of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// Kind of the file.
    pub kind: Kind,
    /// Permission bits with set-id and sticky bits, below `0o10000`.
    pub mode: u32,
    /// Number of hard links.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Length, bytes.
    pub size: u64,
    /// Storage used, in blocks of 512 bytes.
    pub blocks: u64,
    /// Preferred size of a transfer, bytes.
    pub block_size: u32,
    /// Device number, the same for all files of a device.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// Device number of a device file (Linux's encoding).
    pub special_device: u64,
    /// Time of the last read.
    pub accessed: Time,
    /// Time of the last change of the contents.
    pub modified: Time,
    /// Time of the last change of the attributes.
    pub changed: Time,
    /// Time of the creation, if the file system may use the inode number of a removed file again.
    pub created: Option<Time>,
}

/// First device number of trees with stream files: a tree's number is added. No host has such
/// devices.
pub const SAYING_DEVICES: u64 = 0xfffd << 48;

/// Returns the number of a file, given by device and inode, for clients: its inode number on the
/// served directory's own `device`, a number of a disjoint range on others. A file that passes
/// through several servers is mapped by each, perhaps each time for the same device: applying the
/// map twice must not undo it.
pub fn file_number((of, inode): (u64, u64), device: u64) -> u64 {
    const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;
    let moved = (inode ^ of.wrapping_mul(SPREAD)).wrapping_mul(SPREAD) | 1 << 63;
    if of == device { inode } else { moved }
}

impl Stat {
    /// Returns whether the file is a stream: a read may wait for data, and occupies nothing
    /// meanwhile.
    pub fn is_stream(&self) -> bool {
        self.device >> 16 == SAYING_DEVICES >> 16 && self.size == 0
    }

    /// Returns the whole Linux `st_mode`.
    pub fn full_mode(&self) -> u32 {
        self.kind.mode_bits() | self.mode
    }

    /// Returns whether both are of the same file: same device and inode.
    pub fn is_same(&self, other: &Stat) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }

    /// Returns a number that differs after every change that the clock can distinguish.
    pub fn version(&self) -> u64 {
        let mix = |t: Time| (t.secs as u64).wrapping_mul(1_000_000_007) ^ u64::from(t.nanos);
        mix(self.modified).rotate_left(20) ^ mix(self.changed) ^ self.size
    }
}

/// One version of one file, as in entity tags. A replacing file has another inode; a changed file
/// has other timestamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileVersion {
    /// Inode number.
    pub inode: u64,
    /// Length, bytes.
    pub size: u64,
    /// [`Stat::version`].
    pub change: u64,
}

impl Stat {
    /// Returns the version of the file with these attributes.
    pub fn file_version(&self) -> FileVersion {
        FileVersion { inode: self.inode, size: self.size, change: self.version() }
    }
}

/// Precondition of a change: the present state of a directory entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// No entry.
    Absent,
    /// A plain file, or no entry.
    PlainFile,
    /// A plain file in exactly this version.
    Version(FileVersion),
}

impl Expected {
    /// Returns whether the entry with these attributes (`None`: no entry) fulfils it.
    pub fn is_met_by(self, present: Option<&Stat>) -> bool {
        match (self, present) {
            (Expected::Absent | Expected::PlainFile, None) => true,
            (Expected::Absent, Some(_)) | (Expected::Version(_), None) => false,
            (Expected::PlainFile, Some(stat)) => stat.kind == Kind::File,
            (Expected::Version(version), Some(stat)) => {
                stat.kind == Kind::File && stat.file_version() == version
            }
        }
    }
}

/// Attributes to change; `None` leaves the attribute unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetStat {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Length, bytes.
    pub size: Option<u64>,
    /// Time of the last read.
    pub accessed: Option<SetTime>,
    /// Time of the last change of the contents.
    pub modified: Option<SetTime>,
}

/// A timestamp to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The server's current time.
    Now,
    /// This time.
    At(Time),
}

/// Access mode of an open file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Open for reading.
    pub read: bool,
    /// Open for writing.
    pub write: bool,
    /// Writes append, whatever their offset.
    pub append: bool,
    /// Truncate when opening.
    pub truncate: bool,
    /// Every write is durable before it is acknowledged.
    pub sync: bool,
}

impl Access {
    /// Read-only access.
    pub const READ: Access =
        Access { read: true, write: false, append: false, truncate: false, sync: false };

    /// Returns whether an open with this access can change the file.
    pub fn changes(self) -> bool {
        self.write || self.append || self.truncate
    }
}

/// Usage of a file system (`statfs(2)`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatFs {
    /// The file system's magic number.
    pub kind: u32,
    /// Size of a block, bytes.
    pub block_size: u32,
    /// Total number of blocks.
    pub blocks: u64,
    /// Number of free blocks.
    pub blocks_free: u64,
    /// Number of blocks available to ordinary users.
    pub blocks_available: u64,
    /// Total number of inodes.
    pub files: u64,
    /// Number of free inodes.
    pub files_free: u64,
    /// Identifier of the file system.
    pub id: u64,
    /// Maximum length of a name, bytes.
    pub name_max: u32,
}
