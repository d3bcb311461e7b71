//! Directory listings: entries in the order of their cookies, including the virtual directory of
//! snapshots.

use super::permission::SEARCH;
use super::plan::{Answer, Plan, Planned, Planner, answer};
use super::read_view::{ReadView, Stop};
use super::record::{ENTRIES, Entry as Record, INODES, Inode, ROOT, key};
use super::{NodeRef, file_handle};
use crate::request::{OpenId, Reply};
use base::op::{Detail, Entry};
use base::{Error, Kind, Name};
use std::ops::ControlFlow;
use store::{Missing, View};

/// Size of an entry besides its name, in bytes as protocols count.
pub(super) const OVERHEAD: usize = 24;

/// Maximum size of one listing, bytes, and of one with attributes, entries: a plan is made in one
/// go, before other requests have a turn, and its missing pages are fetched at once.
const BYTES_MAX: usize = 64 << 10;
const STATS_MAX: usize = 256;

impl Planner<'_> {
    /// Lists the entries behind a cookie: about `bytes_max` bytes of them, but at least one if
    /// there is one.
    pub(super) fn list(
        &self,
        open: OpenId,
        cookie: u64,
        bytes_max: usize,
        detail: Detail,
    ) -> Planned {
        let what = self.volume.open(open).what;
        let (view, ino) = match what.node_ref {
            NodeRef::Snapshots => return self.list_snapshots(cookie, bytes_max, detail),
            NodeRef::File(view, ino) if what.kind == Kind::Directory => (view, ino),
            NodeRef::File(..) => return Err(Error::NotDirectory.into()),
        };
        let read_view = self.read_view(view)?;
        let mut entries = entries(&read_view, ino, cookie, bytes_max.min(BYTES_MAX))?;
        let dir = read_view.inode(ino)?;
        if detail.has_stat() {
            entries.truncate(STATS_MAX);
        }
        if detail.has_stat() && self.who.may(&dir, SEARCH).is_ok() {
            add_stats(&read_view, &mut entries)?;
        }
        if detail.has_handle() {
            add_handles(view, &mut entries);
        }
        let touched = match entries.is_empty() {
            true => Vec::new(),
            false => self.note_access(view, ino, &dir),
        };
        Ok(Plan::Answer(Answer::Reply(Reply::Entries(entries)), touched))
    }

    fn list_snapshots(&self, cookie: u64, bytes_max: usize, detail: Detail) -> Planned {
        let mut entries = Vec::new();
        let mut bytes = 0;
        for (name, id, _date) in self.volume.store.snapshots() {
            let (place, Ok(name)) = (id.0.saturating_add(1), Name::new(name)) else { continue };
            if place <= cookie {
                continue;
            }
            bytes += name.as_bytes().len() + OVERHEAD;
            if bytes > bytes_max && !entries.is_empty() {
                break;
            }
            let view = View::Snapshot(id);
            let stat = match detail.has_stat() {
                true => {
                    let read_view = self.read_view(view)?;
                    Some(read_view.stat(ROOT, &read_view.inode(ROOT)?))
                }
                false => None,
            };
            let (kind, cookie) = (Kind::Directory, place);
            let handle = None;
            entries.push(Entry { cookie, inode: ROOT, device: None, kind, name, stat, handle });
            if detail.has_handle() {
                let last = entries.len() - 1;
                add_handles(view, &mut entries[last..]);
            }
        }
        answer(Reply::Entries(entries))
    }
}

fn entries(
    read_view: &ReadView<'_>,
    dir: u64,
    cookie: u64,
    bytes_max: usize,
) -> Result<Vec<Entry>, Stop> {
    let Some(from) = cookie.checked_add(1) else { return Ok(Vec::new()) };
    match scan(read_view, dir, from, bytes_max) {
        // A partial listing is a reply, too.
        (entries, _) if !entries.is_empty() => Ok(entries),
        (none, End::All | End::Full) => Ok(none),
        (_, End::Missing(missing)) => Err(missing.into()),
        (_, End::Damaged) => Err(Error::Io.into()),
    }
}

/// Reason for the end of a listing.
pub(super) enum End {
    /// The end of the directory.
    All,
    /// No more entries fit.
    Full,
    /// The next entry is not in memory.
    Missing(Missing),
    /// The next entry is damaged.
    Damaged,
}

/// Returns the entries of a directory from a cookie on: about `bytes_max` bytes of them, and at
/// least one if there is one.
pub(super) fn scan(
    read_view: &ReadView<'_>,
    dir: u64,
    from: u64,
    bytes_max: usize,
) -> (Vec<Entry>, End) {
    let (mut entries, mut bytes, mut end) = (Vec::new(), 0, End::All);
    let scanned = read_view.scan(ENTRIES, dir, from, &mut |cookie, value| {
        let Some(Record { ino, kind, name }) = Record::decode(&value.bytes()) else {
            end = End::Damaged;
            return ControlFlow::Break(());
        };
        bytes += name.as_bytes().len() + OVERHEAD;
        if bytes > bytes_max && !entries.is_empty() {
            end = End::Full;
            return ControlFlow::Break(());
        }
        let (stat, handle) = (None, None);
        entries.push(Entry { cookie, inode: ino, device: None, kind, name, stat, handle });
        ControlFlow::Continue(())
    });
    match scanned {
        Ok(()) => (entries, end),
        Err(missing) => (entries, End::Missing(missing)),
    }
}

/// Adds the identities of the entries with attributes.
fn add_handles(view: View, entries: &mut [Entry]) {
    for entry in entries {
        let device = entry.stat.as_ref().map(|stat| stat.device);
        let node_ref = NodeRef::File(view, entry.inode);
        entry.handle = device.map(|device| file_handle::of(node_ref, device));
    }
}

/// Adds the attributes of all entries; missing inodes are fetched all at once.
fn add_stats(read_view: &ReadView<'_>, entries: &mut [Entry]) -> Result<(), Stop> {
    assert!(entries.iter().all(|entry| entry.stat.is_none()), "nothing was looked at yet");
    let mut missing: Option<Missing> = None;
    for entry in entries {
        match read_view.reader.get(INODES, &key(entry.inode)) {
            Ok(value) => {
                let inode = value.and_then(|value| Inode::decode(&value.bytes()));
                entry.stat = inode.map(|inode| read_view.stat(entry.inode, &inode));
            }
            Err(more) => {
                missing = Some(match missing {
                    Some(missing) => missing.merge(more),
                    None => more,
                })
            }
        }
    }
    missing.map_or(Ok(()), |missing| Err(missing.into()))
}
