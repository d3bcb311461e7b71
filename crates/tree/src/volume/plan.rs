//! What a request comes to: a pure function of what is in memory.
//!
//! A plan is made from the start each time; nothing is half done in between. Making one changes
//! nothing, as the compiler knows (`&Volume`).

#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "each function takes its share of the requests and hands on the rest"
)]

use super::draft::{self, Draft};
use super::permission::Person;
use super::record::{Holder, INODES, Inode, key};
use super::sight::{Sight, Stop};
use super::{Opening, Place, Spot, Volume};
use crate::request::{Ask, NodeId, OpenId, Reply};
use base::{Buf, Error, Name, Stat, Time};
use std::ops::Range;
use std::time::Duration;
use store::{Block, Change, Extent, View};

/// How a request is going to be answered.
pub(super) enum Plan {
    /// At once. What is read notes so; these changes may be lost.
    Answer(Answer, Vec<Change>),
    /// When these changes are made.
    Commit(Commit),
    /// After these blocks are on the disk.
    Place(Placing, Vec<Block>),
    /// When everything is durable.
    Sync,
    /// When there is a snapshot of this name.
    Snapshot(Name),
    /// When there is no snapshot of this name any more.
    DropSnapshot(Name),
}

/// The write that blocks are placed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Placing {
    /// The offset in the file at which the write begins.
    pub(super) offset: u64,
    /// The file whose end that offset is, for an append.
    pub(super) appends_to: Option<u64>,
}

/// Changes and what follows from them.
pub(super) struct Commit {
    pub(super) changes: Vec<Change>,
    /// Whether the answer waits until they survive power loss.
    pub(super) durable: bool,
    pub(super) answer: Answer,
    pub(super) effects: Effects,
}

/// What an answer hands out besides the reply.
pub(super) enum Answer {
    /// Nothing.
    Reply(Reply),
    /// A node.
    Walked(Vec<Stat>, Spot, Option<Place>),
    /// An open file.
    Opened(Opening, Stat),
    /// Both; no place: the file has no name.
    Created(Opening, Option<Place>, Stat),
    /// An open file, if there is more to read.
    Fetched(Stat, Buf, Option<Opening>),
    /// Nothing, but what comes behind this part of the file may be read ahead.
    Read { reply: Reply, open: OpenId, part: Range<u64>, size: u64 },
}

/// What the volume has to know of a transaction.
#[derive(Debug, Default)]
pub(super) struct Effects {
    /// An entry that led to this inode is there no more.
    pub(super) gone: Option<(u64, Place)>,
    /// An entry that led to this inode is somewhere else now.
    pub(super) moved: Option<(u64, Place, Place)>,
    /// An inode without a name, that still is there.
    pub(super) nameless: Option<u64>,
    /// An inode that had no name has one now.
    pub(super) named: Option<(u64, Place)>,
    /// An inode with contents behind its end.
    pub(super) trimming: Option<u64>,
    /// Directory beneath which files have to be counted, and the quota; zero for a user's.
    pub(super) uncounted: Option<(Holder, u64)>,
    /// The blocks that were placed are part of the file.
    pub(super) attached: bool,
}

pub(super) type Planned = Result<Plan, Stop>;

/// What an earlier plan of the same request has brought about.
#[derive(Debug)]
pub(super) enum Progress {
    /// Nothing.
    None,
    /// Blocks were placed for a write that begins at this offset of the file. They hold its data
    /// for that offset and are useless at any other.
    Placed(u64, Vec<Extent>),
    /// The snapshot was made.
    Made,
}

/// What a plan is made of.
#[derive(Clone, Copy)]
pub(super) struct Scene<'a> {
    pub(super) volume: &'a Volume,
    /// The slot of the request in the table of pending requests.
    pub(super) slot: usize,
    pub(super) who: Person<'a>,
    pub(super) now: Time,
}

/// A changed inode's dates say so to whoever reads it less often than that.
const ACCESS_SPAN: Duration = Duration::from_secs(24 * 60 * 60);

impl<'a> Scene<'a> {
    /// The plan for a request that has to do with records.
    pub(super) fn plan(&self, ask: &Ask, progress: &Progress) -> Planned {
        match ask {
            Ask::Walk { from, names } => self.walk(*from, names),
            Ask::Fetch { root, path, read_max, headroom } => {
                self.fetch(*root, path, *read_max, *headroom)
            }
            Ask::Stat { node } => self.stat(*node),
            Ask::Open { node, access } => self.open(*node, *access),
            Ask::Read { open, offset, count, headroom } => {
                self.read(*open, *offset, *count, *headroom)
            }
            Ask::NextData { open, from } => self.next_data(*open, *from),
            Ask::Write { open, offset, data } => self.write(*open, *offset, data, progress),
            Ask::Sync { open, .. } => self.sync(*open),
            Ask::List { open, cookie, bytes_max, with_stat } => {
                self.list(*open, *cookie, *bytes_max as usize, *with_stat)
            }
            Ask::ListAll { from, paths, bytes_max } => self.list_all(*from, paths, *bytes_max),
            Ask::ReadAll { from, paths, size_max, bytes_max } => {
                self.read_all(*from, paths, *size_max, *bytes_max)
            }
            Ask::ReadLink { node } => self.read_link(*node),
            Ask::StatFs { node } => self.stat_fs(*node),
            Ask::GetAttr { node, name } => self.get_attr(*node, name),
            Ask::ListAttrs { node } => self.list_attrs(*node),
            Ask::MakeDir { dir, name, .. } if self.volume.spot(*dir) == Spot::Snapshots => {
                self.make_snapshot(name, progress)
            }
            Ask::Remove { dir, name, directory } if self.volume.spot(*dir) == Spot::Snapshots => {
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
            // The rest has been planned, or has nothing to do with records. Whoever adds a
            // request decides here which.
            Ask::Walk { .. }
            | Ask::Fetch { .. }
            | Ask::Stat { .. }
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

    /// One view of the volume.
    pub(super) fn sight(&self, view: View) -> Result<Sight<'a>, Stop> {
        self.volume.sight(view)
    }

    /// Changes of the present.
    pub(super) fn draft(&self) -> Result<Draft<'a>, Stop> {
        self.volume.draft(self.now)
    }

    /// The inode that a node is, which must be one that can change.
    pub(super) fn changeable(&self, node: NodeId) -> Result<u64, Error> {
        match self.volume.spot(node) {
            Spot::File(View::Present, ino) => Ok(ino),
            Spot::File(View::Snapshot(_), _) | Spot::Snapshots => Err(Error::ReadOnly),
        }
    }

    /// The answer `reply`, when these changes are made.
    pub(super) fn commit(&self, draft: Draft<'_>, reply: Reply, effects: Effects) -> Planned {
        self.commit_as(draft, Answer::Reply(reply), effects)
    }

    /// # Errors
    /// `Appending` while an append to this file by another request has blocks being placed for
    /// the offset that is the file's end now: until then the end must not move.
    pub(super) fn expect_end_movable(&self, ino: u64) -> Result<(), Stop> {
        match self.volume.appends.is_held_from(ino, self.slot) {
            true => Err(Stop::Appending(ino)),
            false => Ok(()),
        }
    }

    pub(super) fn commit_as(&self, draft: Draft<'_>, answer: Answer, effects: Effects) -> Planned {
        let changes = draft.finish();
        Ok(Plan::Commit(Commit { changes, durable: false, answer, effects }))
    }

    /// What notes that a file was read, if that is worth a change: the date of the last read
    /// must not be before that of a change, nor a day old (Linux's `relatime`).
    pub(super) fn note_access(&self, view: View, ino: u64, inode: &Inode) -> Vec<Change> {
        let old = Time { secs: self.now.secs - ACCESS_SPAN.as_secs() as i64, ..self.now };
        let told = inode.accessed > inode.modified && inode.accessed > inode.changed;
        if self.volume.read_only || view != View::Present || (told && inode.accessed > old) {
            return Vec::new();
        }
        // Later than the last change, or the next read would note it again.
        let accessed = draft::after(inode.changed, self.now);
        let inode = Inode { accessed, ..inode.clone() };
        vec![Change::Put { table: INODES, key: key(ino).to_vec(), value: inode.encode() }]
    }
}

/// An answer without changes.
pub(super) fn answer(reply: Reply) -> Planned {
    Ok(Plan::Answer(Answer::Reply(reply), Vec::new()))
}
