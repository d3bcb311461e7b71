//! The format of an empty tree.

use super::record::{
    COUNTERS_KEY, Counters, INODES, Inode, ROOT, SETTINGS, SETTINGS_KEY, Settings, key,
};
use base::{Kind, Time};
use store::Change;

/// Parameters of a new tree.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    /// Owner of the root directory.
    pub uid: u32,
    /// Group of the root directory.
    pub gid: u32,
    /// Permission bits of the root directory.
    pub mode: u32,
    /// Timestamps of the root directory.
    pub date: Time,
    /// A random number: makes cookies in directories unpredictable, and identifies the volume.
    pub seed: u64,
    /// Maximum number of files of every kind; `u64::MAX`: no limit.
    pub inodes_max: u64,
    /// Maximum number of bytes of contents; `u64::MAX`: no limit.
    pub bytes_max: u64,
}

/// Returns the changes that create an empty tree in an empty store.
pub fn format(format: &Format) -> Vec<Change> {
    let Format { uid, gid, mode, date, seed, inodes_max, bytes_max } = *format;
    let settings = Settings { quotas: false, seed, inodes_max, bytes_max };
    let counters = Counters { next: ROOT + 1, inodes: 1, blocks: 0 };
    let root = Inode {
        kind: Kind::Directory,
        mode: mode & 0o7777,
        links: 2,
        uid,
        gid,
        accessed: date,
        modified: date,
        changed: date,
        parent: ROOT,
        ..Inode::default()
    };
    let put = |table, key: &[u8], value| Change::Put { table, key: key.to_vec(), value };
    vec![
        put(SETTINGS, &SETTINGS_KEY, settings.encode()),
        put(SETTINGS, &COUNTERS_KEY, counters.encode()),
        put(INODES, &key(ROOT), root.encode()),
    ]
}
