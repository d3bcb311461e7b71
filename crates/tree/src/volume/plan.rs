//! Planning of requests: a pure function of the pages in memory.
//!
//! Each plan is made from the start, so nothing is half done in between. Planning changes nothing,
//! as the compiler checks (`&Volume`).

#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "each function takes its share of the requests and hands on the rest"
)]

use super::permission::Credentials;
use super::read_view::{ReadView, Stop};
use super::record::{Holder, INODES, Inode, key};
use super::write_set::{self, WriteSet};
use super::{EntryKey, NodeRef, Opening, Volume};
use crate::request::{Ask, NodeId, OpenId, Reply};
use base::{Buf, Error, Name, Stat, Time};
use std::ops::Range;
use std::time::Duration;
use store::{Block, Change, Extent, View};

/// Handling of a request.
pub(super) enum Plan {
    /// Reply at once. The changes record access times and may be lost.
    Answer(Answer, Vec<Change>),
    /// Commit these changes, then reply.
    Commit(Commit),
    /// Write these blocks to the disk, then plan again.
    Place(Placing, Vec<Block>),
    /// Make everything durable, then reply.
    Sync,
    /// Create a snapshot of this name, then plan again.
    Snapshot(Name),
    /// Drop the snapshot of this name, then reply.
    DropSnapshot(Name),
}

/// A write whose blocks are being placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Placing {
    /// Offset of the write in the file.
    pub(super) offset: u64,
    /// The file whose end is that offset, for an append.
    pub(super) appends_to: Option<u64>,
}

/// Changes with their effects.
pub(super) struct Commit {
    pub(super) changes: Vec<Change>,
    /// Whether the reply waits for their durability.
    pub(super) durable: bool,
    pub(super) answer: Answer,
    pub(super) effects: Effects,
}

/// A reply with the node and open file to hand out.
pub(super) enum Answer {
    /// Nothing.
    Reply(Reply),
    /// A node.
    Walked(Vec<Stat>, NodeRef, Option<EntryKey>),
    /// An open file.
    Opened(Opening, Stat),
    /// Both; without a place if the file has no name.
    Created(Opening, Option<EntryKey>, Stat),
    /// An open file, if there are more bytes to read.
    Fetched(Stat, Buf, Option<Opening>),
    /// Nothing, but data behind this part of the file may be read ahead.
    Read { reply: Reply, open: OpenId, part: Range<u64>, size: u64 },
}

/// Effects of a transaction on the state of the volume.
#[derive(Debug, Default)]
pub(super) struct Effects {
    /// An entry of this inode was removed.
    pub(super) gone: Option<(u64, EntryKey)>,
    /// An entry of this inode was renamed.
    pub(super) moved: Option<(u64, EntryKey, EntryKey)>,
    /// An inode that has lost its last name, but still exists.
    pub(super) orphans: Option<u64>,
    /// An inode that has got its first name.
    pub(super) named: Option<(u64, EntryKey)>,
    /// An inode with contents behind its end.
    pub(super) trimming: Option<u64>,
    /// Directory beneath which files must be counted, and the quota; zero for a user's.
    pub(super) uncounted: Option<(Holder, u64)>,
    /// Whether placed blocks were attached to the file.
    pub(super) attached: bool,
}

pub(super) type Planned = Result<Plan, Stop>;

/// Result of an earlier plan of the same request.
#[derive(Debug)]
pub(super) enum Progress {
    /// Nothing.
    None,
    /// Blocks were placed for a write at this offset of the file. They are valid for that offset
    /// only.
    Placed(u64, Vec<Extent>),
    /// The snapshot was made.
    Made,
}

/// Inputs of a plan.
#[derive(Clone, Copy)]
pub(super) struct Planner<'a> {
    pub(super) volume: &'a Volume,
    /// Slot of the pending request.
    pub(super) slot: usize,
    pub(super) who: Credentials<'a>,
    pub(super) now: Time,
}

/// Age from which on an access time is updated by a read.
const ACCESS_SPAN: Duration = Duration::from_secs(24 * 60 * 60);

impl<'a> Planner<'a> {
    /// Returns the plan of a request.
    pub(super) fn plan(&self, ask: &Ask, progress: &Progress) -> Planned {
        match ask {
            Ask::Walk { from, names } => self.walk(*from, names),
            Ask::Fetch { root, path, read_max, headroom } => {
                self.fetch(*root, path, *read_max, *headroom)
            }
            Ask::Stat { node } => self.stat(*node),
            Ask::FileHandle { node } => self.file_handle(*node),
            Ask::Resolve { handle } => self.find_handle(handle),
            Ask::Open { node, access } => self.open(*node, *access),
            Ask::Read { open, offset, count, headroom } => {
                self.read(*open, *offset, *count, *headroom)
            }
            Ask::NextData { open, from } => self.next_data(*open, *from),
            Ask::Write { open, offset, data } => self.write(*open, *offset, data, progress),
            Ask::Sync { open, .. } => self.sync(*open),
            Ask::List { open, cookie, bytes_max, detail } => {
                self.list(*open, *cookie, *bytes_max as usize, *detail)
            }
            Ask::ListAll { from, paths, bytes_max } => self.list_all(*from, paths, *bytes_max),
            Ask::ReadAll { from, paths, size_max, bytes_max } => {
                self.read_all(*from, paths, *size_max, *bytes_max)
            }
            Ask::ReadLink { node } => self.read_link(*node),
            Ask::StatFs { node } => self.stat_fs(*node),
            Ask::GetAttr { node, name } => self.get_attr(*node, name),
            Ask::ListAttrs { node } => self.list_attrs(*node),
            Ask::MakeDir { dir, name, .. } if self.volume.node_ref(*dir) == NodeRef::Snapshots => {
                self.make_snapshot(name, progress)
            }
            Ask::Remove { dir, name, directory }
                if self.volume.node_ref(*dir) == NodeRef::Snapshots =>
            {
                self.drop_snapshot(name, *directory)
            }
            ask => self.plan_change(ask),
        }
    }

    fn plan_change(&self, ask: &Ask) -> Planned {
        match ask {
            Ask::SetStat { node, open, set } => self.set_stat(*node, *open, set),
            Ask::Create { dir, name, access, exclusive, mode, gid } => {
                self.create(*dir, name, *access, *exclusive, (*mode, *gid))
            }
            Ask::MakeDir { dir, name, mode, gid } => self.make_dir(*dir, name, *mode, *gid),
            Ask::Symlink { dir, name, target, gid } => self.symlink(*dir, name, target, *gid),
            Ask::MakeNode { dir, name, kind, mode, device, gid } => {
                self.make_node(*dir, name, *kind, *device, (*mode, *gid))
            }
            Ask::Link { node, dir, name } => self.link(*node, *dir, name),
            Ask::Rename { from, name, to, new_name, replace } => {
                let (from, to) = (self.changeable(*from)?, self.changeable(*to)?);
                self.rename((from, name), (to, new_name), *replace)
            }
            Ask::RenameNode { node, to, new_name, replace } => {
                self.rename_node(*node, *to, new_name, *replace)
            }
            Ask::CreateUnnamed { dir, name: _, access, mode } => {
                self.create_unnamed(*dir, *access, *mode)
            }
            Ask::Replace { dir, name, by, expected } => self.replace(*dir, name, by, *expected),
            Ask::Remove { dir, name, directory } => {
                self.remove(self.changeable(*dir)?, name, *directory)
            }
            Ask::RemoveNode { node } => self.remove_node(*node),
            Ask::SetAttr { node, name, value, create } => {
                self.set_attr(*node, name, value, *create)
            }
            Ask::RemoveAttr { node, name } => self.remove_attr(*node, name),
            // The rest is planned already, or does not concern records. A new request must be added
            // here or above.
            Ask::Walk { .. }
            | Ask::Fetch { .. }
            | Ask::Stat { .. }
            | Ask::FileHandle { .. }
            | Ask::Resolve { .. }
            | Ask::Open { .. }
            | Ask::Read { .. }
            | Ask::NextData { .. }
            | Ask::Write { .. }
            | Ask::Sync { .. }
            | Ask::List { .. }
            | Ask::ListAll { .. }
            | Ask::ReadAll { .. }
            | Ask::ReadLink { .. }
            | Ask::StatFs { .. }
            | Ask::GetAttr { .. }
            | Ask::ListAttrs { .. }
            | Ask::Lock { .. }
            | Ask::GetLock { .. }
            | Ask::Identify { .. } => unreachable!("{ask:?} changes nothing"),
        }
    }

    /// Returns a read view of the volume.
    pub(super) fn read_view(&self, view: View) -> Result<ReadView<'a>, Stop> {
        self.volume.read_view(view)
    }

    /// Returns an empty write set on the present.
    pub(super) fn write_set(&self) -> Result<WriteSet<'a>, Stop> {
        self.volume.write_set(self.now)
    }

    /// Returns the inode of a node, which must be one of the present.
    pub(super) fn changeable(&self, node: NodeId) -> Result<u64, Error> {
        match self.volume.node_ref(node) {
            NodeRef::File(View::Present, ino) => Ok(ino),
            NodeRef::File(View::Snapshot(_), _) | NodeRef::Snapshots => Err(Error::ReadOnly),
        }
    }

    /// Returns the plan that commits these changes, then sends `reply`.
    pub(super) fn commit(
        &self,
        write_set: WriteSet<'_>,
        reply: Reply,
        effects: Effects,
    ) -> Planned {
        self.commit_as(write_set, Answer::Reply(reply), effects)
    }

    /// # Errors
    /// `Appending` while an append to this file by another request has blocks being placed at the
    /// present end of the file: until then the end must not move.
    pub(super) fn expect_end_movable(&self, ino: u64) -> Result<(), Stop> {
        match self.volume.appends.is_held_from(ino, self.slot) {
            true => Err(Stop::Appending(ino)),
            false => Ok(()),
        }
    }

    pub(super) fn commit_as(
        &self,
        write_set: WriteSet<'_>,
        answer: Answer,
        effects: Effects,
    ) -> Planned {
        let changes = write_set.finish();
        Ok(Plan::Commit(Commit { changes, durable: false, answer, effects }))
    }

    /// Returns the change of the access time, if it is due: when the last one is not later than the
    /// last change of the file, or a day old (Linux's `relatime`).
    pub(super) fn note_access(&self, view: View, ino: u64, inode: &Inode) -> Vec<Change> {
        let old = Time { secs: self.now.secs - ACCESS_SPAN.as_secs() as i64, ..self.now };
        let is_recent = inode.accessed > inode.modified && inode.accessed > inode.changed;
        if self.volume.read_only || view != View::Present || (is_recent && inode.accessed > old) {
            return Vec::new();
        }
        // Later than the last change, or the next read would update it again.
        let accessed = write_set::after(inode.changed, self.now);
        let inode = Inode { accessed, ..inode.clone() };
        vec![Change::Put { table: INODES, key: key(ino).to_vec(), value: inode.encode() }]
    }
}

/// Returns the plan of a reply without changes.
pub(super) fn answer(reply: Reply) -> Planned {
    Ok(Plan::Answer(Answer::Reply(reply), Vec::new()))
}
