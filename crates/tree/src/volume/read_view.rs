//! Read views of the tree: the records of one view of the store.

use super::names::{self, ALIKE_MAX};
use super::record::{
    ATTRS, Attr, COUNTERS_KEY, Counters, ENTRIES, Entry, INODES, Inode, ORPHANS, Orphan, ROOT,
    SETTINGS, SETTINGS_KEY, Settings, key, of_pair, pair,
};
use base::{Error, Kind, Name, Stat};
use std::ops::ControlFlow;
use store::{Missing, Reader, SnapshotId, Store, Table, Value, View};

/// Reported size of directories, bytes.
const DIRECTORY_SIZE: u64 = 4096;

/// Maximum depth of a directory for upward traversals: a plan is made in one go, and damage could
/// cause a cycle.
pub(super) const DEPTH_MAX: usize = 4096;

/// Reason why a plan cannot be made (now).
#[derive(Debug)]
pub(super) enum Stop {
    /// Blocks must be fetched first.
    Missing(Missing),
    /// The old contents of this file must be freed first.
    Trimming(u64),
    /// An append to this file by another request must end first.
    Appending(u64),
    /// The request fails.
    Failed(Error),
}

impl From<Missing> for Stop {
    fn from(missing: Missing) -> Stop {
        Stop::Missing(missing)
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Failed(error)
    }
}

/// An entry found by a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) cookie: u64,
    pub(super) ino: u64,
    pub(super) kind: Kind,
}

/// A read view of a volume.
pub(super) struct ReadView<'a> {
    pub(super) reader: Reader<'a>,
    pub(super) settings: Settings,
    pub(super) device: u64,
    /// Size of a block, bytes.
    pub(super) block: u64,
}

/// Reads the settings of the volume.
pub(super) fn settings(reader: &Reader<'_>) -> Result<Settings, Stop> {
    let value = reader.get(SETTINGS, &SETTINGS_KEY)?;
    let settings = value.and_then(|value| Settings::decode(&value.bytes()));
    Ok(settings.ok_or(Error::Io)?)
}

impl<'a> ReadView<'a> {
    /// # Errors
    /// `NotFound` if the snapshot is gone.
    pub(super) fn new(
        store: &'a Store,
        settings: Settings,
        view: View,
    ) -> Result<ReadView<'a>, Stop> {
        let reader = store.reader(view).map_err(|_gone| Error::NotFound)?;
        let device = device(store, view);
        Ok(ReadView { reader, settings, device, block: store.layout().block as u64 })
    }

    /// # Errors
    /// `Stale` if there is no such inode, `Io` if its record is damaged.
    pub(super) fn inode(&self, ino: u64) -> Result<Inode, Stop> {
        let value = self.reader.get(INODES, &key(ino))?.ok_or(Error::Stale)?;
        Ok(Inode::decode(&value.bytes()).ok_or(Error::Io)?)
    }

    pub(super) fn counters(&self) -> Result<Counters, Stop> {
        let value = self.reader.get(SETTINGS, &COUNTERS_KEY)?.ok_or(Error::Io)?;
        Ok(Counters::decode(&value.bytes()).ok_or(Error::Io)?)
    }

    /// Returns the orphan record of an inode, if it has one.
    pub(super) fn orphan(&self, ino: u64) -> Result<Option<Orphan>, Stop> {
        let Some(value) = self.reader.get(ORPHANS, &key(ino))? else { return Ok(None) };
        Ok(Some(Orphan::decode(&value.bytes()).ok_or(Error::Io)?))
    }

    /// Looks up a name in a directory.
    pub(super) fn lookup(&self, dir: u64, name: &Name) -> Result<Option<Found>, Stop> {
        let (mut found, mut damaged) = (None, false);
        self.alike(ENTRIES, dir, name.as_bytes(), &mut |cookie, value| {
            let bytes = value.bytes();
            if Entry::name_of(&bytes) != name.as_bytes() {
                return ControlFlow::Continue(());
            }
            match Entry::decode(&bytes) {
                Some(Entry { ino, kind, .. }) => found = Some(Found { cookie, ino, kind }),
                None => damaged = true,
            }
            ControlFlow::Break(())
        })?;
        if damaged { Err(Error::Io.into()) } else { Ok(found) }
    }

    /// Looks up an extended attribute: cookie and value.
    pub(super) fn attr(&self, ino: u64, name: &[u8]) -> Result<Option<(u64, Vec<u8>)>, Stop> {
        let (mut found, mut damaged) = (None, false);
        self.alike(ATTRS, ino, name, &mut |cookie, value| match Attr::decode(&value.bytes()) {
            Some(attr) if attr.name == name => {
                found = Some((cookie, attr.value.to_vec()));
                ControlFlow::Break(())
            }
            Some(_other) => ControlFlow::Continue(()),
            None => {
                damaged = true;
                ControlFlow::Break(())
            }
        })?;
        if damaged { Err(Error::Io.into()) } else { Ok(found) }
    }

    /// Returns a free cookie for a name that does not exist.
    ///
    /// # Errors
    /// `NoSpace` if too many names have the same hash.
    pub(super) fn vacant(&self, table: Table, ino: u64, name: &[u8]) -> Result<u64, Stop> {
        let first = names::first_cookie(self.settings.seed, name);
        assert!(first.is_multiple_of(ALIKE_MAX), "places of one hash are not those of another");
        let mut vacant = first;
        self.alike(table, ino, name, &mut |cookie, _value| {
            if cookie != vacant {
                return ControlFlow::Break(());
            }
            vacant += 1;
            ControlFlow::Continue(())
        })?;
        if vacant < first + ALIKE_MAX { Ok(vacant) } else { Err(Error::NoSpace.into()) }
    }

    /// Visits all records at the possible cookies of a name.
    fn alike(
        &self,
        table: Table,
        ino: u64,
        name: &[u8],
        visit: &mut dyn FnMut(u64, Value<'_>) -> ControlFlow<()>,
    ) -> Result<(), Missing> {
        let first = names::first_cookie(self.settings.seed, name);
        self.scan(table, ino, first, &mut |cookie, value| {
            if cookie >= first + ALIKE_MAX {
                return ControlFlow::Break(());
            }
            visit(cookie, value)
        })
    }

    /// Visits the records of an inode in a table, from a cookie on.
    pub(super) fn scan(
        &self,
        table: Table,
        ino: u64,
        from: u64,
        visit: &mut dyn FnMut(u64, Value<'_>) -> ControlFlow<()>,
    ) -> Result<(), Missing> {
        self.reader.scan(table, &pair(ino, from), &mut |key, value| match of_pair(key) {
            Some((of, cookie)) if of == ino => visit(cookie, value),
            Some(_) | None => ControlFlow::Break(()),
        })
    }

    /// Returns whether the directory `ino` is `above` or beneath it.
    ///
    /// # Errors
    /// `NameTooLong` if it is deeper than [`DEPTH_MAX`].
    pub(super) fn is_beneath(&self, mut ino: u64, above: u64) -> Result<bool, Stop> {
        for _ in 0..=DEPTH_MAX {
            if ino == above {
                return Ok(true);
            }
            if ino == ROOT {
                return Ok(false);
            }
            ino = self.inode(ino)?.parent;
        }
        Err(Error::NameTooLong.into())
    }

    /// Returns the attributes as reported to clients.
    pub(super) fn stat(&self, ino: u64, inode: &Inode) -> Stat {
        Stat {
            kind: inode.kind,
            mode: inode.mode,
            links: inode.links,
            uid: inode.uid,
            gid: inode.gid,
            size: if inode.is_directory() { DIRECTORY_SIZE } else { inode.size },
            blocks: inode.blocks.saturating_mul(self.block / 512),
            block_size: u32::try_from(self.block).unwrap_or(4096).max(4096),
            device: self.device,
            inode: ino,
            special_device: inode.special,
            accessed: inode.accessed,
            modified: inode.modified,
            changed: inode.changed,
            // Inode numbers are not used again.
            created: None,
        }
    }
}

/// Returns the device number of a view.
pub(super) fn device(store: &Store, view: View) -> u64 {
    // Clients see it, and with the volume's own number they could forge records of the journal.
    let created = store.superblock().created;
    let volume = (created.secs as u64).rotate_left(30) ^ u64::from(created.nanos);
    match view {
        View::Present => names::device(volume, None),
        View::Snapshot(SnapshotId(id)) => names::device(volume, Some(id)),
    }
}
