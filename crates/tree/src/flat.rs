//! Flat directories of files that have no names elsewhere: what the trees of the server itself
//! share. Files are numbers; the root is zero.

use crate::request::{Ask, NodeId, Reply};
use base::op::Entry;
use base::{Buf, Error, Kind, Name, Stat, StatFs, Time};

/// The number of the directory.
pub const ROOT: usize = 0;

/// A file: its name, its number, greater than that of the one before, and its permission bits.
pub type File = (&'static str, usize, u32);

/// What all files of a directory have alike.
#[derive(Clone, Copy, Debug)]
pub struct Alike {
    /// The number of their device.
    pub device: u64,
    /// Their owner.
    pub uid: u32,
    /// Their dates.
    pub date: Time,
}

/// The number of the file that a name is.
///
/// # Errors
/// `NotFound`.
pub fn find(files: &[File], name: &Name) -> Result<usize, Error> {
    if matches!(name.as_bytes(), b"." | b"..") {
        return Ok(ROOT);
    }
    let found = files.iter().find(|(known, ..)| known.as_bytes() == name.as_bytes());
    found.map(|(_, number, _)| *number).ok_or(Error::NotFound)
}

/// The attributes of a file, or of the directory.
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

/// The entries behind a cookie.
pub fn list(files: &[File], cookie: u64, with_stat: bool, alike: &Alike) -> Reply {
    assert!(files.is_sorted_by_key(|(_, number, _)| number), "numbers are cookies");
    let entry = |(name, number, _): &File| Entry {
        cookie: *number as u64,
        inode: *number as u64,
        device: None,
        kind: Kind::File,
        name: Name::new(name.as_bytes()).expect("a plain name"),
        stat: with_stat.then(|| stat(files, *number, alike)),
    };
    let behind = files.iter().filter(|(_, number, _)| *number as u64 > cookie);
    Reply::Entries(behind.map(entry).collect())
}

/// Walks some names in the tree with this number: `find` says which file a name is, `stat` what a
/// file's attributes are.
///
/// # Errors
/// `NotFound`, or `NotDirectory` behind a file, if not even the first name is there.
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

/// What all trees of the server itself answer alike: they have no attributes, links and devices,
/// and nothing to make durable.
///
/// # Errors
/// `NoAttribute`, `Invalid` for what is no link, `Unsupported` for all that they do not do.
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

/// A part of a file's contents, with room in front of it.
pub fn part(contents: &[u8], offset: u64, count: u32, headroom: u32) -> Buf {
    let start = usize::try_from(offset).unwrap_or(usize::MAX).min(contents.len());
    let end = start.saturating_add(count as usize).min(contents.len());
    let mut data = Buf::with_room(headroom as usize, end - start);
    data.extend(&contents[start..end]);
    data
}
