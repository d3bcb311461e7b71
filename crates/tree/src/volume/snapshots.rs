//! The virtual directory of snapshots: each is a whole, immutable former tree.

use super::plan::{Plan, Planned, Planner, Progress, answer};
use super::read_view::Stop;
use super::record::ROOT;
use crate::request::Reply;
use base::{Error, Kind, Name, Stat};
use store::{SnapshotId, View};

/// Inode number of the directory of snapshots, which no file reaches.
pub(super) const SNAPSHOTS_INODE: u64 = u64::MAX - 1;

impl Planner<'_> {
    /// Returns a snapshot by name.
    pub(super) fn snapshot(&self, name: &Name) -> Option<SnapshotId> {
        let mut all = self.volume.store.snapshots();
        all.find(|(known, ..)| *known == name.as_bytes()).map(|(_, id, _)| id)
    }

    pub(super) fn snapshots_stat(&self) -> Stat {
        let device = self.volume.device();
        let all = self.volume.store.snapshots();
        let (count, newest) = all.fold((0, self.volume.wall), |(count, newest), (_, _, date)| {
            (count + 1, newest.max(date))
        });
        Stat {
            kind: Kind::Directory,
            mode: 0o555,
            links: 2 + count,
            block_size: 4096,
            device,
            inode: SNAPSHOTS_INODE,
            accessed: newest,
            modified: newest,
            changed: newest,
            ..Stat::default()
        }
    }

    /// Creates a snapshot, as the creation of a directory.
    pub(super) fn make_snapshot(&self, name: &Name, progress: &Progress) -> Planned {
        let found = self.snapshot(name);
        match (progress, found) {
            (Progress::Made, Some(id)) => {
                let read_view = self.read_view(View::Snapshot(id))?;
                return answer(Reply::Stat(read_view.stat(ROOT, &read_view.inode(ROOT)?)));
            }
            (Progress::Made, None) => return Err(Error::NotFound.into()),
            (Progress::None | Progress::Placed(..), Some(_)) => return Err(Error::Exists.into()),
            (Progress::None | Progress::Placed(..), None) => {}
        }
        if !name.plain() {
            return Err(Error::Exists.into());
        }
        self.expect_owner()?;
        Ok(Plan::Snapshot(name.clone()))
    }

    /// # Errors
    /// `NotPermitted` unless the caller owns the volume, that is, its root, or is root.
    fn expect_owner(&self) -> Result<(), Stop> {
        let root = self.read_view(View::Present)?.inode(ROOT)?;
        if self.who.owns(&root) { Ok(()) } else { Err(Error::NotPermitted.into()) }
    }

    /// Drops a snapshot, as the removal of a directory, unless it is in use.
    pub(super) fn drop_snapshot(&self, name: &Name, directory: Option<bool>) -> Planned {
        if !name.plain() {
            return Err(Error::Invalid.into());
        }
        let id = self.snapshot(name).ok_or(Error::NotFound)?;
        self.expect_owner()?;
        if directory == Some(false) {
            return Err(Error::IsDirectory.into());
        }
        if self.volume.is_visited(id) {
            return Err(Error::Busy.into());
        }
        Ok(Plan::DropSnapshot(name.clone()))
    }
}
