//! What is known about a file.

use crate::Time;

/// What a file is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Bytes.
    #[default]
    File,
    /// Entries.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A unix socket.
    Socket,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
}

impl Kind {
    /// Every kind, for tables and tests.
    pub const ALL: [Kind; 7] = [
        Kind::File,
        Kind::Directory,
        Kind::Symlink,
        Kind::Fifo,
        Kind::Socket,
        Kind::CharDevice,
        Kind::BlockDevice,
    ];

    /// The type bits of a Linux `st_mode` (`stat(2)`).
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

    /// The kind in a Linux `st_mode`; a mode without type bits is a plain file, as for `mknod(2)`.
    pub fn from_mode(mode: u32) -> Option<Kind> {
        let bits = mode & 0o170_000;
        if bits == 0 {
            return Some(Kind::File);
        }
        Kind::ALL.into_iter().find(|kind| kind.mode_bits() == bits)
    }

    /// The type byte of a directory entry (`DT_…`): the type bits shifted, as Linux defines it.
    pub fn dirent_type(self) -> u8 {
        u8::try_from(self.mode_bits() >> 12).expect("four bits")
    }
}

/// The attributes of one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// What it is.
    pub kind: Kind,
    /// Permission bits with set-id and sticky bits, below `0o10000`.
    pub mode: u32,
    /// How many names it has.
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
    /// Which device the file is on, as a number that is the same for the same device.
    pub device: u64,
    /// Which file on that device.
    pub inode: u64,
    /// For a device file: which device it stands for (Linux's encoding).
    pub special_device: u64,
    /// Last read.
    pub accessed: Time,
    /// Last change of the contents.
    pub modified: Time,
    /// Last change of the attributes.
    pub changed: Time,
}

/// The device numbers of trees that have files in which is said what comes, from here on: a tree's
/// number is added. No host has such devices.
pub const SAYING_DEVICES: u64 = 0xfffd << 48;

impl Stat {
    /// Whether a read of it may wait for something to be said, and holds nothing meanwhile.
    pub fn says_what_comes(&self) -> bool {
        self.device >> 16 == SAYING_DEVICES >> 16 && self.size == 0
    }

    /// The whole Linux `st_mode`.
    pub fn full_mode(&self) -> u32 {
        self.kind.mode_bits() | self.mode
    }

    /// The same file: same device and inode.
    pub fn is_same(&self, other: &Stat) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }

    /// A number that differs after every change that the clock can tell apart.
    pub fn version(&self) -> u64 {
        let mix = |t: Time| (t.secs as u64).wrapping_mul(1_000_000_007) ^ u64::from(t.nanos);
        mix(self.modified).rotate_left(20) ^ mix(self.changed) ^ self.size
    }
}

/// One version of one file, as entity tags show it. A file that takes the place of another one has
/// another inode; a file that is changed has another date.
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
    /// The version of the file that these attributes are of.
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
    /// Whether the entry with these attributes (`None`: there is no entry) fulfils it.
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

/// Attributes to be changed; what is `None` stays.
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
    /// Last read.
    pub accessed: Option<SetTime>,
    /// Last change of the contents.
    pub modified: Option<SetTime>,
}

/// A date to be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The server's clock decides.
    Now,
    /// This date.
    At(Time),
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// It will be read.
    pub read: bool,
    /// It will be written.
    pub write: bool,
    /// Writes go to the end, whatever their offset.
    pub append: bool,
    /// It loses its contents when opened.
    pub truncate: bool,
    /// Every write is durable before it is acknowledged.
    pub sync: bool,
}

impl Access {
    /// For reading only.
    pub const READ: Access =
        Access { read: true, write: false, append: false, truncate: false, sync: false };

    /// Whether anything could be changed through such an open file.
    pub fn changes(self) -> bool {
        self.write || self.append || self.truncate
    }
}

/// How full a file system is (`statfs(2)`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatFs {
    /// The file system's magic number.
    pub kind: u32,
    /// Size of a block, bytes.
    pub block_size: u32,
    /// Blocks in all.
    pub blocks: u64,
    /// Blocks that are free.
    pub blocks_free: u64,
    /// Blocks that are free for ordinary users.
    pub blocks_available: u64,
    /// Inodes in all.
    pub files: u64,
    /// Inodes that are free.
    pub files_free: u64,
    /// A number that identifies the file system.
    pub id: u64,
    /// Longest name, bytes.
    pub name_max: u32,
}
