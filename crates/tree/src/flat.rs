//! Flat directories of fixed files, shared by the server's own trees. Files are numbers; the root
//! is zero.

use crate::request::{Ask, NodeId, Reply};
use base::op::Entry;
use base::{Buf, Error, Kind, Name, Stat, StatFs, Time};

/// Number of the directory.
pub const ROOT: usize = 0;

/// A file: its name, its number (ascending in a list of files), and its permission bits.
pub type File = (&'static str, usize, u32);

/// Attributes common to all files of a directory.
#[derive(Clone, Copy, Debug)]
pub struct Alike {
    /// Device number.
    pub device: u64,
    /// Owner.
    pub uid: u32,
    /// Timestamps.
    pub date: Time,
}

/// Returns the number of the file with this name.
///
/// # Errors
/// `NotFound` if there is none.
pub fn find(files: &[File], name: &Name) -> Result<usize, Error> {
    if matches!(name.as_bytes(), b"." | b"..") {
        return Ok(ROOT);
    }
    let found = files.iter().find(|(known, ..)| known.as_bytes() == name.as_bytes());
    found.map(|(_, number, _)| *number).ok_or(Error::NotFound)
}

/// Returns the attributes of a file or of the directory.
pub fn stat(files: &[File], number: usize, alike: &Alike) -> Stat {
    let file = files.iter().find(|(_, file, _)| *file == number);
    let (kind, mode) = file.map_or((Kind::Directory, 0o555), |(.., mode)| (Kind::File, *mode));
    let Alike { device, uid, date } = *alike;
    Stat {
        device,
        inode: number as u64,
        kind,
        mode,
        links: if kind == Kind::Directory { 2 } else { 1 },
        uid,
        accessed: date,
        modified: date,
        changed: date,
        block_size: 4096,
        ..Stat::default()
    }
}

/// Returns the entries behind a cookie.
pub fn list(files: &[File], cookie: u64, with_stat: bool, alike: &Alike) -> Reply {
    assert!(files.is_sorted_by_key(|(_, number, _)| number), "numbers are cookies");
    let entry = |(name, number, _): &File| Entry {
        cookie: *number as u64,
        inode: *number as u64,
        device: None,
        kind: Kind::File,
        name: Name::new(name.as_bytes()).expect("a plain name"),
        stat: with_stat.then(|| stat(files, *number, alike)),
        handle: None,
    };
    let behind = files.iter().filter(|(_, number, _)| *number as u64 > cookie);
    Reply::Entries(behind.map(entry).collect())
}

/// Performs a walk in the tree of `from`: `find` looks up a name in the root, `stat` returns a
/// file's attributes.
///
/// # Errors
/// `NotFound`, or `NotDirectory` below a file, if the first name is not found.
pub fn walk(
    from: NodeId,
    names: &[Name],
    find: impl Fn(&Name) -> Result<usize, Error>,
    stat: impl Fn(usize) -> Stat,
) -> Result<Reply, Error> {
    let (mut node, mut stats) = (from.local(), Vec::new());
    for name in names {
        let next = if node == ROOT { find(name) } else { Err(Error::NotDirectory) };
        match next {
            Ok(found) => node = found,
            Err(error) if stats.is_empty() => return Err(error),
            Err(_) => return Ok(Reply::Walked(stats, None)),
        }
        stats.push(stat(node));
    }
    Ok(Reply::Walked(stats, Some(NodeId::new(from.tree(), node))))
}

/// Replies to requests that all of the server's own trees handle alike: these have no extended
/// attributes, links or devices, and nothing to make durable.
///
/// # Errors
/// `NoAttribute`; `Invalid` for a readlink; `Unsupported` for all other requests.
pub fn answer(ask: &Ask) -> Result<Reply, Error> {
    #[allow(clippy::wildcard_enum_match_arm, reason = "nothing else can be done there")]
    match ask {
        Ask::Sync { .. } => Ok(Reply::Done),
        Ask::StatFs { .. } => Ok(Reply::StatFs(StatFs { name_max: 255, ..StatFs::default() })),
        Ask::ListAttrs { .. } => Ok(Reply::Bytes(Vec::new())),
        Ask::GetAttr { .. } => Err(Error::NoAttribute),
        Ask::ReadLink { .. } => Err(Error::Invalid),
        _other => Err(Error::Unsupported),
    }
}

/// Returns a part of a file's contents, with headroom.
pub fn part(contents: &[u8], offset: u64, count: u32, headroom: u32) -> Buf {
    let start = usize::try_from(offset).unwrap_or(usize::MAX).min(contents.len());
    let end = start.saturating_add(count as usize).min(contents.len());
    let mut data = Buf::with_room(headroom as usize, end - start);
    data.extend(&contents[start..end]);
    data
}
